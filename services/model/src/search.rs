use std::fmt;

use serde::de::{DeserializeSeed, Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use crate::{
    ContentType, FilterInput, FtsMode, FtsModeOrLater, FusionMethod, FusionMethodOrLater,
    ImageInput, Include, ObjectText, SearchMode, SearchModeOrLater, Source, Timestamp,
};

/// Declares a search request: its own parameters, then the filters and options that all four searches share.
///
/// In JSON all of them are members of one object. Serialization uses `flatten`. Deserialization is written out here.
/// With `flatten` it would buffer every value, lose the path of an invalid value, and could not list the known
/// parameters in the error for an unknown one.
macro_rules! search_request {
    ($(#[$doc:meta])* $name:ident, $limit_doc:literal, { $($(#[$field_doc:meta])* $field:ident: $type:ty),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Default, PartialEq, Serialize, utoipa::ToSchema)]
        pub struct $name {
            $($(#[$field_doc])* pub $field: $type,)*
            #[doc = $limit_doc]
            #[serde(skip_serializing_if = "Option::is_none")]
            #[schema(minimum = 1, maximum = 100)]
            pub limit: Option<i64>,
            /// Number of results to skip, at most 10 000 in ranked searches; default 0.
            #[serde(skip_serializing_if = "Option::is_none")]
            #[schema(minimum = 0)]
            pub offset: Option<i64>,
            /// Which entries are searched.
            #[serde(flatten)]
            #[schema(inline)]
            pub filters: FilterInput,
            /// Whether the results include image data; default: false.
            #[serde(skip_serializing_if = "Option::is_none")]
            pub include_images: Option<bool>,
            /// Whether the reply includes `stats` about how the query ran; default: false.
            #[serde(skip_serializing_if = "Option::is_none")]
            pub explain_query: Option<bool>,
            /// The `revision` of an earlier reply. The result shows that state or a later one.
            #[serde(skip_serializing_if = "Option::is_none")]
            pub min_revision: Option<i64>,
        }

        search_request!(@read $name
            { $($field,)* limit, offset, }
            { thread_id, source, tags, content_type, metadata, metadata_filters, start_date, end_date }
            { include_images, explain_query, min_revision }
        );
    };
    (@read $name:ident { $($first:ident,)* } { $($filter:ident),* } { $($last:ident),* }) => {
        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                const KNOWN: &[&str] = &[$(stringify!($first),)* $(stringify!($filter),)* $(stringify!($last),)*];

                struct Parameters;

                impl<'de> Visitor<'de> for Parameters {
                    type Value = $name;

                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str(concat!("struct ", stringify!($name)))
                    }

                    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<$name, M::Error> {
                        $(let mut $first = Default::default();)*
                        $(let mut $filter = Default::default();)*
                        $(let mut $last = Default::default();)*
                        let mut given = [false; KNOWN.len()];
                        while let Some(index) = map.next_key_seed(OneOf(KNOWN))? {
                            if std::mem::replace(&mut given[index], true) {
                                return Err(M::Error::duplicate_field(KNOWN[index]));
                            }
                            match KNOWN[index] {
                                $(stringify!($first) => $first = map.next_value()?,)*
                                $(stringify!($filter) => $filter = map.next_value()?,)*
                                $(stringify!($last) => $last = map.next_value()?,)*
                                unknown => return Err(M::Error::unknown_field(unknown, KNOWN)),
                            }
                        }
                        Ok($name { $($first,)* filters: FilterInput { $($filter,)* }, $($last,)* })
                    }
                }

                deserializer.deserialize_struct(stringify!($name), KNOWN, Parameters)
            }
        }
    };
}

/// Reads the name of a parameter and returns its index in the list of known parameters.
pub(crate) struct OneOf(pub(crate) &'static [&'static str]);

impl<'de> DeserializeSeed<'de> for OneOf {
    type Value = usize;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<usize, D::Error> {
        deserializer.deserialize_identifier(self)
    }
}

impl Visitor<'_> for OneOf {
    type Value = usize;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a parameter")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<usize, E> {
        let Self(known) = self;
        let index = known.iter().position(|known| *known == name);
        index.ok_or_else(|| E::unknown_field(name, known))
    }
}

search_request!(
    /// A search by filters alone, newest first.
    SearchContextRequest,
    "Maximum number of results, 1 to 100; default 30.",
    {}
);

search_request!(
    /// A full-text search.
    FtsSearchContextRequest,
    "Maximum number of results, 1 to 100; default 5.",
    {
        /// The query in the syntax of `mode`: 1 to 10 000 characters, not blank.
        #[schema(required, example = "billing database")]
        query: String,
        /// `match` (words, stemmed), `prefix` (every word as a prefix), `phrase` (words in this order) or `boolean`
        /// (AND, OR, NOT, parentheses, quotes, trailing `*`); default: `match`.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[schema(value_type = Option<FtsMode>)]
        mode: Option<String>,
        /// Whether each result has a snippet with `<mark>` around the hits; default: false.
        #[serde(skip_serializing_if = "Option::is_none")]
        highlight: Option<bool>,
    }
);

search_request!(
    /// A semantic search.
    SemanticSearchContextRequest,
    "Maximum number of results, 1 to 100; default 5.",
    {
        /// The query in natural language: 1 to 10 000 characters, not blank.
        #[schema(required, example = "which database did we choose?")]
        query: String,
        /// Drops entries whose `relevance` is lower, 0 to 1; the best 200 are considered; default: none is dropped.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[schema(minimum = 0, maximum = 1)]
        min_relevance: Option<f64>,
    }
);

search_request!(
    /// A full-text and a semantic search whose results are fused.
    HybridSearchContextRequest,
    "Maximum number of results, 1 to 100; default 5.",
    {
        /// The query in natural language: 1 to 10 000 characters, not blank.
        #[schema(required, example = "which database did we choose?")]
        query: String,
        /// The searches to fuse; default: both.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[schema(value_type = Option<Vec<SearchMode>>, min_items = 1)]
        search_modes: Option<Vec<String>>,
        /// What is searched; default: `contexts`. Filters by thread, source, tags or content type leave out artifacts.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[schema(value_type = Option<Vec<Include>>, min_items = 1)]
        include: Option<Vec<String>>,
        /// How results are fused: `rrf` (by rank) or `convex` (by score); default: `rrf`.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[schema(value_type = Option<FusionMethod>)]
        fusion_method: Option<String>,
        /// The constant k of reciprocal rank fusion, 1 to 1000; default: HYBRID_RRF_K.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[schema(minimum = 1, maximum = 1000)]
        rrf_k: Option<i64>,
        /// Drops entries whose `relevance` is lower, 0 to 1; the best 200 are considered; default: none is dropped.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[schema(minimum = 0, maximum = 1)]
        min_relevance: Option<f64>,
        /// Whether each result has `highlighted`; default: false.
        #[serde(skip_serializing_if = "Option::is_none")]
        highlight: Option<bool>,
    }
);

/// A result of a hybrid search.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(untagged)]
pub enum HybridHit {
    /// An entry.
    Context(SearchHit),
    /// An artifact, if `include` has `artifacts`.
    Artifact(ArtifactSearchHit),
}

impl HybridHit {
    /// The entry. `None` for an artifact.
    #[must_use]
    pub fn context(self) -> Option<SearchHit> {
        match self {
            Self::Context(hit) => Some(hit),
            Self::Artifact(_) => None,
        }
    }
}

/// An artifact in a list of results: its current version.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct ArtifactSearchHit {
    /// The artifact's id, a UUID.
    #[schema(format = "uuid")]
    pub artifact_id: String,
    /// Its title.
    pub title: String,
    /// Its path; absent if it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The content, cut at SEARCH_TRUNCATION_LENGTH characters. get_artifact returns it in full.
    pub text_content: String,
    /// Whether `text_content` was cut.
    pub is_text_content_truncated: bool,
    /// Its metadata.
    #[schema(value_type = std::collections::BTreeMap<String, serde_json::Value>)]
    pub metadata: ObjectText,
    /// When it was created.
    pub created_at: Timestamp,
    /// When its newest version was created.
    pub updated_at: Timestamp,
    /// The number of its newest version.
    pub version: i64,
    /// How well it matches the query.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scores: Option<Scores>,
    /// How likely the artifact is about the query, 0 to 1, comparable between queries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0, maximum = 1)]
    pub relevance: Option<f64>,
    /// A snippet with `<mark>` around the best hits; absent unless `highlight` is true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub highlighted: Option<String>,
    /// At most 300 characters of the content around what matches the query best, if `text_content` is cut and does not
    /// have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snippet: Option<String>,
}

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
    /// The text, cut at SEARCH_TRUNCATION_LENGTH characters. get_context_by_ids returns it in full.
    pub text_content: String,
    /// A generated summary; "" if there is none.
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
    /// Its images; absent unless `include_images` is true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub images: Option<Vec<ImageInput>>,
    /// How well it matches the query; absent in a search by filters alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scores: Option<Scores>,
    /// How likely the entry is about the query, 0 to 1, comparable between queries; only in semantic and hybrid search.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0, maximum = 1)]
    pub relevance: Option<f64>,
    /// A snippet with `<mark>` around the best hits; absent unless `highlight` is true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub highlighted: Option<String>,
    /// At most 300 characters of the text around what matches the query best, if `text_content` is cut and does not
    /// have it; only in semantic and hybrid search.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snippet: Option<String>,
}

/// The scores of one result. Which keys exist depends on the search; a key that exists may be null.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(untagged)]
pub enum Scores {
    /// Scores of a hybrid search.
    Hybrid(HybridScores),
    /// Scores of a full-text search.
    Fts(FtsScores),
    /// Scores of a semantic search.
    Semantic(SemanticScores),
}

/// Scores of a full-text search.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FtsScores {
    /// BM25; higher is better.
    pub fts_score: f64,
    /// Always null. Only a hybrid search has ranks.
    #[schema(required)]
    pub fts_rank: Option<i64>,
    /// Score of reranking, 0 to 1; higher is better. Null in results that were not reranked. They come last. Absent
    /// when reranking is off.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "given"
    )]
    #[schema(value_type = Option<f64>)]
    pub rerank_score: Option<Option<f64>>,
}

/// Scores of a semantic search.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SemanticScores {
    /// L2 distance; lower is better.
    pub semantic_distance: f64,
    /// Always null. Only a hybrid search has ranks.
    #[schema(required)]
    pub semantic_rank: Option<i64>,
    /// Score of reranking, 0 to 1; higher is better. Null in results that were not reranked. They come last. Absent
    /// when reranking is off.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "given"
    )]
    #[schema(value_type = Option<f64>)]
    pub rerank_score: Option<Option<f64>>,
}

/// Reads a member that may be null. `None` stands for an absent one.
fn given<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Option<f64>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}

/// Scores of a hybrid search. All six keys are always present.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct HybridScores {
    /// The fused score; higher is better. With `rrf` it is the sum of `1 / (k + rank)` over the ranks that are not
    /// null. With `convex` it is 0 to 1.
    pub rrf: f64,
    /// Rank among the full-text results, from 1; null if the entry is not among them, or if the rank does not count
    /// in `rrf`.
    #[schema(required)]
    pub fts_rank: Option<i64>,
    /// Rank among the semantic results, from 1; null if the entry is not among them, or if the rank does not count
    /// in `rrf`.
    #[schema(required)]
    pub semantic_rank: Option<i64>,
    /// BM25; higher is better.
    #[schema(required)]
    pub fts_score: Option<f64>,
    /// L2 distance; lower is better.
    #[schema(required)]
    pub semantic_distance: Option<f64>,
    /// Score of reranking, 0 to 1; higher is better. Null in results that were not reranked. They come last.
    #[schema(required)]
    pub rerank_score: Option<f64>,
}

/// How a query ran.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct QueryStats {
    /// Time that the service took, in milliseconds.
    pub execution_time_ms: f64,
    /// Number of filters in the request. Each metadata condition counts as one.
    pub filters_applied: i64,
    /// Number of results in this reply.
    pub rows_returned: i64,
    /// The database: `sqlite` or `postgresql`.
    pub backend: String,
    /// The database's query plan of the main statement, one item for each line.
    pub query_plan: Vec<String>,
    /// Number of newest matches that a ranked search ranked; absent if it ranked all matches.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ranking_cap: Option<i64>,
}

/// The results of a search by filters.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct SearchContextReply {
    /// The entries, newest first.
    pub results: Vec<SearchHit>,
    /// Number of entries in `results`.
    pub count: i64,
    /// Whether more entries follow this page. How many is not counted.
    pub has_more: bool,
    /// How the query ran; absent unless `explain_query` is true.
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
    #[schema(value_type = FtsModeOrLater)]
    pub mode: String,
    /// FTS_LANGUAGE; on SQLite `unstemmed` if words of that language are not stemmed.
    pub language: String,
    /// Whether full-text search works.
    pub fts_available: bool,
    /// The entries, best first.
    pub results: Vec<SearchHit>,
    /// Number of entries in `results`.
    pub count: i64,
    /// Whether more entries follow this page. How many is not counted.
    pub has_more: bool,
    /// How the query ran; absent unless `explain_query` is true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stats: Option<QueryStats>,
    /// What limits the results, such as a cap on ranking; absent if nothing does.
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
    /// Number of entries in `results`.
    pub count: i64,
    /// Whether more entries follow this page. How many is not counted.
    pub has_more: bool,
    /// How the query ran; absent unless `explain_query` is true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stats: Option<QueryStats>,
    /// What limits the results, such as that none is clearly relevant; absent if nothing does.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// The owner's revision that this reply shows.
    pub revision: i64,
}

/// The results of a hybrid search.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct HybridSearchContextReply {
    /// The query as given.
    pub query: String,
    /// How the results were fused.
    #[schema(value_type = FusionMethodOrLater)]
    pub fusion_method: String,
    /// The searches whose results were fused.
    #[schema(value_type = Vec<SearchModeOrLater>)]
    pub search_modes_used: Vec<String>,
    /// Number of candidates from the full-text search.
    pub fts_count: i64,
    /// Number of candidates from the semantic search.
    pub semantic_count: i64,
    /// The entries and artifacts, best first.
    pub results: Vec<HybridHit>,
    /// Number of elements of `results`.
    pub count: i64,
    /// Whether more results follow this page. How many is not counted.
    pub has_more: bool,
    /// How the query ran; absent unless `explain_query` is true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stats: Option<QueryStats>,
    /// What limits the results, such as a search that could not run, or that none is clearly relevant; absent if
    /// nothing does.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// The owner's revision that this reply shows.
    pub revision: i64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{decode, decode_slice};
    use serde_json::json;

    #[test]
    fn filters_stand_beside_the_other_parameters_in_json() {
        let text = r#"{"query":"q","rrf_k":7,"limit":5,"thread_id":"t","tags":["a"],"metadata":{"n":1.0},"min_revision":3}"#;
        let request: HybridSearchContextRequest = decode_slice(text.as_bytes()).unwrap();
        let expected = HybridSearchContextRequest {
            query: "q".into(),
            rrf_k: Some(7),
            limit: Some(5),
            filters: FilterInput {
                thread_id: Some("t".into()),
                tags: Some(vec!["a".into()]),
                metadata: json!({"n": 1.0}).as_object().cloned(),
                ..FilterInput::default()
            },
            min_revision: Some(3),
            ..HybridSearchContextRequest::default()
        };
        assert_eq!(request, expected);
        assert_eq!(serde_json::to_string(&request).unwrap(), text);
        assert_eq!(
            decode::<SearchContextRequest>(json!({"limit": null, "tags": null})).unwrap(),
            SearchContextRequest::default()
        );
    }

    #[test]
    fn a_null_rerank_score_is_not_an_absent_one() {
        for text in [
            r#"{"fts_score":1.5,"fts_rank":null}"#,
            r#"{"fts_score":1.5,"fts_rank":null,"rerank_score":null}"#,
            r#"{"fts_score":1.5,"fts_rank":null,"rerank_score":0.5}"#,
            r#"{"semantic_distance":0.5,"semantic_rank":null}"#,
            r#"{"semantic_distance":0.5,"semantic_rank":null,"rerank_score":null}"#,
            r#"{"semantic_distance":0.5,"semantic_rank":null,"rerank_score":0.5}"#,
        ] {
            let scores: Scores = serde_json::from_str(text).unwrap();
            assert_eq!(serde_json::to_string(&scores).unwrap(), text);
        }
    }

    #[test]
    fn what_does_not_fit_is_named_by_its_path() {
        let refused = |value| {
            let error = decode::<FtsSearchContextRequest>(value).unwrap_err();
            (error.violations[0].field.clone(), error.message)
        };
        assert_eq!(
            refused(json!({"query": "q", "tags": ["a", 1]})),
            (
                "tags[1]".to_owned(),
                "`tags[1]` must be a string".to_owned()
            )
        );
        assert_eq!(
            refused(json!({"metadata_filters": [{"key": "a", "op": "eq"}]})).0,
            "metadata_filters[0].op"
        );
        assert_eq!(
            refused(json!({"query": null})).1,
            "`query` must be a string"
        );
        assert_eq!(
            refused(json!({"thread": "t"})).1,
            "`thread` is not a parameter; did you mean `thread_id`?"
        );
        assert_eq!(
            refused(json!({"x": 1})).1,
            "`x` is not a parameter; allowed: `query`, `mode`, `highlight`, `limit`, `offset`, `thread_id`, `source`, `tags`, \
             `content_type`, `metadata`, `metadata_filters`, `start_date`, `end_date`, `include_images`, `explain_query`, \
             `min_revision`"
        );
        assert_eq!(refused(json!(1)).1, "`arguments` must be an object");
        let twice = decode_slice::<SearchContextRequest>(br#"{"tags":[],"limit":1,"tags":[]}"#);
        assert_eq!(twice.unwrap_err().message, "`tags` is given more than once");
    }
}
