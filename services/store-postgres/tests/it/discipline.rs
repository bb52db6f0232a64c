//! What keeps the database ready to be sharded by owner, read off the source.

use std::fs;
use std::path::{Path, PathBuf};

fn files(directory: &Path, extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in
        fs::read_dir(directory).unwrap_or_else(|error| panic!("{}: {error}", directory.display()))
    {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            found.extend(files(&path, extension));
        } else if path.extension().is_some_and(|found| found == extension) {
            found.push(path);
        }
    }
    found
}

/// Source with string literals that go over several lines made one.
fn joined(path: &Path) -> String {
    let text = fs::read_to_string(path).expect("the source is text");
    let mut joined = String::new();
    for line in text
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"))
    {
        match line.trim_end().strip_suffix('\\') {
            Some(line) => joined.push_str(line.trim_start()),
            None => {
                joined.push_str(line.trim_start());
                joined.push('\n');
            }
        }
    }
    joined
}

#[test]
fn every_join_names_the_owner_on_both_sides() {
    let mut joins = 0;
    for path in files(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), "rs") {
        let text = joined(&path);
        for (at, _) in text.match_indices(" JOIN ") {
            // A statement may be put together over several lines: up to the next join, or the end of the function.
            let rest = &text[at + 6..];
            let end = [" JOIN ", "\nfn ", "\npub", "\nasync fn "]
                .iter()
                .filter_map(|end| rest.find(end))
                .min()
                .unwrap_or(rest.len());
            let join = &rest[..end];
            // Catalogues have no owner, a lateral subquery repeats it inside, and values have none.
            if ["pg_class", "LATERAL", "unnest("]
                .iter()
                .any(|other| join.contains(other))
                || text[..at].ends_with("CROSS")
            {
                continue;
            }
            joins += 1;
            let owners = join.matches("owner_id").count();
            assert!(owners >= 2, "{}: {join}", path.display());
        }
    }
    assert!(
        joins >= 6,
        "only {joins} joins were found: the search for them is broken"
    );
}

#[test]
fn the_schema_keeps_the_owner_first_and_needs_nothing_global() {
    let mut keys = 0;
    for path in files(
        &Path::new(env!("CARGO_MANIFEST_DIR")).join("../../migrations/postgres"),
        "sql",
    ) {
        let text = fs::read_to_string(&path).expect("a migration is text");
        let sql: Vec<&str> = text
            .lines()
            .filter(|line| !line.trim_start().starts_with("--"))
            .collect();
        let sql = sql.join("\n").to_lowercase();
        for word in [
            "trigger",
            "serial",
            "sequence",
            "generated ",
            "nextval",
            "gen_random_uuid",
        ] {
            assert!(!sql.contains(word), "{}: {word}", path.display());
        }
        for key in ["primary key (", "foreign key ("] {
            for (at, _) in sql.match_indices(key) {
                keys += 1;
                assert!(
                    sql[at + key.len()..].starts_with("owner_id"),
                    "{}",
                    &sql[at..(at + 60).min(sql.len())]
                );
            }
        }
        for (at, _) in sql.match_indices("create index") {
            keys += 1;
            let statement = &sql[at..at + sql[at..].find(';').expect("a statement ends")];
            let columns = &statement[statement.find('(').expect("columns")..];
            if statement.contains("api_keys_by_lookup") {
                // Whoever brings a key has no owner yet.
                continue;
            }
            assert!(
                columns.starts_with("(owner_id") || columns.starts_with("((array[owner_id])"),
                "{statement}"
            );
        }
    }
    assert!(keys >= 10);
}
