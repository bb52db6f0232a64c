//! The parameters of the context window, which both full-text indexes are built with.

use std::time::Duration;

/// The context window: the preceding entries of a thread whose words help hybrid search to find a reply. A question's
/// words often occur in the turn before the answer.
///
/// A reply is an entry whose preceding entry, within the gap, has the other source. Any other entry has an empty context
/// window: entries that one source stores in a row are often unrelated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ContextWindow {
    /// Number of preceding entries, 0 to 8. 0 disables the context window (`CONTEXT_NEIGHBOURS`).
    pub entries: u32,
    /// How much older than the entry they may be (`CONTEXT_GAP_MINUTES`).
    pub gap: Duration,
}

impl ContextWindow {
    /// Maximum number of context keywords taken from each preceding entry ([`context_text::context_keywords`]).
    pub const WORDS: usize = 32;

    /// No context window.
    pub const NONE: Self = Self {
        entries: 0,
        gap: Duration::ZERO,
    };

    /// A description of the parameters. It is stored with the index, which is rebuilt when the description differs.
    #[must_use]
    pub fn note(&self) -> String {
        if self.entries == 0 {
            "alone".to_owned()
        } else {
            format!(
                "replies {}x{} {}s",
                self.entries,
                Self::WORDS,
                self.gap.as_secs()
            )
        }
    }

    /// The gap in microseconds.
    #[must_use]
    pub fn gap_micros(&self) -> i64 {
        i64::try_from(self.gap.as_micros()).unwrap_or(i64::MAX)
    }
}

impl Default for ContextWindow {
    fn default() -> Self {
        Self {
            entries: 2,
            gap: Duration::from_secs(30 * 60),
        }
    }
}
