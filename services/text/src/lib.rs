//! How text becomes searchable: one analyzer, one query parser and one snippet maker, shared by
//! every database.
//!
//! - [`Analyzer`] splits a text into folded, stemmed [`Token`]s. Documents and queries go through
//!   the same analyzer, so they always agree.
//! - [`parse`] turns what a user typed into a [`Query`] tree. User text never reaches a database's
//!   own query language; each store compiles the tree instead.
//! - [`chunks`] cuts a long text for a model that reads only so many tokens.
//! - [`gist`] gives the few words by which a text helps to find its neighbours.
//! - [`highlight`] cuts the best window out of a stored text and marks the hits in it.
//!
//! This crate does no input or output and knows no database.
//!
//! # For a store
//! Index [`Token::stem`] at consecutive positions and look for [`Term::stem`]. An engine that
//! analyzes query words itself is given [`Term::word`], which it must analyze exactly once: the
//! stem of a stem may be another stem.
//!
//! Stems alone cannot answer [`Query::Prefix`]: `connecti` begins `connection` but not its stem
//! `connect`. So index [`fold`] of [`Token::word`] too where it differs from the stem, at the same
//! position (in FTS5 with `FTS5_TOKEN_COLOCATED`), and look for prefixes unstemmed: [`fold`] of
//! the term's word.
//!
//! ```
//! use context_text::{Analyzer, Language, Mode, highlight, parse};
//!
//! let analyzer = Analyzer::new(Language::English);
//! let parsed = parse(Mode::Match, "the running foxes", &analyzer)?.expect("has words");
//! let snippet = highlight("A fox runs & hides.", &parsed.query, &analyzer, 300);
//! assert_eq!(snippet, "A <mark>fox</mark> <mark>runs</mark> &amp; hides.");
//! # Ok::<(), context_text::QueryError>(())
//! ```
#![forbid(unsafe_code)]

mod analyzer;
mod boolean;
mod chars;
mod fold;
mod gist;
mod language;
mod mark;
mod parse;
mod pieces;
mod plain;
mod query;
mod snippet;
mod split;
mod stem;
mod stop_words;
mod window;

pub use analyzer::{Analyzer, MAX_WORD_CHARS, Token, TokenKind};
pub use fold::fold;
pub use gist::{GIST_BYTES, gist};
pub use language::Language;
pub use parse::{Mode, parse};
pub use plain::{ContentWord, content_words};
pub use query::{MAX_DEPTH, MAX_TERMS, Parsed, Query, QueryError, Term};
pub use snippet::highlight;
pub use split::{ChunkSizes, chunks, estimated_tokens};
