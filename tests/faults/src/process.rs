//! The real binaries as child processes, each with a directory of its own; none outlives its test.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

use crate::door::{Door as _, Grpc};

/// How long anything may take that should take a moment. A loaded machine is slow; a minute is a defect.
const PATIENCE: Duration = Duration::from_secs(60);
/// How often a condition is looked at.
const POLL: Duration = Duration::from_millis(5);

/// A binary of the workspace, in `CONTEXT_TEST_BIN`, else beside this test's own target directory.
///
/// # Panics
/// When it was not built, with the command that builds it.
#[must_use]
pub fn binary(name: &str) -> PathBuf {
    if let Some(directory) = std::env::var_os("CONTEXT_TEST_BIN") {
        return Path::new(&directory).join(name);
    }
    let test = std::env::current_exe().expect("the path of this test");
    // target/<profile>/deps/<test>
    let profile = test
        .parent()
        .and_then(Path::parent)
        .expect("a target directory");
    let path = profile.join(name);
    assert!(
        path.exists(),
        "{} is missing; build it first: cargo build --workspace",
        path.display()
    );
    path
}

/// Waits until `ready` gives something.
///
/// # Panics
/// When it does not within a minute.
pub async fn wait_for<T>(what: &str, mut ready: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = ready() {
            return found;
        }
        assert!(Instant::now() < deadline, "{what}: not within a minute");
        tokio::time::sleep(POLL).await;
    }
}

/// A directory with a database, and the settings of the services that serve it.
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
    /// A new one, in the directory for temporary files.
    ///
    /// # Panics
    /// When there is no room for it.
    #[must_use]
    pub fn new() -> Self {
        let directory = tempfile::Builder::new()
            .prefix("faults")
            .tempdir()
            .expect("a temporary directory");
        Self {
            directory,
            settings: Vec::new(),
        }
    }

    /// The same with a setting for every binary started here.
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

    /// The socket of its service.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.path().join("service.sock")
    }

    /// A command with these settings and nothing of the environment of whoever runs the tests. Its process dies with
    /// the test, however that ends.
    #[must_use]
    pub fn command(&self, name: &str) -> Command {
        self.command_at(&binary(name))
    }

    /// The same for any program.
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
            .envs(self.settings.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null());
        // SAFETY: prctl is one system call, allocates nothing and takes no lock.
        unsafe {
            command.pre_exec(|| {
                Ok(rustix::process::set_parent_process_death_signal(Some(
                    Signal::KILL,
                ))?)
            });
        }
        command
    }

    /// Starts a service, without waiting for it.
    ///
    /// # Panics
    /// When it does not start.
    #[must_use]
    pub fn spawn(&self) -> Service {
        self.spawn_as(self.command("context-service"))
    }

    /// Starts a service by this command, which becomes it.
    ///
    /// # Panics
    /// When it does not start.
    #[must_use]
    pub fn spawn_as(&self, mut command: Command) -> Service {
        let log = self.path().join(format!(
            "service-{}.log",
            LOGS.fetch_add(1, std::sync::atomic::Ordering::Relaxed)
        ));
        let file = File::create(&log).expect("a log");
        let child = command
            .stdout(Stdio::null())
            .stderr(file)
            .spawn()
            .expect("the service starts");
        Service {
            child,
            socket: self.socket(),
            log,
        }
    }

    /// Starts a service and waits until it answers.
    pub async fn start(&self) -> Service {
        let mut service = self.spawn();
        service.ready().await;
        service
    }

    /// A gRPC door to whatever service answers on the socket.
    #[must_use]
    pub fn door(&self) -> Grpc {
        Grpc::at(&self.socket())
    }
}

static LOGS: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);

/// A service process; killed when dropped.
#[derive(Debug)]
pub struct Service {
    child: Child,
    socket: PathBuf,
    log: PathBuf,
}

impl Service {
    /// Waits until it answers.
    ///
    /// # Panics
    /// When it ends instead, with its log.
    pub async fn ready(&mut self) {
        let deadline = Instant::now() + PATIENCE;
        while !self.has_banner() || Grpc::at(&self.socket).statistics().await.is_err() {
            if let Some(status) = self.child.try_wait().expect("a child") {
                panic!("the service ended with {status}:\n{}", self.log());
            }
            assert!(
                Instant::now() < deadline,
                "the service does not answer:\n{}",
                self.log()
            );
            tokio::time::sleep(POLL).await;
        }
    }

    /// Waits until it says that it is ready. With authentication on that is all it says without a key.
    ///
    /// # Panics
    /// When it ends instead, with its log.
    pub async fn listening(&mut self) {
        let deadline = Instant::now() + PATIENCE;
        while !self.has_banner() {
            if let Some(status) = self.child.try_wait().expect("a child") {
                panic!("the service ended with {status}:\n{}", self.log());
            }
            assert!(
                Instant::now() < deadline,
                "the service does not start:\n{}",
                self.log()
            );
            tokio::time::sleep(POLL).await;
        }
    }

    fn has_banner(&self) -> bool {
        self.log().contains("is ready")
    }

    /// What it wrote to stderr.
    #[must_use]
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Its address, as the banner shows it.
    ///
    /// # Panics
    /// Before the banner.
    #[must_use]
    pub fn address(&self) -> std::net::SocketAddr {
        let log = self.log();
        let address = log
            .split("http://")
            .nth(1)
            .and_then(|rest| rest.split(['/', ' ', '\n']).next());
        address
            .and_then(|address| address.parse().ok())
            .unwrap_or_else(|| panic!("no address in the banner:\n{log}"))
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Kills it as `kill -9` does, and waits for its end.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Whether it still runs.
    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("a child").is_none()
    }

    /// Asks it to stop, as an init system does, and waits for its end.
    pub async fn terminate(mut self) -> ExitStatus {
        rustix::process::kill_process(self.pid(), Signal::TERM).expect("the service runs");
        self.ended().await
    }

    /// Waits for its end.
    pub async fn ended(&mut self) -> ExitStatus {
        wait_for("the service ends", || {
            self.child.try_wait().expect("a child")
        })
        .await
    }

    /// Kilobytes of memory it has in use now.
    #[must_use]
    pub fn resident_kb(&self) -> u64 {
        self.status_kb("VmRSS:")
    }

    /// Kilobytes of anonymous memory (heap and stacks) it has in use now, without pages of mapped files.
    #[must_use]
    pub fn anonymous_kb(&self) -> u64 {
        self.status_kb("RssAnon:")
    }

    /// A line of proc(5), status.
    fn status_kb(&self, name: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()))
            .unwrap_or_default();
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix(name))
            .unwrap_or_default();
        line.trim()
            .trim_end_matches(" kB")
            .parse()
            .expect("a size in /proc")
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The processes that run this workspace's `context-service` on this database, however they were started.
#[must_use]
pub fn services_of(database: &Path) -> Vec<Pid> {
    let mut needle = b"DB_PATH=".to_vec();
    needle.extend_from_slice(database.as_os_str().as_encoded_bytes());
    let service = binary("context-service");
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
        // A process that ends while we look has neither.
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

/// Ends the services of a database that nobody holds as a child: those that a gateway started.
#[derive(Debug)]
pub struct Sweep(pub PathBuf);

impl Drop for Sweep {
    fn drop(&mut self) {
        for pid in services_of(&self.0) {
            let _ = rustix::process::kill_process(pid, Signal::KILL);
        }
    }
}
