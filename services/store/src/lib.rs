//! What a database must do for the context service: the [`Store`] trait, its errors, the in-memory oracle for filters
//! and the conformance suite that every database runs.
//!
//! A store gets domain types that obey every rule already. It never sees a scope or a status code, and only touches
//! the owner it is given. Every write is one transaction, durable when the call returns.

pub mod bm25;
pub mod call;
pub mod clock;
pub mod conformance;
pub mod generate;
pub mod oracle;
pub mod rules;
pub mod seal;
pub mod transfer;

mod artifacts;
mod error;
mod keys;
mod memory;
mod neighbourhood;
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
    ArtifactHistory, ArtifactPage, ArtifactRestore, ArtifactStore, ArtifactsPage, AtRevision,
    ListedArtifact, ListedVersion, PageStart, StoredArtifact, StoredVersion, VersionLookup,
};
pub use error::{BoxError, Result, StoreError};
pub use keys::{AuditLine, Denial, KeyChange, KeyEvent, KeyStore, OwnerSummary, StoredKey};
pub use memory::{Memory, Meter};
pub use neighbourhood::Neighbourhood;
pub use owner::OwnerId;
pub use read::{
    FtsPage, FtsSearch, Page, Read, RowSelection, ScoredEntry, SearchPage, StoreStatistics,
    StoredEntry, ThreadsPage, Usage,
};
pub use record::{Once, Record, Recorded, RecordedItem};
pub use sealing::{SealStore, SealedPage, Soundness};
pub use shares::{Sharer, Shares};
pub use store::Store;
pub use summaries::{LateSummary, SummaryStore, Unsummarized, UnsummarizedPage};
pub use vectors::{
    ChunkPlace, ChunkTokens, Embedded, EmbeddedChunk, Embedding, EmbeddingModel, LateEmbedding,
    ModelUse, MoveState, Moved, Place, RankSearch, RankedByMeaning, RankedByWords, Ranking,
    SemanticSearch, Unembedded, UnembeddedPage, VectorStore,
};
pub use write::{
    DeleteCriteria, ErrorByMessage, Idempotency, ItemError, ItemOutcome, StoredBatch, WriteOptions,
    Written,
};
