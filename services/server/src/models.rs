//! Which embedding model this installation uses, found from its settings and its files.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use context_engine::{Engine, Switch};
use context_providers::Embedder;
use context_providers::http::{Access, Dialect, HttpEmbedder, RemoteModel};
use context_providers::local::{ChunkWish, LocalEmbedder, ModelDirectory, Prefixes};
use tokio::task::AbortHandle;

use crate::config::{Config, EmbeddingProvider, Secret, Url};

/// The model that is looked for in the cache when none is configured.
pub const DEFAULT_MODEL: &str = "all-MiniLM-L6-v2";

/// How long to wait before a provider that did not answer is asked again, doubled each time, and the most.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// Where embeddings come from.
#[derive(Debug, Clone)]
pub enum Choice {
    /// From nowhere, for this reason.
    Off(String),
    /// From a model in this directory, inside the service.
    Local(ModelDirectory),
    /// From a provider over HTTP.
    Remote(Box<(Access, RemoteModel)>),
}

/// Where models are kept between starts: `$XDG_CACHE_HOME/context-service/models`, or below `~/.cache`.
#[must_use]
pub fn cache_directory() -> PathBuf {
    let cache = std::env::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .filter(|path| path.is_absolute());
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
        EmbeddingProvider::Ollama => remote(config, Dialect::Ollama),
        EmbeddingProvider::Openai => remote(config, Dialect::OpenAi),
        EmbeddingProvider::Azure => remote(config, Dialect::Azure),
        EmbeddingProvider::Tei => remote(config, Dialect::Tei),
        EmbeddingProvider::Voyage => remote(config, Dialect::Voyage),
        EmbeddingProvider::Cohere => remote(config, Dialect::Cohere),
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
                let wants_ollama = models.ollama_host.is_some()
                    || name.is_some()
                    || config.search.enable_semantic_search == Switch::True;
                if directory.is_complete() {
                    Ok(Choice::Local(directory))
                } else if wants_ollama && models.embedding_provider == EmbeddingProvider::Auto {
                    remote(config, Dialect::Ollama)
                } else {
                    off(
                        "there is no embedding model: run `context-service fetch-model`, set EMBEDDING_MODEL_PATH to a directory with \
                         one, or set EMBEDDING_PROVIDER to ollama or another provider",
                    )
                }
            }
        },
    }?;
    match &choice {
        Choice::Off(reason) => demanded(config, reason).map(|()| choice),
        Choice::Local(_) | Choice::Remote(_) => Ok(choice),
    }
}

/// A provider over HTTP with these settings.
fn remote(config: &Config, dialect: Dialect) -> Result<Choice, String> {
    let models = &config.models;
    let provider = dialect.name();
    let of_ollama = models
        .ollama_host
        .as_ref()
        .filter(|_| dialect == Dialect::Ollama);
    let url = models
        .embedding_url
        .as_ref()
        .or(of_ollama)
        .map(Url::as_str)
        .or(dialect.default_url());
    let url = url
        .ok_or_else(|| format!("EMBEDDING_PROVIDER is `{provider}`, which needs EMBEDDING_URL"))?;
    let name = models
        .embedding_model
        .as_deref()
        .or(dialect.default_model());
    let name = name.ok_or_else(|| {
        format!("EMBEDDING_PROVIDER is `{provider}`, which needs EMBEDDING_MODEL")
    })?;
    let access = access(
        url,
        models.embedding_api_key.as_ref(),
        Duration::from_secs(models.embedding_timeout_seconds),
    );
    let dimensions = models
        .embedding_dim
        .and_then(|dimensions| u32::try_from(dimensions).ok());
    let remote = RemoteModel {
        dialect,
        name: name.to_owned(),
        dimensions,
        prefixes: prefixes(config),
        wish: wish(config),
    };
    Ok(Choice::Remote(Box::new((access, remote))))
}

/// A provider's address, key and timeout, as settings have them.
pub fn access(url: &str, key: Option<&Secret>, timeout: Duration) -> Access {
    // Ollama's own tools take the host alone.
    let url = if url.contains("://") {
        url.to_owned()
    } else {
        format!("http://{url}")
    };
    Access {
        url,
        key: key.map(|key| context_providers::http::Secret::new(key.reveal())),
        patience: timeout,
    }
}

/// The flags with which another process of this user chooses the same.
#[must_use]
pub fn flags(config: &Config, choice: &Choice) -> Vec<String> {
    let models = &config.models;
    let mut flags = vec![format!(
        "--embedding-timeout-seconds={}",
        models.embedding_timeout_seconds
    )];
    let mut push = |name: &str, value: Option<String>| {
        flags.extend(value.map(|value| format!("--{name}={value}")))
    };
    push(
        "embedding-query-prefix",
        models.embedding_query_prefix.clone(),
    );
    push(
        "embedding-document-prefix",
        models.embedding_document_prefix.clone(),
    );
    push("chunk-size", models.chunk_size.map(|size| size.to_string()));
    push(
        "chunk-overlap",
        models.chunk_overlap.map(|overlap| overlap.to_string()),
    );
    match choice {
        Choice::Off(_) => push("embedding-provider", Some("none".to_owned())),
        Choice::Local(directory) => {
            push("embedding-provider", Some("local".to_owned()));
            push(
                "embedding-model-path",
                Some(directory.path().display().to_string()),
            );
            push("embedding-model", Some(directory.name().to_owned()));
        }
        Choice::Remote(remote) => {
            let (access, model) = &**remote;
            push("embedding-provider", Some(model.dialect.name().to_owned()));
            push("embedding-url", Some(access.url.clone()));
            push("embedding-model", Some(model.name.clone()));
            push(
                "embedding-dim",
                model.dimensions.map(|dimensions| dimensions.to_string()),
            );
            push(
                "embedding-api-key",
                models
                    .embedding_api_key
                    .as_ref()
                    .map(|key| key.reveal().to_owned()),
            );
        }
    }
    flags
}

fn prefixes(config: &Config) -> Prefixes {
    Prefixes {
        query: config
            .models
            .embedding_query_prefix
            .clone()
            .unwrap_or_default(),
        document: config
            .models
            .embedding_document_prefix
            .clone()
            .unwrap_or_default(),
    }
}

fn wish(config: &Config) -> ChunkWish {
    let tokens = |given: Option<u64>| given.and_then(|tokens| usize::try_from(tokens).ok());
    ChunkWish {
        size: tokens(config.models.chunk_size),
        overlap: tokens(config.models.chunk_overlap),
    }
}

/// Checks that nothing that needs an embedding model was asked for outright.
fn demanded(config: &Config, reason: &str) -> Result<(), String> {
    let search = &config.search;
    let need = |setting: &str| {
        Err(format!(
            "{setting}, which needs an embedding model, but {reason}"
        ))
    };
    if search.enable_semantic_search == Switch::True {
        need("ENABLE_SEMANTIC_SEARCH is true")
    } else if search.enable_hybrid_search == Switch::True && search.enable_fts == Switch::False {
        need("ENABLE_HYBRID_SEARCH is true and ENABLE_FTS is false")
    } else if config.models.embedding_provider == EmbeddingProvider::Local {
        need("EMBEDDING_PROVIDER is `local`")
    } else {
        Ok(())
    }
}

/// Loads or reaches what was chosen; `Ok(Err(reason))` when that is nothing.
///
/// # Errors
/// A sentence that says what is wrong.
pub async fn load(
    choice: Choice,
    config: &Config,
) -> Result<Result<Arc<dyn Embedder>, String>, String> {
    match choice {
        Choice::Off(reason) => Ok(Err(reason)),
        Choice::Local(directory) => {
            let (prefixes, wish) = (prefixes(config), wish(config));
            let loading = tokio::task::spawn_blocking(move || {
                LocalEmbedder::load(&directory, prefixes, wish)
            });
            let loaded = loading
                .await
                .map_err(|error| format!("the embedding model cannot be loaded: {error}"))?;
            loaded
                .map(|embedder| Ok(Arc::new(embedder) as Arc<dyn Embedder>))
                .map_err(|error| error.to_string())
        }
        Choice::Remote(remote) => {
            let (access, model) = *remote;
            let provider = model.dialect.name();
            let connected = HttpEmbedder::connect(&access, model).await;
            connected
                .map(|embedder| Ok(Arc::new(embedder) as Arc<dyn Embedder>))
                .map_err(|error| format!("{provider}: {error}"))
        }
    }
}

/// Gives the engine its embedding model. One that cannot be used leaves semantic search off, and the log and the statistics say
/// why. A provider that does not answer is asked again in the background, by the returned task, and never keeps the
/// service from starting.
///
/// # Errors
/// A sentence for whoever started the service.
pub async fn install(engine: &Arc<Engine>, config: &Config) -> Result<Option<AbortHandle>, String> {
    let choice = match choose(config)? {
        Choice::Remote(remote) => {
            let engine = Arc::clone(engine);
            engine.retrieval.awaiting_embedder(format!(
                "the embedding provider {} has not answered yet",
                remote.1.dialect.name()
            ));
            return Ok(Some(
                tokio::spawn(async move { reach(&engine, &remote.0, &remote.1).await })
                    .abort_handle(),
            ));
        }
        choice => choice,
    };
    let reason = match load(choice, config).await {
        Ok(Ok(embedder)) => match adopt(engine, embedder).await {
            Ok(()) => return Ok(None),
            Err(reason) => reason,
        },
        Ok(Err(reason)) => {
            engine.retrieval.without_embedder(reason);
            return Ok(None);
        }
        Err(reason) => reason,
    };
    if config.search.enable_semantic_search == Switch::True {
        return Err(format!("ENABLE_SEMANTIC_SEARCH is true, but {reason}"));
    }
    tracing::warn!("Search by meaning is off: {reason}");
    engine.retrieval.without_embedder(reason);
    Ok(None)
}

async fn adopt(engine: &Engine, embedder: Arc<dyn Embedder>) -> Result<(), String> {
    let model = embedder.model().clone();
    engine
        .retrieval
        .use_embedder(embedder)
        .await
        .map_err(|error| error.message)?;
    if let Some(reason) = engine.retrieval.why_no_semantic_search() {
        return Err(reason);
    }
    tracing::info!(
        model = model.identity(),
        dimensions = model.dimensions,
        provider = model.provider,
        "Embeds with `{}`",
        model.name
    );
    if let Some(reason) = engine.retrieval.why_no_stored_tokens() {
        tracing::warn!("RERANK_STORE_TOKENS has no effect: {reason}");
    }
    Ok(())
}

/// Asks the provider until it answers or refuses for good.
async fn reach(engine: &Engine, access: &Access, model: &RemoteModel) {
    let provider = model.dialect.name();
    let mut pause = FIRST_PAUSE;
    loop {
        let reason = match HttpEmbedder::connect(access, model.clone()).await {
            Ok(embedder) => match adopt(engine, Arc::new(embedder)).await {
                Ok(()) => return,
                Err(reason) => {
                    tracing::warn!("Search by meaning is off: {reason}");
                    return engine.retrieval.without_embedder(reason);
                }
            },
            Err(error) => error.to_string(),
        };
        tracing::warn!("Search by meaning waits for {provider}: {reason}");
        engine
            .retrieval
            .awaiting_embedder(format!("{provider}: {reason}"));
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}
