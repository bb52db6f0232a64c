//! Child processes that end with the run.

use std::fs::File;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::Result;

/// Maximum time for a process to start or to stop.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Interval between connection attempts to a starting process.
const POLL: Duration = Duration::from_micros(500);

/// A child process whose stderr is written to a file.
#[derive(Debug)]
pub struct Process {
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts a command without the settings of the user's environment.
    ///
    /// # Errors
    /// The command cannot be started.
    pub fn start(mut command: Command, log: PathBuf) -> Result<Self> {
        isolate(&mut command);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(&log)?);
        let child = command.spawn().map_err(|error| {
            format!(
                "{} cannot be started: {error}",
                command.get_program().display()
            )
        })?;
        Ok(Self { child, log })
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits until the process listens.
    ///
    /// # Errors
    /// The process ends, or does not listen within half a minute. The error contains the last lines of its log.
    pub fn wait_for(&mut self, address: SocketAddr) -> Result<()> {
        let deadline = Instant::now() + TIMEOUT;
        while TcpStream::connect(address).is_err() {
            if let Some(status) = self.child.try_wait()? {
                return Err(format!("a process stopped with {status}: {}", self.log_tail()).into());
            }
            if Instant::now() > deadline {
                return Err(format!(
                    "a process does not listen on {address}: {}",
                    self.log_tail()
                )
                .into());
            }
            std::thread::sleep(POLL);
        }
        Ok(())
    }

    /// Terminates the process and waits for its end.
    ///
    /// # Errors
    /// The process does not stop within half a minute, or its exit status is not success.
    pub fn stop(mut self) -> Result<()> {
        self.terminate();
        let deadline = Instant::now() + TIMEOUT;
        loop {
            match self.child.try_wait()? {
                Some(status) if status.success() => return Ok(()),
                Some(status) => {
                    return Err(
                        format!("a process stopped with {status}: {}", self.log_tail()).into(),
                    );
                }
                None if Instant::now() > deadline => return Err("a process does not stop".into()),
                None => std::thread::sleep(Duration::from_millis(2)),
            }
        }
    }

    fn terminate(&self) {
        if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            // The process may already have ended.
            let _ = kill_process(pid, Signal::TERM);
        }
    }

    fn log_tail(&self) -> String {
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = log.lines().rev().take(5).collect();
        lines.into_iter().rev().collect::<Vec<_>>().join(" / ")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// Clears the inherited environment except for PATH, HOME and TMPDIR. Variables set on the command stay.
pub fn isolate(command: &mut Command) {
    let given: Vec<_> = command
        .get_envs()
        .filter_map(|(name, value)| Some((name.to_owned(), value?.to_owned())))
        .collect();
    command.env_clear();
    for name in ["PATH", "HOME", "TMPDIR"] {
        if let Some(value) = std::env::var_os(name) {
            command.env(name, value);
        }
    }
    command.envs(given);
}

/// The path of a program in the directory of this one.
///
/// # Errors
/// The program does not exist. The message says how to build it.
pub fn sibling_program(name: &str) -> Result<PathBuf> {
    let own = std::env::current_exe()?;
    let path = own.with_file_name(name);
    if path.is_file() {
        return Ok(path);
    }
    let dir = own.parent().unwrap_or(Path::new("."));
    Err(format!(
        "there is no {name} in {}; build everything first: cargo build --release --workspace",
        dir.display()
    )
    .into())
}

/// An address of this machine with a port that is currently free.
///
/// # Errors
/// An error of the system.
pub fn free_address() -> Result<SocketAddr> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?)
}
