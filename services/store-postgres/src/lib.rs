//! The server database: PostgreSQL, shared by any number of services.
//!
//! [`PostgresStore`] implements [`context_store::Store`]. Each write of contexts or artifacts is one transaction. It
//! locks the rows of its threads first, in order, or those of its artifacts, and the owner's row last, so an owner's
//! revisions are in commit order. Each read sees one state of the database. The file names are those of
//! `context-store-sqlite`.
//!
//! ```no_run
//! use context_store_postgres::{Config, PostgresStore, Target};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let target = Target::parse("postgresql://postgres:postgres@localhost:5432/mcp_context")?;
//! let store = PostgresStore::open(Config::new(target)).await?;
//! # Ok(())
//! # }
//! ```

mod artifacts;
mod batch;
mod columns;
mod compaction;
mod config;
mod context_window;
mod delete_entries;
mod entries;
mod feed;
mod filter;
mod fts;
mod idempotency;
mod images;
mod keys;
mod notifier;
mod open;
mod overview;
mod owners;
mod pg;
mod read;
mod read_entries;
mod schema;
mod seals;
mod settings;
mod statistics;
mod store;
mod store_entry;
mod summaries;
mod tags;
mod threads;
mod transaction;
mod transfer;
mod update_entry;
mod vectors;

pub use config::Config;
pub use open::OpenError;
pub use pg::target::{Parts, SslMode, Target, TargetError};
pub use pg::tls::TlsError;
pub use store::PostgresStore;
pub use transfer::{PostgresSource, PostgresTarget};
