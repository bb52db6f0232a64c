//! Opens the database. Takes it over from a service that a gateway started.

#![expect(
    clippy::disallowed_methods,
    reason = "measures how long this service waits for the previous one"
)]

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use context_store::Store;
use context_store_postgres::PostgresStore;
use context_store_sqlite::{Holder, OpenError, SqliteStore, Started};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::time::Instant;

use crate::config::{Backend, Config};
use crate::socket::BindError;
use crate::start_error::StartError;

/// The default of CONTEXT_DRAIN_TIMEOUT_SECONDS, and the time beyond it in which another service releases the database.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);
const TAKEOVER_MARGIN: Duration = Duration::from_secs(5);
/// Intervals between attempts to open the database. A service that a gateway started tries less
/// often, so that one started by hand gets the database first.
const POLL_BY_HAND: Duration = Duration::from_millis(10);
const POLL_AUTO_STARTED: Duration = Duration::from_millis(100);

/// The route that asks a service started by a gateway to stop. Only the Unix socket serves it.
pub const DRAIN_ROUTE: &str = "/internal/drain";

/// The outcome of opening the database.
pub enum Opened {
    /// This service has opened the database.
    Store(Arc<dyn Store>),
    /// Another service holds the database. The gateway that started this one will find that service.
    ServedByAnother,
}

/// Opens the database.
///
/// # Errors
/// Why it cannot be opened.
pub async fn open(config: &Config) -> Result<Opened, StartError> {
    match config.storage.storage_backend {
        Backend::Sqlite => Ok(open_sqlite(config).await?),
        Backend::Postgresql => open_postgres(config).await,
    }
}

/// Several services may share the database, but only one can have the socket. If a gateway started
/// this service and another one has the socket, that one is sufficient. Otherwise, if a gateway
/// started the other one, it is requested to stop.
async fn open_postgres(config: &Config) -> Result<Opened, StartError> {
    let socket = config.socket();
    if UnixStream::connect(&socket).await.is_ok() {
        if config.auto_started {
            return Ok(Opened::ServedByAnother);
        }
        let deadline = Instant::now() + takeover_timeout(config);
        if matches!(
            tokio::time::timeout(Duration::from_secs(2), post_drain(&socket)).await,
            Ok(Ok(true))
        ) {
            tracing::info!("Asked the service started by a gateway to stop");
            while UnixStream::connect(&socket).await.is_ok() && Instant::now() < deadline {
                tokio::time::sleep(POLL_BY_HAND).await;
            }
        }
        // Before the schema of the database is migrated.
        if UnixStream::connect(&socket).await.is_ok() {
            return Err(BindError::InUse(socket).into());
        }
    }
    let settings = config
        .postgres()
        .map_err(|error| StartError::Settings(error.to_string()))?;
    if settings.pool_timeout < settings.connect_timeout {
        tracing::warn!(
            "POSTGRESQL_POOL_TIMEOUT_MS ({}) is less than POSTGRESQL_CONNECT_TIMEOUT_MS ({}): operations wait for \
             an attempt to connect no longer than the pool timeout",
            settings.pool_timeout.as_millis(),
            settings.connect_timeout.as_millis()
        );
    }
    Ok(Opened::Store(Arc::new(
        PostgresStore::open(settings).await?,
    )))
}

/// Only one service can hold the database. If a gateway started this service and another one holds the
/// database, that one is sufficient. Otherwise, if a gateway started the other one, the database is taken
/// over from it.
async fn open_sqlite(config: &Config) -> Result<Opened, OpenError> {
    let deadline = Instant::now() + takeover_timeout(config);
    let socket = config.socket();
    let mut drained_pid = None;
    loop {
        let error = match try_open(config).await {
            Ok(store) => return Ok(Opened::Store(Arc::new(store))),
            Err(error) => error,
        };
        let OpenError::Held { holder, .. } = &error else {
            return Err(error);
        };
        if Instant::now() >= deadline {
            return Err(error);
        }
        if config.auto_started {
            if UnixStream::connect(&socket).await.is_ok() {
                return Ok(Opened::ServedByAnother);
            }
            tokio::time::sleep(POLL_AUTO_STARTED).await;
            continue;
        }
        if holder.started != Some(Started::Automatically) {
            return Err(error);
        }
        if drained_pid != Some(holder.pid) {
            ask_to_drain(&socket, *holder).await;
            drained_pid = Some(holder.pid);
        }
        tokio::time::sleep(POLL_BY_HAND).await;
    }
}

/// How long another service may take to release the database. Its own settings are not known, but the services of a
/// user usually have the same ones.
fn takeover_timeout(config: &Config) -> Duration {
    config.drain_timeout().max(DRAIN_TIMEOUT) + TAKEOVER_MARGIN
}

/// Opens an SQLite database without a takeover.
pub async fn try_open(config: &Config) -> Result<SqliteStore, OpenError> {
    let sqlite = config.sqlite();
    let path = sqlite.path.clone();
    tokio::task::spawn_blocking(move || SqliteStore::open(sqlite))
        .await
        .unwrap_or_else(|error| {
            Err(OpenError::Other {
                path,
                source: error.into(),
            })
        })
}

/// Requests a service to stop: over its socket or, if it does not respond, by a signal to the process
/// that holds the lock.
async fn ask_to_drain(socket: &Path, holder: Holder) {
    let response = tokio::time::timeout(Duration::from_secs(2), post_drain(socket)).await;
    if matches!(response, Ok(Ok(true))) {
        tracing::info!("Asked the service started by a gateway to stop");
        return;
    }
    if let Some(pid) = holder
        .pid
        .filter(|pid| is_ours(*pid))
        .and_then(|pid| i32::try_from(pid).ok())
        .and_then(rustix::process::Pid::from_raw)
    {
        tracing::info!(
            pid = pid.as_raw_pid(),
            "Sent a stop signal to the service started by a gateway"
        );
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
    }
}

async fn post_drain(socket: &Path) -> std::io::Result<bool> {
    let mut stream = UnixStream::connect(socket).await?;
    let request = format!(
        "POST {DRAIN_ROUTE} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await?;
    let mut head = [0; 12];
    stream.read_exact(&mut head).await?;
    Ok(&head[9..] == b"202")
}

/// Whether a process is a context service of this user. The lock already implies it; this check
/// ensures that a process id read from a file never hits another program.
fn is_ours(pid: u32) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    let process = Path::new("/proc").join(pid.to_string());
    let same_user = std::fs::metadata(&process)
        .is_ok_and(|found| found.uid() == rustix::process::geteuid().as_raw());
    // The kernel truncates process names to 15 characters, exactly the length of this one.
    same_user
        && std::fs::read_to_string(process.join("comm"))
            .is_ok_and(|name| name.trim_end() == "context-service")
}
