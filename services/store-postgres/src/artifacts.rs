//! Artifacts. Each artifact and each of its versions has a row. The current texts are also stored folded, for search.

pub(crate) mod documents;
mod read;
mod store;
mod write;
