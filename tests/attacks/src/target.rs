//! A service under attack, and who may call it.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use context_faults::process::{Home, Service};
use serde_json::{Value, json};

/// A service with `AUTH=keys`, the attacker's owner and another owner, whom the attack must not touch.
pub struct Target {
    /// Its directory and settings.
    pub home: Home,
    /// The process.
    pub service: Service,
    /// A key of owner `attacker` with the scope `read` alone.
    pub read_key: String,
    /// A key of owner `attacker` with read, write and delete.
    pub write_key: String,
    /// A key of owner `bystander` with read, write and delete.
    pub bystander_key: String,
    /// The id of an entry that the bystander stored before the attack.
    pub bystander_entry: i64,
}

impl Target {
    /// Starts a service with these settings besides `AUTH=keys`.
    ///
    /// # Panics
    /// When it does not start.
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

    /// Makes another key, over the Unix socket.
    #[must_use]
    pub fn key(&self, owner: &str, scopes: &str) -> String {
        create_key(&self.home, owner, scopes)
    }

    /// Ends the service as an init system does.
    ///
    /// # Panics
    /// When it does not end well.
    pub async fn stopped(self) -> Home {
        assert!(self.service.terminate().await.success(), "it ends well");
        self.home
    }

    /// The same with the service stopped and started again, and something done to its database in between.
    ///
    /// # Panics
    /// When it does not start.
    pub async fn restarted(self, between: impl FnOnce(&Path)) -> Self {
        let Self {
            home,
            service,
            read_key,
            write_key,
            bystander_key,
            bystander_entry,
        } = self;
        assert!(service.terminate().await.success(), "it ends well");
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

    /// Posts JSON over REST, on a connection of its own.
    ///
    /// # Panics
    /// When there is no reply.
    pub async fn post(&self, path: &str, key: &str, body: &Value) -> reqwest::Response {
        let request = client()
            .post(format!("http://{}{path}", self.address()))
            .bearer_auth(key)
            .json(body);
        request.send().await.expect("a reply")
    }

    /// The bystander's get over TCP, on a connection of its own: what it was answered, and how long that took.
    ///
    /// # Errors
    /// When there is no reply within 20 seconds.
    pub async fn bystander_gets(&self) -> Result<(u16, Duration), reqwest::Error> {
        let started = Instant::now();
        let url = format!(
            "http://{}/v1/contexts/{}",
            self.address(),
            self.bystander_entry
        );
        let reply = client()
            .get(url)
            .bearer_auth(&self.bystander_key)
            .send()
            .await?;
        Ok((reply.status().as_u16(), started.elapsed()))
    }

    /// Asserts that the bystander's get is answered, neither refused nor timed out.
    ///
    /// # Panics
    /// When it is not.
    pub async fn assert_bystander_is_served(&self, when: &str) {
        let (status, took) = self
            .bystander_gets()
            .await
            .unwrap_or_else(|error| panic!("{when}: {error}"));
        assert_eq!(status, 200, "{when}");
        assert!(took < Duration::from_secs(15), "{when}: {took:?}");
    }

    /// KiB of anonymous memory that the process holds (RssAnon: heap and stacks, without mapped files).
    #[must_use]
    pub fn anonymous_kib(&self) -> u64 {
        self.service.anonymous_kb()
    }
}

/// Makes a key for an owner over the Unix socket, as an operator does.
fn create_key(home: &Home, owner: &str, scopes: &str) -> String {
    let mut command: Command = home.command("context-service");
    let output = command
        .args([
            "keys", "create", "--owner", owner, "--scopes", scopes, "test",
        ])
        .output()
        .expect("the command runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.split_whitespace()
        .find(|word| word.starts_with("sk_prod_"))
        .unwrap_or_else(|| panic!("{text}{}", String::from_utf8_lossy(&output.stderr)))
        .to_owned()
}

fn client() -> reqwest::Client {
    reqwest::Client::builder()
        .timeout(Duration::from_secs(20))
        .no_proxy()
        .build()
        .expect("a client")
}
