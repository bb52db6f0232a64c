//! Writes a piece of text as a snippet: hits are marked, everything else is escaped.

use std::ops::Range;

const START: &str = "<mark>";
const END: &str = "</mark>";
/// Number of characters that a mark adds.
pub(crate) const MARK_CHARS: usize = START.len() + END.len();

/// Appends `text[window]` with `<mark>` around the given ranges. The ranges are sorted, do not touch each other and lie
/// inside the window.
pub(crate) fn write_marked(
    text: &str,
    window: Range<usize>,
    marks: &[Range<usize>],
    out: &mut String,
) {
    let mut at = window.start;
    for mark in marks {
        escape(&text[at..mark.start], out);
        out.push_str(START);
        escape(&text[mark.clone()], out);
        out.push_str(END);
        at = mark.end;
    }
    escape(&text[at..window.end], out);
}

fn escape(text: &str, out: &mut String) {
    for c in text.chars() {
        match entity(c) {
            Some(entity) => out.push_str(entity),
            None => out.push(c),
        }
    }
}

/// Number of characters of a text when it is escaped.
pub(crate) fn escaped_chars(text: &str) -> usize {
    text.chars().map(|c| entity(c).map_or(1, str::len)).sum()
}

/// The entity that stands for a character. `None` if it stands for itself.
const fn entity(c: char) -> Option<&'static str> {
    match c {
        '<' => Some("&lt;"),
        '>' => Some("&gt;"),
        '&' => Some("&amp;"),
        _ => None,
    }
}
