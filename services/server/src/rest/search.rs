//! REST handlers for the searches.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use context_model::{
    FtsSearchContextReply, FtsSearchContextRequest, HybridSearchContextReply,
    HybridSearchContextRequest, Operation, SearchContextReply, SearchContextRequest,
    SemanticSearchContextReply, SemanticSearchContextRequest,
};
use http::StatusCode;

use super::body::{JsonBody, json};
use crate::app::App;
use crate::problem::Problem;
use crate::request_context::RequestContext;
use crate::transport::Transport;

/// Search by filters
///
/// Returns the entries that satisfy every filter, newest first.
#[utoipa::path(
    post,
    path = "/v1/contexts/search",
    operation_id = "search_context",
    tag = "search",
    request_body(
        content = SearchContextRequest,
        example = json!({"thread_id": "project-123", "tags": ["database"],
            "metadata_filters": [{"key": "priority", "operator": "gte", "value": 2}], "limit": 10})
    ),
    responses((status = 200, description = "The entries found", body = SearchContextReply))
)]
pub async fn search_context(
    ctx: RequestContext,
    State(app): State<Arc<App>>,
    JsonBody(request): JsonBody<SearchContextRequest>,
) -> Result<Response, Problem> {
    let work = app.engine.retrieval.search_context(ctx.caller(), request);
    let reply = app
        .call(&ctx, Operation::SearchContext, Transport::Rest, None, work)
        .await?;
    json(&ctx, StatusCode::OK, reply).await
}

/// Semantic search
///
/// Returns the entries whose embeddings are nearest to the query's, best first. Returns 409 if no
/// embedding model is configured.
#[utoipa::path(
    post,
    path = "/v1/contexts/search/semantic",
    operation_id = "semantic_search_context",
    tag = "search",
    request_body(content = SemanticSearchContextRequest, example = json!({"query": "which database did we choose?", "limit": 5})),
    responses((status = 200, description = "The entries found", body = SemanticSearchContextReply))
)]
pub async fn semantic_search_context(
    ctx: RequestContext,
    State(app): State<Arc<App>>,
    JsonBody(request): JsonBody<SemanticSearchContextRequest>,
) -> Result<Response, Problem> {
    let work = app
        .engine
        .retrieval
        .semantic_search_context(ctx.caller(), request);
    let reply = app
        .call(
            &ctx,
            Operation::SemanticSearchContext,
            Transport::Rest,
            None,
            work,
        )
        .await?;
    json(&ctx, StatusCode::OK, reply).await
}

/// Full-text search
///
/// Returns the entries that match the query's words, best first. Those that were reranked come first, ordered by
/// `rerank_score`.
#[utoipa::path(
    post,
    path = "/v1/contexts/search/fts",
    operation_id = "fts_search_context",
    tag = "search",
    request_body(content = FtsSearchContextRequest, example = json!({"query": "billing database", "mode": "match", "highlight": true})),
    responses((status = 200, description = "The entries found", body = FtsSearchContextReply))
)]
pub async fn fts_search_context(
    ctx: RequestContext,
    State(app): State<Arc<App>>,
    JsonBody(request): JsonBody<FtsSearchContextRequest>,
) -> Result<Response, Problem> {
    let work = app
        .engine
        .retrieval
        .fts_search_context(ctx.caller(), request);
    let reply = app
        .call(
            &ctx,
            Operation::FtsSearchContext,
            Transport::Rest,
            None,
            work,
        )
        .await?;
    json(&ctx, StatusCode::OK, reply).await
}

/// Hybrid search
///
/// Fuses the results of full-text and semantic search, by rank or by score. If one of the two is not available,
/// `warnings` says so, and the results are those of the other.
#[utoipa::path(
    post,
    path = "/v1/contexts/search/hybrid",
    operation_id = "hybrid_search_context",
    tag = "search",
    request_body(content = HybridSearchContextRequest, example = json!({"query": "which database did we choose?", "limit": 5})),
    responses((status = 200, description = "The entries found", body = HybridSearchContextReply))
)]
pub async fn hybrid_search_context(
    ctx: RequestContext,
    State(app): State<Arc<App>>,
    JsonBody(request): JsonBody<HybridSearchContextRequest>,
) -> Result<Response, Problem> {
    let work = app
        .engine
        .retrieval
        .hybrid_search_context(ctx.caller(), request);
    let reply = app
        .call(
            &ctx,
            Operation::HybridSearchContext,
            Transport::Rest,
            None,
            work,
        )
        .await?;
    json(&ctx, StatusCode::OK, reply).await
}
