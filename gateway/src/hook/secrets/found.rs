//! The type of a secret that was found, and functions that split a text into lines and words.

use std::ops::Range;

/// A part of a text that must not be stored.
#[derive(Debug)]
pub(super) struct Secret {
    pub range: Range<usize>,
    /// The kind of secret that the marker names.
    pub kind: &'static str,
}

/// How many bytes of a value decide whether it is a secret. A value may be a text without spaces, in which names of
/// secrets stand again and again; without this bound, each of them would read the rest of the text.
pub(super) const MAX_JUDGED: usize = 512;

/// The beginning of a text up to the position `end`, or a little less.
pub(super) fn up_to(text: &str, mut end: usize) -> &str {
    if end >= text.len() {
        return text;
    }
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// The words of a text with their positions.
pub(super) fn words(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.split_whitespace()
        .map(|word| (word.as_ptr() as usize - text.as_ptr() as usize, word))
}

/// The lines of a text with their positions.
pub(super) fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines()
        .map(|line| (line.as_ptr() as usize - text.as_ptr() as usize, line))
}

/// The position of the first word from `at` on, without quotes around it.
pub(super) fn word_after(text: &str, at: usize) -> Range<usize> {
    let rest = &text[at..];
    let start = at + (rest.len() - rest.trim_start_matches([' ', '\t', '\'', '"']).len());
    let rest = &text[start..];
    let end = rest
        .find(|c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '`'))
        .unwrap_or(rest.len());
    start..start + end
}
