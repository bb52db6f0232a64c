//! The measured cases.

mod connections;
pub mod get;
mod load;
pub mod postgres;
pub mod read;
pub mod start;
pub mod store;
pub mod vectors;
pub mod watch;

pub use connections::{Connections, SharedConnections};
pub use load::Loaded;

use std::path::PathBuf;

use crate::corpus::Corpus;
use crate::progress::Progress;

/// The amount of work in each case.
#[derive(Debug, Clone, serde::Serialize)]
pub struct Scale {
    /// Database sizes at which reading is measured, ascending.
    pub sizes: Vec<u64>,
    /// Database sizes at which semantic and hybrid search are measured, ascending.
    pub vector_sizes: Vec<u64>,
    /// Number of entries in the databases before stores are measured.
    pub store_base: u64,
    /// Numbers of concurrent clients that store, ascending.
    pub clients: Vec<usize>,
    /// Number of stores in a round, for each number of clients.
    pub stores: Vec<usize>,
    /// Number of stores with an image in a round, by one client.
    pub image_stores: usize,
    /// Number of gets in a round.
    pub gets: usize,
    /// Number of gets with an image in a round.
    pub image_gets: usize,
    /// Number of searches in a round.
    pub searches: usize,
    /// Number of stores in a round on PostgreSQL.
    pub postgres_stores: usize,
    /// Number of gets in a round on PostgreSQL.
    pub postgres_gets: usize,
    /// Number of searches in a round on PostgreSQL.
    pub postgres_searches: usize,
    /// Number of idle streams of changes.
    pub streams: usize,
    /// Number of streams that get every event.
    pub active_streams: usize,
    /// Number of stores beside streams in a round.
    pub streamed_stores: usize,
    /// Number of rounds.
    pub rounds: usize,
    /// Number of timed starts.
    pub starts: usize,
}

/// What every case needs.
pub struct Bench {
    /// The generator of entries.
    pub corpus: Corpus,
    /// The amount of work.
    pub scale: Scale,
    /// The directory for databases and sockets.
    pub dir: PathBuf,
    /// Reports what is being done.
    pub progress: Progress,
}
