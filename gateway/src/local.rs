//! Finds the service of a database on this machine, and starts it if it is not running.
//!
//! All gateways of one user share one service, whose socket is named after the database file. A
//! gateway that gets no connection takes a lock and starts the service detached. The service stops
//! itself when it has had no client for its idle time.
//!
//! A service has the settings of the gateway that started it. Before a gateway uses a service that it did not start, it
//! compares the settings.

#![expect(
    clippy::disallowed_methods,
    reason = "measures how long the gateway waits for the service that it starts"
)]

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use tokio::net::UnixStream;
use tokio::process::Child;

use crate::service_program::{Comparison, How, Notice, ServiceProgram};
use crate::start_failure::lasting;

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
    program: ServiceProgram,
    notice: Arc<Notice>,
    /// The service that may be used: it has the settings of this gateway, or the differences were reported.
    accepted: Mutex<Option<Peer>>,
    /// Whether any running service is used without comparing its settings.
    accepts_any: bool,
    /// Whether this gateway has stopped a service with other settings. It does so once at most, so that two gateways
    /// with different settings do not stop each other's service forever.
    has_stopped_one: AtomicBool,
}

/// The process id at the other end of the socket; `None` if the system does not report it.
type Peer = Option<i32>;

impl LocalService {
    /// The service of the database at `db_path`. `socket` defaults to the socket named after the
    /// database. `program` is started when no service runs.
    #[must_use]
    pub fn with_program(db_path: &Path, socket: Option<PathBuf>, program: ServiceProgram) -> Self {
        let db_path = context_model::local::absolute(db_path);
        let socket =
            socket.unwrap_or_else(|| context_model::local::socket_path(&db_path, own_uid()));
        let program = program.with([("CONTEXT_SOCKET", socket.as_os_str())]);
        Self {
            socket,
            db_path,
            program,
            notice: Arc::default(),
            accepted: Mutex::default(),
            accepts_any: false,
            has_stopped_one: AtomicBool::new(false),
        }
    }

    /// Uses any running service without comparing its settings. This is for processes that have no time for it, such as
    /// hooks and commands; the gateway of the same client compares them.
    #[must_use]
    pub const fn accepting_any(mut self) -> Self {
        self.accepts_any = true;
        self
    }

    /// The warning for the agent about settings that differ.
    #[must_use]
    pub const fn notice(&self) -> &Arc<Notice> {
        &self.notice
    }

    /// Checks the settings of this process, and compares them with those of the service if one runs. A service that
    /// must be restarted is restarted at the first [`connect`](Self::connect).
    ///
    /// # Errors
    /// The service's message about a setting that cannot be read.
    pub async fn check_settings(&self) -> Result<(), String> {
        if let Some(comparison) = self.program.compare(How::All).await?
            && !comparison.calls_for_restart()
        {
            self.accept(&comparison);
        }
        Ok(())
    }

    /// Reports the differences from the running service and uses it as it is.
    fn accept(&self, comparison: &Comparison) {
        self.notice.report(comparison);
        if let Some(service) = &comparison.service {
            self.set_accepted(service.pid);
        }
    }

    fn set_accepted(&self, peer: Peer) {
        *self.accepted.lock().unwrap_or_else(PoisonError::into_inner) = Some(peer);
    }

    fn is_accepted(&self, stream: &UnixStream) -> bool {
        if self.accepts_any {
            return true;
        }
        let accepted = self.accepted.lock().unwrap_or_else(PoisonError::into_inner);
        *accepted == Some(peer(stream))
    }

    /// The program of the service, with the environment that it gets.
    #[must_use]
    pub const fn program(&self) -> &ServiceProgram {
        &self.program
    }

    /// The socket on which the service is found.
    #[must_use]
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Connects. If no service listens, starts it first. If a gateway started the running service with other settings
    /// and no client uses it, the service is restarted.
    ///
    /// # Errors
    /// If another user owns the socket or its directory, a setting of the service cannot be read, or the service does
    /// not start within ten seconds. In the last case the message includes the last line of the service's log.
    pub async fn connect(&self) -> io::Result<UnixStream> {
        match self.try_connect().await {
            Ok(stream) if self.is_accepted(&stream) => Ok(stream),
            Ok(stream) => {
                // While this connection is open, it counts as a client of the service, which then cannot be stopped.
                drop(stream);
                self.start_and_connect().await
            }
            Err(error) if is_not_running(&error) => self.start_and_connect().await,
            Err(error) => Err(error),
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

    /// Starts the service if none runs, or restarts it if it must have other settings, and connects. At the deadline it
    /// uses whatever service runs.
    async fn start_and_connect(&self) -> io::Result<UnixStream> {
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
        let mut deadline = Instant::now() + START_TIMEOUT;
        let mut child = None;
        // Only the gateway that has the lock starts or stops a service, and it has the lock until it is connected.
        let mut has_lock = false;
        let mut needs_lock = false;
        loop {
            has_lock = has_lock || flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok();
            let is_overdue = Instant::now() >= deadline;
            match self.try_connect().await {
                Ok(stream) if is_overdue || self.is_accepted(&stream) => return Ok(stream),
                Ok(_) if needs_lock && !has_lock => {}
                Ok(stream) => match self.compare(stream, has_lock).await? {
                    Compared::Accepted(Some(stream)) => return Ok(stream),
                    Compared::Accepted(None) | Compared::Stopped => continue,
                    Compared::NeedsLock => {
                        needs_lock = true;
                        continue;
                    }
                },
                Err(error) if is_not_running(&error) => {
                    if has_lock && child.is_none() {
                        let started = self.spawn()?;
                        self.set_accepted(started.id().and_then(|pid| i32::try_from(pid).ok()));
                        child = Some(started);
                        deadline = Instant::now() + START_TIMEOUT;
                    }
                }
                Err(error) => return Err(error),
            }
            if let Some(child) = &mut child
                && let Some(status) = child.try_wait()?
            {
                let message = self.start_failed(&format!("stopped with {status}"));
                // The service exits with 0 if another one serves the database, and has no exit code if it was killed.
                // Both may succeed at the next attempt.
                return Err(match status.code() {
                    Some(0) | None => io::Error::other(message),
                    Some(_) => lasting(message),
                });
            }
            // Not `is_overdue`: a start in this pass has set a new deadline.
            if Instant::now() >= deadline {
                return Err(io::Error::other(
                    self.start_failed("did not respond within 10 seconds"),
                ));
            }
            tokio::time::sleep(POLL).await;
        }
    }

    /// Compares the settings of this process with those of the service behind `stream`, which another process started.
    async fn compare(&self, stream: UnixStream, has_lock: bool) -> io::Result<Compared> {
        let service = peer(&stream);
        // An open connection counts as a client, and a service with a client does not stop. Without the lock this
        // gateway stops no service, so its connection may stay open.
        let stream = (!has_lock).then_some(stream);
        let may_stop = !self.has_stopped_one.load(Ordering::Relaxed);
        let how = if has_lock && may_stop {
            How::AllAndStop
        } else {
            How::All
        };
        let Some(comparison) = self.program.compare(how).await.map_err(lasting)? else {
            self.set_accepted(service);
            return Ok(Compared::Accepted(stream));
        };
        if comparison.stopped {
            self.has_stopped_one.store(true, Ordering::Relaxed);
            self.notice.report(&comparison);
            return Ok(Compared::Stopped);
        }
        if comparison.calls_for_restart() && may_stop && !has_lock {
            return Ok(Compared::NeedsLock);
        }
        self.accept(&comparison);
        Ok(Compared::Accepted(
            stream.filter(|stream| self.is_accepted(stream)),
        ))
    }

    /// Starts the service in its own session, so that it outlives this gateway and the terminal.
    fn spawn(&self) -> io::Result<Child> {
        let log = self.log()?;
        let mut command = self.program.command();
        command
            .arg("--auto-started")
            // Set only for a start. In a comparison, the default of DB_PATH must not count as a setting of this
            // gateway.
            .env("DB_PATH", &self.db_path)
            .stdout(log.try_clone()?)
            .stderr(log);
        // SAFETY: between fork and exec the closure makes one setsid system call and nothing else.
        // It does not allocate and takes no lock.
        unsafe {
            command.pre_exec(|| rustix::process::setsid().map(drop).map_err(io::Error::from));
        }
        tracing::info!(command = %self.program.path().display(), socket = %self.socket.display(), "Starting the context service");
        command.spawn().map_err(|error| {
            let message = format!(
                "the context service could not be started: {}: {error}; set CONTEXT_BACKEND to use a running one",
                self.program.path().display()
            );
            match error.kind() {
                io::ErrorKind::NotFound => lasting(message),
                kind => io::Error::new(kind, message),
            }
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

    /// The message for a failed start: what happened, the last line of the log, and the log's path.
    fn start_failed(&self, what: &str) -> String {
        let reason = last_line(&self.log_path())
            .map(|line| format!(": {line}"))
            .unwrap_or_default();
        format!(
            "the context service {what}{reason}; its log is {}",
            self.log_path().display()
        )
    }
}

/// The outcome of a comparison of settings.
enum Compared {
    /// The service is used as it is, over this connection if there still is one.
    Accepted(Option<UnixStream>),
    /// The service stops.
    Stopped,
    /// The service may have to stop, for which the lock is needed.
    NeedsLock,
}

fn peer(stream: &UnixStream) -> Peer {
    stream.peer_cred().ok().and_then(|peer| peer.pid())
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
