//! The behaviours that every database shows.

use std::sync::Arc;

use context_store::conformance::Opened;
use context_store_sqlite::{Config, SqliteStore};

async fn open() -> Option<Opened> {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let config = Config { indexed_fields: vec!["status".to_owned()], ..Config::new(directory.path().join("contexts.db")) };
    let store = SqliteStore::open(config).expect("a new database opens");
    Some(Opened { store: Arc::new(store), keep: Box::new(directory) })
}

context_store::conformance_tests!(open);
context_store::artifact_conformance_tests!(open);
context_store::key_conformance_tests!(open);
