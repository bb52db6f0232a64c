//! On a full disk writes fail, reads continue, and writes resume when there is space.

use context_store::{DeleteCriteria, OwnerId, Store, StoreError};
use context_store_sqlite::{Config, SqliteStore};

use crate::arrange::{entry, found, options, store_batch, texts, update};

#[tokio::test]
async fn writes_resume_when_there_is_room_again() {
    let directory = tempfile::tempdir().unwrap();
    let config = Config {
        max_file_bytes: Some(1 << 20),
        ..Config::new(directory.path().join("contexts.db"))
    };
    let store = SqliteStore::open(config).unwrap();
    let owner = OwnerId::default();
    let mut stored = 0;
    let refused = loop {
        let text = format!("number{stored} {}", "x".repeat(10_000));
        match store
            .store_contexts(&owner, vec![entry(&text)], true, options())
            .await
        {
            Ok(_) => stored += 1,
            Err(refused) => break refused,
        }
        assert!(stored < 1000, "the limit holds");
    };
    assert!(matches!(refused, StoreError::Full(_)), "{refused:?}");
    assert!(stored > 10);

    let before = store
        .statistics(&owner, None, crate::arrange::read())
        .await
        .unwrap();
    assert_eq!((before.total_entries, before.revision), (stored, stored));
    let grown = update(1, &"y".repeat(500_000));
    let refused = store
        .update_contexts(&owner, vec![grown], true, options())
        .await;
    assert!(matches!(refused, Err(StoreError::Full(_))), "{refused:?}");
    assert_eq!(texts(&store).await.len(), usize::try_from(stored).unwrap());
    assert_eq!(found(&store, "english", "number1").await.len(), 1);

    let half = DeleteCriteria {
        ids: Some((1..=stored / 2).collect()),
        ..DeleteCriteria::default()
    };
    assert_eq!(
        store
            .delete_contexts(&owner, half, options())
            .await
            .unwrap()
            .outcome,
        u64::try_from(stored / 2).unwrap()
    );
    store_batch(&store, [entry("there is room")]).await;
    assert_eq!(found(&store, "english", "room").await, ["there is room"]);
    store.close().await;
}
