//! Artifacts. Each artifact and each of its versions has a row. The current texts are also stored folded, for search.

mod read;
mod store;
mod write;
