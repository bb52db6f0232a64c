//! Finds the service of a database on this machine, and starts it if it is not running.
//!
//! All gateways of one user share one service, whose socket is named after the database file. A
//! gateway that gets no connection takes a lock and starts the service detached. The service stops
//! itself when it has had no client for its idle time.

#![expect(
    clippy::disallowed_methods,
    reason = "measures how long the gateway waits for the service that it starts"
)]

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use tokio::net::UnixStream;
use tokio::process::{Child, Command};

/// How long a start may take before the call that triggered it fails.
const START_TIMEOUT: Duration = Duration::from_secs(10);
/// Interval between connection attempts while the service starts.
const POLL: Duration = Duration::from_millis(10);
/// A larger log file is truncated at the next start.
const MAX_LOG_BYTES: u64 = 4 * 1024 * 1024;

/// The service of one database on this machine.
#[derive(Debug)]
pub struct LocalService {
    socket: PathBuf,
    db_path: PathBuf,
    command: PathBuf,
}

impl LocalService {
    /// The service of the database at `db_path`. `socket` defaults to the socket named after the
    /// database. The program is `context-service` in the directory of this executable, else the one
    /// on the PATH.
    #[must_use]
    pub fn new(db_path: &Path, socket: Option<PathBuf>) -> Self {
        let beside = std::env::current_exe()
            .ok()
            .and_then(|exe| exe.parent().map(|dir| dir.join("context-service")))
            .filter(|path| path.is_file());
        Self::with_command(
            db_path,
            socket,
            beside.unwrap_or_else(|| PathBuf::from("context-service")),
        )
    }

    /// Like [`new`](Self::new), with a given program to start.
    #[must_use]
    pub fn with_command(db_path: &Path, socket: Option<PathBuf>, command: PathBuf) -> Self {
        let db_path = context_model::local::absolute(db_path);
        let socket =
            socket.unwrap_or_else(|| context_model::local::socket_path(&db_path, own_uid()));
        Self {
            socket,
            db_path,
            command,
        }
    }

    /// The socket on which the service is found.
    #[must_use]
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Connects. If no service listens, starts it first.
    ///
    /// # Errors
    /// If another user owns the socket or its directory, or the service does not start within ten
    /// seconds. The message includes the last line of the service's log.
    pub async fn connect(&self) -> io::Result<UnixStream> {
        match self.try_connect().await {
            Err(error) if is_not_running(&error) => self.start_and_connect().await,
            outcome => outcome,
        }
    }

    async fn try_connect(&self) -> io::Result<UnixStream> {
        let stream = UnixStream::connect(&self.socket).await?;
        // Another user who binds this path would read everything the gateway sends.
        if stream.peer_cred()?.uid() != own_uid() {
            return Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                format!("{} is served by another user", self.socket.display()),
            ));
        }
        Ok(stream)
    }

    async fn start_and_connect(&self) -> io::Result<UnixStream> {
        let deadline = Instant::now() + START_TIMEOUT;
        if let Some(dir) = self.socket.parent() {
            if dir == context_model::local::runtime_dir(own_uid()) {
                let foreign = || {
                    io::Error::new(
                        io::ErrorKind::PermissionDenied,
                        format!("{} belongs to another user", dir.display()),
                    )
                };
                context_model::local::make_runtime_dir(own_uid())?.ok_or_else(foreign)?;
            } else {
                // The user must protect a directory that the user chose. The peer is checked in
                // any case.
                std::fs::create_dir_all(dir)?;
            }
        }
        let lock = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .open(self.socket.with_extension("start.lock"))?;
        let mut child = None;
        loop {
            if child.is_none() && flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok() {
                // Another gateway may have started it while we waited for the lock.
                match self.try_connect().await {
                    Err(error) if is_not_running(&error) => child = Some(self.spawn()?),
                    outcome => return outcome,
                }
            }
            match self.try_connect().await {
                Err(error) if is_not_running(&error) => {}
                outcome => return outcome,
            }
            if let Some(child) = &mut child
                && let Some(status) = child.try_wait()?
            {
                return Err(self.start_failed(&format!("stopped with {status}")));
            }
            if Instant::now() >= deadline {
                return Err(self.start_failed("did not respond within 10 seconds"));
            }
            tokio::time::sleep(POLL).await;
        }
    }

    /// Starts the service in its own session, so that it outlives this gateway and the terminal.
    fn spawn(&self) -> io::Result<Child> {
        let log = self.log()?;
        let mut command = Command::new(&self.command);
        command
            .arg("--auto-started")
            .env("DB_PATH", &self.db_path)
            .env("CONTEXT_SOCKET", &self.socket)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        // SAFETY: between fork and exec the closure makes one setsid system call and nothing else.
        // It does not allocate and takes no lock.
        unsafe {
            command.pre_exec(|| rustix::process::setsid().map(drop).map_err(io::Error::from));
        }
        tracing::info!(command = %self.command.display(), socket = %self.socket.display(), "Starting the context service");
        command.spawn().map_err(|error| {
            io::Error::new(
                error.kind(),
                format!(
                    "the context service could not be started: {}: {error}; set CONTEXT_BACKEND to use a running one",
                    self.command.display()
                ),
            )
        })
    }

    fn log_path(&self) -> PathBuf {
        self.socket.with_extension("log")
    }

    fn log(&self) -> io::Result<File> {
        let log = OpenOptions::new()
            .create(true)
            .append(true)
            .mode(0o600)
            .open(self.log_path())?;
        if log.metadata()?.len() > MAX_LOG_BYTES {
            log.set_len(0)?;
        }
        Ok(log)
    }

    fn start_failed(&self, what: &str) -> io::Error {
        let said = last_line(&self.log_path())
            .map(|line| format!(": {line}"))
            .unwrap_or_default();
        io::Error::other(format!(
            "the context service {what}{said}; its log is {}",
            self.log_path().display()
        ))
    }
}

/// The last line of the log, cut to 300 characters.
fn last_line(path: &Path) -> Option<String> {
    let mut file = File::open(path).ok()?;
    let length = file.metadata().ok()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(4096)))
        .ok()?;
    let mut tail = Vec::new();
    file.take(4096).read_to_end(&mut tail).ok()?;
    let tail = String::from_utf8_lossy(&tail);
    let line = tail.lines().rev().find(|line| !line.trim().is_empty())?;
    Some(line.trim().chars().take(300).collect())
}

fn is_not_running(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused
    )
}

fn own_uid() -> u32 {
    rustix::process::geteuid().as_raw()
}
