use context_engine::{Caller, Engine};
use context_model::{FtsSearchContextRequest, HybridSearchContextRequest, SearchHit, SemanticSearchContextRequest};

use crate::Error;

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

impl Way {
    /// Whether it does nothing without an embedding model.
    pub fn needs_model(self) -> bool {
        matches!(self, Self::Semantic | Self::Hybrid | Self::HybridConvex)
    }
}

/// The results of a query, best first.
///
/// # Errors
/// The engine's.
pub async fn ask(engine: &Engine, way: Way, query: &str, thread_id: Option<String>) -> Result<Vec<SearchHit>, Error> {
    let (caller, query, limit) = (Caller::local(), query.to_owned(), Some(LIMIT));
    let found = match way {
        Way::Fts => {
            let request = FtsSearchContextRequest { query, thread_id, limit, ..FtsSearchContextRequest::default() };
            engine.fts_search_context(&caller, request).await.map(|reply| reply.results)
        }
        Way::Semantic => {
            let request = SemanticSearchContextRequest { query, thread_id, limit, ..SemanticSearchContextRequest::default() };
            engine.semantic_search_context(&caller, request).await.map(|reply| reply.results)
        }
        Way::HybridWords | Way::Hybrid | Way::HybridConvex => {
            let fusion_method = (way == Way::HybridConvex).then(|| "convex".to_owned());
            let search_modes = (way == Way::HybridWords).then(|| vec!["fts".to_owned()]);
            let request = HybridSearchContextRequest {
                query,
                thread_id,
                limit,
                fusion_method,
                search_modes,
                ..HybridSearchContextRequest::default()
            };
            engine.hybrid_search_context(&caller, request).await.map(|reply| reply.results)
        }
    };
    found.map_err(|error| error.message.into())
}
