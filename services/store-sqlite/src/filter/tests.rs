//! The compiled filter against the oracle, and its plans.

pub(crate) mod generate;
mod plans;
mod property;
pub(crate) mod store;

pub(super) use property::broken;
