//! A unified diff of two texts.

use std::time::Duration;

use similar::TextDiff;

/// After this time the diff is finished with heuristics: correct, but longer than necessary. Two
/// texts of 50 000 short lines without common lines would otherwise take minutes.
const TIMEOUT: Duration = Duration::from_millis(500);

/// The diff with three lines of context, or "" if the texts are equal.
pub(super) fn unified(older: &str, newer: &str, from: i64, to: i64) -> String {
    if older == newer {
        return String::new();
    }
    let diff = TextDiff::configure()
        .timeout(TIMEOUT)
        .diff_lines(older, newer);
    diff.unified_diff()
        .context_radius(3)
        .header(&format!("version {from}"), &format!("version {to}"))
        .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_line_is_shown_with_its_surroundings() {
        let text = |middle: &str| format!("1\n2\n3\n4\n{middle}\n6\n7\n8\n9");
        assert_eq!(
            unified(&text("old"), &text("new"), 1, 3),
            "--- version 1\n+++ version 3\n@@ -2,7 +2,7 @@\n 2\n 3\n 4\n-old\n+new\n 6\n 7\n 8\n"
        );
        assert_eq!(unified("same", "same", 1, 2), "");
        assert_eq!(
            unified("a", "b", 1, 2),
            "--- version 1\n+++ version 2\n@@ -1 +1 @@\n-a\n\\ No newline at end of file\n+b\n\\ No newline at end of file\n"
        );
    }

    #[test]
    fn texts_without_anything_in_common_are_compared_in_bounded_time() {
        let lines = |letter: char| {
            (0..50_000)
                .map(|i| format!("{letter}{}\n", i % 7))
                .collect::<String>()
        };
        #[expect(clippy::disallowed_methods, reason = "the time limit of a diff")]
        let started = std::time::Instant::now();
        let diff = unified(&lines('a'), &lines('b'), 1, 2);
        assert!(diff.lines().count() > 100_000, "{}", diff.len());
        assert!(started.elapsed() < Duration::from_secs(30));
    }
}
