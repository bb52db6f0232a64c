use serde::{Deserialize, Serialize};

use crate::{
    ContentType, FilterInput, ImageInput, JsonObject, MetadataFilter, ObjectText, Source, Timestamp,
};

/// Declares a search request: its own fields, then the filters and options that all four searches share. (serde's
/// `flatten` would do it with one struct, but not together with `deny_unknown_fields`.)
macro_rules! search_request {
    ($(#[$doc:meta])* $name:ident, $limit_doc:literal, { $($(#[$field_doc:meta])* $field:ident: $type:ty),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize, utoipa::ToSchema)]
        #[serde(deny_unknown_fields)]
        pub struct $name {
            $($(#[$field_doc])* pub $field: $type,)*
            #[doc = $limit_doc]
            #[serde(skip_serializing_if = "Option::is_none")]
            #[schema(minimum = 1, maximum = 100)]
            pub limit: Option<i64>,
            /// Results to skip, from 0; ranked searches page to 10 000. Absent: 0.
            #[serde(skip_serializing_if = "Option::is_none")]
            #[schema(minimum = 0)]
            pub offset: Option<i64>,
            /// Only this thread.
            #[serde(skip_serializing_if = "Option::is_none")]
            pub thread_id: Option<String>,
            /// Only entries of this source: `user` or `agent`.
            #[serde(skip_serializing_if = "Option::is_none")]
            pub source: Option<String>,
            /// Only entries with at least one of these tags.
            #[serde(skip_serializing_if = "Option::is_none")]
            pub tags: Option<Vec<String>>,
            /// Only entries of this type: `text` or `multimodal`.
            #[serde(skip_serializing_if = "Option::is_none")]
            pub content_type: Option<String>,
            /// Equality per key, typed and case-sensitive.
            #[serde(skip_serializing_if = "Option::is_none")]
            #[schema(value_type = Option<std::collections::BTreeMap<String, serde_json::Value>>)]
            pub metadata: Option<JsonObject>,
            /// Conditions on metadata; all must hold.
            #[serde(skip_serializing_if = "Option::is_none")]
            pub metadata_filters: Option<Vec<MetadataFilter>>,
            /// Created at or after: ISO 8601 date or date-time, UTC when it names no offset.
            #[serde(skip_serializing_if = "Option::is_none")]
            pub start_date: Option<String>,
            /// Created at or before; a date alone means its last moment.
            #[serde(skip_serializing_if = "Option::is_none")]
            pub end_date: Option<String>,
            /// Whether image data comes along; absent: false.
            #[serde(skip_serializing_if = "Option::is_none")]
            pub include_images: Option<bool>,
            /// Whether `stats` tells how the query ran; absent: false.
            #[serde(skip_serializing_if = "Option::is_none")]
            pub explain_query: Option<bool>,
            /// Read a state at or after this revision of an earlier reply.
            #[serde(skip_serializing_if = "Option::is_none")]
            pub min_revision: Option<i64>,
        }

        impl $name {
            /// Takes the filters out of the request.
            pub fn take_filters(&mut self) -> FilterInput {
                FilterInput {
                    thread_id: self.thread_id.take(),
                    source: self.source.take(),
                    tags: self.tags.take(),
                    content_type: self.content_type.take(),
                    metadata: self.metadata.take(),
                    metadata_filters: self.metadata_filters.take(),
                    start_date: self.start_date.take(),
                    end_date: self.end_date.take(),
                }
            }
        }
    };
}

search_request!(
    /// A search by filters alone, newest first.
    SearchContextRequest,
    "Results at most, 1 to 100; absent: 30.",
    {}
);

search_request!(
    /// A full-text search.
    FtsSearchContextRequest,
    "Results at most, 1 to 100; absent: 5.",
    {
        /// What to look for.
        #[serde(default)]
        #[schema(required, example = "billing database")]
        query: String,
        /// `match` (words, stemmed), `prefix` (every word as a prefix), `phrase` (words in this order) or `boolean`
        /// (AND, OR, NOT, parentheses, quotes, trailing `*`); absent: `match`.
        #[serde(skip_serializing_if = "Option::is_none")]
        mode: Option<String>,
        /// Whether each result has a snippet with `<mark>` around the hits; absent: false.
        #[serde(skip_serializing_if = "Option::is_none")]
        highlight: Option<bool>,
    }
);

search_request!(
    /// A search by meaning.
    SemanticSearchContextRequest,
    "Results at most, 1 to 100; absent: 5.",
    {
        /// What to look for, in natural language.
        #[serde(default)]
        #[schema(required, example = "which database did we choose?")]
        query: String,
    }
);

search_request!(
    /// Full text and meaning together, fused.
    HybridSearchContextRequest,
    "Results at most, 1 to 100; absent: 5.",
    {
        /// What to look for, in natural language.
        #[serde(default)]
        #[schema(required, example = "which database did we choose?")]
        query: String,
        /// The searches to fuse, of `fts` and `semantic`; absent: both.
        #[serde(skip_serializing_if = "Option::is_none")]
        search_modes: Option<Vec<String>>,
        /// How results are fused: `rrf` (by rank) or `convex` (by score); absent: `rrf`.
        #[serde(skip_serializing_if = "Option::is_none")]
        fusion_method: Option<String>,
        /// The constant k of reciprocal rank fusion, 1 to 1000; absent: HYBRID_RRF_K.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[schema(minimum = 1, maximum = 1000)]
        rrf_k: Option<i64>,
    }
);

/// An entry in a list of results.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct SearchHit {
    /// The entry's id.
    pub id: i64,
    /// The thread it belongs to.
    pub thread_id: String,
    /// Who wrote it.
    pub source: Source,
    /// Whether it has images.
    pub content_type: ContentType,
    /// The text, cut at SEARCH_TRUNCATION_LENGTH characters; get_context_by_ids gives it whole.
    pub text_content: String,
    /// A generated summary, or "" while there is none.
    pub summary: String,
    /// Whether `text_content` was cut.
    pub is_text_content_truncated: bool,
    /// Its metadata.
    #[schema(value_type = std::collections::BTreeMap<String, serde_json::Value>)]
    pub metadata: ObjectText,
    /// Its tags, sorted.
    pub tags: Vec<String>,
    /// When it was stored.
    pub created_at: Timestamp,
    /// When it was last updated.
    pub updated_at: Timestamp,
    /// Its version.
    pub version: i64,
    /// Its images, when they were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub images: Option<Vec<ImageInput>>,
    /// How well it fits; absent in a search by filters alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scores: Option<Scores>,
    /// A snippet around the best hits with `<mark>`, when it was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub highlighted: Option<String>,
}

/// The scores of one result. Which keys exist depends on the search; a key that exists may be null.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(untagged)]
pub enum Scores {
    /// Of a hybrid search.
    Hybrid(HybridScores),
    /// Of a full-text search.
    Fts(FtsScores),
    /// Of a semantic search.
    Semantic(SemanticScores),
}

/// Scores of a full-text search.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FtsScores {
    /// BM25; higher is better.
    pub fts_score: f64,
    /// Always null: a single search has no rank across searches.
    #[schema(required)]
    pub fts_rank: Option<i64>,
    /// 0 to 1, higher is better; present when reranking is on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rerank_score: Option<f64>,
}

/// Scores of a semantic search.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SemanticScores {
    /// L2 distance; lower is better.
    pub semantic_distance: f64,
    /// Always null: a single search has no rank across searches.
    #[schema(required)]
    pub semantic_rank: Option<i64>,
    /// 0 to 1, higher is better; present when reranking is on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rerank_score: Option<f64>,
}

/// Scores of a hybrid search; always all six.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct HybridScores {
    /// The fused score; higher is better. With `rrf` the sum of `1 / (k + rank)` over the ranks that are not null, with
    /// `convex` 0 to 1.
    pub rrf: f64,
    /// The place among full-text results, from 1; null when not among them, or when it does not count in `rrf`.
    #[schema(required)]
    pub fts_rank: Option<i64>,
    /// The place among semantic results, from 1; null when not among them, or when it does not count in `rrf`.
    #[schema(required)]
    pub semantic_rank: Option<i64>,
    /// BM25; higher is better.
    #[schema(required)]
    pub fts_score: Option<f64>,
    /// L2 distance; lower is better.
    #[schema(required)]
    pub semantic_distance: Option<f64>,
    /// 0 to 1, higher is better; null when reranking is off.
    #[schema(required)]
    pub rerank_score: Option<f64>,
}

/// How a query ran.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct QueryStats {
    /// Milliseconds inside the service.
    pub execution_time_ms: f64,
    /// Filters in the request, each metadata condition counting as one.
    pub filters_applied: i64,
    /// Results in this reply.
    pub rows_returned: i64,
    /// The database: `sqlite` or `postgresql`.
    pub backend: String,
    /// The database's own plan of the main statement, a line each.
    pub query_plan: Vec<String>,
    /// For ranked searches, how many of the newest matches were ranked when there were more than that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ranking_cap: Option<i64>,
}

/// The results of a search by filters.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct SearchContextReply {
    /// The entries, newest first.
    pub results: Vec<SearchHit>,
    /// Entries in `results`.
    pub count: i64,
    /// How the query ran, when it was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stats: Option<QueryStats>,
    /// The owner's revision that this reply shows.
    pub revision: i64,
}

/// The results of a full-text search.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct FtsSearchContextReply {
    /// The query as given.
    pub query: String,
    /// The mode used.
    pub mode: String,
    /// The language of stemming.
    pub language: String,
    /// Whether full-text search works.
    pub fts_available: bool,
    /// The entries, best first.
    pub results: Vec<SearchHit>,
    /// Entries in `results`.
    pub count: i64,
    /// How the query ran, when it was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stats: Option<QueryStats>,
    /// What limits the answer, such as a cap on ranking.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// The owner's revision that this reply shows.
    pub revision: i64,
}

/// The results of a semantic search.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct SemanticSearchContextReply {
    /// The query as given.
    pub query: String,
    /// The embedding model.
    pub model: String,
    /// The entries, best first.
    pub results: Vec<SearchHit>,
    /// Entries in `results`.
    pub count: i64,
    /// How the query ran, when it was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stats: Option<QueryStats>,
    /// The owner's revision that this reply shows.
    pub revision: i64,
}

/// The results of a hybrid search.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct HybridSearchContextReply {
    /// The query as given.
    pub query: String,
    /// `rrf` or `convex`.
    pub fusion_method: String,
    /// The searches that took part.
    pub search_modes_used: Vec<String>,
    /// Candidates from full text.
    pub fts_count: i64,
    /// Candidates from meaning.
    pub semantic_count: i64,
    /// The entries, best first.
    pub results: Vec<SearchHit>,
    /// Entries in `results`.
    pub count: i64,
    /// How the query ran, when it was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stats: Option<QueryStats>,
    /// What limits the answer, such as a leg that could not take part.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// The owner's revision that this reply shows.
    pub revision: i64,
}
