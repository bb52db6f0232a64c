//! Listing threads.

use context_model::{ListThreadsReply, ListThreadsRequest, Operation, Result, Violations};

use crate::{Caller, Engine, validate};

/// Threads of one reply, at most, and when no limit is given.
const MAX_THREADS: i64 = 1000;

impl Engine {
    /// Threads with their counts, latest activity first.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT`; `SCOPE_MISSING` without `read`; the store's errors.
    pub async fn list_threads(
        &self,
        caller: &Caller,
        request: ListThreadsRequest,
    ) -> Result<ListThreadsReply> {
        caller.require(Operation::ListThreads)?;
        let ListThreadsRequest {
            limit,
            offset,
            min_revision,
        } = request;
        let mut violations = Violations::default();
        let page = validate::page(
            limit,
            offset,
            MAX_THREADS,
            MAX_THREADS,
            i64::from(u32::MAX),
            &mut violations,
        );
        let min_revision = validate::min_revision(min_revision, &mut violations);
        violations.finish(())?;
        let read = Self::read(min_revision);
        let found = match caller.within() {
            Some(threads) => {
                self.store
                    .list_threads_within(&caller.owner, threads.clone(), page, read)
                    .await
            }
            None => self.store.list_threads(&caller.owner, page, read).await,
        };
        let found = found.map_err(crate::store_error)?;
        Ok(ListThreadsReply {
            threads: found.threads,
            total_threads: found.total,
            revision: found.revision,
        })
    }
}
