//! The part of the vectors' state that a service holds in memory.

use std::sync::atomic::{AtomicBool, Ordering};

use super::estimates::Estimates;

/// The state of the vectors in one store. All its requests share it.
#[derive(Debug)]
pub(crate) struct VectorState {
    has_tables: AtomicBool,
    /// Search breadth of the HNSW index (`hnsw.ef_search`).
    pub ef_search: u32,
    /// The estimated numbers of entries that satisfy recent filters.
    pub estimates: Estimates,
    /// The name under which this service claims entries without vectors.
    pub holder: String,
}

impl VectorState {
    pub fn new(has_tables: bool, ef_search: u32) -> Self {
        Self {
            has_tables: AtomicBool::new(has_tables),
            ef_search,
            estimates: Estimates::default(),
            holder: holder(),
        }
    }

    /// Whether this service knows of tables for vectors. Without pgvector there are none. If another service creates
    /// them later, this one learns of it when it selects a model, or at a restart. Until then its updates and deletes
    /// leave the old chunks of their entries.
    pub fn has_tables(&self) -> bool {
        self.has_tables.load(Ordering::Relaxed)
    }

    /// Records that the tables exist.
    pub fn set_has_tables(&self) {
        self.has_tables.store(true, Ordering::Relaxed);
    }
}

/// A unique name: the process id, the time at which it opened the database, and a random number.
#[expect(
    clippy::disallowed_methods,
    reason = "part of a name that no other service has"
)]
fn holder() -> String {
    let since = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |since| since.as_nanos());
    let random: u64 =
        std::hash::BuildHasher::hash_one(&std::collections::hash_map::RandomState::new(), since);
    format!("{}-{since:x}-{random:x}", std::process::id())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_stores_of_a_process_are_two_holders() {
        assert_ne!(holder(), holder());
    }
}
