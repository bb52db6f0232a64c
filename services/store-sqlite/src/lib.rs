//! The SQLite store: one database file, owned by one process.
//!
//! [`SqliteStore`] implements [`context_store::Store`]. One thread writes. It commits up to 256 queued requests as one
//! transaction, with savepoints for requests that may need to be undone individually. Other threads read, each read in
//! one transaction. Except for short lookups that are expected to be served from memory, no statement runs on an async
//! worker.
//!
//! ```no_run
//! use context_store_sqlite::{Config, SqliteStore};
//!
//! let store = SqliteStore::open(Config::new("contexts.db"))?;
//! # Ok::<(), context_store_sqlite::OpenError>(())
//! ```

mod artifacts;
mod batch;
mod bm25;
mod cancel;
mod changes;
mod collection;
mod columns;
mod compaction;
mod config;
mod connection;
mod context_window;
mod copy;
mod copy_mark;
mod delete_entries;
mod entries;
mod failure;
mod feed;
mod filter;
mod fts;
mod full_text;
mod idempotency;
mod images;
mod indexable;
mod inline;
mod keys;
mod lock;
mod open;
mod overview;
mod ownerless_write;
mod owners;
mod queue;
mod read_entries;
mod readers;
mod request;
pub(crate) mod schema;
mod seals;
mod snapshot;
pub(crate) mod sql;
mod statement;
mod statistics;
mod store;
mod store_entry;
mod summaries;
mod tags;
mod threads;
mod tokenizer;
mod transaction;
mod transfer;
mod update_entry;
mod vectors;
mod weigh;
mod writer;

pub use config::{Config, Started};
pub use context_vector::Precision as VectorPrecision;
pub use lock::Holder;
pub use open::OpenError;
pub use snapshot::Snapshot;
pub use store::SqliteStore;
pub use tokenizer::register as register_tokenizer;
pub use transfer::{SqliteSource, SqliteTarget};
