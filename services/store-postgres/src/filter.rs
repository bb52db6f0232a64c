//! Compiles filters to SQL. `context_store::oracle` defines what a filter means. This code must agree with it: the
//! property test of this crate compares both, and SQLite.
//!
//! Values are always bound. Metadata paths are part of the SQL text, because PostgreSQL uses an expression index only
//! for the same expression. Their segments are `[A-Za-z0-9_-]+` by construction.

mod condition;
mod folded;
mod index;

pub(crate) use folded::folded_json;
pub(crate) use index::indexes;

use context_model::{
    Condition, ContentType, Filter, MetadataPath, ThreadPattern, ThreadSet, end_of_prefix,
};

use context_store::DocumentKind;

use crate::pg::sql::{Bind, Fragment, fragment};

/// SQL for an artifact's metadata as it was given. Its row in `artifact_documents` has only the folded metadata.
const METADATA_OF_ARTIFACT: &str = "(SELECT v.metadata FROM context.artifact_versions AS v WHERE v.owner_id = entries.owner_id \
                                    AND v.artifact_id = entries.artifact_id AND v.version = entries.version)";

/// The filter as a condition on an owner's rows in the table of this kind, which the statement calls `entries`.
/// `indexed` are the fields that have an index.
pub(crate) fn compile<'v>(
    kind: DocumentKind,
    filter: &'v Filter,
    owner: &'v str,
    indexed: &[MetadataPath],
) -> Fragment<'v> {
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
    let mut all = Fragment::new("entries.owner_id = ");
    all.bind(Bind::text(owner));
    if let Some(reach) = reach {
        all.push(" AND ").append(within("entries.thread_id", reach));
    }
    if let Some(thread_id) = thread_id {
        all.push(" AND entries.thread_id = ")
            .bind(Bind::text(thread_id.as_str()));
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
            .bind(Bind::text(source.as_str()));
    }
    match content_type {
        None => {}
        Some(ContentType::Text) => _ = all.push(" AND entries.image_count = 0"),
        Some(ContentType::Multimodal) => _ = all.push(" AND entries.image_count > 0"),
    }
    let mut by_content = false;
    if let Some(tags) = tags {
        all.push(" AND entries.tags && ")
            .bind(Bind::texts(tags.as_slice()));
        by_content = true;
    }
    for condition in conditions {
        let is_indexed = indexed.contains(&condition.path);
        by_content |= condition::uses_content_index(condition, is_indexed);
        let mut condition = condition::compile(condition, is_indexed);
        if kind == DocumentKind::Artifact {
            condition.replace(index::EXACT_METADATA, METADATA_OF_ARTIFACT);
        }
        all.push(" AND (").append(condition).push(")");
    }
    if by_content {
        all.push(" AND ").append(of_owner(owner));
    }
    all
}

/// Whether an index can serve a part of the condition. `indexed` are the fields that have an index.
pub(crate) fn is_served(condition: &Condition, indexed: &[MetadataPath]) -> bool {
    condition::is_served(condition, indexed.contains(&condition.path))
}

/// The condition that this column's thread is in the set. The column is sorted by code points.
pub(crate) fn within<'v>(column: &'static str, threads: &'v ThreadSet) -> Fragment<'v> {
    let mut any = Fragment::new("(");
    for (i, pattern) in threads.patterns().iter().enumerate() {
        any.push(if i == 0 { "" } else { " OR " });
        any.append(match pattern {
            ThreadPattern::Name(name) => {
                fragment!("{column} = ?", Fragment::new(column), Bind::text(name))
            }
            ThreadPattern::Prefix(prefix) => begins_with(column, prefix),
        });
    }
    any.push(")");
    any
}

/// The condition that the text in this column begins with a prefix. The column is sorted by code points.
pub(crate) fn begins_with<'v>(column: &'static str, prefix: &'v str) -> Fragment<'v> {
    let column = || Fragment::new(column);
    match end_of_prefix(prefix) {
        None => fragment!("{column} >= ?", column(), Bind::text(prefix)),
        Some(end) => fragment!(
            "({column} >= ? AND {column} < ?)",
            column(),
            Bind::text(prefix),
            column(),
            Bind::text(end),
        ),
    }
}

/// The condition that restricts a scan of the index `entries_by_content` or `artifact_documents_by_content` to the
/// owner's rows.
pub(crate) fn of_owner(owner: &str) -> Fragment<'_> {
    fragment!("ARRAY[entries.owner_id] @> ARRAY[?]", Bind::text(owner))
}
