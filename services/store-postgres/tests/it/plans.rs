//! Which index serves which operator.

use context_model::{Filter, FilterInput, MetadataFilter, Tags, ThreadId, Violations};
use context_store::{FtsSearch, Memory, OwnerId, Page, Read, RowSelection, Store};
use context_store_postgres::{Config, PostgresStore};
use context_test_postgres::TestDatabase;
use context_text::{Analyzer, Language, Mode, parse};
use serde_json::{Value, json};

use super::arrange::{config, database};

const EXPLAINED: RowSelection = RowSelection {
    images: false,
    text_chars: Some(10),
    explain: true,
    max_bytes: u64::MAX,
    memory: Memory::UNCOUNTED,
};

/// A store with many entries of two owners. Few entries have the rare values.
async fn many_entries() -> Option<(TestDatabase, PostgresStore)> {
    let database = database().await?;
    let fields = vec!["status".to_owned(), "n".to_owned(), "sparse".to_owned()];
    let store = PostgresStore::open(Config {
        indexed_fields: fields,
        ..config(database.url())
    })
    .await
    .expect("it opens");
    let client = database.connect().await;
    client
        .batch_execute(
            "INSERT INTO context.owners SELECT o, 20000, 20000, 20000, 0, 0, 0, 100 FROM unnest(ARRAY['default', 'other']) AS o;
             INSERT INTO context.entries SELECT o, i, 't' || i % 100, 'user', 0, 1, i, i, ARRAY['tag' || i % 3]
               || CASE WHEN i % 4000 = 0 THEN ARRAY['rare'] ELSE ARRAY[]::text[] END, '', m::json, m, w::tsvector, false, 'text'
             FROM unnest(ARRAY['default', 'other']) AS o, generate_series(1, 20000) AS i,
             LATERAL (SELECT jsonb_build_object('n', i, 'plain', CASE WHEN i % 5000 = 0 THEN 'rare' ELSE 'common' END,
                 'list', jsonb_build_array(CASE WHEN i % 5000 = 0 THEN 'rare' ELSE 'common' END))
               || CASE WHEN i % 1000 = 0 THEN '{}' WHEN i % 1000 = 1 THEN '{\"status\": null}'
                 WHEN i % 5000 = 2 THEN '{\"status\": \"rare one\"}' ELSE '{\"status\": \"open\"}' END::jsonb
               || CASE WHEN i % 5000 = 3 THEN '{\"sparse\": \"2025-06-01\"}' ELSE '{}' END::jsonb AS m) AS m,
             LATERAL (SELECT 'common:1' || CASE WHEN i % 5000 = 4 THEN ' fox:2' ELSE '' END AS w) AS w;
             ANALYZE context.entries;",
        )
        .await
        .expect("the entries are made");
    Some((database, store))
}

fn filter(key: &str, operator: &str, value: Value) -> Filter {
    let condition = MetadataFilter {
        key: key.into(),
        operator: Some(operator.into()),
        value: (!value.is_null()).then_some(value),
        case_sensitive: None,
    };
    let mut violations = Violations::default();
    let filter = Filter::parse(
        FilterInput {
            metadata_filters: Some(vec![condition]),
            ..FilterInput::default()
        },
        &mut violations,
    );
    violations.finish(filter).expect("a valid filter")
}

async fn plan(store: &PostgresStore, filter: Filter) -> (String, usize) {
    let page = Page {
        limit: 30,
        offset: 0,
    };
    let found = store
        .search_contexts(
            &OwnerId::default(),
            filter,
            page,
            EXPLAINED,
            Read::default(),
        )
        .await
        .expect("the search works");
    (found.plan.join("\n"), found.entries.len())
}

#[tokio::test(flavor = "multi_thread")]
async fn every_operator_that_an_index_can_answer_uses_it_for_what_is_rare() {
    let Some((_database, store)) = many_entries().await else {
        return;
    };
    for (operator, key, value, index, found) in [
        ("eq", "status", json!("RARE one"), "entries_text_status", 4),
        (
            "in",
            "status",
            json!(["rare one", "none"]),
            "entries_text_status",
            4,
        ),
        (
            "starts_with",
            "status",
            json!("Rare"),
            "entries_text_status",
            4,
        ),
        ("is_null", "status", Value::Null, "entries_text_status", 20),
        (
            "not_exists",
            "status",
            Value::Null,
            "entries_text_status",
            30,
        ),
        ("exists", "sparse", Value::Null, "entries_text_sparse", 4),
        (
            "is_not_null",
            "sparse",
            Value::Null,
            "entries_text_sparse",
            4,
        ),
        (
            "gt",
            "sparse",
            json!("2025-01-01"),
            "entries_text_sparse",
            4,
        ),
        (
            "gte",
            "sparse",
            json!("2025-01-01"),
            "entries_text_sparse",
            4,
        ),
        (
            "lt",
            "sparse",
            json!("2026-01-01"),
            "entries_text_sparse",
            4,
        ),
        (
            "lte",
            "sparse",
            json!("2026-01-01"),
            "entries_text_sparse",
            4,
        ),
        ("eq", "n", json!(77), "entries_number_n", 1),
        ("in", "n", json!([77, 78.0]), "entries_number_n", 2),
        ("gt", "n", json!(19_990), "entries_number_n", 10),
        ("gte", "n", json!(19_990.5), "entries_number_n", 10),
        ("lt", "n", json!(10), "entries_number_n", 9),
        ("lte", "n", json!(10), "entries_number_n", 10),
        ("eq", "plain", json!("rare"), "entries_by_content", 4),
        (
            "array_contains",
            "list",
            json!("Rare"),
            "entries_by_content",
            4,
        ),
    ] {
        let (plan, count) = plan(&store, filter(key, operator, value.clone())).await;
        assert!(plan.contains(index), "{operator} {key} {value}:\n{plan}");
        assert_eq!(count, found, "{operator} {key} {value}");
    }
    let rare_tag = Filter {
        tags: Some(Tags::from_normalised(vec!["rare".into()])),
        ..Filter::default()
    };
    let (plan, count) = plan(&store, rare_tag).await;
    assert!(plan.contains("entries_by_content"), "{plan}");
    assert_eq!(count, 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_frequent_is_found_by_reading_newest_first() {
    let Some((_database, store)) = many_entries().await else {
        return;
    };
    let in_thread = Filter {
        thread_id: Some(ThreadId::from_stored("t7".into())),
        ..Filter::default()
    };
    for (filter, indexes) in [
        (Filter::default(), &["entries_by_time"][..]),
        (in_thread, &["entries_by_thread"]),
        (
            filter("status", "eq", json!("open")),
            &["entries_by_time", "entries_text_status"],
        ),
        (filter("plain", "eq", json!("common")), &["entries_by_time"]),
        (
            filter("status", "ne", json!("rare one")),
            &["entries_by_time"],
        ),
        (
            filter("status", "contains", json!("pe")),
            &["entries_by_time", "entries_text_status"],
        ),
        (
            filter("status", "not_in", json!(["rare one"])),
            &["entries_by_time"],
        ),
        (filter("n", "gt", json!(10)), &["entries_by_time"]),
    ] {
        let (plan, found) = plan(&store, filter.clone()).await;
        assert!(
            indexes
                .iter()
                .any(|index| plan.contains(&format!("Index Scan Backward using {index}"))),
            "{filter:?}:\n{plan}"
        );
        assert_eq!(found, 30);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rare_word_is_found_in_the_index_and_a_common_one_is_ranked_up_to_the_cap() {
    let Some((_database, store)) = many_entries().await else {
        return;
    };
    for (word, found, capped) in [("fox", 4, None), ("common", 10, Some(100))] {
        let query = parse(Mode::Match, word, &Analyzer::new(Language::English))
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
        let page = store
            .fts_search(
                &OwnerId::default(),
                search,
                Filter::default(),
                page,
                EXPLAINED,
                Read::default(),
            )
            .await
            .expect("it works");
        assert_eq!(
            (page.entries.len(), page.capped_at),
            (found, capped),
            "{word}"
        );
        let plan = page.plan.join("\n");
        let index = if capped.is_none() {
            "entries_by_content"
        } else {
            "entries_by_time"
        };
        assert!(plan.contains(index), "{word}:\n{plan}");
        if capped.is_some() {
            assert!(
                page.entries.iter().all(|found| found.entry.id > 19_900),
                "the newest are ranked"
            );
        }
    }
}

/// Runs a search more often than PostgreSQL plans a prepared statement for its actual values, with values that need
/// different plans.
#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_search_returns_the_same_as_the_first_one() {
    const SHORT: RowSelection = RowSelection {
        explain: false,
        ..EXPLAINED
    };
    let Some((database, store)) = many_entries().await else {
        return;
    };
    let (owner, page) = (
        OwnerId::default(),
        Page {
            limit: 30,
            offset: 0,
        },
    );
    for round in 0..12 {
        if round == 8 {
            database
                .connect()
                .await
                .batch_execute("ANALYZE context.entries")
                .await
                .expect("cached plans are discarded");
        }
        for (status, count) in [("rare one", 4), ("open", 30), ("nothing", 0)] {
            let found = store
                .search_contexts(
                    &owner,
                    filter("status", "eq", json!(status)),
                    page,
                    SHORT,
                    Read::default(),
                )
                .await;
            let found = found.expect("the search works").entries;
            assert_eq!(found.len(), count, "{status}, round {round}");
            assert!(
                found
                    .iter()
                    .all(|entry| json!(entry.metadata)["status"] == status),
                "{status}, round {round}"
            );
            assert!(found.is_sorted_by_key(|entry| std::cmp::Reverse(entry.id)));
        }
        for (word, count, capped) in [
            ("fox", 4, None),
            ("common", 30, Some(100)),
            ("nothing", 0, None),
        ] {
            let query = parse(Mode::Match, word, &Analyzer::new(Language::English))
                .expect("a query")
                .expect("a word");
            let search = FtsSearch {
                query,
                ranking_cap: 100,
                context_weight: 0.0,
            };
            let found = store
                .fts_search(
                    &owner,
                    search,
                    Filter::default(),
                    page,
                    SHORT,
                    Read::default(),
                )
                .await
                .expect("it works");
            assert_eq!(
                (found.entries.len(), found.capped_at),
                (count, capped),
                "{word}, round {round}"
            );
        }
    }
}

/// The table has no index by time.
#[tokio::test(flavor = "multi_thread")]
async fn old_lines_of_the_audit_log_are_found_by_their_key() {
    let Some(database) = database().await else {
        return;
    };
    let statements: Vec<String> = include_str!("raw_sql.txt")
        .lines()
        .filter(|line| line.contains("FROM context.{table} AS l WHERE l.owner_id"))
        .map(|line| {
            line.replace("{table}", "audited_changes")
                .replace("{order}", "revision")
                .replace("owner_id = ?", "owner_id = 'o'")
                .replace('?', "0")
        })
        .collect();
    assert_eq!(statements.len(), 2);
    let client = database.connect().await;
    client
        .batch_execute("SET enable_seqscan = off")
        .await
        .expect("set");
    for statement in statements {
        let plan = client.query(&format!("EXPLAIN {statement}"), &[]).await;
        let plan: Vec<String> = plan
            .expect("explained")
            .iter()
            .map(|row| row.get(0))
            .collect();
        let plan = plan.join("\n");
        assert!(!plan.contains("Seq Scan on audited_changes"), "{plan}");
        // Without sequential scans, the server would rather read a whole index than the table.
        assert!(
            plan.lines()
                .any(|line| line.contains("Index Cond:") && line.contains("owner_id = ")),
            "{plan}"
        );
    }
}
