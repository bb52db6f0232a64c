//! Results that change after they were ranked and before they are read.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use async_trait::async_trait;
use context_providers::{ProviderError, Reranker};
use context_test_postgres::TestDatabase;
use context_test_support::http::Request;
use serde_json::{Value, json};

use crate::semantic::harness::model;
use crate::service::Service;

/// A reranker that changes an entry. Reranking runs after results were ranked and before they are read.
#[derive(Default)]
struct Changing {
    /// The URL and the body of the change. Its `metadata` is set to the number of the change.
    change: OnceLock<(String, Value)>,
    changes: AtomicU64,
    at_most: u64,
}

#[async_trait]
impl Reranker for Changing {
    fn provider(&self) -> &'static str {
        "test"
    }

    fn model(&self) -> &str {
        "m"
    }

    async fn rerank(&self, _: &str, texts: Vec<String>) -> Result<Vec<f64>, ProviderError> {
        let count = self.changes.fetch_add(1, Ordering::SeqCst);
        if let (true, Some((url, change))) = (count < self.at_most, self.change.get()) {
            let mut change = change.clone();
            change["metadata"] = json!({"count": count});
            let reply = Request::new("PATCH", url.clone())
                .json(&change)
                .send()
                .await;
            assert_eq!(reply.status.as_u16(), 200, "{}", reply.body);
        }
        Ok(vec![0.5; texts.len()])
    }
}

/// A service on each database, with an entry that changes during the first `at_most` rerankings, and the id of the
/// entry.
async fn services(at_most: u64, change: Value) -> Vec<(Service, i64, Option<TestDatabase>)> {
    let mut started = Vec::new();
    for database in [None, TestDatabase::empty().await] {
        let mut flags = vec![
            "--embedding-provider=auto".to_owned(),
            format!("--embedding-model-path={}", model()),
            "--rerank-timeout-ms=60000".to_owned(),
        ];
        match &database {
            Some(database) => flags.extend([
                "--storage-backend=postgresql".to_owned(),
                format!("--postgresql-connection-string={}", database.url()),
                "--postgresql-pool-size=4".to_owned(),
            ]),
            None if started.is_empty() => {}
            None => continue,
        }
        let service =
            Service::start_with(&flags.iter().map(String::as_str).collect::<Vec<_>>()).await;
        let mut changing = 0;
        for text in ["tags of a kind", "tags of every kind", "tags of no kind"] {
            let entry =
                json!({"thread_id": text, "source": "user", "text": text, "tags": ["wanted"]});
            changing = service.post("/v1/contexts", entry).send().await.json()["context_id"]
                .as_i64()
                .unwrap();
        }
        let reranker = Arc::new(Changing {
            at_most,
            ..Changing::default()
        });
        let url = format!("http://{}/v1/contexts/{changing}", service.address);
        reranker.change.set((url, change.clone())).unwrap();
        service.engine.retrieval.use_reranker(reranker);
        started.push((service, changing, database));
    }
    started
}

async fn search(service: &Service, kind: &str) -> Value {
    let query = json!({"query": "tags of a kind", "tags": ["wanted"]});
    let reply = service
        .post(&format!("/v1/contexts/search/{kind}"), query)
        .send()
        .await;
    assert_eq!(reply.status.as_u16(), 200, "{}", reply.body);
    reply.json()
}

fn ids(found: &Value) -> Vec<i64> {
    let mut ids: Vec<i64> = found["results"]
        .as_array()
        .unwrap()
        .iter()
        .map(|hit| hit["id"].as_i64().unwrap())
        .collect();
    ids.sort_unstable();
    ids
}

#[tokio::test(flavor = "multi_thread")]
async fn a_result_that_stops_satisfying_the_filter_while_it_is_ranked_is_not_shown() {
    for kind in ["fts", "semantic", "hybrid"] {
        for (service, changing, _database) in services(1, json!({"tags": ["other"]})).await {
            let found = search(&service, kind).await;
            assert_eq!(found["count"], 2, "{found}");
            assert!(!ids(&found).contains(&changing), "{found}");
            let now = service.get("/v1/statistics").send().await.json()["revision"].clone();
            assert_eq!(
                found["revision"], now,
                "the results are those of the revision: {found}"
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_result_that_changes_whenever_it_is_ranked_is_left_out_with_a_warning() {
    for kind in ["fts", "semantic", "hybrid"] {
        for (service, changing, _database) in services(u64::MAX, json!({})).await {
            let found = search(&service, kind).await;
            assert_eq!(found["count"], 2, "{found}");
            assert!(
                !ids(&found).contains(&changing),
                "it is newer than the revision of the reply: {found}"
            );
            let warns = found["warnings"]
                .to_string()
                .contains("1 result was changed during the search");
            assert!(warns, "{found}");
            let now = service.get("/v1/statistics").send().await.json()["revision"]
                .as_i64()
                .unwrap();
            assert!(found["revision"].as_i64().unwrap() < now, "{found}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_result_that_changed_once_is_shown_as_it_is_now() {
    for kind in ["fts", "semantic", "hybrid"] {
        for (service, changing, _database) in services(1, json!({})).await {
            let found = search(&service, kind).await;
            assert_eq!(found["count"], 3, "{found}");
            let hit = found["results"]
                .as_array()
                .unwrap()
                .iter()
                .find(|hit| hit["id"] == changing)
                .unwrap();
            assert_eq!(hit["metadata"]["count"], 0, "{found}");
            let now = service.get("/v1/statistics").send().await.json()["revision"].clone();
            assert_eq!(found["revision"], now, "{found}");
        }
    }
}

/// A reranker that records the queries.
#[derive(Default)]
struct Recording(Mutex<Vec<String>>);

#[async_trait]
impl Reranker for Recording {
    fn provider(&self) -> &'static str {
        "test"
    }

    fn model(&self) -> &str {
        "m"
    }

    async fn rerank(&self, query: &str, texts: Vec<String>) -> Result<Vec<f64>, ProviderError> {
        self.0.lock().unwrap().push(query.to_owned());
        Ok(vec![0.5; texts.len()])
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reranker_gets_the_query_and_of_a_boolean_one_only_the_wanted_words() {
    let service = Service::start().await;
    for text in ["tags of a kind", "tags of every kind", "tags of no kind"] {
        service.store(text, text).await;
    }
    let reranker = Arc::new(Recording::default());
    service.engine.retrieval.use_reranker(reranker.clone());
    for (mode, query, given) in [
        ("match", "Tags, of a kind?", "Tags, of a kind?"),
        ("prefix", "tag kin", "tag kin"),
        ("phrase", "tags of", "tags of"),
        (
            "boolean",
            "(Tags OR threads) AND ki* NOT (\"every kind\" OR no)",
            "tags threads ki",
        ),
    ] {
        let body = json!({"query": query, "mode": mode});
        let reply = service
            .post("/v1/contexts/search/fts", body)
            .send()
            .await
            .json();
        assert!(reply["count"].as_i64() > Some(0), "{reply}");
        assert_eq!(
            std::mem::take(&mut *reranker.0.lock().unwrap()),
            [given],
            "{mode}"
        );
    }
}
