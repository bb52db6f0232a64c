//! Chooses the embedding model from the settings and the model files.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use backon::{BackoffBuilder as _, ExponentialBuilder};
use context_engine::{Engine, Switch};
use context_model::{Error, Secret};
use context_providers::Embedder;
use context_providers::fetch::{ALL_MINILM_L6_V2, Fetchable};
use context_providers::http::{Access, Dialect, HttpEmbedder, RemoteModel};
use context_providers::local::{ChunkSettings, LocalEmbedder, ModelDirectory, Prefixes};
use tokio::task::AbortHandle;

use crate::config::{
    Config, EmbeddingProvider, Settings, Source, Url, ollama_address, with_scheme,
};

/// The model in the cache that is used if none is configured and `fetch-model` chose none.
pub const DEFAULT_MODEL: &str = ALL_MINILM_L6_V2.name;

/// The dimensions of every model that `fetch-model` downloads.
const DIMENSIONS: u64 = 384;

/// The file in the cache with the name of the model that was fetched last.
const CHOSEN: &str = "chosen";

/// The first and the longest pause before an unavailable provider is tried again. The pause doubles
/// each time.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const MAX_PAUSE: Duration = Duration::from_secs(60);

/// The source of embeddings.
#[derive(Debug, Clone)]
pub enum Choice {
    /// None, for this reason.
    Off(String),
    /// A model in this directory, run inside the service.
    Local(ModelDirectory),
    /// A provider over HTTP.
    Remote(Box<(Access, RemoteModel)>),
}

/// The directory of downloaded models: `$XDG_CACHE_HOME/context-service/models`, or below
/// `~/.cache`.
#[must_use]
pub fn cache_directory() -> PathBuf {
    let cache = std::env::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .filter(|path| path.is_absolute());
    let cache = cache.unwrap_or_else(|| context_model::local::expand_home("~/.cache"));
    cache.join("context-service").join("models")
}

/// Makes services that start from now on use this model of the cache, unless their settings name another one.
///
/// # Errors
/// The file cannot be written.
pub fn choose_fetched(cache: &Path, model: &Fetchable) -> std::io::Result<()> {
    // A partial name would select the default model. Several processes may do this at once, each with its own draft.
    let draft = cache.join(format!("{CHOSEN}.{}", std::process::id()));
    let written = File::create(&draft)
        .and_then(|mut file| {
            file.write_all(model.name.as_bytes())?;
            file.sync_all()
        })
        .and_then(|()| std::fs::rename(&draft, cache.join(CHOSEN)));
    if written.is_err() {
        let _ = std::fs::remove_file(&draft);
    }
    written
}

/// The directory of the model that was fetched last, or of the default one.
fn last_fetched(cache: &Path) -> PathBuf {
    let chosen = std::fs::read_to_string(cache.join(CHOSEN)).unwrap_or_default();
    let model = Fetchable::named(chosen.trim()).unwrap_or(ALL_MINILM_L6_V2);
    cache.join(model.name)
}

/// The downloaded model that these settings select, with this directory of downloaded models. It may be missing.
fn downloaded(config: &Config, cache: &Path) -> PathBuf {
    let name = config.models.embedding_model.as_deref();
    let named = name.and_then(Fetchable::named);
    named.map_or_else(|| last_fetched(cache), |model| cache.join(model.name))
}

/// The settings that take precedence over a downloaded model with EMBEDDING_PROVIDER=auto: they mean a model of Ollama.
fn settings_of_ollama(config: &Config) -> Vec<&'static str> {
    let models = &config.models;
    let (name, dimensions) = (models.embedding_model.as_deref(), models.embedding_dim);
    [
        ("OLLAMA_HOST", models.ollama_host.is_some()),
        (
            "EMBEDDING_MODEL",
            name.is_some_and(|name| Fetchable::named(name).is_none()),
        ),
        (
            "EMBEDDING_DIM",
            dimensions.is_some_and(|dimensions| dimensions != DIMENSIONS),
        ),
    ]
    .into_iter()
    .filter_map(|(setting, is_given)| is_given.then_some(setting))
    .collect()
}

/// Chooses the source of embeddings for these settings.
///
/// # Errors
/// A sentence to print at start: a setting requires something that is missing.
pub fn choose(config: &Config) -> Result<Choice, String> {
    choose_with(config, &cache_directory())
}

/// Like [`choose`], with this directory of downloaded models.
fn choose_with(config: &Config, cache: &Path) -> Result<Choice, String> {
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
                let is_auto = models.embedding_provider == EmbeddingProvider::Auto;
                // With `auto`, a name that `fetch-model` does not know means a model of Ollama. With `local`, the name
                // is given to the model in the cache.
                let directory =
                    ModelDirectory::new(downloaded(config, cache), name.filter(|_| !is_auto));
                let is_downloaded = directory.is_complete();
                let names_ollama = !settings_of_ollama(config).is_empty();
                let needs_model =
                    name.is_some() || config.search.enable_semantic_search == Switch::True;
                if is_auto && (names_ollama || needs_model && !is_downloaded) {
                    remote(config, Dialect::Ollama)
                } else if is_downloaded {
                    Ok(Choice::Local(directory))
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
        Choice::Off(reason) => check_not_required(config, reason).map(|()| choice),
        Choice::Local(_) | Choice::Remote(_) => Ok(choice),
    }
}

/// A warning if a downloaded model is not used, because a setting names another one.
pub fn unused_download(config: &Config, choice: &Choice) -> Option<String> {
    unused_download_in(config, choice, &cache_directory())
}

fn unused_download_in(config: &Config, choice: &Choice, cache: &Path) -> Option<String> {
    let directory = ModelDirectory::new(downloaded(config, cache), None);
    let is_unused = matches!(choice, Choice::Remote(_))
        && config.models.embedding_provider == EmbeddingProvider::Auto
        && directory.is_complete();
    is_unused.then(|| {
        format!(
            "the downloaded model `{}` is not used, because of {}; without these settings it is used",
            directory.name(),
            settings_of_ollama(config).join(" and ")
        )
    })
}

/// A warning if there is no model, and `fetch-model` could not download one.
pub fn unwritable_cache(config: &Config) -> Option<String> {
    let models = &config.models;
    let would_download = models.embedding_model_path.is_none()
        && matches!(
            models.embedding_provider,
            EmbeddingProvider::Auto | EmbeddingProvider::Local
        )
        && config.search.enable_semantic_search != Switch::False;
    let cache = cache_directory();
    let existing = cache.ancestors().find(|path| path.exists())?;
    let access = rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK;
    let error = rustix::fs::access(existing, access).err()?;
    would_download.then(|| {
        format!(
            "`context-service fetch-model` cannot write to {}: {error}; make {} writable, or set XDG_CACHE_HOME",
            cache.display(),
            existing.display()
        )
    })
}

/// Adds values that were found on this machine to the settings.
#[must_use]
pub fn with_found(config: &Config, mut settings: Settings) -> Settings {
    if let Ok(Choice::Local(directory)) = choose(config) {
        let path = directory.path().display().to_string();
        settings.found("EMBEDDING_MODEL_PATH", path, Source::Cache);
    }
    let socket = config.socket().display().to_string();
    settings.found("CONTEXT_SOCKET", socket, Source::Default);
    settings
}

/// The HTTP provider of these settings.
fn remote(config: &Config, dialect: Dialect) -> Result<Choice, String> {
    let models = &config.models;
    let provider = dialect.name();
    let of_ollama = models
        .ollama_host
        .as_ref()
        .filter(|_| dialect == Dialect::Ollama)
        .map(|host| ollama_address(host.as_str()));
    let url = models
        .embedding_url
        .as_ref()
        .map(Url::as_str)
        .or(of_ollama.as_deref())
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
        chunks: chunk_settings(config),
    };
    Ok(Choice::Remote(Box::new((access, remote))))
}

/// URL, key and timeout of a provider.
pub fn access(url: &str, key: Option<&Secret>, timeout: Duration) -> Access {
    Access {
        url: with_scheme(url),
        key: key.cloned(),
        timeout,
    }
}

/// The name of a provider in messages.
fn provider_at(access: &Access) -> String {
    format!("the embedding provider at {}", access.address())
}

/// The flags with which another process of this user makes the same choice.
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

/// The prefixes for a provider over HTTP.
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

/// The chunk sizes of these settings.
pub fn chunk_settings(config: &Config) -> ChunkSettings {
    let tokens = |given: Option<u64>| given.and_then(|tokens| usize::try_from(tokens).ok());
    ChunkSettings {
        size: tokens(config.models.chunk_size),
        overlap: tokens(config.models.chunk_overlap),
    }
}

/// Warnings if CHUNK_SIZE is larger than the model's window, and if CHUNK_OVERLAP is larger than half a chunk. A
/// provider over HTTP does not say how large its window is.
pub fn chunk_warnings(chunks: ChunkSettings, embedder: &dyn Embedder) -> Vec<String> {
    let used = embedder.chunk_sizes();
    let size = chunks.size.filter(|wanted| *wanted > used.target);
    let size = size.map(|wanted| {
        format!(
            "CHUNK_SIZE is {wanted} tokens, but the model `{}` reads at most {size}, so chunks have {size} tokens \
             (mcp-context-server counts characters)",
            embedder.model().name,
            size = used.target
        )
    });
    let overlap = chunks.overlap.filter(|wanted| *wanted > used.overlap);
    let overlap = overlap.map(|wanted| {
        format!(
            "CHUNK_OVERLAP is {wanted} tokens, but it must be 0 to {overlap}, half of a chunk of {} tokens, so chunks \
             share {overlap} tokens",
            used.target,
            overlap = used.overlap
        )
    });
    size.into_iter().chain(overlap).collect()
}

fn log_chunk_warnings(chunks: ChunkSettings, embedder: &dyn Embedder) {
    for warning in chunk_warnings(chunks, embedder) {
        tracing::warn!("{warning}");
    }
}

/// Checks that no setting requires an embedding model.
fn check_not_required(config: &Config, reason: &str) -> Result<(), String> {
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

/// Loads the model or connects to the provider; `Ok(Err(reason))` if embeddings are off.
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
            let (models, chunks) = (config.models.clone(), chunk_settings(config));
            let loading = tokio::task::spawn_blocking(move || {
                let of_model = directory.prefixes()?;
                let prefixes = Prefixes {
                    query: models.embedding_query_prefix.unwrap_or(of_model.query),
                    document: models
                        .embedding_document_prefix
                        .unwrap_or(of_model.document),
                };
                LocalEmbedder::load(&directory, prefixes, chunks)
            });
            let loaded = loading
                .await
                .map_err(|error| format!("the embedding model cannot be loaded: {error}"))?;
            loaded
                .map(|embedder| Ok(Arc::new(embedder) as Arc<dyn Embedder>))
                .map_err(|error| error.to_string())
        }
        Choice::Remote(remote) => connect(*remote).await.map(Ok),
    }
}

/// Connects to a provider over HTTP.
///
/// # Errors
/// A sentence that says what is wrong.
async fn connect((access, model): (Access, RemoteModel)) -> Result<Arc<dyn Embedder>, String> {
    match HttpEmbedder::connect(&access, model).await {
        Ok(embedder) => Ok(Arc::new(embedder)),
        Err(error) => Err(error.sentence(&provider_at(&access))),
    }
}

/// Gives the engine its embedding model. If the model is unusable, semantic search stays off, and the log
/// and the statistics say why. The returned task retries an unavailable provider or database in the background;
/// the service starts without waiting for it.
///
/// # Errors
/// A sentence to print at start.
pub async fn install(engine: &Arc<Engine>, config: &Config) -> Result<Option<AbortHandle>, String> {
    let choice = choose(config)?;
    if let Some(warning) = unused_download(config, &choice) {
        tracing::info!("{warning}");
    }
    let choice = match choice {
        Choice::Remote(remote) => {
            engine
                .retrieval
                .trying_embedder(format!("{} has not responded yet", provider_at(&remote.0)));
            let chunks = chunk_settings(config);
            return Ok(Some(in_background(engine, move || {
                let connecting = connect((*remote).clone());
                async move {
                    let connected = connecting.await;
                    connected.inspect(|embedder| log_chunk_warnings(chunks, &**embedder))
                }
            })));
        }
        choice => choice,
    };
    let reason = match load(choice, config).await {
        Ok(Ok(embedder)) => {
            log_chunk_warnings(chunk_settings(config), &*embedder);
            match adopt(engine, Arc::clone(&embedder)).await {
                Ok(Ok(())) => return Ok(None),
                Ok(Err(reason)) => reason,
                Err(error) => {
                    engine.retrieval.awaiting_embedder(unregistered(&error));
                    let again = move || std::future::ready(Ok(Arc::clone(&embedder)));
                    return Ok(Some(in_background(engine, again)));
                }
            }
        }
        Ok(Err(reason)) => {
            engine.retrieval.without_embedder(reason);
            return Ok(None);
        }
        Err(reason) => reason,
    };
    if config.search.enable_semantic_search == Switch::True {
        return Err(format!("ENABLE_SEMANTIC_SEARCH is true, but {reason}"));
    }
    tracing::warn!("Semantic search is off: {reason}");
    engine.retrieval.without_embedder(reason);
    Ok(None)
}

/// Gives the engine this model; `Ok(Err(reason))` if it cannot be used with this database.
///
/// # Errors
/// The store's errors. A later attempt may succeed.
pub async fn adopt(
    engine: &Engine,
    embedder: Arc<dyn Embedder>,
) -> Result<Result<(), String>, Error> {
    let model = embedder.model().clone();
    engine.retrieval.use_embedder(embedder).await?;
    if let Some(reason) = engine.retrieval.why_no_semantic_search() {
        return Ok(Err(reason));
    }
    tracing::info!(
        model = model.identity(),
        dimensions = model.dimensions,
        provider = model.provider,
        "Semantic search uses model `{}`",
        model.name
    );
    if let Some(reason) = engine.retrieval.why_no_stored_tokens() {
        tracing::warn!("RERANK_STORE_TOKENS has no effect: {reason}");
    }
    Ok(Ok(()))
}

fn unregistered(error: &Error) -> String {
    format!(
        "the model is not registered in the database yet: {}",
        error.message
    )
}

/// Runs [`reach`] as a task of its own.
fn in_background<F>(
    engine: &Arc<Engine>,
    connect: impl Fn() -> F + Send + Sync + 'static,
) -> AbortHandle
where
    F: Future<Output = Result<Arc<dyn Embedder>, String>> + Send,
{
    let engine = Arc::clone(engine);
    tokio::spawn(async move { reach(&engine, connect).await }).abort_handle()
}

/// Connects to the provider, and retries until it responds and the database registers its model. If the database has
/// vectors of another model, semantic search stays off until `context-service reembed` or the next start.
async fn reach<F>(engine: &Engine, connect: impl Fn() -> F)
where
    F: Future<Output = Result<Arc<dyn Embedder>, String>>,
{
    let mut pauses = ExponentialBuilder::new()
        .with_min_delay(FIRST_PAUSE)
        .with_max_delay(MAX_PAUSE)
        .without_max_times()
        .build();
    loop {
        let connected = connect().await;
        // Meanwhile `context-service reembed` may have switched to another model, which stays in use.
        if engine.retrieval.why_no_semantic_search().is_none() {
            return;
        }
        let reason = match connected {
            Ok(embedder) => match adopt(engine, embedder).await {
                Ok(Ok(())) => return,
                Ok(Err(reason)) => {
                    tracing::warn!("Semantic search is off: {reason}");
                    return engine.retrieval.without_embedder(reason);
                }
                Err(error) => unregistered(&error),
            },
            Err(reason) => reason,
        };
        tracing::warn!("Semantic search is not available yet: {reason}");
        engine.retrieval.awaiting_embedder(reason);
        tokio::time::sleep(pauses.next().unwrap_or(MAX_PAUSE)).await;
    }
}

#[cfg(test)]
mod tests {
    use context_engine::SystemClock;

    use super::*;
    use crate::cli::Cli;
    use crate::config;

    /// A directory of downloaded models with an empty model.
    fn cache() -> tempfile::TempDir {
        let cache = tempfile::tempdir().expect("a temporary directory");
        add(cache.path(), DEFAULT_MODEL);
        cache
    }

    fn add(cache: &Path, model: &str) {
        let model = cache.join(model);
        std::fs::create_dir(&model).expect("a directory");
        for file in ["config.json", "tokenizer.json", "model.safetensors"] {
            std::fs::write(model.join(file), "").expect("a file");
        }
    }

    /// The choice for these flags: `off`, the name of the model inside the service, or provider and model.
    fn chosen(flags: &[&str], cache: &Path) -> String {
        let arguments = ["context-service"].iter().chain(flags).map(Into::into);
        let cli: Cli = config::read(arguments, &|_| None).expect("settings that can be read");
        match choose_with(&cli.config, cache).unwrap_or_else(|error| panic!("{flags:?}: {error}")) {
            Choice::Off(_) => "off".to_owned(),
            Choice::Local(directory) => directory.name().to_owned(),
            Choice::Remote(remote) => {
                format!("{} {}", remote.1.dialect.name(), remote.1.name)
            }
        }
    }

    #[test]
    fn settings_of_ollama_win_over_a_downloaded_model() {
        let (cache, empty) = (cache(), tempfile::tempdir().expect("a temporary directory"));
        let default = "ollama embeddinggemma:latest";
        for (flags, with_model, without) in [
            (&[] as &[&str], DEFAULT_MODEL, "off"),
            (&["--ollama-host=http://h:11434"], default, default),
            (&["--embedding-model=m"], "ollama m", "ollama m"),
            (&["--embedding-dim=768"], default, default),
            (&["--embedding-dim=384"], DEFAULT_MODEL, "off"),
            (
                &["--embedding-model=all-MiniLM-L6-v2"],
                DEFAULT_MODEL,
                "ollama all-MiniLM-L6-v2",
            ),
            (&["--enable-semantic-search=true"], DEFAULT_MODEL, default),
            (
                &["--enable-semantic-search=false", "--embedding-model=m"],
                "off",
                "off",
            ),
            (
                &["--embedding-provider=none", "--embedding-model=m"],
                "off",
                "off",
            ),
        ] {
            assert_eq!(chosen(flags, cache.path()), with_model, "{flags:?}");
            assert_eq!(chosen(flags, empty.path()), without, "{flags:?}");
        }
        let local = ["--embedding-provider=local", "--embedding-model=mine"];
        assert_eq!(chosen(&local, cache.path()), "mine");
    }

    #[test]
    fn a_host_of_ollama_without_scheme_and_port_has_the_port_of_ollama() {
        for (given, address) in [
            ("gpu", "http://gpu:11434"),
            ("gpu/ollama", "http://gpu:11434/ollama"),
            ("user:word@gpu", "http://user:word@gpu:11434"),
            ("[::1]", "http://[::1]:11434"),
            ("gpu:1", "http://gpu:1"),
            (":1/ollama", "http://localhost:1/ollama"),
            ("[::1]:1", "http://[::1]:1"),
            ("http://gpu", "http://gpu"),
            ("https://gpu:1/ollama", "https://gpu:1/ollama"),
        ] {
            let found = access(&ollama_address(given), None, Duration::ZERO);
            assert_eq!(found.url, address, "{given}");
        }
    }

    /// `context-service reembed` switches to another model during an attempt to reach the configured provider.
    #[tokio::test]
    async fn attempts_to_reach_a_provider_end_when_another_model_is_in_use() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let database = directory.path().join("contexts.db");
        let database = format!("--db-path={}", database.display());
        let arguments = ["context-service", database.as_str()].map(Into::into);
        let cli: Cli = config::read(arguments, &|_| None).expect("settings that can be read");
        let store = crate::open::try_open(&cli.config).await.expect("a store");
        let engine = Engine::new(Arc::new(store), cli.config.engine(), Arc::new(SystemClock))
            .expect("an engine");
        let model = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../bert/tests/reference/cross-encoder"
        );
        let model = ModelDirectory::new(model, None);
        let loaded = LocalEmbedder::load(&model, Prefixes::default(), ChunkSettings::default());
        let other: Arc<dyn Embedder> = Arc::new(loaded.expect("a model"));
        let attempt = || async {
            let switched = engine.retrieval.use_embedder(Arc::clone(&other)).await;
            switched.expect("a switch");
            Err("the provider does not respond".to_owned())
        };
        tokio::time::timeout(MAX_PAUSE, reach(&engine, attempt))
            .await
            .expect("the attempts end");
        assert_eq!(engine.retrieval.why_no_semantic_search(), None);
        engine.close().await;
    }

    #[test]
    fn a_downloaded_model_that_is_not_used_is_named_with_the_settings_that_win() {
        let (cache, empty) = (cache(), tempfile::tempdir().expect("a temporary directory"));
        let warning = |flags: &[&str], cache: &Path| {
            let arguments = ["context-service"].iter().chain(flags).map(Into::into);
            let cli: Cli = config::read(arguments, &|_| None).expect("settings that can be read");
            let choice = choose_with(&cli.config, cache).expect("a choice");
            unused_download_in(&cli.config, &choice, cache)
        };
        let flags = ["--ollama-host=http://h:11434", "--embedding-dim=768"];
        let named = warning(&flags, cache.path()).expect("a warning");
        assert!(
            named.contains("because of OLLAMA_HOST and EMBEDDING_DIM;"),
            "{named}"
        );
        assert_eq!(warning(&flags, empty.path()), None);
        assert_eq!(warning(&[], cache.path()), None);

        let e5 = Fetchable::named("multilingual-e5-small").expect("a model");
        add(empty.path(), e5.name);
        choose_fetched(empty.path(), &e5).expect("written");
        let flags = ["--ollama-host=http://h:11434", "--embedding-dim=384"];
        let named = warning(&flags, empty.path()).expect("a warning");
        let sentence =
            "the downloaded model `multilingual-e5-small` is not used, because of OLLAMA_HOST; ";
        assert!(named.starts_with(sentence), "{named}");
        assert_eq!(
            warning(&["--embedding-provider=ollama"], cache.path()),
            None
        );
    }

    #[test]
    fn the_model_that_was_fetched_last_is_used_unless_another_is_named() {
        let (bge, e5) = ("bge-small-en-v1.5", "multilingual-e5-small");
        let cache = cache();
        add(cache.path(), e5);
        assert_eq!(chosen(&[], cache.path()), DEFAULT_MODEL);
        let fetched = Fetchable::named(e5).expect("a model");
        choose_fetched(cache.path(), &fetched).expect("written");
        for (flags, expected) in [
            (&[] as &[&str], e5),
            (&["--embedding-model=all-MiniLM-L6-v2"], DEFAULT_MODEL),
            (&["--embedding-model=multilingual-e5-small"], e5),
            (
                &["--embedding-provider=local", "--embedding-model=mine"],
                "mine",
            ),
            (
                &["--embedding-model=bge-small-en-v1.5"],
                "ollama bge-small-en-v1.5",
            ),
            (&["--embedding-model=other"], "ollama other"),
        ] {
            assert_eq!(chosen(flags, cache.path()), expected, "{flags:?}");
        }
        add(cache.path(), bge);
        let flags = [
            "--embedding-provider=local",
            "--embedding-model=bge-small-en-v1.5",
        ];
        assert_eq!(chosen(&flags, cache.path()), bge);
    }

    #[test]
    fn the_name_of_the_fetched_model_is_replaced_as_a_whole() {
        let cache = tempfile::tempdir().expect("a temporary directory");
        let (chosen, old) = (cache.path().join(CHOSEN), cache.path().join("old"));
        let named = |name| Fetchable::named(name).expect("a model");
        choose_fetched(cache.path(), &named(DEFAULT_MODEL)).expect("written");
        // Another link to the file still has what was in it, unless it was overwritten in place.
        std::fs::hard_link(&chosen, &old).expect("a link");
        choose_fetched(cache.path(), &named("bge-small-en-v1.5")).expect("written");
        let read = |path| std::fs::read_to_string(path).expect("a file");
        assert_eq!(
            [read(chosen), read(old)],
            ["bge-small-en-v1.5", DEFAULT_MODEL]
        );
        let files = std::fs::read_dir(cache.path()).expect("a directory");
        assert_eq!(files.count(), 2, "no draft remains");
    }
}
