//! A directory with a database, and the settings of the processes that serve it.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::process::Signal;

use crate::binary::binary;
use crate::process::{Process, end_with_test};

/// A directory with a database, and the settings of the processes that serve it.
#[derive(Debug)]
pub struct Home {
    directory: tempfile::TempDir,
    settings: Vec<(OsString, OsString)>,
}

impl Default for Home {
    fn default() -> Self {
        Self::new()
    }
}

impl Home {
    /// Creates a home in the directory for temporary files.
    ///
    /// # Panics
    /// When the directory cannot be created.
    #[must_use]
    pub fn new() -> Self {
        Self {
            directory: tempfile::tempdir().expect("a temporary directory"),
            settings: Vec::new(),
        }
    }

    /// Adds a setting for every process started here.
    #[must_use]
    pub fn with(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.settings
            .push((name.as_ref().to_owned(), value.as_ref().to_owned()));
        self
    }

    /// The directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// The database file.
    #[must_use]
    pub fn database(&self) -> PathBuf {
        self.path().join("contexts.db")
    }

    /// The Unix socket of the service.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.path().join("service.sock")
    }

    /// A command that runs this binary of the workspace with these settings. Of the test run's environment it has only
    /// `PATH`. It listens on a port that the system chooses. Its process is killed when the test ends, also when the
    /// test panics or is killed.
    #[must_use]
    pub fn command(&self, name: &str) -> Command {
        self.command_at(&binary(name))
    }

    /// As [`Home::command`], for any program.
    #[must_use]
    pub fn command_at(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", self.path())
            .env("XDG_RUNTIME_DIR", self.path())
            .env("DB_PATH", self.database())
            .env("CONTEXT_SOCKET", self.socket())
            .env("CONTEXT_LISTEN", "127.0.0.1:0")
            .env("GATEWAY_LISTEN", "127.0.0.1:0")
            .envs(self.settings.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null());
        end_with_test(&mut command, Signal::KILL);
        command
    }

    /// Starts a service, without waiting for it.
    #[must_use]
    pub fn spawn(&self) -> Process {
        self.spawn_as(self.command("context-service"))
    }

    /// Starts a service or a gateway from this command.
    ///
    /// # Panics
    /// When it does not start.
    #[must_use]
    pub fn spawn_as(&self, mut command: Command) -> Process {
        let number = LOGS.fetch_add(1, Ordering::Relaxed);
        let log = self.path().join(format!("process-{number}.log"));
        let file = File::create(&log).expect("a log");
        let child = command
            .stdout(Stdio::null())
            .stderr(file)
            .spawn()
            .expect("the process starts");
        Process::new(child, self.socket(), log)
    }

    /// Starts a service or a gateway from this command, and waits until it listens.
    pub async fn start_as(&self, command: Command) -> Process {
        let mut process = self.spawn_as(command);
        process.listening().await;
        process
    }

    /// Starts a service and waits until it responds.
    pub async fn start(&self) -> Process {
        let mut service = self.spawn();
        service.ready().await;
        service
    }
}

/// The number of log files so far, so that each process gets a file of its own.
static LOGS: AtomicUsize = AtomicUsize::new(0);
