//! Listing threads.

use context_model::{ListThreadsReply, ListThreadsRequest, Operation, Result, Violations};

use super::Contexts;
use crate::access::Caller;
use crate::error::store_error;
use crate::{read, validate};

/// Maximum and default number of threads in one reply.
const MAX_THREADS: i64 = 1000;

impl Contexts {
    /// Lists threads with their counts. The thread with the latest activity comes first.
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
        let found = self
            .store
            .list_threads(
                &caller.owner,
                caller.within().cloned(),
                page,
                read::at(min_revision),
            )
            .await
            .map_err(store_error)?;
        let shown = page.offset.saturating_add(found.threads.len() as u64);
        Ok(ListThreadsReply {
            has_more: !found.threads.is_empty() && shown < found.total.unsigned_abs(),
            threads: found.threads,
            total_threads: found.total,
            revision: found.revision,
        })
    }
}
