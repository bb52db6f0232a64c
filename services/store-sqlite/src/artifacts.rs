//! Artifacts: one row per artifact, one row per version, and the folded texts of the current versions for search.

mod read;
mod store;
mod write;
