//! Runs the service's program to check the settings of this process and to compare them with those of the running
//! service.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use serde::Deserialize;
use tokio::process::Command;

use crate::stderr::announce;

/// Maximum time for a comparison. Most of it is for a service that is told to stop.
const TIMEOUT: Duration = Duration::from_secs(12);
/// The exit code for settings that cannot be read.
const MALFORMED: i32 = 2;

/// The service's program and the environment that it gets.
#[derive(Debug)]
pub struct ServiceProgram {
    path: PathBuf,
    environment: Vec<(OsString, OsString)>,
}

/// Which settings to compare, and whether to stop a service that differs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    /// Every setting if a gateway started the service; otherwise only the settings that this process sets.
    All,
    /// As `All`. A service that a gateway started and no client uses stops if settings differ.
    AllAndStop,
    /// Only the settings that this process sets.
    Explicit,
}

/// How the settings of this process compare with those of the running service.
#[derive(Debug, Default, Deserialize)]
pub struct Comparison {
    /// The running service.
    pub service: Option<RunningService>,
    /// Whether the service was stopped because settings differ.
    pub stopped: bool,
    differences: Vec<serde::de::IgnoredAny>,
    /// Lines for stderr.
    pub log: Vec<String>,
    /// The warning for the agent.
    pub warning: Option<String>,
}

/// The service that was compared.
#[derive(Debug, Deserialize)]
pub struct RunningService {
    /// Its process.
    pub pid: Option<i32>,
    auto_started: bool,
}

impl Comparison {
    /// Whether the service should be restarted with the settings of this process: they differ, and a gateway started
    /// it.
    #[must_use]
    pub fn calls_for_restart(&self) -> bool {
        let is_auto_started = self
            .service
            .as_ref()
            .is_some_and(|found| found.auto_started);
        is_auto_started && !self.differences.is_empty()
    }
}

impl ServiceProgram {
    /// `context-service` in the directory of this executable, else the one on the PATH.
    #[must_use]
    pub fn beside() -> Self {
        let beside = std::env::current_exe()
            .ok()
            .and_then(|exe| exe.parent().map(|dir| dir.join("context-service")))
            .filter(|path| path.is_file());
        Self::at(beside.unwrap_or_else(|| PathBuf::from("context-service")))
    }

    /// The program at this path.
    #[must_use]
    pub const fn at(path: PathBuf) -> Self {
        Self {
            path,
            environment: Vec::new(),
        }
    }

    /// Adds variables to its environment, which is otherwise that of this process.
    #[must_use]
    pub fn with(
        mut self,
        variables: impl IntoIterator<Item = (impl Into<OsString>, impl Into<OsString>)>,
    ) -> Self {
        let variables = variables.into_iter();
        self.environment
            .extend(variables.map(|(name, value)| (name.into(), value.into())));
        self
    }

    /// Its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A command that runs it.
    #[must_use]
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.path);
        command
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null());
        command
    }

    /// Compares the settings of this process with those of the running service. `None` if the program is missing, is
    /// too old for the command, fails, or takes too long.
    ///
    /// # Errors
    /// The program's message about a setting that cannot be read.
    pub async fn compare(&self, how: How) -> Result<Option<Comparison>, String> {
        let mut command = self.command();
        command.args(["config", "--compare"]).kill_on_drop(true);
        match how {
            How::All => {}
            How::AllAndStop => {
                command.arg("--stop-unused");
            }
            How::Explicit => {
                command.arg("--explicit");
            }
        }
        let Ok(Ok(output)) = tokio::time::timeout(TIMEOUT, command.output()).await else {
            return Ok(None);
        };
        if output.status.code() == Some(MALFORMED) {
            let message = String::from_utf8_lossy(&output.stderr);
            // An older program does not have this command.
            if message.contains("unrecognized subcommand") {
                return Ok(None);
            }
            let message = message.trim();
            let message = message.strip_prefix("error: ").unwrap_or(message);
            return Err(message.to_owned());
        }
        Ok(serde_json::from_slice(&output.stdout).ok())
    }
}

/// A warning for the agent that is shown once.
#[derive(Debug, Default)]
pub struct Notice(Mutex<State>);

#[derive(Debug, Default)]
enum State {
    #[default]
    Nothing,
    Waiting(String),
    Given,
}

impl Notice {
    /// Prints the lines of the comparison to stderr, and stores its warning for the agent.
    pub fn report(&self, comparison: &Comparison) {
        for line in &comparison.log {
            announce(&format!("context-gateway: {line}"));
        }
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let (Some(warning), State::Nothing | State::Waiting(_)) = (&comparison.warning, &*state)
        {
            *state = State::Waiting(warning.clone());
        }
    }

    /// The stored warning, if it was not taken before. Only one warning is ever returned.
    pub fn take(&self) -> Option<String> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match std::mem::replace(&mut *state, State::Given) {
            State::Waiting(warning) => Some(warning),
            State::Nothing => {
                *state = State::Nothing;
                None
            }
            State::Given => None,
        }
    }
}
