//! Full text: a tsvector made of the tokens of `context-text`, and its queries.
//!
//! For the languages that `context-text` stems, the tsvector is written token by token: stems at their positions, and
//! the folded word beside its stem where the two differ, for prefixes. PostgreSQL then sees the very tokens that SQLite
//! sees, stop words included. A language that only the server knows gets the words, separated by spaces, and stems
//! them itself.

mod document;
mod expression;
mod language;
mod rebuild;

pub(crate) use document::{Document, Words};
pub(crate) use expression::{query, terms};
pub(crate) use language::Language;
pub(crate) use rebuild::{rebuild, renew_contexts};
