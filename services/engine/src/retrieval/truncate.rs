//! Truncates texts for search results.

/// Truncates a text for search results. Returns the text and whether it was truncated. A longer text is cut after
/// `max_chars` characters, or at the last space before that if the space is beyond 70 % of `max_chars`. Then `...` is
/// appended.
pub(crate) fn truncate(text: String, max_chars: usize) -> (String, bool) {
    match shown_bytes(&text, max_chars) {
        Some(end) => (format!("{}...", &text[..end]), true),
        None => (text, false),
    }
}

/// Number of bytes of a text that [`truncate`] keeps. `None` if it keeps all.
pub(super) fn shown_bytes(text: &str, max_chars: usize) -> Option<usize> {
    let (end, _) = text.char_indices().nth(max_chars)?;
    let cut = &text[..end];
    Some(match cut.rfind(' ') {
        Some(space) if cut[..space].chars().count() * 10 > max_chars * 7 => space,
        _ => end,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_at_a_late_space_or_at_the_limit() {
        let cut = |text: &str| truncate(text.to_owned(), 10);
        assert_eq!(cut("0123456789"), ("0123456789".into(), false));
        assert_eq!(cut("0123456789a"), ("0123456789...".into(), true));
        assert_eq!(cut("01234567 9a"), ("01234567...".into(), true));
        assert_eq!(cut("0123456 89a"), ("0123456 89...".into(), true));
        assert_eq!(cut("ääääääää ää"), ("ääääääää...".into(), true));
    }
}
