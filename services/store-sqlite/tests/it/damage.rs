//! One damaged row affects no other row. Only SQLite stores text that is not UTF-8 or not JSON.

use std::path::{Path, PathBuf};

use context_model::{Filter, NewEntry, NewImage, Reason, Source, Tags, Violations};
use context_store::seal::Part;
use context_store::{
    DeleteCriteria, EmbeddingModel, OwnerId, Page, Store, StoreError, StoredEntry, VectorStore as _,
};
use context_store_sqlite::{Config, SqliteStore};
use diesel::connection::SimpleConnection as _;
use diesel::prelude::*;
use diesel::sqlite::SqliteConnection;

use crate::arrange::{SELECTION, entry, found, options, read, store_batch};

/// A database file whose entries 1 to 5 have a text of one word each, a tag and an image.
struct Damaged {
    path: PathBuf,
    _directory: tempfile::TempDir,
}

const WORDS: [&str; 5] = ["apple", "banana", "cherry", "damson", "elderberry"];

fn tagged(text: &str) -> NewEntry {
    let image = NewImage {
        data: b"image".to_vec(),
        mime_type: "image/png".to_owned(),
        metadata: None,
    };
    NewEntry {
        tags: Some(Tags::parse(
            vec!["tag".to_owned()],
            "tags",
            &mut Violations::default(),
        )),
        images: Some(vec![image]),
        ..entry(text)
    }
}

fn open(path: &Path, language: &str) -> SqliteStore {
    SqliteStore::open(Config {
        language: language.to_owned(),
        ..Config::new(path)
    })
    .unwrap()
}

fn execute(path: &Path, sql: &str) {
    let mut conn = SqliteConnection::establish(path.to_str().unwrap()).unwrap();
    conn.batch_execute(sql)
        .unwrap_or_else(|error| panic!("{sql}: {error}"));
}

async fn damaged(sql: &str) -> Damaged {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("contexts.db");
    let store = open(&path, "english");
    store_batch(&store, WORDS.map(tagged)).await;
    store.close().await;
    execute(&path, sql);
    Damaged {
        path,
        _directory: directory,
    }
}

/// All entries, oldest first, with their images.
async fn entries(store: &SqliteStore) -> Vec<StoredEntry> {
    let page = Page {
        limit: 100,
        offset: 0,
    };
    let selection = context_store::RowSelection {
        images: true,
        ..SELECTION
    };
    let mut entries = store
        .search_contexts(
            &OwnerId::default(),
            Filter::default(),
            page,
            selection,
            read(),
        )
        .await
        .unwrap()
        .entries;
    entries.reverse();
    entries
}

/// The damaged part of each entry.
async fn damages(store: &SqliteStore) -> Vec<Option<Part>> {
    entries(store)
        .await
        .into_iter()
        .map(|entry| entry.damage)
        .collect()
}

async fn delete(store: &SqliteStore, id: i64) -> u64 {
    let criteria = DeleteCriteria {
        ids: Some(vec![id]),
        ..DeleteCriteria::default()
    };
    store
        .delete_contexts(&OwnerId::default(), criteria, options())
        .await
        .unwrap()
        .outcome
}

#[tokio::test]
async fn a_damaged_entry_is_read_indexed_and_deleted_alone() {
    for (change, part) in [
        ("text = CAST(x'ff61' AS TEXT)", Some(Part::Text)),
        ("metadata = CAST(x'7bff7d' AS TEXT)", Some(Part::Metadata)),
        ("tags = '[\"tag'", Some(Part::Tags)),
        ("tags = CAST(x'ff' AS TEXT)", Some(Part::Tags)),
        ("source = CAST(x'ff' AS TEXT)", Some(Part::Source)),
        // No checksum covers these.
        ("tags = CAST(x'5b22ff225d' AS TEXT)", None),
        ("summary = CAST(x'ff' AS TEXT)", None),
        ("thread_id = CAST(x'ff' AS TEXT)", None),
    ] {
        let Damaged { path, _directory } =
            damaged(&format!("UPDATE entries SET {change} WHERE id = 4")).await;
        let store = open(&path, "english");
        assert_eq!(
            damages(&store).await,
            [None, None, None, part, None],
            "{change}"
        );
        // Its text would be in the context window of this entry, which is read because the store has just started.
        let mut reply = entry("fig");
        reply.source = Source::Agent;
        store_batch(&store, [reply]).await;
        store.close().await;
        // Another language: all entries are indexed again.
        let store = open(&path, "german");
        assert_eq!(
            found(&store, "german", "apple").await,
            ["apple"],
            "{change}"
        );
        assert_eq!(found(&store, "german", "fig").await, ["fig"], "{change}");
        assert_eq!(delete(&store, 4).await, 1, "{change}");
        assert_eq!(damages(&store).await, [None; 5], "{change}");
        let page = Page {
            limit: 10,
            offset: 0,
        };
        let tags = store
            .list_tags(&OwnerId::default(), Filter::default(), None, page, read())
            .await
            .unwrap()
            .tags;
        assert_eq!((tags.len(), tags[0].entry_count), (1, 4), "{change}");
        store.close().await;
    }
}

#[tokio::test]
async fn a_damaged_image_spoils_no_page() {
    let Damaged { path, _directory } = damaged(
        "UPDATE images SET metadata = CAST(x'ff' AS TEXT) \
         WHERE row_id = (SELECT row_id FROM entries WHERE id = 2)",
    )
    .await;
    let store = open(&path, "english");
    assert_eq!(
        damages(&store).await,
        [None, Some(Part::Images), None, None, None]
    );
    store.close().await;
}

#[tokio::test]
async fn writes_go_on_after_a_change_that_cannot_be_read() {
    let Damaged { path, _directory } =
        damaged("UPDATE changes SET operation = 'merge' WHERE revision = 2").await;
    let store = open(&path, "english");
    let feed = store
        .changes()
        .feed(&OwnerId::default(), 1, 10, read())
        .await;
    assert!(
        matches!(&feed, Err(StoreError::Rejected(error)) if error.reason == Reason::StorageCorrupt),
        "{feed:?}"
    );
    store_batch(&store, [entry("fig")]).await;
    store.close().await;
}

#[tokio::test]
async fn background_work_goes_on_after_a_damaged_entry() {
    let Damaged { path, _directory } = damaged(
        "UPDATE entries SET seal = NULL; UPDATE images SET seal = NULL; DELETE FROM meta WHERE key = 'sealed'; \
         UPDATE entries SET text = CAST(x'ff61' AS TEXT) WHERE id = 2",
    )
    .await;
    let store = open(&path, "english");
    let ids: Vec<i64> = (1..=5).collect();
    let waiting = store
        .summaries()
        .unsummarized(None, 0, 1000, 100)
        .await
        .unwrap();
    let found: Vec<i64> = waiting.entries.iter().map(|entry| entry.id).collect();
    assert_eq!(found, ids, "they wait for summaries");

    let model = EmbeddingModel {
        identity: "test".to_owned(),
        dimensions: 64,
    };
    store.use_model(&model).await.unwrap();
    let waiting = store.unembedded(&model, None, 100).await.unwrap();
    let found: Vec<i64> = waiting.entries.iter().map(|entry| entry.id).collect();
    assert_eq!(found, ids, "they wait for embeddings");

    let mut after = None;
    loop {
        after = store.seals().seal(after.as_ref()).await.unwrap().next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(
        damages(&store).await,
        [None, Some(Part::Checksum), None, None, None],
        "what was damaged before it got a checksum is not sealed as sound"
    );
    store.close().await;
    execute(
        &path,
        "UPDATE entries SET text = 'changed' WHERE id IN (1, 5)",
    );
    let store = open(&path, "english");
    let damages = damages(&store).await;
    assert_eq!(
        (damages[0], damages[4]),
        (Some(Part::Text), Some(Part::Text))
    );
    store.close().await;
}
