//! The text that the service prints when it is ready: its addresses, and how to register the
//! gateway.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use context_engine::ValidKey;
use context_model::ApiKey;

use crate::config::{Backend, Config};

/// What the start of a service reports: its addresses, its database and its keys.
#[derive(Debug, Clone)]
pub struct StartReport {
    /// Address for gRPC and REST; `None` if only the socket is served.
    pub address: Option<SocketAddr>,
    /// Address for gRPC only.
    pub grpc_address: Option<SocketAddr>,
    /// The Unix socket.
    pub socket: PathBuf,
    /// The database.
    pub database: Database,
    /// Whether authentication is on.
    pub keyed: bool,
    /// The first key, if this start created it; shown only once.
    pub first_key: Option<String>,
    /// Valid keys if authentication is on: newest first, and whether there are more.
    pub valid_keys: (Vec<ValidKey>, bool),
}

/// Maximum number of keys that are listed at start.
pub const LISTED_KEYS: u32 = 50;

/// A key in the list at start. The list shows keys that were created while authentication was off,
/// which would otherwise go unnoticed.
#[must_use]
pub fn key_line(valid: &ValidKey) -> String {
    let ValidKey {
        owner,
        key: ApiKey {
            id, name, scopes, ..
        },
    } = valid;
    format!("{id}  {name}  owner {owner}  {}", scopes.join(","))
}

/// The database that holds the entries.
#[derive(Debug, Clone)]
pub enum Database {
    /// A file.
    File(PathBuf),
    /// A PostgreSQL database, as host, port and name.
    Server(String),
}

impl Database {
    /// The database of these settings.
    #[must_use]
    pub fn of(config: &Config) -> Self {
        match (config.storage.storage_backend, config.postgres()) {
            (Backend::Postgresql, Ok(postgres)) => Self::Server(postgres.target.shown()),
            (Backend::Postgresql | Backend::Sqlite, _) => {
                Self::File(context_model::local::absolute(&config.storage.db_path))
            }
        }
    }
}

impl std::fmt::Display for Database {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::File(path) => path.display().fmt(f),
            Self::Server(target) => write!(f, "postgresql://{target}"),
        }
    }
}

impl StartReport {
    /// The lines of the banner.
    #[must_use]
    pub fn banner(&self) -> String {
        let mut text = format!("context-service {} is ready\n", env!("CARGO_PKG_VERSION"));
        if let Some(address) = self.address {
            let _ = writeln!(text, "  page      http://{address}/");
            let _ = writeln!(
                text,
                "  REST      http://{address}/v1   (explorer: http://{address}/docs)"
            );
            let _ = writeln!(text, "  gRPC      {address}");
        }
        if let Some(address) = self.grpc_address {
            let _ = writeln!(text, "  gRPC      {address}");
        }
        let _ = writeln!(text, "  socket    {}", self.socket.display());
        let _ = writeln!(text, "  database  {}", self.database);
        if self.is_exposed() {
            let _ = writeln!(
                text,
                "WARNING: ANYONE WHO REACHES THIS PORT CAN READ, CHANGE AND DELETE EVERYTHING, BECAUSE AUTH IS OFF."
            );
            let _ = writeln!(
                text,
                "Set AUTH=keys, or restrict network access to this port; other host names: CONTEXT_ALLOWED_HOSTS."
            );
        }
        if let Some(key) = &self.first_key {
            let _ = writeln!(
                text,
                "The first API key, with every scope, for the owner `default`; it is shown only once:"
            );
            let _ = writeln!(text, "  {key}");
        }
        let (valid, more) = &self.valid_keys;
        if !valid.is_empty() {
            let _ = writeln!(
                text,
                "Valid API keys, newest first; `context-service keys revoke` deactivates one:"
            );
            for key in valid {
                let _ = writeln!(text, "  {}", key_line(key));
            }
            if *more {
                let _ = writeln!(
                    text,
                    "  and older ones: context-service keys list --owner OWNER"
                );
            }
        }
        if self.address.is_some() {
            let gateway = gateway();
            let _ = writeln!(text, "Register the gateway in Claude Code:");
            let _ = writeln!(
                text,
                "  claude mcp add --scope user context{} -- {} stdio",
                self.gateway_settings(),
                quoted(&gateway)
            );
            if !gateway.is_file() {
                let _ = writeln!(
                    text,
                    "  (the gateway is not built yet: cargo build --release)"
                );
            }
        }
        text
    }

    /// Whether other machines can reach a port without authentication.
    fn is_exposed(&self) -> bool {
        let addresses = [self.address, self.grpc_address];
        !self.keyed
            && addresses
                .into_iter()
                .flatten()
                .any(|address| !address.ip().is_loopback())
    }

    /// Settings for the gateway's registration, as flags of `claude mcp add`.
    fn gateway_settings(&self) -> String {
        let mut settings = String::new();
        if self.keyed {
            settings.push_str(" --env CONTEXT_API_KEY=sk_prod_…");
        }
        for (name, value) in self.gateway_environment() {
            let _ = write!(settings, " --env {name}={}", quoted(Path::new(&value)));
        }
        settings
    }

    /// The variables with which a gateway on this machine finds the service. The gateway derives the socket from the
    /// database file and needs only a path that is not the default. A service on PostgreSQL is found by its address.
    #[must_use]
    pub fn gateway_environment(&self) -> BTreeMap<&'static str, String> {
        let database = match &self.database {
            Database::File(database) => database,
            Database::Server(_) => {
                let address = match self.address {
                    Some(address) => format!("http://{address}"),
                    None => format!("unix:{}", self.socket.display()),
                };
                return BTreeMap::from([("CONTEXT_BACKEND", address)]);
            }
        };
        let mut variables = BTreeMap::new();
        let default = context_model::local::absolute(&context_model::local::default_db_path());
        if *database != default {
            variables.insert("DB_PATH", database.display().to_string());
        }
        let uid = rustix::process::geteuid().as_raw();
        if self.socket != context_model::local::socket_path(database, uid) {
            variables.insert("CONTEXT_SOCKET", self.socket.display().to_string());
        }
        variables
    }
}

/// Path of the gateway: next to this executable.
fn gateway() -> PathBuf {
    let beside = std::env::current_exe().ok().and_then(|program| {
        program
            .parent()
            .map(|directory| directory.join("context-gateway"))
    });
    beside.unwrap_or_else(|| PathBuf::from("context-gateway"))
}

/// A path, quoted for a shell if necessary.
fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    if text
        .bytes()
        .all(|b| b.is_ascii_alphanumeric() || b"/._-+@%:,".contains(&b))
    {
        text
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}
