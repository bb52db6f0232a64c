//! The items of a batch as they were asked for.

use context_model::{Error, Limits, Result, Violations};

use crate::validate;

/// The items of a batch that obey the rules, with their places, and those that do not.
pub(super) struct Checked<T> {
    pub items: Vec<T>,
    pub failed: Vec<(usize, Error)>,
}

impl<T> Checked<T> {
    pub fn new(items: impl Iterator<Item = Result<T>>, atomic: bool, field: &str) -> Result<Self> {
        let mut checked = Self {
            items: Vec::new(),
            failed: Vec::new(),
        };
        for (index, item) in items.enumerate() {
            match item {
                Ok(item) => checked.items.push(item),
                Err(error) if atomic => return Err(error.in_item(&format!("{field}[{index}]"))),
                Err(error) => checked.failed.push((index, error)),
            }
        }
        Ok(checked)
    }
}

/// Checks how many items a batch has.
///
/// # Errors
/// `INVALID_ARGUMENT`.
pub(super) fn batch_size(len: usize, field: &str) -> Result<()> {
    let mut violations = Violations::default();
    validate::count(len, Limits::MAX_BATCH, field, "items", &mut violations);
    violations.finish(())
}
