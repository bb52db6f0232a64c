//! A PgBouncer in front of the tests' server.

use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use context_test_support::{Deadline, end_with_test};
use rustix::process::Signal;
use tokio_postgres::NoTls;

use crate::server::{command_at, free_port, hand_over};

/// The PgBouncer programs in `CONTEXT_TEST_PGBOUNCER`, separated by colons. `scripts/test` sets the variable. Without a
/// program this prints that the test is skipped.
#[must_use]
pub fn pgbouncers() -> Vec<PathBuf> {
    let found: Vec<PathBuf> = crate::variable("CONTEXT_TEST_PGBOUNCER")
        .iter()
        .flat_map(std::env::split_paths)
        .collect();
    if found.is_empty() {
        eprintln!(
            "SKIPPED: there is no PgBouncer; set CONTEXT_TEST_PGBOUNCER, or run scripts/test"
        );
    }
    found
}

/// A PgBouncer in transaction mode. It is terminated when this value is dropped or the test ends.
#[derive(Debug)]
pub struct PgBouncer {
    port: u16,
    version: (u32, u32),
    child: Child,
    home: tempfile::TempDir,
}

impl PgBouncer {
    /// Starts this program in front of the server with this URL. It has three connections to the server, so clients
    /// share them. Prepared statements are on if the version supports them.
    ///
    /// # Panics
    /// When it does not start.
    pub async fn start(program: &Path, url: &str) -> Self {
        let version = version(program);
        let server: tokio_postgres::Config =
            url.parse().expect("the tests' server has a proper URL");
        let host = match server.get_hosts() {
            [tokio_postgres::config::Host::Tcp(host), ..] => host.clone(),
            _ => "127.0.0.1".to_owned(),
        };
        let server_port = server.get_ports().first().copied().unwrap_or(5432);
        let user = server.get_user().unwrap_or("postgres");
        let password = server
            .get_password()
            .map(|password| format!(" password={}", String::from_utf8_lossy(password)));
        let port = free_port();
        let prepared = if version >= (1, 21) {
            "max_prepared_statements = 200\n"
        } else {
            ""
        };
        let settings = format!(
            "[databases]\n* = host={host} port={server_port} user={user}{}\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\n\
             unix_socket_dir =\nauth_type = any\npool_mode = transaction\ndefault_pool_size = 3\nmax_client_conn = 200\n{prepared}",
            password.unwrap_or_default()
        );
        let home = tempfile::Builder::new()
            .prefix("context-pgbouncer")
            .tempdir()
            .expect("a temporary directory");
        let file = home.path().join("pgbouncer.ini");
        std::fs::write(&file, settings).expect("its settings");
        hand_over(home.path());
        let log = std::fs::File::create(home.path().join("log")).expect("a log");
        let mut command = command_at(program);
        command
            .arg(&file)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log);
        end_with_test(&mut command, Signal::QUIT);
        let child = command.spawn().expect("PgBouncer starts");
        let mut started = Self {
            port,
            version,
            child,
            home,
        };
        let deadline = Deadline::new();
        while tokio_postgres::connect(&started.url(url), NoTls)
            .await
            .is_err()
        {
            let ended = started.child.try_wait().expect("a child");
            let log = || std::fs::read_to_string(started.home.path().join("log"));
            let what = || format!("PgBouncer does not respond: {}", log().unwrap_or_default());
            assert!(ended.is_none(), "{}", what());
            deadline.pause(what).await;
        }
        started
    }

    /// The URL that reaches the database of this URL through the PgBouncer.
    #[must_use]
    pub fn url(&self, url: &str) -> String {
        let database = url.rsplit('/').next().unwrap_or_default();
        format!("postgres://postgres@127.0.0.1:{}/{database}", self.port)
    }

    /// Whether it supports prepared statements across connections to the server.
    #[must_use]
    pub fn carries_prepared_statements(&self) -> bool {
        self.version >= (1, 21)
    }

    /// Its version, for messages.
    #[must_use]
    pub fn version(&self) -> String {
        format!("{}.{}", self.version.0, self.version.1)
    }
}

impl Drop for PgBouncer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn version(program: &Path) -> (u32, u32) {
    let output = command_at(program)
        .arg("--version")
        .output()
        .unwrap_or_else(|error| panic!("{}: {error}", program.display()));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut numbers = text
        .split(|c: char| !c.is_ascii_digit())
        .filter_map(|number| number.parse().ok());
    (
        numbers.next().expect("a version"),
        numbers.next().expect("a version"),
    )
}
