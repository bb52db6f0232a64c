//! Settings of the PostgreSQL server and its connections.

use clap::Args;
use context_model::Secret;
use context_store_postgres::SslMode;

use super::value::{boolean, number, ssl_mode};

/// Settings of the PostgreSQL server, for `STORAGE_BACKEND=postgresql`.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "PostgreSQL")]
pub struct Postgres {
    /// The server's host: a name, an address, the directory of a Unix socket, or several, comma-separated.
    #[arg(
        long,
        env = "POSTGRESQL_HOST",
        value_name = "HOST",
        default_value = "localhost",
        global = true
    )]
    pub postgresql_host: String,

    /// The server's port, 1 to 65535.
    #[arg(long, env = "POSTGRESQL_PORT", value_name = "PORT", default_value = "5432", value_parser = number(1, 65535), global = true)]
    pub postgresql_port: u64,

    /// The role.
    #[arg(
        long,
        env = "POSTGRESQL_USER",
        value_name = "NAME",
        default_value = "postgres",
        global = true
    )]
    pub postgresql_user: String,

    /// The role's password.
    #[arg(
        long,
        env = "POSTGRESQL_PASSWORD",
        value_name = "SECRET",
        hide_env_values = true,
        default_value = "postgres",
        global = true
    )]
    pub postgresql_password: Secret,

    /// The database.
    #[arg(
        long,
        env = "POSTGRESQL_DATABASE",
        value_name = "NAME",
        default_value = "mcp_context",
        global = true
    )]
    pub postgresql_database: String,

    /// A connection string. It overrides the five settings above.
    ///
    /// Its form is `postgresql://user:password@host:5432/database?sslmode=verify-full`. Without `sslmode`,
    /// POSTGRESQL_SSL_MODE applies. `sslrootcert` names a file of certificate authorities; without it the system's
    /// authorities are used. With a file, require verifies as verify-ca does; disable, allow and prefer verify nothing.
    /// `sslrootcert=system` implies `sslmode=verify-full` and is refused with a weaker mode. With several hosts,
    /// `target_session_attrs=read-write` selects the primary.
    #[arg(
        long,
        env = "POSTGRESQL_CONNECTION_STRING",
        value_name = "URL",
        hide_env_values = true,
        global = true
    )]
    pub postgresql_connection_string: Option<Secret>,

    /// Encryption of the connection: disable, allow, prefer, require, verify-ca or verify-full. Default: prefer.
    ///
    /// prefer encrypts if the server supports it; allow is the same. require always encrypts. verify-ca also checks
    /// that one of the system's certificate authorities signed the server's certificate, and verify-full that it is for
    /// this host. `sslmode` in the connection string takes precedence. If it is less strict than this setting, the
    /// service does not start. disable, allow and prefer count as equally strict.
    #[arg(long, env = "POSTGRESQL_SSL_MODE", value_name = "MODE", value_parser = ssl_mode, global = true)]
    pub postgresql_ssl_mode: Option<SslMode>,

    /// HNSW search breadth (`hnsw.ef_search`): candidates that the index keeps during a semantic search, 1 to 1000.
    ///
    /// If a search takes more candidates from the index than this, the index keeps that many, up to 1000. Larger values
    /// find more of the nearest entries and take longer.
    #[arg(long, env = "POSTGRESQL_HNSW_EF_SEARCH", value_name = "N", default_value = "400", value_parser = number(1, 1000), global = true)]
    pub postgresql_hnsw_ef_search: u64,

    /// Maximum number of connections, 1 to 1000.
    #[arg(long, env = "POSTGRESQL_POOL_SIZE", value_name = "N", default_value = "16", value_parser = number(1, 1000), global = true)]
    pub postgresql_pool_size: u64,

    /// Whether statements stay prepared on a connection: true or false.
    ///
    /// A transaction pooler without support for prepared statements (PgBouncer before 1.21) needs false.
    /// `pgbouncer=true` in the connection string has the same effect.
    #[arg(long, env = "POSTGRESQL_STATEMENT_CACHE", value_name = "BOOL", value_parser = boolean, action = clap::ArgAction::Set, default_value = "true", global = true)]
    pub postgresql_statement_cache: bool,

    /// Milliseconds that an operation waits for a connection before it is refused, 1 to 600 000.
    #[arg(long, env = "POSTGRESQL_POOL_TIMEOUT_MS", value_name = "MS", default_value = "10000", value_parser = number(1, 600_000), global = true)]
    pub postgresql_pool_timeout_ms: u64,

    /// Maximum number of operations that wait for a connection, 1 to 1 000 000. Further ones are refused.
    #[arg(long, env = "POSTGRESQL_QUEUE", value_name = "N", default_value = "4096", value_parser = number(1, 1_000_000), global = true)]
    pub postgresql_queue: u64,

    /// Timeout for connecting to one address of a host in milliseconds, 1 to 600 000. With several hosts or
    /// addresses, it includes TLS and the login, and an operation gives each address at most its share of
    /// POSTGRESQL_POOL_TIMEOUT_MS.
    #[arg(long, env = "POSTGRESQL_CONNECT_TIMEOUT_MS", value_name = "MS", default_value = "5000", value_parser = number(1, 600_000), global = true)]
    pub postgresql_connect_timeout_ms: u64,

    /// Timeout for one statement in milliseconds, 1 to 3 600 000.
    #[arg(long, env = "POSTGRESQL_STATEMENT_TIMEOUT_MS", value_name = "MS", default_value = "30000", value_parser = number(1, 3_600_000), global = true)]
    pub postgresql_statement_timeout_ms: u64,

    /// Maximum number of retries of an operation after a conflict or a lost connection, or when the server is
    /// read-only, 0 to 20.
    ///
    /// A write that may have taken effect is retried only with an idempotency key, which finds the outcome of the first
    /// attempt.
    #[arg(long, env = "POSTGRESQL_RETRIES", value_name = "N", default_value = "3", value_parser = number(0, 20), global = true)]
    pub postgresql_retries: u64,

    /// Number of consecutive failures to reach the server that opens the circuit breaker, 1 to 1 000 000.
    ///
    /// While it is open, operations are refused at once.
    #[arg(long, env = "POSTGRESQL_CIRCUIT_BREAKER_FAILURES", value_name = "N", default_value = "10", value_parser = number(1, 1_000_000), global = true)]
    pub postgresql_circuit_breaker_failures: u64,

    /// Milliseconds until an open circuit breaker lets one operation try the server again, 1 to 600 000.
    #[arg(long, env = "POSTGRESQL_CIRCUIT_BREAKER_RECOVERY_MS", value_name = "MS", default_value = "500", value_parser = number(1, 600_000), global = true)]
    pub postgresql_circuit_breaker_recovery_ms: u64,
}
