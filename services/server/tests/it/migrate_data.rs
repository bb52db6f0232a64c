//! `context-service migrate-data`, as a process that may be killed.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use context_store::Store as _;
use context_store_conformance::generate::fill;
use context_store_sqlite::{Config, SqliteStore};
use context_test_postgres::TestDatabase;
use context_test_support::{Deadline, Home};

use crate::process::{program, run};

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
    let line = lines
        .next()
        .expect("it says how far it is")
        .expect("a line");
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
    assert!(stderr.contains("goes on after"), "{stderr}");
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
            code == 1 && stderr.contains(words) && !stderr.contains("geheim@"),
            "{stderr}"
        );
    }
}
