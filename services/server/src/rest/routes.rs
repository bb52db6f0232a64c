//! The REST routes that the OpenAPI document lists.

use std::sync::Arc;

use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::{artifacts, changes, contexts, health, keys, overview, search, versions};
use crate::app::App;

/// The routes together with their documentation.
pub fn documented() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new()
        .routes(routes!(
            contexts::store_context,
            contexts::get_context_by_ids
        ))
        .routes(routes!(
            contexts::store_context_batch,
            contexts::update_context_batch
        ))
        .routes(routes!(contexts::delete_context))
        .routes(routes!(contexts::delete_context_batch))
        .routes(routes!(
            contexts::get_context,
            contexts::update_context,
            contexts::delete_context_by_id
        ))
        .routes(routes!(search::search_context))
        .routes(routes!(search::semantic_search_context))
        .routes(routes!(search::fts_search_context))
        .routes(routes!(search::hybrid_search_context))
        .routes(routes!(overview::list_threads))
        .routes(routes!(overview::get_thread))
        .routes(routes!(overview::list_tags))
        .routes(routes!(overview::list_metadata_keys))
        .routes(routes!(overview::list_metadata_values))
        .routes(routes!(overview::list_days))
        .routes(routes!(overview::get_statistics))
        .routes(routes!(
            artifacts::create_artifact,
            artifacts::list_artifacts
        ))
        .routes(routes!(artifacts::search_artifacts))
        .routes(routes!(artifacts::get_artifact_by_path))
        .routes(routes!(artifacts::move_artifacts))
        .routes(routes!(artifacts::delete_artifacts))
        .routes(routes!(
            artifacts::get_artifact,
            artifacts::update_artifact,
            artifacts::delete_artifact
        ))
        .routes(routes!(versions::list_artifact_versions))
        .routes(routes!(versions::get_artifact_version))
        .routes(routes!(versions::restore_artifact_version))
        .routes(routes!(versions::diff_artifact_versions))
        .routes(routes!(changes::changes_since))
        .routes(routes!(changes::watch))
        .routes(routes!(keys::create_api_key, keys::list_api_keys))
        .routes(routes!(keys::get_api_key, keys::update_api_key))
        .routes(routes!(keys::deactivate_api_key))
        .routes(routes!(health::healthz))
        .routes(routes!(health::readyz))
        .routes(routes!(health::metrics))
}
