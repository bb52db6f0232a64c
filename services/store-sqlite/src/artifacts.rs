//! Artifacts: one row per artifact, one row per version, and the folded texts of the current versions for search.

pub(crate) mod copy;
pub(crate) mod documents;
mod read;
mod store;
mod write;
