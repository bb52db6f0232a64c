//! The attacked service and its callers.

use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use context_test_support::{Home, Process};
use serde_json::{Value, json};

use crate::client::client;
use crate::keys::{key_of, operate};

/// How long a request may take.
const REPLY_WITHIN: Duration = Duration::from_secs(20);

/// Memory that a service of [`Target::with_small_budget`] may use above its idle level, in KiB: the effective budget,
/// which is twice the largest message (64 MiB) and a reserve of 4 MiB, and 64 MiB more.
pub const BOUND_KIB: u64 = (2 * 64 + 4 + 64) * 1024;

/// A service with `AUTH=keys`, the attacker's owner, and another owner whom the attack must not affect.
pub struct Target {
    /// The service's directory and settings.
    pub home: Home,
    /// The process.
    pub service: Process,
    /// A key of owner `attacker` with the scope `read` alone.
    pub read_key: String,
    /// A key of owner `attacker` with the scopes read, write and delete.
    pub write_key: String,
    /// A key of owner `bystander` with the scopes read, write and delete.
    pub bystander_key: String,
    /// The id of an entry that the bystander stored before the attack.
    pub bystander_entry: i64,
}

impl Target {
    /// Starts a service with `AUTH=keys` and these additional settings.
    ///
    /// # Panics
    /// The service does not start.
    pub async fn start(settings: &[(&str, &str)]) -> Self {
        let home = settings
            .iter()
            .fold(Home::new().with("AUTH", "keys"), |home, (name, value)| {
                home.with(name, value)
            });
        let mut service = home.spawn();
        service.listening().await;
        let key = |owner: &str, scopes: &str| create_key(&home, owner, scopes);
        let (read_key, write_key) = (
            key("attacker", "read"),
            key("attacker", "read,write,delete"),
        );
        let bystander_key = key("bystander", "read,write,delete");
        let mut target = Self {
            home,
            service,
            read_key,
            write_key,
            bystander_key,
            bystander_entry: 0,
        };
        let body = json!({"thread_id": "t", "source": "user", "text": "the bystander's entry"});
        let reply = target
            .post("/v1/contexts", &target.bystander_key, &body)
            .await;
        target.bystander_entry = reply.json::<Value>().await.expect("JSON")["context_id"]
            .as_i64()
            .expect("an id");
        target
    }

    /// Like [`start`](Self::start), with the smallest memory budget for requests and replies.
    ///
    /// # Panics
    /// The service does not start.
    pub async fn with_small_budget() -> Self {
        Self::start(&[
            ("CONTEXT_REQUEST_MEMORY_MB", "64"),
            ("MAX_TOTAL_SIZE_MB", "20"),
        ])
        .await
    }

    /// Creates another key over the Unix socket.
    #[must_use]
    pub fn key(&self, owner: &str, scopes: &str) -> String {
        create_key(&self.home, owner, scopes)
    }

    /// Terminates the service with SIGTERM, as an init system does.
    ///
    /// # Panics
    /// The service does not exit with success.
    pub async fn stopped(self) -> Home {
        assert!(self.service.terminate().await.success(), "it exits with 0");
        self.home
    }

    /// Restarts the service. `between` changes its database while it is stopped.
    ///
    /// # Panics
    /// The service does not start.
    pub async fn restarted(self, between: impl FnOnce(&Path)) -> Self {
        let Self {
            home,
            service,
            read_key,
            write_key,
            bystander_key,
            bystander_entry,
        } = self;
        assert!(service.terminate().await.success(), "it exits with 0");
        between(&home.database());
        let mut service = home.spawn();
        service.listening().await;
        Self {
            home,
            service,
            read_key,
            write_key,
            bystander_key,
            bystander_entry,
        }
    }

    /// The address of gRPC and REST.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.service.address()
    }

    /// Posts JSON over REST on a new connection.
    ///
    /// # Panics
    /// There is no reply.
    pub async fn post(&self, path: &str, key: &str, body: &Value) -> reqwest::Response {
        let request = client(REPLY_WITHIN)
            .post(format!("http://{}{path}", self.address()))
            .bearer_auth(key)
            .json(body);
        request.send().await.expect("a reply")
    }

    /// Runs the bystander's get over TCP on a new connection. Returns the status and the duration.
    ///
    /// # Errors
    /// There is no reply within 20 seconds.
    pub async fn bystander_gets(&self) -> Result<(u16, Duration), reqwest::Error> {
        #[expect(clippy::disallowed_methods, reason = "how long another owner waits")]
        let started = Instant::now();
        let url = format!(
            "http://{}/v1/contexts/{}",
            self.address(),
            self.bystander_entry
        );
        let reply = client(REPLY_WITHIN)
            .get(url)
            .bearer_auth(&self.bystander_key)
            .send()
            .await?;
        Ok((reply.status().as_u16(), started.elapsed()))
    }

    /// Asserts that the bystander's get succeeds within 15 seconds.
    ///
    /// # Panics
    /// The get fails, or takes 15 seconds or longer.
    pub async fn assert_bystander_is_served(&self, when: &str) {
        let (status, took) = self
            .bystander_gets()
            .await
            .unwrap_or_else(|error| panic!("{when}: {error}"));
        assert_eq!(status, 200, "{when}");
        assert!(took < Duration::from_secs(15), "{when}: {took:?}");
    }

    /// Anonymous memory of the process in KiB (RssAnon: heap and stacks, without mapped files).
    #[must_use]
    pub fn anonymous_kib(&self) -> u64 {
        self.service.anonymous_kib()
    }
}

/// Creates a key for an owner over the Unix socket, as an operator does.
fn create_key(home: &Home, owner: &str, scopes: &str) -> String {
    let arguments = [
        "keys", "create", "--owner", owner, "--scopes", scopes, "test",
    ];
    key_of(&operate(home, &arguments))
}
