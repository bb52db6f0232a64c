//! A gateway on stdio, spoken to as an MCP client does.

use std::collections::HashMap;
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, ChildStdin};
use tokio::sync::oneshot;

use crate::process::Home;

/// How long a call may take.
const PATIENCE: Duration = Duration::from_secs(90);

type Waiting = Arc<Mutex<HashMap<u64, oneshot::Sender<Value>>>>;

/// A `context-gateway stdio` process.
#[derive(Debug)]
pub struct Gateway {
    child: Child,
    stdin: tokio::sync::Mutex<ChildStdin>,
    waiting: Waiting,
    next_id: std::sync::atomic::AtomicU64,
}

impl Gateway {
    /// Starts one on the database of this directory and shakes hands.
    ///
    /// # Panics
    /// When it does not speak the protocol revision 2025-11-25.
    pub async fn start(home: &Home) -> Self {
        let mut command = tokio::process::Command::from(home.command("context-gateway"));
        command
            .arg("stdio")
            .env_remove("CONTEXT_LISTEN")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut child = command
            .kill_on_drop(true)
            .spawn()
            .expect("the gateway starts");
        let (stdin, stdout) = (
            child.stdin.take().expect("stdin"),
            child.stdout.take().expect("stdout"),
        );
        let waiting = Waiting::default();
        let readers_waiting = Arc::clone(&waiting);
        tokio::spawn(async move {
            let mut lines = BufReader::new(stdout).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                let message: Value = serde_json::from_str(&line)
                    .unwrap_or_else(|_| panic!("stdout belongs to MCP: {line}"));
                let id = message["id"].as_u64().unwrap_or_default();
                let waiter = readers_waiting
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .remove(&id);
                if let Some(waiter) = waiter {
                    let _ = waiter.send(message);
                }
            }
        });
        let gateway = Self {
            child,
            stdin: tokio::sync::Mutex::new(stdin),
            waiting,
            next_id: 1.into(),
        };
        let client = json!({ "name": "faults", "version": "1" });
        let hello =
            json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client });
        let reply = gateway.request("initialize", hello).await;
        assert_eq!(reply["result"]["protocolVersion"], "2025-11-25", "{reply}");
        gateway
            .send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }))
            .await;
        gateway
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
    /// When none comes.
    pub async fn request(&self, method: &str, params: Value) -> Value {
        let id = self
            .next_id
            .fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let (answer, waiter) = oneshot::channel();
        self.waiting
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(id, answer);
        self.send(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }))
            .await;
        tokio::time::timeout(PATIENCE, waiter)
            .await
            .unwrap_or_else(|_| panic!("no reply to {method}"))
            .expect("the gateway runs")
    }

    /// Calls a tool. Gives the structured result, or the error's text.
    ///
    /// # Errors
    /// What the gateway says.
    pub async fn call(&self, tool: &str, arguments: Value) -> Result<Value, String> {
        let reply = self
            .request(
                "tools/call",
                json!({ "name": tool, "arguments": arguments }),
            )
            .await;
        let result = &reply["result"];
        if result.is_object() && result["isError"] != true {
            Ok(result["structuredContent"].clone())
        } else {
            Err(reply.to_string())
        }
    }

    /// Closes its stdin, as a client does that ends, and waits for its end.
    ///
    /// # Panics
    /// When it does not end.
    pub async fn leave(self) -> std::process::ExitStatus {
        let Self {
            mut child, stdin, ..
        } = self;
        drop(stdin);
        tokio::time::timeout(PATIENCE, child.wait())
            .await
            .expect("the gateway ends with its client")
            .expect("a child")
    }
}
