//! Parsing user input into a query.

use crate::{Analyzer, Parsed, Query, QueryError, boolean, plain};

/// How the words of the input relate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Stemmed words. Stop words are ignored while other words remain. Up to three words must all occur, with a
    /// fallback to any of them when no entry has all. Of four or more words, any may occur.
    ///
    /// A run of Chinese, Japanese, Korean or Thai characters is a word when it is short: its characters must be
    /// adjacent. A longer run counts as many words as it has bigrams. Where any word may occur, so may any bigram.
    Match,
    /// Every word is a prefix of a word in the text.
    Prefix,
    /// The words directly after each other, in this order.
    Phrase,
    /// `"…"` phrases, `AND`, `OR` and `NOT` in capitals, parentheses, and a trailing `*` for prefixes. Adjacent
    /// operands are joined by `AND`. `NOT` binds tightest, then `AND`, then `OR`.
    Boolean,
}

/// Parses user input. `None` means that there is nothing to search for: the input has no letter or digit, or, in
/// [`Mode::Boolean`], only operands of `NOT` have some.
///
/// # Errors
/// Only in [`Mode::Boolean`]: an unclosed quote, an unmatched parenthesis, parentheses around nothing, an operator
/// without operands, `NOT` with nothing to exclude from, more than [`MAX_DEPTH`](crate::MAX_DEPTH) levels or more than
/// [`MAX_TERMS`](crate::MAX_TERMS) terms. The other modes accept any input.
pub fn parse(mode: Mode, input: &str, analyzer: &Analyzer) -> Result<Option<Parsed>, QueryError> {
    let only = |query: Option<Query>| {
        query.map(|query| Parsed {
            query,
            fallback: None,
            candidates: Vec::new(),
        })
    };
    match mode {
        Mode::Match => Ok(plain::matching(input, analyzer)),
        Mode::Prefix => Ok(only(plain::prefixes(input, analyzer))),
        Mode::Phrase => Ok(only(plain::phrase(input, analyzer))),
        Mode::Boolean => boolean::parse(input, analyzer).map(only),
    }
}
