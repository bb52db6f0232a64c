use std::path::PathBuf;
use std::time::Duration;

use context_store::Neighbourhood;

/// How the embedded database is opened.
#[derive(Debug, Clone)]
pub struct Config {
    /// The database file (`DB_PATH`). It and its directory are created when missing, for the user alone.
    pub path: PathBuf,
    /// The language of stemming (`FTS_LANGUAGE`), as a [`context_text::Language`] has its name; any other name means
    /// that words are not stemmed.
    pub language: String,
    /// Which entries help hybrid search to find those after them.
    pub neighbourhood: Neighbourhood,
    /// Metadata fields with an index (`METADATA_INDEXED_FIELDS`), as dotted paths.
    pub indexed_fields: Vec<String>,
    /// Threads that read, at least 1. As many again, at most 2, serve full-text and unindexed searches.
    pub readers: usize,
    /// Writes that may wait; one more is refused with `OVERLOADED`.
    pub write_queue: usize,
    /// How long a connection waits for a lock that another one holds.
    pub busy_timeout: Duration,
    /// Bytes the database file may grow to; a write beyond it is refused as on a full disk. `None`: as the disk allows.
    pub max_file_bytes: Option<u64>,
    /// How this process came to run, for whoever finds the database held.
    pub started: Started,
}

impl Config {
    /// The defaults for this file.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            language: "english".to_owned(),
            neighbourhood: Neighbourhood::default(),
            indexed_fields: Vec::new(),
            readers: std::thread::available_parallelism().map_or(1, |n| n.get().min(4)),
            write_queue: 4096,
            busy_timeout: Duration::from_secs(5),
            max_file_bytes: None,
            started: Started::ByHand,
        }
    }
}

/// How the process that holds a database came to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Started {
    /// Somebody started it.
    ByHand,
    /// A gateway started it; it gives way to one started by hand.
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
