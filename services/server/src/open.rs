//! Opening the database, and taking it over from a service that a gateway started.

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
use crate::start_error::StartError;

/// How long another service may take to give the database up: its own drain and a little more.
const TAKEOVER_TIMEOUT: Duration = Duration::from_secs(15);
/// How often the database is tried. A service that a gateway started tries less often, so that one started by hand
/// comes first.
const POLL_BY_HAND: Duration = Duration::from_millis(10);
const POLL_STARTED: Duration = Duration::from_millis(100);

/// The route, on the Unix socket alone, that asks a service which a gateway started to give way.
pub const DRAIN_ROUTE: &str = "/internal/drain";

/// What became of opening the database.
pub enum Opened {
    /// It is ours.
    Store(Arc<dyn Store>),
    /// Another service has it; the gateway that started this one finds that one.
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

/// Any number of services share the database, but one has the socket: one that a gateway started gives it up, and when
/// it is us that a gateway started, the other one's service is good enough.
async fn open_postgres(config: &Config) -> Result<Opened, StartError> {
    let socket = config.socket();
    if UnixStream::connect(&socket).await.is_ok() {
        if config.auto_started {
            return Ok(Opened::ServedByAnother);
        }
        let deadline = Instant::now() + TAKEOVER_TIMEOUT;
        if matches!(
            tokio::time::timeout(Duration::from_secs(2), post_drain(&socket)).await,
            Ok(Ok(true))
        ) {
            tracing::info!("Asked the service that a gateway started to give way");
            while UnixStream::connect(&socket).await.is_ok() && Instant::now() < deadline {
                tokio::time::sleep(POLL_BY_HAND).await;
            }
        }
    }
    let settings = config
        .postgres()
        .map_err(|error| StartError::Settings(error.to_string()))?;
    Ok(Opened::Store(Arc::new(
        PostgresStore::open(settings).await?,
    )))
}

/// A database that a gateway's service holds is taken over; when it is us that a gateway started, the other one's
/// service is good enough.
async fn open_sqlite(config: &Config) -> Result<Opened, OpenError> {
    let deadline = Instant::now() + TAKEOVER_TIMEOUT;
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
            tokio::time::sleep(POLL_STARTED).await;
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

/// Opens an SQLite database as it is.
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

/// Over its socket; where that does not answer, by a signal to the process that holds the lock.
async fn ask_to_drain(socket: &Path, holder: Holder) {
    let answered = tokio::time::timeout(Duration::from_secs(2), post_drain(socket)).await;
    if matches!(answered, Ok(Ok(true))) {
        tracing::info!("Asked the service that a gateway started to give way");
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
            "Asked the service that a gateway started to give way, by signal"
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

/// Whether a process is a context service of this user. The lock it holds says so already; this keeps a number that
/// was read from a file from ever reaching another process.
fn is_ours(pid: u32) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    let process = Path::new("/proc").join(pid.to_string());
    let same_user = std::fs::metadata(&process)
        .is_ok_and(|found| found.uid() == rustix::process::geteuid().as_raw());
    // The kernel keeps 15 characters of the name, which is exactly this one's length.
    same_user
        && std::fs::read_to_string(process.join("comm"))
            .is_ok_and(|name| name.trim_end() == "context-service")
}
