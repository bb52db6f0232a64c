//! Filters on a few entries. A property test compares both databases with `oracle::matches` for random filters.

use context_model::{
    Comparison, Condition, ContentType, Filter, MetadataPath, Scalar, Source, ThreadId, ThreadSet,
};
use context_store::Store;
use serde_json::json;

use crate::arrange::*;
use crate::suite::behaviour;

async fn found(store: &dyn Store, filter: Filter) -> Vec<String> {
    search(store, filter)
        .await
        .into_iter()
        .map(|entry| entry.text)
        .collect()
}

fn thread(name: &str) -> Option<ThreadId> {
    Some(ThreadId::from_stored(name.to_owned()))
}

/// The parts are thread, the caller's threads, source, type, tags, metadata and dates.
async fn every_part_of_a_filter_must_hold(store: &dyn Store) {
    entry("a")
        .tags(&["x"])
        .metadata(json!({"k": 1}))
        .store(store, 0)
        .await;
    entry("b")
        .agent()
        .tags(&["x"])
        .metadata(json!({"k": 1}))
        .images(&[b"1"])
        .store(store, 1)
        .await;
    entry("c")
        .agent()
        .thread("u")
        .tags(&["x"])
        .metadata(json!({"k": 2}))
        .images(&[b"1"])
        .store(store, 2)
        .await;
    assert_eq!(
        found(
            store,
            Filter {
                thread_id: thread("t"),
                ..Filter::default()
            }
        )
        .await,
        ["b", "a"]
    );
    assert_eq!(
        found(
            store,
            Filter {
                source: Some(Source::Agent),
                ..Filter::default()
            }
        )
        .await,
        ["c", "b"]
    );
    assert_eq!(
        found(
            store,
            Filter {
                content_type: Some(ContentType::Text),
                ..Filter::default()
            }
        )
        .await,
        ["a"]
    );
    let equal = Condition {
        path: MetadataPath::parse("k").expect("a path"),
        comparison: Comparison::Eq {
            value: Scalar::Int(1),
            case_sensitive: true,
        },
    };
    let within = ThreadSet::from_shown(&["t*".to_owned(), "v".to_owned()]);
    assert_eq!(
        found(
            store,
            Filter {
                within: within.clone(),
                ..Filter::default()
            }
        )
        .await,
        ["b", "a"]
    );
    assert_eq!(
        found(
            store,
            Filter {
                within: within.clone(),
                thread_id: thread("u"),
                ..Filter::default()
            }
        )
        .await
        .len(),
        0
    );
    let unequal = Condition {
        path: MetadataPath::parse("k").expect("a path"),
        comparison: Comparison::Eq {
            value: Scalar::Int(2),
            case_sensitive: true,
        },
    };
    let all_parts = Filter {
        within,
        thread_id: thread("t"),
        source: Some(Source::Agent),
        tags: Some(tags(&["x"])),
        content_type: Some(ContentType::Multimodal),
        conditions: vec![equal],
        created_from: Some(at(0)),
        created_to: Some(at(5)),
    };
    assert_eq!(found(store, all_parts.clone()).await, ["b"]);
    for one_part_differs in [
        Filter {
            within: ThreadSet::from_shown(&["u".to_owned()]),
            ..all_parts.clone()
        },
        Filter {
            thread_id: thread("u"),
            ..all_parts.clone()
        },
        Filter {
            source: Some(Source::User),
            ..all_parts.clone()
        },
        Filter {
            tags: Some(tags(&["y"])),
            ..all_parts.clone()
        },
        Filter {
            content_type: Some(ContentType::Text),
            ..all_parts.clone()
        },
        Filter {
            conditions: vec![unequal],
            ..all_parts.clone()
        },
        Filter {
            created_from: Some(at(2)),
            ..all_parts.clone()
        },
        Filter {
            created_to: Some(at(0)),
            ..all_parts
        },
    ] {
        assert!(
            found(store, one_part_differs.clone()).await.is_empty(),
            "{one_part_differs:?}"
        );
    }
}
behaviour!(every_part_of_a_filter_must_hold(store));

/// Tags are lower-cased by Unicode rules and compared as a whole.
async fn a_tag_filter_matches_any_of_its_tags_in_any_script(store: &dyn Store) {
    entry("a").tags(&["ÄRGER", "x"]).store(store, 0).await;
    entry("b").tags(&["重要"]).store(store, 1).await;
    entry("c").tags(&["xy", "важно"]).store(store, 2).await;
    entry("d").store(store, 3).await;
    for (given, expected) in [
        (&["ärger"][..], &["a"][..]),
        (&["重要", "ВАЖНО"], &["c", "b"]),
        (&["x"], &["a"]),
        (&["%"], &[]),
        (&["nowhere", "xy"], &["c"]),
    ] {
        assert_eq!(
            found(
                store,
                Filter {
                    tags: Some(tags(given)),
                    ..Filter::default()
                }
            )
            .await,
            expected,
            "{given:?}"
        );
    }
}
behaviour!(a_tag_filter_matches_any_of_its_tags_in_any_script(store));

/// Both ends are inclusive to the microsecond.
async fn dates_are_inclusive(store: &dyn Store) {
    for seconds in 0..4 {
        entry(&seconds.to_string()).store(store, seconds).await;
    }
    let within = |from, to| Filter {
        created_from: from,
        created_to: to,
        ..Filter::default()
    };
    assert_eq!(
        found(store, within(Some(at(1)), Some(at(2)))).await,
        ["2", "1"]
    );
    let after = context_model::Timestamp(at(1).micros() + 1);
    assert_eq!(found(store, within(Some(after), None)).await, ["3", "2"]);
    assert_eq!(found(store, within(None, Some(after))).await, ["1", "0"]);
    let before = context_model::Timestamp(at(1).micros() - 1);
    assert_eq!(found(store, within(None, Some(before))).await, ["0"]);
}
behaviour!(dates_are_inclusive(store));

/// The page is also empty for an owner that has never written.
async fn a_filter_that_matches_nothing_gives_an_empty_page(store: &dyn Store) {
    assert!(all(store).await.is_empty());
    entry("x").store(store, 0).await;
    assert!(
        found(
            store,
            Filter {
                thread_id: thread("nowhere"),
                ..Filter::default()
            }
        )
        .await
        .is_empty()
    );
}
behaviour!(a_filter_that_matches_nothing_gives_an_empty_page(store));

/// 5 equals 5.0 but not "5". Strings ignore case when the condition says so.
async fn metadata_conditions_are_typed(store: &dyn Store) {
    entry("int").metadata(json!({"v": 5})).store(store, 0).await;
    entry("float")
        .metadata(json!({"v": 5.0}))
        .store(store, 1)
        .await;
    entry("text")
        .metadata(json!({"v": "5"}))
        .store(store, 2)
        .await;
    entry("word")
        .metadata(json!({"v": "GRÜN"}))
        .store(store, 3)
        .await;
    let eq = |value, case_sensitive| Filter {
        conditions: vec![Condition {
            path: MetadataPath::parse("v").expect("a path"),
            comparison: Comparison::Eq {
                value,
                case_sensitive,
            },
        }],
        ..Filter::default()
    };
    assert_eq!(
        found(store, eq(Scalar::Int(5), true)).await,
        ["float", "int"]
    );
    assert_eq!(
        found(store, eq(Scalar::Text("5".to_owned()), true)).await,
        ["text"]
    );
    assert_eq!(
        found(store, eq(Scalar::Text("grün".to_owned()), false)).await,
        ["word"]
    );
    assert!(
        found(store, eq(Scalar::Text("grün".to_owned()), true))
            .await
            .is_empty()
    );
}
behaviour!(metadata_conditions_are_typed(store));
