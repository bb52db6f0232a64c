//! Full-text search. Each owner has FTS5 tables of its own, so that its words never affect another owner's scores.
//!
//! `fts_<owner>(text, ctx, scope)` is contentless: it stores no text. Its rowid is `entries.row_id`. `scope` holds the
//! values that a filter compares for equality (thread, source, content type, tags) as tokens. Such a filter then
//! intersects posting lists inside FTS5 instead of looking up every match. `ctx` holds the context keywords of the
//! preceding entries (`context_window.rs`). Only hybrid search uses it. It counts as one word for FTS5, whatever its
//! length.
//!
//! `fts_artifacts_<owner>` holds the documents of artifacts in the same way, without scope and context.
//!
//! | module | contents |
//! |---|---|
//! | `table` | creates and fills the tables |
//! | `scope` | the tokens of the scope column |
//! | `expression` | compiles a query to FTS5's query language |
//! | `search` | ranked search |
//! | `phrase_counts` | the best of a few candidate rows |
//! | `frequencies` | the number of entries that match a query |
//!
//! The stock `sqlite3` shell cannot read these tables, because it lacks the tokenizer.

mod expression;
mod frequencies;
mod phrase_counts;
mod scope;
mod search;
mod table;

#[cfg(test)]
mod tests;

pub(crate) use frequencies::frequencies;
pub(crate) use search::{Found, search};
pub(crate) use table::{
    Document, create_table, delete, forget, insert, insert_artifact, made_with, rebuild,
};
