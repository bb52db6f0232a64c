//! The rows of the table `changes` that stores, updates and deletes write.

use context_store::{DeleteCriteria, OwnerId, Store};
use context_store_sqlite::{Config, SqliteStore};
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Text};
use diesel::sqlite::SqliteConnection;

use crate::arrange::{entry, options, store_batch, update};

#[derive(QueryableByName)]
struct Change {
    #[diesel(sql_type = BigInt)]
    revision: i64,
    #[diesel(sql_type = Text)]
    line: String,
}

#[tokio::test]
async fn every_change_has_a_row_and_the_revisions_have_no_gap() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("contexts.db");
    let store = SqliteStore::open(Config::new(&path)).unwrap();
    let owner = OwnerId::default();
    store_batch(&store, ["a", "a", "b", "c"].map(entry)).await;
    let updates = vec![update(1, "x"), update(99, "unknown"), update(1, "y")];
    store
        .update_contexts(&owner, updates.clone(), true, options())
        .await
        .unwrap_err();
    store
        .update_contexts(&owner, updates, false, options())
        .await
        .unwrap();
    let criteria = DeleteCriteria {
        ids: Some(vec![1, 3]),
        ..DeleteCriteria::default()
    };
    store
        .delete_contexts(&owner, criteria, options())
        .await
        .unwrap();
    store.close().await;

    let mut conn = SqliteConnection::establish(path.to_str().unwrap()).unwrap();
    let changes: Vec<Change> = diesel::sql_query(
        "SELECT revision, operation || ' ' || entity || ' ' || entity_id || ' ' || thread_id || ' v' || version || ' ' || key_id AS line \
         FROM changes WHERE owner = 1 ORDER BY revision",
    )
    .load(&mut conn)
    .unwrap();
    let lines: Vec<&str> = changes.iter().map(|change| change.line.as_str()).collect();
    assert_eq!(
        lines,
        [
            "create context 1 t v1 key",
            "create context 2 t v1 key",
            "create context 3 t v1 key",
            "update context 1 t v2 key",
            "update context 1 t v3 key",
            "delete context 1 t v3 key",
            "delete context 3 t v1 key",
        ]
    );
    assert!(changes.iter().map(|change| change.revision).eq(1..=7));
}
