use std::time::Duration;

use context_store::Neighbourhood;

use crate::pg::target::Target;

/// How the database is reached and used.
#[derive(Debug, Clone)]
pub struct Config {
    /// The server and the database.
    pub target: Target,
    /// The language of stemming (`FTS_LANGUAGE`): a [`context_text::Language`]'s name, `simple`, or a text search
    /// configuration of the server.
    pub language: String,
    /// Which entries help hybrid search to find those after them.
    pub neighbourhood: Neighbourhood,
    /// Metadata fields with an index (`METADATA_INDEXED_FIELDS`), as dotted paths.
    pub indexed_fields: Vec<String>,
    /// Connections at most, at least 1.
    pub pool_size: usize,
    /// Operations that may wait for a connection; one more is refused with `OVERLOADED`.
    pub queue: usize,
    /// How long an operation waits for a connection before it is refused with `OVERLOADED`.
    pub pool_timeout: Duration,
    /// How long connecting may take.
    pub connect_timeout: Duration,
    /// How long one statement may take.
    pub statement_timeout: Duration,
    /// How often an operation is tried again after a conflict or a lost connection, when nothing of it can have
    /// happened.
    pub retries: u32,
    /// Failures to reach the server in a row after which operations are refused at once.
    pub breaker_failures: u32,
    /// How long they are refused before one of them tries the server again.
    pub breaker_recovery: Duration,
}

impl Config {
    /// The defaults for this database.
    #[must_use]
    pub fn new(target: Target) -> Self {
        Self {
            target,
            language: "english".to_owned(),
            neighbourhood: Neighbourhood::default(),
            indexed_fields: Vec::new(),
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
