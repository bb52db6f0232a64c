//! The behaviours every database shows.

use context_store::conformance::Opened;
use context_store::conformance::damage::Tamper;
use context_test_postgres::Client;

use super::arrange::{database, open, store};

/// Another connection to the database.
struct Session(Client);

#[async_trait::async_trait]
impl Tamper for Session {
    async fn execute(&self, sql: &str) {
        self.0
            .batch_execute(sql)
            .await
            .unwrap_or_else(|error| panic!("{sql}: {error}"));
    }
}

async fn open_to_tamper() -> Option<(Opened, Box<dyn Tamper>)> {
    let database = database().await?;
    let store = store(&database).await;
    let client = database.connect().await;
    client
        .batch_execute("SET search_path TO context")
        .await
        .expect("a setting");
    Some((
        Opened {
            store: std::sync::Arc::new(store),
            keep: Box::new(database),
        },
        Box::new(Session(client)),
    ))
}

context_store::conformance_tests!(open);
context_store::artifact_conformance_tests!(open);
context_store::key_conformance_tests!(open);
context_store::damage_conformance_tests!(open_to_tamper);
