//! Two services on one PostgreSQL database, and settings with which a service does not start on it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use context_service::start;
use context_test_postgres::TestDatabase;
use serde_json::json;

use crate::service::{Service, settings};

async fn replica(database: &TestDatabase) -> Service {
    let string = format!("--postgresql-connection-string={}", database.url());
    Service::start_with(&[
        "--storage-backend=postgresql",
        &string,
        "--postgresql-pool-size=8",
    ])
    .await
}

/// Two services that create the schema at the same time.
async fn replicas(database: &TestDatabase) -> [Arc<Service>; 2] {
    let (one, other) = futures::join!(replica(database), replica(database));
    [Arc::new(one), Arc::new(other)]
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_written_through_one_service_is_read_through_the_other_at_once() {
    let Some(database) = TestDatabase::empty().await else {
        return;
    };
    let [one, other] = replicas(&database).await;
    for i in 0..20 {
        let (writer, reader) = if i % 2 == 0 {
            (&one, &other)
        } else {
            (&other, &one)
        };
        let id = writer.store("shared", &format!("entry number n{i}")).await;
        let found = reader
            .get(&format!("/v1/contexts/{id}"))
            .send()
            .await
            .json();
        assert_eq!(found["text_content"], format!("entry number n{i}"));
        let found = reader
            .post("/v1/contexts/search/fts", json!({"query": format!("n{i}")}))
            .send()
            .await
            .json();
        assert_eq!(found["results"][0]["id"], id, "{found}");
        let change = json!({"metadata": {"round": i}});
        assert_eq!(
            reader
                .patch(&format!("/v1/contexts/{id}"), change)
                .send()
                .await
                .status,
            200
        );
        let filter = json!({"metadata": {"round": i}});
        let found = writer
            .post("/v1/contexts/search", filter)
            .send()
            .await
            .json();
        assert_eq!(found["results"][0]["id"], id, "{found}");
    }
    let threads = other.get("/v1/threads").send().await.json();
    assert_eq!(threads["threads"][0]["entry_count"], 20, "{threads}");
}

#[tokio::test(flavor = "multi_thread")]
async fn writers_of_both_services_lose_no_update_and_share_no_revision() {
    const WRITERS: u64 = 32;
    const ROUNDS: u64 = 5;
    let Some(database) = TestDatabase::empty().await else {
        return;
    };
    let services = replicas(&database).await;
    let counter = services[0]
        .store("counter", "how often it was counted")
        .await;
    let (refused, stored) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let write = |writer: u64| {
        let (service, refused, stored) = (
            Arc::clone(&services[usize::from(writer.is_multiple_of(2))]),
            Arc::clone(&refused),
            Arc::clone(&stored),
        );
        tokio::spawn(async move {
            for round in 0..ROUNDS {
                service
                    .store(&format!("t{}", writer % 5), &format!("{writer} {round}"))
                    .await;
                stored.fetch_add(1, Ordering::Relaxed);
                loop {
                    let now = service.get(&format!("/v1/contexts/{counter}")).send().await;
                    let count = now.json()["metadata"]["count"].as_u64().unwrap_or(0);
                    let change = json!({"metadata": {"count": count + 1}});
                    let request = service.patch(&format!("/v1/contexts/{counter}"), change);
                    let reply = request
                        .header("if-match", now.header("etag").expect("an etag"))
                        .send()
                        .await;
                    if reply.status == 200 {
                        break;
                    }
                    assert_eq!(reply.status, 412, "{}", reply.body);
                    refused.fetch_add(1, Ordering::Relaxed);
                }
            }
        })
    };
    // Starts all writers at once, then waits for each.
    let writers: Vec<_> = (0..WRITERS).map(write).collect();
    for writer in writers {
        writer.await.expect("the writer does not panic");
    }
    let end = services[1]
        .get(&format!("/v1/contexts/{counter}"))
        .send()
        .await
        .json();
    assert_eq!(end["metadata"]["count"], WRITERS * ROUNDS);
    assert!(
        refused.load(Ordering::Relaxed) > 0,
        "no two writers conflicted"
    );
    let threads = services[0].get("/v1/threads").send().await.json();
    let counts: u64 = threads["threads"]
        .as_array()
        .expect("threads")
        .iter()
        .filter_map(|thread| thread["entry_count"].as_u64())
        .sum();
    assert_eq!(counts, stored.load(Ordering::Relaxed) + 1);

    let client = database.connect().await;
    let sums = "SELECT count(*), min(revision), max(revision), (SELECT revision FROM context.owners) FROM context.changes";
    let row = client
        .query_one(sums, &[])
        .await
        .expect("the changes are counted");
    let all = i64::try_from(WRITERS * ROUNDS * 2 + 1).expect("few");
    assert_eq!(
        (row.get::<_, i64>(0), row.get(1), row.get(2), row.get(3)),
        (all, 1_i64, all, all),
        "each revision occurs once"
    );
    // The versions of one entry appear in the order of the revisions.
    let versions = "SELECT version FROM context.changes WHERE entity_id = $1 ORDER BY revision";
    let rows = client
        .query(versions, &[&counter.to_string()])
        .await
        .expect("the changes are read");
    let versions: Vec<i64> = rows.iter().map(|row| row.get(0)).collect();
    assert_eq!(
        versions,
        (1..=i64::try_from(WRITERS * ROUNDS + 1).expect("few")).collect::<Vec<_>>()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_language_that_the_server_lacks_is_refused_with_those_it_has() {
    let Some(database) = TestDatabase::empty().await else {
        return;
    };
    let directory = tempfile::tempdir().expect("a temporary directory");
    let string = format!("--postgresql-connection-string={}", database.url());
    let flags = [
        "--storage-backend=postgresql",
        &string,
        "--fts-language=klingon",
    ];
    let sentence =
        match context_service::start(&crate::service::settings(directory.path(), &flags)).await {
            Ok(_) => panic!("it must not start"),
            Err(error) => error.to_string(),
        };
    assert!(
        sentence.contains("FTS_LANGUAGE is `klingon`") && sentence.contains("catalan"),
        "{sentence}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn replies_name_the_language_in_effect() {
    async fn named(flags: &[&str]) -> [serde_json::Value; 2] {
        let service = Service::start_with(flags).await;
        let query = json!({"query": "cat"});
        let found = service.post("/v1/contexts/search/fts", query).send().await;
        let statistics = service.get("/v1/statistics").send().await.json();
        service.begin_stop();
        service.stopped().await;
        [
            found.json()["language"].clone(),
            statistics["fts"]["language"].clone(),
        ]
    }
    assert_eq!(named(&["--fts-language=German"]).await, ["german"; 2]);
    assert_eq!(named(&["--fts-language=catalan"]).await, ["unstemmed"; 2]);
    let Some(database) = TestDatabase::empty().await else {
        return;
    };
    let string = format!("--postgresql-connection-string={}", database.url());
    for name in ["catalan", "simple", "german"] {
        let language = format!("--fts-language={name}");
        let flags = ["--storage-backend=postgresql", &string, &language];
        assert_eq!(named(&flags).await, [name; 2]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_of_one_service_opens_the_other_and_is_switched_off_in_both() {
    let Some(database) = TestDatabase::empty().await else {
        return;
    };
    let string = format!("--postgresql-connection-string={}", database.url());
    let flags = ["--storage-backend=postgresql", &string, "--auth=keys"];
    let one = Service::start_with(&flags).await;
    let other = Service::start_with(&flags).await;
    let first = format!(
        "Bearer {}",
        one.first_key
            .as_ref()
            .expect("the first start creates a key")
    );
    assert!(other.first_key.is_none(), "a key already exists");
    let made = one
        .post("/v1/api-keys", json!({"name": "agent"}))
        .header("authorization", &first)
        .send()
        .await
        .json();
    let key = format!("Bearer {}", made["key"].as_str().expect("a key"));
    let threads = || other.get("/v1/threads").header("authorization", &key);
    assert_eq!(threads().send().await.status, 200);
    assert_eq!(other.get("/v1/threads").send().await.status, 401);
    let off = one.post(
        &format!(
            "/v1/api-keys/{}/deactivate",
            made["api_key"]["id"].as_str().expect("an id")
        ),
        json!({}),
    );
    assert_eq!(off.header("authorization", &first).send().await.status, 200);
    #[expect(
        clippy::disallowed_methods,
        reason = "the documented limit of one second"
    )]
    let switched_off = std::time::Instant::now();
    loop {
        // When the request began: a busy machine may return its reply much later.
        let asked = switched_off.elapsed();
        let status = threads().send().await.status;
        if status != 200 {
            assert_eq!(status, 401);
            break;
        }
        assert!(
            asked.as_millis() < 1000,
            "the other service still accepts it"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn with_an_ssl_mode_that_verifies_a_server_without_tls_is_refused() {
    let Some(database) = TestDatabase::empty().await else {
        return;
    };
    let client = database.connect().await;
    let has_tls: String = client.query_one("SHOW ssl", &[]).await.unwrap().get(0);
    if has_tls == "on" {
        return;
    }
    let string = format!("--postgresql-connection-string={}", database.url());
    for mode in ["require", "verify-ca", "verify-full"] {
        let directory = tempfile::tempdir().unwrap();
        let mode = format!("--postgresql-ssl-mode={mode}");
        let flags = [
            "--storage-backend=postgresql",
            string.as_str(),
            mode.as_str(),
        ];
        let error = match start(&settings(directory.path(), &flags)).await {
            Ok(_) => panic!("{mode} must not start"),
            Err(error) => error.to_string(),
        };
        assert!(error.contains("does not support TLS"), "{mode}: {error}");
    }
}
