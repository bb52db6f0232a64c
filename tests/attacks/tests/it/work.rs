//! Expensive searches whose caller leaves.

use std::time::Duration;

use context_attacks::{Target, client};
use context_test_postgres::{Client, TestDatabase};
use context_test_support::{Deadline, until};
use serde_json::{Value, json};
use tokio::task::JoinSet;

/// Maximum time for anything that should be quick.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Stores entries for the attacker. Their labels are long arrays with a 1 at the end.
async fn with_long_arrays(target: &Target) {
    let mut labels = vec![0; 150_000];
    labels.push(1);
    for i in 0..20 {
        let entry = json!({"thread_id": "t", "source": "user", "text": format!("entry {i}"), "metadata": {"labels": labels}});
        let reply = target.post("/v1/contexts", &target.write_key, &entry).await;
        assert_eq!(reply.status(), 201);
    }
}

/// A search that scans all arrays a hundred times.
fn endless() -> Value {
    json!({"metadata_filters": vec![json!({"key": "labels", "operator": "array_contains", "value": 1}); 100]})
}

/// Sends a search and disconnects after this time.
async fn search(
    target: &Target,
    key: &str,
    body: &Value,
    timeout: Duration,
) -> Result<(u16, Value), reqwest::Error> {
    let client = client(timeout);
    let url = format!("http://{}/v1/contexts/search", target.address());
    let reply = client.post(url).bearer_auth(key).json(body).send().await?;
    Ok((reply.status().as_u16(), reply.json().await?))
}

/// Waits until the bystander's own search, which uses the same resources as the attacker's, succeeds.
async fn assert_bystander_searches(target: &Target) {
    let body = json!({"metadata_filters": [{"key": "labels", "operator": "not_exists"}]});
    let deadline = Deadline::new();
    loop {
        match search(target, &target.bystander_key, &body, TIMEOUT).await {
            Ok((200, found)) => break assert_eq!(found["count"], 1, "{found}"),
            other => {
                let what = || format!("the bystander is not served: {other:?}");
                deadline.pause(what).await;
            }
        }
    }
}

/// Asserts that the error of a read that took too long names this condition.
fn assert_names_what_to_narrow(reply: &Result<(u16, Value), reqwest::Error>, condition: &str) {
    let Ok((status, body)) = reply else {
        panic!("{reply:?}")
    };
    assert_eq!(
        (*status, body["reason"].as_str()),
        (504, Some("DEADLINE_EXCEEDED")),
        "{body}"
    );
    let detail = body["detail"].as_str().unwrap_or_default();
    assert!(
        detail.contains(&format!("no index serves the metadata filter {condition}")),
        "{body}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn searches_of_minutes_end_when_their_callers_leave() {
    let target = Target::start(&[("CONTEXT_REQUEST_TIMEOUT_SECONDS", "3600")]).await;
    with_long_arrays(&target).await;
    let body = endless();
    let leave = || async { search(&target, &target.read_key, &body, Duration::from_secs(1)).await };
    let (a, b, c, d) = tokio::join!(leave(), leave(), leave(), leave());
    for left in [a, b, c, d] {
        assert!(
            left.is_err_and(|error| error.is_timeout()),
            "the searches take longer"
        );
    }
    assert_bystander_searches(&target).await;
    target
        .assert_bystander_is_served("after the searches")
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_search_of_minutes_is_answered_at_its_deadline_with_what_to_narrow() {
    let target = Target::start(&[("CONTEXT_REQUEST_TIMEOUT_SECONDS", "8")]).await;
    with_long_arrays(&target).await;
    let answered = search(&target, &target.read_key, &endless(), TIMEOUT).await;
    assert_names_what_to_narrow(&answered, "labels (array_contains)");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_owner_that_searches_without_end_leaves_another_one_its_turns() {
    let target = Target::start(&[("CONTEXT_REQUEST_TIMEOUT_SECONDS", "5")]).await;
    with_long_arrays(&target).await;
    let mut attack = JoinSet::new();
    for _ in 0..40 {
        let (url, key) = (
            format!("http://{}/v1/contexts/search", target.address()),
            target.read_key.clone(),
        );
        attack.spawn(async move {
            let client = client(TIMEOUT);
            loop {
                let _ = client
                    .post(&url)
                    .bearer_auth(&key)
                    .json(&endless())
                    .send()
                    .await;
            }
        });
    }
    // When this search reaches its deadline, the first searches of the attack have reached theirs.
    let first = search(&target, &target.read_key, &endless(), TIMEOUT).await;
    assert!(first.is_ok_and(|(status, _)| status == 504));
    assert_bystander_searches(&target).await;
    target.assert_bystander_is_served("while it searches").await;
    attack.shutdown().await;
}

/// Blocks all reads of entries until the connection ends.
async fn lock(database: &TestDatabase) -> Client {
    let client = database.connect().await;
    client
        .batch_execute("BEGIN; LOCK TABLE context.entries IN ACCESS EXCLUSIVE MODE")
        .await
        .expect("locked");
    client
}

/// Waits until enough statements wait for the lock.
async fn until_blocked(client: &Client, enough: impl Fn(i64) -> bool) {
    let count = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
    until("the expected number of statements waits", async || {
        let waiting = client.query_one(count, &[]).await;
        enough(waiting.expect("the server responds").get(0))
    })
    .await;
}

async fn on_postgres(database: &TestDatabase, settings: &[(&str, &str)]) -> Target {
    let backend = [
        ("STORAGE_BACKEND", "postgresql"),
        ("POSTGRESQL_CONNECTION_STRING", database.url()),
    ];
    Target::start(&[&backend, settings].concat()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn on_postgresql_reads_end_on_the_server_when_their_callers_leave() {
    let Some(database) = TestDatabase::empty().await else {
        return;
    };
    let target = on_postgres(&database, &[("POSTGRESQL_POOL_SIZE", "4")]).await;
    let (watching, lock) = (database.connect().await, lock(&database).await);
    let body =
        json!({"metadata_filters": [{"key": "notes", "operator": "contains", "value": "x"}]});
    let leave = || async { search(&target, &target.read_key, &body, Duration::from_secs(3)).await };
    let (a, b, c, d, ()) = tokio::join!(
        leave(),
        leave(),
        leave(),
        leave(),
        until_blocked(&watching, |count| count > 0)
    );
    for left in [a, b, c, d] {
        assert!(
            left.is_err_and(|error| error.is_timeout()),
            "the entries are locked"
        );
    }
    until_blocked(&watching, |count| count == 0).await;
    drop(lock);
    target
        .assert_bystander_is_served("after the searches")
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn on_postgresql_a_search_over_its_statement_s_time_is_a_504_and_not_an_outage() {
    let Some(database) = TestDatabase::empty().await else {
        return;
    };
    let target = on_postgres(&database, &[("POSTGRESQL_STATEMENT_TIMEOUT_MS", "1000")]).await;
    let lock = lock(&database).await;
    let body =
        json!({"metadata_filters": [{"key": "notes", "operator": "contains", "value": "x"}]});
    let answered = search(&target, &target.read_key, &body, TIMEOUT).await;
    assert_names_what_to_narrow(&answered, "notes (contains)");
    drop(lock);
    target.assert_bystander_is_served("after the search").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revision_that_no_write_gave_is_refused_at_once_and_holds_no_place() {
    let settings = [("CONTEXT_MAX_CONCURRENT_REQUESTS", "4")];
    let mut targets = vec![Target::start(&settings).await];
    let database = TestDatabase::empty().await;
    if let Some(database) = &database {
        targets.push(on_postgres(database, &settings).await);
    }
    for target in targets {
        let client = client(TIMEOUT);
        let url = format!(
            "http://{}/v1/contexts/1?min_revision=9000000000000000",
            target.address()
        );
        let mut attack = JoinSet::new();
        for _ in 0..100 {
            attack.spawn(client.get(&url).bearer_auth(&target.read_key).send());
        }
        target.assert_bystander_is_served("meanwhile").await;
        while let Some(reply) = attack.join_next().await {
            let reply = reply.expect("no panic").expect("a reply");
            assert_eq!(reply.status(), 400);
            let body: Value = reply.json().await.expect("JSON");
            assert!(
                body["detail"]
                    .as_str()
                    .is_some_and(|detail| detail.contains("and the latest revision is")),
                "{body}"
            );
        }
    }
}
