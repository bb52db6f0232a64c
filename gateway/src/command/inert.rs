//! Stored texts that cannot drive the terminal on which they are shown.

use crate::characters::changes_direction;

/// The text with its control characters shown as escapes, except line ends and tabs. In a stored text they could change
/// what the terminal shows and does; characters that change the text direction could hide what the text says.
#[must_use]
pub fn inert(text: &str) -> String {
    escaped(
        text,
        |c| c == '\n' || c == '\t',
        |c| format!("{}", c.escape_unicode()),
    )
}

/// The text on one line, with its control characters shown as escapes.
#[must_use]
pub fn one_line(text: &str) -> String {
    inert(&text.split_whitespace().collect::<Vec<_>>().join(" "))
}

/// JSON whose strings hold no control characters: JSON itself allows those above U+007E.
#[must_use]
pub fn inert_json(json: &str) -> String {
    escaped(json, |c| c == '\n', |c| format!("\\u{:04x}", u32::from(c)))
}

fn escaped(text: &str, is_allowed: fn(char) -> bool, escape: fn(char) -> String) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if is_active(c) && !is_allowed(c) {
            shown.push_str(&escape(c));
        } else {
            shown.push(c);
        }
    }
    shown
}

/// Whether a terminal acts on the character instead of showing it.
fn is_active(c: char) -> bool {
    c.is_control() || changes_direction(c)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_stored_text_cannot_drive_the_terminal() {
        let hostile = "a\u{1b}[2Jb\r\u{9b}31m\u{7f}\u{202e}c\n\td\u{7}";
        assert_eq!(
            inert(hostile),
            "a\\u{1b}[2Jb\\u{d}\\u{9b}31m\\u{7f}\\u{202e}c\n\td\\u{7}"
        );
        let json = inert_json(&json!({ "text": hostile }).to_string());
        assert!(!json.chars().any(is_active), "{json}");
        assert_eq!(
            serde_json::from_str::<Value>(&json).unwrap()["text"],
            hostile
        );
    }
}
