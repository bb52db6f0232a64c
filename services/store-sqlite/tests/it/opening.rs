//! Whose a file is, and what survives a restart.

use std::path::Path;
use std::time::Duration;

use context_model::{Filter, NewEntry, Source, ThreadId, Timestamp};
use context_store::{OwnerId, Page, Read, RowSelection, Store, WriteOptions};
use context_store_sqlite::{Config, OpenError, SqliteStore, Started};
use diesel::connection::SimpleConnection as _;
use diesel::prelude::*;
use diesel::sqlite::SqliteConnection;

fn entry(text: &str) -> NewEntry {
    NewEntry {
        thread_id: ThreadId::from_stored("t".into()),
        source: Source::User,
        text: text.into(),
        images: None,
        metadata: None,
        tags: None,
    }
}

fn options() -> WriteOptions {
    WriteOptions { now: Timestamp(1_700_000_000_000_000), idempotency: None, key_id: None }
}

fn read() -> Read {
    Read { min_revision: None, wait: Duration::ZERO }
}

const SELECTION: RowSelection = RowSelection { images: false, text_chars: None, explain: false, max_bytes: 1 << 20 };

async fn texts(store: &SqliteStore) -> Vec<String> {
    let page = Page { limit: 100, offset: 0 };
    let found = store.search_contexts(&OwnerId::default(), Filter::default(), page, SELECTION, read()).await.unwrap();
    found.entries.into_iter().map(|entry| entry.text).collect()
}

fn refusal(path: &Path) -> OpenError {
    SqliteStore::open(Config::new(path)).unwrap_err()
}

#[tokio::test]
async fn what_was_stored_is_there_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("new/directory/contexts.db");
    for text in ["first", "second"] {
        let store = SqliteStore::open(Config::new(&path)).unwrap();
        store.store_contexts(&OwnerId::default(), vec![entry(text)], true, options()).await.unwrap();
        store.close().await;
    }
    let store = SqliteStore::open(Config::new(&path)).unwrap();
    assert_eq!(texts(&store).await, ["second", "first"]);
    store.close().await;
}

#[tokio::test]
async fn a_second_process_is_told_who_holds_the_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("contexts.db");
    let store = SqliteStore::open(Config { started: Started::Automatically, ..Config::new(&path) }).unwrap();
    let refused = refusal(&path);
    let OpenError::Held { holder, .. } = &refused else { panic!("{refused}") };
    assert_eq!((holder.pid, holder.started), (Some(std::process::id()), Some(Started::Automatically)));
    assert!(refused.to_string().contains("which a gateway started"), "{refused}");
    store.close().await;
    SqliteStore::open(Config::new(&path)).unwrap().close().await;
}

#[test]
fn a_foreign_database_is_refused_untouched() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("foreign #1?.db");
    SqliteConnection::establish(path.to_str().unwrap()).unwrap().batch_execute("CREATE TABLE theirs (x)").unwrap();
    let before = std::fs::read(&path).unwrap();
    let refused = refusal(&path);
    assert!(matches!(refused, OpenError::Foreign { .. }), "{refused}");
    assert!(refused.to_string().contains("migrate-data"), "{refused}");
    assert_eq!(std::fs::read(&path).unwrap(), before);
}

#[tokio::test]
async fn a_database_of_a_newer_version_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("contexts.db");
    SqliteStore::open(Config::new(&path)).unwrap().close().await;
    SqliteConnection::establish(path.to_str().unwrap()).unwrap().batch_execute("PRAGMA user_version = 99").unwrap();
    let refused = refusal(&path);
    assert!(matches!(refused, OpenError::Newer { found: 99, .. }), "{refused}");
}

#[test]
fn a_file_that_is_no_database_is_refused_untouched() {
    let directory = tempfile::tempdir().unwrap();
    for content in [&b"hello"[..], &[7; 5000]] {
        let path = directory.path().join("contexts.db");
        std::fs::write(&path, content).unwrap();
        let refused = refusal(&path);
        assert!(matches!(refused, OpenError::Corrupt { .. }), "{refused}");
        assert_eq!(std::fs::read(&path).unwrap(), content);
    }
}

#[tokio::test]
async fn an_empty_file_becomes_a_database_for_the_user_alone() {
    use std::os::unix::fs::PermissionsExt as _;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("contexts.db");
    let store = SqliteStore::open(Config::new(&path)).unwrap();
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    store.close().await;
}

#[tokio::test]
async fn indexes_follow_the_setting() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("contexts.db");
    for fields in [vec!["status", "agent.name"], vec!["status"], vec![]] {
        let indexed_fields: Vec<String> = fields.iter().map(ToString::to_string).collect();
        SqliteStore::open(Config { indexed_fields, ..Config::new(&path) }).unwrap().close().await;
        let mut conn = SqliteConnection::establish(path.to_str().unwrap()).unwrap();
        let indexes: i64 = diesel::dsl::sql::<diesel::sql_types::BigInt>(
            "SELECT count(*) FROM sqlite_schema WHERE type = 'index' AND name LIKE 'entries%metadata:%'",
        )
        .get_result(&mut conn)
        .unwrap();
        assert_eq!(usize::try_from(indexes).unwrap(), fields.len());
    }
    let refused = SqliteStore::open(Config { indexed_fields: vec!["a b".into()], ..Config::new(&path) }).unwrap_err();
    assert!(refused.to_string().contains("`a b`"), "{refused}");
}

#[tokio::test]
async fn a_closed_store_says_so() {
    let directory = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(Config::new(directory.path().join("contexts.db"))).unwrap();
    store.close().await;
    store.close().await;
    let write = store.store_contexts(&OwnerId::default(), vec![entry("late")], true, options()).await;
    assert!(matches!(write, Err(context_store::StoreError::Closed)), "{write:?}");
    assert!(matches!(store.check().await, Err(context_store::StoreError::Closed)));
}
