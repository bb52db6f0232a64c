//! Removes secrets from a text before it leaves the process.
//!
//! It searches for private keys, tokens whose form is well known, values that are assigned to names such as `password`,
//! arguments of commands, and strings that look random beside such words. Each one is replaced by a marker with its kind.
//! It errs on the side of removing: a lost identifier costs less than a stored key.

mod assignments;
mod commands;
mod names;
mod private_keys;
mod prose;
mod tokens;
mod urls;
mod values;

use std::ops::Range;

/// A text without its secrets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Redacted {
    /// The text, with a marker for each secret.
    pub text: String,
    /// How many secrets were removed.
    pub removed: usize,
}

/// Replaces the secrets of a text by markers such as `[removed: password]`.
#[must_use]
pub fn redact(text: &str) -> Redacted {
    let searches = [
        private_keys::find,
        tokens::find,
        urls::find,
        assignments::find,
        commands::find,
        prose::find,
    ];
    let mut found: Vec<Secret> = searches.iter().flat_map(|find| find(text)).collect();
    found.sort_by_key(|secret| (secret.range.start, std::cmp::Reverse(secret.range.end)));
    let mut redacted = String::with_capacity(text.len());
    let (mut copied, mut removed) = (0, 0);
    for Secret { range, kind } in found {
        if range.end <= copied {
            continue;
        }
        if range.start >= copied {
            redacted.push_str(&text[copied..range.start]);
            redacted.push_str("[removed: ");
            redacted.push_str(kind);
            redacted.push(']');
            removed += 1;
        }
        // Two secrets that overlap share one marker.
        copied = range.end;
    }
    redacted.push_str(&text[copied..]);
    Redacted {
        text: redacted,
        removed,
    }
}

#[derive(Debug)]
struct Secret {
    range: Range<usize>,
    kind: &'static str,
}

/// The words of a text with their positions.
fn words(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.split_whitespace()
        .map(|word| (word.as_ptr() as usize - text.as_ptr() as usize, word))
}

/// The lines of a text with their positions.
fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines()
        .map(|line| (line.as_ptr() as usize - text.as_ptr() as usize, line))
}

/// The next word, without quotes.
fn word_after(text: &str, at: usize) -> Range<usize> {
    let rest = &text[at..];
    let start = at + (rest.len() - rest.trim_start_matches([' ', '\t', '\'', '"']).len());
    let rest = &text[start..];
    let end = rest
        .find(|c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '`'))
        .unwrap_or(rest.len());
    start..start + end
}
