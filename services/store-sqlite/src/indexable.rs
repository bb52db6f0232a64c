//! A text on its way into the full-text index.
//!
//! Splitting and stemming are a good part of what storing an entry costs. There is one writer, and many threads that
//! bring it work, so a request brings its texts analyzed and the tokenizer only hands the tokens on.

use std::sync::Arc;

use context_text::{Analyzer, Language};

use crate::tokenizer::{COLOCATED, READY, VERBATIM, colocated};

/// Bytes of the texts of a request that are analyzed before it is queued, at most: that happens on a thread that serves
/// other requests too. The writer does the rest.
const BEFORE_QUEUED: usize = 16 * 1024;

/// What the tokenizer is given for a text.
#[derive(Debug, Clone)]
pub(crate) struct Indexable(Arc<str>);

impl Indexable {
    /// A text that the tokenizer analyzes.
    pub fn plain(text: &str) -> Self {
        // Nothing of it is stored, so a space in front is not seen.
        let marked = text.starts_with([VERBATIM, READY]);
        Self(if marked {
            format!(" {text}").into()
        } else {
            text.into()
        })
    }

    /// A text that is analyzed here.
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

    /// What is bound.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Makes the texts of one request ready.
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

    /// The next text.
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
