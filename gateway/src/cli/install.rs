//! The arguments of `install`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// The clients that `install` can configure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Client {
    /// Claude Code
    Claude,
    /// Claude Desktop
    ClaudeDesktop,
    /// Codex
    Codex,
    /// GitHub Copilot CLI
    Copilot,
    /// Cursor
    Cursor,
    /// Gemini CLI
    Gemini,
    /// Visual Studio Code
    Vscode,
    /// Windsurf
    Windsurf,
    /// Zed
    Zed,
}

impl Client {
    /// The argument that names it.
    #[must_use]
    pub fn argument(self) -> String {
        self.to_possible_value()
            .map(|value| value.get_name().to_owned())
            .unwrap_or_default()
    }
}

/// The arguments of `install`.
#[derive(Debug, Clone, Args)]
pub struct InstallArgs {
    /// The client
    #[arg(required_unless_present = "detect")]
    pub client: Option<Client>,
    /// List the clients that are found here, and which of them have the gateway
    #[arg(long, conflicts_with_all = ["client", "url", "backend", "db_path", "hooks", "uninstall", "print", "dry_run", "file"])]
    pub detect: bool,
    /// Name of the server in the client; short, because it prefixes every tool name
    #[arg(long, default_value = "context", value_parser = server_name)]
    pub name: String,
    /// Register this URL of a running `context-gateway http` instead of a local process
    #[arg(long, value_name = "URL", conflicts_with = "backend")]
    pub url: Option<String>,
    /// Address of the service for the local process. If omitted, the shared local service
    #[arg(long)]
    pub backend: Option<String>,
    /// Database file for the local process
    #[arg(long, conflicts_with = "url", value_parser = db_path)]
    pub db_path: Option<String>,
    /// Also let the client's hooks capture and recall (docs/agents.md). For Claude Code, Codex and Gemini CLI
    #[arg(long)]
    pub hooks: bool,
    /// Remove the entry, and the hooks if there are any
    #[arg(long)]
    pub uninstall: bool,
    /// Print the result and change nothing
    #[arg(long)]
    pub print: bool,
    /// Print how the files would change, and change nothing
    #[arg(long, conflicts_with = "print")]
    pub dry_run: bool,
    /// Configuration file, if it is not in the client's usual place
    #[arg(long)]
    pub file: Option<PathBuf>,
}

/// The path goes into the client's file, where an empty one would mean the directory of this command.
fn db_path(value: &str) -> Result<String, String> {
    match value.trim() {
        "" => Err("must be a path; leave --db-path out for the default database".into()),
        path => Ok(path.to_owned()),
    }
}

fn server_name(value: &str) -> Result<String, String> {
    // Clients build `mcp__<server>__<tool>` from it and drop tools whose name is longer than 64
    // characters; the longest tool name has 24.
    if (1..=30).contains(&value.len())
        && value
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
    {
        Ok(value.to_owned())
    } else {
        Err("must be 1 to 30 letters, digits, - or _".into())
    }
}
