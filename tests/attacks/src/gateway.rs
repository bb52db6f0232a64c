//! A gateway under attack.

use std::fs::File;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use context_faults::process::wait_for;

/// An HTTP gateway as a process of its own; killed when dropped.
pub struct HttpGateway {
    child: Child,
    log: PathBuf,
}

impl HttpGateway {
    /// Starts one by this command, which lacks only the subcommand, with its log at `log`.
    ///
    /// # Panics
    /// When it does not listen within a minute.
    pub async fn start(mut command: Command, log: PathBuf) -> Self {
        let file = File::create(&log).expect("a log");
        command
            .env("GATEWAY_LISTEN", "127.0.0.1:0")
            .arg("http")
            .stdout(Stdio::null())
            .stderr(file);
        let gateway = Self {
            child: command.spawn().expect("the gateway starts"),
            log,
        };
        wait_for("the gateway listens", || gateway.find_address()).await;
        gateway
    }

    fn find_address(&self) -> Option<SocketAddr> {
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        log.split("listens on http://")
            .nth(1)?
            .split('/')
            .next()?
            .parse()
            .ok()
    }

    /// Where it listens.
    ///
    /// # Panics
    /// Never: it was found at the start.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.find_address().expect("it listens")
    }

    /// KiB of anonymous memory that it holds.
    #[must_use]
    pub fn anonymous_kib(&self) -> u64 {
        anonymous_kib(self.child.id())
    }
}

impl Drop for HttpGateway {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// KiB of anonymous memory (heap and stacks) that a process holds.
///
/// # Panics
/// When there is no such process.
#[must_use]
pub fn anonymous_kib(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("a process");
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("RssAnon:"))
        .expect("RssAnon");
    line.trim().trim_end_matches(" kB").parse().expect("a size")
}

/// Watches a value until `done` is true, and gives the largest that was seen.
pub async fn highest(mut value: impl FnMut() -> u64, mut done: impl FnMut() -> bool) -> u64 {
    let mut highest = value();
    while !done() {
        tokio::time::sleep(Duration::from_millis(10)).await;
        highest = highest.max(value());
    }
    highest.max(value())
}
