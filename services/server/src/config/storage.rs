//! Settings of the database.

use std::path::PathBuf;

use clap::Args;

use super::value::{List, fields, number, path};

/// The databases.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Backend {
    /// One file, owned by this process
    Sqlite,
    /// A PostgreSQL server
    Postgresql,
}

/// What SQLite keeps of each vector in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum VectorBits {
    /// Four bits per dimension, and a sign bit
    #[value(name = "4")]
    Four,
    /// A sign bit per dimension
    #[value(name = "1")]
    One,
}

/// Settings of the database.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Storage")]
pub struct Storage {
    /// The database: `sqlite` (one file, owned by this process) or `postgresql` (a server that services share).
    #[arg(
        long,
        env = "STORAGE_BACKEND",
        value_name = "NAME",
        default_value = "sqlite",
        hide_possible_values = true,
        ignore_case = true,
        global = true
    )]
    pub storage_backend: Backend,

    /// The database file. It and its directory are created if they are missing, readable only by you.
    #[arg(long, env = "DB_PATH", value_name = "PATH", default_value = "~/.mcp/context_storage.db", value_parser = path, global = true)]
    pub db_path: PathBuf,

    /// Metadata fields with an index: dotted paths, comma-separated.
    ///
    /// A type after the name (`priority:integer`), as mcp-context-server has it, is accepted and has no effect: an
    /// index serves every type.
    #[arg(long, env = "METADATA_INDEXED_FIELDS", value_name = "FIELDS", default_value = "status,agent_name,task_name,project,report_type,scope", value_parser = fields, global = true)]
    pub metadata_indexed_fields: List,

    /// Number of threads that look up rows, 1 to 64. Searches have the same number of threads, but at most 2. Default:
    /// one for each processor, at most 4.
    #[arg(long, env = "SQLITE_READERS", value_name = "N", value_parser = number(1, 64), global = true)]
    pub sqlite_readers: Option<u64>,

    /// Maximum number of writes that wait, 1 to 1 000 000. Further ones are refused.
    #[arg(long, env = "SQLITE_WRITE_QUEUE", value_name = "N", default_value = "4096", value_parser = number(1, 1_000_000), global = true)]
    pub sqlite_write_queue: u64,

    /// Milliseconds that a connection waits for another connection's lock, 1 to 600 000.
    #[arg(long, env = "SQLITE_BUSY_TIMEOUT_MS", value_name = "MS", default_value = "5000", value_parser = number(1, 600_000), global = true)]
    pub sqlite_busy_timeout_ms: u64,

    /// Bits per dimension of each vector in memory: 4 or 1.
    ///
    /// With 4, a vector of 384 dimensions takes 264 bytes, and a search reads a few dozen vectors from the file. With 1
    /// it takes 64 bytes, and a search reads 800 vectors or more. With 1 the start reads no vectors.
    #[arg(
        long,
        env = "SQLITE_VECTOR_BITS",
        value_name = "BITS",
        default_value = "4",
        hide_possible_values = true,
        global = true
    )]
    pub sqlite_vector_bits: VectorBits,
}
