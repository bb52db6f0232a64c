//! The behaviours that every database must show. Each is an async function named after what it shows. The crate also
//! has the generator of entries, filters and whole databases that the databases' tests share.
//!
//! A behaviour registers itself with the line below it:
//!
//! ```ignore
//! /// Only what is given changes.
//! async fn only_what_is_given_changes(store: &dyn Store) { … }
//! behaviour!(only_what_is_given_changes(store));
//! ```
//!
//! The compiler reports a behaviour that is not registered as an unused function.
//!
//! A database's crate has a test without libtest's harness, whose `main` passes a function that opens an empty store.
//! It runs one test for each behaviour:
//!
//! ```ignore
//! async fn open() -> Option<context_store_conformance::Opened> { … }
//!
//! fn main() -> std::process::ExitCode {
//!     context_store_conformance::run(open)
//! }
//! ```
//!
//! `None` means that the database is not available here. The function that opens it must print that clearly.

pub mod generate;

mod arrange;
mod artifacts;
mod batches;
mod context;
mod damage;
mod deletes;
mod documents;
mod feed;
mod filters;
mod full_text;
mod idempotency;
mod keys;
mod overview;
mod paths;
mod reads;
mod retransmits;
mod revisions;
mod statistics;
mod storing;
mod suite;
mod summaries;
mod tags;
mod threads;
mod updates;
mod vectors;

pub use suite::{Opened, Tamper, behaviours, run, run_all};
