//! The behaviours that every database shows.

use std::sync::Arc;

use context_store::conformance::Opened;
use context_store::conformance::damage::Tamper;
use context_store_sqlite::{Config, SqliteStore};
use diesel::connection::SimpleConnection as _;
use diesel::prelude::*;
use diesel::sqlite::SqliteConnection;

/// Another connection to the file.
struct File(std::path::PathBuf);

#[async_trait::async_trait]
impl Tamper for File {
    async fn execute(&self, sql: &str) {
        let mut conn =
            SqliteConnection::establish(self.0.to_str().expect("UTF-8")).expect("the file opens");
        conn.batch_execute("PRAGMA busy_timeout = 10000")
            .expect("a setting");
        // As in a database from before checksums: nothing says yet that every row has them.
        conn.batch_execute("DELETE FROM meta WHERE key = 'sealed'")
            .expect("the note is taken away");
        conn.batch_execute(sql)
            .unwrap_or_else(|error| panic!("{sql}: {error}"));
    }
}

async fn open_to_tamper() -> Option<(Opened, Box<dyn Tamper>)> {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("contexts.db");
    let store = SqliteStore::open(Config::new(&path)).expect("a new database opens");
    Some((
        Opened {
            store: Arc::new(store),
            keep: Box::new(directory),
        },
        Box::new(File(path)),
    ))
}

async fn open() -> Option<Opened> {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let config = Config {
        indexed_fields: vec!["status".to_owned()],
        ..Config::new(directory.path().join("contexts.db"))
    };
    let store = SqliteStore::open(config).expect("a new database opens");
    Some(Opened {
        store: Arc::new(store),
        keep: Box::new(directory),
    })
}

context_store::conformance_tests!(open);
context_store::artifact_conformance_tests!(open);
context_store::key_conformance_tests!(open);
context_store::damage_conformance_tests!(open_to_tamper);
