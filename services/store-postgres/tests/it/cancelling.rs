//! Reads that exceed their time limit, and reads whose caller stops waiting.

use std::time::Duration;

use context_model::{Comparison, Condition, Filter, MetadataPath, Scalar};
use context_store::{
    EmbeddingModel, Memory, ModelUse, OwnerId, Page, Read, RowSelection, SearchPage, Store as _,
    StoreError, VectorStore as _, call,
};
use context_store_postgres::{Config, PostgresStore};
use context_test_postgres::{Client, TestDatabase};
use context_test_support::until;

use super::arrange::{config, database};
use super::locks::until_blocked;
use super::proxy::Proxy;

const PAGE: Page = Page {
    limit: 10,
    offset: 0,
};

fn filter() -> Filter {
    let condition = |path: &str, comparison| Condition {
        path: MetadataPath::parse(path).expect("a path"),
        comparison,
    };
    let text = |text: &str| Scalar::Text(text.to_owned());
    let conditions = vec![
        condition(
            "labels",
            Comparison::ArrayContains {
                value: text("x"),
                case_sensitive: false,
            },
        ),
        condition(
            "notes.first",
            Comparison::Contains {
                text: "y".to_owned(),
                case_sensitive: false,
            },
        ),
        condition(
            "more",
            Comparison::Ne {
                value: text("z"),
                case_sensitive: false,
            },
        ),
    ];
    Filter {
        conditions,
        ..Filter::default()
    }
}

/// Longer than a test waits: only a cancel request ends a blocked statement.
const NO_TIMEOUT: Duration = Duration::from_secs(600);

async fn open(database: &TestDatabase, change: impl FnOnce(&mut Config)) -> PostgresStore {
    let mut config = config(database.url());
    change(&mut config);
    PostgresStore::open(config).await.expect("it opens")
}

async fn search(store: &PostgresStore, owner: &str) -> Result<SearchPage, StoreError> {
    let selection = RowSelection {
        images: false,
        text_chars: None,
        explain: false,
        max_bytes: u64::MAX,
        memory: Memory::UNCOUNTED,
    };
    store
        .search_contexts(
            &OwnerId::new(owner),
            filter(),
            PAGE,
            selection,
            Read::default(),
        )
        .await
}

/// Blocks all reads of the entries until the connection is closed.
async fn lock(database: &TestDatabase) -> Client {
    let client = database.connect().await;
    client
        .batch_execute("BEGIN; LOCK TABLE context.entries IN ACCESS EXCLUSIVE MODE")
        .await
        .expect("locked");
    client
}

fn assert_names_what_to_narrow(result: Result<SearchPage, StoreError>) {
    let Err(error @ StoreError::TooSlow { .. }) = result else {
        panic!("{result:?}")
    };
    let error = error.into_error("items");
    assert_eq!(error.reason.as_str(), "DEADLINE_EXCEEDED");
    assert!(
        error
            .message
            .contains("no index serves the metadata filter notes.first (contains)"),
        "{}",
        error.message
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_over_its_statement_s_time_says_what_to_narrow() {
    let Some(database) = database().await else {
        return;
    };
    let store = open(&database, |config| {
        config.statement_timeout = Duration::from_millis(500)
    })
    .await;
    let _lock = lock(&database).await;
    assert_names_what_to_narrow(search(&store, "a").await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_search_over_its_statement_s_time_uses_no_cached_plan_the_next_time() {
    let Some(database) = database().await else {
        return;
    };
    let proxy = Proxy::start(database.url()).await;
    let config = Config {
        pool_size: 1,
        statement_timeout: Duration::from_millis(500),
        ..config(&proxy.url(database.url()))
    };
    let store = PostgresStore::open(config).await.expect("it opens");
    // On a slow machine one of these searches may be slow, so that its plan is not cached for a while.
    until("its plan is cached", async || {
        let before = proxy.parsed();
        search(&store, "a").await.expect("nothing is locked");
        proxy.parsed() == before
    })
    .await;
    let connections = proxy.connections();
    let lock = lock(&database).await;
    assert_names_what_to_narrow(search(&store, "a").await);
    lock.batch_execute("ROLLBACK").await.expect("unlocked");
    let before = proxy.parsed();
    search(&store, "a").await.expect("nothing is locked");
    assert_eq!(proxy.parsed() - before, 1, "it is planned again");
    assert_eq!(
        proxy.connections(),
        connections,
        "a new connection would have no cached plan anyway"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_at_its_call_s_deadline_says_what_to_narrow_and_ends_on_the_server() {
    let Some(database) = database().await else {
        return;
    };
    let store = open(&database, |config| config.statement_timeout = NO_TIMEOUT).await;
    let _lock = lock(&database).await;
    assert_names_what_to_narrow(
        call::within(Duration::from_millis(300), None, search(&store, "a")).await,
    );
    until_blocked(&database.connect().await, 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_whose_caller_leaves_ends_on_the_server_and_the_next_one_is_not_cancelled() {
    let Some(database) = database().await else {
        return;
    };
    let store = open(&database, |config| {
        config.pool_size = 1;
        config.statement_timeout = NO_TIMEOUT;
    })
    .await;
    let watching = database.connect().await;
    for _ in 0..20 {
        let lock = lock(&database).await;
        tokio::select! {
            result = search(&store, "a") => panic!("the entries are locked: {result:?}"),
            () = until_blocked(&watching, 1) => {}
        }
        until_blocked(&watching, 0).await;
        drop(lock);
        search(&store, "a")
            .await
            .expect("a cancel that comes late hits no other read");
    }
}

/// Anyone may ask for the metrics, which count the waiting entries.
#[tokio::test(flavor = "multi_thread")]
async fn a_count_of_waiting_entries_whose_caller_leaves_ends_on_the_server() {
    let Some(database) = database().await else {
        return;
    };
    let store = open(&database, |config| config.statement_timeout = NO_TIMEOUT).await;
    let model = EmbeddingModel {
        identity: "test@1".to_owned(),
        dimensions: 3,
    };
    let used = store
        .use_model(&model)
        .await
        .expect("the model is selected");
    assert_eq!(used, ModelUse::Ready);
    let (watching, locking) = (database.connect().await, database.connect().await);
    let lock = "BEGIN; LOCK TABLE context.chunks IN ACCESS EXCLUSIVE MODE";
    locking.batch_execute(lock).await.expect("locked");
    tokio::select! {
        count = store.unembedded_entries(&model) => panic!("the vectors are locked: {count:?}"),
        () = until_blocked(&watching, 1) => {}
    }
    until_blocked(&watching, 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_owner_that_fills_the_queue_lets_another_one_in_between() {
    let Some(database) = database().await else {
        return;
    };
    let store = open(&database, |config| config.pool_size = 1).await;
    let (watching, lock) = (database.connect().await, lock(&database).await);
    let order = std::sync::Mutex::new(Vec::new());
    let note = async |owner: &'static str| {
        search(&store, owner).await.expect("read");
        order.lock().expect("no one panics").push(owner);
    };
    let many = futures::future::join_all((0..20).map(|_| note("many")));
    let freed = async {
        until_blocked(&watching, 1).await;
        drop(lock);
    };
    futures::join!(many, note("one"), freed);
    let position = order
        .into_inner()
        .expect("no one panics")
        .iter()
        .position(|owner| *owner == "one");
    assert!(
        position.is_some_and(|position| position <= 2),
        "one waited for all of many: {position:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_written_through_one_store_has_its_revision_through_another_at_once() {
    let Some(database) = database().await else {
        return;
    };
    let (writer, reader) = (open(&database, |_| ()).await, open(&database, |_| ()).await);
    for i in 0..100 {
        let entry = context_model::NewEntry {
            thread_id: context_model::ThreadId::from_stored("t".to_owned()),
            source: context_model::Source::User,
            text: format!("entry {i}"),
            images: None,
            metadata: None,
            tags: None,
        };
        let options = context_store::WriteOptions {
            now: context_model::Timestamp(i),
            idempotency: None,
            key_id: None,
            embeddings: Vec::new(),
        };
        let written = writer
            .store_contexts(&OwnerId::default(), vec![entry], true, options)
            .await
            .expect("stored");
        // An unknown revision would be rejected at once, because a primary does not wait.
        let read = Read {
            min_revision: Some(written.revision),
            ..Read::default()
        };
        reader
            .list_threads(&OwnerId::default(), None, None, PAGE, read)
            .await
            .expect("seen");
    }
}
