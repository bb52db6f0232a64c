//! Warnings of searches about the state of the service. They are the same for every query until the state changes.

/// What ran when a hybrid search left out full-text search.
pub const ONLY_SEMANTIC_RAN: &str = "only semantic search ran";
/// What ran when a hybrid search left out semantic search.
pub const ONLY_FULL_TEXT_RAN: &str = "only full-text search ran";
/// How the warning begins when reranking is on and failed. The cause follows.
pub const NOT_RERANKED: &str = "results are not reranked";

/// Whether a warning is about the state of the service. Any other is about the results of one query.
#[must_use]
pub fn is_about_service(warning: &str) -> bool {
    warning.starts_with(NOT_RERANKED)
        || warning.ends_with(ONLY_SEMANTIC_RAN)
        || warning.ends_with(ONLY_FULL_TEXT_RAN)
}
