//! The command line. Every setting is a flag and an environment variable; flags win.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::backend::Target;
use crate::catalogue::ToolSet;
use crate::handler::Credentials;
use crate::http::{ConnectionLimits, Guarded};
use crate::key_file::KeyFile;
use crate::local::LocalService;
use crate::memory::{BYTES_PER_BYTE, Budget};

/// MCP gateway of the context service: turns each tool call into one gRPC request.
#[derive(Debug, Parser)]
#[command(name = "context-gateway", version, about, max_term_width = 100, after_help = AFTER_HELP)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

const AFTER_HELP: &str = "Start here:\n  context-gateway install claude     register the gateway in Claude Code\n  \
context-gateway stdio --help       the settings of the local gateway";

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve the client that started this process, over stdin and stdout
    Stdio(StdioArgs),
    /// Serve clients over streamable HTTP on /mcp, with /healthz and /readyz beside it
    Http(HttpArgs),
    /// Register the gateway in a client's configuration, or remove it again
    Install(InstallArgs),
    /// Print the tools as clients see them: the result of tools/list
    Tools,
    /// Print a completion script for a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
}

/// Where the service is and what is shared by both transports.
#[derive(Debug, Clone, Args)]
pub struct BackendArgs {
    /// Address of the context service: http://host:port or unix:/path. Empty: the service of DB_PATH on this machine,
    /// started when it does not run
    #[arg(long, env = "CONTEXT_BACKEND", default_value = "", hide_default_value = true, value_parser = expanded)]
    pub backend: String,
    /// Database file of the local service
    #[arg(long, env = "DB_PATH", default_value = "~/.mcp/context_storage.db", value_parser = expanded)]
    pub db_path: String,
    /// Where the local service keeps entries, as it reads these settings itself
    #[command(flatten)]
    pub storage: StorageArgs,
    /// Unix socket of the local service. Empty: named after the database, in the runtime directory
    #[arg(long, env = "CONTEXT_SOCKET", default_value = "", hide_default_value = true, value_parser = expanded)]
    pub socket: String,
    /// Megabytes of images in one request, at most; also sets the largest message. The service has the same setting
    #[arg(long, env = "MAX_TOTAL_SIZE_MB", default_value = "100", value_parser = megabytes)]
    pub max_total_size_mb: u64,
    /// Megabytes of requests and replies held at once, 64 to 1048576; more is refused until there is room. A request takes
    /// three times its size and a reply seven times, so that 512 MB are enough for 156 and 68 MB
    #[arg(long, env = "GATEWAY_REQUEST_MEMORY_MB", value_name = "MB", default_value = "512", value_parser = request_memory)]
    pub request_memory_mb: usize,
    /// Tools to list: default (the documented ones) or full
    #[arg(
        long,
        env = "CONTEXT_TOOLS",
        value_name = "SET",
        default_value = "default",
        hide_possible_values = true,
        ignore_case = true
    )]
    pub tools: ToolSet,
    /// What is logged to stderr: DEBUG, INFO, WARNING, ERROR or CRITICAL
    #[arg(long, env = "LOG_LEVEL", default_value = "WARNING", value_parser = log_level)]
    pub log_level: tracing::level_filters::LevelFilter,
}

impl BackendArgs {
    /// Where the service is.
    ///
    /// # Errors
    /// A sentence about an address that cannot be read.
    pub fn target(&self) -> Result<Target, String> {
        if !self.backend.is_empty() {
            return Target::parse(&self.backend);
        }
        let socket =
            (!self.socket.is_empty()).then(|| context_model::local::expand_home(&self.socket));
        if socket.as_ref().is_some_and(|socket| socket.is_relative()) {
            return Err(format!(
                "CONTEXT_SOCKET is `{}`; it must be an absolute path",
                self.socket
            ));
        }
        let db_path = match self.db_path.as_str() {
            // Set but empty, as compose files do with what nobody configured.
            "" => context_model::local::default_db_path(),
            path => context_model::local::expand_home(path),
        };
        let socket = socket.or_else(|| self.storage.socket());
        Ok(Target::Local(std::sync::Arc::new(LocalService::new(
            &db_path, socket,
        ))))
    }

    /// The memory of requests and replies.
    #[must_use]
    pub fn budget(&self) -> Arc<Budget> {
        Budget::new(self.request_memory_mb.saturating_mul(1024 * 1024))
    }

    /// The largest message that the service sends or takes, in bytes.
    #[must_use]
    pub fn max_message_bytes(&self) -> usize {
        context_model::max_message_bytes(self.max_total_size_mb)
    }

    /// The largest request of a client, in bytes: the service takes it, and the memory has room for it.
    #[must_use]
    pub fn max_request_bytes(&self) -> usize {
        self.max_message_bytes()
            .min(self.budget().largest_share() / BYTES_PER_BYTE)
    }
}

/// Settings of the service that name its socket. The service this gateway starts reads them from the same environment.
#[derive(Debug, Clone, Args)]
pub struct StorageArgs {
    /// The service's database: sqlite or postgresql
    #[arg(long, env = "STORAGE_BACKEND", default_value = "", hide = true, value_parser = expanded)]
    pub storage_backend: String,
    /// The PostgreSQL server
    #[arg(long, env = "POSTGRESQL_CONNECTION_STRING", default_value = "", hide = true, hide_env_values = true, value_parser = expanded)]
    pub postgresql_connection_string: String,
    /// Its host
    #[arg(long, env = "POSTGRESQL_HOST", default_value = "", hide = true, value_parser = expanded)]
    pub postgresql_host: String,
    /// Its port
    #[arg(long, env = "POSTGRESQL_PORT", default_value = "", hide = true, value_parser = expanded)]
    pub postgresql_port: String,
    /// The role
    #[arg(long, env = "POSTGRESQL_USER", default_value = "", hide = true, value_parser = expanded)]
    pub postgresql_user: String,
    /// The database there
    #[arg(long, env = "POSTGRESQL_DATABASE", default_value = "", hide = true, value_parser = expanded)]
    pub postgresql_database: String,
}

impl StorageArgs {
    /// The socket of a service on PostgreSQL; `None` on SQLite, whose socket is named after its file.
    fn socket(&self) -> Option<std::path::PathBuf> {
        let or = |value: &'_ str, default: &str| {
            if value.is_empty() {
                default.to_owned()
            } else {
                value.to_owned()
            }
        };
        self.storage_backend
            .trim()
            .eq_ignore_ascii_case("postgresql")
            .then(|| {
                let place = context_model::local::PostgresPlace {
                    connection_string: Some(self.postgresql_connection_string.as_str())
                        .filter(|string| !string.is_empty()),
                    host: &or(&self.postgresql_host, "localhost"),
                    port: &or(&self.postgresql_port, "5432"),
                    user: &or(&self.postgresql_user, "postgres"),
                    database: &or(&self.postgresql_database, "mcp_context"),
                };
                context_model::local::postgres_socket_path(
                    place,
                    rustix::process::geteuid().as_raw(),
                )
            })
    }
}

/// Settings of the stdio transport.
#[derive(Debug, Clone, Args)]
pub struct StdioArgs {
    /// Where the service is.
    #[command(flatten)]
    pub backend: BackendArgs,
    /// API key or token with which this gateway calls the service
    #[arg(long, env = "CONTEXT_API_KEY", default_value = "", hide_default_value = true, hide_env_values = true, value_parser = expanded)]
    pub api_key: String,
    /// File that holds the API key or token, instead of the setting above; it is read again when it changes
    #[arg(long, env = "CONTEXT_API_KEY_FILE", default_value = "", hide_default_value = true, value_parser = expanded)]
    pub api_key_file: String,
}

impl StdioArgs {
    /// The key, from its setting or its file.
    ///
    /// # Errors
    /// A sentence when both are given, the file cannot be read, or the key is none.
    pub fn credentials(&self) -> Result<Credentials, String> {
        match (self.api_key.trim(), self.api_key_file.as_str()) {
            (key, "") => Credentials::own(Some(key)),
            ("", file) => Ok(Credentials::File(Arc::new(KeyFile::open(
                &context_model::local::expand_home(file),
            )?))),
            (_, _) => Err(
                "CONTEXT_API_KEY and CONTEXT_API_KEY_FILE are both set; set one of them".to_owned(),
            ),
        }
    }
}

/// Settings of the HTTP transport. Callers bring their own Authorization header; it is passed on unchanged.
#[derive(Debug, Clone, Args)]
pub struct HttpArgs {
    /// Where the service is.
    #[command(flatten)]
    pub backend: BackendArgs,
    /// Address to listen on
    #[arg(long, env = "GATEWAY_LISTEN", default_value = "127.0.0.1:7421", value_parser = socket_address)]
    pub listen: SocketAddr,
    /// Host names, besides the loopback ones, under which clients reach this server; comma-separated, host or host:port
    #[arg(long, env = "GATEWAY_ALLOWED_HOSTS", value_delimiter = ',', value_parser = expanded)]
    pub allowed_hosts: Vec<String>,
    /// Browser origins that may call, comma-separated: https://app.example:443, or :* for any port
    #[arg(long, env = "GATEWAY_ALLOWED_ORIGINS", value_delimiter = ',', value_parser = expanded)]
    pub allowed_origins: Vec<String>,
    /// Connections at once, 1 to 100000; for one more, the one that is idle for longest is closed
    #[arg(long, env = "GATEWAY_MAX_CONNECTIONS", value_name = "N", default_value = "1024", value_parser = connections)]
    pub max_connections: usize,
    /// Connections at once from one address. Empty: half of them all; set it where a proxy makes all clients one address
    #[arg(long, env = "GATEWAY_MAX_CONNECTIONS_PER_ADDRESS", value_name = "N", value_parser = connections_per_address, default_value = "", hide_default_value = true)]
    pub max_connections_per_address: PerAddress,
    /// URL of /mcp as clients know it, for the metadata that a 401 points to. Empty: http://ADDRESS/mcp
    #[arg(long, env = "GATEWAY_PUBLIC_URL", default_value = "", hide_default_value = true, value_parser = expanded)]
    pub public_url: String,
    /// How the service authenticates callers: off, keys or oidc. With `off` only loopback addresses are served
    #[arg(long, env = "AUTH", default_value = "off", value_parser = authentication)]
    pub auth: String,
    /// With AUTH=oidc: the issuer of tokens, to which clients without one are sent
    #[arg(long, env = "OIDC_ISSUER", default_value = "", hide_default_value = true, value_parser = expanded)]
    pub oidc_issuer: String,
    /// What the issuer's scopes for the service begin with, as it is set there
    #[arg(long, env = "OIDC_SCOPE_PREFIX", default_value = "", hide_default_value = true, value_parser = expanded)]
    pub oidc_scope_prefix: String,
    /// Listen on other than loopback addresses although nobody is authenticated
    #[arg(long, env = "CONTEXT_INSECURE", default_value = "false", value_parser = switch, num_args = 0..=1, default_missing_value = "true", action = clap::ArgAction::Set)]
    pub insecure: bool,
}

/// The limit for one address; `None` is half of all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PerAddress(Option<usize>);

impl HttpArgs {
    /// What connections may take.
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

    /// What is guarded, and who gives tokens for it; `None` while nobody is authenticated.
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

    /// Checks that nobody gets in who should not.
    ///
    /// # Errors
    /// A sentence when the address is open to others and nobody is authenticated, or an origin cannot be read.
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
            let base = origin.strip_suffix(":*").unwrap_or(origin);
            let uri = base.parse::<http::Uri>();
            if !uri.is_ok_and(|uri| {
                uri.scheme().is_some() && uri.host().is_some() && matches!(uri.path(), "" | "/")
            }) {
                let origin = context_model::shown_url(origin);
                return Err(format!(
                    "`{origin}` is not an origin; write it as https://app.example:443 or http://localhost:*"
                ));
            }
        }
        Ok(())
    }
}

/// The clients that can be configured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Client {
    /// Claude Code
    Claude,
    /// Cursor
    Cursor,
    /// Visual Studio Code
    Vscode,
}

/// What to write into a client's configuration.
#[derive(Debug, Clone, Args)]
pub struct InstallArgs {
    /// The client
    pub client: Client,
    /// Name of the server in the client; short, because it prefixes every tool name
    #[arg(long, default_value = "context", value_parser = server_name)]
    pub name: String,
    /// Register this URL of a running `context-gateway http` instead of a local process
    #[arg(long, value_name = "URL", conflicts_with = "backend")]
    pub url: Option<String>,
    /// Address of the service for the local process; without it the shared local service is used
    #[arg(long)]
    pub backend: Option<String>,
    /// Database file for the local process
    #[arg(long, conflicts_with = "url")]
    pub db_path: Option<String>,
    /// Remove the entry instead
    #[arg(long)]
    pub uninstall: bool,
    /// Only print what would be written
    #[arg(long)]
    pub print: bool,
    /// Configuration file, when it is not where the client usually has it
    #[arg(long)]
    pub file: Option<PathBuf>,
}

/// Replaces a value that still holds `${VAR}` or `${VAR:-default}`, which some clients pass on unexpanded.
fn expanded(value: &str) -> Result<String, String> {
    Ok(expand(value, |name| std::env::var(name).ok()))
}

fn expand(value: &str, lookup: impl Fn(&str) -> Option<String>) -> String {
    let mut out = String::new();
    let mut rest = value;
    while let Some(start) = rest.find("${") {
        let Some(end) = rest[start..].find('}') else {
            break;
        };
        let inner = &rest[start + 2..start + end];
        let (name, default) = inner.split_once(":-").unwrap_or((inner, ""));
        // A variable that still holds a placeholder was never set: the client copied it literally.
        let found = lookup(name).filter(|found| !found.is_empty() && !found.contains("${"));
        out.push_str(&rest[..start]);
        out.push_str(found.as_deref().unwrap_or(default));
        rest = &rest[start + end + 1..];
    }
    out + rest
}

/// The trimmed value, or the default for one that is set but empty, as compose files do with what nobody configured.
fn or<'a>(value: &'a str, default: &'a str) -> &'a str {
    match value.trim() {
        "" => default,
        value => value,
    }
}

fn megabytes(value: &str) -> Result<u64, String> {
    let value = expanded(value)?;
    match or(&value, "100").parse() {
        Ok(megabytes @ 1..=4096) => Ok(megabytes),
        _ => Err("must be a number of megabytes from 1 to 4096".into()),
    }
}

fn request_memory(value: &str) -> Result<usize, String> {
    number(value, "512", 64, 1_048_576)
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

fn number(value: &str, default: &str, from: usize, to: usize) -> Result<usize, String> {
    let value = expanded(value)?;
    let number = or(&value, default)
        .parse()
        .ok()
        .filter(|number| (from..=to).contains(number));
    number.ok_or_else(|| format!("must be a number from {from} to {to}"))
}

fn log_level(value: &str) -> Result<tracing::level_filters::LevelFilter, String> {
    use tracing::level_filters::LevelFilter;
    match expanded(value)?.trim().to_ascii_uppercase().as_str() {
        "DEBUG" => Ok(LevelFilter::DEBUG),
        "INFO" => Ok(LevelFilter::INFO),
        "" | "WARNING" | "WARN" => Ok(LevelFilter::WARN),
        "ERROR" | "CRITICAL" => Ok(LevelFilter::ERROR),
        _ => Err("must be DEBUG, INFO, WARNING, ERROR or CRITICAL".into()),
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
    match or(&expanded(value)?, "false").to_ascii_lowercase().as_str() {
        "true" | "1" | "yes" | "on" => Ok(true),
        "false" | "0" | "no" | "off" => Ok(false),
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
    // Clients build `mcp__<server>__<tool>` from it and drop the tool beyond 64 characters; the longest tool has 23.
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
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn placeholders_are_expanded_and_unset_ones_take_their_default() {
        let lookup = |name: &str| match name {
            "SET" => Some("value".to_owned()),
            "LITERAL" => Some("${LITERAL}".to_owned()),
            _ => None,
        };
        for (given, expected) in [
            ("plain", "plain"),
            ("${SET}", "value"),
            ("a${SET}b${UNSET:-c}", "avaluebc"),
            ("${UNSET}", ""),
            ("${LITERAL:-x}", "x"),
            ("${open", "${open"),
        ] {
            assert_eq!(expand(given, lookup), expected);
        }
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
