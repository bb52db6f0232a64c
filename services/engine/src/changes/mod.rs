//! The feed of changes: one page of it, or a stream.
//!
//! - `page` reads one page for one caller. `list_changes` below returns it.
//! - `watch` turns pages into the steps of a stream. A stream can begin with a snapshot of all entries and artifacts.
//! - `selection` decides which changes a caller wants and may see.
//! - `states` loads the current entries and artifacts, for filters and for the bodies of changes.
//! - `cursor` is a position in the feed. It also detects that the history behind it was lost or removed.
//! - `shared` lets the streams of one owner share a read.
//! - `feed` holds the type [`Changes`], to which all of these operations belong.

mod cursor;
mod feed;
mod page;
mod selection;
mod shared;
#[cfg(test)]
mod standbys;
mod states;
mod watch;

use std::time::Duration;

use context_model::{
    FilterInput, ListChangesReply, ListChangesRequest, Operation, Result, Violations,
};
use context_store::{OwnerId, Subscription};

use crate::access::Caller;
use crate::{read, validate};
pub use feed::Changes;
use page::Position;
use selection::{MAX_PREVIEW_CHARS, Selection};
pub use watch::{Step, Watch};

/// How long a list of changes may wait for the next one.
pub const MAX_WAIT: Duration = Duration::from_millis(25_000);
/// Maximum and default number of changes that one request reads.
const MAX_LIMIT: i64 = 1000;
const DEFAULT_LIMIT: i64 = 100;

impl Changes {
    /// Subscribes to an owner's changes, for a caller that waits for the next one.
    #[must_use]
    pub fn subscribe(&self, owner: &OwnerId) -> Subscription {
        self.store.changes().notifier().subscribe(owner)
    }

    /// Like [`subscribe`](Self::subscribe), for a stream with these filters. The store need not wake it for changes
    /// that they exclude because of the thread.
    #[must_use]
    pub fn subscribe_with(&self, owner: &OwnerId, filters: &FilterInput) -> Subscription {
        let thread = filters.thread_id.as_deref().map(str::trim);
        self.store.changes().notifier().subscribe_to(owner, thread)
    }

    /// Lists the changes after a cursor. It does not wait: `wait_ms` is only validated.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT`; `CURSOR_INVALID`; `CURSOR_COMPACTED`; `RESYNC_REQUIRED`; `SCOPE_MISSING` without `read`; the
    /// store's errors.
    pub async fn list_changes(
        &self,
        caller: &Caller,
        request: ListChangesRequest,
    ) -> Result<ListChangesReply> {
        caller.require(Operation::ListChanges)?;
        let ListChangesRequest {
            cursor,
            limit,
            wait_ms,
            filters,
            entity,
            include_body,
            preview_chars,
            min_revision,
        } = request;
        let mut violations = Violations::default();
        let mut number = |value: Option<i64>, default, range, field| {
            validate::in_range(value.unwrap_or(default), &range, field, &mut violations)
        };
        let limit = number(limit, DEFAULT_LIMIT, 1..=MAX_LIMIT, "limit");
        let max_wait = i64::try_from(MAX_WAIT.as_millis()).unwrap_or(i64::MAX);
        number(wait_ms, 0, 0..=max_wait, "wait_ms");
        let preview_chars = number(preview_chars, 0, 0..=MAX_PREVIEW_CHARS, "preview_chars");
        let min_revision = validate::min_revision(min_revision, &mut violations);
        let selection = Selection::new(
            caller,
            filters,
            entity,
            include_body.unwrap_or(false),
            preview_chars,
            &mut violations,
        );
        violations.finish(())?;
        let position = Position::read(cursor.as_deref(), &caller.owner)?;
        let limit = u32::try_from(limit).unwrap_or(1);
        let page = self
            .page(caller, &selection, position, limit, read::at(min_revision))
            .await?;
        Ok(ListChangesReply {
            changes: page.changes,
            next_cursor: page.next.text(),
            has_more: page.has_more,
            revision: page.revision,
            compacted_before: page.oldest,
        })
    }
}
