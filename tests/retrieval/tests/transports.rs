//! The results do not depend on the transport.

use std::process::Command;

/// A network with random weights. Its results are meaningless but always the same.
const MODEL: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../services/bert/tests/reference/cross-encoder"
);

/// Two threads in which answers follow questions, some after a long pause.
const SET: &str = r#"
{"entry": {"key": "a1", "thread_id": "a", "source": "user", "text": "Where does the nightly build run?"}}
{"entry": {"key": "a2", "thread_id": "a", "source": "agent", "text": "On the machine in the cellar, at half past two."}}
{"entry": {"key": "a3", "thread_id": "a", "source": "user", "text": "Who has the key of that room?", "pause_minutes": 45}}
{"entry": {"key": "a4", "thread_id": "a", "source": "agent", "text": "Ann keeps it, and Bob has a copy."}}
{"entry": {"key": "b1", "thread_id": "b", "source": "user", "text": "The nightly backup takes too long."}}
{"entry": {"key": "b2", "thread_id": "b", "source": "agent", "text": "Then copy only what changed since yesterday.", "pause_minutes": 5}}
{"question": {"text": "When does the nightly build run?", "thread_id": "a", "relevant": ["a2"]}}
{"question": {"text": "Who can open the room?", "thread_id": "a", "relevant": ["a3", "a4"]}}
{"question": {"text": "How can the backup be made quicker?", "relevant": ["b2"]}}
"#;

/// The table without its times.
fn table(over: &str) -> Vec<String> {
    let directory = tempfile::tempdir().unwrap();
    let set = directory.path().join("set.jsonl");
    std::fs::write(&set, SET.trim_start()).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_retrieval-eval"))
        .args(["--over", over, "--model", MODEL])
        .arg(&set)
        .env_clear()
        .env("HOME", directory.path())
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{over}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    let printed = String::from_utf8(output.stdout).unwrap();
    let rows = printed
        .lines()
        .skip(3)
        .map(|row| row.rsplit_once(' ').unwrap().0.trim_end().to_owned());
    rows.collect()
}

#[test]
fn the_same_is_found_in_process_over_grpc_and_over_mcp() {
    let in_process = table("in-process");
    assert_eq!(in_process.len(), 11, "{in_process:?}");
    assert!(
        in_process
            .iter()
            .all(|row| row.contains("0.") || row.contains("1.")),
        "every search ran: {in_process:?}"
    );
    assert!(
        in_process[0].starts_with("fts ") && !in_process[0].contains(" 0.000 "),
        "{in_process:?}"
    );
    for transport in ["grpc", "mcp"] {
        assert_eq!(table(transport), in_process, "{transport}");
    }
}
