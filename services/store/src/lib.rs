//! The interface between the context service and its databases: the [`Store`] trait and its errors.
//!
//! The crate also has what both databases share: the rules of writes ([`rules`]), checksums ([`seal`]), the migration
//! from one database to another ([`transfer`]), and the evaluation of filters in memory ([`oracle`]).
//!
//! A store receives validated domain types. It keeps the scopes of keys but checks none, and knows no status code. A
//! call with an owner accesses only this owner's data. Every write of an owner's data by a caller is one transaction.
//! Every write is durable when the call returns.

pub mod bm25;
pub mod call;
pub mod clock;
pub mod oracle;
pub mod rules;
pub mod seal;
pub mod transfer;

mod artifacts;
mod changes;
mod context_window;
mod copy;
mod error;
mod keys;
mod memory;
mod notifier;
mod owner;
mod read;
mod record;
mod sealing;
mod shares;
mod store;
mod summaries;
mod vectors;
mod write;

pub use artifacts::{
    ArtifactDocument, ArtifactHistory, ArtifactPage, ArtifactRestore, ArtifactSelection,
    ArtifactStore, ArtifactsPage, AtRevision, ListedArtifact, ListedVersion, PageStart,
    StoredArtifact, StoredVersion, VersionLookup,
};
pub use changes::{Change, ChangeKind, ChangeRow, ChangeStore, Changed, Feed, Retention};
pub use context_window::ContextWindow;
pub use copy::{Copied, CopiedArtifact, CopiedVersion, CopyPosition};
pub use error::{BoxError, Result, StoreError, Unreadable, unreadable};
pub use keys::{AuditLine, Denial, KeyChange, KeyEvent, KeyStore, OwnerSummary, StoredKey};
pub use memory::{Memory, Meter, Taken};
pub use notifier::{ChangeNotifier, Subscription, Touched};
pub use owner::OwnerId;
pub use read::{
    DayCounts, FtsPage, FtsSearch, MAX_NAMED_THREADS, MetadataSample, Page, Read, RowSelection,
    ScoredEntry, SearchPage, StoreStatistics, StoredEntry, TagsPage, ThreadsPage, Usage,
};
pub use record::{Once, Record, Recorded, RecordedItem};
pub use sealing::{SealStore, SealedPage, Soundness};
pub use shares::{Sharer, Shares};
pub use store::Store;
pub use summaries::{LateSummary, SummaryStore, Unsummarized, UnsummarizedPage};
pub use vectors::{
    ChunkKey, ChunkRange, ChunkTokens, DocumentKind, Embedded, EmbeddedChunk, Embedding,
    EmbeddingModel, FtsHit, LateEmbedding, ModelUse, MoveState, Moved, RankSearch, Ranking,
    ScanCursor, SemanticHit, SemanticSearch, Unembedded, UnembeddedPage, VectorStore,
};
pub use write::{
    DeleteCriteria, ErrorByMessage, Idempotency, ItemError, ItemOutcome, StoredBatch, WriteOptions,
    Written,
};
