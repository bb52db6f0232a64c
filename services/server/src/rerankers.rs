//! Who reranks, found from the settings.

use std::sync::Arc;
use std::time::Duration;

use context_engine::{Engine, Switch};
use context_providers::Reranker;
use context_providers::http::{HttpReranker, RerankDialect};
use context_providers::local::{LocalReranker, ModelDirectory};

use crate::config::{Config, RerankProvider, Url};
use crate::models::{self, access};

/// Who reranks.
#[derive(Debug)]
pub enum Choice {
    /// Nobody, for this reason.
    Off(String),
    /// The embedding model, by late interaction.
    LateInteraction,
    /// A cross-encoder in this directory, inside the service.
    Local(ModelDirectory),
    /// A provider over HTTP.
    Remote(Arc<HttpReranker>),
}

/// Who reranks with these settings.
///
/// # Errors
/// A sentence for whoever started the service: a setting that is missing or cannot be used, or reranking that is demanded and
/// that nobody could do.
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

/// Reranking without a model of its own, where the embedding model can do it.
fn late_interaction(config: &Config) -> Result<Choice, String> {
    let search = &config.search;
    if let Some(url) = &search.rerank_url {
        // Whoever set it expects that texts are sent there, and without the provider's name nobody knows in which form.
        return Err(format!(
            "RERANK_URL is {url:?}, but RERANK_PROVIDER does not say what answers there: tei, cohere, jina or voyage"
        ));
    }
    let reason = match models::choose(config)? {
        models::Choice::Local(_) => return Ok(Choice::LateInteraction),
        models::Choice::Off(reason) => reason,
        models::Choice::Remote(remote) => {
            format!(
                "the embedding provider {} gives no vectors of tokens, so that its model cannot rerank",
                remote.1.dialect.name()
            )
        }
    };
    if search.enable_reranking == Switch::True {
        return Err(format!(
            "ENABLE_RERANKING is true, which needs RERANK_PROVIDER, RERANK_MODEL_PATH or an embedding model inside the service, but {reason}"
        ));
    }
    Ok(Choice::Off(reason))
}

/// A provider over HTTP with these settings.
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
    // No search waits longer.
    let timeout = Duration::from_millis(search.rerank_timeout_ms);
    let access = access(url, search.rerank_api_key.as_ref(), timeout);
    HttpReranker::new(&access, dialect, model)
        .map_err(|error| format!("reranking by {provider}: {error}"))
}

/// Loads what was chosen; `None` when nobody but the embedding model reranks. Asks nobody.
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

/// Gives the engine its reranker. One over HTTP is asked for the first time by a search, which goes without it while it does
/// not answer.
///
/// # Errors
/// As [`choose`] and [`load`].
pub async fn install(engine: &Engine, config: &Config) -> Result<(), String> {
    if let Some(reranker) = load(choose(config)?).await? {
        tracing::info!(
            provider = reranker.provider(),
            "Reranks with `{}`",
            reranker.model()
        );
        engine.retrieval.use_reranker(reranker);
    }
    Ok(())
}
