//! Damage to the server's files: as reported by the server, and in a text that the server returns.

use context_model::{Filter, NewEntry, Source, ThreadId, Timestamp};
use context_store::seal::Part;
use context_store::{
    DeleteCriteria, Denial, EmbeddingModel, Memory, OwnerId, Page, Read, Retention, RowSelection,
    Store, StoreError, VectorStore as _, WriteOptions,
};

use super::arrange::{database, store};

async fn write(store: &dyn Store, text: &str) -> Result<(), StoreError> {
    let thread_id = ThreadId::from_stored("t".to_owned());
    let entry = NewEntry {
        thread_id,
        source: Source::User,
        text: text.to_owned(),
        images: None,
        metadata: None,
        tags: None,
    };
    let options = WriteOptions {
        now: Timestamp(1),
        idempotency: None,
        key_id: None,
        embeddings: Vec::new(),
    };
    store
        .store_contexts(&OwnerId::default(), vec![entry], true, options)
        .await
        .map(|_| ())
}

#[tokio::test]
async fn damage_that_the_server_reports_stops_writes_and_not_reads() {
    let Some(database) = database().await else {
        return;
    };
    let (first, client) = (store(&database).await, database.connect().await);
    let trigger = "CREATE FUNCTION context.fail() RETURNS trigger LANGUAGE plpgsql AS \
                   $$ BEGIN RAISE EXCEPTION 'said by a test' USING ERRCODE = NEW.text; END $$; \
                   CREATE TRIGGER fail BEFORE INSERT ON context.entries FOR EACH ROW WHEN (NEW.text LIKE 'XX00_') EXECUTE FUNCTION context.fail()";
    client.batch_execute(trigger).await.expect("a trigger");
    write(&first, "before").await.expect("it is stored");
    assert!(
        matches!(write(&first, "XX000").await, Err(StoreError::Internal(_))),
        "an internal error is not damage"
    );
    write(&first, "still").await.expect("it is stored");
    assert!(matches!(
        write(&first, "XX001").await,
        Err(StoreError::Corrupt(_))
    ));
    assert!(
        matches!(write(&first, "after").await, Err(StoreError::Unsound)),
        "writes are rejected"
    );
    assert!(
        matches!(first.check().await, Err(StoreError::Unsound)),
        "the store reports the damage"
    );
    let selection = RowSelection {
        images: false,
        text_chars: None,
        explain: false,
        max_bytes: 1 << 20,
        memory: Memory::UNCOUNTED,
    };
    let (page, read) = (
        Page {
            limit: 10,
            offset: 0,
        },
        Read::default(),
    );
    let found = first
        .search_contexts(
            &OwnerId::default(),
            Filter::default(),
            page,
            selection,
            read,
        )
        .await
        .expect("reads go on");
    assert_eq!(found.entries.len(), 2);
    let second = store(&database).await;
    write(&second, "after a restart")
        .await
        .expect("writes go on after an operator has acted");
    first.close().await;
    second.close().await;
}

#[tokio::test]
async fn damage_that_a_background_task_meets_stops_writes() {
    let Some(database) = database().await else {
        return;
    };
    let triggers = "CREATE FUNCTION context.fail() RETURNS trigger LANGUAGE plpgsql AS \
                    $$ BEGIN RAISE EXCEPTION 'said by a test' USING ERRCODE = 'XX001'; END $$; \
                    CREATE TRIGGER fail BEFORE INSERT ON context.audited_changes FOR EACH ROW EXECUTE FUNCTION context.fail(); \
                    CREATE TRIGGER fail BEFORE DELETE ON context.denials FOR EACH ROW EXECUTE FUNCTION context.fail()";
    let client = database.connect().await;
    client.batch_execute(triggers).await.expect("triggers");
    let (first, second) = (store(&database).await, store(&database).await);
    for text in ["one", "another"] {
        write(&first, text).await.expect("it is stored");
    }
    let denial = Denial {
        at: Timestamp(1),
        key_id: "k1".into(),
        operation: "delete_context".into(),
        reason: "SCOPE_MISSING".into(),
        attempts: 1,
    };
    Store::keys(&first)
        .record_denial(&OwnerId::default(), denial)
        .await
        .expect("it is recorded");
    let before = Timestamp(2);
    let compacted = Store::changes(&first).compact(Retention {
        before,
        max_rows: 1,
    });
    assert!(matches!(compacted.await, Err(StoreError::Corrupt(_))));
    let removed = Store::keys(&second).remove_audit_lines(before).await;
    assert!(matches!(removed, Err(StoreError::Corrupt(_))));
    for store in [first, second] {
        assert!(
            matches!(write(&store, "after").await, Err(StoreError::Unsound)),
            "writes are rejected"
        );
        store.close().await;
    }
}

#[tokio::test]
async fn a_damaged_entry_spoils_no_page_and_can_become_the_newest_of_its_thread() {
    let Some(database) = database().await else {
        return;
    };
    let (store, client) = (store(&database).await, database.connect().await);
    for text in ["apple", "banana", "cherry"] {
        write(&store, text).await.expect("it is stored");
    }
    // The cast copies the bytes without checking them.
    let damage = "CREATE CAST (bytea AS text) WITHOUT FUNCTION; \
                  UPDATE context.entries SET text = '\\xff61'::bytea::text, summary = '\\xff'::bytea::text WHERE id = 2";
    client.batch_execute(damage).await.expect("a damaged entry");
    let criteria = DeleteCriteria {
        ids: Some(vec![3]),
        ..DeleteCriteria::default()
    };
    let options = WriteOptions {
        now: Timestamp(2),
        idempotency: None,
        key_id: None,
        embeddings: Vec::new(),
    };
    let deleted = store
        .delete_contexts(&OwnerId::default(), criteria, options)
        .await
        .expect("the newest entry is deleted");
    assert_eq!(deleted.outcome, 1);
    write(&store, "damson").await.expect("it is stored");
    let selection = RowSelection {
        images: false,
        text_chars: None,
        explain: false,
        max_bytes: 1 << 20,
        memory: Memory::UNCOUNTED,
    };
    let page = Page {
        limit: 10,
        offset: 0,
    };
    let found = store
        .search_contexts(
            &OwnerId::default(),
            Filter::default(),
            page,
            selection,
            Read::default(),
        )
        .await
        .expect("the page is read");
    let damages: Vec<Option<Part>> = found.entries.iter().map(|entry| entry.damage).collect();
    assert_eq!(damages, [None, Some(Part::Text), None]);
    store.close().await;
}

#[tokio::test]
async fn background_work_goes_on_after_a_damaged_entry() {
    let Some(database) = database().await else {
        return;
    };
    let (store, client) = (store(&database).await, database.connect().await);
    for text in ["apple", "banana", "cherry"] {
        write(&store, text).await.expect("it is stored");
    }
    // The cast copies the bytes without checking them.
    let damage = "CREATE CAST (bytea AS text) WITHOUT FUNCTION; UPDATE context.entries SET seal = NULL; \
                  UPDATE context.entries SET text = '\\xff61'::bytea::text WHERE id = 2";
    client.batch_execute(damage).await.expect("a damaged text");

    let waiting = store
        .summaries()
        .unsummarized(None, 0, 1000, 100)
        .await
        .expect("a page");
    let found: Vec<i64> = waiting.entries.iter().map(|entry| entry.id).collect();
    assert_eq!(found, [1, 2, 3], "they wait for summaries");

    let model = EmbeddingModel {
        identity: "test@1".to_owned(),
        dimensions: 3,
    };
    store
        .use_model(&model)
        .await
        .expect("the model is selected");
    let waiting = store.unembedded(&model, None, 100).await.expect("a page");
    let found: Vec<i64> = waiting.entries.iter().map(|entry| entry.id).collect();
    assert_eq!(found, [1, 2, 3], "they wait for embeddings");

    let mut after = None;
    loop {
        let sealed = store.seals().seal(after.as_ref()).await;
        after = sealed.expect("a page").next;
        if after.is_none() {
            break;
        }
    }
    let unsealed = "SELECT count(*) FROM context.entries WHERE seal IS NULL OR substring(seal FROM 1 FOR 8) < int8send(version)";
    let unsealed = client.query_one(unsealed, &[]).await.expect("counted");
    assert_eq!(unsealed.get::<_, i64>(0), 0, "no step reads them again");
    let selection = RowSelection {
        images: false,
        text_chars: None,
        explain: false,
        max_bytes: 1 << 20,
        memory: Memory::UNCOUNTED,
    };
    let mut entries = store
        .get_contexts(
            &OwnerId::default(),
            vec![1, 2, 3],
            selection,
            Read::default(),
        )
        .await
        .expect("they are read")
        .entries;
    entries.sort_by_key(|entry| entry.id);
    let damages: Vec<Option<Part>> = entries.into_iter().map(|entry| entry.damage).collect();
    assert_eq!(
        damages,
        [None, Some(Part::Checksum), None],
        "what was damaged before it got a checksum is not sealed as sound"
    );
    store.close().await;
}
