use context_model::{
    FtsSearchContextRequest, HybridSearchContextRequest, SemanticSearchContextRequest,
};

/// Results that are looked at.
const LIMIT: i64 = 20;

/// A way of searching.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// By an entry's own words.
    Fts,
    /// By its words and those of its neighbours.
    HybridWords,
    /// By meaning.
    Semantic,
    /// By both, reciprocal ranks added.
    Hybrid,
    /// By both, scores added.
    HybridConvex,
}

/// A question as a request.
#[derive(Debug)]
pub enum Request {
    /// `fts_search_context`.
    Fts(FtsSearchContextRequest),
    /// `semantic_search_context`.
    Semantic(SemanticSearchContextRequest),
    /// `hybrid_search_context`.
    Hybrid(HybridSearchContextRequest),
}

impl Way {
    /// Whether it does nothing without an embedding model.
    pub fn needs_model(self) -> bool {
        matches!(self, Self::Semantic | Self::Hybrid | Self::HybridConvex)
    }

    /// What to ask.
    pub fn request(self, query: &str, thread_id: Option<String>) -> Request {
        let (query, limit) = (query.to_owned(), Some(LIMIT));
        match self {
            Self::Fts => Request::Fts(FtsSearchContextRequest {
                query,
                thread_id,
                limit,
                ..FtsSearchContextRequest::default()
            }),
            Self::Semantic => Request::Semantic(SemanticSearchContextRequest {
                query,
                thread_id,
                limit,
                ..SemanticSearchContextRequest::default()
            }),
            Self::HybridWords | Self::Hybrid | Self::HybridConvex => {
                Request::Hybrid(HybridSearchContextRequest {
                    query,
                    thread_id,
                    limit,
                    fusion_method: (self == Self::HybridConvex).then(|| "convex".to_owned()),
                    search_modes: (self == Self::HybridWords).then(|| vec!["fts".to_owned()]),
                    ..HybridSearchContextRequest::default()
                })
            }
        }
    }
}
