//! Migrations between the two databases, and from the database of an mcp-context-server.

use std::path::Path;
use std::time::Instant;

use context_model::{Filter, Timestamp};
use context_store::seal::Part;
use context_store::transfer::predecessor::ID_KEY;
use context_store::transfer::{
    Observer, Phase, Report, Source, TABLES, Target, TransferError, migrate,
};
use context_store::{Memory, OwnerId, Page, Read, RowSelection, Store, StoredEntry};
use context_store_conformance::generate::{OWNERS, fill};
use context_store_postgres::{OpenError, PostgresSource, PostgresStore, PostgresTarget};
use context_store_sqlite::{SqliteSource, SqliteStore, SqliteTarget};
use context_test_postgres::TestDatabase;
use context_test_support::{Deadline, until};

use crate::arrange::{config, database, store};

struct Silent;

impl Observer for Silent {
    fn progress(&mut self, _: Phase, _: &'static str, _: u64, _: u64) {}

    fn note(&mut self, _: &str) {}
}

async fn from_postgres(database: &TestDatabase) -> Result<Box<dyn Source>, TransferError> {
    let config = config(database.url());
    PostgresSource::open(&config.target, config.connect_timeout, OwnerId::default()).await
}

async fn into_postgres(database: &TestDatabase) -> Result<PostgresTarget, TransferError> {
    PostgresTarget::open(&config(database.url())).await
}

fn sqlite(path: &Path) -> SqliteStore {
    SqliteStore::open(context_store_sqlite::Config::new(path)).expect("the file opens")
}

async fn from_sqlite(path: &Path) -> Box<dyn Source> {
    SqliteSource::open(path.to_owned(), OwnerId::default())
        .await
        .expect("the file opens")
}

async fn into_sqlite(path: &Path) -> SqliteTarget {
    SqliteTarget::open(context_store_sqlite::Config::new(path))
        .await
        .expect("the file opens")
}

async fn moved(mut source: Box<dyn Source>, mut target: impl Target) -> Report {
    migrate(source.as_mut(), &mut target, &mut Silent)
        .await
        .expect("it is moved")
}

/// Number of entries in the first test. CONTEXT_MIGRATE_ENTRIES overrides it.
fn wanted_entries() -> usize {
    std::env::var("CONTEXT_MIGRATE_ENTRIES")
        .ok()
        .map_or(300, |given| given.parse().expect("a number"))
}

/// The part of the report that does not depend on the direction: owners, tables, rows and checksums.
fn checksums(report: &Report) -> Vec<String> {
    report
        .verified
        .iter()
        .map(|found| format!("{found:?}"))
        .collect()
}

/// The peak memory of this process in MiB.
fn peak_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmHWM"));
    line.and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok())
        .map_or(0, |kib| kib / 1024)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_round_trip_through_postgresql_gives_the_same_database() {
    let Some(database) = database().await else {
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let (first, last) = (
        directory.path().join("first.db"),
        directory.path().join("last.db"),
    );
    let store = sqlite(&first);
    fill(&store, 11, wanted_entries()).await;
    store.close().await;
    #[expect(clippy::disallowed_methods, reason = "for people to read")]
    let (memory_before, started) = (peak_memory(), Instant::now());
    let to_postgres = moved(
        from_sqlite(&first).await,
        into_postgres(&database).await.unwrap(),
    )
    .await;
    #[expect(clippy::disallowed_methods, reason = "for people to read")]
    let (forward_time, back_started) = (started.elapsed(), Instant::now());
    let to_sqlite = moved(
        from_postgres(&database).await.unwrap(),
        into_sqlite(&last).await,
    )
    .await;
    eprintln!(
        "{} rows: SQLite to PostgreSQL {forward_time:?}, back {:?}; peak memory {memory_before} MiB before, {} MiB after",
        to_postgres.copied,
        back_started.elapsed(),
        peak_memory()
    );
    assert_eq!(checksums(&to_postgres), checksums(&to_sqlite));
    for table in TABLES {
        assert!(
            to_sqlite
                .verified
                .iter()
                .any(|found| found.table == table.name && found.rows > 0),
            "{}",
            table.name
        );
    }
    let same = moved(
        from_sqlite(&first).await,
        into_sqlite(&directory.path().join("copy.db")).await,
    )
    .await;
    assert_eq!(
        checksums(&same),
        checksums(&to_sqlite),
        "the first and the last file are equal"
    );
    let (first, last) = (sqlite(&first), sqlite(&last));
    for owner in OWNERS {
        assert_eq!(seen(&first, owner).await, seen(&last, owner).await);
    }
    first.close().await;
    last.close().await;
}

fn read() -> Read {
    Read::default()
}

/// An owner's threads, counts and newest entries, as the store returns them.
async fn seen(store: &dyn Store, owner: &str) -> String {
    let (owner, page) = (
        OwnerId::new(owner),
        Page {
            limit: 50,
            offset: 0,
        },
    );
    let threads = store
        .list_threads(&owner, None, None, page, read())
        .await
        .expect("threads are listed");
    let counts = store
        .statistics(&owner, None, read())
        .await
        .expect("entries are counted");
    let selection = RowSelection {
        images: true,
        text_chars: None,
        explain: false,
        max_bytes: 1 << 30,
        memory: Memory::UNCOUNTED,
    };
    let entries = store
        .search_contexts(&owner, Filter::default(), page, selection, read())
        .await
        .expect("entries are found");
    format!(
        "{threads:?} {:?} {:?} {} {} {} {entries:?}",
        counts.by_source,
        counts.by_content_type,
        counts.total_images,
        counts.unique_tags,
        counts.revision
    )
}

/// Checksums of the tables of the schema, computed by the server, except for its version and for the sets and claims of
/// embeddings. They include derived columns, but not the incarnation of an owner's feed, which is new in each database.
async fn sums(database: &TestDatabase) -> Vec<(String, i64, String)> {
    let client = database.connect().await;
    let tables = "SELECT tablename::text FROM pg_tables WHERE schemaname = 'context' AND tablename NOT IN ('schema_version', 'embedding_claims', 'embedding_sets') ORDER BY 1";
    let mut sums = Vec::new();
    for table in client.query(tables, &[]).await.expect("tables are listed") {
        let table: String = table.get(0);
        let sum = format!(
            "SELECT count(*), coalesce(md5(string_agg(r, ';' ORDER BY r)), '') FROM context.{table} AS t, \
             LATERAL (SELECT (to_jsonb(t) - 'incarnation')::text AS r) AS rows"
        );
        let row = client.query_one(&sum, &[]).await.expect("rows are summed");
        sums.push((table, row.get(0), row.get(1)));
    }
    sums
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_derived_is_as_writes_would_have_made_it() {
    let Some(from) = database().await else { return };
    let Some(to) = database().await else { return };
    let filled = store(&from).await;
    fill(&filled, 5, 300).await;
    filled.close().await;
    moved(
        from_postgres(&from).await.unwrap(),
        into_postgres(&to).await.unwrap(),
    )
    .await;
    let expected = sums(&from).await;
    let derived = ["owners", "threads", "entry_tags", "artifact_documents"];
    for name in TABLES.iter().map(|table| table.name).chain(derived) {
        assert!(
            expected
                .iter()
                .any(|(table, rows, _)| table == name && *rows > 0),
            "{name}"
        );
    }
    assert_eq!(expected, sums(&to).await);
    // Both databases return the same results.
    let (from, to) = (store(&from).await, store(&to).await);
    for owner in OWNERS {
        assert_eq!(seen(&from, owner).await, seen(&to, owner).await);
    }
    from.close().await;
    to.close().await;
}

/// What checksums cover is copied even when it is damaged, and is still damaged in the copy.
#[tokio::test(flavor = "multi_thread")]
async fn damaged_text_is_copied_where_a_checksum_shows_it_and_refused_elsewhere() {
    for (change, is_copied) in [
        ("text = '\\xff61'::bytea::text", true),
        ("text = '\\xff61'::bytea::text, seal = NULL", false),
        ("summary = '\\xff'::bytea::text", false),
    ] {
        let Some(from) = database().await else { return };
        let filled = store(&from).await;
        fill(&filled, 5, 50).await;
        filled.close().await;
        // The cast copies the bytes without checking them.
        let damage = format!(
            "CREATE CAST (bytea AS text) WITHOUT FUNCTION; \
             UPDATE context.entries SET {change} WHERE owner_id = 'default' AND id = 1"
        );
        let client = from.connect().await;
        client
            .batch_execute(&damage)
            .await
            .expect("a damaged entry");
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("to.db");
        let (mut source, mut target) = (
            from_postgres(&from).await.unwrap(),
            into_sqlite(&path).await,
        );
        let migrated = migrate(source.as_mut(), &mut target, &mut Silent).await;
        drop((source, target));
        if !is_copied {
            let refused = migrated.unwrap_err().to_string();
            assert!(refused.contains("it is damaged"), "{change}: {refused}");
            continue;
        }
        migrated.unwrap_or_else(|error| panic!("{change}: {error}"));
        let to = sqlite(&path);
        let selection = RowSelection {
            images: false,
            text_chars: None,
            explain: false,
            max_bytes: 1 << 30,
            memory: Memory::UNCOUNTED,
        };
        let found = to
            .get_contexts(&OwnerId::default(), vec![1], selection, read())
            .await
            .expect("the entry is read");
        assert_eq!(found.entries[0].damage, Some(Part::Text));
        to.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_half_filled_database_is_refused_by_services_and_taken_up_by_the_next_run() {
    let Some(to) = database().await else { return };
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("from.db");
    let store = sqlite(&path);
    fill(&store, 3, 200).await;
    store.close().await;
    {
        // When a process dies, the server rolls back the batch that was being written.
        let (mut source, mut target) =
            (from_sqlite(&path).await, into_postgres(&to).await.unwrap());
        let mut stops = StopsAfter { rows: 150 };
        let running =
            std::panic::AssertUnwindSafe(migrate(source.as_mut(), &mut target, &mut stops));
        let panic = futures::FutureExt::catch_unwind(running).await.unwrap_err();
        let message = panic.downcast_ref::<&str>().map(ToString::to_string);
        let message = message.or_else(|| panic.downcast_ref::<String>().cloned());
        assert_eq!(message.as_deref(), Some("stopped"));
        let other = into_postgres(&to)
            .await
            .err()
            .expect("one migration at a time");
        assert!(other.to_string().contains("another migration"), "{other}");
    }
    let refused = PostgresStore::open(config(to.url())).await.unwrap_err();
    assert!(
        matches!(refused, OpenError::IncompleteMigration { .. }),
        "{refused}"
    );
    let deadline = Deadline::new();
    let target = loop {
        // The server detects a closed connection only after a moment.
        match into_postgres(&to).await {
            Ok(target) => break target,
            Err(error) => deadline.pause(|| error.to_string()).await,
        }
    };
    let report = moved(from_sqlite(&path).await, target).await;
    let all: u64 = report.verified.iter().map(|found| found.rows).sum();
    assert!(report.copied < all, "{report:?}");
    let opened = self::store(&to).await;
    opened.close().await;
}

/// Panics in the middle of the migration.
struct StopsAfter {
    rows: u64,
}

impl Observer for StopsAfter {
    fn progress(&mut self, _: Phase, _: &'static str, done: u64, _: u64) {
        assert!(done < self.rows, "stopped");
    }

    fn note(&mut self, _: &str) {}
}

/// The tables of an old version. `id` is the type of the ids, and `extra` are additional columns of the entries.
fn tables(id: &str, extra: &str) -> String {
    format!(
        "CREATE TABLE context_entries (id {id} PRIMARY KEY, thread_id TEXT NOT NULL, \
         source TEXT NOT NULL CHECK(source IN ('user', 'agent')), content_type TEXT NOT NULL CHECK(content_type IN ('text', 'multimodal')), \
         text_content TEXT, metadata JSONB{extra}, created_at TIMESTAMPTZ DEFAULT CURRENT_TIMESTAMP, \
         updated_at TIMESTAMPTZ DEFAULT CURRENT_TIMESTAMP); \
         CREATE TABLE tags (id BIGSERIAL PRIMARY KEY, context_entry_id {id} NOT NULL REFERENCES context_entries(id), tag TEXT NOT NULL); \
         CREATE TABLE image_attachments (id BIGSERIAL PRIMARY KEY, context_entry_id {id} NOT NULL REFERENCES context_entries(id), \
         image_data BYTEA NOT NULL, mime_type TEXT NOT NULL, image_metadata JSONB, position INTEGER DEFAULT 0);"
    )
}

async fn old_database(sql: &str) -> Option<TestDatabase> {
    let database = TestDatabase::empty().await?;
    database
        .connect()
        .await
        .batch_execute(sql)
        .await
        .expect("the old tables are made");
    Some(database)
}

async fn entries(store: &dyn Store) -> Vec<StoredEntry> {
    let selection = RowSelection {
        images: true,
        text_chars: None,
        explain: false,
        max_bytes: 1 << 30,
        memory: Memory::UNCOUNTED,
    };
    let page = Page {
        limit: 100,
        offset: 0,
    };
    let mut found = store
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
    found.sort_by_key(|entry| entry.id);
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn an_old_server_s_integer_ids_are_kept_beside_a_service_that_was_started_already() {
    let sql = tables("BIGINT", ", summary TEXT, content_hash TEXT")
        + "INSERT INTO context_entries (id, thread_id, source, content_type, text_content, metadata, summary, created_at, updated_at) VALUES \
           (5, 't', 'user', 'multimodal', 'The running fox', '{\"n\": 9007199254740993, \"x\": 0.1}', 'A fox', '2025-09-01 12:00:00.25+02', '2025-09-02 10:00:00+00'), \
           (9, 't', 'agent', 'text', NULL, NULL, NULL, '2025-09-01 10:00:01+00', NULL); \
           INSERT INTO tags (context_entry_id, tag) VALUES (5, 'b'), (5, 'a'); \
           INSERT INTO image_attachments (context_entry_id, image_data, mime_type, position) VALUES (5, '\\x02', 'image/png', 1), (5, '\\x01', 'image/png', 0);";
    let Some(database) = old_database(&sql).await else {
        return;
    };
    // Source and target are the same database: the old tables are in `public`, ours in `context`.
    store(&database).await.close().await;
    let report = moved(
        from_postgres(&database).await.unwrap(),
        into_postgres(&database).await.unwrap(),
    )
    .await;
    assert_eq!(
        report
            .verified
            .iter()
            .map(|found| (found.table, found.rows))
            .collect::<Vec<_>>(),
        [("entries", 2), ("images", 2), ("changes", 2)]
    );
    let store = store(&database).await;
    let found = entries(&store).await;
    let first = &found[0];
    assert_eq!(
        (first.id, first.text.as_str(), first.summary.as_str()),
        (5, "The running fox", "A fox")
    );
    assert_eq!(first.tags, ["a", "b"]);
    assert_eq!(
        (first.created_at, first.updated_at),
        (
            Timestamp(1_756_720_800_250_000),
            Timestamp(1_756_807_200_000_000)
        )
    );
    assert_eq!(
        serde_json::json!(first.metadata),
        serde_json::json!({"n": 9_007_199_254_740_993_i64, "x": 0.1})
    );
    assert_eq!(
        first
            .images
            .as_ref()
            .unwrap()
            .iter()
            .map(|image| image.data.0[0])
            .collect::<Vec<_>>(),
        [1, 2]
    );
    assert_eq!(
        (found[1].id, found[1].text.as_str(), found[1].updated_at),
        (9, "", found[1].created_at)
    );
    store.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_old_server_s_uuids_are_numbered_and_kept_on_the_way_to_sqlite() {
    let (one, two) = (
        "0199d1f0-c0de-7abc-8123-456789abcdef",
        "0199d1f0-c0de-7abc-8123-456789abcde0",
    );
    let sql = tables(
        "UUID",
        ", summary TEXT, content_hash TEXT, version BIGINT NOT NULL DEFAULT 0",
    ) + &format!(
        "INSERT INTO context_entries (id, thread_id, source, content_type, text_content, metadata, version, created_at) VALUES \
             ('{one}', 't', 'user', 'text', 'later', '{{\"references\": {{\"context_ids\": [\"{}\"]}}}}', 1, '2026-05-02 10:00:00+00'), \
             ('{two}', 't', 'agent', 'text', 'earlier', NULL, 0, '2026-05-01 10:00:00+00');",
        two.replace('-', "")
    );
    let Some(database) = old_database(&sql).await else {
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("to.db");
    moved(
        from_postgres(&database).await.unwrap(),
        into_sqlite(&path).await,
    )
    .await;
    let store = sqlite(&path);
    let found = entries(&store).await;
    let shown: Vec<_> = found
        .iter()
        .map(|entry| (entry.id, entry.text.as_str(), entry.version))
        .collect();
    assert_eq!(shown, [(1, "earlier", 1), (2, "later", 2)]);
    let metadata: Vec<_> = found
        .iter()
        .map(|entry| serde_json::json!(entry.metadata))
        .collect();
    assert_eq!(metadata[0][ID_KEY], two.replace('-', ""));
    assert_eq!(metadata[1]["references"]["context_ids"][0], 1);
    store.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_timeout_of_idle_sessions_does_not_end_a_migration() {
    let Some(database) = database().await else {
        return;
    };
    let client = database.connect().await;
    let name = client.query_one("SELECT current_database()", &[]).await;
    let name = name.expect("its name").get::<_, String>(0);
    client
        .batch_execute(&format!(
            "ALTER DATABASE \"{name}\" SET idle_session_timeout = '1s'"
        ))
        .await
        .expect("the timeout is set");
    let mut target = into_postgres(&database).await.unwrap();
    // It is idle for less time than the target.
    let other = database.connect().await;
    until("the server ends another session", async || {
        other.is_closed()
    })
    .await;
    assert_eq!(target.mark().await.expect("the session is open"), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_of_another_program_is_no_source_and_a_used_one_no_target() {
    let Some(empty) = old_database("CREATE TABLE theirs (x int)").await else {
        return;
    };
    let refused = from_postgres(&empty).await.err().expect("nothing to read");
    assert!(
        refused
            .to_string()
            .contains("was made neither by this service nor by an mcp-context-server"),
        "{refused}"
    );
    let Some(used) = database().await else { return };
    let filled = store(&used).await;
    fill(&filled, 2, 8).await;
    filled.close().await;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("from.db");
    sqlite(&path).close().await;
    let mut german = config(used.url());
    german.language = "german".to_owned();
    let (mut source, mut target) = (
        from_sqlite(&path).await,
        PostgresTarget::open(&german).await.unwrap(),
    );
    let refused = migrate(source.as_mut(), &mut target, &mut Silent)
        .await
        .unwrap_err();
    assert!(refused.to_string().contains("is not empty"), "{refused}");
    let built = "SELECT value FROM context.settings WHERE key = 'fts'";
    let built = used.connect().await.query_one(built, &[]).await;
    let built = built.expect("read").get::<_, String>(0);
    assert!(built.starts_with("english "), "{built}");
}
