use std::time::Duration;

use context_store::ContextWindow;

use crate::pg::target::Target;

/// How the store connects to the database and uses it.
#[derive(Debug, Clone)]
pub struct Config {
    /// The server and the database.
    pub target: Target,
    /// The language for stemming (`FTS_LANGUAGE`): the name of a [`context_text::Language`], `simple`, or a text search
    /// configuration of the server.
    pub language: String,
    /// The context window of hybrid search.
    pub context_window: ContextWindow,
    /// Metadata fields with an index (`METADATA_INDEXED_FIELDS`), as dotted paths.
    pub indexed_fields: Vec<String>,
    /// Whether opening builds the indexes that the language, the context window and the fields need. A command that runs
    /// beside services must not: their indexes would follow its settings.
    pub builds_indexes: bool,
    /// Search breadth of the HNSW index (`hnsw.ef_search`), 1 to 1000. Larger values find more of the nearest entries
    /// and take longer.
    pub ef_search: u32,
    /// Maximum number of connections, at least 1.
    pub pool_size: usize,
    /// Maximum number of operations that wait for a connection. Further ones are rejected with `OVERLOADED`.
    pub queue: usize,
    /// How long an operation waits for a connection before it is rejected with `OVERLOADED`.
    pub pool_timeout: Duration,
    /// Timeout for connecting to one address of the server. With several addresses it includes TLS and the login.
    pub connect_timeout: Duration,
    /// Timeout for one statement.
    pub statement_timeout: Duration,
    /// How often an operation is retried after a conflict or a lost connection, or when the server is read-only. It is
    /// retried only when the failed attempt cannot have changed anything, or when the write has an idempotency key.
    pub retries: u32,
    /// Number of consecutive failures to reach the server after which operations are rejected at once.
    pub breaker_failures: u32,
    /// How long operations are rejected before one of them tries the server again.
    pub breaker_recovery: Duration,
}

impl Config {
    /// The defaults for this database.
    #[must_use]
    pub fn new(target: Target) -> Self {
        Self {
            target,
            language: "english".to_owned(),
            context_window: ContextWindow::default(),
            indexed_fields: Vec::new(),
            builds_indexes: true,
            ef_search: 400,
            pool_size: 16,
            queue: 4096,
            pool_timeout: Duration::from_secs(10),
            connect_timeout: Duration::from_secs(5),
            statement_timeout: Duration::from_secs(30),
            retries: 3,
            breaker_failures: 10,
            breaker_recovery: Duration::from_millis(500),
        }
    }
}
