use std::time::Duration;

/// Which entries before an entry, in its thread, help hybrid search to find it: a question's words often stand in the
/// turn before the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Neighbourhood {
    /// How many, 0 to 8; 0: none (`CONTEXT_NEIGHBOURS`).
    pub entries: u32,
    /// How much older than the entry they may be (`CONTEXT_GAP_MINUTES`).
    pub gap: Duration,
}

impl Neighbourhood {
    /// Words taken of each neighbour, at most ([`context_text::gist`]).
    pub const WORDS: usize = 32;

    /// Nobody helps.
    pub const NONE: Self = Self {
        entries: 0,
        gap: Duration::ZERO,
    };

    /// What an index is made with, so that another one is known to need making anew.
    #[must_use]
    pub fn note(&self) -> String {
        if self.entries == 0 {
            "alone".to_owned()
        } else {
            format!(
                "context {}x{} {}s",
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

impl Default for Neighbourhood {
    fn default() -> Self {
        Self {
            entries: 2,
            gap: Duration::from_secs(30 * 60),
        }
    }
}
