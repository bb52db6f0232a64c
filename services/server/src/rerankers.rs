//! Chooses the reranker from the settings.

use std::sync::Arc;
use std::time::Duration;

use context_engine::{Engine, Switch};
use context_providers::Reranker;
use context_providers::http::{HttpReranker, RerankDialect};
use context_providers::local::{LocalReranker, ModelDirectory};

use crate::config::{Config, RerankProvider, Url};
use crate::models::{self, access};

/// The choice of reranker.
#[derive(Debug)]
pub enum Choice {
    /// None, for this reason.
    Off(String),
    /// The embedding model, by late interaction.
    LateInteraction,
    /// A cross-encoder in this directory, run inside the service.
    Local(ModelDirectory),
    /// A provider over HTTP.
    Remote(Arc<HttpReranker>),
}

/// Chooses the reranker for these settings.
///
/// # Errors
/// A sentence to print at start: a setting is missing or unusable.
pub fn choose(config: &Config) -> Result<Choice, String> {
    let search = &config.search;
    if search.enable_reranking == Switch::False {
        return Ok(Choice::Off(
            "switched off by ENABLE_RERANKING=false".to_owned(),
        ));
    }
    let dialect = match (search.rerank_provider, &search.rerank_model_path) {
        (RerankProvider::Auto | RerankProvider::Local, Some(path)) => {
            let path = context_model::local::absolute(path);
            return Ok(Choice::Local(ModelDirectory::new(
                path,
                search.rerank_model.as_deref(),
            )));
        }
        (RerankProvider::Local, None) => {
            return Err("RERANK_PROVIDER is `local`, which needs RERANK_MODEL_PATH".to_owned());
        }
        (RerankProvider::Auto, None) => return late_interaction(config),
        (RerankProvider::Tei, _) => RerankDialect::Tei,
        (RerankProvider::Cohere, _) => RerankDialect::Cohere,
        (RerankProvider::Jina, _) => RerankDialect::Jina,
        (RerankProvider::Voyage, _) => RerankDialect::Voyage,
    };
    remote(config, dialect).map(|reranker| Choice::Remote(Arc::new(reranker)))
}

/// Reranking with the embedding model, if that supports it.
fn late_interaction(config: &Config) -> Result<Choice, String> {
    let search = &config.search;
    if let Some(url) = &search.rerank_url {
        // The URL alone does not say which API it offers, and ignoring it without an error would
        // surprise the user.
        return Err(format!(
            "RERANK_URL is {url:?}, but RERANK_PROVIDER does not say which API it offers: tei, cohere, jina or voyage"
        ));
    }
    let reason = match models::choose(config)? {
        models::Choice::Local(_) => return Ok(Choice::LateInteraction),
        models::Choice::Off(reason) => reason,
        models::Choice::Remote(remote) => {
            format!(
                "the embedding provider {} returns no token vectors, so its model cannot rerank",
                remote.1.dialect.name()
            )
        }
    };
    Ok(Choice::Off(reason))
}

/// A warning if reranking is required but impossible. `true` is the documented default of mcp-context-server, which
/// also starts without a model.
pub fn warning(config: &Config, choice: &Choice) -> Option<String> {
    match choice {
        Choice::Off(reason) if config.search.enable_reranking == Switch::True => Some(format!(
            "ENABLE_RERANKING is true, which needs RERANK_PROVIDER, RERANK_MODEL_PATH or an embedding model inside the service, but {reason}"
        )),
        Choice::Off(_) | Choice::LateInteraction | Choice::Local(_) | Choice::Remote(_) => None,
    }
}

/// The HTTP provider of these settings.
fn remote(config: &Config, dialect: RerankDialect) -> Result<HttpReranker, String> {
    let search = &config.search;
    let provider = dialect.name();
    let needs = |setting: &str| format!("RERANK_PROVIDER is `{provider}`, which needs {setting}");
    let url = search
        .rerank_url
        .as_ref()
        .map(Url::as_str)
        .or(dialect.default_url())
        .ok_or_else(|| needs("RERANK_URL"))?;
    let model = search
        .rerank_model
        .as_deref()
        .or(dialect.default_model())
        .ok_or_else(|| needs("RERANK_MODEL"))?;
    if search.rerank_url.is_none() && search.rerank_api_key.is_none() {
        return Err(needs("RERANK_API_KEY"));
    }
    // A search does not wait longer than this.
    let timeout = Duration::from_millis(search.rerank_timeout_ms);
    let access = access(url, search.rerank_api_key.as_ref(), timeout);
    HttpReranker::new(&access, dialect, model)
        .map_err(|error| format!("reranking by {provider}: {error}"))
}

/// Loads the reranker; `None` if there is none besides the embedding model. Does not contact a
/// provider.
///
/// # Errors
/// A sentence that says what is wrong.
pub async fn load(choice: Choice) -> Result<Option<Arc<dyn Reranker>>, String> {
    match choice {
        Choice::Off(_) | Choice::LateInteraction => Ok(None),
        Choice::Remote(reranker) => Ok(Some(reranker)),
        Choice::Local(directory) => {
            let loading =
                tokio::task::spawn_blocking(move || LocalReranker::load(&directory)).await;
            let reranker = loading.map_err(|error| format!("RERANK_MODEL_PATH: {error}"))?;
            Ok(Some(Arc::new(
                reranker.map_err(|error| format!("RERANK_MODEL_PATH: {error}"))?,
            )))
        }
    }
}

/// Gives the engine its reranker. An HTTP provider is not contacted before the first search; while it
/// is unavailable, searches skip reranking.
///
/// # Errors
/// As [`choose`] and [`load`].
pub async fn install(engine: &Engine, config: &Config) -> Result<(), String> {
    let choice = choose(config)?;
    if let Some(warning) = warning(config, &choice) {
        tracing::warn!("{warning}; results are not reranked");
    }
    if let Some(reranker) = load(choice).await? {
        tracing::info!(
            provider = reranker.provider(),
            "Reranking uses model `{}`",
            reranker.model()
        );
        engine.retrieval.use_reranker(reranker);
    }
    Ok(())
}
