//! Writes a piece of text as a snippet: hits are marked, everything else is escaped.

use std::ops::Range;

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
        out.push_str("<mark>");
        escape(&text[mark.clone()], out);
        out.push_str("</mark>");
        at = mark.end;
    }
    escape(&text[at..window.end], out);
}

fn escape(text: &str, out: &mut String) {
    let mut rest = text;
    while let Some(at) = rest.find(['<', '>', '&']) {
        out.push_str(&rest[..at]);
        out.push_str(match rest.as_bytes()[at] {
            b'<' => "&lt;",
            b'>' => "&gt;",
            _ => "&amp;",
        });
        rest = &rest[at + 1..];
    }
    out.push_str(rest);
}
