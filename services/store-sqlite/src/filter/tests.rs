//! Compares the compiled filter with the oracle, and checks its query plans.

mod plans;
mod property;
pub(crate) mod store;

pub(super) use property::broken;
