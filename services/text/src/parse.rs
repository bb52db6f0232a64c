//! Reading what a user typed as a query.

use crate::{Analyzer, Parsed, Query, QueryError, boolean, plain};

/// How the words of the input relate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Words, stemmed. Stop words are ignored while other words remain. Up to three words must all
    /// occur, and when nothing has them all, any; of four or more, any.
    Match,
    /// Every word, as the beginning of a word.
    Prefix,
    /// The words next to each other, in that order.
    Phrase,
    /// `"…"` phrases, `AND`, `OR`, `NOT` in capitals, parentheses, a trailing `*` for prefixes;
    /// adjacency means `AND`. `NOT` binds tightest, then `AND`, then `OR`.
    Boolean,
}

/// Reads what a user typed. `None` means that there is nothing to search for: no letter, no digit.
///
/// # Errors
/// Only in [`Mode::Boolean`]: a quote or parenthesis that is not closed, an operator without
/// operands, `NOT` without anything to exclude from, more than [`MAX_DEPTH`](crate::MAX_DEPTH) levels or
/// [`MAX_TERMS`](crate::MAX_TERMS) terms. The other modes take any input.
pub fn parse(mode: Mode, input: &str, analyzer: &Analyzer) -> Result<Option<Parsed>, QueryError> {
    let only = |query: Option<Query>| {
        query.map(|query| Parsed {
            query,
            fallback: None,
        })
    };
    match mode {
        Mode::Match => Ok(plain::matching(input, analyzer)),
        Mode::Prefix => Ok(only(plain::prefixes(input, analyzer))),
        Mode::Phrase => Ok(only(plain::phrase(input, analyzer))),
        Mode::Boolean => boolean::parse(input, analyzer).map(only),
    }
}
