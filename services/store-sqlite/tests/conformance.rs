//! Runs the behaviours of the conformance suite on SQLite.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use context_store_conformance::{Opened, Tamper, run};
use context_store_sqlite::{Config, SqliteStore};
use diesel::connection::SimpleConnection as _;
use diesel::prelude::*;
use diesel::sqlite::SqliteConnection;

/// Another connection to the file.
struct File(PathBuf);

#[async_trait::async_trait]
impl Tamper for File {
    async fn execute(&self, sql: &str) {
        let mut conn =
            SqliteConnection::establish(self.0.to_str().expect("UTF-8")).expect("the file opens");
        conn.batch_execute("PRAGMA busy_timeout = 10000")
            .expect("a setting");
        // As in a database from before checksums: the record that every row has checksums does not exist yet.
        conn.batch_execute("DELETE FROM meta WHERE key = 'sealed'")
            .expect("the record is deleted");
        conn.batch_execute(sql)
            .unwrap_or_else(|error| panic!("{sql}: {error}"));
    }
}

async fn open() -> Option<Opened> {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("contexts.db");
    let config = Config {
        indexed_fields: vec!["status".to_owned()],
        ..Config::new(&path)
    };
    let store = SqliteStore::open(config).expect("a new database opens");
    Some(Opened {
        store: Arc::new(store),
        tamper: Box::new(File(path)),
        keep: Box::new(directory),
    })
}

fn main() -> ExitCode {
    run(open)
}
