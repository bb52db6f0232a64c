//! Searches that exceed their time limit, and searches whose caller leaves.

use std::time::Duration;

use context_model::{Comparison, Condition, Filter, Metadata, MetadataPath, Scalar};
use context_store::{OwnerId, Page, SearchPage, Store as _, StoreError, call};
use context_store_sqlite::{Config, SqliteStore};
use serde_json::json;

use super::arrange::{SELECTION, entry, read, store_batch};

const PAGE: Page = Page {
    limit: 10,
    offset: 0,
};

/// A store whose entries have long arrays as labels, with a 1 at the end.
async fn store(directory: &tempfile::TempDir) -> SqliteStore {
    let mut config = Config::new(directory.path().join("contexts.db"));
    config.readers = 2;
    let store = SqliteStore::open(config).expect("it opens");
    let mut labels = vec![0; 100_000];
    labels.push(1);
    let serde_json::Value::Object(metadata) = json!({"labels": labels}) else {
        panic!("an object")
    };
    let with_labels = |i| context_model::NewEntry {
        metadata: Some(Metadata::from_stored(metadata.clone())),
        ..entry(&format!("entry {i}"))
    };
    store_batch(&store, (0..10).map(with_labels)).await;
    store
}

/// A search that scans all arrays 300 times: 300 million elements, which take minutes.
async fn endless(store: &SqliteStore, owner: &OwnerId) -> Result<SearchPage, StoreError> {
    let comparison = Comparison::ArrayContains {
        value: Scalar::Int(1),
        case_sensitive: false,
    };
    let condition = Condition {
        path: MetadataPath::parse("labels").expect("a path"),
        comparison,
    };
    let filter = Filter {
        conditions: vec![condition; 300],
        ..Filter::default()
    };
    store
        .search_contexts(owner, filter, PAGE, SELECTION, read())
        .await
}

/// A short search in the same lane.
async fn short(store: &SqliteStore, owner: &OwnerId) -> SearchPage {
    let condition = Condition {
        path: MetadataPath::parse("labels").expect("a path"),
        comparison: Comparison::NotExists,
    };
    let filter = Filter {
        conditions: vec![condition],
        ..Filter::default()
    };
    store
        .search_contexts(owner, filter, PAGE, SELECTION, read())
        .await
        .expect("it works")
}

#[tokio::test(flavor = "multi_thread")]
async fn searches_whose_callers_leave_give_their_threads_back_and_stop_no_other_search() {
    let directory = tempfile::tempdir().expect("a directory");
    let store = store(&directory).await;
    let (owner, other) = (OwnerId::default(), OwnerId::new("other"));
    for _ in 0..5 {
        let leaving = futures::future::join_all((0..8).map(|_| endless(&store, &owner)));
        let left = tokio::time::timeout(Duration::from_millis(50), leaving).await;
        assert!(left.is_err(), "they take longer");
        let served = tokio::time::timeout(Duration::from_secs(20), short(&store, &other)).await;
        assert!(served.expect("the threads are free").entries.is_empty());
        short(&store, &owner).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_search_at_its_call_s_deadline_says_what_to_narrow() {
    let directory = tempfile::tempdir().expect("a directory");
    let store = store(&directory).await;
    let owner = OwnerId::default();
    let error = call::within(Duration::from_millis(200), None, endless(&store, &owner))
        .await
        .expect_err("it takes longer");
    let error = error.into_error("items");
    assert_eq!(error.reason.as_str(), "DEADLINE_EXCEEDED");
    assert!(
        error
            .message
            .contains("no index serves the metadata filter labels (array_contains)"),
        "{}",
        error.message
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_owner_that_fills_the_queue_of_searches_lets_another_one_in_between() {
    let directory = tempfile::tempdir().expect("a directory");
    let store = store(&directory).await;
    let (many, one) = (OwnerId::default(), OwnerId::new("one"));
    let limited = async |limit: u64| {
        call::within(Duration::from_millis(limit), None, endless(&store, &many)).await
    };
    // Two of them run until their deadline, and 200 are queued, which together would take hours.
    let first = futures::future::join(limited(500), limited(500));
    let waiting = futures::future::join_all((0..200).map(|_| limited(3_600_000)));
    let served = tokio::time::timeout(Duration::from_secs(60), async {
        let mut waiting = std::pin::pin!(futures::future::join(first, waiting));
        tokio::select! {
            biased;
            _ = &mut waiting => panic!("they take hours"),
            served = short(&store, &one) => served,
        }
    });
    served
        .await
        .expect("another owner is next when a thread is free");
}
