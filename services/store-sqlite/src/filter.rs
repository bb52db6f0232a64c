//! Compiles filters to SQL. `context_store::oracle` defines what a filter means. The SQL must agree with it, and the
//! property test of this crate compares the two.
//!
//! Values are always bound. Metadata paths are part of the SQL text, because SQLite uses an expression index only for a
//! literal path. Their segments are `[A-Za-z0-9_-]+` by construction.

mod condition;
mod index;
mod select;

#[cfg(test)]
pub(crate) mod tests;

pub(crate) use index::index_statement;
pub(crate) use select::{Candidates, candidates, index_decides, is_direct, json_list, select};

use context_model::{
    Condition, ContentType, Filter, MetadataPath, Tags, ThreadPattern, ThreadSet, end_of_prefix,
};

use crate::sql::{self, Bind, Fragment};

/// The condition on rows of `entries` that selects the owner's entries that satisfy the filter.
pub(crate) fn compile(filter: &Filter, owner: i64) -> Fragment {
    let Filter {
        within: reach,
        thread_id,
        source,
        tags,
        content_type,
        conditions,
        created_from,
        created_to,
    } = filter;
    let mut all = Fragment::new("entries.owner = ");
    all.bind(Bind::Int(owner));
    if let Some(reach) = reach {
        all.push(" AND ").append(within("entries.thread_id", reach));
    }
    if let Some(thread_id) = thread_id {
        all.push(" AND entries.thread_id = ")
            .bind(Bind::Text(thread_id.as_str().to_owned()));
    }
    if let Some(from) = created_from {
        all.push(" AND entries.created_at >= ")
            .bind(Bind::Int(from.micros()));
    }
    if let Some(to) = created_to {
        all.push(" AND entries.created_at <= ")
            .bind(Bind::Int(to.micros()));
    }
    if let Some(source) = source {
        all.push(" AND entries.source = ")
            .bind(Bind::Text(source.as_str().to_owned()));
    }
    match content_type {
        None => {}
        Some(ContentType::Text) => _ = all.push(" AND entries.image_count = 0"),
        Some(ContentType::Multimodal) => _ = all.push(" AND entries.image_count > 0"),
    }
    if let Some(tags) = tags {
        all.push(" AND EXISTS (SELECT 1 FROM entry_tags WHERE entry_tags.owner = ")
            .bind(Bind::Int(owner));
        all.push(" AND entry_tags.tag IN (")
            .append(tag_list(tags))
            .push(") AND entry_tags.row_id = entries.row_id)");
    }
    for condition in conditions {
        #[cfg(test)]
        let broken = tests::broken(condition);
        #[cfg(test)]
        let condition = broken.as_ref().unwrap_or(condition);
        all.push(" AND (")
            .append(condition::compile(condition))
            .push(")");
    }
    all
}

/// Whether an index can serve part of the condition, given the indexed fields.
pub(crate) fn is_served(condition: &Condition, indexed: &[MetadataPath]) -> bool {
    indexed.contains(&condition.path) && condition::index_term(condition).is_some()
}

/// The condition that the thread in this column matches one of these patterns.
pub(crate) fn within(column: &str, threads: &ThreadSet) -> Fragment {
    let mut any = Fragment::new("(");
    for (i, pattern) in threads.patterns().iter().enumerate() {
        any.push(if i == 0 { "" } else { " OR " })
            .append(one_of(column, pattern));
    }
    any.push(")");
    any
}

/// The condition that the thread in this column matches one pattern. An index can serve it.
fn one_of(column: &str, pattern: &ThreadPattern) -> Fragment {
    let mut one = Fragment::default();
    match pattern {
        ThreadPattern::Name(name) => {
            _ = one.push(column).push(" = ").bind(Bind::Text(name.clone()))
        }
        ThreadPattern::Prefix(prefix) => _ = one.append(begins_with(column, prefix)),
    }
    one
}

/// The condition that the text in this column begins with a prefix. An index can serve it.
pub(crate) fn begins_with(column: &str, prefix: &str) -> Fragment {
    let mut range = Fragment::new("(");
    range
        .push(column)
        .push(" >= ")
        .bind(Bind::Text(prefix.to_owned()));
    if let Some(end) = end_of_prefix(prefix) {
        range
            .push(" AND ")
            .push(column)
            .push(" < ")
            .bind(Bind::Text(end));
    }
    range.push(")");
    range
}

/// The tags as a list of placeholders.
fn tag_list(tags: &Tags) -> Fragment {
    sql::placeholders(tags.as_slice().iter().map(|tag| Bind::Text(tag.clone())))
}
