//! Decides the creation times of entries within a thread, for both databases.

use context_model::Timestamp;

/// Tolerated clock error: 5 minutes.
const SLACK_MICROS: i64 = 5 * 60 * 1_000_000;

/// The creation time of a new entry in a thread: `now`, but at least `earliest`, so that a clock that steps back does
/// not change the order. If `earliest` is more than five minutes ahead, the clock that set it was wrong, and the result
/// is `now`. One entry from the year 2099 therefore does not push later entries to 2099. The newest entry is defined by
/// the thread's row, not by the times.
#[must_use]
pub fn created_at(now: Timestamp, earliest: i64) -> i64 {
    if earliest > latest_plausible(now) {
        now.micros()
    } else {
        earliest.max(now.micros())
    }
}

/// The latest time that a clock may show without being wrong: five minutes after `now`. When a thread's newest entry is
/// deleted, an entry with a later time becomes the newest one only if there is no other.
#[must_use]
pub const fn latest_plausible(now: Timestamp) -> i64 {
    now.micros().saturating_add(SLACK_MICROS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_held_within_five_minutes_and_given_up_beyond() {
        let minute = 60_000_000;
        let now = Timestamp(100 * minute);
        for (earliest, expected) in [
            (0, 100),
            (99, 100),
            (100, 100),
            (101, 101),
            (105, 105),
            (106, 100),
            (1_000_000, 100),
        ] {
            assert_eq!(
                created_at(now, earliest * minute),
                expected * minute,
                "{earliest}"
            );
        }
        assert_eq!(created_at(Timestamp(i64::MAX), i64::MAX), i64::MAX);
    }
}
