//! Ids of entries: for each owner, ascending integers that are never reused.

use std::ops::Range;

use context_model::Limits;

use crate::StoreError;

/// The `count` ids before `next`, which is the owner's next unused id.
///
/// # Errors
/// `Internal` when an id would exceed [`Limits::MAX_ID`], the largest integer that JavaScript numbers represent
/// exactly.
pub fn leased(count: i64, next: i64) -> Result<Range<i64>, StoreError> {
    let first = next.saturating_sub(count);
    if first < 1 || next - 1 > Limits::MAX_ID {
        return Err(used_up());
    }
    Ok(first..next)
}

/// The error when an owner has no unused ids left.
#[must_use]
pub fn used_up() -> StoreError {
    StoreError::Internal("the owner has no ids left".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_id_is_the_largest_that_a_double_holds_exactly() {
        assert_eq!(leased(2, 3).unwrap(), 1..3);
        let last = Limits::MAX_ID + 1;
        assert_eq!(leased(1, last).unwrap(), last - 1..last);
        assert!(leased(1, last + 1).is_err());
        assert!(leased(3, 3).is_err());
        assert!(leased(1, i64::MAX).is_err());
    }
}
