//! A unified diff of two texts.

use std::fmt::Write as _;
use std::time::Duration;

use similar::udiff::UnifiedHunkHeader;
use similar::{ChangeTag, TextDiff};

/// After this time the diff is finished with heuristics: correct, but longer than necessary. Two
/// texts of 50 000 short lines without common lines would otherwise take minutes.
const TIMEOUT: Duration = Duration::from_millis(500);
/// Unchanged lines before and after a change.
const CONTEXT_LINES: usize = 3;

/// The diff with three lines of context, or "" if the texts are equal. Only `\n` ends a line, as programs that read
/// diffs expect. (`similar` by itself also ends lines at a lone `\r`.)
pub(super) fn unified(older: &str, newer: &str, from: i64, to: i64) -> String {
    if older == newer {
        return String::new();
    }
    let older: Vec<&str> = older.split_inclusive('\n').collect();
    let newer: Vec<&str> = newer.split_inclusive('\n').collect();
    let diff = TextDiff::configure()
        .timeout(TIMEOUT)
        .diff_slices(&older, &newer);
    let mut text = format!("--- version {from}\n+++ version {to}\n");
    for group in diff.grouped_ops(CONTEXT_LINES) {
        let _ = writeln!(text, "{}", UnifiedHunkHeader::new(&group));
        for change in group.iter().flat_map(|op| diff.iter_changes(op)) {
            text.push(match change.tag() {
                ChangeTag::Equal => ' ',
                ChangeTag::Delete => '-',
                ChangeTag::Insert => '+',
            });
            text.push_str(change.value());
            if !change.value().ends_with('\n') {
                text.push_str("\n\\ No newline at end of file\n");
            }
        }
    }
    text
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
    fn only_a_line_feed_ends_a_line() {
        assert_eq!(
            unified("same\rold\r\nlast\r", "same\rnew\r\nlast\r", 1, 2),
            "--- version 1\n+++ version 2\n@@ -1,2 +1,2 @@\n-same\rold\r\n+same\rnew\r\n last\r\n\\ No newline at end of file\n"
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
