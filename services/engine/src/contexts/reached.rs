//! Access checks by entry id, for callers that are restricted to some threads.

use std::collections::HashSet;

use context_model::{Error, Result};
use context_store::{Memory, Read, RowSelection};

use super::Contexts;
use crate::access::Caller;
use crate::error::store_error;

/// The entries that a caller may access. The result stays valid, because an entry never changes its thread and ids are
/// never reused.
pub(super) enum Reached {
    /// All entries of the owner.
    All,
    /// The entries with these ids.
    These(HashSet<i64>),
}

impl Reached {
    fn has(&self, id: i64) -> bool {
        match self {
            Self::All => true,
            Self::These(ids) => ids.contains(&id),
        }
    }

    /// The ids among these that the caller may access.
    pub fn accessible(&self, mut ids: Vec<i64>) -> Vec<i64> {
        ids.retain(|id| self.has(*id));
        ids
    }

    /// Checks one id.
    ///
    /// # Errors
    /// `CONTEXT_NOT_FOUND`, the same error as for an entry that does not exist.
    pub fn check(&self, id: i64) -> Result<()> {
        if self.has(id) {
            Ok(())
        } else {
            Err(Error::context_not_found(id))
        }
    }
}

impl Contexts {
    /// Finds which of the entries the caller may access, by a read that includes the revision that `read` requires.
    ///
    /// # Errors
    /// The store's errors.
    pub(super) async fn reached(
        &self,
        caller: &Caller,
        ids: &[i64],
        read: Read,
    ) -> Result<Reached> {
        let Some(threads) = caller.within() else {
            return Ok(Reached::All);
        };
        let selection = RowSelection {
            images: false,
            text_chars: Some(1),
            explain: false,
            max_bytes: u64::MAX,
            memory: Memory::UNCOUNTED,
        };
        let found = self
            .store
            .get_contexts(&caller.owner, ids.to_vec(), selection, read)
            .await
            .map_err(store_error)?;
        let reached = found
            .entries
            .into_iter()
            .filter(|entry| threads.contains(&entry.thread_id))
            .map(|entry| entry.id);
        Ok(Reached::These(reached.collect()))
    }
}
