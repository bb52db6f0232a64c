//! What is measured.

pub mod get;
mod lane;
mod load;
pub mod postgres;
pub mod read;
pub mod start;
pub mod store;

pub use lane::{Lane, SharedLane};
pub use load::Loaded;

use std::path::PathBuf;

use crate::corpus::Corpus;
use crate::progress::Progress;

/// How much is measured.
#[derive(Debug, Clone, serde::Serialize)]
pub struct Scale {
    /// Database sizes at which reading is measured, ascending.
    pub sizes: Vec<u64>,
    /// Entries in the databases that storing begins with.
    pub store_base: u64,
    /// Concurrent clients that store, ascending.
    pub clients: Vec<usize>,
    /// Stores in a round, by number of clients.
    pub stores: Vec<usize>,
    /// Stores of an image in a round, by one client.
    pub image_stores: usize,
    /// Gets in a round.
    pub gets: usize,
    /// Gets of an image in a round.
    pub image_gets: usize,
    /// Searches in a round.
    pub searches: usize,
    /// Rounds.
    pub rounds: usize,
    /// Starts that are timed.
    pub starts: usize,
}

/// What every case needs.
pub struct Bench {
    /// The entries.
    pub corpus: Corpus,
    /// How much is measured.
    pub scale: Scale,
    /// Where databases and sockets are.
    pub dir: PathBuf,
    /// Says what happens.
    pub progress: Progress,
}
