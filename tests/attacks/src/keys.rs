//! The operator's commands for keys, and the stored data about keys.

use std::path::Path;

use context_test_support::Home;
use diesel::connection::SimpleConnection as _;
use diesel::prelude::*;
use diesel::sqlite::SqliteConnection;
use serde_json::Value;

/// Runs a command of the operator and returns its output.
///
/// # Panics
/// The command fails.
#[must_use]
pub fn operate(home: &Home, arguments: &[&str]) -> String {
    let output = home
        .command("context-service")
        .args(arguments)
        .output()
        .expect("the command runs");
    assert!(
        output.status.success(),
        "{arguments:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The key in the output of the command that created it.
///
/// # Panics
/// There is no key in the output.
#[must_use]
pub fn key_of(printed: &str) -> String {
    printed
        .split_whitespace()
        .find(|word| word.starts_with("sk_prod_"))
        .unwrap_or_else(|| panic!("no key in {printed}"))
        .to_owned()
}

/// The lines of an owner's audit log.
///
/// # Panics
/// The log cannot be printed.
#[must_use]
pub fn audit(home: &Home, owner: &str) -> Vec<Value> {
    let text = operate(home, &["audit", "--owner", owner]);
    text.lines()
        .map(|line| serde_json::from_str(line).expect("a line of JSON"))
        .collect()
}

/// The lines about requests that were rejected for a missing scope.
#[must_use]
pub fn scope_missing(lines: &[Value]) -> Vec<&Value> {
    lines
        .iter()
        .filter(|line| line["outcome"] == "SCOPE_MISSING")
        .collect()
}

/// Removes the digests of all keys, as if an older version had stored them. No service may have the database open.
///
/// # Panics
/// The database cannot be written.
pub fn remove_digests(database: &Path) {
    let mut conn = SqliteConnection::establish(database.to_str().expect("a path of text"))
        .expect("the database opens");
    conn.batch_execute("UPDATE api_keys SET digest = NULL")
        .expect("the keys change");
}
