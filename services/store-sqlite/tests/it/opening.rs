//! Which files can be opened, and what survives a restart.

use std::io::{Seek as _, Write as _};
use std::path::Path;

use context_model::{ArtifactId, Metadata, NewArtifact, Source};
use context_store::{ArtifactStore as _, ContextWindow, OwnerId, Store, StoreError};
use context_store_sqlite::{Config, OpenError, SqliteStore, Started};
use diesel::connection::SimpleConnection as _;
use diesel::prelude::*;
use diesel::sqlite::SqliteConnection;

use crate::arrange::{entry, options, store_batch, texts};

fn refusal(path: &Path) -> OpenError {
    SqliteStore::open(Config::new(path)).unwrap_err()
}

#[tokio::test]
async fn what_was_stored_is_there_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("new/directory/contexts.db");
    for text in ["first", "second"] {
        let store = SqliteStore::open(Config::new(&path)).unwrap();
        store_batch(&store, [entry(text)]).await;
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
    let store = SqliteStore::open(Config {
        started: Started::Automatically,
        ..Config::new(&path)
    })
    .unwrap();
    let refused = refusal(&path);
    let OpenError::Held { holder, .. } = &refused else {
        panic!("{refused}")
    };
    assert_eq!(
        (holder.pid, holder.started),
        (Some(std::process::id()), Some(Started::Automatically))
    );
    assert!(
        refused.to_string().contains("which a gateway started"),
        "{refused}"
    );
    store.close().await;
    SqliteStore::open(Config::new(&path)).unwrap().close().await;
}

#[test]
fn a_foreign_database_is_refused_untouched() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("foreign #1?.db");
    SqliteConnection::establish(path.to_str().unwrap())
        .unwrap()
        .batch_execute("CREATE TABLE theirs (x)")
        .unwrap();
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
    SqliteConnection::establish(path.to_str().unwrap())
        .unwrap()
        .batch_execute("PRAGMA user_version = 99")
        .unwrap();
    let refused = refusal(&path);
    assert!(
        matches!(refused, OpenError::Newer { found: 99, .. }),
        "{refused}"
    );
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
async fn a_new_database_is_for_the_user_alone() {
    use std::os::unix::fs::PermissionsExt as _;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("contexts.db");
    let store = SqliteStore::open(Config::new(&path)).unwrap();
    store_batch(&store, [entry("x")]).await;
    let mut names = Vec::new();
    for file in std::fs::read_dir(directory.path()).unwrap() {
        let file = file.unwrap();
        let mode = file.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{file:?}");
        names.push(file.file_name().into_string().unwrap());
    }
    for name in ["contexts.db", "contexts.db-wal", "contexts.db.lock"] {
        assert!(names.iter().any(|found| found == name), "{names:?}");
    }
    store.close().await;
}

#[tokio::test]
async fn an_empty_file_becomes_a_database() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("contexts.db");
    std::fs::write(&path, "").unwrap();
    let store = SqliteStore::open(Config::new(&path)).unwrap();
    store_batch(&store, [entry("x")]).await;
    assert_eq!(texts(&store).await, ["x"]);
    store.close().await;
}

#[tokio::test]
async fn indexes_follow_the_setting() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("contexts.db");
    for fields in [vec!["status", "agent.name"], vec!["status"], vec![]] {
        let indexed_fields: Vec<String> = fields.iter().map(ToString::to_string).collect();
        SqliteStore::open(Config {
            indexed_fields,
            ..Config::new(&path)
        })
        .unwrap()
        .close()
        .await;
        let mut conn = SqliteConnection::establish(path.to_str().unwrap()).unwrap();
        let indexes: i64 = diesel::dsl::sql::<diesel::sql_types::BigInt>(
            "SELECT count(*) FROM sqlite_schema WHERE type = 'index' AND name LIKE 'entries%metadata:%'",
        )
        .get_result(&mut conn)
        .unwrap();
        assert_eq!(usize::try_from(indexes).unwrap(), fields.len());
    }
    let refused = SqliteStore::open(Config {
        indexed_fields: vec!["a b".into()],
        ..Config::new(&path)
    })
    .unwrap_err();
    assert!(refused.to_string().contains("`a b`"), "{refused}");
}

#[tokio::test]
async fn a_closed_store_says_so() {
    let directory = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(Config::new(directory.path().join("contexts.db"))).unwrap();
    store.close().await;
    store.close().await;
    let write = store
        .store_contexts(&OwnerId::default(), vec![entry("late")], true, options())
        .await;
    assert!(matches!(write, Err(StoreError::Closed)), "{write:?}");
    assert!(matches!(store.check().await, Err(StoreError::Closed)));
}

#[tokio::test]
async fn a_damaged_file_is_reported_and_not_served() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("contexts.db");
    let store = SqliteStore::open(Config::new(&path)).unwrap();
    store_batch(
        &store,
        (0..100).map(|i| entry(&format!("{i} {}", "x".repeat(3000)))),
    )
    .await;
    store.close().await;
    let whole = std::fs::read(&path).unwrap();

    // Everything after the first 20 pages is overwritten, and then cut off.
    let mut file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.seek(std::io::SeekFrom::Start(20 * 4096)).unwrap();
    file.write_all(&vec![0xa5; whole.len() - 20 * 4096])
        .unwrap();
    assert_corrupt(&path).await;
    std::fs::write(&path, &whole[..20 * 4096]).unwrap();
    assert_corrupt(&path).await;
}

async fn assert_corrupt(path: &Path) {
    let store = match SqliteStore::open(Config::new(path)) {
        Err(refused) => {
            assert!(matches!(refused, OpenError::Corrupt { .. }), "{refused}");
            return;
        }
        Ok(store) => store,
    };
    let found = crate::arrange::all(&store).await;
    assert!(matches!(found, Err(StoreError::Corrupt(_))), "{found:?}");
    let ids = (1..=100).collect();
    let found = store
        .get_contexts(
            &OwnerId::default(),
            ids,
            crate::arrange::SELECTION,
            crate::arrange::read(),
        )
        .await;
    assert!(matches!(found, Err(StoreError::Corrupt(_))), "{found:?}");
    store.close().await;
}

#[tokio::test]
async fn a_start_that_was_cut_short_is_taken_up_again() {
    // The state after a first start that ended before the first table, or after the table of the migrations themselves.
    for statements in [
        "PRAGMA application_id = 0x43747873",
        "PRAGMA application_id = 0x43747873; CREATE TABLE __diesel_schema_migrations \
         (version VARCHAR(50) PRIMARY KEY NOT NULL, run_on TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP)",
    ] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("contexts.db");
        SqliteConnection::establish(path.to_str().unwrap())
            .unwrap()
            .batch_execute(statements)
            .unwrap();
        let store = SqliteStore::open(Config::new(&path)).unwrap();
        store_batch(&store, [entry("x")]).await;
        store.close().await;
    }
}

#[tokio::test]
async fn a_database_whose_process_was_killed_opens_with_everything_acknowledged() {
    let directory = tempfile::tempdir().unwrap();
    let (path, copy) = (
        directory.path().join("contexts.db"),
        directory.path().join("killed.db"),
    );
    let store = SqliteStore::open(Config::new(&path)).unwrap();
    store_batch(&store, ["first", "second"].map(entry)).await;
    // The state after a process was killed: nothing has been checkpointed yet.
    for end in ["", "-wal"] {
        std::fs::copy(
            format!("{}{end}", path.display()),
            format!("{}{end}", copy.display()),
        )
        .unwrap();
    }
    store.close().await;
    let store = SqliteStore::open(Config::new(&copy)).unwrap();
    assert_eq!(texts(&store).await, ["second", "first"]);
    store.close().await;
}

#[test]
fn a_place_that_cannot_be_written_is_named() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("file"), "").unwrap();
    std::fs::create_dir(directory.path().join("directory.db")).unwrap();
    for path in ["file/contexts.db", "directory.db"] {
        let refused = refusal(&directory.path().join(path));
        assert!(
            matches!(
                refused,
                OpenError::NotWritable { .. } | OpenError::Other { .. }
            ),
            "{refused:?}"
        );
        assert!(refused.to_string().contains(path), "{refused}");
    }
}

#[tokio::test]
async fn artifacts_without_documents_are_all_indexed_at_the_start() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("contexts.db");
    let store = SqliteStore::open(Config::new(&path)).unwrap();
    // More than are indexed in one transaction, of two owners.
    for owner in ["one", "two"] {
        for number in 0..45 {
            let new = NewArtifact {
                path: None,
                title: None,
                content: format!("artifact {number}"),
                metadata: Metadata::default(),
            };
            let id = format!("0190163d-8694-739b-aea5-966c26f8a{number:03}");
            let id = ArtifactId::parse(&id).unwrap();
            store
                .create_artifact(&OwnerId::new(owner), id, new, options())
                .await
                .unwrap();
        }
    }
    store.close().await;
    let mut conn = SqliteConnection::establish(path.to_str().unwrap()).unwrap();
    // One owner has a document between those without one.
    conn.batch_execute(
        "DELETE FROM artifact_documents WHERE owner = 1 OR artifact_id NOT LIKE '%020'",
    )
    .unwrap();
    let documents = |conn: &mut SqliteConnection| {
        diesel::dsl::sql::<diesel::sql_types::BigInt>("SELECT count(*) FROM artifact_documents")
            .get_result::<i64>(conn)
            .unwrap()
    };
    assert_eq!(documents(&mut conn), 1);
    let store = SqliteStore::open(Config::new(&path)).unwrap();
    store.close().await;
    assert_eq!(documents(&mut conn), 90);
}

#[tokio::test]
async fn another_language_is_indexed_again() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("contexts.db");
    // Each start adds an entry. In German, an index that is not made again finds only the new one.
    for (language, finds) in [("english", 0), ("german", 2), ("klingon", 0)] {
        let store = SqliteStore::open(Config {
            language: language.to_owned(),
            ..Config::new(&path)
        })
        .unwrap();
        store_batch(&store, [entry(&format!("viele Häuser, {language}"))]).await;
        assert_eq!(
            crate::arrange::found(&store, language, "haus").await.len(),
            finds,
            "{language}"
        );
        store.close().await;
    }
}

#[tokio::test]
async fn another_language_is_used_for_artifacts_after_all_earlier_ones_were_deleted() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("contexts.db");
    let id = ArtifactId::parse("0190163d-8694-739b-aea5-966c26f8a000").unwrap();
    for language in ["english", "german"] {
        let store = SqliteStore::open(Config {
            language: language.to_owned(),
            ..Config::new(&path)
        })
        .unwrap();
        let new = NewArtifact {
            path: None,
            title: None,
            content: "viele Häuser".to_owned(),
            metadata: Metadata::default(),
        };
        let owner = OwnerId::default();
        store
            .create_artifact(&owner, id, new, options())
            .await
            .unwrap();
        store.delete_artifact(&owner, id, options()).await.unwrap();
        store.close().await;
        let mut conn = SqliteConnection::establish(path.to_str().unwrap()).unwrap();
        let table = diesel::dsl::sql::<diesel::sql_types::Text>(
            "SELECT sql FROM sqlite_schema WHERE name = 'fts_artifacts_1'",
        )
        .get_result::<String>(&mut conn)
        .unwrap();
        assert!(table.contains(&format!("'context {language}'")), "{table}");
    }
}

#[tokio::test]
async fn another_context_window_is_indexed_again() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("contexts.db");
    let context_windows = [
        ContextWindow::NONE,
        ContextWindow::default(),
        ContextWindow {
            entries: 1,
            ..ContextWindow::default()
        },
    ];
    for (context_window, expected) in context_windows.into_iter().zip([1, 3, 2]) {
        let store = SqliteStore::open(Config {
            context_window,
            ..Config::new(&path)
        })
        .unwrap();
        if expected == 1 {
            let mut turns = ["apple", "second", "third"].map(entry);
            turns[1].source = Source::Agent;
            store_batch(&store, turns).await;
        }
        assert_eq!(
            crate::arrange::found_with_context(&store, "apple")
                .await
                .len(),
            expected
        );
        store.close().await;
    }
}
