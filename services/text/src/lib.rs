//! Text analysis for full-text search: one analyzer, one query parser and one snippet generator, shared by both
//! databases.
//!
//! - [`Analyzer`] splits a text into folded, stemmed [`Token`]s. Documents and queries use the same analyzer, so they
//!   always agree.
//! - [`parse`] turns user input into a [`Query`] tree. User text never reaches a database's own query language. Each
//!   store compiles the tree instead.
//! - [`chunks`] cuts a long text for a model with a limited number of tokens, and [`best_part`] returns the part of a
//!   text that is most relevant to a query.
//! - [`context_keywords`] returns the context keywords of an entry: the few words by which a search also finds the
//!   later entries of its thread.
//! - [`guess_language`] says in which language a text is probably written.
//! - [`highlight`] cuts the best window out of a stored text and marks the hits in it.
//! - [`evidence`] returns the sentences of a text that match a query best, if its opening does not.
//!
//! This crate performs no I/O and does not depend on a database.
//!
//! # For a store
//! Index [`Token::stem`] at consecutive positions and search for [`Term::stem`]. An engine that analyzes query words
//! itself receives [`Term::word`] and must analyze it exactly once, because the stem of a stem may differ.
//!
//! Stems alone cannot answer [`Query::Prefix`]: `connecti` is a prefix of `connection` but not of its stem `connect`.
//! Therefore also index [`fold`] of [`Token::word`] where it differs from the stem, at the same position (in FTS5 with
//! `FTS5_TOKEN_COLOCATED`), and search for prefixes unstemmed: [`fold`] of the term's word.
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
mod evidence;
mod fold;
mod guess;
mod keywords;
mod language;
mod mark;
mod parse;
mod part;
mod pieces;
mod plain;
mod query;
mod question;
mod snippet;
mod split;
mod stem;
mod stop_words;
mod window;

pub use analyzer::{Analyzer, MAX_WORD_CHARS, Token, TokenKind};
pub use evidence::{Clues, evidence, evidence_sentences};
pub use fold::fold;
pub use guess::guess_language;
pub use keywords::{CONTEXT_KEYWORDS_BYTES, context_keywords};
pub use language::Language;
pub use parse::{Mode, parse};
pub use part::best_part;
pub use plain::{ContentWord, content_words};
pub use query::{MAX_CANDIDATES, MAX_DEPTH, MAX_TERMS, Parsed, Query, QueryError, Term};
pub use question::closing_question;
pub use snippet::highlight;
pub use split::{ChunkSizes, chunks, estimated_tokens};
