//! Deleting entries.

use context_model::{
    DeleteContextBatchReply, DeleteContextBatchRequest, DeleteContextReply, DeleteContextRequest,
    Limits, Operation, Result, Source, ThreadId, Timestamp, Violations,
};
use context_store::{DeleteCriteria, Usage};

use super::Contexts;
use crate::access::{Caller, WriteContext};
use crate::error::store_error;
use crate::validate;

const MICROS_PER_DAY: i64 = 24 * 60 * 60 * 1_000_000;

impl Contexts {
    /// Deletes entries by id, or all entries of a thread.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` unless the request has either ids or a thread; `QUOTA_EXCEEDED` with an idempotency key;
    /// `SCOPE_MISSING` without `delete`, or for a thread that the caller may not access; the store's errors.
    pub async fn delete_context(
        &self,
        caller: &Caller,
        request: DeleteContextRequest,
        write: WriteContext,
    ) -> Result<DeleteContextReply> {
        caller.require(Operation::DeleteContext)?;
        let options = self
            .writes
            .options(caller, "delete_context", &request, &write)?;
        let DeleteContextRequest {
            context_ids,
            thread_id,
        } = request;
        let mut violations = Violations::default();
        if context_ids.is_some() == thread_id.is_some() {
            violations.push(
                "context_ids",
                "exactly one of `context_ids` and `thread_id` is required",
            );
        }
        let criteria = DeleteCriteria {
            ids: context_ids
                .map(|ids| validate::ids(ids, Limits::MAX_DELETE, "context_ids", &mut violations)),
            threads: thread_id.map(|id| {
                ThreadId::parse(&id, "thread_id", &mut violations)
                    .into_iter()
                    .collect()
            }),
            ..DeleteCriteria::default()
        };
        violations.finish(())?;
        let criteria = reachable(caller, criteria)?;
        self.writes
            .admit(caller, &options, 1, Usage::default())
            .await?;
        let written = self
            .store
            .delete_contexts(&caller.owner, criteria, options)
            .await
            .map_err(store_error)?;
        self.writes.freed(caller, written.outcome).await;
        let deleted_count = written.outcome as i64;
        Ok(DeleteContextReply {
            success: true,
            deleted_count,
            message: deleted(deleted_count),
            revision: written.revision,
        })
    }

    /// Deletes the entries that satisfy all given criteria.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` without a criterion or with `source` alone; `QUOTA_EXCEEDED` with an idempotency key;
    /// `SCOPE_MISSING` without `delete`, or for a thread that the caller may not access; the store's errors.
    pub async fn delete_context_batch(
        &self,
        caller: &Caller,
        request: DeleteContextBatchRequest,
        write: WriteContext,
    ) -> Result<DeleteContextBatchReply> {
        caller.require(Operation::DeleteContextBatch)?;
        let options = self
            .writes
            .options(caller, "delete_context_batch", &request, &write)?;
        let DeleteContextBatchRequest {
            context_ids,
            thread_ids,
            source,
            older_than_days,
        } = request;
        let mut violations = Violations::default();
        if context_ids.is_none() && thread_ids.is_none() && older_than_days.is_none() {
            let rule =
                "at least one of `context_ids`, `thread_ids` and `older_than_days` is required";
            violations.push(
                "context_ids",
                if source.is_some() {
                    format!("{rule}; `source` alone is not enough")
                } else {
                    rule.to_owned()
                },
            );
        }
        let criteria_used = [
            (context_ids.is_some(), "context_ids"),
            (thread_ids.is_some(), "thread_ids"),
            (source.is_some(), "source"),
            (older_than_days.is_some(), "older_than_days"),
        ];
        let criteria_used = criteria_used
            .into_iter()
            .filter(|(given, _)| *given)
            .map(|(_, name)| name.to_owned())
            .collect();
        let threads = thread_ids.map(|ids| {
            validate::count(
                ids.len(),
                Limits::MAX_DELETE,
                "thread_ids",
                "threads",
                &mut violations,
            );
            let ids = ids.iter().take(Limits::MAX_DELETE).enumerate();
            ids.filter_map(|(i, id)| {
                ThreadId::parse(id, &format!("thread_ids[{i}]"), &mut violations)
            })
            .collect()
        });
        let created_before = older_than_days.map(|days| {
            let days = validate::in_range(days, &(1..=36_500), "older_than_days", &mut violations);
            Timestamp(
                options
                    .now
                    .micros()
                    .saturating_sub(days.saturating_mul(MICROS_PER_DAY)),
            )
        });
        let criteria = DeleteCriteria {
            ids: context_ids
                .map(|ids| validate::ids(ids, Limits::MAX_DELETE, "context_ids", &mut violations)),
            threads,
            within: None,
            source: source
                .and_then(|s| violations.unless_blank(s, "source", "for both sources"))
                .and_then(|s| Source::parse(&s, "source", &mut violations)),
            created_before,
        };
        violations.finish(())?;
        let criteria = reachable(caller, criteria)?;
        self.writes
            .admit(caller, &options, 1, Usage::default())
            .await?;
        let written = self
            .store
            .delete_contexts(&caller.owner, criteria, options)
            .await
            .map_err(store_error)?;
        self.writes.freed(caller, written.outcome).await;
        let deleted_count = written.outcome as i64;
        Ok(DeleteContextBatchReply {
            success: true,
            deleted_count,
            criteria_used,
            message: deleted(deleted_count),
            revision: written.revision,
        })
    }
}

/// Restricts the criteria to the threads that the caller may access.
///
/// # Errors
/// `SCOPE_MISSING` when the criteria name a thread that the caller may not access.
fn reachable(caller: &Caller, criteria: DeleteCriteria) -> Result<DeleteCriteria> {
    criteria
        .threads
        .iter()
        .flatten()
        .try_for_each(|thread| caller.require_thread(thread))?;
    Ok(DeleteCriteria {
        within: caller.within().cloned(),
        ..criteria
    })
}

fn deleted(count: i64) -> String {
    if count == 1 {
        "Deleted 1 context".to_owned()
    } else {
        format!("Deleted {count} contexts")
    }
}
