//! The state that a write request works on.

use context_model::{Source, Timestamp};
use context_store::rules::ids;
use context_store::{Change, ChangeKind, Changed, StoreError, Touched, WriteOptions};
use diesel::prelude::*;
use diesel::sqlite::SqliteConnection;

use crate::changes;
use crate::collection::Collection;
use crate::context_window::{ContextWindows, EntryPosition};
use crate::full_text::{self, FullText, FullTextChange};
use crate::owners::Owner;
use crate::vectors::OpenVectors;

/// One request's part of a transaction: the connection, the owner's row, and the work to do before the commit.
pub(crate) struct Transaction<'c> {
    pub conn: &'c mut SqliteConnection,
    /// The owner's row with this request's changes.
    pub owner: Owner,
    /// The current time of the service's clock.
    pub now: Timestamp,
    /// The API key that made the request.
    pub key_id: Option<String>,
    full_text_tables: FullText,
    full_text: &'c mut Vec<FullTextChange>,
    /// The context windows of entries.
    pub context_windows: &'c mut ContextWindows,
    /// The vector index and its pending changes.
    pub vectors: &'c mut OpenVectors,
    /// Whether the owner was deleted.
    pub erased: bool,
    /// Whether the request copies changes of another service. They already have revisions, and `copy.rs` writes their
    /// rows in `changes`.
    pub is_copying: bool,
    /// The subscriptions that the changes of this request concern.
    pub touched: Touched,
    /// The last change, which is not written until it is known whether it ends the commit.
    last_change: Option<Change>,
}

impl<'c> Transaction<'c> {
    pub fn new(
        conn: &'c mut SqliteConnection,
        owner: Owner,
        options: &WriteOptions,
        full_text_tables: FullText,
        full_text: &'c mut Vec<FullTextChange>,
        context_windows: &'c mut ContextWindows,
        vectors: &'c mut OpenVectors,
    ) -> Self {
        Self {
            conn,
            owner,
            now: options.now,
            key_id: options.key_id.clone(),
            full_text_tables,
            full_text,
            context_windows,
            vectors,
            erased: false,
            is_copying: false,
            touched: Touched::NOTHING,
            last_change: None,
        }
    }

    /// Assigns a new id. Returns the id and its row id.
    ///
    /// # Errors
    /// `Internal` when the owner has used up its ids (2^40).
    pub fn new_row_id(&mut self) -> Result<(i64, i64), StoreError> {
        let id = self.owner.next_id;
        let row_id = self.owner.row_id(id).ok_or_else(ids::used_up)?;
        self.owner.next_id += 1;
        Ok((id, row_id))
    }

    /// Counts one change and records it in the feed.
    pub fn changed(&mut self, kind: ChangeKind, changed: Changed, version: i64) -> QueryResult<()> {
        if let Changed::Context { thread_id, .. } = &changed {
            self.touched.add(thread_id);
        }
        if self.is_copying {
            return Ok(());
        }
        self.write_last_change(false)?;
        self.owner.revision += 1;
        self.last_change = Some(Change {
            revision: self.owner.revision,
            at: self.now,
            kind,
            changed,
            version: Some(version),
            key_id: self.key_id.clone(),
            commit_end: false,
        });
        Ok(())
    }

    /// Like [`Self::changed`], for an entry.
    pub fn changed_entry(
        &mut self,
        kind: ChangeKind,
        id: i64,
        thread_id: &str,
        source: Source,
        version: i64,
    ) -> QueryResult<()> {
        let changed = Changed::Context {
            id,
            thread_id: thread_id.to_owned(),
            source: Some(source),
        };
        self.changed(kind, changed, version)
    }

    /// Ends the request's commit in the feed.
    pub fn end_commit(&mut self) -> QueryResult<()> {
        self.write_last_change(true)
    }

    fn write_last_change(&mut self, commit_end: bool) -> QueryResult<()> {
        match self.last_change.take() {
            Some(change) => changes::insert(
                self.conn,
                self.owner.owner,
                &Change {
                    commit_end,
                    ..change
                },
            ),
            None => Ok(()),
        }
    }

    /// Records that everything of the owner was deleted, including its row and its full-text tables.
    pub fn erased(&mut self) {
        let gone = self.owner.owner;
        self.full_text.retain(|change| change.owner() != gone);
        self.context_windows.forget();
        self.last_change = None;
        self.erased = true;
    }

    /// Schedules the entries whose context window contains this one for reindexing, because it was deleted or inserted
    /// before them, or its text was changed. Returns the creation time and row id of the first of them.
    pub fn schedule_following(
        &mut self,
        position: &EntryPosition<'_>,
    ) -> QueryResult<Option<(i64, i64)>> {
        self.context_windows.forget();
        let after = self.context_windows.after(self.conn, position)?;
        let owner = position.owner;
        self.full_text.extend(
            after
                .iter()
                .map(|&(_, row_id)| FullTextChange::Reindex { owner, row_id }),
        );
        Ok(after.first().copied())
    }

    /// Creates the full-text table of a collection unless it exists.
    pub fn create_full_text_table(&mut self, collection: Collection) -> QueryResult<()> {
        self.full_text_tables.create(self.conn, collection)
    }

    /// Applies the scheduled changes of the full-text index now, so that a large request does not fill the memory.
    ///
    /// The changes of earlier requests in the transaction are applied too, and returning to a savepoint of this request
    /// would undo them. So only a request with `may_need_undo` false may call this: it has a savepoint only when it
    /// runs alone, or when it creates its owner. Of the requests that create an owner, only the first snapshot of a
    /// copy calls this, and in a copy no other request changes the index.
    pub fn apply_full_text(&mut self) -> QueryResult<()> {
        full_text::apply(self.conn, self.full_text, self.context_windows)
    }

    /// Schedules a change of the full-text index for the end of the transaction.
    pub fn full_text(&mut self, change: FullTextChange) {
        self.full_text.push(change);
    }
}
