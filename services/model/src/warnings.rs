//! Search warnings about the state of the service. They are the same for every query until the state changes.

/// The end of the warning when a hybrid search ran without full-text search.
pub const ONLY_SEMANTIC_RAN: &str = "only semantic search ran";
/// The end of the warning when a hybrid search ran without semantic search.
pub const ONLY_FULL_TEXT_RAN: &str = "only full-text search ran";
/// The start of the warning when reranking is on and failed. The cause follows.
pub const NOT_RERANKED: &str = "results are not reranked";

/// Whether a warning is about the state of the service. Other warnings are about the results of one query.
#[must_use]
pub fn is_about_service(warning: &str) -> bool {
    warning.starts_with(NOT_RERANKED)
        || warning.ends_with(ONLY_SEMANTIC_RAN)
        || warning.ends_with(ONLY_FULL_TEXT_RAN)
}
