//! Migrating a database into another file.

use std::path::{Path, PathBuf};

use context_store::seal::Part;
use context_store::transfer::{
    ErasedOwner, Head, MARK, Observer, Phase, Report, Row, Source, TABLES, Table, Target,
    TransferError, migrate,
};
use context_store::{EmbeddingModel, OwnerId, Store as _};
use context_store_conformance::generate::fill;
use context_store_sqlite::{Config, OpenError, SqliteSource, SqliteStore, SqliteTarget};
use diesel::connection::SimpleConnection as _;
use diesel::prelude::*;
use diesel::sql_types::Text;
use diesel::sqlite::SqliteConnection;

use crate::arrange::{entry, found, options, store_batch};

struct Silent;

impl Observer for Silent {
    fn progress(&mut self, _: Phase, _: &'static str, _: u64, _: u64) {}

    fn note(&mut self, _: &str) {}
}

async fn source(path: &Path) -> Result<Box<dyn Source>, TransferError> {
    SqliteSource::open(path.to_owned(), OwnerId::default()).await
}

async fn target(path: &Path) -> Result<SqliteTarget, TransferError> {
    SqliteTarget::open(Config::new(path)).await
}

async fn moved(from: &Path, to: &Path) -> Result<Report, TransferError> {
    let (mut source, mut target) = (source(from).await?, target(to).await?);
    migrate(source.as_mut(), &mut target, &mut Silent).await
}

/// A file with rows in every table.
async fn filled(directory: &Path, entries: usize) -> PathBuf {
    let path = directory.join("from.db");
    let store = SqliteStore::open(Config::new(&path)).unwrap();
    fill(&store, 1, entries).await;
    store.close().await;
    path
}

/// Every row of every table as text, except the full-text indexes and the tables of SQLite and of the migrations. The
/// ids of chunks and the incarnations of owners' feeds are left out, because each database has its own.
fn content(path: &Path) -> Vec<String> {
    #[derive(QueryableByName)]
    struct Line {
        #[diesel(sql_type = Text)]
        line: String,
    }
    let mut conn = SqliteConnection::establish(path.to_str().unwrap()).unwrap();
    let mut lines = |sql: String| {
        diesel::sql_query(sql)
            .load::<Line>(&mut conn)
            .unwrap()
            .into_iter()
            .map(|row| row.line)
            .collect::<Vec<_>>()
    };
    // A copy numbers the documents of artifacts without the gaps that deleted ones left.
    let tables = lines(
        "SELECT t.name || ':' || (SELECT group_concat('quote(\"' || c.name || '\")', ' || char(10) || ') FROM pragma_table_info(t.name) c \
         WHERE c.name NOT IN ('chunk_id', 'incarnation') AND NOT (t.name = 'artifact_documents' AND c.name = 'row_id')) AS line FROM sqlite_schema t WHERE t.type = 'table' AND t.name NOT LIKE 'fts\\_%' ESCAPE '\\' \
         AND t.name NOT LIKE '\\_\\_%' ESCAPE '\\' AND t.name NOT LIKE 'sqlite%' ORDER BY 1"
            .to_owned(),
    );
    let mut all = Vec::new();
    for table in tables {
        let (name, columns) = table.split_once(':').unwrap();
        all.extend(lines(format!(
            "SELECT '{name} ' || {columns} AS line FROM \"{name}\" ORDER BY 1"
        )));
    }
    // Each database has its own record that every row has checksums. A moved row is checked again.
    all.retain(|line| !line.starts_with("meta 'sealed'"));
    all
}

fn tables(content: &[String]) -> Vec<&str> {
    let mut names: Vec<&str> = content
        .iter()
        .filter_map(|line| line.split(' ').next())
        .collect();
    names.dedup();
    names
}

#[tokio::test(flavor = "multi_thread")]
async fn the_vectors_of_artifacts_are_not_counted_because_they_are_not_moved() {
    let directory = tempfile::tempdir().unwrap();
    let path = filled(directory.path(), 50).await;
    let mut before = Vec::new();
    {
        let mut source = source(&path).await.unwrap();
        for table in TABLES {
            before.push(source.count(table).await.unwrap());
        }
    }
    SqliteConnection::establish(path.to_str().unwrap())
        .unwrap()
        .batch_execute(
            "INSERT INTO chunks SELECT (SELECT max(chunk_id) FROM chunks) + 1, owner, -row_id, set_id, position, \
                 start_char, end_char, code FROM chunks LIMIT 1; \
             INSERT INTO chunk_tokens SELECT owner, -row_id, set_id, position, tokens FROM chunk_tokens LIMIT 1",
        )
        .unwrap();
    let mut source = source(&path).await.unwrap();
    for (table, before) in TABLES.iter().zip(before) {
        assert_eq!(source.count(table).await.unwrap(), before, "{}", table.name);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_arrives_and_is_as_writes_would_have_made_it() {
    let directory = tempfile::tempdir().unwrap();
    let from = filled(directory.path(), 600).await;
    let to = directory.path().join("to.db");
    let report = moved(&from, &to).await.unwrap();
    assert_eq!(report.left_behind, []);
    let (before, after) = (content(&from), content(&to));
    for table in TABLES {
        assert!(
            tables(&before).contains(&table.name),
            "the test has rows of {}",
            table.name
        );
        assert!(
            report
                .verified
                .iter()
                .any(|found| found.table == table.name && found.rows > 0),
            "{}",
            table.name
        );
    }
    for (before, after) in before.iter().zip(&after) {
        assert_eq!(before, after);
    }
    assert_eq!(before.len(), after.len());
    let (from, to) = (
        SqliteStore::open(Config::new(&from)).unwrap(),
        SqliteStore::open(Config::new(&to)).unwrap(),
    );
    for words in [
        "running",
        "数据",
        "straße foo_bar",
        "decided agents remember",
    ] {
        // The texts are sorted, because their scores depend on what was deleted from an index before.
        let (mut before, mut after) = (
            found(&from, "english", words).await,
            found(&to, "english", words).await,
        );
        before.sort();
        after.sort();
        assert_eq!(before, after, "{words}");
        assert!(!after.is_empty(), "{words}");
    }
    // Both databases continue identically.
    let (one, other) = (
        store_batch(&from, [entry("next")]).await,
        store_batch(&to, [entry("next")]).await,
    );
    assert_eq!(one, other);
    from.close().await;
    to.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_ids_of_an_erased_owner_are_not_used_again_after_a_migration() {
    let directory = tempfile::tempdir().unwrap();
    let from = filled(directory.path(), 10).await;
    let store = SqliteStore::open(Config::new(&from)).unwrap();
    let owner = OwnerId::new("erased");
    let put = async |store: &SqliteStore| {
        let stored = store
            .store_contexts(&owner, vec![entry("text")], true, options())
            .await
            .unwrap();
        stored.outcome.items[0].as_ref().unwrap().id
    };
    let first = put(&store).await;
    let at = options().now;
    store.keys().erase_owner(&owner, at).await.unwrap();
    store.close().await;
    let to = directory.path().join("to.db");
    moved(&from, &to).await.unwrap();
    let store = SqliteStore::open(Config::new(&to)).unwrap();
    let owners = store.keys().list_owners().await.unwrap();
    assert!(owners.iter().all(|summary| summary.owner != owner));
    assert!(put(&store).await > first);
    store.close().await;
}

/// What checksums cover is copied even when it is damaged, and is still damaged in the copy.
#[tokio::test(flavor = "multi_thread")]
async fn damage_is_copied_where_a_checksum_shows_it_and_refused_elsewhere() {
    let damaged = async |sql: &str| {
        let directory = tempfile::tempdir().unwrap();
        let (from, to) = (
            directory.path().join("from.db"),
            directory.path().join("to.db"),
        );
        let store = SqliteStore::open(Config::new(&from)).unwrap();
        store_batch(&store, ["one", "two", "three"].map(entry)).await;
        store.close().await;
        SqliteConnection::establish(from.to_str().unwrap())
            .unwrap()
            .batch_execute(sql)
            .unwrap();
        let report = moved(&from, &to).await;
        (directory, to, report)
    };
    for (change, part) in [
        ("text = CAST(x'ff' AS TEXT)", Part::Text),
        ("metadata = CAST(x'7bff7d' AS TEXT)", Part::Metadata),
    ] {
        let (_directory, to, report) =
            damaged(&format!("UPDATE entries SET {change} WHERE id = 2")).await;
        report.unwrap_or_else(|error| panic!("{change}: {error}"));
        let store = SqliteStore::open(Config::new(&to)).unwrap();
        let found = store
            .get_contexts(
                &OwnerId::default(),
                vec![1, 2, 3],
                crate::arrange::SELECTION,
                crate::arrange::read(),
            )
            .await
            .unwrap();
        let mut damages: Vec<_> = found
            .entries
            .iter()
            .map(|entry| (entry.id, entry.damage))
            .collect();
        damages.sort_unstable_by_key(|(id, _)| *id);
        assert_eq!(damages, [(1, None), (2, Some(part)), (3, None)], "{change}");
        store.close().await;
    }
    for change in [
        "thread_id = CAST(x'ff' AS TEXT)",
        "text = CAST(x'ff' AS TEXT), seal = NULL",
    ] {
        let (_directory, _, report) =
            damaged(&format!("UPDATE entries SET {change} WHERE id = 2")).await;
        let refused = report.unwrap_err();
        assert!(
            refused.to_string().contains("it is damaged")
                && refused.to_string().contains("table entries"),
            "{change}: {refused}"
        );
    }
}

/// Fails after some writes, like a process that is killed, and cannot store one entry.
struct Interrupted<'t> {
    target: &'t mut SqliteTarget,
    writes: usize,
    refused: Option<i64>,
}

#[async_trait::async_trait]
impl Target for Interrupted<'_> {
    fn source(&mut self) -> &mut dyn Source {
        self.target.source()
    }

    async fn mark(&mut self) -> Result<Option<String>, TransferError> {
        self.target.mark().await
    }

    async fn is_empty(&mut self) -> Result<bool, TransferError> {
        self.target.is_empty().await
    }

    async fn begin(
        &mut self,
        model: Option<&EmbeddingModel>,
        erased: &[ErasedOwner],
        mark: &str,
    ) -> Result<(), TransferError> {
        self.target.begin(model, erased, mark).await
    }

    async fn write(
        &mut self,
        owner: &OwnerId,
        table: &'static Table,
        rows: &[Row],
        mark: &str,
    ) -> Result<(), TransferError> {
        if self.writes == 0 {
            return Err(TransferError::database("test", "interrupted"));
        }
        self.writes -= 1;
        let is_refused = |row: &Row| Some(row.int(table, "id")) == self.refused;
        if table.name == "entries" && rows.iter().any(is_refused) {
            return Err(TransferError::database("test", "not storable"));
        }
        self.target.write(owner, table, rows, mark).await
    }

    async fn close_owner(&mut self, head: &Head, mark: &str) -> Result<(), TransferError> {
        self.target.close_owner(head, mark).await
    }

    async fn finish(&mut self) -> Result<(), TransferError> {
        self.target.finish().await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_the_target_cannot_store_is_named_after_those_before_it_were_copied() {
    let directory = tempfile::tempdir().unwrap();
    let (from, to) = (
        directory.path().join("from.db"),
        directory.path().join("to.db"),
    );
    let store = SqliteStore::open(Config::new(&from)).unwrap();
    store_batch(&store, ["one", "two", "three"].map(entry)).await;
    store.close().await;
    let (mut source, mut target) = (source(&from).await.unwrap(), target(&to).await.unwrap());
    let mut refusing = Interrupted {
        target: &mut target,
        writes: usize::MAX,
        refused: Some(2),
    };
    let refused = migrate(source.as_mut(), &mut refusing, &mut Silent).await;
    let sentence = refused.unwrap_err().to_string();
    assert!(
        sentence.contains("table entries of owner `default`, the row with id 2: not storable")
            && sentence.contains("if it fails there again"),
        "{sentence}"
    );
    refusing.refused = None;
    let report = migrate(source.as_mut(), &mut refusing, &mut Silent).await;
    report.unwrap();
    drop((source, target));
    assert_eq!(content(&from), content(&to));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_migration_goes_on_wherever_it_stopped() {
    let directory = tempfile::tempdir().unwrap();
    let from = filled(directory.path(), 700).await;
    let to = directory.path().join("to.db");
    let mut stops = 0;
    let report = loop {
        let (mut source, mut target) = (source(&from).await.unwrap(), target(&to).await.unwrap());
        let mut interrupted = Interrupted {
            target: &mut target,
            writes: 1,
            refused: None,
        };
        match migrate(source.as_mut(), &mut interrupted, &mut Silent).await {
            Ok(report) => break report,
            Err(error) => assert!(error.to_string().contains("interrupted"), "{error}"),
        }
        drop((source, target));
        let refused = SqliteStore::open(Config::new(&to)).unwrap_err();
        assert!(
            matches!(refused, OpenError::IncompleteMigration { .. }),
            "{refused}"
        );
        stops += 1;
        assert!(stops < 100, "it gets further each time");
    };
    assert!(stops > 10 && report.copied < 500, "{report:?}");
    assert_eq!(content(&from), content(&to));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_target_that_is_not_empty_and_a_source_that_is_in_use_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let from = filled(directory.path(), 10).await;
    let other = directory.path().join("other.db");
    let store = SqliteStore::open(Config::new(&other)).unwrap();
    store_batch(&store, [entry("mine")]).await;
    let refused = moved(&other, &directory.path().join("new.db"))
        .await
        .unwrap_err();
    assert!(
        refused.to_string().contains("is held by process"),
        "{refused}"
    );
    assert!(
        !directory.path().join("new.db").exists(),
        "no target is made for a source that cannot be read"
    );
    store.close().await;
    let before = content(&other);
    let refused = moved(&from, &other).await.unwrap_err();
    assert!(refused.to_string().contains("is not empty"), "{refused}");
    assert_eq!(content(&other), before);
    SqliteStore::open(Config::new(&other))
        .unwrap()
        .close()
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_incomplete_migration_takes_the_same_source_alone_and_only_as_it_was() {
    let directory = tempfile::tempdir().unwrap();
    let from = filled(directory.path(), 20).await;
    let to = directory.path().join("to.db");
    {
        let (mut source, mut target) = (source(&from).await.unwrap(), target(&to).await.unwrap());
        let mut interrupted = Interrupted {
            target: &mut target,
            writes: 2,
            refused: None,
        };
        migrate(source.as_mut(), &mut interrupted, &mut Silent)
            .await
            .unwrap_err();
    }
    let other = directory.path().join("other.db");
    SqliteStore::open(Config::new(&other))
        .unwrap()
        .close()
        .await;
    let refused = moved(&other, &to).await.unwrap_err();
    assert!(
        refused
            .to_string()
            .contains("holds an incomplete migration from sqlite://"),
        "{refused}"
    );
    let refused = moved(&to, &directory.path().join("new.db"))
        .await
        .unwrap_err();
    assert!(
        refused
            .to_string()
            .contains("is being filled by a migration that has not ended"),
        "{refused}"
    );
    let store = SqliteStore::open(Config::new(&from)).unwrap();
    store_batch(&store, [entry("one more")]).await;
    store.close().await;
    let refused = moved(&from, &to).await.unwrap_err();
    assert!(
        refused.to_string().contains("has changed since"),
        "{refused}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_migration_that_stopped_in_an_unknown_table_is_left_to_its_version() {
    let directory = tempfile::tempdir().unwrap();
    let from = filled(directory.path(), 20).await;
    let to = directory.path().join("to.db");
    {
        let (mut source, mut target) = (source(&from).await.unwrap(), target(&to).await.unwrap());
        let mut interrupted = Interrupted {
            target: &mut target,
            writes: 2,
            refused: None,
        };
        migrate(source.as_mut(), &mut interrupted, &mut Silent)
            .await
            .unwrap_err();
    }
    SqliteConnection::establish(to.to_str().unwrap())
        .unwrap()
        .batch_execute(&format!(
            "UPDATE meta SET value = json_set(value, '$.at.table', 'notes') WHERE key = '{MARK}'"
        ))
        .unwrap();
    let refused = moved(&from, &to).await.unwrap_err();
    assert!(
        refused
            .to_string()
            .contains("is being filled by another version"),
        "{refused}"
    );
}
