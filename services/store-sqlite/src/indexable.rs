//! A text on its way into the full-text index.
//!
//! Splitting and stemming are a large part of the cost of storing an entry. There is one writer but many threads that
//! send it work, so a request analyzes its texts before it is queued, and the tokenizer only passes the tokens on.

use std::sync::Arc;

use context_text::{Analyzer, Language};

use crate::tokenizer::{COLOCATED, READY, VERBATIM, colocated};

/// Maximum number of text bytes that a request analyzes before it is queued, because its thread serves other requests
/// too. The writer analyzes the rest.
const BEFORE_QUEUED: usize = 16 * 1024;

/// The input of the tokenizer for one text.
#[derive(Debug, Clone)]
pub(crate) struct Indexable(Arc<str>);

impl Indexable {
    /// A text that the tokenizer will analyze.
    pub fn plain(text: &str) -> Self {
        // The table stores no text, so the additional space is never visible.
        let marked = text.starts_with([VERBATIM, READY]);
        Self(if marked {
            format!(" {text}").into()
        } else {
            text.into()
        })
    }

    /// A text that is analyzed now.
    pub fn analyzed(analyzer: &Analyzer, text: &str) -> Self {
        let mut tokens = String::with_capacity(2 * text.len());
        tokens.push(READY);
        analyzer.tokens(text, &mut |token| {
            tokens.push_str(token.stem);
            tokens.push(' ');
            if let Some(word) = colocated(&token) {
                tokens.push(COLOCATED);
                tokens.push_str(&word);
                tokens.push(' ');
            }
            true
        });
        Self(tokens.into())
    }

    /// The value to bind.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Prepares the texts of one request.
#[derive(Debug)]
pub(crate) struct Preparation {
    analyzer: Analyzer,
    bytes_left: usize,
}

impl Preparation {
    pub fn new(language: Language) -> Self {
        Self {
            analyzer: Analyzer::new(language),
            bytes_left: BEFORE_QUEUED,
        }
    }

    /// Prepares the next text.
    pub fn next(&mut self, text: &str) -> Indexable {
        match self.bytes_left.checked_sub(text.len()) {
            Some(left) => {
                self.bytes_left = left;
                Indexable::analyzed(&self.analyzer, text)
            }
            None => Indexable::plain(text),
        }
    }
}
