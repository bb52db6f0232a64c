//! Time within a thread, as both databases must decide it.

use context_model::Timestamp;

/// How far a clock may be off: 5 minutes.
const SLACK_MICROS: i64 = 5 * 60 * 1_000_000;

/// When a new entry of a thread is created: now, but not before `earliest`, so that a clock that steps back keeps the order.
/// Where `earliest` lies further ahead than a clock steps back, another clock was wrong, and the time is now again: one write
/// in 2099 pins no thread there. Which entry is the newest is what the thread's row says, not the times.
#[must_use]
pub fn created_at(now: Timestamp, earliest: i64) -> i64 {
    if earliest > latest_plausible(now) {
        now.micros()
    } else {
        earliest.max(now.micros())
    }
}

/// An entry with a later time than this was made with a wrong clock. When a thread's newest entry is deleted, such entries
/// come after all others in the choice of the next newest.
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
