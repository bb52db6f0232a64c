//! The search methods that are compared, and the request that each sends for a question.

use context_model::{
    FilterInput, FtsSearchContextRequest, HybridSearchContextRequest, SemanticSearchContextRequest,
};

/// Number of results of each search that are evaluated.
const LIMIT: i64 = 20;

/// A search method.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// Full-text search.
    Fts,
    /// Hybrid search without embeddings: an entry's own words and its context keywords.
    HybridWords,
    /// Semantic search.
    Semantic,
    /// Both, fused by reciprocal ranks.
    Hybrid,
    /// Both, fused by scores.
    HybridConvex,
}

/// A search request for a question.
#[derive(Debug)]
pub enum Request {
    /// `fts_search_context`.
    Fts(FtsSearchContextRequest),
    /// `semantic_search_context`.
    Semantic(SemanticSearchContextRequest),
    /// `hybrid_search_context`.
    Hybrid(HybridSearchContextRequest),
}

impl Request {
    /// The same request with `explain_query`.
    #[must_use]
    pub fn explained(mut self) -> Self {
        let explain = match &mut self {
            Self::Fts(request) => &mut request.explain_query,
            Self::Semantic(request) => &mut request.explain_query,
            Self::Hybrid(request) => &mut request.explain_query,
        };
        *explain = Some(true);
        self
    }
}

impl Method {
    /// Whether the method requires an embedding model.
    pub fn needs_model(self) -> bool {
        matches!(self, Self::Semantic | Self::Hybrid | Self::HybridConvex)
    }

    /// The request for a question.
    pub fn request(self, query: &str, thread_id: Option<String>) -> Request {
        let (query, limit) = (query.to_owned(), Some(LIMIT));
        let filters = FilterInput {
            thread_id,
            ..FilterInput::default()
        };
        match self {
            Self::Fts => Request::Fts(FtsSearchContextRequest {
                query,
                filters,
                limit,
                ..FtsSearchContextRequest::default()
            }),
            Self::Semantic => Request::Semantic(SemanticSearchContextRequest {
                query,
                filters,
                limit,
                ..SemanticSearchContextRequest::default()
            }),
            Self::HybridWords | Self::Hybrid | Self::HybridConvex => {
                Request::Hybrid(HybridSearchContextRequest {
                    query,
                    filters,
                    limit,
                    fusion_method: (self == Self::HybridConvex).then(|| "convex".to_owned()),
                    search_modes: (self == Self::HybridWords).then(|| vec!["fts".to_owned()]),
                    ..HybridSearchContextRequest::default()
                })
            }
        }
    }
}
