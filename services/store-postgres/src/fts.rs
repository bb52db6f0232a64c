//! Full-text search: builds a tsvector from the tokens of `context-text`, and its queries.
//!
//! For the languages that `context-text` stems, the tsvector is written token by token. It holds the stems at their
//! positions and, for prefix queries, the folded word beside its stem where the two differ. PostgreSQL then has the
//! same tokens as SQLite, stop words included. For a language that only the server knows, it gets the words separated
//! by spaces and stems them itself.

mod document;
mod expression;
mod language;
mod rebuild;

pub(crate) use document::{Document, Words, words};
pub(crate) use expression::{query, terms};
pub(crate) use language::Language;
pub(crate) use rebuild::{made_with, rebuild, rebuild_contexts};
