//! Where the PostgreSQL server is.

use clap::Args;

use super::value::{Secret, number};

/// Settings of the PostgreSQL server. They are read and checked, but this version has no PostgreSQL store.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "PostgreSQL (not yet in this version)")]
pub struct Postgres {
    /// The server's host.
    #[arg(long, env = "POSTGRESQL_HOST", value_name = "HOST", default_value = "localhost", global = true)]
    pub postgresql_host: String,

    /// The server's port, 1 to 65535.
    #[arg(long, env = "POSTGRESQL_PORT", value_name = "PORT", default_value = "5432", value_parser = number(1, 65535), global = true)]
    pub postgresql_port: u64,

    /// The role.
    #[arg(long, env = "POSTGRESQL_USER", value_name = "NAME", default_value = "postgres", global = true)]
    pub postgresql_user: String,

    /// The role's password.
    #[arg(long, env = "POSTGRESQL_PASSWORD", value_name = "SECRET", hide_env_values = true, default_value = "postgres", global = true)]
    pub postgresql_password: Secret,

    /// The database.
    #[arg(long, env = "POSTGRESQL_DATABASE", value_name = "NAME", default_value = "mcp_context", global = true)]
    pub postgresql_database: String,

    /// A connection string; it wins over the five settings above.
    #[arg(long, env = "POSTGRESQL_CONNECTION_STRING", value_name = "URL", hide_env_values = true, global = true)]
    pub postgresql_connection_string: Option<Secret>,
}
