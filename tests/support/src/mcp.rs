//! An MCP client for tests. It starts a gateway on stdio and talks to it.

use std::collections::HashMap;
use std::fs::File;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// Timeout of a call.
const LIMIT: Duration = Duration::from_secs(90);

type Waiting = Arc<Mutex<HashMap<u64, oneshot::Sender<Value>>>>;
type Notifications = Arc<Mutex<Vec<Value>>>;

/// A client with its own `context-gateway stdio` process.
#[derive(Debug)]
pub struct Mcp {
    child: Child,
    stdin: tokio::sync::Mutex<ChildStdin>,
    waiting: Waiting,
    notifications: Notifications,
    next_id: AtomicU64,
    /// Reads the gateway's stdout.
    reader: JoinHandle<()>,
}

impl Mcp {
    /// Starts a gateway from this command, which lacks only the subcommand, and initializes the session.
    ///
    /// # Panics
    /// When it does not speak the protocol revision 2025-11-25.
    pub async fn start(command: Command) -> Self {
        Self::start_with(command, Stdio::null()).await
    }

    /// As [`Mcp::start`], with its stderr in a new file at `log`.
    ///
    /// # Panics
    /// When it does not speak the protocol revision 2025-11-25, or the file cannot be created.
    pub async fn start_logging(command: Command, log: &Path) -> Self {
        let log = File::create(log).expect("a log");
        Self::start_with(command, log.into()).await
    }

    /// As [`Mcp::start`], with this stderr.
    ///
    /// # Panics
    /// As [`Mcp::start`].
    pub async fn start_with(command: Command, stderr: Stdio) -> Self {
        let mut child = tokio::process::Command::from(command)
            .arg("stdio")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(stderr)
            .kill_on_drop(true)
            .spawn()
            .expect("the gateway starts");
        let (stdin, stdout) = (
            child.stdin.take().expect("stdin"),
            child.stdout.take().expect("stdout"),
        );
        let (waiting, notifications) = (Waiting::default(), Notifications::default());
        let reader = tokio::spawn(deliver(
            stdout,
            Arc::clone(&waiting),
            Arc::clone(&notifications),
        ));
        let client = Self {
            child,
            stdin: tokio::sync::Mutex::new(stdin),
            waiting,
            notifications,
            next_id: 1.into(),
            reader,
        };
        let hello = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}});
        let reply = client.request("initialize", hello).await;
        assert_eq!(reply["result"]["protocolVersion"], "2025-11-25", "{reply}");
        client
            .send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}))
            .await;
        client
    }

    async fn send(&self, message: &Value) {
        let mut stdin = self.stdin.lock().await;
        stdin
            .write_all(format!("{message}\n").as_bytes())
            .await
            .expect("the gateway reads");
        stdin.flush().await.expect("the gateway reads");
    }

    /// Sends a request and waits for its reply.
    ///
    /// # Panics
    /// When there is no reply.
    pub async fn request(&self, method: &str, params: Value) -> Value {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let (answer, waiter) = oneshot::channel();
        self.waiting
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(id, answer);
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))
            .await;
        tokio::time::timeout(LIMIT, waiter)
            .await
            .unwrap_or_else(|_| panic!("no reply to {method}"))
            .expect("the gateway runs")
    }

    /// The notifications since the last call of this method.
    #[must_use]
    pub fn notifications(&self) -> Vec<Value> {
        std::mem::take(
            &mut *self
                .notifications
                .lock()
                .unwrap_or_else(PoisonError::into_inner),
        )
    }

    /// Calls a tool and returns the whole reply.
    pub async fn tool(&self, tool: &str, arguments: &Value) -> Value {
        let params = json!({"name": tool, "arguments": arguments});
        self.request("tools/call", params).await
    }

    /// Calls a tool and returns the structured result.
    ///
    /// # Errors
    /// The whole reply as JSON text, if it is an error.
    pub async fn call(&self, tool: &str, arguments: Value) -> Result<Value, String> {
        let reply = self.tool(tool, &arguments).await;
        let result = &reply["result"];
        if result.is_object() && result["isError"] != true {
            Ok(result["structuredContent"].clone())
        } else {
            Err(reply.to_string())
        }
    }

    /// Closes the gateway's stdin, as a client that exits does, and waits for the gateway to end.
    ///
    /// # Panics
    /// When it does not end, or wrote to stdout what is no reply to a request and no notification.
    pub async fn leave(self) -> ExitStatus {
        let Self {
            mut child,
            stdin,
            reader,
            ..
        } = self;
        drop(stdin);
        let status = tokio::time::timeout(LIMIT, child.wait())
            .await
            .expect("the gateway ends with its client")
            .expect("a child");
        tokio::time::timeout(LIMIT, reader)
            .await
            .expect("stdout ends with the gateway")
            .expect("stdout has only replies and notifications");
        status
    }
}

/// Passes each reply to the request with its id, and collects the notifications, until the gateway ends.
async fn deliver(stdout: ChildStdout, waiting: Waiting, notifications: Notifications) {
    // Dropping the senders tells the waiting requests that the gateway has ended, or that this function panics.
    let waiting = Answers(waiting);
    let mut lines = BufReader::new(stdout).lines();
    while let Some(line) = lines.next_line().await.expect("stdout is UTF-8") {
        let message: Value =
            serde_json::from_str(&line).unwrap_or_else(|_| panic!("stdout belongs to MCP: {line}"));
        if message["method"].is_string() {
            notifications
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(message);
            continue;
        }
        let id = message["id"].as_u64().unwrap_or_default();
        let waiter = waiting
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&id);
        let waiter = waiter.unwrap_or_else(|| panic!("a reply to no request: {line}"));
        let _ = waiter.send(message);
    }
}

/// The requests that wait. Clears them when dropped.
struct Answers(Waiting);

impl Drop for Answers {
    fn drop(&mut self) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clear();
    }
}
