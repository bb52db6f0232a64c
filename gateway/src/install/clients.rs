//! The clients: where each keeps its servers, and in which form. Checked against the clients' own documents and
//! packages in November 2026.

use std::path::PathBuf;

use serde_json::{Map, Value, json};

use super::text::utf8;
use super::{jsonc, tomlc};
use crate::cli::{Client, HookAgent};

/// A server to register.
#[derive(Debug)]
pub enum Server {
    /// A running `context-gateway http`.
    Url(String),
    /// A process that the client starts.
    Process {
        /// This program.
        command: PathBuf,
        /// The variables that its environment has besides those of the client.
        env: Map<String, Value>,
    },
}

/// The syntax of a configuration file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Syntax {
    /// JSON, with comments.
    Json,
    /// TOML.
    Toml,
}

impl Syntax {
    /// The text with `entry` at `path`.
    ///
    /// # Errors
    /// A sentence if the text cannot be parsed, or what is on the path has another type.
    pub fn set(self, text: &str, path: &[&str; 2], entry: &Value) -> Result<String, String> {
        match self {
            Self::Json => jsonc::set(text, path, entry),
            Self::Toml => tomlc::set(text, path, entry),
        }
    }

    /// The entry at `path`. `None` if there is none.
    ///
    /// # Errors
    /// As for [`set`](Self::set).
    pub fn get(self, text: &str, path: &[&str; 2]) -> Result<Option<Value>, String> {
        match self {
            Self::Json => jsonc::get(text, path),
            Self::Toml => tomlc::get(text, path),
        }
    }

    /// The text without the entry at `path`. `None` if there is none.
    ///
    /// # Errors
    /// As for [`set`](Self::set).
    pub fn remove(self, text: &str, path: &[&str; 2]) -> Result<Option<String>, String> {
        match self {
            Self::Json => jsonc::remove(text, path),
            Self::Toml => tomlc::remove(text, path),
        }
    }
}

/// The directory in which Claude Code keeps all its files, if the user named one.
#[must_use]
pub fn claude_directory() -> Option<PathBuf> {
    std::env::var_os("CLAUDE_CONFIG_DIR")
        .filter(|directory| !directory.is_empty())
        .map(PathBuf::from)
}

impl Client {
    /// Every client.
    pub const ALL: [Self; 9] = [
        Self::Claude,
        Self::ClaudeDesktop,
        Self::Codex,
        Self::Copilot,
        Self::Cursor,
        Self::Gemini,
        Self::Vscode,
        Self::Windsurf,
        Self::Zed,
    ];

    /// The name that people know.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Self::Claude => "Claude Code",
            Self::ClaudeDesktop => "Claude Desktop",
            Self::Codex => "Codex",
            Self::Copilot => "Copilot CLI",
            Self::Cursor => "Cursor",
            Self::Gemini => "Gemini CLI",
            Self::Vscode => "VS Code",
            Self::Windsurf => "Windsurf",
            Self::Zed => "Zed",
        }
    }

    /// The program on the PATH by which an installed client is found before it has a configuration.
    #[must_use]
    pub const fn program(self) -> &'static str {
        match self {
            Self::Claude => "claude",
            Self::ClaudeDesktop => "claude-desktop",
            Self::Codex => "codex",
            Self::Copilot => "copilot",
            Self::Cursor => "cursor",
            Self::Gemini => "gemini",
            Self::Vscode => "code",
            Self::Windsurf => "windsurf",
            Self::Zed => "zed",
        }
    }

    /// The agent for whose hooks `hook` has a command. `None` if there is no such command.
    #[must_use]
    pub const fn agent(self) -> Option<HookAgent> {
        match self {
            Self::Claude => Some(HookAgent::Claude),
            Self::Codex => Some(HookAgent::Codex),
            Self::Gemini => Some(HookAgent::Gemini),
            _ => None,
        }
    }

    /// The syntax of its file.
    #[must_use]
    pub const fn syntax(self) -> Syntax {
        match self {
            Self::Codex => Syntax::Toml,
            _ => Syntax::Json,
        }
    }

    /// The key of its file that holds the servers.
    #[must_use]
    pub const fn servers(self) -> &'static str {
        match self {
            Self::Codex => "mcp_servers",
            Self::Vscode => "servers",
            Self::Zed => "context_servers",
            _ => "mcpServers",
        }
    }

    /// The configuration file of the user.
    ///
    /// # Errors
    /// A sentence if HOME is not set.
    pub fn file(self) -> Result<PathBuf, String> {
        let given = |name: &str| {
            std::env::var_os(name)
                .map(PathBuf::from)
                .filter(|path| path.is_absolute())
        };
        let home =
            given("HOME").ok_or("HOME is not set; name the configuration file with --file")?;
        let config = || given("XDG_CONFIG_HOME").unwrap_or_else(|| home.join(".config"));
        let application = |name: &str| {
            if cfg!(target_os = "macos") {
                home.join("Library/Application Support").join(name)
            } else {
                config().join(name)
            }
        };
        Ok(match self {
            Self::Claude => claude_directory().unwrap_or(home).join(".claude.json"),
            Self::ClaudeDesktop => application("Claude").join("claude_desktop_config.json"),
            Self::Codex => given("CODEX_HOME")
                .unwrap_or_else(|| home.join(".codex"))
                .join("config.toml"),
            Self::Copilot => given("COPILOT_HOME")
                .unwrap_or_else(|| home.join(".copilot"))
                .join("mcp-config.json"),
            Self::Cursor => home.join(".cursor/mcp.json"),
            Self::Gemini => given("GEMINI_CLI_HOME")
                .unwrap_or(home)
                .join(".gemini/settings.json"),
            Self::Vscode => application("Code").join("User/mcp.json"),
            Self::Windsurf => home.join(".codeium/windsurf/mcp_config.json"),
            // Not in Application Support, even on macOS.
            Self::Zed => config().join("zed/settings.json"),
        })
    }

    /// The server as this client writes it.
    ///
    /// # Errors
    /// A sentence if the client's file cannot name such a server, or the program's path is not UTF-8.
    pub fn entry(self, server: &Server) -> Result<Value, String> {
        let url = match server {
            Server::Process { command, env } => {
                let mut entry = json!({"command": utf8(command)?, "args": ["stdio"]});
                match self {
                    Self::Claude | Self::Cursor | Self::Vscode => entry["type"] = json!("stdio"),
                    Self::Copilot => {
                        entry["type"] = json!("local");
                        entry["tools"] = json!(["*"]);
                    }
                    Self::Zed => entry["source"] = json!("custom"),
                    Self::ClaudeDesktop | Self::Codex | Self::Gemini | Self::Windsurf => {}
                }
                if !env.is_empty() {
                    entry["env"] = Value::Object(env.clone());
                }
                return Ok(entry);
            }
            Server::Url(url) => url,
        };
        Ok(match self {
            Self::Claude | Self::Cursor | Self::Vscode => json!({"type": "http", "url": url}),
            Self::Copilot => json!({"type": "http", "url": url, "tools": ["*"]}),
            Self::Codex | Self::Zed => json!({"url": url}),
            Self::Gemini => json!({"httpUrl": url}),
            Self::Windsurf => json!({"serverUrl": url}),
            Self::ClaudeDesktop => {
                return Err(
                    "the file of Claude Desktop names only local processes; leave --url out, or add the URL in its settings, under Connectors".to_owned(),
                );
            }
        })
    }
}
