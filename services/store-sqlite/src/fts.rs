//! Full text: one FTS5 table for each owner, so that one owner's words never move another's scores.
//!
//! `fts_<owner>(text, ctx, scope)` holds no text of its own (contentless), and its rowid is `entries.row_id`. `scope`
//! holds what a filter compares for equality (thread, source, content type, tags) as hashed tokens, so that such a
//! filter intersects posting lists inside FTS5 instead of looking up every match. `ctx` holds words of the
//! entry's neighbours (`neighbours.rs`), for hybrid search alone, and always has the length 1.
//!
//! The stock `sqlite3` shell cannot read these tables, because it lacks the tokenizer.

mod expression;
mod scope;
mod search;
mod table;

#[cfg(test)]
mod tests;

pub(crate) use search::{Found, search};
pub(crate) use table::{Document, create_table, delete, forget, insert, rebuild};
