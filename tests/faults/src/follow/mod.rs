//! Checks what followers of the changes receive.
//!
//! [`Rounds`](rounds::Rounds) run writers and followers on one or two services, with faults. Each follower records what
//! it requested and received as a [`Log`], which the [`Round`](round::Round) keeps. [`check`](check::check) compares
//! the logs with the [`History`](history::History), which is read from the database and not through the service. It is
//! a pure function, so that a test can change a log and see the violation reported.

pub mod check;
mod cluster;
mod convert;
mod database;
pub mod endpoint;
pub mod fault;
pub mod follower;
pub mod history;
mod node;
pub mod round;
pub mod rounds;
mod stored;
mod view;
mod writer;

use std::collections::BTreeMap;

pub use view::View;

/// Which changes a follower asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Filter {
    /// All.
    None,
    /// Entries of one thread.
    Thread(&'static str),
    /// Entries of the source `user`.
    OfUser,
    /// Entries with the tag `keep`.
    Tagged,
    /// Entries and artifacts whose metadata field `n` is at least 5.
    Numbered,
    /// Artifacts.
    Artifacts,
    /// None, but the key is narrowed to the thread `t0`.
    OfKey,
}

impl Filter {
    /// All filters that need no key.
    pub const ALL: [Self; 7] = [
        Self::None,
        Self::Thread("t0"),
        Self::Thread("quiet"),
        Self::OfUser,
        Self::Tagged,
        Self::Numbered,
        Self::Artifacts,
    ];

    /// Whether an entry that was selected can leave the filter.
    #[must_use]
    pub const fn can_leave(self) -> bool {
        matches!(self, Self::Tagged | Self::Numbered)
    }

    /// Whether the filter excludes this change permanently. `None` if the history lacks the column that decides.
    #[must_use]
    pub fn excludes(self, row: &history::Row) -> Option<bool> {
        let is_artifact = row.entity == "artifact";
        match self {
            Self::None | Self::Numbered => Some(false),
            Self::Thread(thread) => Some(is_artifact || row.thread_id.as_deref() != Some(thread)),
            Self::OfKey => Some(is_artifact || row.thread_id.as_deref() != Some("t0")),
            Self::OfUser if is_artifact => Some(true),
            Self::OfUser => row.source.as_deref().map(|source| source != "user"),
            Self::Tagged => Some(is_artifact),
            Self::Artifacts => Some(!is_artifact),
        }
    }
}

/// Where a session begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// With the oldest change in the feed.
    Oldest,
    /// With changes from now on.
    Now,
    /// With everything that is stored.
    Snapshot,
    /// After the cursor of the last frame or page of the session before.
    Cursor,
}

/// A change as a follower received it.
#[derive(Debug, Clone, PartialEq)]
#[expect(missing_docs, reason = "the fields of the interface")]
pub struct Change {
    pub revision: i64,
    pub operation: String,
    pub entity: String,
    pub id: String,
    pub thread_id: Option<String>,
    pub version: Option<i64>,
    pub commit_end: bool,
    pub body: Option<Body>,
}

/// The content of an entry or artifact.
#[derive(Debug, Clone, PartialEq)]
pub struct Body {
    /// Its version.
    pub version: i64,
    /// The text of an entry; path and content of an artifact.
    pub text: String,
    /// The tags of an entry.
    pub tags: Vec<String>,
}

/// What a follower received.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// The stream starts after this revision.
    Opened(i64),
    /// An entry or artifact of a snapshot.
    Entry {
        /// `context` or `artifact`.
        entity: String,
        /// Its id.
        id: String,
        /// Its content, if asked for.
        body: Option<Body>,
    },
    /// The snapshot of this revision is complete.
    SnapshotEnd(i64),
    /// A change, or an entry or artifact that left the filter.
    Change(Change),
    /// Everything up to this revision was sent.
    Bookmark(i64),
    /// The end of a page of a list.
    Page {
        /// The owner's revision.
        revision: i64,
        /// Whether more can be read at once.
        has_more: bool,
        /// The first revision in the feed.
        oldest: i64,
    },
    /// The cursor cannot be used, for this reason.
    Resync(String),
    /// The service ended the stream, for this reason.
    End(String),
}

/// One stream, or lists that follow each other without an error.
#[derive(Debug, Clone, PartialEq)]
pub struct Session {
    /// How many times the database had been replaced when the session began.
    pub epoch: usize,
    /// How many times when it ended: a standby can take over meanwhile.
    pub until: usize,
    /// Where it began.
    pub start: Start,
    /// What was received.
    pub events: Vec<Event>,
}

/// Everything that a follower requested and received.
#[derive(Debug, Clone)]
pub struct Log {
    /// The transport and the start of the follower, for messages.
    pub name: String,
    /// Which changes it asked for.
    pub filter: Filter,
    /// Whether it asked for bodies.
    pub bodies: bool,
    /// Whether it read slowly while there were writers.
    pub is_slow: bool,
    /// Whether it reads lists instead of a stream.
    pub lists: bool,
    /// Its sessions, in order.
    pub sessions: Vec<Session>,
}

/// What the lists of the API return with a filter: the content of each entry and artifact.
pub type Stored = BTreeMap<(String, String), Body>;
