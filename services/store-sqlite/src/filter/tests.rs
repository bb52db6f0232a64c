//! The compiled filter against the oracle, and its plans.

mod plans;
mod property;
pub(crate) mod store;

pub(super) use property::broken;
