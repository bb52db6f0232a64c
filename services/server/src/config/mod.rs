//! Every setting of the service, defined once: its name, meaning, default, unit and range.
//!
//! A flag overrides the environment variable of the same setting, and the variable overrides the default. An empty
//! variable counts as unset.

mod comparison;
mod docs;
mod layers;
mod limits;
mod listing;
mod load;
mod log;
mod models;
mod network;
mod oidc;
mod postgres;
mod predecessor;
mod read;
mod search;
mod settings;
mod storage;
mod value;

pub use comparison::{Difference, ReportedSetting, compare};
pub use docs::configuration_page;
pub use limits::LimitSettings;
pub use listing::{json, table};
pub use load::Load;
pub use log::{Format, Level, Log};
pub use models::{EmbeddingProvider, Models, OnFailure, SummaryProvider};
pub use network::{Auth, Network};
pub use oidc::Oidc;
pub use postgres::Postgres;
pub use predecessor::{Handling, NAMES, Predecessor, migration_table, read_translated};
pub use read::{ReadError, read};
pub use search::{RerankProvider, Search};
pub use settings::{Setting, Settings, Source};
pub use storage::{Backend, Storage, VectorBits};
pub use value::{List, Listen, Url, ollama_address, with_scheme};

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use context_model::Secret;

/// The settings of the service, by section.
#[derive(Debug, Clone, Args)]
pub struct Config {
    /// The database.
    #[command(flatten)]
    pub storage: Storage,
    /// The PostgreSQL server.
    #[command(flatten)]
    pub postgres: Postgres,
    /// Limits of requests and owners.
    #[command(flatten)]
    pub limits: LimitSettings,
    /// Search.
    #[command(flatten)]
    pub search: Search,
    /// Models.
    #[command(flatten)]
    pub models: Models,
    /// Where the service listens.
    #[command(flatten)]
    pub network: Network,
    /// Tokens of an OpenID Connect issuer.
    #[command(flatten)]
    pub oidc: Oidc,
    /// Limits of load and time.
    #[command(flatten)]
    pub load: Load,
    /// The log.
    #[command(flatten)]
    pub log: Log,
    /// Serve only the Unix socket, and stop when idle. A gateway starts the service with this flag.
    #[arg(long, hide = true)]
    pub auto_started: bool,
    /// The same settings as text, and where each came from. Empty unless the program read them.
    #[arg(skip)]
    pub settings: Settings,
}

impl Config {
    /// The Unix socket: as set, or named after the database.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        let uid = rustix::process::geteuid().as_raw();
        self.network
            .socket
            .clone()
            .unwrap_or_else(|| match self.storage.storage_backend {
                Backend::Sqlite => context_model::local::socket_path(&self.storage.db_path, uid),
                Backend::Postgresql => {
                    let settings = &self.postgres;
                    let address = context_model::local::PostgresAddress {
                        connection_string: settings
                            .postgresql_connection_string
                            .as_ref()
                            .map(Secret::reveal),
                        host: &settings.postgresql_host,
                        port: &settings.postgresql_port.to_string(),
                        user: &settings.postgresql_user,
                        database: &settings.postgresql_database,
                    };
                    context_model::local::postgres_socket_path(address, uid)
                }
            })
    }

    /// How long a stopping service waits for running requests.
    #[must_use]
    pub const fn drain_timeout(&self) -> Duration {
        Duration::from_secs(self.load.drain_timeout_seconds)
    }

    /// How long an operation may take.
    #[must_use]
    pub const fn request_timeout(&self) -> Duration {
        Duration::from_secs(self.load.request_timeout_seconds)
    }

    /// Whether the `Host` of a request must be an allowed name. Otherwise, without authentication, a web page could
    /// reach the service by pointing its own host name at an address of this service.
    #[must_use]
    pub fn checks_host(&self) -> bool {
        self.network.auth == Auth::Off
            || self.network.listen.ip().is_loopback()
            || !self.network.allowed_hosts.0.is_empty()
    }
}
