//! Checks which index serves which operator, and that a search that reads newest first neither sorts nor scans the
//! whole table.

use context_model::{
    ContentType, Filter, FilterInput, MetadataFilter, Tags, ThreadId, Timestamp, Violations,
};
use context_store::Page;
use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel::sqlite::SqliteConnection;
use serde_json::{Value, json};

use super::store::{OWNER, entry, insert, open, path, row_id};
use crate::filter::select::probes;
use crate::filter::{is_direct, select};

const INDEX: &str = "entries_by_metadata:status";
const PAGE: Page = Page {
    limit: 30,
    offset: 0,
};

/// A store with this many entries. Their status alternates between `open` and `done`, except that the first entry has
/// `Rare`. Every third entry has `third` = `yes`.
fn store(entries: i64) -> SqliteConnection {
    let mut conn = open(&[path("status"), path("n"), path("third")]);
    conn.transaction(|conn| {
        for id in 1..=entries {
            let status = if id == 1 { "Rare" } else { ["open", "done"][usize::from(id % 2 == 0)] };
            let mut entry = entry(
                id,
                json!({"status": status, "n": id, "plain": status, "third": if id % 3 == 0 { "yes" } else { "no" }})
                    .as_object()
                    .unwrap()
                    .clone(),
            );
            entry.thread_id = format!("t{}", id % 2);
            entry.content_type = if id % 5 == 0 { ContentType::Multimodal } else { ContentType::Text };
            entry.tags = vec![status.to_lowercase()];
            insert(conn, OWNER, &entry);
        }
        QueryResult::Ok(())
    })
    .unwrap();
    conn
}

#[test]
fn only_a_thread_and_dates_are_read_from_an_index_without_checking_rows() {
    let parse = |input| {
        let mut violations = Violations::default();
        let filter = Filter::parse(input, &mut violations);
        violations.finish(filter).unwrap()
    };
    let input = FilterInput {
        thread_id: Some("t".into()),
        start_date: Some("2026-01-01".into()),
        ..FilterInput::default()
    };
    assert!(is_direct(&Filter::default()) && is_direct(&parse(input)));
    let source = FilterInput {
        source: Some("agent".into()),
        ..FilterInput::default()
    };
    let content_type = FilterInput {
        content_type: Some("text".into()),
        ..FilterInput::default()
    };
    for input in [source, content_type] {
        assert!(!is_direct(&parse(input.clone())), "{input:?}");
    }
    assert!(!is_direct(&filter("n", "eq", json!(1), true)));
}

fn filter(key: &str, operator: &str, value: Value, case_sensitive: bool) -> Filter {
    let condition = MetadataFilter {
        key: key.into(),
        operator: Some(operator.into()),
        value: (!value.is_null()).then_some(value),
        case_sensitive: Some(case_sensitive),
    };
    let mut violations = Violations::default();
    let filter = Filter::parse(
        FilterInput {
            metadata_filters: Some(vec![condition]),
            ..FilterInput::default()
        },
        &mut violations,
    );
    violations.finish(filter).unwrap()
}

/// The query plan of a search, and the number of rows that it finds.
fn plan(conn: &mut SqliteConnection, filter: &Filter, entries: i64) -> (String, usize) {
    let selected = select(
        conn,
        filter,
        OWNER,
        PAGE,
        &[path("status"), path("n"), path("third")],
        entries,
    )
    .unwrap();
    (
        selected.statement.explain(conn).unwrap().join(" | "),
        selected.row_ids.len(),
    )
}

/// Asserts that a search neither sorts nor scans all entries.
fn assert_reads_in_order(plan: &str) {
    assert!(!plan.contains("TEMP B-TREE FOR ORDER BY"), "{plan}");
    assert!(!plan.contains("SCAN entries"), "{plan}");
}

#[test]
fn every_operator_that_can_use_the_index_does() {
    let mut conn = store(10);
    for (operator, value, key) in [
        ("eq", json!("Open"), "=?"),
        ("in", json!(["Open", "done"]), "=?"),
        ("gt", json!(5), ">? AND <expr><?"),
        ("gte", json!(5), ">? AND <expr><?"),
        ("lt", json!(5), "<?"),
        ("lte", json!(5), "<?"),
        ("gt", json!("2025-01-01T10:00:00Z"), ">?"),
        ("lte", json!("2025-01-01T10:00:00Z"), ">? AND <expr><?"),
        ("starts_with", json!("Op"), ">? AND <expr><?"),
        ("contains", json!("pe"), ">?"),
        ("ends_with", json!("en"), ">?"),
        ("exists", Value::Null, ">?"),
        ("is_not_null", Value::Null, ">?"),
        ("not_exists", Value::Null, "=?"),
        ("is_null", Value::Null, "=?"),
    ] {
        for case_sensitive in [false, true] {
            let probes = probes(
                &filter("status", operator, value.clone(), case_sensitive),
                OWNER,
                &[path("status")],
            );
            let [probe] = &probes[..] else {
                panic!("{operator} {value} has one probe")
            };
            let plan = probe.statement.explain(&mut conn).unwrap().join(" | ");
            let expected = format!("INDEX {INDEX} (owner=? AND <expr>{key}");
            assert!(plan.contains(&expected), "{operator} {value}: {plan}");
        }
    }
    for (operator, value) in [
        ("ne", json!("open")),
        ("not_in", json!(["open"])),
        ("array_contains", json!("open")),
    ] {
        assert!(
            probes(
                &filter("status", operator, value, false),
                OWNER,
                &[path("status")]
            )
            .is_empty()
        );
    }
}

#[test]
fn one_value_is_read_newest_first_from_its_index() {
    let mut conn = store(2000);
    for (filter, index, expected) in [
        (filter("status", "eq", json!("OPEN"), false), INDEX, 30),
        (filter("status", "eq", json!("open"), true), INDEX, 30),
        (filter("status", "in", json!(["open"]), false), INDEX, 30),
        (
            Filter {
                created_from: Some(Timestamp(5_000)),
                ..filter("status", "eq", json!("open"), false)
            },
            INDEX,
            30,
        ),
        (
            Filter {
                thread_id: Some(ThreadId::from_stored("t1".into())),
                ..Filter::default()
            },
            "entries_by_thread",
            30,
        ),
        (
            Filter {
                content_type: Some(ContentType::Multimodal),
                ..Filter::default()
            },
            "entries_with_images",
            30,
        ),
        (Filter::default(), "entries_by_time", 30),
        (
            // The ten oldest entries.
            Filter {
                created_to: Some(Timestamp(10_500)),
                ..Filter::default()
            },
            "entries_by_time",
            10,
        ),
        (
            Filter {
                source: Some(context_model::Source::User),
                ..Filter::default()
            },
            "entries_by_time",
            30,
        ),
    ] {
        let (plan, found) = plan(&mut conn, &filter, 2000);
        assert!(plan.contains(index), "{filter:?}: {plan}");
        assert_reads_in_order(&plan);
        assert_eq!(found, expected, "{filter:?}");
    }
}

#[test]
fn of_two_frequent_values_the_rarer_one_is_read() {
    let mut conn = store(4000);
    let both = |first: Filter, second: Filter| Filter {
        conditions: [first.conditions, second.conditions].concat(),
        ..Filter::default()
    };
    let (frequent, rarer) = (
        filter("status", "eq", json!("open"), false),
        filter("third", "eq", json!("yes"), false),
    );
    for (first, second) in [(frequent.clone(), rarer.clone()), (rarer, frequent)] {
        let (plan, found) = plan(&mut conn, &both(first, second), 4000);
        assert!(plan.contains("entries_by_metadata:third"), "{plan}");
        assert_reads_in_order(&plan);
        assert_eq!(found, 30);
    }
}

#[test]
fn a_frequent_value_is_found_by_reading_newest_first() {
    let mut conn = store(2000);
    for filter in [
        filter("status", "in", json!(["open", "done"]), false),
        filter("status", "starts_with", json!("o"), false),
        filter("status", "exists", Value::Null, false),
        filter("n", "gt", json!(10), false),
        filter("status", "ne", json!("done"), false),
        filter("status", "contains", json!("e"), false),
        filter("plain", "eq", json!("open"), false),
        Filter {
            tags: Some(Tags::from_normalised(vec!["open".into()])),
            ..Filter::default()
        },
    ] {
        let (plan, found) = plan(&mut conn, &filter, 2000);
        assert!(plan.contains("entries_by_time"), "{filter:?}: {plan}");
        assert_reads_in_order(&plan);
        assert_eq!(found, 30);
    }
}

#[test]
fn a_rare_value_is_looked_up() {
    let mut conn = store(2000);
    for filter in [
        filter("status", "in", json!(["rare", "missing"]), false),
        filter("status", "starts_with", json!("RA"), false),
        filter("status", "contains", json!("AR"), false),
        filter("status", "ends_with", json!("are"), true),
        filter("n", "lt", json!(2), false),
        Filter {
            tags: Some(Tags::from_normalised(vec!["rare".into()])),
            ..Filter::default()
        },
        Filter {
            tags: Some(Tags::from_normalised(vec!["rare".into()])),
            ..filter("status", "eq", json!("rare"), false)
        },
    ] {
        let (plan, found) = plan(&mut conn, &filter, 2000);
        assert!(
            plan.contains("SEARCH entries USING INTEGER PRIMARY KEY (rowid=?)"),
            "{filter:?}: {plan}"
        );
        assert_eq!(found, 1, "{filter:?}");
    }
}

#[test]
fn statistics_of_the_planner_change_no_plan() {
    let mut conn = store(2000);
    conn.batch_execute("ANALYZE").unwrap();
    let (by_value, _) = plan(
        &mut conn,
        &filter("status", "eq", json!("open"), false),
        2000,
    );
    assert!(by_value.contains(INDEX), "{by_value}");
    assert_reads_in_order(&by_value);
    let (by_time, _) = plan(
        &mut conn,
        &filter("status", "ne", json!("open"), false),
        2000,
    );
    assert!(by_time.contains("entries_by_time"), "{by_time}");
    assert_reads_in_order(&by_time);
}

#[test]
fn fields_that_differ_by_case_have_an_index_each() {
    let mut conn = open(&[path("status"), path("Status"), path("a.b-c")]);
    for field in ["status", "Status", "a.b-c"] {
        let probes = probes(
            &filter(field, "eq", json!("x"), false),
            OWNER,
            &[path(field)],
        );
        let plan = probes[0].statement.explain(&mut conn).unwrap().join(" | ");
        assert!(plan.contains("(owner=? AND <expr>=?)"), "{plan}");
    }
}

#[test]
fn the_largest_filter_runs() {
    let mut conn = store(50);
    let values: Vec<Value> = (0..100).map(|i| json!(format!("value {i}"))).collect();
    let field = vec!["a-segment-name1"; 32].join(".");
    let mut large = filter(&field, "not_in", json!(values), true);
    large.conditions = vec![large.conditions[0].clone(); 100];
    let mut listed = filter("status", "in", json!(values), true);
    listed.conditions = vec![listed.conditions[0].clone(); 100];
    for filter in [large, listed] {
        assert_eq!(plan(&mut conn, &filter, 50).1, 0);
    }
    // Only the first entry satisfies these.
    let mut with_rare = values.clone();
    with_rare[99] = json!("Rare");
    let mut without_others = values;
    without_others[98] = json!("open");
    without_others[99] = json!("done");
    for (operator, values) in [("in", with_rare), ("not_in", without_others)] {
        let mut filter = filter("status", operator, json!(values), true);
        filter.conditions = vec![filter.conditions[0].clone(); 100];
        let selected = select(&mut conn, &filter, OWNER, PAGE, &[path("status")], 50).unwrap();
        assert_eq!(selected.row_ids, [row_id(OWNER, 1)], "{operator}");
    }
}

#[test]
fn numbers_come_out_of_json_exactly_as_they_went_in() {
    #[derive(QueryableByName)]
    struct Number {
        #[diesel(sql_type = diesel::sql_types::Double)]
        value: f64,
    }
    let mut random = context_test_support::Random::new(7);
    let mut numbers: Vec<f64> = Vec::new();
    while numbers.len() < 50_000 {
        let bits = random.next();
        // Half of the numbers have an ordinary magnitude.
        let number = if bits.is_multiple_of(2) {
            f64::from_bits(bits)
        } else {
            (bits >> 20) as f64 / 1e6
        };
        if number.is_finite() {
            numbers.push(number);
        }
    }
    let mut statement = crate::sql::Fragment::new("SELECT value FROM json_each(");
    statement
        .bind(crate::sql::Bind::Text(json!(numbers).to_string()))
        .push(")");
    let read: Vec<Number> = crate::sql::query(&mut conn_without_tables(), &statement).unwrap();
    for (number, read) in numbers.iter().zip(&read) {
        assert_eq!(number.to_bits(), read.value.to_bits(), "{number:e}");
    }
    assert_eq!(numbers.len(), read.len());
}

fn conn_without_tables() -> SqliteConnection {
    SqliteConnection::establish(":memory:").unwrap()
}
