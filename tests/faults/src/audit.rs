//! Verifies a database file: recounts what is derived from its entries.

use std::path::Path;

use diesel::connection::SimpleConnection as _;
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Text};
use diesel::sqlite::SqliteConnection;

use context_store_sqlite::{Config, SqliteStore};

#[derive(QueryableByName)]
struct Line {
    #[diesel(sql_type = Text)]
    line: String,
}

#[derive(QueryableByName)]
struct Count {
    #[diesel(sql_type = BigInt)]
    count: i64,
}

/// The rules. The query of each returns rows only if the rule is broken.
const CHECKS: &[(&str, &str)] = &[
    (
        "an entry's row id holds its owner and id",
        "SELECT id FROM entries WHERE row_id <> (owner << 40 | id)",
    ),
    (
        "every entry has an owner",
        "SELECT id FROM entries WHERE owner NOT IN (SELECT owner FROM owners)",
    ),
    (
        "ids stay below the next one",
        "SELECT e.id FROM entries e JOIN owners o USING (owner) WHERE e.id >= o.next_id",
    ),
    (
        "threads count their entries",
        "SELECT owner, thread_id, count(*), sum(source = 'user'), sum(source = 'agent'), sum(image_count > 0), min(created_at), \
         max(created_at) FROM entries GROUP BY owner, thread_id \
         EXCEPT SELECT owner, thread_id, entry_count, user_count, agent_count, multimodal_count, first_entry, last_entry FROM threads",
    ),
    (
        "no thread is empty",
        "SELECT owner, thread_id FROM threads EXCEPT SELECT owner, thread_id FROM entries",
    ),
    (
        "each thread refers to its newest entry",
        "SELECT t.thread_id FROM threads t WHERE (t.last_id, t.last_source) IS NOT (SELECT e.id, e.source FROM entries e \
         WHERE e.owner = t.owner AND e.thread_id = t.thread_id ORDER BY e.created_at DESC, e.row_id DESC LIMIT 1)",
    ),
    (
        "owners count their entries",
        "SELECT o.owner FROM owners o WHERE (o.entry_count, o.user_count, o.agent_count, o.multimodal_count, o.image_count) IS NOT \
         (SELECT count(*), coalesce(sum(source = 'user'), 0), coalesce(sum(source = 'agent'), 0), coalesce(sum(image_count > 0), 0), \
         coalesce(sum(image_count), 0) FROM entries e WHERE e.owner = o.owner)",
    ),
    (
        "owners count their threads and tags",
        "SELECT o.owner FROM owners o WHERE o.thread_count <> (SELECT count(*) FROM threads t WHERE t.owner = o.owner) \
         OR o.tag_count <> (SELECT count(*) FROM tag_counts t WHERE t.owner = o.owner)",
    ),
    (
        "every tag of an entry is in the index",
        "SELECT e.owner, t.value, e.row_id FROM entries e, json_each(e.tags) t EXCEPT SELECT owner, tag, row_id FROM entry_tags",
    ),
    (
        "the index holds no other tag",
        "SELECT owner, tag, row_id FROM entry_tags EXCEPT SELECT e.owner, t.value, e.row_id FROM entries e, json_each(e.tags) t",
    ),
    (
        "tags are counted",
        "SELECT * FROM (SELECT owner, tag, count(*) FROM entry_tags GROUP BY owner, tag EXCEPT SELECT owner, tag, entries FROM tag_counts) \
         UNION ALL SELECT * FROM (SELECT owner, tag, entries FROM tag_counts EXCEPT SELECT owner, tag, count(*) FROM entry_tags GROUP BY owner, tag)",
    ),
    (
        "entries have all their images, in order",
        "SELECT e.id FROM entries e WHERE (e.image_count, e.image_count - 1) IS NOT (SELECT count(*), coalesce(max(position), -1) \
         FROM images i WHERE i.owner = e.owner AND i.row_id = e.row_id)",
    ),
    (
        "a chunk belongs to an entry of its owner",
        "SELECT owner, row_id FROM chunks WHERE row_id > 0 EXCEPT SELECT owner, row_id FROM entries",
    ),
    (
        "each chunk has a vector, and each vector a chunk",
        "SELECT * FROM (SELECT chunk_id FROM chunks EXCEPT SELECT chunk_id FROM vectors) \
         UNION ALL SELECT * FROM (SELECT chunk_id FROM vectors EXCEPT SELECT chunk_id FROM chunks)",
    ),
    (
        "token vectors belong to a chunk",
        "SELECT owner, row_id, set_id, position FROM chunk_tokens EXCEPT SELECT owner, row_id, set_id, position FROM chunks",
    ),
    (
        "a chunk belongs to an existing set",
        "SELECT set_id FROM chunks EXCEPT SELECT set_id FROM embedding_sets",
    ),
    (
        "an entry's chunks are numbered from 0 without a gap",
        "SELECT row_id FROM chunks GROUP BY row_id, set_id HAVING count(*) <> max(position) + 1 OR min(position) <> 0",
    ),
    (
        "at most one set is in use",
        "SELECT current FROM embedding_sets WHERE current = 1 GROUP BY current HAVING count(*) > 1",
    ),
    (
        "no image is left over",
        "SELECT owner, row_id FROM images EXCEPT SELECT owner, row_id FROM entries",
    ),
    (
        "revisions have no gap",
        "SELECT o.owner FROM owners o WHERE (o.revision, o.revision, min(o.revision, 1)) IS NOT \
         (SELECT count(*), coalesce(max(revision), 0), coalesce(min(revision), 0) FROM changes c WHERE c.owner = o.owner)",
    ),
    (
        "versions of an entry follow each other",
        "SELECT * FROM (SELECT entity_id, operation, version, lag(version) OVER w AS before, lag(operation) OVER w AS did FROM changes \
         WHERE entity = 'context' WINDOW w AS (PARTITION BY owner, entity_id ORDER BY revision)) \
         WHERE NOT coalesce(CASE operation WHEN 'create' THEN version = 1 AND before IS NULL WHEN 'update' THEN version = before + 1 AND coalesce(did, 'delete') <> 'delete' \
         WHEN 'delete' THEN coalesce(did, 'delete') <> 'delete' ELSE 0 END, 0)",
    ),
    (
        "the last change of an entry has its thread and version",
        "SELECT owner, CAST(entity_id AS INTEGER), thread_id, version FROM (SELECT *, row_number() OVER (PARTITION BY owner, entity_id \
         ORDER BY revision DESC) AS age FROM changes WHERE entity = 'context') WHERE age = 1 AND operation <> 'delete' \
         EXCEPT SELECT owner, id, thread_id, version FROM entries",
    ),
    (
        "every entry has a last change with its thread and version",
        "SELECT owner, id, thread_id, version FROM entries EXCEPT SELECT owner, CAST(entity_id AS INTEGER), thread_id, version FROM \
         (SELECT *, row_number() OVER (PARTITION BY owner, entity_id ORDER BY revision DESC) AS age FROM changes WHERE entity = 'context') \
         WHERE age = 1 AND operation <> 'delete'",
    ),
    (
        "every owner with entries has a full-text table",
        "SELECT 'fts_' || owner FROM entries EXCEPT SELECT name FROM sqlite_schema",
    ),
];

/// Checks the file, its indexes, and every count and list derived from the entries. Artifacts are not checked. No change
/// may have been removed from the feed. Returns a line for each broken rule.
#[must_use]
pub fn audit(database: &Path) -> Vec<String> {
    register_tokenizer();
    try_audit(database).unwrap_or_else(|error| vec![format!("the audit stopped: {error}")])
}

/// Registers the store's tokenizer for all later connections of this process, by opening a store. FTS5 does not open a
/// table without it.
fn register_tokenizer() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        let directory = tempfile::tempdir().expect("a temporary directory");
        drop(SqliteStore::open(Config::new(
            directory.path().join("any.db"),
        )));
    });
}

/// Audits a copy of the database that a killed process left. Opening the copy recovers it, as a restart would.
#[must_use]
pub fn audit_copy(database: &Path) -> Vec<String> {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let copy = directory.path().join("copy.db");
    for suffix in ["", "-wal", "-journal"] {
        let name = |path: &Path| std::path::PathBuf::from(format!("{}{suffix}", path.display()));
        if name(database).exists() {
            std::fs::copy(name(database), name(&copy)).expect("room for a copy");
        }
    }
    audit(&copy)
}

fn try_audit(database: &Path) -> QueryResult<Vec<String>> {
    let mut conn = connect(database);
    let mut wrong = Vec::new();
    let integrity = diesel::sql_query("SELECT integrity_check AS line FROM pragma_integrity_check")
        .load::<Line>(&mut conn)?;
    if integrity.len() != 1 || integrity[0].line != "ok" {
        wrong.extend(
            integrity
                .into_iter()
                .map(|Line { line }| format!("integrity_check: {line}")),
        );
    }
    for (rule, sql) in CHECKS {
        let count = count(&mut conn, sql)?;
        if count > 0 {
            wrong.push(format!("{rule}: broken {count} times"));
        }
    }
    for table in full_text_tables(&mut conn)? {
        wrong.extend(check_full_text(&mut conn, &table)?);
    }
    Ok(wrong)
}

fn count(conn: &mut SqliteConnection, sql: &str) -> QueryResult<i64> {
    Ok(
        diesel::sql_query(format!("SELECT count(*) AS count FROM ({sql})"))
            .get_result::<Count>(conn)?
            .count,
    )
}

/// The full-text tables of entries, one per owner. The owner's number is at the end of the name.
fn full_text_tables(conn: &mut SqliteConnection) -> QueryResult<Vec<String>> {
    let sql = "SELECT name AS line FROM sqlite_schema WHERE type = 'table' AND sql LIKE 'CREATE VIRTUAL TABLE%fts5%' \
         AND name NOT GLOB 'fts_artifacts_*'";
    Ok(diesel::sql_query(sql)
        .load::<Line>(conn)?
        .into_iter()
        .map(|Line { line }| line)
        .collect())
}

/// Compares an owner's full-text rows with the owner's entries, and lets FTS5 check its own index.
fn check_full_text(conn: &mut SqliteConnection, table: &str) -> QueryResult<Vec<String>> {
    let digits: String = table
        .chars()
        .rev()
        .take_while(char::is_ascii_digit)
        .collect();
    let owner: String = digits.chars().rev().collect();
    let mut wrong = Vec::new();
    let rows = format!("SELECT id FROM \"{table}_docsize\"");
    let entries = format!("SELECT row_id FROM entries WHERE owner = {owner}");
    for (rule, sql) in [
        (
            "an entry is missing from the full-text index",
            format!("{entries} EXCEPT {rows}"),
        ),
        (
            "the full-text index has an entry that does not exist",
            format!("{rows} EXCEPT {entries}"),
        ),
    ] {
        let count = count(conn, &sql)?;
        if count > 0 {
            wrong.push(format!("{rule}: {count} times"));
        }
    }
    if let Err(error) = conn.batch_execute(&format!(
        "INSERT INTO \"{table}\"(\"{table}\") VALUES ('integrity-check')"
    )) {
        wrong.push(format!("full-text integrity-check: {error}"));
    }
    Ok(wrong)
}

/// Opens a database file without the store.
///
/// # Panics
/// When the database cannot be opened or its path is not UTF-8.
#[must_use]
pub fn connect(database: &Path) -> SqliteConnection {
    let mut conn = SqliteConnection::establish(database.to_str().expect("a test's path is UTF-8"))
        .expect("the database opens");
    conn.batch_execute("PRAGMA busy_timeout = 10000")
        .expect("a PRAGMA");
    conn
}

#[cfg(test)]
mod tests {
    use context_model::{
        DeleteContextRequest, ImageBytes, ImageInput, StoreContextRequest, UpdateContextRequest,
    };

    use super::*;
    use crate::client::{Client as _, Embedded};

    /// Statements that break the rules, each with the rule.
    const PLANTED: &[(&str, &str)] = &[
        (
            "an entry's row id holds its owner and id",
            "UPDATE entries SET id = id + 100",
        ),
        ("every entry has an owner", "DELETE FROM owners"),
        (
            "ids stay below the next one",
            "UPDATE owners SET next_id = 1",
        ),
        (
            "threads count their entries",
            "UPDATE threads SET entry_count = entry_count + 1",
        ),
        (
            "no thread is empty",
            "UPDATE threads SET thread_id = thread_id || 'x'",
        ),
        (
            "each thread refers to its newest entry",
            "UPDATE threads SET last_id = last_id + 1",
        ),
        (
            "owners count their entries",
            "UPDATE owners SET user_count = user_count + 1",
        ),
        (
            "owners count their threads and tags",
            "UPDATE owners SET tag_count = tag_count + 1",
        ),
        (
            "every tag of an entry is in the index",
            "DELETE FROM entry_tags",
        ),
        (
            "the index holds no other tag",
            "UPDATE entries SET tags = '[]'",
        ),
        (
            "tags are counted",
            "UPDATE tag_counts SET entries = entries + 1",
        ),
        (
            "entries have all their images, in order",
            "UPDATE images SET position = 1",
        ),
        (
            "a chunk belongs to an entry of its owner",
            "INSERT INTO chunks (chunk_id, owner, row_id, set_id, position, start_char, end_char, code) \
             VALUES (900, 900, 900, 900, 0, 0, 1, x'00')",
        ),
        (
            "each chunk has a vector, and each vector a chunk",
            "INSERT INTO vectors (chunk_id, vector) VALUES (900, x'00')",
        ),
        (
            "each chunk has a vector, and each vector a chunk",
            "INSERT INTO chunks (chunk_id, owner, row_id, set_id, position, start_char, end_char, code) \
             VALUES (900, 900, 900, 900, 0, 0, 1, x'00')",
        ),
        (
            "token vectors belong to a chunk",
            "INSERT INTO chunk_tokens (owner, row_id, set_id, position, tokens) VALUES (900, 900, 900, 0, x'00')",
        ),
        (
            "a chunk belongs to an existing set",
            "INSERT INTO chunks (chunk_id, owner, row_id, set_id, position, start_char, end_char, code) \
             VALUES (900, 900, 900, 900, 0, 0, 1, x'00')",
        ),
        (
            "an entry's chunks are numbered from 0 without a gap",
            "INSERT INTO chunks (chunk_id, owner, row_id, set_id, position, start_char, end_char, code) \
             VALUES (900, 900, 900, 900, 1, 0, 1, x'00')",
        ),
        (
            "at most one set is in use",
            "INSERT INTO embedding_sets (set_id, model, dimensions, current) VALUES (900, 'a', 1, 1), (901, 'b', 1, 1)",
        ),
        (
            "no image is left over",
            "UPDATE images SET row_id = row_id + 1000",
        ),
        (
            "revisions have no gap",
            "DELETE FROM changes WHERE revision = 2",
        ),
        (
            "versions of an entry follow each other",
            "UPDATE changes SET version = version + 1 WHERE operation = 'update'",
        ),
        (
            "versions of an entry follow each other",
            "UPDATE changes SET version = NULL WHERE operation = 'create'",
        ),
        (
            "the last change of an entry has its thread and version",
            "UPDATE changes SET thread_id = 'other'",
        ),
        (
            "every entry has a last change with its thread and version",
            "DELETE FROM changes WHERE operation = 'create'",
        ),
    ];

    /// Stores entries of two threads, one of them with an image. Updates one and deletes another.
    async fn store_some(database: &Path) {
        let store = Embedded::open(Config::new(database)).expect("a new database");
        let entry = |thread: &str, source: &str, tag: &str| StoreContextRequest {
            thread_id: thread.to_owned(),
            source: source.to_owned(),
            text: format!("about {tag}"),
            tags: Some(vec![tag.to_owned(), "all".to_owned()]),
            ..StoreContextRequest::default()
        };
        let image = ImageInput {
            data: ImageBytes(vec![1, 2, 3]),
            mime_type: Some("image/png".to_owned()),
            metadata: None,
        };
        let first = StoreContextRequest {
            images: Some(vec![image]),
            ..entry("one", "user", "a")
        };
        let first = store.store(first).await.expect("it is stored").context_id;
        let second = entry("two", "agent", "b");
        store.store(second).await.expect("it is stored");
        let third = entry("two", "agent", "c");
        let third = store.store(third).await.expect("it is stored").context_id;
        let update = UpdateContextRequest {
            context_id: first,
            text: Some("another text".to_owned()),
            ..UpdateContextRequest::default()
        };
        store.update(update).await.expect("it is updated");
        let delete = DeleteContextRequest {
            context_ids: Some(vec![third]),
            thread_id: None,
        };
        store.delete(delete).await.expect("it is deleted");
        store.close().await;
    }

    /// If the audit does not report each of these, the tests that use it prove nothing.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn each_broken_rule_is_reported() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let sound = directory.path().join("sound.db");
        store_some(&sound).await;
        assert_eq!(audit(&sound), Vec::<String>::new());
        let plant = |rule: &str, statement: &str| {
            let directory = tempfile::tempdir().expect("a temporary directory");
            let broken = directory.path().join("broken.db");
            std::fs::copy(&sound, &broken).expect("room for a copy");
            connect(&broken)
                .batch_execute(statement)
                .unwrap_or_else(|error| panic!("{statement}: {error}"));
            let wrong = audit(&broken);
            assert!(
                wrong.iter().any(|line| line.starts_with(rule)),
                "{rule}: {wrong:?}"
            );
        };
        for (rule, statement) in PLANTED {
            plant(rule, statement);
        }
        let tables = full_text_tables(&mut connect(&sound)).expect("the tables are read");
        let [table] = tables.as_slice() else {
            panic!("one owner has one table: {tables:?}");
        };
        plant(
            "an entry is missing from the full-text index",
            &format!("DELETE FROM \"{table}_docsize\""),
        );
        plant(
            "the full-text index has an entry that does not exist",
            "DELETE FROM entries",
        );
        plant(
            "every owner with entries has a full-text table",
            &format!("DROP TABLE \"{table}\""),
        );
        for (rule, _) in CHECKS {
            let is_planted = PLANTED.iter().any(|(planted, _)| planted == rule);
            assert!(
                is_planted || *rule == "every owner with entries has a full-text table",
                "nothing breaks the rule: {rule}"
            );
        }
    }
}
