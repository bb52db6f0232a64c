//! Stores for the conformance suite.

use std::sync::Arc;

use context_store_conformance::{Opened, Tamper};
use context_test_postgres::connect;

use super::arrange::{database, store};

/// Opens a new connection to the database for each statement.
struct Connector {
    url: String,
}

#[async_trait::async_trait]
impl Tamper for Connector {
    async fn execute(&self, sql: &str) {
        let client = connect(&self.url).await;
        client
            .batch_execute("SET search_path TO context")
            .await
            .expect("a setting");
        client
            .batch_execute(sql)
            .await
            .unwrap_or_else(|error| panic!("{sql}: {error}"));
    }
}

/// A new database with an empty store.
pub async fn open() -> Option<Opened> {
    let database = database().await?;
    let store = store(&database).await;
    Some(Opened {
        store: Arc::new(store),
        tamper: Box::new(Connector {
            url: database.url().to_owned(),
        }),
        keep: Box::new(database),
    })
}
