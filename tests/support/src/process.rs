//! The real binaries as child processes. None outlives its test.

use std::net::SocketAddr;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};

use context_proto::v1::GetStatisticsRequest;
use rustix::process::{Pid, Signal};
use tokio::time::timeout;

use crate::binary::binary;
use crate::grpc;
use crate::wait::{Deadline, LIMIT, wait_for};

/// What a service and a gateway print when they listen, and the last text of each announcement, which shows that it is
/// complete.
const ANNOUNCEMENTS: [(&str, &str); 2] = [("is ready", "\n"), ("listens on", "/mcp")];
/// The text before the address in each announcement.
const ADDRESSES: [&str; 2] = ["REST      http://", "listens on http://"];

/// A service, or a gateway over HTTP. It is killed when dropped.
#[derive(Debug)]
pub struct Process {
    child: Child,
    socket: PathBuf,
    log: PathBuf,
}

impl Process {
    pub(crate) const fn new(child: Child, socket: PathBuf, log: PathBuf) -> Self {
        Self { child, socket, log }
    }

    /// Waits until the service responds on its socket.
    ///
    /// # Panics
    /// When it ends instead, or does not respond within a minute. The message has its log.
    pub async fn ready(&mut self) {
        self.listening().await;
        let deadline = Deadline::new();
        let mut client = grpc::contexts(grpc::at_socket(&self.socket));
        let request = || GetStatisticsRequest { min_revision: None };
        // The timeout is for a service that accepts the call and never responds.
        while !matches!(
            timeout(LIMIT, client.get_statistics(request())).await,
            Ok(Ok(_))
        ) {
            self.assert_runs();
            let what = || format!("the service does not respond:\n{}", self.log());
            deadline.pause(what).await;
        }
    }

    /// Waits until the process prints that it listens. With authentication on, a test without a key can check nothing
    /// else.
    ///
    /// # Panics
    /// When it ends instead. The message has its log.
    pub async fn listening(&mut self) {
        let deadline = Deadline::new();
        while !self.listens() {
            self.assert_runs();
            let what = || format!("the process does not start:\n{}", self.log());
            deadline.pause(what).await;
        }
    }

    fn assert_runs(&mut self) {
        if let Some(status) = self.child.try_wait().expect("a child") {
            panic!("the process ended with {status}:\n{}", self.log());
        }
    }

    fn listens(&self) -> bool {
        let log = self.log();
        let mut announced = ANNOUNCEMENTS.iter().filter_map(|(words, end)| {
            let (_, rest) = log.split_once(words)?;
            Some(rest.contains(end))
        });
        announced.any(|is_whole| is_whole)
    }

    /// Its stderr so far.
    #[must_use]
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// The address that it prints when it listens.
    ///
    /// # Panics
    /// Before it has printed the address.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        let log = self.log();
        let mut shown = ADDRESSES.iter().filter_map(|words| log.split_once(words));
        let address = shown.next().and_then(|(_, rest)| rest.split('/').next());
        address
            .and_then(|address| address.parse().ok())
            .unwrap_or_else(|| panic!("no address in the log:\n{log}"))
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Kills it with SIGKILL, and waits for its end.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Whether it still runs.
    ///
    /// # Panics
    /// Never: it is a child.
    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("a child").is_none()
    }

    /// Sends SIGTERM, as an init system does.
    ///
    /// # Panics
    /// When it has ended and its end has been waited for.
    pub fn stop(&self) {
        rustix::process::kill_process(self.pid(), Signal::TERM).expect("the process runs");
    }

    /// Sends SIGTERM and waits for its end.
    pub async fn terminate(mut self) -> ExitStatus {
        self.stop();
        self.ended().await
    }

    /// Waits for its end.
    pub async fn ended(&mut self) -> ExitStatus {
        wait_for("the process ends", || {
            self.child.try_wait().expect("a child")
        })
        .await
    }

    /// Its resident memory in KiB.
    #[must_use]
    pub fn resident_kib(&self) -> u64 {
        status_kib(self.child.id(), "VmRSS:")
    }

    /// Its anonymous memory (heap and stacks) in KiB, without pages of mapped files.
    #[must_use]
    pub fn anonymous_kib(&self) -> u64 {
        anonymous_kib(self.child.id())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Makes the command's process receive this signal when the test ends, also when it panics or is killed. The signal is
/// set after [`Command`] has changed the user, which would undo it (prctl(2), PR_SET_PDEATHSIG).
pub fn end_with_test(command: &mut Command, signal: Signal) {
    // SAFETY: prctl is one system call, allocates nothing and takes no lock.
    unsafe {
        command.pre_exec(move || {
            Ok(rustix::process::set_parent_process_death_signal(Some(
                signal,
            ))?)
        });
    }
}

/// The anonymous memory (heap and stacks) of any process in KiB.
///
/// # Panics
/// When the process does not exist.
#[must_use]
pub fn anonymous_kib(pid: u32) -> u64 {
    status_kib(pid, "RssAnon:")
}

/// A value of /proc/PID/status (see proc(5)).
fn status_kib(pid: u32, name: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("a process");
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let size = line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok());
    size.unwrap_or_else(|| panic!("no {name} in {status}"))
}

/// The processes that run this workspace's `context-service` on this database, however they were started.
///
/// # Panics
/// Without /proc, or when the binary was not built.
#[must_use]
pub fn services_of(database: &Path) -> Vec<Pid> {
    let mut needle = b"DB_PATH=".to_vec();
    needle.extend_from_slice(database.as_os_str().as_encoded_bytes());
    // The link in /proc has no symbolic links, unlike a path from `CONTEXT_TEST_BIN`.
    let service = binary("context-service").canonicalize();
    let service = service.expect("the path of the service");
    let mut found = Vec::new();
    for process in std::fs::read_dir("/proc").expect("/proc").flatten() {
        let Some(pid) = process
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok())
            .and_then(Pid::from_raw)
        else {
            continue;
        };
        // A process that has ended meanwhile has neither of these.
        let is_service =
            std::fs::read_link(process.path().join("exe")).is_ok_and(|exe| exe == service);
        let environment = std::fs::read(process.path().join("environ")).unwrap_or_default();
        if is_service
            && environment
                .split(|byte| *byte == 0)
                .any(|variable| variable == needle)
        {
            found.push(pid);
        }
    }
    found
}

/// Ends the services of a database that are not children of the test, because a gateway started them.
#[derive(Debug)]
pub struct Sweep(pub PathBuf);

impl Drop for Sweep {
    fn drop(&mut self) {
        for pid in services_of(&self.0) {
            let _ = rustix::process::kill_process(pid, Signal::KILL);
        }
    }
}
