//! Coverage in statistics: the share of an owner's entries that have a summary or vectors, or are in the
//! full-text index.

/// The percentage, 0 to 100, rounded down to two decimals. 100 if there are no entries. The part is counted after the
/// whole, and may be greater if entries were stored in between.
pub(crate) fn percentage(part: i64, whole: i64) -> f64 {
    if part >= whole {
        100.0
    } else {
        (i128::from(part) * 10_000 / i128::from(whole)) as f64 / 100.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentage_is_at_most_100() {
        let shown = |part, whole| percentage(part, whole).to_string();
        assert_eq!(shown(0, 0), "100");
        assert_eq!(shown(0, 4), "0");
        assert_eq!(shown(1, 3), "33.33");
        assert_eq!(shown(20_000, 20_001), "99.99");
        assert_eq!(shown(4, 4), "100");
        assert_eq!(shown(5, 4), "100", "more entries since the count of all");
    }
}
