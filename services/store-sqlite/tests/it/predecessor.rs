//! Imports files of mcp-context-server: version 1 (integer ids), 2 (with summaries) and 3 (UUIDs).

use std::path::{Path, PathBuf};

use context_model::{Limits, ThreadId, Timestamp, Violations};
use context_store::transfer::predecessor::{ID_KEY, METADATA_KEY, TAGS_KEY, THREAD_KEY};
use context_store::transfer::{Observer, Phase, Report, TransferError, migrate};
use context_store::{DeleteCriteria, OwnerId, Page, RowSelection, Store as _, StoredEntry};
use context_store_sqlite::{Config, OpenError, SqliteSource, SqliteStore, SqliteTarget};
use diesel::connection::SimpleConnection as _;
use diesel::prelude::*;
use diesel::sqlite::SqliteConnection;

use crate::arrange::{SELECTION, found, options, read};

struct Silent;

impl Observer for Silent {
    fn progress(&mut self, _: Phase, _: &'static str, _: u64, _: u64) {}

    fn note(&mut self, _: &str) {}
}

/// The tables of a version: `id` defines the id column, `reference` is the type of columns that refer to it, and
/// `further` defines the columns that not all versions have.
fn tables(id: &str, reference: &str, further: &str) -> String {
    format!(
        "CREATE TABLE context_entries ({id}, thread_id TEXT NOT NULL, source TEXT NOT NULL CHECK(source IN ('user', 'agent')), \
         content_type TEXT NOT NULL CHECK(content_type IN ('text', 'multimodal')), text_content TEXT, metadata JSON{further}, \
         created_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP, updated_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP); \
         CREATE INDEX idx_created_at ON context_entries(created_at); \
         CREATE TABLE tags (id INTEGER PRIMARY KEY AUTOINCREMENT, context_entry_id {reference} NOT NULL, tag TEXT NOT NULL, \
         FOREIGN KEY (context_entry_id) REFERENCES context_entries(id) ON DELETE CASCADE); \
         CREATE TABLE image_attachments (id INTEGER PRIMARY KEY AUTOINCREMENT, context_entry_id {reference} NOT NULL, \
         image_data BLOB NOT NULL, mime_type TEXT NOT NULL, image_metadata JSON, position INTEGER DEFAULT 0, \
         created_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP, \
         FOREIGN KEY (context_entry_id) REFERENCES context_entries(id) ON DELETE CASCADE);"
    )
}

fn old_file(directory: &Path, sql: &str) -> PathBuf {
    let path = directory.join("context_storage.db");
    let mut conn = SqliteConnection::establish(path.to_str().unwrap()).unwrap();
    conn.batch_execute("PRAGMA journal_mode = WAL").unwrap();
    conn.batch_execute(sql).unwrap();
    path
}

async fn imported(from: &Path, to: &Path, owner: &str) -> Result<Report, TransferError> {
    let mut source = SqliteSource::open(from.to_owned(), OwnerId::new(owner)).await?;
    let mut target = SqliteTarget::open(Config::new(to)).await?;
    migrate(source.as_mut(), &mut target, &mut Silent).await
}

async fn entries(store: &SqliteStore, owner: &str) -> Vec<StoredEntry> {
    let (page, selection) = (
        Page {
            limit: 1000,
            offset: 0,
        },
        RowSelection {
            images: true,
            ..SELECTION
        },
    );
    let owner = OwnerId::new(owner);
    let mut found = store
        .search_contexts(
            &owner,
            context_model::Filter::default(),
            page,
            selection,
            read(),
        )
        .await
        .unwrap()
        .entries;
    found.sort_by_key(|entry| entry.id);
    found
}

const VERSION_1: &str = "INSERT INTO context_entries (id, thread_id, source, content_type, text_content, metadata, created_at, updated_at) VALUES \
    (3, 'thread', 'user', 'text', 'The running fox', '{\"status\": \"done\", \"n\": 9007199254740993, \"x\": 0.1}', '2025-09-01 10:00:00', '2025-09-01 10:00:00'), \
    (7, 'thread', 'agent', 'multimodal', 'Äpfel 数据库', NULL, '2025-09-01 10:00:00', '2025-09-02 11:30:00'), \
    (8, 'other', 'user', 'text', NULL, '[1]', '2025-09-03 10:00:00.123456+00:00', NULL); \
    INSERT INTO tags (context_entry_id, tag) VALUES (3, 'b'), (3, 'a'), (8, 'a'); \
    INSERT INTO image_attachments (context_entry_id, image_data, mime_type, image_metadata, position) VALUES \
    (7, x'0102', 'image/jpeg', NULL, 1), (7, x'00ff', 'image/png', '{\"w\": 1}', 0);";

#[tokio::test(flavor = "multi_thread")]
async fn version_1_keeps_ids_times_tags_metadata_and_images() {
    let directory = tempfile::tempdir().unwrap();
    let sql = tables("id INTEGER PRIMARY KEY AUTOINCREMENT", "INTEGER", "") + VERSION_1;
    let from = old_file(directory.path(), &sql);
    let (before, to) = (
        std::fs::read(&from).unwrap(),
        directory.path().join("to.db"),
    );
    let refused = SqliteStore::open(Config::new(&from)).unwrap_err();
    assert!(matches!(&refused, OpenError::Foreign { .. }), "{refused}");
    assert!(
        refused
            .to_string()
            .contains(&format!("migrate-data --from sqlite://{}", from.display())),
        "{refused}"
    );
    let report = imported(&from, &to, "default").await.unwrap();
    assert_eq!(
        report
            .verified
            .iter()
            .map(|found| (found.table, found.rows))
            .collect::<Vec<_>>(),
        [("entries", 3), ("images", 2), ("changes", 3)]
    );
    assert_eq!(
        std::fs::read(&from).unwrap(),
        before,
        "the source is not written"
    );

    let store = SqliteStore::open(Config::new(&to)).unwrap();
    let found_entries = entries(&store, "default").await;
    let [first, second, third] = found_entries.as_slice() else {
        panic!("{found_entries:?}")
    };
    assert_eq!(
        (
            first.id,
            first.thread_id.as_str(),
            first.text.as_str(),
            first.version
        ),
        (3, "thread", "The running fox", 1)
    );
    assert_eq!(
        serde_json::json!(first.metadata).to_string(),
        r#"{"status":"done","n":9007199254740993,"x":0.1}"#
    );
    assert_eq!(
        (first.tags.as_slice(), first.created_at),
        (
            &["a".to_owned(), "b".to_owned()][..],
            Timestamp(1_756_720_800_000_000)
        )
    );
    let images = second.images.clone().unwrap();
    assert_eq!(
        (
            second.id,
            images.len(),
            images[0].data.0.as_slice(),
            images[1].data.0.as_slice()
        ),
        (7, 2, &[0, 255][..], &[1, 2][..])
    );
    assert_eq!(second.updated_at, Timestamp(1_756_812_600_000_000));
    assert_eq!(
        (third.id, third.text.as_str(), third.created_at),
        (8, "", Timestamp(1_756_893_600_123_456))
    );
    assert_eq!(serde_json::json!(third.metadata)[METADATA_KEY], "[1]");
    assert_eq!(found(&store, "english", "run").await, ["The running fox"]);
    let threads = store
        .list_threads(
            &OwnerId::default(),
            None,
            None,
            Page {
                limit: 10,
                offset: 0,
            },
            read(),
        )
        .await
        .unwrap();
    assert_eq!(
        (
            threads.total,
            threads.threads[1].entry_count,
            threads.threads[1].last_id,
            threads.revision
        ),
        (2, 2, 7, 3)
    );
    let next = crate::arrange::store_batch(&store, [crate::arrange::entry("next")]).await;
    assert_eq!(
        (next.outcome.items[0].as_ref().unwrap().id, next.revision),
        (9, 4)
    );
    store.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn version_2_keeps_summaries() {
    let directory = tempfile::tempdir().unwrap();
    let sql = tables(
        "id INTEGER PRIMARY KEY AUTOINCREMENT",
        "INTEGER",
        ", summary TEXT, content_hash TEXT",
    ) + VERSION_1
        + "UPDATE context_entries SET summary = 'About a fox' WHERE id = 3";
    let from = old_file(directory.path(), &sql);
    let to = directory.path().join("to.db");
    imported(&from, &to, "team").await.unwrap();
    let store = SqliteStore::open(Config::new(&to)).unwrap();
    assert_eq!(
        entries(&store, "team")
            .await
            .iter()
            .map(|entry| entry.summary.as_str())
            .collect::<Vec<_>>(),
        ["About a fox", "", ""]
    );
    assert!(entries(&store, "default").await.is_empty());
    store.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn version_3_is_numbered_by_creation_and_keeps_its_uuids() {
    let directory = tempfile::tempdir().unwrap();
    let (one, two) = (
        "0199d1f0c0de7abc8123456789abcdef",
        "0199d1f0c0de7abc8123456789abcde0",
    );
    // The first inserted entry is the later one, and references the other.
    let sql = tables(
        "rowid_int INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE",
        "TEXT",
        ", summary TEXT, content_hash TEXT, version INTEGER NOT NULL DEFAULT 0",
    ) + &format!(
        "INSERT INTO context_entries (id, thread_id, source, content_type, text_content, metadata, version, created_at) VALUES \
         ('{one}', 't', 'user', 'text', 'later', '{{\"references\": {{\"context_ids\": [\"{two}\", \"gone\"]}}}}', 2, '2026-05-02 10:00:00'), \
         ('{two}', 't', 'agent', 'text', 'earlier', NULL, 0, '2026-05-01 10:00:00'); \
         INSERT INTO tags (context_entry_id, tag) VALUES ('{one}', 'x'); \
         INSERT INTO image_attachments (context_entry_id, image_data, mime_type) VALUES ('{one}', x'07', 'image/png');"
    );
    let from = old_file(directory.path(), &sql);
    let to = directory.path().join("to.db");
    imported(&from, &to, "default").await.unwrap();
    let store = SqliteStore::open(Config::new(&to)).unwrap();
    let found = entries(&store, "default").await;
    let metadata: Vec<_> = found
        .iter()
        .map(|entry| serde_json::json!(entry.metadata))
        .collect();
    let shown: Vec<_> = found
        .iter()
        .zip(&metadata)
        .map(|(entry, metadata)| {
            (
                entry.id,
                entry.text.as_str(),
                entry.version,
                metadata[ID_KEY].as_str(),
            )
        })
        .collect();
    assert_eq!(
        shown,
        [(1, "earlier", 1, Some(two)), (2, "later", 3, Some(one))]
    );
    assert_eq!(
        metadata[1]["references"]["context_ids"],
        serde_json::json!([1, "gone"])
    );
    assert_eq!(
        (
            found[1].tags.as_slice(),
            found[1].images.as_ref().unwrap().len()
        ),
        (&["x".to_owned()][..], 1)
    );
    store.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn many_entries_with_images_are_imported_across_batches() {
    let directory = tempfile::tempdir().unwrap();
    let sql = tables("id INTEGER PRIMARY KEY AUTOINCREMENT", "INTEGER", "")
        + "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1234) \
           INSERT INTO context_entries (id, thread_id, source, content_type, text_content) SELECT i * 3, 't' || (i % 7), 'user', 'text', 'text ' || i FROM n; \
           INSERT INTO image_attachments (context_entry_id, image_data, mime_type, position) \
           SELECT id, CAST(id AS BLOB), 'image/png', p FROM context_entries, (SELECT 0 AS p UNION SELECT 1) WHERE id % 30 = 0;";
    let from = old_file(directory.path(), &sql);
    let report = imported(&from, &directory.path().join("to.db"), "default")
        .await
        .unwrap();
    let rows: Vec<u64> = report.verified.iter().map(|found| found.rows).collect();
    assert_eq!(rows, [1234, 246, 1234]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_of_another_program_is_refused_and_no_target_is_made() {
    let directory = tempfile::tempdir().unwrap();
    let from = old_file(directory.path(), "CREATE TABLE theirs (x)");
    let to = directory.path().join("to.db");
    let refused = imported(&from, &to, "default").await.unwrap_err();
    assert!(
        refused
            .to_string()
            .contains("neither by this service nor by an mcp-context-server"),
        "{refused}"
    );
    let missing = imported(&directory.path().join("missing.db"), &to, "default")
        .await
        .unwrap_err();
    assert!(missing.to_string().contains("missing.db"), "{missing}");
    assert!(!to.exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_id_that_no_entry_can_have_is_refused() {
    for id in [0, Limits::MAX_ID + 1, i64::MAX] {
        let directory = tempfile::tempdir().unwrap();
        let sql = tables("id INTEGER PRIMARY KEY AUTOINCREMENT", "INTEGER", "")
            + &format!(
                "INSERT INTO context_entries (id, thread_id, source, content_type) VALUES ({id}, 't', 'user', 'text')"
            );
        let (from, to) = (
            old_file(directory.path(), &sql),
            directory.path().join("to.db"),
        );
        let refused = imported(&from, &to, "default").await.unwrap_err();
        assert!(refused.to_string().contains(&format!("the entry {id} of")));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_breaks_a_rule_is_listed_and_its_entries_are_found_and_deleted_by_their_new_thread() {
    let directory = tempfile::tempdir().unwrap();
    let (thread, tag) = ("n".repeat(300), "x".repeat(150));
    let sql = tables("id INTEGER PRIMARY KEY AUTOINCREMENT", "INTEGER", "")
        + &format!(
            "INSERT INTO context_entries (id, thread_id, source, content_type, text_content, metadata, created_at, updated_at) VALUES \
             (1, '{thread}', 'user', 'text', 'first', '{{\"a\": 1}}', '2025-09-01 10:00:00', NULL), \
             (2, '{thread}', 'agent', 'text', 'a' || char(0) || 'b', NULL, 'soon', '2025-09-02 10:00:00'), \
             (3, 'other', 'user', 'text', 'third', '{{\"n\": 18446744073709551616}}', '2025-09-03 10:00:00', NULL); \
             WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 120) \
             INSERT INTO tags (context_entry_id, tag) SELECT 3, 'tag ' || printf('%03d', i) FROM n; \
             INSERT INTO tags (context_entry_id, tag) VALUES (1, '{tag}'); \
             INSERT INTO image_attachments (context_entry_id, image_data, mime_type, image_metadata) VALUES (3, x'01', 'image/png', '[1]');"
        );
    let from = old_file(directory.path(), &sql);
    let to = directory.path().join("to.db");
    let report = imported(&from, &to, "default").await.unwrap();
    let counted: Vec<_> = report
        .losses
        .fields()
        .map(|(name, field)| (name, field.total, field.listed[0].id))
        .collect();
    assert_eq!(
        counted,
        [
            ("created_at", 1, 2),
            ("images", 1, 3),
            ("metadata", 1, 3),
            ("tags", 21, 1),
            ("text", 1, 2),
            ("thread_id", 2, 1),
        ]
    );
    assert_eq!(report.losses.renamed_threads(), 1);
    let listed: Vec<&str> = report
        .losses
        .fields()
        .flat_map(|(_, field)| &field.listed)
        .map(|loss| loss.what.as_str())
        .collect();
    for named in [thread.as_str(), &tag, "tag 101", "tag 120", "soon"] {
        assert!(listed.iter().any(|what| what.contains(named)), "{listed:?}");
    }

    let store = SqliteStore::open(Config::new(&to)).unwrap();
    let found = entries(&store, "default").await;
    let new = found[0].thread_id.clone();
    assert!(new.starts_with(&"n".repeat(200)), "{new}");
    for entry in &found[..2] {
        assert_eq!(entry.thread_id, new);
        let metadata = serde_json::json!(entry.metadata);
        assert_eq!(metadata[THREAD_KEY], thread);
    }
    assert_eq!(serde_json::json!(found[0].metadata)[TAGS_KEY][0], tag);
    let excess = serde_json::json!(found[2].metadata)[TAGS_KEY].clone();
    assert_eq!(
        (found[2].tags.len(), excess.as_array().unwrap().len()),
        (100, 20)
    );
    let mut violations = Violations::default();
    let name = ThreadId::parse(&new, "thread_id", &mut violations).expect("a valid name");
    let criteria = DeleteCriteria {
        threads: Some(vec![name]),
        ..DeleteCriteria::default()
    };
    let deleted = store
        .delete_contexts(&OwnerId::default(), criteria, options())
        .await
        .unwrap();
    assert_eq!(deleted.outcome, 2);
    store.close().await;
}
