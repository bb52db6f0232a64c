//! Artifacts: a row for each, a row for each of their versions, and the current texts folded for search.

mod read;
mod store;
mod write;
