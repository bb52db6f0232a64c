//! Listing threads, and fetching one.

use context_model::{
    Error, GetThreadReply, GetThreadRequest, ListThreadsReply, ListThreadsRequest, Operation,
    Result, ThreadId, ThreadNamePart, ThreadSet, Violations,
};
use context_store::Page;

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
            name,
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
        let name = name
            .and_then(|name| violations.unless_blank(name, "name", "for all threads"))
            .and_then(|name| ThreadNamePart::parse(&name, "name", &mut violations));
        let min_revision = validate::min_revision(min_revision, &mut violations);
        violations.finish(())?;
        let found = self
            .store
            .list_threads(
                &caller.owner,
                caller.within().cloned(),
                name,
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

    /// Returns one thread with its counts.
    ///
    /// # Errors
    /// `CONTEXT_NOT_FOUND` if the thread has no entries, or the caller is narrowed to other threads;
    /// `INVALID_ARGUMENT`; `SCOPE_MISSING` without `read`; the store's errors.
    pub async fn get_thread(
        &self,
        caller: &Caller,
        request: GetThreadRequest,
    ) -> Result<GetThreadReply> {
        /// At most one thread has the name.
        const ONE: Page = Page {
            limit: 1,
            offset: 0,
        };
        caller.require(Operation::GetThread)?;
        let GetThreadRequest {
            thread_id,
            min_revision,
        } = request;
        let mut violations = Violations::default();
        let thread_id = ThreadId::parse(&thread_id, "thread_id", &mut violations);
        let min_revision = validate::min_revision(min_revision, &mut violations);
        let Some(thread_id) = violations.finish(thread_id)? else {
            return Err(Error::invalid("thread_id", "`thread_id` is required"));
        };
        let not_found = Error::thread_not_found(thread_id.as_str());
        if caller.require_thread(&thread_id).is_err() {
            return Err(not_found);
        }
        let only = ThreadSet::only(thread_id);
        let mut found = self
            .store
            .list_threads(&caller.owner, Some(only), None, ONE, read::at(min_revision))
            .await
            .map_err(store_error)?;
        let thread = found.threads.pop().ok_or(not_found)?;
        Ok(GetThreadReply {
            thread,
            revision: found.revision,
        })
    }
}
