//! Access checks by entry id, for callers that are restricted to some threads.

use std::collections::HashSet;

use context_model::{Error, Result};
use context_store::{Read, RowSelection};

use super::Contexts;
use crate::access::Caller;
use crate::error::store_error;
use crate::read;

/// Number of entries that are read together. Their metadata, up to 1 MiB each, is read too.
const ENTRIES_AT_ONCE: usize = 10;

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
    /// Finds which of the entries the caller may access, by reads that include the revision that `read` requires.
    ///
    /// # Errors
    /// `OVERLOADED` if the caller's memory budget is too small; the store's errors.
    pub(super) async fn reached(
        &self,
        caller: &Caller,
        ids: &[i64],
        read: Read,
    ) -> Result<Reached> {
        let Some(threads) = caller.within() else {
            return Ok(Reached::All);
        };
        let mut reached = HashSet::new();
        for ids in ids.chunks(ENTRIES_AT_ONCE) {
            let selection = RowSelection {
                images: false,
                text_chars: Some(1),
                explain: false,
                max_bytes: u64::MAX,
                memory: caller.memory.clone(),
            };
            let found = self
                .store
                .get_contexts(&caller.owner, ids.to_vec(), selection, read)
                .await
                .map_err(store_error)?;
            caller.memory.give_back(read::taken_bytes(&found.entries));
            let found = found.entries.into_iter();
            let found = found.filter(|entry| threads.contains(&entry.thread_id));
            reached.extend(found.map(|entry| entry.id));
        }
        Ok(Reached::These(reached))
    }
}
