//! Meaning: what a store keeps of an entry's vectors, and the searches that use them.

use async_trait::async_trait;
use context_model::{Filter, ThreadSet};
use serde::{Deserialize, Serialize};

use crate::{FtsSearch, OwnerId, Read, Result};

/// The model that made vectors. Two that differ in anything here are never compared.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EmbeddingModel {
    /// Its name with what tells apart states of the same name.
    pub identity: String,
    /// The length of its vectors.
    pub dimensions: u32,
}

/// A part of an entry's text and its vector.
#[derive(Debug, Clone, PartialEq)]
pub struct EmbeddedChunk {
    /// Where it begins, in characters from 0.
    pub start: u32,
    /// Where it ends.
    pub end: u32,
    /// Its vector, of length 1.
    pub vector: Vec<f32>,
    /// The vectors of its tokens, in a form that is the engine's own; `None` when they are not to be kept.
    pub tokens: Option<Vec<u8>>,
}

/// An entry's vectors.
#[derive(Debug, Clone, PartialEq)]
pub struct Embedded {
    /// The model that made them.
    pub model: EmbeddingModel,
    /// A vector for each part of the text, in order; not empty.
    pub chunks: Vec<EmbeddedChunk>,
}

/// What comes of an entry's meaning with a write.
#[derive(Debug, Clone, Default, PartialEq)]
pub enum Embedding {
    /// Nothing: the entry waits for its vectors. Vectors of a text that an update replaces are deleted all the same.
    #[default]
    Later,
    /// The vectors of the written text.
    Now(Embedded),
}

/// What became of asking for a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ModelUse {
    /// Its vectors are what the store keeps.
    Ready,
    /// The store holds vectors of this other model, and keeps them.
    Other(EmbeddingModel),
    /// This database cannot keep vectors, for this reason.
    Impossible(String),
}

/// How a move to another model begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MoveState {
    /// The model's vectors are what the store keeps already.
    Done,
    /// They are gathered beside those in use.
    Begun {
        /// Entries that have some, from an earlier attempt.
        embedded: i64,
        /// Entries of all owners.
        entries: i64,
    },
    /// This database cannot keep vectors, for this reason.
    Impossible(String),
}

/// How a move to another model ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moved {
    /// Its vectors are in use.
    Done,
    /// More entries than allowed wait for theirs; nothing changed.
    Waiting,
    /// No vectors of this model are being gathered: a move to a third one was begun meanwhile.
    NotBegun,
}

/// An entry without vectors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unembedded {
    /// Whose it is.
    pub owner: OwnerId,
    /// Its id.
    pub id: i64,
    /// Its version when it was read.
    pub version: i64,
    /// Its text.
    pub text: String,
}

/// Some entries without vectors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnembeddedPage {
    /// The entries.
    pub entries: Vec<Unembedded>,
    /// Where to go on; `None` when every entry was looked at.
    pub next: Option<Place>,
}

/// A place among all entries of all owners, in the store's own order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place(String);

impl Place {
    /// A place, in words that the store which wrote them understands.
    #[must_use]
    pub fn new(place: impl Into<String>) -> Self {
        Self(place.into())
    }

    /// Those words.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Vectors for an entry that waited for them.
#[derive(Debug, Clone, PartialEq)]
pub struct LateEmbedding {
    /// The entry.
    pub id: i64,
    /// The version whose text was embedded; a later one keeps waiting.
    pub version: i64,
    /// Its vectors.
    pub embedded: Embedded,
}

/// A search by meaning.
#[derive(Debug, Clone, PartialEq)]
pub struct SemanticSearch {
    /// The model that made the vector.
    pub model: EmbeddingModel,
    /// The query's vector, of length 1.
    pub vector: Vec<f32>,
}

/// A ranking by words, by meaning, or both. At least one is there.
#[derive(Debug, Clone)]
pub struct RankSearch {
    /// By words.
    pub fts: Option<FtsSearch>,
    /// By meaning.
    pub semantic: Option<SemanticSearch>,
    /// Entries of each ranking, at most.
    pub depth: u32,
    /// Whether the database's plan is asked for.
    pub explain: bool,
}

/// An entry found by words.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RankedByWords {
    /// The entry.
    pub id: i64,
    /// BM25 or its like; higher is better.
    pub score: f64,
}

/// An entry found by meaning.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RankedByMeaning {
    /// The entry.
    pub id: i64,
    /// The L2 distance of its nearest chunk; lower is better.
    pub distance: f64,
    /// The place of that chunk among the entry's, from 0.
    pub position: u32,
    /// Where it begins in the text, in characters.
    pub start: u32,
    /// Where it ends.
    pub end: u32,
}

/// A chunk of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ChunkPlace {
    /// The entry.
    pub id: i64,
    /// The chunk's place among the entry's, from 0.
    pub position: u32,
}

/// What is kept of a chunk's tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChunkTokens {
    /// The chunk.
    pub place: ChunkPlace,
    /// The vectors of its tokens, as they were given.
    pub tokens: Vec<u8>,
}

/// The rankings of one state of the database, each best first: score or distance, then id descending.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Ranking {
    /// By words; empty when not asked for.
    pub fts: Vec<RankedByWords>,
    /// By meaning; empty when not asked for.
    pub semantic: Vec<RankedByMeaning>,
    /// The cap on full text, when more entries matched than were ranked.
    pub capped_at: Option<u32>,
    /// The owner's revision that the rankings show.
    pub revision: i64,
    /// How it was found, a line each; empty unless asked for.
    pub plan: Vec<String>,
}

/// A database that keeps vectors.
#[async_trait]
pub trait VectorStore: Send + Sync {
    /// Keeps vectors of this model from now on. A store that holds vectors of another one goes on holding those.
    ///
    /// # Errors
    /// [`StoreError`](crate::StoreError).
    async fn use_model(&self, model: &EmbeddingModel) -> Result<ModelUse>;

    /// How many of the owner's entries, or of those in a set of threads, have vectors of this model.
    ///
    /// # Errors
    /// [`StoreError`](crate::StoreError).
    async fn embedded_entries(
        &self,
        owner: &OwnerId,
        model: &EmbeddingModel,
        threads: Option<ThreadSet>,
    ) -> Result<i64>;

    /// Entries of every owner that have no vectors of this model, at most `limit`; looks at no more entries than is
    /// quick. `after` is where the page before ended. Where several services share the database, entries that another
    /// one got a moment ago are left to it.
    ///
    /// # Errors
    /// [`StoreError`](crate::StoreError).
    async fn unembedded(
        &self,
        model: &EmbeddingModel,
        after: Option<&Place>,
        limit: u32,
    ) -> Result<UnembeddedPage>;

    /// Gives vectors to entries that wait for them, and says how many took them: an entry that changed, went or has
    /// vectors of the model already does not. Neither versions nor the revision move.
    ///
    /// # Errors
    /// [`StoreError`](crate::StoreError).
    async fn add_embeddings(&self, owner: &OwnerId, embeddings: Vec<LateEmbedding>) -> Result<u64>;

    /// Ranks the entries that satisfy the filter.
    ///
    /// # Errors
    /// [`StoreError`](crate::StoreError); `FEATURE_UNAVAILABLE` for a search with a model whose vectors are not kept.
    async fn rank(
        &self,
        owner: &OwnerId,
        search: RankSearch,
        filter: Filter,
        read: Read,
    ) -> Result<Ranking>;

    /// The vectors of these chunks' tokens, made by this model. Chunks without any are left out. They are much to read, so
    /// nothing else reads them.
    ///
    /// # Errors
    /// [`StoreError`](crate::StoreError).
    async fn tokens(
        &self,
        owner: &OwnerId,
        model: &EmbeddingModel,
        chunks: Vec<ChunkPlace>,
    ) -> Result<Vec<ChunkTokens>>;

    /// Begins to gather vectors of this model beside those in use, or goes on with it. Gathering for yet another model
    /// ends. [`unembedded`](Self::unembedded) and [`add_embeddings`](Self::add_embeddings) do the work.
    ///
    /// # Errors
    /// [`StoreError`](crate::StoreError).
    async fn begin_move(&self, model: &EmbeddingModel) -> Result<MoveState>;

    /// Puts the gathered vectors in the place of those in use, in one transaction, when at most `waiting` entries have
    /// none of them. Those go on waiting.
    ///
    /// # Errors
    /// [`StoreError`](crate::StoreError).
    async fn finish_move(&self, model: &EmbeddingModel, waiting: u64) -> Result<Moved>;

    /// Does what keeps searches quick as the database grows. To be called now and then; mostly there is nothing to do,
    /// sometimes it takes minutes, in which everything else goes on.
    ///
    /// # Errors
    /// [`StoreError`](crate::StoreError).
    async fn maintain(&self) -> Result<()> {
        Ok(())
    }
}
