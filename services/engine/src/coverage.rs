//! Coverage in statistics: the share of an owner's entries that have a summary or vectors.

/// The percentage, 0 to 100, with two decimals. 100 if there are no entries.
pub(crate) fn percentage(part: i64, whole: i64) -> f64 {
    if whole == 0 {
        100.0
    } else {
        (part as f64 / whole as f64 * 10_000.0).round() / 100.0
    }
}
