//! Which models this installation uses, found from its settings and its files.

use std::path::PathBuf;
use std::sync::Arc;

use context_engine::{Engine, Switch};
use context_providers::Embedder;
use context_providers::local::{ChunkWish, LocalEmbedder, ModelDirectory, Prefixes};

use crate::config::{Config, EmbeddingProvider};

/// The model that is looked for in the cache when none is configured.
pub const DEFAULT_MODEL: &str = "all-MiniLM-L6-v2";

/// Where embeddings come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Choice {
    /// From nowhere, for this reason.
    Off(String),
    /// From a model in this directory, inside the service.
    Local(ModelDirectory),
}

/// Where models are kept between starts: `$XDG_CACHE_HOME/context-service/models`, or below `~/.cache`.
#[must_use]
pub fn cache_directory() -> PathBuf {
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let cache = cache.unwrap_or_else(|| context_model::local::expand_home("~/.cache"));
    cache.join("context-service").join("models")
}

/// Where embeddings come from with these settings.
///
/// # Errors
/// A sentence for whoever started the service: a setting that asks for what is not there.
pub fn choose(config: &Config) -> Result<Choice, String> {
    let models = &config.models;
    let off = |reason: &str| Ok(Choice::Off(reason.to_owned()));
    if config.search.enable_semantic_search == Switch::False {
        return off("switched off by ENABLE_SEMANTIC_SEARCH=false");
    }
    let name = models.embedding_model.as_deref();
    let choice = match models.embedding_provider {
        EmbeddingProvider::None => off("switched off by EMBEDDING_PROVIDER=none"),
        EmbeddingProvider::Auto | EmbeddingProvider::Local => match &models.embedding_model_path {
            Some(path) => {
                let directory = ModelDirectory::new(context_model::local::absolute(path), name);
                if !directory.is_complete() {
                    return Err(format!(
                        "EMBEDDING_MODEL_PATH is {}, which does not hold a model (config.json, tokenizer.json, model.safetensors)",
                        directory.path().display()
                    ));
                }
                Ok(Choice::Local(directory))
            }
            None => {
                let directory = ModelDirectory::new(cache_directory().join(DEFAULT_MODEL), None);
                if directory.is_complete() {
                    Ok(Choice::Local(directory))
                } else {
                    Ok(Choice::Off(format!(
                        "there is no embedding model: set EMBEDDING_MODEL_PATH to a directory with one, or put {DEFAULT_MODEL} into {}",
                        directory.path().display()
                    )))
                }
            }
        },
    }?;
    match &choice {
        Choice::Off(reason) => demanded(config, reason).map(|()| choice),
        Choice::Local(_) => Ok(choice),
    }
}

/// Checks that nothing that needs an embedding model was asked for outright.
fn demanded(config: &Config, reason: &str) -> Result<(), String> {
    let search = &config.search;
    let need = |setting: &str| Err(format!("{setting}, which needs an embedding model, but {reason}"));
    if search.enable_semantic_search == Switch::True {
        need("ENABLE_SEMANTIC_SEARCH is true")
    } else if search.enable_reranking == Switch::True {
        need("ENABLE_RERANKING is true")
    } else if search.enable_hybrid_search == Switch::True && search.enable_fts == Switch::False {
        need("ENABLE_HYBRID_SEARCH is true and ENABLE_FTS is false")
    } else if config.models.embedding_provider == EmbeddingProvider::Local {
        need("EMBEDDING_PROVIDER is `local`")
    } else {
        Ok(())
    }
}

/// Loads what was chosen.
///
/// # Errors
/// A sentence that names the directory or file and what is wrong with it.
pub async fn load(choice: Choice, config: &Config) -> Result<Result<Arc<dyn Embedder>, String>, String> {
    match choice {
        Choice::Off(reason) => Ok(Err(reason)),
        Choice::Local(directory) => {
            let prefixes = Prefixes {
                query: config.models.embedding_query_prefix.clone().unwrap_or_default(),
                document: config.models.embedding_document_prefix.clone().unwrap_or_default(),
            };
            let tokens = |given: Option<u64>| given.and_then(|tokens| usize::try_from(tokens).ok());
            let wish = ChunkWish { size: tokens(config.models.chunk_size), overlap: tokens(config.models.chunk_overlap) };
            let loading = tokio::task::spawn_blocking(move || LocalEmbedder::load(&directory, prefixes, wish));
            let loaded = loading.await.map_err(|error| format!("the embedding model cannot be loaded: {error}"))?;
            loaded.map(|embedder| Ok(Arc::new(embedder) as Arc<dyn Embedder>)).map_err(|error| error.to_string())
        }
    }
}

/// Gives the engine its models. One that cannot be used leaves search by meaning off, and the log and the statistics say
/// why; it never keeps the service from starting.
///
/// # Errors
/// A sentence for whoever started the service.
pub async fn install(engine: &Engine, config: &Config) -> Result<(), String> {
    let reason = match load(choose(config)?, config).await {
        Ok(Ok(embedder)) => {
            let model = embedder.model().clone();
            match engine.use_embedder(embedder).await {
                Ok(()) => {
                    tracing::info!(
                        model = model.identity(),
                        dimensions = model.dimensions,
                        provider = model.provider,
                        "Embeds with `{}`",
                        model.name
                    );
                    return Ok(());
                }
                Err(error) => error.message,
            }
        }
        Ok(Err(reason)) => {
            engine.without_embedder(reason);
            return Ok(());
        }
        Err(reason) => reason,
    };
    if config.search.enable_semantic_search == Switch::True {
        return Err(format!("ENABLE_SEMANTIC_SEARCH=true, but {reason}"));
    }
    tracing::warn!("Search by meaning is off: {reason}");
    engine.without_embedder(reason);
    Ok(())
}
