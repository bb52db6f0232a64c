//! The command line. Every setting is a flag and an environment variable. The flag takes precedence.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;

use clap::parser::ValueSource;
use clap::{
    ArgMatches, Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand, ValueEnum,
};

use crate::command::CommandLine;
use crate::connection::{BackendArgs, StdioArgs, expanded, number, or};
use crate::http::{AllowedOrigin, ConnectionLimits, Guarded};

/// MCP gateway of the context service: turns each tool call into one gRPC request.
#[derive(Debug, Parser)]
#[command(name = "context-gateway", version, about, max_term_width = 100, after_help = AFTER_HELP)]
pub struct Cli {
    /// The subcommand to run.
    #[command(subcommand)]
    pub command: Command,
}

const AFTER_HELP: &str = "Start here:\n  context-gateway install claude     register the gateway in Claude Code\n  \
context-gateway stdio --help       the settings of the local gateway\n  \
echo \"We chose SQLite\" | context-gateway add --thread notes\n  \
context-gateway search \"which database\"";

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// The commands for people and scripts.
    #[command(flatten)]
    Line(CommandLine),
    /// Serve the client that started this process, over stdin and stdout
    Stdio(StdioArgs),
    /// Serve clients over streamable HTTP on /mcp, with health checks on /healthz and /readyz
    Http(HttpArgs),
    /// Register the gateway in a client's configuration, or remove it again
    Install(InstallArgs),
    /// Capture and recall for an agent; its hooks call this
    Hook(HookArgs),
    /// Print the tools as clients see them: the result of tools/list
    Tools,
    /// Print a completion script for a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
}

/// Settings that must be the same in the gateway and in a service that it starts. A value given as a flag is passed on
/// to that service. CONTEXT_SOCKET is always passed on.
const FOR_SERVICE: [&str; 11] = [
    "DB_PATH",
    "STORAGE_BACKEND",
    "POSTGRESQL_CONNECTION_STRING",
    "POSTGRESQL_HOST",
    "POSTGRESQL_PORT",
    "POSTGRESQL_USER",
    "POSTGRESQL_DATABASE",
    "MAX_TOTAL_SIZE_MB",
    "AUTH",
    "OIDC_ISSUER",
    "OIDC_SCOPE_PREFIX",
];

impl Cli {
    /// Reads a command line. If it is wrong or requests help, prints the error or the help and ends the process.
    #[must_use]
    pub fn read(arguments: Vec<OsString>) -> Self {
        Self::try_read(arguments).unwrap_or_else(|error| error.exit())
    }

    /// Reads a command line.
    ///
    /// # Errors
    /// What is wrong with it, or the help that it requests.
    pub fn try_read(arguments: Vec<OsString>) -> Result<Self, clap::Error> {
        let command = Self::command();
        let matches = command.clone().try_get_matches_from(arguments)?;
        let mut cli = Self::from_arg_matches(&matches)?;
        let for_service = for_service(&command, &matches);
        match &mut cli.command {
            Command::Line(line) => line.common().service.backend.for_service = for_service,
            Command::Stdio(args) => args.backend.for_service = for_service,
            Command::Http(args) => args.backend.for_service = for_service,
            Command::Hook(args) => args.service.backend.for_service = for_service,
            Command::Install(_) | Command::Tools | Command::Completions { .. } => {}
        }
        Ok(cli)
    }
}

/// The values given as flags that the service needs too ([`FOR_SERVICE`]), by environment variable.
fn for_service(mut command: &clap::Command, mut matches: &ArgMatches) -> Vec<(OsString, OsString)> {
    let mut found = Vec::new();
    while let Some((name, below)) = matches.subcommand()
        && let Some(subcommand) = command.find_subcommand(name)
    {
        (command, matches) = (subcommand, below);
        found.extend(command.get_arguments().filter_map(|arg| {
            let (id, name) = (arg.get_id().as_str(), arg.get_env()?);
            let is_flag = matches.value_source(id) == Some(ValueSource::CommandLine);
            let is_shared = FOR_SERVICE.iter().any(|shared| name == *shared);
            let value = matches.get_raw(id)?.next_back()?;
            (is_flag && is_shared).then(|| (name.to_owned(), value.to_owned()))
        }));
    }
    found
}

/// Settings of the HTTP transport. The gateway passes each caller's Authorization header on
/// unchanged.
#[derive(Debug, Clone, Args)]
pub struct HttpArgs {
    /// Where the service is.
    #[command(flatten)]
    pub backend: BackendArgs,
    /// Address to listen on
    #[arg(long, env = "GATEWAY_LISTEN", default_value = "127.0.0.1:7421", value_parser = socket_address)]
    pub listen: SocketAddr,
    /// Host names besides the loopback ones by which clients reach this server; comma-separated,
    /// host or host:port
    #[arg(long, env = "GATEWAY_ALLOWED_HOSTS", value_delimiter = ',', value_parser = expanded)]
    pub allowed_hosts: Vec<String>,
    /// Browser origins that may call, comma-separated: https://app.example:443, or :* for any port
    #[arg(long, env = "GATEWAY_ALLOWED_ORIGINS", value_delimiter = ',', value_parser = expanded)]
    pub allowed_origins: Vec<String>,
    /// Maximum number of connections, 1 to 100000. Beyond it, the connection that has been idle
    /// longest is closed
    #[arg(long, env = "GATEWAY_MAX_CONNECTIONS", value_name = "N", default_value = "1024", value_parser = connections)]
    pub max_connections: usize,
    /// Maximum number of connections from one address. If empty, half of the total. Raise it if a
    /// proxy makes all clients share one address
    #[arg(long, env = "GATEWAY_MAX_CONNECTIONS_PER_ADDRESS", value_name = "N", value_parser = connections_per_address, default_value = "", hide_default_value = true)]
    pub max_connections_per_address: PerAddress,
    /// URL of /mcp as clients see it, for the metadata that a 401 refers to. If empty,
    /// http://ADDRESS/mcp
    #[arg(long, env = "GATEWAY_PUBLIC_URL", default_value = "", hide_default_value = true, value_parser = expanded)]
    pub public_url: String,
    /// How the service authenticates callers: off, keys or oidc. With off, only loopback addresses
    /// are served
    #[arg(long, env = "AUTH", default_value = "off", value_parser = authentication)]
    pub auth: String,
    /// Token issuer for AUTH=oidc; clients without a token are sent to it
    #[arg(long, env = "OIDC_ISSUER", default_value = "", hide_default_value = true, value_parser = expanded)]
    pub oidc_issuer: String,
    /// Prefix of the issuer's scope names for the service, as configured at the issuer
    #[arg(long, env = "OIDC_SCOPE_PREFIX", default_value = "", hide_default_value = true, value_parser = expanded)]
    pub oidc_scope_prefix: String,
    /// Listen on addresses other than loopback without authentication
    #[arg(long, env = "CONTEXT_INSECURE", default_value = "false", value_parser = switch, num_args = 0..=1, default_missing_value = "true", action = clap::ArgAction::Set)]
    pub insecure: bool,
}

/// The limit for one address. `None` means half of the total.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PerAddress(Option<usize>);

impl HttpArgs {
    /// The limits on connections.
    #[must_use]
    pub fn connection_limits(&self) -> ConnectionLimits {
        let per_address = self
            .max_connections_per_address
            .0
            .unwrap_or(self.max_connections.div_ceil(2));
        ConnectionLimits {
            connections: self.max_connections,
            per_address,
            ..ConnectionLimits::default()
        }
    }

    /// The resource that needs authentication and the issuer of its tokens; `None` if
    /// authentication is off.
    #[must_use]
    pub fn guarded(&self, listen: SocketAddr) -> Option<Guarded> {
        let resource = if self.public_url.is_empty() {
            format!("http://{listen}/mcp")
        } else {
            self.public_url.clone()
        };
        let issuer = (self.auth == "oidc").then(|| self.oidc_issuer.clone());
        (self.auth != "off").then(|| Guarded {
            resource,
            issuer,
            scope_prefix: self.oidc_scope_prefix.clone(),
        })
    }

    /// Checks the settings that depend on each other, and the form of URLs and origins. The server must not be open to
    /// unauthenticated callers by mistake.
    ///
    /// # Errors
    /// A sentence if the address can be reached from other machines without authentication, the issuer is missing, or a
    /// URL or origin is malformed.
    pub fn check(&self) -> Result<(), String> {
        if self.auth == "off" && !self.listen.ip().is_loopback() && !self.insecure {
            return Err(format!(
                "{} can be reached from other machines and AUTH is off; set AUTH=keys, listen on 127.0.0.1, or pass --insecure",
                self.listen
            ));
        }
        if self.auth == "oidc" && self.oidc_issuer.is_empty() {
            return Err(
                "AUTH is oidc, which needs OIDC_ISSUER: clients learn from it where to get a token"
                    .to_owned(),
            );
        }
        if !self.public_url.is_empty() {
            let url = self.public_url.parse::<http::Uri>();
            if !url.is_ok_and(|url| {
                matches!(url.scheme_str(), Some("http" | "https")) && url.host().is_some()
            }) {
                let shown = context_model::shown_url(&self.public_url);
                return Err(format!(
                    "GATEWAY_PUBLIC_URL is `{shown}`; write it as https://context.example/mcp"
                ));
            }
        }
        for origin in self
            .allowed_origins
            .iter()
            .filter(|origin| !origin.is_empty())
        {
            if AllowedOrigin::parse(origin).is_none() {
                let origin = context_model::shown_url(origin);
                return Err(format!(
                    "`{origin}` is not an origin; write it as https://app.example:443 or http://localhost:*"
                ));
            }
        }
        Ok(())
    }
}

/// The arguments of `hook`.
#[derive(Debug, Clone, Args)]
pub struct HookArgs {
    /// Where the service is, and the key for it.
    #[command(flatten)]
    pub service: StdioArgs,
    /// What is captured and recalled.
    #[command(flatten)]
    pub settings: HookSettings,
    /// A plugin makes this call: do nothing if the user's settings have the hook too
    #[arg(long, hide = true)]
    pub plugin: bool,
    /// What to do.
    #[command(subcommand)]
    pub command: HookCommand,
}

/// The commands of `hook`.
#[derive(Debug, Clone, Copy, Subcommand)]
pub enum HookCommand {
    /// Handle an event of Claude Code, whose JSON is on stdin
    Claude {
        /// The event
        event: HookEvent,
    },
    /// Handle an event of Codex, whose JSON is on stdin
    Codex {
        /// The event
        event: HookEvent,
    },
    /// Handle an event of Gemini CLI, whose JSON is on stdin
    Gemini {
        /// The event
        event: HookEvent,
    },
    /// Show what is captured here, what waits for the service, and what was sent
    Status,
}

impl HookCommand {
    /// The agent and the event. `None` for `status`, which a person runs.
    #[must_use]
    pub const fn event(self) -> Option<(HookAgent, HookEvent)> {
        match self {
            Self::Claude { event } => Some((HookAgent::Claude, event)),
            Self::Codex { event } => Some((HookAgent::Codex, event)),
            Self::Gemini { event } => Some((HookAgent::Gemini, event)),
            Self::Status => None,
        }
    }
}

/// The agents that have hooks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HookAgent {
    /// Claude Code
    Claude,
    /// Codex
    Codex,
    /// Gemini CLI
    Gemini,
}

impl HookAgent {
    /// Its name on the command line and in metadata.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Claude => "claude",
            Self::Codex => "codex",
            Self::Gemini => "gemini",
        }
    }

    /// The events at which it calls hooks, in the order of a session.
    #[must_use]
    pub const fn events(self) -> &'static [HookEvent] {
        match self {
            Self::Claude => &HookEvent::ALL,
            // The transcripts of these two are not read, so nothing is left to do before a compaction.
            Self::Codex | Self::Gemini => &[
                HookEvent::SessionStart,
                HookEvent::UserPromptSubmit,
                HookEvent::Stop,
                HookEvent::SessionEnd,
            ],
        }
    }
}

/// The moments at which agents call a hook. The names are Claude Code's; Gemini CLI has names of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "PascalCase")]
pub enum HookEvent {
    /// A session starts, or continues: the agent gets a brief
    SessionStart,
    /// The person submitted a prompt: the agent gets what was remembered about it, and the prompt is captured
    #[value(alias = "BeforeAgent")]
    UserPromptSubmit,
    /// The agent finished its answer: the answer is captured
    #[value(alias = "AfterAgent")]
    Stop,
    /// The conversation will be compacted: what was not captured yet is captured
    PreCompact,
    /// The session ends: what was not captured yet is captured
    SessionEnd,
}

impl HookEvent {
    /// Its name in the agent's settings and in the hook's output.
    #[must_use]
    pub const fn name(self, agent: HookAgent) -> &'static str {
        match (self, agent) {
            (Self::UserPromptSubmit, HookAgent::Gemini) => "BeforeAgent",
            (Self::Stop, HookAgent::Gemini) => "AfterAgent",
            (Self::SessionStart, _) => "SessionStart",
            (Self::UserPromptSubmit, _) => "UserPromptSubmit",
            (Self::Stop, _) => "Stop",
            (Self::PreCompact, _) => "PreCompact",
            (Self::SessionEnd, _) => "SessionEnd",
        }
    }

    /// All of them, in the order of a session.
    pub const ALL: [Self; 5] = [
        Self::SessionStart,
        Self::UserPromptSubmit,
        Self::Stop,
        Self::PreCompact,
        Self::SessionEnd,
    ];
}

/// Settings of hooks.
#[derive(Debug, Clone, Args)]
pub struct HookSettings {
    /// Whether prompts and answers are captured: on, off, or auto, which is on unless CONTEXT_BACKEND is another
    /// machine
    #[arg(long, env = "CONTEXT_HOOK_CAPTURE", default_value = "auto", value_parser = capture)]
    pub capture: CaptureMode,
    /// Whether stored entries are shown to the agent
    #[arg(long, env = "CONTEXT_HOOK_RECALL", default_value = "true", value_parser = recall, action = clap::ArgAction::Set)]
    pub recall: bool,
    /// How a project is named in entries: plain or hashed
    #[arg(long, env = "CONTEXT_HOOK_PROJECT_NAMES", default_value = "plain", value_parser = project_names)]
    pub project_names: ProjectNames,
    /// Projects and directories that are left out, comma-separated: github.com/acme/*, /home/me/private
    #[arg(long, env = "CONTEXT_HOOK_EXCLUDE", value_delimiter = ',', value_parser = expanded)]
    pub exclude: Vec<String>,
    /// Milliseconds after which a hook ends, whatever it does, 200 to 60000
    #[arg(long, env = "CONTEXT_HOOK_TIMEOUT_MS", value_name = "MS", default_value_t = HOOK_TIMEOUT_MS, value_parser = hook_timeout)]
    pub timeout_ms: u64,
    /// Directory for what hooks remember between two events. If empty, $XDG_STATE_HOME/context-service/hooks or
    /// ~/.local/state/context-service/hooks
    #[arg(long, env = "CONTEXT_HOOK_STATE", default_value = "", hide_default_value = true, value_parser = expanded)]
    pub state: String,
}

/// Whether hooks capture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CaptureMode {
    /// Unless the service is on another machine.
    Auto,
    /// Always.
    On,
    /// Never.
    Off,
}

/// How a project is named in entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProjectNames {
    /// By its remote or path.
    Plain,
    /// By a hash.
    Hashed,
}

/// The default of CONTEXT_HOOK_TIMEOUT_MS.
pub const HOOK_TIMEOUT_MS: u64 = 950;

fn hook_timeout(value: &str) -> Result<u64, String> {
    number(value, &HOOK_TIMEOUT_MS.to_string(), 200, 60_000).map(|milliseconds| milliseconds as u64)
}

fn capture(value: &str) -> Result<CaptureMode, String> {
    match or(&expanded(value)?, "auto").to_ascii_lowercase().as_str() {
        "auto" => Ok(CaptureMode::Auto),
        "on" | "true" | "1" => Ok(CaptureMode::On),
        "off" | "false" | "0" => Ok(CaptureMode::Off),
        _ => Err("must be auto, on or off".into()),
    }
}

fn project_names(value: &str) -> Result<ProjectNames, String> {
    match or(&expanded(value)?, "plain").to_ascii_lowercase().as_str() {
        "plain" => Ok(ProjectNames::Plain),
        "hashed" => Ok(ProjectNames::Hashed),
        _ => Err("must be plain or hashed".into()),
    }
}

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
    #[arg(long, conflicts_with = "url")]
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

fn connections(value: &str) -> Result<usize, String> {
    number(value, "1024", 1, 100_000)
}

fn connections_per_address(value: &str) -> Result<PerAddress, String> {
    let value = expanded(value)?;
    if value.trim().is_empty() {
        Ok(PerAddress(None))
    } else {
        number(&value, "", 1, 100_000).map(Some).map(PerAddress)
    }
}

fn socket_address(value: &str) -> Result<SocketAddr, String> {
    use std::net::ToSocketAddrs as _;
    let value = expanded(value)?;
    or(&value, "127.0.0.1:7421")
        .to_socket_addrs()
        .ok()
        .and_then(|mut addresses| addresses.next())
        .ok_or_else(|| "must be an address and a port, such as 127.0.0.1:7421".into())
}

fn switch(value: &str) -> Result<bool, String> {
    switch_or(value, "false")
}

fn recall(value: &str) -> Result<bool, String> {
    switch_or(value, "true")
}

fn switch_or(value: &str, default: &str) -> Result<bool, String> {
    match or(&expanded(value)?, default).to_ascii_lowercase().as_str() {
        "true" | "1" | "yes" | "on" | "t" | "y" => Ok(true),
        "false" | "0" | "no" | "off" | "f" | "n" => Ok(false),
        _ => Err("must be true or false".into()),
    }
}

fn authentication(value: &str) -> Result<String, String> {
    match or(&expanded(value)?, "off").to_ascii_lowercase().as_str() {
        known @ ("off" | "keys" | "oidc") => Ok(known.to_owned()),
        _ => Err("must be off, keys or oidc".into()),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::ToolSet;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    fn http(args: &[&str]) -> Result<(), String> {
        let cli = Cli::try_parse_from(["context-gateway", "http"].iter().chain(args))
            .map_err(|e| e.to_string())?;
        match cli.command {
            Command::Http(args) => args.check(),
            _ => unreachable!("http was given"),
        }
    }

    #[test]
    fn an_open_address_without_authentication_is_refused_unless_insecure() {
        assert!(http(&["--listen", "127.0.0.1:1"]).is_ok());
        assert!(
            http(&["--listen", "0.0.0.0:1"])
                .unwrap_err()
                .contains("--insecure")
        );
        assert!(http(&["--listen", "0.0.0.0:1", "--insecure"]).is_ok());
        assert!(http(&["--listen", "0.0.0.0:1", "--auth", "keys"]).is_ok());
        assert!(
            http(&["--auth", "oidc"])
                .unwrap_err()
                .contains("OIDC_ISSUER")
        );
        assert!(
            http(&[
                "--auth",
                "oidc",
                "--oidc-issuer",
                "https://accounts.example"
            ])
            .is_ok()
        );
    }

    #[test]
    fn values_that_are_set_but_empty_take_the_default() {
        let cli = Cli::parse_from([
            "context-gateway",
            "http",
            "--listen",
            "",
            "--max-total-size-mb",
            "",
            "--auth",
            "",
            "--log-level",
            "",
            "--tools",
            "",
            "--db-path",
            "",
        ]);
        let Command::Http(args) = cli.command else {
            unreachable!("http was given")
        };
        assert_eq!(
            (
                args.listen.port(),
                args.backend.max_total_size_mb,
                args.auth.as_str()
            ),
            (7421, 100, "off")
        );
        assert_eq!(args.backend.tools, ToolSet::Default);
        let hook = ["context-gateway", "hook", "--recall", "", "status"];
        let Command::Hook(hook) = Cli::parse_from(hook).command else {
            unreachable!("hook was given")
        };
        assert!(hook.settings.recall);
        assert_eq!(args.backend.target().unwrap().to_string(), {
            let default = Cli::parse_from([
                "context-gateway",
                "http",
                "--db-path",
                "~/.mcp/context_storage.db",
                "--backend",
                "",
                "--socket",
                "",
            ]);
            let Command::Http(default) = default.command else {
                unreachable!("http was given")
            };
            default.backend.target().unwrap().to_string()
        });
    }

    #[test]
    fn malformed_values_and_unknown_flags_stop_the_start() {
        for args in [
            &["--listen", "nonsense"] as &[&str],
            &["--max-total-size-mb", "0"],
            &["--log-level", "LOUD"],
            &["--auth", "maybe"],
            &["--allowed-origins", "app.example"],
            &["--no-such-flag"],
        ] {
            assert!(http(args).is_err(), "{args:?}");
        }
    }
}
