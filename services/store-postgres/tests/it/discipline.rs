//! Rules that keep the schema ready for sharding by owner. `sent_sql.rs` checks the statements.

use std::fs;
use std::path::{Path, PathBuf};

use super::arrange::MIGRATIONS;

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

/// All migrations.
fn migrations() -> Vec<PathBuf> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../migrations/postgres");
    files(&directory, "sql")
}

#[test]
fn the_template_of_the_tests_depends_on_every_migration() {
    for path in migrations() {
        let text = fs::read_to_string(&path).expect("a migration is text");
        assert!(MIGRATIONS.contains(&text.as_str()), "{}", path.display());
    }
}

#[test]
fn the_schema_keeps_the_owner_first_and_needs_nothing_global() {
    let mut keys = 0;
    for path in migrations() {
        let text = fs::read_to_string(&path).expect("a migration is text");
        let sql: Vec<&str> = text
            .lines()
            .filter(|line| !line.trim_start().starts_with("--"))
            .collect();
        // The server generates only this value, because a service of the previous version, which does not know the
        // column, also creates owners. The value is neither an id nor a key.
        let sql = sql.join("\n").to_lowercase().replace(
            "alter column incarnation set default replace(gen_random_uuid()::text, '-', '')",
            "",
        );
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
        // Citus moves a table to another server only if its rows have a key. For `denials` the whole row is the key
        // (000014_sharding).
        for (at, found) in sql.match_indices("create table context.") {
            let table = &sql[at + found.len()..];
            let table = &table[..table.find(';').expect("a statement ends")];
            assert!(
                table.contains("primary key") || table.starts_with("denials "),
                "{table}"
            );
            for line in table.lines().filter(|_| table.contains("owner_id")) {
                let is_key = line.contains("primary key") || line.contains("unique");
                assert!(!is_key || line.contains("owner_id"), "{line}");
            }
        }
        let sql = sql.replace("create unique index", "create index");
        for (at, _) in sql.match_indices("create index") {
            keys += 1;
            let statement = &sql[at..at + sql[at..].find(';').expect("a statement ends")];
            let columns = &statement[statement.find('(').expect("columns")..];
            if statement.contains("api_keys_by_lookup") {
                // The owner of a caller with a key is not known before the key is found.
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
