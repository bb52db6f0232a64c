use serde::{Deserialize, Serialize};

use crate::Timestamp;

/// The entries to count by day.
#[derive(
    Debug,
    Clone,
    Default,
    PartialEq,
    Eq,
    Deserialize,
    Serialize,
    utoipa::ToSchema,
    utoipa::IntoParams,
)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ListDaysRequest {
    /// Only entries of this thread.
    #[schema(min_length = 1, max_length = 256)]
    #[param(min_length = 1, max_length = 256)]
    pub thread_id: Option<String>,
    /// Only entries created at or after this ISO 8601 date or date-time. Without an offset it is in UTC.
    pub start_date: Option<String>,
    /// Only entries created at or before this date or date-time. A date alone means its last moment.
    pub end_date: Option<String>,
    /// Maximum number of days, 1 to 366; default 30.
    #[schema(minimum = 1, maximum = 366)]
    #[param(minimum = 1, maximum = 366)]
    pub limit: Option<i64>,
    /// The `revision` of an earlier reply. The result shows that state or a later one.
    pub min_revision: Option<i64>,
}

/// Days with entries, newest first.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize, utoipa::ToSchema)]
pub struct ListDaysReply {
    /// The days on which entries were created.
    pub days: Vec<DayCount>,
    /// Whether entries were also created on earlier days.
    pub has_more: bool,
    /// Number of entries that were counted: the newest ones that the request selects.
    pub scanned: i64,
    /// Whether every entry of the listed days was counted. If not, there are more entries than one call counts: the
    /// last day is counted in part, and earlier days are missing.
    pub complete: bool,
    /// The owner's revision that this reply shows.
    pub revision: i64,
}

/// One day with its count.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize, utoipa::ToSchema)]
pub struct DayCount {
    /// The day in UTC, such as `2026-11-24`.
    #[schema(format = Date)]
    pub date: String,
    /// Number of entries that were created on it.
    pub entry_count: i64,
}

impl DayCount {
    /// Microseconds in a day.
    pub const MICROS: i64 = 86_400_000_000;

    /// The count of a day, given as its number since 1970-01-01.
    #[must_use]
    pub fn of(day: i64, entry_count: i64) -> Self {
        let mut date = Timestamp(day.saturating_mul(Self::MICROS)).to_string();
        date.truncate("2026-11-24".len());
        Self { date, entry_count }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_is_shown_as_its_date() {
        assert_eq!(DayCount::of(0, 1).date, "1970-01-01");
        assert_eq!(DayCount::of(20_781, 1).date, "2026-11-24");
    }
}
