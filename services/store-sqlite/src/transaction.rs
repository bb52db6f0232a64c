//! What one write request works on.

use context_model::Timestamp;
use context_store::rules::ids;
use context_store::{StoreError, WriteOptions};
use diesel::prelude::*;
use diesel::sqlite::SqliteConnection;

use crate::full_text::FullTextChange;
use crate::neighbours::{Neighbours, Place};
use crate::owners::Owner;
use crate::schema::changes;
use crate::vectors::OpenVectors;

/// One request's part of a transaction: the connection, the owner's row, and what has to be done before the commit.
pub(crate) struct Transaction<'c> {
    pub conn: &'c mut SqliteConnection,
    /// The owner as this request sees and changes it.
    pub owner: Owner,
    /// Now, by the service's clock.
    pub now: Timestamp,
    /// The API key behind the request.
    pub key_id: Option<String>,
    full_text: &'c mut Vec<FullTextChange>,
    /// What neighbours contribute to the full-text index.
    pub neighbours: &'c mut Neighbours,
    /// The vectors, and what changes of them.
    pub vectors: &'c mut OpenVectors,
    /// Whether the owner is gone.
    pub erased: bool,
}

/// What happened to an entry.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ChangeKind {
    Create,
    Update,
    Delete,
}

impl ChangeKind {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Update => "update",
            Self::Delete => "delete",
        }
    }
}

impl<'c> Transaction<'c> {
    pub fn new(
        conn: &'c mut SqliteConnection,
        owner: Owner,
        options: &WriteOptions,
        full_text: &'c mut Vec<FullTextChange>,
        neighbours: &'c mut Neighbours,
        vectors: &'c mut OpenVectors,
    ) -> Self {
        Self {
            conn,
            owner,
            now: options.now,
            key_id: options.key_id.clone(),
            full_text,
            neighbours,
            vectors,
            erased: false,
        }
    }

    /// The row id of an id that was just assigned.
    ///
    /// # Errors
    /// `Internal` when the owner has used up its ids (2^40).
    pub fn new_row_id(&mut self) -> Result<(i64, i64), StoreError> {
        let id = self.owner.next_id;
        let row_id = self.owner.row_id(id).ok_or_else(ids::used_up)?;
        self.owner.next_id += 1;
        Ok((id, row_id))
    }

    /// Counts one change of an entry and writes it down.
    pub fn changed(
        &mut self,
        operation: ChangeKind,
        id: i64,
        thread_id: &str,
        version: i64,
    ) -> QueryResult<()> {
        self.owner.revision += 1;
        diesel::insert_into(changes::table)
            .values((
                changes::owner.eq(self.owner.owner),
                changes::revision.eq(self.owner.revision),
                changes::at.eq(self.now.micros()),
                changes::operation.eq(operation.as_str()),
                changes::entity.eq("context"),
                changes::entity_id.eq(id.to_string()),
                changes::thread_id.eq(thread_id),
                changes::version.eq(version),
                changes::key_id.eq(self.key_id.as_deref()),
            ))
            .execute(self.conn)?;
        Ok(())
    }

    /// Notes that everything of the owner was removed, its row and its full-text table included.
    pub fn erased(&mut self) {
        let gone = self.owner.owner;
        self.full_text.retain(|change| change.owner() != gone);
        self.neighbours.forget();
        self.erased = true;
    }

    /// Leaves the entries that have the words of this one, or had them, to be indexed anew: its text changed, or it went.
    /// Gives the time and row of the first of them.
    pub fn neighbour_changed(&mut self, place: &Place<'_>) -> QueryResult<Option<(i64, i64)>> {
        self.neighbours.forget();
        let after = self.neighbours.after(self.conn, place)?;
        let owner = place.owner;
        self.full_text.extend(
            after
                .iter()
                .map(|&(_, row_id)| FullTextChange::Renew { owner, row_id }),
        );
        Ok(after.first().copied())
    }

    /// Leaves a change of the full-text index for the end of the transaction.
    pub fn full_text(&mut self, change: FullTextChange) {
        self.full_text.push(change);
    }
}
