use std::path::PathBuf;
use std::time::Duration;

use context_store::ContextWindow;
use context_vector::Precision;

/// How the SQLite database is opened.
#[derive(Debug, Clone)]
pub struct Config {
    /// The database file (`DB_PATH`). If missing, the file and its directory are created, accessible only to the user.
    pub path: PathBuf,
    /// The language for stemming (`FTS_LANGUAGE`), by the name of a [`context_text::Language`]. With any other name,
    /// words are not stemmed.
    pub language: String,
    /// The context window of hybrid search.
    pub context_window: ContextWindow,
    /// Indexed metadata fields (`METADATA_INDEXED_FIELDS`), as dotted paths.
    pub indexed_fields: Vec<String>,
    /// Number of threads that look up rows, at least 1. The same number again, but at most 2, serve searches and other
    /// long reads.
    pub readers: usize,
    /// Maximum number of queued writes. Further ones are rejected with `OVERLOADED`.
    pub write_queue: usize,
    /// How long a connection waits for a lock held by another. A lookup on the calling thread does not wait.
    pub busy_timeout: Duration,
    /// Maximum size of the database file in bytes. A write that would exceed it fails as on a full disk. `None`: no
    /// limit.
    pub max_file_bytes: Option<u64>,
    /// The precision of vectors in the in-memory index (`SQLITE_VECTOR_BITS`).
    pub vector_precision: Precision,
    /// How this process was started. It is reported to other processes that find the database locked.
    pub started: Started,
}

impl Config {
    /// The default configuration for this file.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            language: "english".to_owned(),
            context_window: ContextWindow::default(),
            indexed_fields: Vec::new(),
            readers: std::thread::available_parallelism().map_or(1, |n| n.get().min(4)),
            write_queue: 4096,
            busy_timeout: Duration::from_secs(5),
            max_file_bytes: None,
            vector_precision: Precision::FourBits,
            started: Started::ByHand,
        }
    }
}

/// How the process that holds a database was started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Started {
    /// It was started directly, not by a gateway.
    ByHand,
    /// A gateway started it. It gives way to a process that was started directly.
    Automatically,
}

impl Started {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::ByHand => "by-hand",
            Self::Automatically => "automatically",
        }
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        [Self::ByHand, Self::Automatically]
            .into_iter()
            .find(|started| started.as_str() == text)
    }
}
