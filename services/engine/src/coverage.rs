//! How many of an owner's entries have something, as statistics show it.

/// 0 to 100, two decimals; nothing to cover is fully covered.
pub(crate) fn percentage(part: i64, whole: i64) -> f64 {
    if whole == 0 {
        100.0
    } else {
        (part as f64 / whole as f64 * 10_000.0).round() / 100.0
    }
}
