//! `context-service migrate-data`, as a process that may be killed.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use context_store::Store as _;
use context_store_conformance::generate::fill;
use context_store_sqlite::{Config, SqliteStore};
use context_test_postgres::TestDatabase;
use context_test_support::{Deadline, Home};
use serde_json::json;

use crate::process::{program, run};
use crate::service::Service;

fn migration(home: &Home, from: &str, to: &str) -> Command {
    let mut command = program(home);
    command.args(["migrate-data", "--from", from, "--to", to]);
    command
}

async fn filled(home: &Home, entries: usize) -> String {
    let path = home.path().join("from.db");
    let store = SqliteStore::open(Config::new(&path)).expect("the file opens");
    fill(&store, 1, entries).await;
    store.close().await;
    format!("sqlite://{}", path.display())
}

/// Starts a migration and kills it after it has copied some rows. Then a service must reject the database, and the next
/// run must finish the migration.
async fn killed_and_resumed(home: &Home, from: &str, to: &str, serve: &[String]) {
    let mut child = migration(home, from, to)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut lines = BufReader::new(child.stderr.take().expect("stderr")).lines();
    let line = lines.next().expect("it reports progress").expect("a line");
    assert!(line.starts_with("copying"), "{line}");
    child.kill().expect("it is killed");
    assert!(!child.wait().expect("it ends").success());

    let (code, _, stderr) = run(program(home).args(serve));
    assert!(
        code == 1 && stderr.contains("is being filled by a migration that has not ended"),
        "{stderr}"
    );

    let deadline = Deadline::new();
    let (stdout, stderr) = loop {
        let (code, stdout, stderr) = run(&mut migration(home, from, to));
        if code == 0 {
            break (stdout, stderr);
        }
        // The server detects only after a moment that a process has ended.
        assert!(stderr.contains("another migration"), "{stderr}");
        deadline.pause(|| stderr).await;
    };
    assert!(stderr.contains("continues after"), "{stderr}");
    assert!(
        stdout.contains("rows with equal checksums") && stdout.contains("artifact_versions"),
        "{stdout}"
    );
    let (code, _, stderr) = run(&mut migration(home, from, to));
    assert!(code == 1 && stderr.contains("is not empty"), "{stderr}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_migration_into_sqlite_goes_on_with_the_same_command() {
    let home = &Home::new();
    let from = filled(home, 1500).await;
    let path = home.path().join("to.db");
    let serve = [format!("--db-path={}", path.display())];
    killed_and_resumed(home, &from, &format!("sqlite://{}", path.display()), &serve).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_migration_into_postgresql_goes_on_with_the_same_command() {
    let Some(database) = TestDatabase::empty().await else {
        return;
    };
    let home = &Home::new();
    let from = filled(home, 1500).await;
    let serve = [
        "--storage-backend=postgresql".to_owned(),
        format!("--postgresql-connection-string={}", database.url()),
    ];
    killed_and_resumed(home, &from, database.url(), &serve).await;
}

#[test]
fn what_is_no_database_is_refused_without_repeating_a_password() {
    let home = &Home::new();
    for (from, to, words) in [
        ("nonsense", "sqlite", "--from must be sqlite://PATH"),
        ("sqlite:///missing/file.db", "sqlite", "/missing/file.db"),
        (
            "postgresql://user:geheim@127.0.0.1:1/db",
            "sqlite",
            "127.0.0.1:1/db",
        ),
        (
            "postgresql://user:geheim@127.0.0.1:1/db?sslmode=geheim2",
            "sqlite",
            "sslmode",
        ),
        (
            "sqlite:///tmp/a.db",
            "sqlite:///tmp/a.db",
            "are the same file",
        ),
    ] {
        let (code, _, stderr) = run(&mut migration(home, from, to));
        assert!(
            code == 1 && stderr.contains(words) && !stderr.contains("geheim"),
            "{stderr}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_import_names_what_it_changed_and_its_entries_are_used_by_their_new_thread() {
    let Some(database) = TestDatabase::empty().await else {
        return;
    };
    let (thread, tag) = ("n".repeat(300), "x".repeat(150));
    let sql = format!(
        "CREATE TABLE context_entries (id BIGINT PRIMARY KEY, thread_id TEXT NOT NULL, source TEXT NOT NULL, content_type TEXT NOT NULL, \
         text_content TEXT, metadata JSONB, created_at TIMESTAMPTZ, updated_at TIMESTAMPTZ); \
         CREATE TABLE tags (id BIGSERIAL PRIMARY KEY, context_entry_id BIGINT NOT NULL, tag TEXT NOT NULL); \
         CREATE TABLE image_attachments (id BIGSERIAL PRIMARY KEY, context_entry_id BIGINT NOT NULL, image_data BYTEA NOT NULL, \
         mime_type TEXT NOT NULL, image_metadata JSONB, position INTEGER DEFAULT 0); \
         INSERT INTO context_entries VALUES \
         (1, '{thread}', 'user', 'text', 'the first', NULL, '2025-09-01 10:00:00+00', 'infinity'), \
         (2, '{thread}', 'agent', 'text', 'the second', NULL, '2025-09-01 11:00:00+00', NULL), \
         (3, 'other', 'user', 'text', 'the third', '[1]', '12025-09-01 11:00:00+00', NULL); \
         INSERT INTO tags (context_entry_id, tag) SELECT 2, 'tag ' || to_char(n, 'FM000') FROM generate_series(1, 120) AS n; \
         INSERT INTO tags (context_entry_id, tag) VALUES (1, '{tag}');"
    );
    database
        .connect()
        .await
        .batch_execute(&sql)
        .await
        .expect("the old tables are made");
    let home = &Home::new();
    let path = home.path().join("to.db").display().to_string();
    let (code, page, stderr) = run(&mut migration(
        home,
        database.url(),
        &format!("sqlite://{path}"),
    ));
    assert_eq!(code, 0, "{stderr}");
    for words in [
        "changed values of tags: 21\n",
        "changed values of thread_id: 2, in threads: 1\n",
        &format!("  entry 1: \"{thread}\" is now \"nnn"),
        &format!("  entry 1: \"{tag}\" is now \"xxx"),
        "  entry 2: \"tag 120\" is dropped; an entry has at most 100 tags\n",
        "  entry 1: \"infinity\" is not a date; it is now 2025-09-01T10:00:00.000000Z\n",
        "  entry 3: \"12025-09-01",
        "  entry 3: metadata is stored as text under `mcp_context_server_metadata`: ",
        "the same content, except for the 26 changed values above: 6 rows with equal checksums",
    ] {
        assert!(page.contains(words), "{words}\n{page}");
    }

    let service = Service::start_with(&["--db-path", &path]).await;
    let threads = service.get("/v1/threads").send().await.json();
    let new = threads["threads"]
        .as_array()
        .unwrap()
        .iter()
        .find(|thread| thread["entry_count"] == 2)
        .unwrap()["thread_id"]
        .clone();
    let by_thread = json!({"thread_id": new});
    let by_original = json!({
        "metadata_filters": [{"key": "mcp_context_server_thread_id", "operator": "eq", "value": thread}]
    });
    for filter in [&by_thread, &by_original] {
        let found = service
            .post("/v1/contexts/search", filter.clone())
            .send()
            .await
            .json();
        assert_eq!(found["count"], 2, "{found}");
    }
    let entry = service.get("/v1/contexts/1").send().await.json();
    assert_eq!(
        entry["metadata"]["mcp_context_server_tags"][0], tag,
        "{entry}"
    );
    let deleted = service
        .post("/v1/contexts/delete", by_thread)
        .send()
        .await
        .json();
    assert_eq!(deleted["deleted_count"], 2, "{deleted}");
    service.begin_stop();
    service.stopped().await;
}
