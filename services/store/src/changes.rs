//! The feed of committed changes of each owner.

use std::sync::Arc;

use async_trait::async_trait;
use context_model::{Source, Timestamp};

use crate::{ChangeNotifier, OwnerId, Read, Result, StoreError, unreadable};

/// What happened to an entry or an artifact.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ChangeKind {
    /// It was created.
    Create,
    /// It was updated.
    Update,
    /// An earlier version of an artifact was restored.
    Restore,
    /// It was deleted.
    Delete,
}

impl ChangeKind {
    const ALL: [Self; 4] = [Self::Create, Self::Update, Self::Restore, Self::Delete];

    /// The name in the database.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Update => "update",
            Self::Restore => "restore",
            Self::Delete => "delete",
        }
    }

    /// The kind with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == name)
    }
}

/// What was changed.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Changed {
    /// An entry. Its thread and source never change.
    Context {
        /// Its id.
        id: i64,
        /// Its thread.
        thread_id: String,
        /// Who wrote it. `None` for changes recorded by a version of the service that had no feed.
        source: Option<Source>,
    },
    /// An artifact.
    Artifact {
        /// Its id.
        id: String,
    },
}

impl Changed {
    /// The name of this variant in the database and in replies: `context` or `artifact`.
    #[must_use]
    pub const fn entity(&self) -> &'static str {
        match self {
            Self::Context { .. } => "context",
            Self::Artifact { .. } => "artifact",
        }
    }
}

/// One committed change.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Change {
    /// The owner's revision after it.
    pub revision: i64,
    /// When it was made.
    pub at: Timestamp,
    /// What happened.
    pub kind: ChangeKind,
    /// The changed entry or artifact.
    pub changed: Changed,
    /// The version after it; of a deletion, the last version. Services always record it, but the column may be empty.
    pub version: Option<i64>,
    /// The credentials that were used: the id of a key, or the name of a token's holder. `None` without authentication,
    /// and for the operator.
    pub key_id: Option<String>,
    /// Whether it is the last change of its commit.
    pub commit_end: bool,
}

/// The columns of a change.
#[derive(Debug)]
pub struct ChangeRow {
    /// The owner's revision after it.
    pub revision: i64,
    /// When it was made, in microseconds.
    pub at: i64,
    /// The name of its kind.
    pub operation: String,
    /// `context` or `artifact`.
    pub entity: String,
    /// The id of the entity.
    pub entity_id: String,
    /// The thread of an entry.
    pub thread_id: Option<String>,
    /// The source of an entry.
    pub source: Option<String>,
    /// The version after it.
    pub version: Option<i64>,
    /// The credentials that were used.
    pub key_id: Option<String>,
    /// Whether it is the last change of its commit.
    pub commit_end: bool,
}

impl TryFrom<ChangeRow> for Change {
    type Error = StoreError;

    fn try_from(row: ChangeRow) -> Result<Self> {
        let ChangeRow {
            revision,
            at,
            operation,
            entity,
            entity_id,
            thread_id,
            source,
            version,
            key_id,
            commit_end,
        } = row;
        let changed = match (entity.as_str(), thread_id) {
            ("context", Some(thread_id)) => entity_id.parse().ok().map(|id| Changed::Context {
                id,
                thread_id,
                source: source.as_deref().and_then(Source::named),
            }),
            ("artifact", None) => Some(Changed::Artifact { id: entity_id }),
            _ => None,
        };
        let (Some(kind), Some(changed)) = (ChangeKind::named(&operation), changed) else {
            // Not `Corrupt`, which stops all writes on SQLite: a later version of the service may have written the row.
            return Err(unreadable("change", None));
        };
        Ok(Self {
            revision,
            at: Timestamp(at),
            kind,
            changed,
            version,
            key_id,
            commit_end,
        })
    }
}

/// Consecutive changes of one owner, and the state of its feed in the same moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Feed {
    /// Names the feed. An owner that is erased and created again, or migrated, has another one. Empty when the owner
    /// has never written.
    pub incarnation: String,
    /// The owner's revision.
    pub revision: i64,
    /// The oldest revision in the feed. The owner's revision plus one when the feed is empty.
    pub oldest: i64,
    /// Whether the database is a standby that has not reached the first requested revision yet.
    pub is_behind: bool,
    /// The changes, in the order of their revisions, without gaps.
    pub changes: Vec<Change>,
}

impl Feed {
    /// The feed of an owner that has never written.
    #[must_use]
    pub const fn of_no_owner() -> Self {
        Self {
            incarnation: String::new(),
            revision: 0,
            oldest: 1,
            is_behind: false,
            changes: Vec::new(),
        }
    }
}

/// Which changes stay in the feed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// Changes made before this time are removed.
    pub before: Timestamp,
    /// Maximum number of changes of each owner, at least 1.
    pub max_rows: i64,
}

/// A database that keeps the changes of each owner.
#[async_trait]
pub trait ChangeStore: Send + Sync {
    /// At most `limit` changes of an owner from this revision on, read from one state of the database.
    ///
    /// # Errors
    /// [`StoreError`](crate::StoreError).
    async fn feed(&self, owner: &OwnerId, from: i64, limit: u32, read: Read) -> Result<Feed>;

    /// Removes a batch of old changes of one owner from the feed and returns their number, or 0 when no owner has
    /// changes to remove. The audit log keeps them. The newest change of an owner always stays.
    ///
    /// # Errors
    /// [`StoreError`](crate::StoreError).
    async fn compact(&self, retention: Retention) -> Result<u64>;

    /// Wakes subscribers after an owner's changes are committed.
    fn notifier(&self) -> &Arc<ChangeNotifier>;
}
