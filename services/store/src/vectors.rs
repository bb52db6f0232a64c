//! Embeddings: the stored vectors of entries and artifacts, and the rankings that use them.
//!
//! In this module an entry can also be the document of an artifact. Its id is then negative, as in
//! [`ArtifactDocument`](crate::ArtifactDocument).

use async_trait::async_trait;
use context_model::{Filter, ThreadSet};
use serde::{Deserialize, Serialize};

use crate::{FtsSearch, OwnerId, Read, Result};

/// The model that created vectors. Vectors of models that differ in any field are never compared.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EmbeddingModel {
    /// The model's name, and anything that distinguishes models of the same name.
    pub identity: String,
    /// Length of its vectors.
    pub dimensions: u32,
}

/// A part of an entry's text and its vector.
#[derive(Debug, Clone, PartialEq)]
pub struct EmbeddedChunk {
    /// Start in the text, in characters from 0.
    pub start: u32,
    /// End in the text, in characters.
    pub end: u32,
    /// The vector, of length 1.
    pub vector: Vec<f32>,
    /// The token vectors, in the engine's own format. `None` when they are not stored.
    pub tokens: Option<Vec<u8>>,
}

/// The embedding of an entry.
#[derive(Debug, Clone, PartialEq)]
pub struct Embedded {
    /// The model that created the vectors.
    pub model: EmbeddingModel,
    /// The vectors of the parts of the text, in order. Not empty.
    pub chunks: Vec<EmbeddedChunk>,
}

/// The embedding that comes with a write.
#[derive(Debug, Clone, Default, PartialEq)]
pub enum Embedding {
    /// The embedding is added later. If an update replaces the text, the old vectors are deleted at once.
    #[default]
    Later,
    /// The embedding of the written text.
    Now(Embedded),
}

/// Result of selecting an embedding model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ModelUse {
    /// The store uses this model's vectors.
    Ready,
    /// The store has vectors of this other model and continues to use them.
    Other(EmbeddingModel),
    /// This database cannot store vectors, for this reason.
    Impossible(String),
}

/// Result of starting a move to another model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MoveState {
    /// The store already uses this model's vectors.
    Done,
    /// The new vectors are collected beside those in use.
    Begun {
        /// Entries that have vectors from an earlier attempt.
        embedded: i64,
        /// Entries of all owners.
        entries: i64,
    },
    /// This database cannot store vectors, for this reason.
    Impossible(String),
}

/// Result of finishing a move to another model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moved {
    /// The new vectors are in use.
    Done,
    /// More entries than allowed still have no new vectors. Nothing changed.
    Waiting,
    /// No vectors of this model are being collected, because a move to another model was started in the meantime.
    NotBegun,
}

/// An entry without vectors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unembedded {
    /// The owner of the entry.
    pub owner: OwnerId,
    /// The entry's id.
    pub id: i64,
    /// The artifact, if this is an artifact. Then `id` is [its id in the search
    /// indexes](context_model::ArtifactId::document).
    pub artifact_id: Option<String>,
    /// The version that was read.
    pub version: i64,
    /// The text.
    pub text: String,
}

impl Unembedded {
    /// The entry's id. `None` for an artifact.
    #[must_use]
    pub fn entry_id(&self) -> Option<i64> {
        self.artifact_id.is_none().then_some(self.id)
    }
}

/// A page of entries without vectors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnembeddedPage {
    /// The entries.
    pub entries: Vec<Unembedded>,
    /// Where to continue. `None` when all entries were checked.
    pub next: Option<ScanCursor>,
}

/// A cursor over the entries of all owners, in the store's own order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScanCursor(String);

impl ScanCursor {
    /// A cursor in the store's own notation.
    #[must_use]
    pub fn new(notation: impl Into<String>) -> Self {
        Self(notation.into())
    }

    /// The notation.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A computed embedding for an entry that had none.
#[derive(Debug, Clone, PartialEq)]
pub struct LateEmbedding {
    /// The entry.
    pub id: i64,
    /// The version whose text was embedded. If the entry has a later version, the embedding is ignored.
    pub version: i64,
    /// The embedding.
    pub embedded: Embedded,
}

/// A semantic search.
#[derive(Debug, Clone, PartialEq)]
pub struct SemanticSearch {
    /// The model that created the vector.
    pub model: EmbeddingModel,
    /// The query vector, of length 1.
    pub vector: Vec<f32>,
}

/// What is ranked.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum DocumentKind {
    /// Entries.
    #[default]
    Context,
    /// Artifacts. The ids in the ranking are those of [`ArtifactDocument`](crate::ArtifactDocument), which are
    /// negative.
    Artifact,
}

/// A full-text ranking, a semantic ranking, or both. At least one is requested.
#[derive(Debug, Clone)]
pub struct RankSearch {
    /// What is ranked.
    pub kind: DocumentKind,
    /// The full-text search.
    pub fts: Option<FtsSearch>,
    /// The semantic search.
    pub semantic: Option<SemanticSearch>,
    /// Maximum number of entries in each ranking.
    pub depth: u32,
    /// Number of entries at the top of the semantic ranking whose order and distances must be exact. The distances of
    /// the others may be estimates.
    pub exact: u32,
    /// Ranks at which a part of the semantic ranking ends. Where an estimate leaves open on which side of such a rank
    /// an entry belongs, its distance is exact.
    pub boundaries: &'static [u32],
    /// Whether to return the query plan.
    pub explain: bool,
}

/// An entry found by full-text search.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FtsHit {
    /// The entry.
    pub id: i64,
    /// BM25 or a similar score. Higher is better.
    pub score: f64,
}

/// An entry found by semantic search.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SemanticHit {
    /// The entry.
    pub id: i64,
    /// The L2 distance of its nearest chunk. Lower is better.
    pub distance: f64,
    /// That chunk. `None` when the distance is an estimate.
    pub chunk: Option<ChunkRange>,
}

/// The position of a chunk in the text of its entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkRange {
    /// Index of the chunk among the entry's chunks, from 0.
    pub position: u32,
    /// Start of the chunk in the text, in characters.
    pub start: u32,
    /// End of the chunk.
    pub end: u32,
}

/// Identifies a chunk of an owner and a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ChunkKey {
    /// The entry.
    pub id: i64,
    /// Index of the chunk among the entry's chunks, from 0.
    pub position: u32,
}

/// The stored token vectors of a chunk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChunkTokens {
    /// The chunk.
    pub key: ChunkKey,
    /// The vectors, byte for byte as they were stored.
    pub tokens: Vec<u8>,
}

/// The rankings, read from one state of the database. Best first: by score or distance, then by id descending.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Ranking {
    /// The full-text ranking. Empty when not requested.
    pub fts: Vec<FtsHit>,
    /// The semantic ranking. Empty when not requested.
    pub semantic: Vec<SemanticHit>,
    /// Whether the full-text search used its fallback query.
    pub used_fallback: bool,
    /// The full-text cap, if more entries matched than were ranked.
    pub capped_at: Option<u32>,
    /// The owner's revision when the rankings were read.
    pub revision: i64,
    /// The query plan, one line per element. Empty unless requested.
    pub plan: Vec<String>,
}

/// A database that stores vectors.
#[async_trait]
pub trait VectorStore: Send + Sync {
    /// Uses this model's vectors from now on. A store that has vectors of another model continues to use those.
    ///
    /// # Errors
    /// [`StoreError`](crate::StoreError).
    async fn use_model(&self, model: &EmbeddingModel) -> Result<ModelUse>;

    /// Number of the owner's entries, or of those in a set of threads, that have vectors of this model. Artifacts are
    /// not counted.
    ///
    /// # Errors
    /// [`StoreError`](crate::StoreError).
    async fn embedded_entries(
        &self,
        owner: &OwnerId,
        model: &EmbeddingModel,
        threads: Option<ThreadSet>,
    ) -> Result<i64>;

    /// Number of entries and artifacts of all owners without vectors of this model. 0 if the store does not know the
    /// model. The cost grows with their number, but no text is read.
    ///
    /// # Errors
    /// [`StoreError`](crate::StoreError).
    async fn unembedded_entries(&self, model: &EmbeddingModel) -> Result<i64>;

    /// Entries of all owners without vectors of this model, at most `limit`. Checks only as many entries as can be
    /// checked quickly. `after` is where the previous page ended. If several services share the database, entries that
    /// another service received recently are skipped.
    ///
    /// # Errors
    /// [`StoreError`](crate::StoreError).
    async fn unembedded(
        &self,
        model: &EmbeddingModel,
        after: Option<&ScanCursor>,
        limit: u32,
    ) -> Result<UnembeddedPage>;

    /// Stores embeddings, all of one model, and returns how many of them were stored. An entry that changed, was
    /// deleted or already has vectors of the model is skipped. All are skipped if the store does not know the model.
    /// Versions and the revision do not change.
    ///
    /// # Errors
    /// [`StoreError`](crate::StoreError).
    async fn add_embeddings(&self, owner: &OwnerId, embeddings: Vec<LateEmbedding>) -> Result<u64>;

    /// Ranks the entries or artifacts that satisfy the filter. A filter on fields that only entries have finds no
    /// artifacts.
    ///
    /// # Errors
    /// [`StoreError`](crate::StoreError). `FEATURE_UNAVAILABLE` for a semantic search with a model whose vectors are
    /// not stored, also if a full-text ranking is requested with it.
    async fn rank(
        &self,
        owner: &OwnerId,
        search: RankSearch,
        filter: Filter,
        read: Read,
    ) -> Result<Ranking>;

    /// The exact distances of these entries, nearest first. Entries without vectors of the search's model are omitted.
    /// It is only called for rankings with estimates, so a store without estimates need not implement it.
    ///
    /// # Errors
    /// [`StoreError`](crate::StoreError).
    async fn exact_distances(
        &self,
        _owner: &OwnerId,
        _search: SemanticSearch,
        _entries: Vec<i64>,
        _read: Read,
    ) -> Result<Vec<SemanticHit>> {
        Ok(Vec::new())
    }

    /// The token vectors of these chunks, created by this model. Chunks without token vectors are omitted. The vectors
    /// are large, so no other method reads them.
    ///
    /// # Errors
    /// [`StoreError`](crate::StoreError).
    async fn tokens(
        &self,
        owner: &OwnerId,
        model: &EmbeddingModel,
        chunks: Vec<ChunkKey>,
    ) -> Result<Vec<ChunkTokens>>;

    /// Starts or resumes collecting vectors of this model beside those in use. Stops collecting vectors of any third
    /// model. [`unembedded`](Self::unembedded) and [`add_embeddings`](Self::add_embeddings) do the work.
    ///
    /// # Errors
    /// [`StoreError`](crate::StoreError).
    async fn begin_move(&self, model: &EmbeddingModel) -> Result<MoveState>;

    /// Replaces the vectors in use by the collected ones, in one transaction, if at most `may_be_missing` entries have
    /// none. Those entries are embedded later.
    ///
    /// # Errors
    /// [`StoreError`](crate::StoreError).
    async fn finish_move(&self, model: &EmbeddingModel, may_be_missing: u64) -> Result<Moved>;

    /// Builds an index of the vectors when searches need one, and deletes vectors of models that are no longer in use.
    /// Call it periodically. Usually there is nothing to do. Sometimes it takes minutes, during which everything else
    /// continues.
    ///
    /// # Errors
    /// [`StoreError`](crate::StoreError).
    async fn maintain(&self) -> Result<()> {
        Ok(())
    }
}
