//! PostgreSQL servers that belong to one test. Such a server can be stopped or replaced by a standby without affecting
//! other tests.

use std::fs::File;
use std::net::TcpListener;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use context_test_support::{Deadline, end_with_test};
use rustix::process::{Pid, Signal};
use tokio_postgres::NoTls;

use crate::Client;

/// The user `nobody`, because PostgreSQL refuses to run as root.
const NOBODY: u32 = 65534;
/// Settings for a small and fast server. Its data need not survive a crash of the machine.
const SETTINGS: [&str; 7] = [
    "fsync=off",
    "shared_buffers=16MB",
    "max_connections=100",
    "wal_level=replica",
    "max_wal_senders=4",
    "wal_retrieve_retry_interval=100ms",
    "unix_socket_directories=",
];

/// The directory of PostgreSQL's programs: `CONTEXT_TEST_POSTGRES_BIN`, which `scripts/test` sets.
///
/// # Panics
/// When there are none and `CI` is set.
#[must_use]
pub fn programs() -> Option<PathBuf> {
    let found = std::env::var_os("CONTEXT_TEST_POSTGRES_BIN")
        .map(PathBuf::from)
        .filter(|path| path.join("pg_basebackup").exists());
    if found.is_none() {
        assert!(
            crate::variable("CI").is_none(),
            "there are no PostgreSQL programs; set CONTEXT_TEST_POSTGRES_BIN, or run scripts/test"
        );
        eprintln!(
            "SKIPPED: there are no PostgreSQL programs; set CONTEXT_TEST_POSTGRES_BIN, or run scripts/test"
        );
    }
    found
}

/// Number of standbys so far, for the names of their directories.
static STANDBYS: AtomicUsize = AtomicUsize::new(0);

/// A server process with its own data. It is terminated when this value is dropped or the test ends.
#[derive(Debug)]
pub struct Server {
    programs: PathBuf,
    home: Arc<tempfile::TempDir>,
    data: PathBuf,
    port: u16,
    child: Child,
}

impl Server {
    /// Starts a new server with an empty database `postgres`.
    ///
    /// # Panics
    /// When it does not start.
    pub async fn start(programs: &Path) -> Self {
        let home = tempfile::Builder::new()
            .prefix("context-postgres")
            .tempdir()
            .expect("a temporary directory");
        hand_over(home.path());
        let data = home.path().join("primary");
        let mut initdb = command(programs, "initdb");
        initdb.arg("-D").arg(&data).args([
            "-U",
            "postgres",
            "-A",
            "trust",
            "-E",
            "UTF8",
            "--locale=C",
            "--no-sync",
        ]);
        run(initdb);
        Self::serve(programs.to_owned(), Arc::new(home), data, free_port()).await
    }

    /// Starts an asynchronous standby of this server: it receives commits after they are acknowledged.
    ///
    /// # Panics
    /// When it does not start.
    pub async fn standby(&self) -> Self {
        let number = STANDBYS.fetch_add(1, Ordering::SeqCst);
        let data = self.home.path().join(format!("standby{number}"));
        let mut copy = command(&self.programs, "pg_basebackup");
        copy.arg("-D").arg(&data).args([
            "-R",
            "-X",
            "stream",
            "-c",
            "fast",
            "--no-sync",
            "-d",
            &self.parameters(),
        ]);
        run(copy);
        Self::serve(
            self.programs.clone(),
            Arc::clone(&self.home),
            data,
            free_port(),
        )
        .await
    }

    /// Starts a synchronous standby of this server. From now on, this server acknowledges a commit only after the
    /// standby has received it.
    ///
    /// # Panics
    /// When it does not start or does not become synchronous.
    pub async fn synchronous_standby(&self) -> Self {
        let standby = self.standby().await;
        let client = self.connect().await;
        client
            .batch_execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
            .await
            .expect("the server takes settings");
        client
            .batch_execute("SELECT pg_reload_conf()")
            .await
            .expect("the server reads its settings");
        let synchronous = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'";
        let deadline = Deadline::new();
        while client
            .query_one(synchronous, &[])
            .await
            .expect("the server responds")
            .get::<_, i64>(0)
            == 0
        {
            let what = || format!("the standby does not keep up: {}", standby.log());
            deadline.pause(what).await;
        }
        standby
    }

    async fn serve(
        programs: PathBuf,
        home: Arc<tempfile::TempDir>,
        data: PathBuf,
        port: u16,
    ) -> Self {
        let child = spawn(&programs, &data, port);
        let mut server = Self {
            programs,
            home,
            data,
            port,
            child,
        };
        server.wait_until_it_responds().await;
        server
    }

    async fn wait_until_it_responds(&mut self) {
        let deadline = Deadline::new();
        while tokio_postgres::connect(&self.url(), NoTls).await.is_err() {
            let ended = self.child.try_wait().expect("a child");
            let what = || format!("the server does not respond: {}", self.log());
            assert!(ended.is_none(), "{}", what());
            deadline.pause(what).await;
        }
    }

    /// The URL of the server.
    #[must_use]
    pub fn url(&self) -> String {
        format!("postgres://postgres@127.0.0.1:{}/postgres", self.port)
    }

    /// Its address: host and port.
    #[must_use]
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    fn parameters(&self) -> String {
        format!("host=127.0.0.1 port={} user=postgres", self.port)
    }

    /// A connection to it.
    ///
    /// # Panics
    /// When it cannot be reached.
    pub async fn connect(&self) -> Client {
        crate::connect(&self.url()).await
    }

    /// Stops the server without a shutdown, like a crash: connections break and transactions are lost. Waits until the
    /// process has ended.
    ///
    /// # Panics
    /// When it does not end.
    pub async fn crash(&mut self) {
        self.end(Signal::QUIT).await;
    }

    /// Stops the server and starts it again at the same address. Without a shutdown it recovers like after a crash.
    ///
    /// # Panics
    /// When it does not stop or start.
    pub async fn restart(&mut self, shuts_down: bool) {
        self.end(if shuts_down {
            Signal::INT
        } else {
            Signal::QUIT
        })
        .await;
        self.child = spawn(&self.programs, &self.data, self.port);
        self.wait_until_it_responds().await;
    }

    async fn end(&mut self, signal: Signal) {
        rustix::process::kill_process(Pid::from_child(&self.child), signal)
            .expect("the server runs");
        let deadline = Deadline::new();
        while self.child.try_wait().expect("a child").is_none() {
            let what = || format!("the server does not stop: {}", self.log());
            deadline.pause(what).await;
        }
    }

    /// Ends the replication of a standby: what the primary commits from now on is lost when the standby takes over.
    ///
    /// # Panics
    /// When it does not end.
    pub async fn detach(&self) {
        let client = self.connect().await;
        for statement in [
            "ALTER SYSTEM SET primary_conninfo = ''",
            "SELECT pg_reload_conf()",
        ] {
            client
                .batch_execute(statement)
                .await
                .expect("the standby takes settings");
        }
        let deadline = Deadline::new();
        let receivers = "SELECT count(*) FROM pg_stat_wal_receiver";
        while client
            .query_one(receivers, &[])
            .await
            .expect("the standby responds")
            .get::<_, i64>(0)
            > 0
        {
            let what = || format!("the standby still receives: {}", self.log());
            deadline.pause(what).await;
        }
    }

    /// Waits until this standby has replayed everything that the primary has now.
    ///
    /// # Panics
    /// When it does not keep up.
    pub async fn wait_for_replay(&self, primary: &Self) {
        let position = "SELECT pg_current_wal_lsn()::text";
        let row = primary.connect().await.query_one(position, &[]).await;
        let position: String = row.expect("the primary responds").get(0);
        let client = self.connect().await;
        let reached = "SELECT pg_last_wal_replay_lsn() >= $1::text::pg_lsn";
        let deadline = Deadline::new();
        while !client
            .query_one(reached, &[&position])
            .await
            .expect("the standby responds")
            .get::<_, bool>(0)
        {
            let what = || format!("the standby does not keep up: {}", self.log());
            deadline.pause(what).await;
        }
    }

    /// Promotes a standby, and waits until it is the primary.
    ///
    /// # Panics
    /// When it does not become one.
    pub async fn promote(&self) {
        let promoted = self
            .connect()
            .await
            .query_one("SELECT pg_promote()", &[])
            .await
            .expect("the standby responds");
        assert!(
            promoted.get::<_, bool>(0),
            "the standby was not promoted: {}",
            self.log()
        );
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.data.with_extension("log")).unwrap_or_default()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = rustix::process::kill_process(Pid::from_child(&self.child), Signal::QUIT);
        let _ = self.child.wait();
        // A test may use many servers one after the other.
        let _ = std::fs::remove_dir_all(&self.data);
    }
}

fn spawn(programs: &Path, data: &Path, port: u16) -> Child {
    let mut postgres = command(programs, "postgres");
    postgres
        .arg("-D")
        .arg(data)
        .args(["-h", "127.0.0.1", "-p", &port.to_string()]);
    for setting in SETTINGS {
        postgres.args(["-c", setting]);
    }
    let log = File::create(data.with_extension("log")).expect("a log");
    postgres
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log);
    end_with_test(&mut postgres, Signal::QUIT);
    postgres.spawn().expect("the server starts")
}

/// A port that is currently free, for programs that do not choose one themselves.
pub(crate) fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0")
        .and_then(|socket| socket.local_addr())
        .expect("a free port")
        .port()
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Makes the user that runs the server the owner of a directory.
pub(crate) fn hand_over(directory: &Path) {
    if is_root() {
        std::os::unix::fs::chown(directory, Some(NOBODY), Some(NOBODY))
            .expect("root may change the owner");
    }
}

fn command(programs: &Path, name: &str) -> Command {
    command_at(&programs.join(name))
}

/// The command of a program, which runs as a user that is allowed to run a server.
pub(crate) fn command_at(program: &Path) -> Command {
    let mut command = Command::new(program);
    command
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .current_dir("/");
    if is_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
    command
}

fn run(mut command: Command) {
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(
        output.status.success(),
        "{command:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
}
