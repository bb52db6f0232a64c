//! Results of long texts show an answer that lies beyond their opening.

use std::process::Command;

use context_test_postgres::TestDatabase;

/// A network with random weights. With it, only texts with the same words are near each other.
const MODEL: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../services/bert/tests/reference/cross-encoder"
);

/// Checks how many answers the snippets of hybrid search have.
fn check(database: &[&str]) {
    let home = tempfile::tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_retrieval-eval"))
        .args(["--evidence", "--model", MODEL])
        .args(database)
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/data/evidence.jsonl"))
        .env_clear()
        .env("HOME", home.path())
        .output()
        .unwrap();
    let failure = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{failure}");
    let printed = String::from_utf8(output.stdout).unwrap();
    let row = |search: &str| -> Vec<u32> {
        let start = format!("| evidence | {search} |");
        let rest = printed.lines().find_map(|line| line.strip_prefix(&start));
        let cells = rest.unwrap_or_else(|| panic!("{printed}")).split('|');
        cells.filter_map(|cell| cell.trim().parse().ok()).collect()
    };
    for search in ["hybrid", "hybrid by words alone"] {
        let [hidden, _, shown] = row(search)[..] else {
            panic!("{printed}")
        };
        assert_eq!(hidden, 50, "{printed}");
        assert!(shown >= 45, "{search}: {printed}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn forty_five_of_fifty_answers_beyond_the_opening_are_in_the_snippet() {
    tokio::task::block_in_place(|| check(&[]));
    if let Some(database) = TestDatabase::empty().await {
        tokio::task::block_in_place(|| check(&["--postgres", database.url()]));
    }
}
