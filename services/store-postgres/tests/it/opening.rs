//! Opens databases of this service, of other programs, and empty ones.

use context_store::Store;
use context_store_postgres::{OpenError, PostgresStore};
use context_test_postgres::TestDatabase;

use super::arrange::config;

#[tokio::test(flavor = "multi_thread")]
async fn many_services_may_open_an_empty_database_at_once() {
    let Some(database) = TestDatabase::empty().await else {
        return;
    };
    let opening = (0..8).map(|_| {
        let mut config = config(database.url());
        config.indexed_fields = vec!["status".to_owned(), "a.b-c".to_owned()];
        tokio::spawn(PostgresStore::open(config))
    });
    for opened in opening.collect::<Vec<_>>() {
        let store = opened.await.expect("no panic").expect("it opens");
        store.check().await.expect("it answers");
    }
    let client = database.connect().await;
    let indexes = "SELECT count(*) FROM pg_indexes WHERE schemaname = 'context' AND indexname LIKE 'entries\\_text\\_%'";
    assert_eq!(
        client
            .query_one(indexes, &[])
            .await
            .expect("the indexes are counted")
            .get::<_, i64>(0),
        2
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_schema_of_another_program_is_left_untouched() {
    let Some(database) = TestDatabase::empty().await else {
        return;
    };
    let client = database.connect().await;
    client
        .batch_execute("CREATE SCHEMA context; CREATE TABLE context.entries (mine int)")
        .await
        .expect("the schema is made");
    let refused = PostgresStore::open(config(database.url()))
        .await
        .expect_err("it is not ours");
    assert!(matches!(refused, OpenError::Foreign { .. }), "{refused}");
    client
        .query("SELECT mine FROM context.entries", &[])
        .await
        .expect("it is still there");
    let relations = "SELECT count(*) FROM pg_class WHERE relnamespace = 'context'::regnamespace";
    let relations = client.query_one(relations, &[]).await.expect("counted");
    assert_eq!(relations.get::<_, i64>(0), 1, "nothing was added");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_newer_schema_is_refused() {
    let Some(database) = super::arrange::database().await else {
        return;
    };
    let client = database.connect().await;
    client
        .batch_execute("INSERT INTO context.schema_version VALUES (1000)")
        .await
        .expect("a version of the future");
    let refused = PostgresStore::open(config(database.url()))
        .await
        .expect_err("it is newer");
    assert!(
        refused.to_string().contains("schema version 1000"),
        "{refused}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_does_not_let_us_in_is_named_without_the_password() {
    let Some(database) = TestDatabase::empty().await else {
        return;
    };
    let elsewhere = context_test_postgres::with_database(database.url(), "ctxt_no_such_database");
    let (scheme, rest) = elsewhere.split_once("://").expect("a URL");
    let (user, host) = rest.split_once('@').expect("a user");
    // A server that trusts its users ignores the password.
    let (user, password) = user.split_once(':').unwrap_or((user, "hunter2"));
    let elsewhere = format!("{scheme}://{user}:{password}@{host}");
    let refused = PostgresStore::open(config(&elsewhere))
        .await
        .expect_err("there is no such database")
        .to_string();
    assert!(
        refused.contains("ctxt_no_such_database")
            && refused.contains("does not exist")
            && !refused.contains(password),
        "{refused}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn another_language_indexes_every_entry_again() {
    use context_model::{Filter, NewEntry, Source, ThreadId, Timestamp};
    use context_store::{FtsSearch, Memory, OwnerId, Page, Read, RowSelection, WriteOptions};
    use context_text::{Analyzer, Language, Mode, parse};

    let Some(database) = super::arrange::database().await else {
        return;
    };
    let selection = RowSelection {
        images: false,
        text_chars: None,
        explain: false,
        max_bytes: u64::MAX,
        memory: Memory::UNCOUNTED,
    };
    let mut found = Vec::new();
    let client = database.connect().await;
    client
        .batch_execute(
            "CREATE TEXT SEARCH CONFIGURATION \"My Words\" (COPY = catalan); \
             CREATE TEXT SEARCH CONFIGURATION \"my.words\" (COPY = catalan)",
        )
        .await
        .expect("the configurations are made");
    // Two languages that `context-text` stems, and three that only the server stems.
    for (language, ours, word) in [
        ("english", Language::English, "houses"),
        ("german", Language::German, "Haus"),
        ("catalan", Language::Unstemmed, "gat"),
        ("My Words", Language::Unstemmed, "gat"),
        ("my.words", Language::Unstemmed, "gat"),
    ] {
        let mut config = config(database.url());
        config.language = language.to_owned();
        let store = PostgresStore::open(config).await.expect("it opens");
        if found.is_empty() {
            for text in ["a house", "viele Häuser", "dos gats"] {
                let entry = NewEntry {
                    thread_id: ThreadId::from_stored(text.to_owned()),
                    source: Source::User,
                    text: text.to_owned(),
                    images: None,
                    metadata: None,
                    tags: None,
                };
                let options = WriteOptions {
                    now: Timestamp(1),
                    idempotency: None,
                    key_id: None,
                    embeddings: Vec::new(),
                };
                store
                    .store_contexts(&OwnerId::default(), vec![entry], true, options)
                    .await
                    .expect("stored");
            }
        }
        let query = parse(Mode::Match, word, &Analyzer::new(ours))
            .expect("a query")
            .expect("a word");
        let search = FtsSearch {
            query,
            ranking_cap: 100,
            context_weight: 0.0,
        };
        let page = Page {
            limit: 10,
            offset: 0,
        };
        let hits = store
            .fts_search(
                &OwnerId::default(),
                search,
                Filter::default(),
                page,
                selection.clone(),
                Read::default(),
            )
            .await;
        found.push(
            hits.expect("it works")
                .entries
                .into_iter()
                .map(|hit| hit.entry.text)
                .collect::<Vec<_>>(),
        );
        store.close().await;
    }
    assert_eq!(
        found,
        [
            ["a house"],
            ["viele Häuser"],
            ["dos gats"],
            ["dos gats"],
            ["dos gats"]
        ]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn opening_indexes_the_artifacts_of_every_owner() {
    let Some(database) = super::arrange::database().await else {
        return;
    };
    let client = database.connect().await;
    // As a service stores them that does not know the index. They take several transactions.
    let insert = "INSERT INTO context.artifacts (owner_id, artifact_id, created_at, version) \
                  SELECT CASE WHEN n = 1 THEN 'a' ELSE 'b' END, md5(n::text)::uuid::text, 0, 1 \
                  FROM generate_series(1, 50) AS n; \
                  INSERT INTO context.artifact_versions \
                  (owner_id, artifact_id, version, at, title_given, changes, title, metadata, content) \
                  SELECT owner_id, artifact_id, 1, 0, true, '{}', 'title', '{}', 'viele Häuser' FROM context.artifacts";
    client.batch_execute(insert).await.expect("inserted");
    for (language, word) in [("english", "hauser"), ("german", "haus")] {
        let mut config = config(database.url());
        config.language = language.to_owned();
        let store = PostgresStore::open(config).await.expect("it opens");
        store.close().await;
        let count =
            "SELECT count(*) FROM context.artifact_documents WHERE words @@ $1::text::tsquery";
        let row = client.query_one(count, &[&word]).await.expect("counted");
        assert_eq!(row.get::<_, i64>(0), 50, "{language}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deadlock_with_a_write_does_not_stop_the_start() {
    use context_model::{NewEntry, Source, ThreadId, Timestamp};
    use context_store::{OwnerId, WriteOptions};

    let Some(database) = super::arrange::database().await else {
        return;
    };
    let store = super::arrange::store(&database).await;
    let entries = ["a", "b"].map(|text| NewEntry {
        thread_id: ThreadId::from_stored("t".to_owned()),
        source: Source::User,
        text: text.to_owned(),
        images: None,
        metadata: None,
        tags: None,
    });
    let options = WriteOptions {
        now: Timestamp(1),
        idempotency: None,
        key_id: None,
        embeddings: Vec::new(),
    };
    store
        .store_contexts(&OwnerId::default(), entries.to_vec(), true, options)
        .await
        .expect("stored");
    store.close().await;
    // A write of another service locks the later entry first.
    let lock =
        |text: &str| format!("UPDATE context.entries SET version = version WHERE text = '{text}'");
    let mut other = database.connect().await;
    let write = other.transaction().await.expect("a transaction");
    write.batch_execute(&lock("b")).await.expect("locked");
    let mut config = config(database.url());
    config.language = "german".to_owned();
    let opening = tokio::spawn(PostgresStore::open(config));
    let watching = database.connect().await;
    super::locks::until_blocked(&watching, 1).await;
    let free = "SELECT 1 FROM context.entries WHERE text = 'a' FOR UPDATE SKIP LOCKED";
    let free = watching.query(free, &[]).await.expect("read");
    assert!(free.is_empty(), "the rebuild has locked the first entry");
    // PostgreSQL rolls back one of the two: usually the rebuild, which has waited longer.
    let ended = match write.batch_execute(&lock("a")).await {
        Ok(()) => write.commit().await,
        Err(_) => write.rollback().await,
    };
    ended.expect("the write ends");
    let opened = opening.await.expect("no panic").expect("it opens");
    opened.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_with_other_settings_changes_no_index() {
    let Some(database) = super::arrange::database().await else {
        return;
    };
    let client = database.connect().await;
    let state = async || {
        let read = "SELECT key || value FROM context.settings UNION ALL \
                    SELECT indexdef FROM pg_indexes WHERE schemaname = 'context' ORDER BY 1";
        let rows = client.query(read, &[]).await.expect("read");
        rows.iter().map(|row| row.get(0)).collect::<Vec<String>>()
    };
    let reopened = async |builds_indexes| {
        let mut config = config(database.url());
        config.language = "german".to_owned();
        config.indexed_fields = vec!["status".to_owned()];
        config.builds_indexes = builds_indexes;
        let store = PostgresStore::open(config).await.expect("it opens");
        store.close().await;
        state().await
    };
    let before = state().await;
    assert_eq!(reopened(false).await, before);
    assert_ne!(reopened(true).await, before);
}

#[tokio::test]
async fn another_context_window_rebuilds_the_index() {
    use context_model::{Filter, NewEntry, Source, ThreadId, Timestamp};
    use context_store::{
        ContextWindow, FtsSearch, Memory, OwnerId, Page, Read, RowSelection, WriteOptions,
    };
    use context_store_postgres::Config;
    use context_text::{Analyzer, Language, Mode, parse};

    let Some(database) = super::arrange::database().await else {
        return;
    };
    let context_windows = [
        ContextWindow::NONE,
        ContextWindow::default(),
        ContextWindow {
            entries: 1,
            ..ContextWindow::default()
        },
    ];
    for (context_window, expected) in context_windows.into_iter().zip([1, 3, 2]) {
        let store = PostgresStore::open(Config {
            context_window,
            ..config(database.url())
        })
        .await
        .expect("it opens");
        if expected == 1 {
            let turns = [
                ("apple", Source::User),
                ("second", Source::Agent),
                ("third", Source::User),
            ];
            let entries = turns.map(|(text, source)| NewEntry {
                thread_id: ThreadId::from_stored("t".to_owned()),
                source,
                text: text.to_owned(),
                images: None,
                metadata: None,
                tags: None,
            });
            let options = WriteOptions {
                now: Timestamp(1),
                idempotency: None,
                key_id: None,
                embeddings: Vec::new(),
            };
            store
                .store_contexts(&OwnerId::default(), entries.to_vec(), true, options)
                .await
                .expect("stored");
        }
        let query = parse(Mode::Match, "apple", &Analyzer::new(Language::English))
            .expect("a query")
            .expect("a word");
        let search = FtsSearch {
            query,
            ranking_cap: 100,
            context_weight: 0.4,
        };
        let (page, selection) = (
            Page {
                limit: 10,
                offset: 0,
            },
            RowSelection {
                images: false,
                text_chars: None,
                explain: false,
                max_bytes: 1 << 20,
                memory: Memory::UNCOUNTED,
            },
        );
        let hits = store
            .fts_search(
                &OwnerId::default(),
                search,
                Filter::default(),
                page,
                selection,
                Read::default(),
            )
            .await;
        assert_eq!(hits.expect("it works").entries.len(), expected);
        store.close().await;
    }
}
