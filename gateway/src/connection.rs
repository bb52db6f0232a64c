//! Where the service is, and the key for it: the settings that every command with a connection shares.

use std::ffi::OsString;
use std::sync::Arc;

use clap::Args;
use context_model::expand_variables;

use crate::backend::Target;
use crate::catalogue::{Selection, ToolSet};
use crate::credentials::Credentials;
use crate::key_file::KeyFile;
use crate::local::LocalService;
use crate::memory::{BYTES_PER_BYTE, Budget};
use crate::service_program::ServiceProgram;

/// The address of the service, and settings that both transports share.
#[derive(Debug, Clone, Args)]
pub struct BackendArgs {
    /// Address of the context service: http://host:port, https://host:port or unix:/path. If empty, the local
    /// service of the database is used, and started if necessary
    #[arg(long, env = "CONTEXT_BACKEND", default_value = "", hide_default_value = true, hide_env_values = true, value_parser = expanded)]
    pub backend: String,
    /// Database file of the local service
    #[arg(long, env = "DB_PATH", default_value = "~/.mcp/context_storage.db", value_parser = expanded)]
    pub db_path: String,
    /// Where the local service stores entries. The local service reads the same settings
    #[command(flatten)]
    pub storage: StorageArgs,
    /// Unix socket of the local service. If empty, a socket in the runtime directory that is named
    /// after the database
    #[arg(long, env = "CONTEXT_SOCKET", default_value = "", hide_default_value = true, value_parser = expanded)]
    pub socket: String,
    /// Largest total size of the images in one request, in megabytes; also sets the largest
    /// message. The service has a setting of the same name
    #[arg(long, env = "MAX_TOTAL_SIZE_MB", default_value = "100", value_parser = megabytes)]
    pub max_total_size_mb: u64,
    /// Memory for requests and replies in flight, in megabytes, 64 to 1048576. Beyond it, http refuses
    /// requests and stdio reads none until memory is free. A request takes three times its size and 260 bytes for each
    /// of its JSON values, and a reply seven times its size, so 512 MB are enough for a request of 156 MB with few
    /// values, or a reply of 68 MB
    #[arg(long, env = "GATEWAY_REQUEST_MEMORY_MB", value_name = "MB", default_value = "512", value_parser = request_memory)]
    pub request_memory_mb: usize,
    /// Tools to list: default (all but diff_artifact_versions) or full (all)
    #[arg(
        long,
        env = "CONTEXT_TOOLS",
        value_name = "SET",
        default_value = "default",
        value_parser = tool_set
    )]
    pub tools: ToolSet,
    /// Tools that are neither listed nor called, comma-separated
    #[arg(long, env = "DISABLED_TOOLS", value_name = "NAMES", value_parser = expanded)]
    pub disabled_tools: Vec<String>,
    /// Log level on stderr: DEBUG, INFO, WARNING, ERROR or CRITICAL
    #[arg(long, env = "LOG_LEVEL", default_value = "WARNING", value_parser = log_level)]
    pub log_level: tracing::level_filters::LevelFilter,
    /// Settings of the service that were given as flags. The service's program gets them as environment variables.
    #[arg(skip)]
    pub for_service: Vec<(OsString, OsString)>,
}

impl BackendArgs {
    /// Where the service is.
    ///
    /// # Errors
    /// A sentence that describes the address that cannot be parsed.
    pub fn target(&self) -> Result<Target, String> {
        self.target_with(|local| local)
    }

    /// Where the service is. A running local service is used with whatever settings it has.
    ///
    /// # Errors
    /// As for [`target`](Self::target).
    pub fn target_as_it_runs(&self) -> Result<Target, String> {
        self.target_with(LocalService::accepting_any)
    }

    fn target_with(
        &self,
        adapt: impl FnOnce(LocalService) -> LocalService,
    ) -> Result<Target, String> {
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
        let db_path = match self.db_path.trim() {
            // The variable may be set but empty, because compose files pass on settings that the user left unset.
            "" => context_model::local::default_db_path(),
            path => context_model::local::expand_home(path),
        };
        let socket = socket.or_else(|| self.storage.socket());
        let service = LocalService::with_program(&db_path, socket, self.program());
        Ok(Target::Local(Arc::new(adapt(service))))
    }

    /// The service's program. It gets the flags that the service needs too.
    #[must_use]
    pub fn program(&self) -> ServiceProgram {
        ServiceProgram::beside().with(self.for_service.iter().cloned())
    }

    /// The tools of this gateway.
    #[must_use]
    pub fn selection(&self) -> Selection {
        Selection::new(self.tools, &items(&self.disabled_tools))
    }

    /// The memory budget for requests and replies.
    #[must_use]
    pub fn budget(&self) -> Arc<Budget> {
        Budget::new(self.request_memory_mb.saturating_mul(1024 * 1024))
    }

    /// The largest message that the service sends or accepts, in bytes.
    #[must_use]
    pub fn max_message_bytes(&self) -> usize {
        context_model::max_message_bytes(self.max_total_size_mb)
    }

    /// The largest client request in bytes that the service accepts and the memory budget allows.
    #[must_use]
    pub fn max_request_bytes(&self) -> usize {
        self.max_message_bytes()
            .min(self.budget().largest_share() / BYTES_PER_BYTE)
    }
}

/// Settings of the service that determine its socket. A service that this gateway starts reads them
/// from the same environment.
#[derive(Debug, Clone, Args)]
pub struct StorageArgs {
    /// The service's database: sqlite or postgresql
    #[arg(long, env = "STORAGE_BACKEND", default_value = "", hide = true, value_parser = expanded)]
    pub storage_backend: String,
    /// The PostgreSQL server
    #[arg(long, env = "POSTGRESQL_CONNECTION_STRING", default_value = "", hide = true, hide_env_values = true, value_parser = expanded)]
    pub postgresql_connection_string: String,
    /// Host of the PostgreSQL server
    #[arg(long, env = "POSTGRESQL_HOST", default_value = "", hide = true, value_parser = expanded)]
    pub postgresql_host: String,
    /// Port of the PostgreSQL server
    #[arg(long, env = "POSTGRESQL_PORT", default_value = "", hide = true, value_parser = expanded)]
    pub postgresql_port: String,
    /// PostgreSQL role
    #[arg(long, env = "POSTGRESQL_USER", default_value = "", hide = true, value_parser = expanded)]
    pub postgresql_user: String,
    /// PostgreSQL database
    #[arg(long, env = "POSTGRESQL_DATABASE", default_value = "", hide = true, value_parser = expanded)]
    pub postgresql_database: String,
}

impl StorageArgs {
    /// The socket of a service on PostgreSQL. `None` on SQLite, where the socket is named after the
    /// database file.
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
                let address = context_model::local::PostgresAddress {
                    connection_string: Some(self.postgresql_connection_string.as_str())
                        .filter(|string| !string.is_empty()),
                    host: &or(&self.postgresql_host, "localhost"),
                    port: &or(&self.postgresql_port, "5432"),
                    user: &or(&self.postgresql_user, "postgres"),
                    database: &or(&self.postgresql_database, "mcp_context"),
                };
                context_model::local::postgres_socket_path(
                    address,
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
    /// API key or token that the gateway sends to the service
    #[arg(long, env = "CONTEXT_API_KEY", default_value = "", hide_default_value = true, hide_env_values = true, value_parser = expanded)]
    pub api_key: String,
    /// File that holds the API key or token, instead of CONTEXT_API_KEY; it is read again when it
    /// changes
    #[arg(long, env = "CONTEXT_API_KEY_FILE", default_value = "", hide_default_value = true, value_parser = expanded)]
    pub api_key_file: String,
}

impl StdioArgs {
    /// The credentials, from the setting or from the file.
    ///
    /// # Errors
    /// A sentence if both are set, the file cannot be read, or the key cannot be sent in a header.
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

/// Expands `${VAR}` and `${VAR:-default}`, which some clients pass on unexpanded.
pub(crate) fn expanded(value: &str) -> Result<String, String> {
    Ok(expand_variables(value, |name| std::env::var(name).ok()))
}

/// The items of comma-separated lists. They are split only now because a variable in a list may hold several.
pub(crate) fn items(lists: &[String]) -> Vec<String> {
    lists
        .iter()
        .flat_map(|list| list.split(','))
        .map(str::trim)
        .filter(|item| !item.is_empty())
        .map(str::to_owned)
        .collect()
}

/// The trimmed value, or the default if it is empty: compose files set variables that their user
/// left unset to "".
pub(crate) fn or<'a>(value: &'a str, default: &'a str) -> &'a str {
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

pub(crate) fn number(value: &str, default: &str, from: usize, to: usize) -> Result<usize, String> {
    let value = expanded(value)?;
    let number = or(&value, default)
        .parse()
        .ok()
        .filter(|number| (from..=to).contains(number));
    number.ok_or_else(|| format!("must be a number from {from} to {to}"))
}

pub(crate) fn switch_or(value: &str, default: &str) -> Result<bool, String> {
    match or(&expanded(value)?, default).to_ascii_lowercase().as_str() {
        "true" | "1" | "yes" | "on" | "t" | "y" => Ok(true),
        "false" | "0" | "no" | "off" | "f" | "n" => Ok(false),
        _ => Err("must be true or false".into()),
    }
}

fn tool_set(value: &str) -> Result<ToolSet, String> {
    match expanded(value)?.trim().to_ascii_lowercase().as_str() {
        "" | "default" => Ok(ToolSet::Default),
        "full" => Ok(ToolSet::Full),
        _ => Err("must be default or full".into()),
    }
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
