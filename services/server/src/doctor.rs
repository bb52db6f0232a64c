//! `context-service doctor`: whether this installation can work, line by line.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use context_store_sqlite::{OpenError, SqliteStore};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, UnixStream};

use crate::check_settings::check_settings;
use crate::config::{Backend, Config};
use crate::models;
use crate::rerankers::{self, Choice};

/// Below this much free space the disk is as good as full.
const MIN_FREE_BYTES: u64 = 100 * 1024 * 1024;

/// Of a reply of the service, so much is read.
const MAX_REPLY_BYTES: u64 = 256 * 1024;

/// What was found.
#[derive(Debug)]
pub struct Examination {
    /// A line for each check: `✔` or `✘`, what was checked, and what to do.
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
}

/// Examines this installation. A service that runs is left alone; without one the database is opened, and so created
/// when there is none.
pub async fn examine(config: &Config) -> Examination {
    let mut found = Examination {
        report: String::new(),
        healthy: true,
    };
    match check_settings(config) {
        Ok(()) => found.line(true, "settings", "are consistent"),
        Err(sentence) => found.line(false, "settings", sentence),
    }
    let answers = service(config, &mut found).await;
    embeddings(config, &mut found).await;
    reranking(config, &mut found).await;
    match config.storage.storage_backend {
        Backend::Sqlite => {
            database(config, answers, &mut found).await;
            disk(&config.storage.db_path, &mut found);
        }
        Backend::Postgresql => server(config, &mut found).await,
    }
    if !answers {
        ports(config, &mut found).await;
    }
    found
}

/// Whether the service of this database runs and is ready, asked over its socket.
///
/// # Errors
/// A sentence that says what is the matter.
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
        Err(_) => Err("the service does not answer within three seconds".into()),
    }
}

/// Asks the running service, if there is one, over its socket.
async fn service(config: &Config, found: &mut Examination) -> bool {
    let socket = config.socket();
    let shown = socket.display();
    match tokio::time::timeout(Duration::from_secs(3), get(&socket, "/readyz")).await {
        Ok(Ok((200, _))) => {
            found.line(
                true,
                "service",
                format_args!("answers on {shown} and is ready"),
            );
            refused_rows(&socket, found).await;
            true
        }
        Ok(Ok((status, body))) => {
            found.line(
                false,
                "service",
                format_args!(
                    "answers on {shown}, but is not ready (status {status}){}",
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
                format_args!("does not run; its socket would be {shown}"),
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
                format_args!("does not answer on {shown} within three seconds"),
            );
            true
        }
    }
}

/// What the service says of why it is not ready.
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

/// Whether the running service met rows that are not what was stored.
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
        let advice = "damaged rows were refused since the service started; `context-service verify` names all that is damaged";
        found.line(false, "content", format_args!("{rows} {advice}"));
    }
}

/// The status and the body of a reply, as much of it as is of use here.
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
            "what answers there is not this service",
        )
    })?;
    Ok((status, body.to_owned()))
}

/// Whether search by meaning can work. Being without it is no fault.
async fn embeddings(config: &Config, found: &mut Examination) {
    match models::choose(config) {
        Ok(models::Choice::Off(reason)) => found.line(
            true,
            "embeddings",
            format_args!("off, so there is no search by meaning: {reason}"),
        ),
        // Said by the check of the settings.
        Err(_) => {}
        // A provider that is away is no fault of this installation, but whoever asks wants to know.
        Ok(choice) => match models::load(choice, config).await {
            Ok(Ok(embedder)) => {
                let model = embedder.model();
                let stores_nothing =
                    config.search.rerank_store_tokens && !embedder.has_token_vectors();
                let advice = if stores_nothing {
                    "; RERANK_STORE_TOKENS has no effect: it gives no vectors of tokens"
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
            }
            Ok(Err(reason)) | Err(reason) => found.line(false, "embeddings", reason),
        },
    }
}

/// Who reranks, and whether it answers. Being without it is no fault.
async fn reranking(config: &Config, found: &mut Examination) {
    let loaded = match rerankers::choose(config) {
        Ok(Choice::Off(reason)) => {
            return found.line(true, "reranking", format_args!("off: {reason}"));
        }
        Ok(Choice::LateInteraction) => {
            return found.line(
                true,
                "reranking",
                "works by late interaction with the embedding model",
            );
        }
        // Said by the check of the settings.
        Err(_) => return,
        Ok(choice) => rerankers::load(choice).await,
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
            format_args!("`{model}` of {provider}: {error}; searches go without it meanwhile"),
        ),
    }
}

async fn database(config: &Config, answers: bool, found: &mut Examination) {
    let sqlite = config.sqlite();
    let path = context_model::local::absolute(&sqlite.path);
    let shown = path.display().to_string();
    let opened = tokio::task::spawn_blocking(move || SqliteStore::open(sqlite)).await;
    match opened {
        Ok(Ok(store)) => {
            match context_store::Store::check(&store).await {
                Ok(()) => found.line(
                    true,
                    "database",
                    format_args!("{shown} opens, and its schema is current"),
                ),
                Err(error) => found.line(false, "database", format_args!("{shown}: {error}")),
            }
            context_store::Store::close(&store).await;
        }
        Ok(Err(OpenError::Held { holder, .. })) if answers => found.line(
            true,
            "database",
            format_args!("{shown} is held by {holder}"),
        ),
        Ok(Err(error)) => found.line(false, "database", error),
        Err(error) => found.line(false, "database", error),
    }
}

async fn server(config: &Config, found: &mut Examination) {
    // What is wrong with the settings was said already.
    let Ok(postgres) = config.postgres() else {
        return;
    };
    let shown = postgres.target.shown();
    match context_store_postgres::PostgresStore::open(postgres).await {
        Ok(store) => {
            match context_store::Store::check(&store).await {
                Ok(()) => found.line(
                    true,
                    "database",
                    format_args!("{shown} answers, and its schema is current"),
                ),
                Err(error) => found.line(false, "database", format_args!("{shown}: {error}")),
            }
            context_store::Store::close(&store).await;
        }
        Err(error) => found.line(false, "database", error),
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
    for (setting, address) in addresses {
        let Some(address) = address else { continue };
        match TcpListener::bind(address).await {
            Ok(_) => found.line(true, "port", format_args!("{address} is free")),
            Err(error) => found.line(
                false,
                "port",
                format_args!("{address} cannot be listened on ({error}); set {setting}"),
            ),
        }
    }
}
