//! The stdio client of the benchmarks.

use std::process::Stdio as Pipe;

use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use crate::Result;

/// An MCP server that runs as a child process, as MCP clients start it.
pub struct Stdio {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Stdio {
    /// Starts the server and initializes the session.
    ///
    /// # Errors
    /// The server cannot be started, or ends before it has replied.
    pub async fn start(command: std::process::Command) -> Result<Self> {
        let mut command = Command::from(command);
        let mut child = command
            .stdin(Pipe::piped())
            .stdout(Pipe::piped())
            .stderr(Pipe::null())
            .kill_on_drop(true)
            .spawn()?;
        let (input, output) = (
            child.stdin.take().ok_or("no stdin")?,
            child.stdout.take().ok_or("no stdout")?,
        );
        let mut stdio = Self {
            child,
            input,
            output: BufReader::with_capacity(1 << 20, output),
        };
        let initialize = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
            "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "context-bench", "version": "1"}}});
        stdio.send(&format!("{initialize}\n")).await?;
        stdio
            .input
            .write_all(b"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}\n")
            .await?;
        Ok(stdio)
    }

    /// The process id.
    pub fn id(&self) -> u32 {
        self.child.id().unwrap_or(0)
    }

    /// Sends a line and returns the next line that is a reply. Notifications are skipped.
    ///
    /// # Errors
    /// The server has ended.
    pub async fn send(&mut self, line: &str) -> Result<Vec<u8>> {
        self.input.write_all(line.as_bytes()).await?;
        loop {
            let mut reply = Vec::new();
            if self.output.read_until(b'\n', &mut reply).await? == 0 {
                return Err("the server closed its stdout".into());
            }
            if !reply.starts_with(b"{\"jsonrpc\":\"2.0\",\"method\"") {
                return Ok(reply);
            }
        }
    }
}
