//! `context-service doctor`: checks, line by line, whether this installation can work.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use context_engine::{Engine, SystemClock};
use context_providers::{Embedder, Summarizer as _};
use context_store::Store;
use context_store_sqlite::{OpenError, SqliteStore};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, UnixStream};

use crate::admin::post_json;
use crate::check_settings::check_settings;
use crate::config::{Backend, Config, Predecessor};
use crate::languages;
use crate::models;
use crate::rerankers::{self, Choice};
use crate::summaries;

/// With less free space than this, the disk counts as full.
const MIN_FREE_BYTES: u64 = 100 * 1024 * 1024;

/// How long a summary may take.
const SUMMARY_TIMEOUT: Duration = Duration::from_secs(30);

/// Maximum number of bytes that are read of a reply.
const MAX_REPLY_BYTES: u64 = 256 * 1024;

/// The outcome of the checks.
#[derive(Debug)]
pub struct Examination {
    /// A line for each check: `✔`, `!` (a warning) or `✘`, what was checked, and what to do.
    pub report: String,
    /// Whether every check passed.
    pub healthy: bool,
}

impl Examination {
    fn line(&mut self, passed: bool, subject: &str, finding: impl std::fmt::Display) {
        self.healthy &= passed;
        let _ = writeln!(
            self.report,
            "{} {subject:<10} {finding}",
            if passed { '✔' } else { '✘' }
        );
    }

    /// Adds a line about something that works, but perhaps not as the user expects.
    fn warning(&mut self, subject: &str, finding: impl std::fmt::Display) {
        let _ = writeln!(self.report, "! {subject:<10} {finding}");
    }
}

/// Checks this installation. A SQLite file that a service uses is not opened. Otherwise the database is opened: a
/// missing file is created, and an older schema is migrated. On SQLite the full-text index is also rebuilt if it was
/// built with other settings.
pub async fn examine(config: &Config, predecessor: &Predecessor) -> Examination {
    let mut found = Examination {
        report: String::new(),
        healthy: true,
    };
    match check_settings(config).and_then(|()| predecessor.check(config)) {
        Ok(()) => found.line(true, "settings", "are consistent"),
        Err(sentence) => found.line(false, "settings", sentence),
    }
    for warning in predecessor.warnings() {
        found.warning("settings", warning);
    }
    if let Some(sentence) = predecessor.not_needed() {
        found.line(true, "settings", sentence);
    }
    let is_running = service(config, &mut found).await;
    certificates(&mut found);
    let embedder = embeddings(config, &mut found).await;
    if is_running && embedder.is_some() {
        unused_model(&config.socket(), &mut found).await;
    }
    reranking(config, &mut found).await;
    summarizing(config, &mut found).await;
    match config.storage.storage_backend {
        Backend::Sqlite => {
            sqlite_database(config, is_running, embedder, &mut found).await;
            disk(&config.storage.db_path, &mut found);
        }
        Backend::Postgresql => postgres_database(config, &mut found).await,
    }
    if !is_running {
        ports(config, &mut found).await;
    }
    found
}

/// Checks over its socket that the service of this database is running and ready.
///
/// # Errors
/// A sentence that says what is wrong.
pub async fn ready(config: &Config) -> Result<(), String> {
    let socket = config.socket();
    match tokio::time::timeout(Duration::from_secs(3), get(&socket, "/readyz")).await {
        Ok(Ok((200, _))) => Ok(()),
        Ok(Ok((status, body))) => Err(format!(
            "the service is not ready (status {status}){}",
            why(&body)
        )),
        Ok(Err(error)) => Err(format!(
            "the service cannot be reached on {}: {error}",
            socket.display()
        )),
        Err(_) => Err("the service did not respond within three seconds".into()),
    }
}

/// Checks the running service over its socket; returns whether there is one.
async fn service(config: &Config, found: &mut Examination) -> bool {
    let socket = config.socket();
    let shown = socket.display();
    match tokio::time::timeout(Duration::from_secs(3), get(&socket, "/readyz")).await {
        Ok(Ok((200, _))) => {
            found.line(
                true,
                "service",
                format_args!("responds on {shown} and is ready"),
            );
            refused_rows(&socket, found).await;
            true
        }
        Ok(Ok((status, body))) => {
            found.line(
                false,
                "service",
                format_args!(
                    "responds on {shown}, but is not ready (status {status}){}",
                    why(&body)
                ),
            );
            refused_rows(&socket, found).await;
            true
        }
        Ok(Err(error))
            if matches!(
                error.kind(),
                std::io::ErrorKind::NotFound | std::io::ErrorKind::ConnectionRefused
            ) =>
        {
            found.line(
                true,
                "service",
                format_args!("is not running; its socket would be {shown}"),
            );
            false
        }
        Ok(Err(error)) => {
            found.line(
                false,
                "service",
                format_args!("cannot be reached on {shown}: {error}"),
            );
            false
        }
        Err(_) => {
            found.line(
                false,
                "service",
                format_args!("did not respond on {shown} within three seconds"),
            );
            true
        }
    }
}

/// The reason that the service gives for not being ready.
fn why(body: &str) -> String {
    let problem: Option<serde_json::Value> = serde_json::from_str(body).ok();
    let detail = problem
        .as_ref()
        .and_then(|problem| problem.get("detail"))
        .and_then(serde_json::Value::as_str);
    detail.map_or_else(
        || "; see its log".to_owned(),
        |detail| format!(": {detail}"),
    )
}

/// Reports whether the running service refused damaged rows.
async fn refused_rows(socket: &Path, found: &mut Examination) {
    let Ok(Ok((200, metrics))) =
        tokio::time::timeout(Duration::from_secs(3), get(socket, "/metrics")).await
    else {
        return;
    };
    let rows = metrics
        .lines()
        .find_map(|line| line.strip_prefix("context_damaged_rows_refused "))
        .unwrap_or("0");
    if rows != "0" {
        let advice = "damaged rows were refused since the service started; `context-service verify` lists all damage";
        found.line(false, "content", format_args!("{rows} {advice}"));
    }
}

/// Reports why the running service has no semantic search, although these settings have a working model. With
/// authentication on, nothing is reported, because the request has no key.
async fn unused_model(socket: &Path, found: &mut Examination) {
    let statistics = get(socket, "/v1/statistics");
    let Ok(Ok((200, body))) = tokio::time::timeout(Duration::from_secs(3), statistics).await else {
        return;
    };
    let statistics: serde_json::Value = serde_json::from_str(&body).unwrap_or_default();
    let status = &statistics["semantic_search"];
    if let (Some(false), Some(reason)) = (status["available"].as_bool(), status["reason"].as_str())
    {
        found.line(
            false,
            "embeddings",
            format_args!("the running service has no semantic search: {reason}"),
        );
    }
}

/// Reports a system without certificates, such as a small container image.
fn certificates(found: &mut Examination) {
    if !context_http::trusts_certificates() {
        found.warning(
            "https",
            "this system trusts no certificate, so no https address can be reached; install the package ca-certificates, \
             or set SSL_CERT_FILE",
        );
    }
}

/// Status and body of a reply, cut to [`MAX_REPLY_BYTES`].
async fn get(socket: &Path, path: &str) -> std::io::Result<(u16, String)> {
    let mut stream = UnixStream::connect(socket).await?;
    stream
        .write_all(
            format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
                .as_bytes(),
        )
        .await?;
    let mut reply = Vec::new();
    stream.take(MAX_REPLY_BYTES).read_to_end(&mut reply).await?;
    let reply = String::from_utf8_lossy(&reply);
    let (head, body) = reply.split_once("\r\n\r\n").unwrap_or((&reply, ""));
    let status = head.get(9..12).and_then(|status| status.parse().ok());
    let status = status.ok_or_else(|| {
        std::io::Error::new(
            std::io::ErrorKind::InvalidData,
            "the response is not from this service",
        )
    })?;
    Ok((status, body.to_owned()))
}

/// Checks whether semantic search can work, and returns its model; `None` if it is off or cannot work.
async fn embeddings(config: &Config, found: &mut Examination) -> Option<Arc<dyn Embedder>> {
    // The settings check has reported an error.
    let choice = models::choose(config).ok()?;
    if let Some(warning) = models::unused_download(config, &choice) {
        found.warning("embeddings", warning);
    }
    match choice {
        models::Choice::Off(reason) => {
            found.line(
                true,
                "embeddings",
                format_args!("off, so semantic search is unavailable: {reason}"),
            );
            if let Some(warning) = models::unwritable_cache(config) {
                found.warning("embeddings", warning);
            }
            None
        }
        // An unavailable provider is not a fault of this installation, but it is worth reporting.
        choice => match models::load(choice, config).await {
            Ok(Ok(embedder)) => {
                for warning in models::chunk_warnings(models::chunk_settings(config), &*embedder) {
                    found.warning("embeddings", warning);
                }
                let model = embedder.model();
                let stores_nothing =
                    config.search.rerank_store_tokens && !embedder.has_token_vectors();
                let advice = if stores_nothing {
                    "; RERANK_STORE_TOKENS has no effect: the model returns no token vectors"
                } else {
                    ""
                };
                found.line(
                    true,
                    "embeddings",
                    format_args!(
                        "`{}` works ({} dimensions, {}){advice}",
                        model.name, model.dimensions, model.provider
                    ),
                );
                Some(embedder)
            }
            Ok(Err(reason)) | Err(reason) => {
                found.line(false, "embeddings", reason);
                None
            }
        },
    }
}

/// Checks the reranker. Reranking may be off.
async fn reranking(config: &Config, found: &mut Examination) {
    // The settings check has reported an error.
    let Ok(choice) = rerankers::choose(config) else {
        return;
    };
    if let Some(warning) = rerankers::warning(config, &choice) {
        return found.warning("reranking", warning);
    }
    let loaded = match choice {
        Choice::Off(reason) => {
            return found.line(true, "reranking", format_args!("off: {reason}"));
        }
        Choice::LateInteraction => {
            return found.line(
                true,
                "reranking",
                "works by late interaction with the embedding model",
            );
        }
        Choice::Local(_) | Choice::Remote(_) => rerankers::load(choice).await,
    };
    let reranker = match loaded {
        Ok(Some(reranker)) => reranker,
        Ok(None) => return,
        Err(reason) => return found.line(false, "reranking", reason),
    };
    let (model, provider) = (reranker.model(), reranker.provider());
    match reranker.rerank("question", vec!["answer".to_owned()]).await {
        Ok(_) => found.line(
            true,
            "reranking",
            format_args!("`{model}` works ({provider})"),
        ),
        Err(error) => found.line(
            false,
            "reranking",
            format_args!(
                "`{model}` of {provider}: {error}; searches skip reranking until it responds"
            ),
        ),
    }
}

/// Checks the summary provider with one short text. Summaries may be off.
async fn summarizing(config: &Config, found: &mut Examination) {
    if let Some(warning) = summaries::warning(config) {
        found.warning("summaries", warning);
    }
    // The settings check has reported an error.
    let Ok(Some(summarizer)) = summaries::choose(config) else {
        return;
    };
    let (model, provider) = (summarizer.model(), summarizer.provider());
    let text = "Ann met Bob at the station.";
    match tokio::time::timeout(SUMMARY_TIMEOUT, summarizer.summarize(text)).await {
        Ok(Ok(_)) => found.line(
            true,
            "summaries",
            format_args!("`{model}` works ({provider})"),
        ),
        Ok(Err(error)) => found.line(
            false,
            "summaries",
            format_args!("`{model}` of {provider}: {error}; entries wait for their summaries"),
        ),
        Err(_) => found.line(
            false,
            "summaries",
            format_args!(
                "`{model}` of {provider} did not respond within {} s",
                SUMMARY_TIMEOUT.as_secs()
            ),
        ),
    }
}

async fn sqlite_database(
    config: &Config,
    is_running: bool,
    embedder: Option<Arc<dyn Embedder>>,
    found: &mut Examination,
) {
    let sqlite = config.sqlite();
    let path = context_model::local::absolute(&sqlite.path);
    let shown = path.display().to_string();
    let opened = tokio::task::spawn_blocking(move || SqliteStore::open(sqlite)).await;
    match opened {
        Ok(Ok(store)) => {
            let store: Arc<dyn Store> = Arc::new(store);
            match store.check().await {
                Ok(()) => found.line(
                    true,
                    "database",
                    format_args!("{shown} opens, and its schema is current"),
                ),
                Err(error) => found.line(false, "database", format_args!("{shown}: {error}")),
            }
            if let Some(embedder) = embedder
                && let Err(reason) = stored_vectors(&store, embedder, config).await
            {
                found.line(false, "embeddings", reason);
            }
            let texts = languages::sample(&*store).await;
            language_of(config, &texts.unwrap_or_default(), found);
            store.close().await;
        }
        Ok(Err(OpenError::Held { holder, .. })) if is_running => {
            found.line(
                true,
                "database",
                format_args!("{shown} is held by {holder}"),
            );
            language_of(config, &texts_of_service(&config.socket()).await, found);
        }
        Ok(Err(error)) => found.line(false, "database", error),
        Err(error) => found.line(false, "database", error),
    }
}

/// Checks that the vectors in the database were made by this model. Only for a database that no service uses.
///
/// # Errors
/// Why there is no semantic search with this model.
async fn stored_vectors(
    store: &Arc<dyn Store>,
    embedder: Arc<dyn Embedder>,
    config: &Config,
) -> Result<(), String> {
    // The settings check has reported an error.
    let Ok(engine) = Engine::new(Arc::clone(store), config.engine(), Arc::new(SystemClock)) else {
        return Ok(());
    };
    let adopted = models::adopt(&engine, embedder).await;
    adopted.unwrap_or_else(|error| Err(error.message))
}

async fn postgres_database(config: &Config, found: &mut Examination) {
    // The settings check has reported what is wrong.
    let Ok(mut postgres) = config.postgres() else {
        return;
    };
    postgres.builds_indexes = false;
    let shown = postgres.target.shown();
    match context_store_postgres::PostgresStore::open(postgres).await {
        Ok(store) => {
            match context_store::Store::check(&store).await {
                Ok(()) => found.line(
                    true,
                    "database",
                    format_args!("{shown} responds, and its schema is current"),
                ),
                Err(error) => found.line(false, "database", format_args!("{shown}: {error}")),
            }
            let texts = languages::sample(&store).await;
            language_of(config, &texts.unwrap_or_default(), found);
            context_store::Store::close(&store).await;
        }
        Err(error) => {
            let settings = &config.postgres;
            let is_default = settings.postgresql_connection_string.is_none()
                && settings.postgresql_host == "localhost";
            let advice = if is_default {
                "; POSTGRESQL_CONNECTION_STRING is not set, and POSTGRESQL_HOST is `localhost`"
            } else {
                ""
            };
            found.line(false, "database", format_args!("{error}{advice}"));
        }
    }
}

/// The beginnings of the newest texts, from the running service. Empty if the service requires a key.
async fn texts_of_service(socket: &Path) -> Vec<String> {
    let body = format!("{{\"limit\": {}}}", languages::SAMPLE);
    let reply = async {
        let stream = UnixStream::connect(socket).await.ok()?;
        post_json(stream, "/v1/contexts/search", &body).await.ok()
    };
    let reply = tokio::time::timeout(Duration::from_secs(3), reply).await;
    let reply: Option<serde_json::Value> = reply
        .ok()
        .flatten()
        .and_then(|reply| serde_json::from_str(&reply).ok());
    let results = reply.as_ref().and_then(|reply| reply["results"].as_array());
    let texts = results
        .into_iter()
        .flatten()
        .filter_map(|entry| entry["text_content"].as_str());
    texts.map(str::to_owned).collect()
}

/// Reports the language of the stored texts and whether the embedding model reads it. Reports nothing for a provider
/// over HTTP.
fn language_of(config: &Config, texts: &[String], found: &mut Examination) {
    let model = match models::choose(config) {
        Ok(models::Choice::Local(directory)) => Some(directory.name().to_owned()),
        Ok(models::Choice::Off(_)) => None,
        Ok(models::Choice::Remote(_)) | Err(_) => return,
    };
    match languages::advice(texts, model.as_deref()) {
        Some((true, sentence)) => found.line(true, "language", sentence),
        Some((false, sentence)) => found.warning("language", sentence),
        None => {}
    }
}

fn disk(path: &Path, found: &mut Examination) {
    let path = context_model::local::absolute(path);
    let existing = path.ancestors().find(|path| path.exists()).unwrap_or(&path);
    match rustix::fs::statvfs(existing) {
        Ok(disk) => {
            let free = disk.f_bavail.saturating_mul(disk.f_frsize);
            let megabytes = free / (1024 * 1024);
            let advice = if free < MIN_FREE_BYTES {
                "; free some space"
            } else {
                ""
            };
            found.line(
                free >= MIN_FREE_BYTES,
                "disk",
                format_args!("{megabytes} MB free at {}{advice}", existing.display()),
            );
        }
        Err(error) => found.line(
            false,
            "disk",
            format_args!("{}: {error}", existing.display()),
        ),
    }
}

async fn ports(config: &Config, found: &mut Examination) {
    let addresses = [
        ("CONTEXT_LISTEN", Some(config.network.listen)),
        ("CONTEXT_GRPC_LISTEN", config.network.grpc_listen.0),
    ];
    // As in the service, both are open at the same time: the two settings may name the same port.
    let mut listeners = Vec::new();
    for (setting, address) in addresses {
        let Some(address) = address else { continue };
        match TcpListener::bind(address).await {
            Ok(listener) => {
                listeners.push(listener);
                found.line(true, "port", format_args!("{address} is free"));
            }
            Err(error) => found.line(
                false,
                "port",
                format_args!("cannot listen on {address}: {error}; set {setting}"),
            ),
        }
    }
}
