//! Semantic search on each available database, with a small network of random weights. Equal texts are near each other,
//! and no model has to be downloaded.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use context_engine::{Caller, WriteContext};
use context_model::{StoreContextBatchRequest, StoreContextRequest};
use context_providers::local::{ChunkSettings, LocalEmbedder, ModelDirectory, Prefixes};
use context_providers::{
    Embedder, Model, ProviderError, QueryVectors, Role, TextVectors, TokenVectors,
};
use context_test_postgres::TestDatabase;
use context_test_support::{Reserved, until};
use context_text::ChunkSizes;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::Semaphore;

use crate::service::Service;

/// The network that the tests of `context-bert` use as reference.
pub fn model() -> String {
    concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../bert/tests/reference/cross-encoder"
    )
    .to_owned()
}

pub fn with_model() -> Vec<String> {
    vec![
        "--embedding-provider=auto".to_owned(),
        "--embedding-model-path".to_owned(),
        model(),
        // The tests compare rankings, so all candidates are reranked, also on a slow machine.
        "--rerank-budget-ms=60000".to_owned(),
    ]
}

/// A database for the services of a test, which run one after the other or at the same time.
pub struct Database {
    pub flags: Vec<String>,
    _file: TempDir,
    server: Option<TestDatabase>,
}

impl Database {
    pub fn sqlite() -> Self {
        let directory = TempDir::new().unwrap();
        let flags = vec![
            "--db-path".to_owned(),
            directory.path().join("contexts.db").display().to_string(),
        ];
        Self {
            flags,
            _file: directory,
            server: None,
        }
    }

    async fn postgres() -> Option<Self> {
        let server = TestDatabase::empty().await?;
        let string = format!("--postgresql-connection-string={}", server.url());
        let flags = vec![
            "--storage-backend=postgresql".to_owned(),
            string,
            "--postgresql-pool-size=8".to_owned(),
        ];
        Some(Self {
            flags,
            _file: TempDir::new().unwrap(),
            server: Some(server),
        })
    }

    /// All databases. Without a PostgreSQL server, only SQLite.
    pub async fn all() -> Vec<Self> {
        [Some(Self::sqlite()), Self::postgres().await]
            .into_iter()
            .flatten()
            .collect()
    }

    pub async fn start(&self, flags: &[String]) -> Service {
        start(&[flags, &self.flags].concat()).await
    }
}

async fn start(flags: &[String]) -> Service {
    Service::start_with(&flags.iter().map(String::as_str).collect::<Vec<_>>()).await
}

/// Waits until this many entries have vectors.
async fn until_embedded(service: &Service, entries: u64) {
    until("all are embedded", async || {
        let statistics = service.get("/v1/statistics").send().await.json();
        statistics["semantic_search"]["embedding_count"] == entries
    })
    .await;
}

pub async fn search(service: &Service, kind: &str, body: Value) -> Value {
    let reply = service
        .post(&format!("/v1/contexts/search/{kind}"), body)
        .send()
        .await;
    let found = reply.json();
    assert_eq!(reply.status.as_u16(), 200, "{found}");
    found
}

fn ids(found: &Value) -> Vec<i64> {
    found["results"]
        .as_array()
        .unwrap()
        .iter()
        .map(|hit| hit["id"].as_i64().unwrap())
        .collect()
}

const TEXTS: [&str; 4] = [
    "the database stores every context entry",
    "agents search threads for meaning",
    "why did we choose the embedded service",
    "tags and metadata",
];

#[tokio::test(flavor = "multi_thread")]
async fn what_is_stored_is_found_by_meaning_when_the_call_returns() {
    for database in Database::all().await {
        let service = database.start(&with_model()).await;
        let mut stored = Vec::new();
        for text in TEXTS {
            stored.push(service.store("t", text).await);
            let found = search(&service, "semantic", json!({"query": text, "limit": 1})).await;
            assert_eq!(ids(&found), stored[stored.len() - 1..]);
            let scores = &found["results"][0]["scores"];
            assert!(
                scores["semantic_distance"].as_f64().unwrap() < 1e-2,
                "{scores}"
            );
            assert!(scores["semantic_rank"].is_null());
        }
        let reply = service
            .patch(
                &format!("/v1/contexts/{}", stored[0]),
                json!({"text": "agents and tags"}),
            )
            .send()
            .await;
        assert_eq!(reply.status.as_u16(), 200);
        let found = search(
            &service,
            "semantic",
            json!({"query": "agents and tags", "limit": 1}),
        )
        .await;
        assert_eq!(ids(&found), stored[..1]);
        service
            .delete(&format!("/v1/contexts/{}", stored[0]))
            .send()
            .await;
        let found = search(
            &service,
            "semantic",
            json!({"query": "agents and tags", "explain_query": true}),
        )
        .await;
        assert!(!ids(&found).contains(&stored[0]));
        assert!(!found["stats"]["query_plan"].as_array().unwrap().is_empty());
        let statistics = service.get("/v1/statistics").send().await.json();
        assert_eq!(statistics["semantic_search"]["embedding_count"], 3);
        assert_eq!(statistics["semantic_search"]["coverage_percentage"], 100.0);
        assert_eq!(statistics["semantic_search"]["dimensions"], 48);
        assert_eq!(statistics["reranking"]["enabled"], true);
    }
}

/// On SQLite the ranks that fusion uses come from estimates. What is returned does not.
#[tokio::test(flavor = "multi_thread")]
async fn every_returned_distance_is_exact_on_every_page_with_and_without_reranking() {
    for database in Database::all().await {
        for reranking in ["false", "auto"] {
            let mut flags = with_model();
            flags.push(format!("--enable-reranking={reranking}"));
            let service = database.start(&flags).await;
            if reranking == "false" {
                store_300(&service).await;
            }
            let query = "word3 and word9";
            let mut exact = std::collections::HashMap::new();
            for offset in [0, 100, 200] {
                let page = json!({"query": query, "limit": 100, "offset": offset});
                for (id, distance) in distances(&search(&service, "semantic", page).await) {
                    exact.insert(id, distance);
                }
            }
            assert_eq!(exact.len(), 300);
            for retrievers in [json!(["semantic"]), json!(["fts", "semantic"])] {
                for offset in [0, 100] {
                    let page = json!({"query": query, "limit": 100, "offset": offset, "search_modes": retrievers});
                    let found = search(&service, "hybrid", page).await;
                    assert_eq!(ids(&found).len(), 100);
                    for (id, distance) in distances(&found) {
                        let expected = exact[&id];
                        assert!(
                            (distance - expected).abs() < 1e-6,
                            "{distance} instead of {expected}"
                        );
                    }
                }
            }
            service.begin_stop();
            service.stopped().await;
        }
    }
}

async fn store_300(service: &Service) {
    for batch in 0..3 {
        let entry = |n: u32| {
            let text = format!("entry {n} has word{} and word{}", n % 7, n * n % 31);
            json!({"thread_id": "t", "source": "user", "text": text})
        };
        let entries: Vec<Value> = (batch * 100..batch * 100 + 100).map(entry).collect();
        let stored = service
            .post("/v1/contexts/batch", json!({"entries": entries}))
            .send()
            .await;
        assert_eq!(stored.json()["succeeded"], 100);
    }
    until_embedded(service, 300).await;
}

/// The ids of the results that have a distance, with it.
fn distances(found: &Value) -> Vec<(i64, f64)> {
    let hits = found["results"].as_array().unwrap().iter();
    let with_distance = |hit: &Value| {
        let distance = hit["scores"]["semantic_distance"].as_f64()?;
        Some((hit["id"].as_i64()?, distance))
    };
    hits.filter_map(with_distance).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn hybrid_search_fuses_words_and_meaning_by_the_documented_formula() {
    for database in Database::all().await {
        let mut flags = with_model();
        flags.extend(["--enable-reranking".to_owned(), "false".to_owned()]);
        let service = database.start(&flags).await;
        let mut stored = Vec::new();
        for text in TEXTS {
            stored.push(service.store("t", text).await);
        }
        let found = search(
            &service,
            "hybrid",
            json!({"query": "tags and metadata", "rrf_k": 10}),
        )
        .await;
        assert_eq!(found["search_modes_used"], json!(["fts", "semantic"]));
        assert_eq!(found["results"][0]["id"], stored[3]);
        for hit in found["results"].as_array().unwrap() {
            let scores = &hit["scores"];
            let term = |rank: &str| {
                scores[rank]
                    .as_i64()
                    .map_or(0.0, |rank| 1.0 / (10.0 + rank as f64))
            };
            let expected = term("fts_rank") + term("semantic_rank");
            assert!(
                (scores["rrf"].as_f64().unwrap() - expected).abs() < 1e-12,
                "{scores}"
            );
            assert!(scores["rerank_score"].is_null());
        }
        let only = search(
            &service,
            "hybrid",
            json!({"query": "tags", "search_modes": ["semantic"]}),
        )
        .await;
        assert_eq!(
            (&only["search_modes_used"], &only["fts_count"]),
            (&json!(["semantic"]), &json!(0))
        );
        // Full-text search finds no word in such a query, so only semantic search can run.
        let wordless = search(&service, "hybrid", json!({"query": "!?"})).await;
        assert_eq!(wordless["search_modes_used"], json!(["semantic"]));
        let nothing = search(
            &service,
            "hybrid",
            json!({"query": "!?", "search_modes": ["fts"]}),
        )
        .await;
        assert_eq!(
            (&nothing["search_modes_used"], &nothing["results"]),
            (&json!([]), &json!([]))
        );
        let convex = search(
            &service,
            "hybrid",
            json!({"query": "tags and metadata", "fusion_method": "convex"}),
        )
        .await;
        assert_eq!(convex["fusion_method"], "convex");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_result_of_a_long_text_shows_what_matches_beyond_its_opening() {
    for database in Database::all().await {
        let service = database.start(&with_model()).await;
        let opening = "We talked about the database and its threads. ".repeat(6);
        let text = format!(
            "{opening}Nobody remembers any of it. The nightly build runs at half past two. {}",
            "Then everybody went home. ".repeat(60)
        );
        let long = service.store("t", &text).await;
        let short = service.store("t", "the nightly build").await;
        let hit = |found: &Value, id: i64| {
            let hits = found["results"].as_array().unwrap().iter();
            hits.clone().find(|hit| hit["id"] == id).unwrap().clone()
        };
        let query = "when does the nightly build run?";
        for (kind, body) in [
            ("hybrid", json!({"query": query})),
            ("hybrid", json!({"query": query, "search_modes": ["fts"]})),
            (
                "hybrid",
                json!({"query": query, "search_modes": ["semantic"]}),
            ),
            ("semantic", json!({"query": query})),
        ] {
            let found = search(&service, kind, body).await;
            let found_long = hit(&found, long);
            let snippet = found_long["snippet"].as_str().unwrap();
            assert!(snippet.contains("runs at half past two."), "{snippet}");
            assert!(snippet.chars().count() <= 300, "{snippet}");
            let shown = found_long["text_content"].as_str().unwrap();
            assert!(
                shown.starts_with("We talked") && shown.len() <= 303,
                "{shown}"
            );
            let found_short = hit(&found, short);
            assert!(found_short.get("snippet").is_none(), "{found_short}");
            assert!(found_short.get("highlighted").is_none(), "{found_short}");
        }
        let body = json!({"query": "what did we say about the database and its threads?"});
        let in_opening = hit(&search(&service, "hybrid", body).await, long);
        assert!(in_opening.get("snippet").is_none(), "{in_opening}");

        for modes in [
            json!(["fts", "semantic"]),
            json!(["fts"]),
            json!(["semantic"]),
        ] {
            let body = json!({"query": query, "search_modes": modes, "highlight": true});
            let found = search(&service, "hybrid", body).await;
            for id in [long, short] {
                let marked = hit(&found, id)["highlighted"].clone();
                let marked = marked.as_str().unwrap();
                assert!(
                    marked.contains("<mark>nightly</mark> <mark>build</mark>"),
                    "{marked}"
                );
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_of_ranked_results_neither_repeat_nor_skip_with_and_without_reranking() {
    let (with, without) = (Database::all().await, Database::all().await);
    for (reranking, database) in with
        .iter()
        .map(|database| ("true", database))
        .chain(without.iter().map(|database| ("false", database)))
    {
        let mut flags = with_model();
        flags.extend(["--enable-reranking".to_owned(), reranking.to_owned()]);
        let service = database.start(&flags).await;
        let words = [
            "database", "context", "tags", "metadata", "agents", "threads", "service",
        ];
        for n in 0..70 {
            let text = format!(
                "{} {} {}",
                words[n % 7],
                words[n / 7 % 7],
                words[(n * 5 + 3) % 7]
            );
            service.store(&format!("t{n}"), &text).await;
        }
        for kind in ["semantic", "hybrid"] {
            let whole = ids(&search(
                &service,
                kind,
                json!({"query": "database agents", "limit": 100}),
            )
            .await);
            assert_eq!(whole.len(), 70, "{kind}");
            let mut paged = Vec::new();
            for offset in (0..70).step_by(9) {
                paged.extend(ids(&search(
                    &service,
                    kind,
                    json!({"query": "database agents", "limit": 9, "offset": offset}),
                )
                .await));
            }
            assert_eq!(paged, whole, "{kind}, reranking {reranking}");
        }
    }
}

fn hits(found: &Value) -> &[Value] {
    found["results"].as_array().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn full_text_results_are_reranked_and_keep_their_full_text_scores() {
    for database in Database::all().await {
        let on = [with_model(), vec!["--rerank-timeout-ms=60000".to_owned()]].concat();
        let off = [with_model(), vec!["--enable-reranking=false".to_owned()]].concat();
        let service = database.start(&on).await;
        let long = "the embedded service ".repeat(30);
        for text in TEXTS.iter().copied().chain([long.as_str()]) {
            service.store("t", text).await;
        }
        let queries = [
            json!({"query": "service database tags threads", "highlight": true}),
            json!({"query": "embedded service", "mode": "phrase", "highlight": true}),
            json!({"query": "embedded serv", "mode": "prefix", "include_images": true}),
            json!({"query": "service AND NOT choose", "mode": "boolean"}),
            // Both words occur in no entry, so the entries with one of them are found and marked.
            json!({"query": "tags threads", "highlight": true}),
            json!({"query": "metadata"}),
        ];
        let mut reranked = Vec::new();
        for query in &queries {
            let mut query = query.clone();
            query["explain_query"] = true.into();
            let found = search(&service, "fts", query.clone()).await;
            let scores: Vec<f64> = hits(&found)
                .iter()
                .map(|hit| hit["scores"]["rerank_score"].as_f64().unwrap())
                .collect();
            assert!(
                scores.is_sorted_by(|a, b| a >= b)
                    && scores.iter().all(|score| (0.0..=1.0).contains(score)),
                "{query}: {scores:?}"
            );
            let plan = found["stats"]["query_plan"].to_string();
            assert!(
                plan.contains(&format!("rerank: {0} of {0} candidates in", scores.len())),
                "{plan}"
            );
            reranked.push(found);
        }
        assert_eq!(
            hits(reranked.last().unwrap()).len(),
            1,
            "a single result too"
        );
        assert!(hits(&reranked[0]).len() == 5 && hits(&reranked[4]).len() == 2);
        service.begin_stop();
        service.stopped().await;

        let service = database.start(&off).await;
        for (query, mut found) in queries.iter().zip(reranked) {
            let plain = search(&service, "fts", query.clone()).await;
            let order: Vec<f64> = hits(&plain)
                .iter()
                .map(|hit| hit["scores"]["fts_score"].as_f64().unwrap())
                .collect();
            assert!(order.is_sorted_by(|a, b| a >= b), "{order:?}");
            for hit in found["results"].as_array_mut().unwrap() {
                let scores = hit["scores"].as_object_mut().unwrap();
                scores.remove("rerank_score");
                let same = hits(&plain).iter().find(|other| other["id"] == hit["id"]);
                assert_eq!(same, Some(&*hit), "only the order and rerank_score differ");
            }
            assert_eq!(hits(&found).len(), hits(&plain).len());
            found["results"] = plain["results"].clone();
            found.as_object_mut().unwrap().remove("stats");
            assert_eq!(found, plain);
        }
        service.begin_stop();
        service.stopped().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn full_text_results_beyond_the_reranked_ones_keep_their_order_on_every_page() {
    for database in Database::all().await {
        let flags = [with_model(), vec!["--rerank-timeout-ms=60000".to_owned()]].concat();
        let service = database.start(&flags).await;
        for n in 0..70 {
            service
                .store(
                    &format!("t{n}"),
                    &format!("tags {}", TEXTS[3].repeat(n % 9 + 1)),
                )
                .await;
        }
        let whole = search(&service, "fts", json!({"query": "tags", "limit": 100})).await;
        let (first, rest) = hits(&whole).split_at(50);
        assert_eq!(rest.len(), 20);
        let rerank_score = |hit: &Value| hit["scores"]["rerank_score"].as_f64();
        let fts_score = |hit: &Value| hit["scores"]["fts_score"].as_f64().unwrap();
        assert!(
            first
                .iter()
                .map(|hit| rerank_score(hit).unwrap())
                .is_sorted_by(|a, b| a >= b)
        );
        assert!(rest.iter().all(|hit| rerank_score(hit).is_none()));
        assert!(rest.iter().map(fts_score).is_sorted_by(|a, b| a >= b));
        let worst = first.iter().map(fts_score).fold(f64::INFINITY, f64::min);
        assert!(
            worst >= fts_score(&rest[0]),
            "the best matches are reranked"
        );
        let mut paged = Vec::new();
        for offset in (0..70).step_by(9) {
            let page = json!({"query": "tags", "limit": 9, "offset": offset});
            paged.extend(ids(&search(&service, "fts", page).await));
        }
        assert_eq!(paged, ids(&whole));
        service.begin_stop();
        service.stopped().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_filter_narrows_what_is_near_without_starving_it() {
    for database in Database::all().await {
        let service = database.start(&with_model()).await;
        for n in 0..30 {
            service
                .store(
                    "many",
                    &format!("the database {}", "tags ".repeat(n % 5 + 1)),
                )
                .await;
        }
        let other = service.store("other", "agents search threads").await;
        for kind in ["semantic", "hybrid"] {
            let found = search(
                &service,
                kind,
                json!({"query": "the database tags", "thread_id": "other"}),
            )
            .await;
            assert_eq!(ids(&found), [other], "{kind}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn entries_of_a_time_without_a_model_are_embedded_when_there_is_one() {
    for database in Database::all().await {
        let service = database
            .start(&["--embedding-provider=none".to_owned()])
            .await;
        let mut stored = Vec::new();
        for text in TEXTS {
            stored.push(service.store("t", text).await);
        }
        let refused = service
            .post("/v1/contexts/search/semantic", json!({"query": "tags"}))
            .send()
            .await;
        assert!(
            refused.json()["detail"]
                .as_str()
                .unwrap()
                .contains("EMBEDDING_PROVIDER=none"),
            "{}",
            refused.json()
        );
        let degraded = search(&service, "hybrid", json!({"query": "tags"})).await;
        assert_eq!(degraded["search_modes_used"], json!(["fts"]));
        assert_eq!(degraded["warnings"].as_array().unwrap().len(), 1);
        service.begin_stop();
        service.stopped().await;

        let service = database.start(&with_model()).await;
        until_embedded(&service, 4).await;
        assert_eq!(
            ids(&search(&service, "semantic", json!({"query": TEXTS[1], "limit": 1})).await),
            stored[1..2]
        );
        service.begin_stop();
        service.stopped().await;
        let service = database.start(&with_model()).await;
        assert_eq!(
            ids(&search(&service, "semantic", json!({"query": TEXTS[1], "limit": 1})).await),
            stored[1..2],
            "after a restart"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_text_is_found_by_any_part_of_it() {
    for database in Database::all().await {
        let service = database.start(&with_model()).await;
        let long = format!(
            "{}\n\nagents search threads for meaning\n\n{}",
            "the database stores tags. ".repeat(60),
            "why did we choose. ".repeat(60)
        );
        let id = service.store("t", &long).await;
        service.store("t", "metadata").await;
        let found = search(
            &service,
            "semantic",
            json!({"query": "why did we choose.", "limit": 1}),
        )
        .await;
        assert_eq!(ids(&found), [id]);
    }
}

/// A server with the API of Ollama. A text's vector depends on its letters. Requests with the word poison fail.
async fn ollama(listener: tokio::net::TcpListener) {
    let embed = |axum::Json(request): axum::Json<Value>| async move {
        let vector = |text: &Value| {
            let mut counts = [1.0; 26];
            for letter in text
                .as_str()
                .unwrap_or_default()
                .bytes()
                .filter(u8::is_ascii_lowercase)
            {
                counts[usize::from(letter - b'a')] += 1.0;
            }
            json!(counts)
        };
        let texts = request["input"].as_array().unwrap();
        if texts
            .iter()
            .any(|text| text.as_str().is_some_and(|text| text.contains("poison")))
        {
            return Err((
                axum::http::StatusCode::INTERNAL_SERVER_ERROR,
                axum::Json(json!({"error": "json: unsupported value: NaN"})),
            ));
        }
        let vectors: Vec<Value> = texts.iter().map(vector).collect();
        Ok(axum::Json(
            json!({"model": request["model"], "embeddings": vectors}),
        ))
    };
    let router = axum::Router::new().route("/api/embed", axum::routing::post(embed));
    axum::serve(listener, router).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn while_a_provider_is_away_entries_are_stored_and_embedded_once_it_answers() {
    for database in Database::all().await {
        let provider = Reserved::new();
        let flags = [
            "--embedding-provider=ollama".to_owned(),
            format!("--ollama-host={}", provider.address()),
        ];
        let service = database.start(&flags).await;
        let reply = service
            .post(
                "/v1/contexts",
                json!({"thread_id": "t", "source": "user", "text": "aaaa"}),
            )
            .send()
            .await;
        assert_eq!(reply.status.as_u16(), 201);
        let message = reply.json()["message"].as_str().unwrap().to_owned();
        assert!(message.contains("pending"), "{message}");
        let statistics = service.get("/v1/statistics").send().await.json();
        let state = |statistics: &Value| {
            (
                statistics["semantic_search"]["enabled"].clone(),
                statistics["semantic_search"]["available"].clone(),
            )
        };
        assert_eq!(state(&statistics), (json!(true), json!(false)));
        let found = search(&service, "hybrid", json!({"query": "aaaa"})).await;
        assert_eq!(
            (ids(&found).len(), &found["search_modes_used"]),
            (1, &json!(["fts"])),
            "the rest works"
        );

        let server = tokio::spawn(ollama(provider.listen()));
        until_embedded(&service, 1).await;
        service.store("t", "zzzz").await;
        let found = search(&service, "semantic", json!({"query": "aaa", "limit": 1})).await;
        assert_eq!(
            (&found["results"][0]["text_content"], &found["model"]),
            (&json!("aaaa"), &json!("embeddinggemma:latest"))
        );

        // The provider becomes unavailable again, and its connections are closed.
        server.abort();
        let _ = server.await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn texts_that_the_provider_fails_at_keep_no_other_waiting() {
    for database in Database::all().await {
        let provider = Reserved::new();
        let flags = [
            "--embedding-provider=ollama".to_owned(),
            format!("--ollama-host={}", provider.address()),
        ];
        let service = database.start(&flags).await;
        for text in ["poison", "aaaa", "more poison", "zzzz", "mmmm"] {
            service.store("t", text).await;
        }
        let server = tokio::spawn(ollama(provider.listen()));
        until_embedded(&service, 3).await;
        let found = search(&service, "semantic", json!({"query": "zzz"})).await;
        assert_eq!(ids(&found), [4, 5, 2], "the provider is asked");
        server.abort();
        let _ = server.await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn with_on_failure_fail_nothing_is_stored_without_its_vectors() {
    let provider = Reserved::new();
    let flags = [
        "--embedding-provider=ollama",
        &format!("--ollama-host=http://{}", provider.address()),
        "--embedding-on-failure=fail",
    ];
    let service = Service::start_with(&flags).await;
    let reply = service
        .post(
            "/v1/contexts",
            json!({"thread_id": "t", "source": "user", "text": "aaaa"}),
        )
        .send()
        .await;
    assert_eq!(
        (reply.status.as_u16(), reply.reason()),
        (503, "PROVIDER_UNAVAILABLE".to_owned())
    );
    assert_eq!(
        service.get("/v1/statistics").send().await.json()["total_entries"],
        0
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn with_on_failure_fail_a_text_too_long_to_wait_for_is_stored_and_embedded_later() {
    for database in Database::all().await {
        let flags = [
            with_model(),
            vec![
                "--embedding-on-failure=fail".to_owned(),
                "--chunk-size=16".to_owned(),
            ],
        ]
        .concat();
        let service = database.start(&flags).await;
        let long = "the database stores tags. ".repeat(2_000);
        let reply = service
            .post(
                "/v1/contexts",
                json!({"thread_id": "t", "source": "user", "text": long}),
            )
            .send()
            .await;
        assert_eq!(reply.status.as_u16(), 201, "{}", reply.body);
        let message = reply.json()["message"].as_str().unwrap().to_owned();
        assert!(message.contains("pending"), "{message}");
        until_embedded(&service, 1).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_retry_gets_its_reply_while_the_provider_is_away() {
    for database in Database::all().await {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let host = format!("--ollama-host=http://{}", listener.local_addr().unwrap());
        // A runtime of its own, so that its connections end with it.
        let provider = tokio::runtime::Runtime::new().unwrap();
        let listener = listener.into_std().unwrap();
        provider.spawn(async move {
            ollama(tokio::net::TcpListener::from_std(listener).unwrap()).await
        });
        let flags = [
            "--embedding-provider=ollama".to_owned(),
            host,
            "--embedding-on-failure=fail".to_owned(),
        ];
        let service = database.start(&flags).await;
        let store = |text: &str, key: &str| {
            service
                .post(
                    "/v1/contexts",
                    json!({"thread_id": "t", "source": "user", "text": text}),
                )
                .header("idempotency-key", key)
                .send()
        };
        let first = async {
            loop {
                let reply = store("aaaa", "k").await;
                // Waits until the provider was reached.
                if reply.status.as_u16() == 201 {
                    return reply;
                }
            }
        };
        let first = tokio::time::timeout(std::time::Duration::from_secs(60), first)
            .await
            .expect("it is stored in time");
        provider.shutdown_background();
        let away = async {
            for attempt in 0.. {
                let reply = store(&format!("zzzz {attempt}"), &format!("new-{attempt}")).await;
                if reply.status.as_u16() == 503 {
                    return;
                }
                assert_eq!(reply.status.as_u16(), 201, "{}", reply.body);
            }
        };
        tokio::time::timeout(std::time::Duration::from_secs(60), away)
            .await
            .expect("new texts cannot be embedded");
        let again = store("aaaa", "k").await;
        assert_eq!((again.status.as_u16(), again.json()), (201, first.json()));

        // A hybrid search that needs the provider can be repeated. Others run without it.
        let reply = service
            .post(
                "/v1/contexts/search/hybrid",
                json!({"query": "bbbb", "search_modes": ["semantic"]}),
            )
            .send()
            .await;
        assert_eq!(
            (reply.status.as_u16(), reply.reason()),
            (503, "PROVIDER_UNAVAILABLE".to_owned())
        );
        let found = search(&service, "hybrid", json!({"query": "aaaa"})).await;
        assert_eq!(found["search_modes_used"], json!(["fts"]));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cross_encoder_orders_the_results_when_one_is_configured() {
    for database in Database::all().await {
        let mut flags = with_model();
        flags.extend(["--rerank-model-path".to_owned(), model()]);
        let service = database.start(&flags).await;
        for text in TEXTS {
            service.store("t", text).await;
        }
        let statistics = service.get("/v1/statistics").send().await.json();
        assert_eq!(statistics["reranking"]["provider"], "local");
        for kind in ["fts", "semantic", "hybrid"] {
            let found = search(
                &service,
                kind,
                json!({"query": "the agents and tags or database we service", "explain_query": true}),
            )
            .await;
            let scores: Vec<f64> = found["results"]
                .as_array()
                .unwrap()
                .iter()
                .map(|hit| hit["scores"]["rerank_score"].as_f64().unwrap())
                .collect();
            assert!(
                scores.len() == 4 && scores.iter().all(|score| (0.0..=1.0).contains(score)),
                "{kind}: {scores:?}"
            );
            assert!(scores.is_sorted_by(|a, b| a >= b), "{kind}: {scores:?}");
            assert!(
                found["stats"]["query_plan"]
                    .to_string()
                    .contains("cross-encoder"),
                "{}",
                found["stats"]
            );
        }
    }
}

/// The scores after reranking by id, and the note on which token vectors were stored.
async fn reranked(service: &Service, kind: &str, query: &str) -> (Vec<(i64, f64)>, Option<String>) {
    let found = search(
        service,
        kind,
        json!({"query": query, "limit": 100, "explain_query": true}),
    )
    .await;
    let score = |hit: &Value| {
        (
            hit["id"].as_i64().unwrap(),
            hit["scores"]["rerank_score"].as_f64().unwrap(),
        )
    };
    let plan = found["stats"]["query_plan"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(Value::as_str);
    let note = plan.clone().find_map(|line| {
        line.split_once("; ")
            .filter(|_| line.starts_with("rerank: by late interaction"))
    });
    assert!(
        plan.into_iter().any(|line| line.starts_with("rerank:")),
        "{found}"
    );
    (
        found["results"]
            .as_array()
            .unwrap()
            .iter()
            .map(score)
            .collect(),
        note.map(|(_, note)| note.to_owned()),
    )
}

fn alike(one: &[(i64, f64)], other: &[(i64, f64)]) {
    assert_eq!(one.len(), other.len());
    for (id, score) in one {
        let found = other
            .iter()
            .find(|(found, _)| found == id)
            .unwrap_or_else(|| panic!("{id} is missing"));
        assert!(
            (found.1 - score).abs() < 0.02,
            "{id}: {score} and {}",
            found.1
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn stored_token_vectors_rerank_as_encoding_again_does_and_entries_without_them_are_encoded() {
    for database in Database::all().await {
        let storing = [with_model(), vec!["--rerank-store-tokens=true".to_owned()]].concat();
        let long = format!(
            "{}agents search threads. {}",
            "the database stores tags. ".repeat(60),
            "why did we choose. ".repeat(60)
        );
        let texts = TEXTS
            .iter()
            .map(|text| (*text).to_owned())
            .chain((0..20).map(|n| format!("{} {n}", TEXTS[n % 4])))
            .chain([long]);
        let (first, second): (Vec<_>, Vec<_>) = texts.enumerate().partition(|(n, _)| n % 3 > 0);
        let queries = ["agents and tags", "why did we choose the database?"];

        let service = database.start(&storing).await;
        for (n, text) in &first {
            service.store(&format!("t{}", n % 2), text).await;
        }
        for kind in ["semantic", "hybrid"] {
            let (_, note) = reranked(&service, kind, queries[0]).await;
            assert_eq!(
                note.as_deref(),
                Some("the token vectors of 16 entries were stored, of 0 not"),
                "{kind}"
            );
        }
        service.begin_stop();
        service.stopped().await;

        // With the setting off, token vectors are neither read nor written.
        let service = database.start(&with_model()).await;
        for (n, text) in &second {
            service.store(&format!("t{}", n % 2), text).await;
        }
        let mut encoded = Vec::new();
        for kind in ["semantic", "hybrid"] {
            for query in queries {
                let (scores, note) = reranked(&service, kind, query).await;
                assert_eq!(note, None);
                encoded.push(scores);
            }
        }
        service.begin_stop();
        service.stopped().await;

        let service = database.start(&storing).await;
        let mut encoded = encoded.into_iter();
        for kind in ["semantic", "hybrid"] {
            for query in queries {
                let (scores, note) = reranked(&service, kind, query).await;
                assert_eq!(
                    note.as_deref(),
                    Some("the token vectors of 16 entries were stored, of 9 not"),
                    "{kind}"
                );
                alike(&scores, &encoded.next().unwrap());
            }
        }
        let changed = reranked(&service, "semantic", queries[0]).await.0[0].0;
        service
            .patch(
                &format!("/v1/contexts/{changed}"),
                json!({"text": "agents search"}),
            )
            .send()
            .await;
        let (scores, _) = reranked(&service, "semantic", "agents search").await;
        assert_eq!(
            scores[0].0, changed,
            "a changed text has the token vectors of what it says now"
        );
        service.begin_stop();
        service.stopped().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_text_of_very_many_chunks_is_stored_without_token_vectors() {
    for database in Database::all().await {
        let flags = [
            with_model(),
            vec![
                "--rerank-store-tokens=true".to_owned(),
                "--chunk-size=16".to_owned(),
            ],
        ]
        .concat();
        let service = database.start(&flags).await;
        let book = "the database stores tags. ".repeat(400);
        // In one batch, so that mixed-up vectors would be detected.
        let entries: Vec<Value> = [TEXTS[1], &book, TEXTS[2]]
            .iter()
            .map(|text| json!({"thread_id": "t", "source": "user", "text": text}))
            .collect();
        let reply = service
            .post("/v1/contexts/batch", json!({"entries": entries}))
            .send()
            .await;
        assert_eq!(reply.json()["succeeded"], 3, "{}", reply.json());
        for text in [TEXTS[1], TEXTS[2]] {
            let found = search(&service, "semantic", json!({"query": text})).await;
            assert!(
                found["results"][0]["scores"]["semantic_distance"]
                    .as_f64()
                    .unwrap()
                    < 1e-2,
                "{found}"
            );
            assert_eq!(found["results"][0]["text_content"], text);
        }
        let (_, note) = reranked(&service, "semantic", "tags").await;
        assert_eq!(
            note.as_deref(),
            Some("the token vectors of 2 entries were stored, of 1 not")
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn both_databases_give_the_same_distances_and_the_same_order() {
    let Some(server) = Database::postgres().await else {
        return;
    };
    let mut answers = Vec::new();
    for database in [Database::sqlite(), server] {
        let service = database.start(&with_model()).await;
        let words = [
            "database", "context", "tags", "metadata", "agents", "threads", "service",
        ];
        for n in 0..40 {
            let text = format!(
                "{} {} {}",
                words[n % 7],
                words[n / 7 % 7],
                words[(n * 5 + 3) % 7]
            );
            service
                .store(&format!("t{}", n % 3), &text.repeat(1 + n % 4))
                .await;
        }
        let mut found = Vec::new();
        for query in ["database agents", "why tags", "threads of the service"] {
            for filter in [json!({}), json!({"thread_id": "t1"})] {
                let mut body = json!({"query": query, "limit": 20});
                body.as_object_mut()
                    .unwrap()
                    .extend(filter.as_object().unwrap().clone());
                let hits = search(&service, "semantic", body).await;
                let distance = |hit: &Value| {
                    (hit["scores"]["semantic_distance"].as_f64().unwrap() * 1e4).round() as i64
                };
                found.push((
                    ids(&hits),
                    hits["results"]
                        .as_array()
                        .unwrap()
                        .iter()
                        .map(distance)
                        .collect::<Vec<_>>(),
                ));
            }
        }
        answers.push(found);
    }
    assert_eq!(answers[0], answers[1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_one_service_embeds_another_one_finds_at_once() {
    let Some(database) = Database::postgres().await else {
        return;
    };
    let services = [
        database.start(&with_model()).await,
        database.start(&with_model()).await,
    ];
    for (n, text) in TEXTS.iter().enumerate() {
        let id = services[n % 2].store("t", text).await;
        let found = search(
            &services[1 - n % 2],
            "semantic",
            json!({"query": text, "limit": 1}),
        )
        .await;
        assert_eq!(ids(&found), [id]);
    }
}

/// The same network under another name, which the service treats as another model.
pub fn named(name: &str) -> Vec<String> {
    [with_model(), vec![format!("--embedding-model={name}")]].concat()
}

async fn model_in_use(service: &Service) -> Value {
    service.get("/v1/statistics").send().await.json()["semantic_search"]["model"].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_moves_to_another_model_while_it_answers() {
    for database in Database::all().await {
        let service = database.start(&named("first")).await;
        let mut stored = Vec::new();
        for n in 0..60 {
            stored.push(
                service
                    .store(&format!("t{}", n % 4), &format!("{} {n}", TEXTS[n % 4]))
                    .await,
            );
        }
        let socket = format!("--socket={}", service.socket.display());
        let flags = [named("second"), database.flags.clone(), vec![socket]].concat();
        let elsewhere = TempDir::new().unwrap();
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        let config = crate::service::settings(elsewhere.path(), &flags);
        let moving = tokio::spawn(async move { context_service::reembed(&config).await });
        let mut searches = 0;
        while !moving.is_finished() {
            let found = search(
                &service,
                "semantic",
                json!({"query": TEXTS[1], "limit": 50}),
            )
            .await;
            assert_eq!(
                ids(&found).len(),
                50,
                "there are always vectors of all entries"
            );
            searches += 1;
        }
        let sentence = moving.await.unwrap().unwrap();
        assert!(sentence.contains("second") && searches > 0, "{sentence}");
        assert_eq!(model_in_use(&service).await, "second");
        let late = service.store("t", "stored after the move").await;
        let found = search(
            &service,
            "semantic",
            json!({"query": "stored after the move", "limit": 1}),
        )
        .await;
        assert_eq!(
            (ids(&found), &found["model"]),
            (vec![late], &json!("second"))
        );
        service.begin_stop();
        service.stopped().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_with_another_model_says_so_and_the_command_that_it_names_helps() {
    for database in Database::all().await {
        let service = database.start(&named("first")).await;
        for text in TEXTS {
            service.store("t", text).await;
        }
        service.begin_stop();
        service.stopped().await;

        let service = database.start(&named("second")).await;
        let statistics = service.get("/v1/statistics").send().await.json();
        let reason = statistics["semantic_search"]["reason"]
            .as_str()
            .unwrap()
            .to_owned();
        assert!(
            reason.contains("first")
                && reason.contains("second")
                && reason.contains("`context-service reembed`"),
            "{reason}"
        );
        assert_eq!(
            search(&service, "hybrid", json!({"query": "tags"})).await["search_modes_used"],
            json!(["fts"])
        );
        service.begin_stop();
        service.stopped().await;

        // No service uses the database, so the command does the work itself.
        let elsewhere = TempDir::new().unwrap();
        let flags = [named("second"), database.flags.clone()].concat();
        let config = crate::service::settings(
            elsewhere.path(),
            &flags.iter().map(String::as_str).collect::<Vec<_>>(),
        );
        let sentence = context_service::reembed(&config).await.unwrap();
        assert!(sentence.contains("now uses second"), "{sentence}");
        assert!(
            context_service::reembed(&config)
                .await
                .unwrap()
                .contains("already")
        );
        let service = database.start(&named("second")).await;
        assert_eq!(
            ids(&search(&service, "semantic", json!({"query": TEXTS[2], "limit": 4})).await).len(),
            4
        );
        service.begin_stop();
        service.stopped().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn reembed_without_a_service_stores_token_vectors_only_if_reranking_reads_them() {
    for database in Database::all().await {
        let service = database.start(&named("first")).await;
        for text in TEXTS {
            service.store("t", text).await;
        }
        service.begin_stop();
        service.stopped().await;

        let storing = "--rerank-store-tokens=true".to_owned();
        let cross_encoder = ["--rerank-model-path".to_owned(), model()];
        for (name, reranker, stored) in [
            ("second", cross_encoder.as_slice(), 0),
            ("third", &[][..], TEXTS.len()),
        ] {
            let elsewhere = TempDir::new().unwrap();
            let flags = [named(name), vec![storing.clone()], database.flags.clone()].concat();
            let moving = [flags.as_slice(), reranker].concat();
            let config = crate::service::settings(
                elsewhere.path(),
                &moving.iter().map(String::as_str).collect::<Vec<_>>(),
            );
            context_service::reembed(&config).await.unwrap();
            let service = start(&flags).await;
            let (_, note) = reranked(&service, "semantic", TEXTS[0]).await;
            let unstored = TEXTS.len() - stored;
            assert_eq!(
                note,
                Some(format!(
                    "the token vectors of {stored} entries were stored, of {unstored} not"
                )),
                "{name}"
            );
            service.begin_stop();
            service.stopped().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn hybrid_search_uses_words_when_the_database_has_no_vectors_of_its_model_any_more() {
    let Some(database) = Database::postgres().await else {
        return;
    };
    let service = database.start(&named("first")).await;
    let stored = service.store("t", TEXTS[3]).await;
    // The state of a service that was not restarted an hour after a change to another model.
    let server = database.server.as_ref().expect("a server");
    server
        .connect()
        .await
        .batch_execute("DELETE FROM context.embedding_sets")
        .await
        .expect("deleted");
    let found = search(&service, "hybrid", json!({"query": "tags"})).await;
    assert_eq!(
        (ids(&found), &found["search_modes_used"]),
        (vec![stored], &json!(["fts"]))
    );
    let warnings = found["warnings"].to_string();
    assert!(
        warnings.contains("no vectors of this embedding model; only full-text search ran"),
        "{warnings}"
    );
    for (kind, body) in [
        ("semantic", json!({"query": "tags"})),
        (
            "hybrid",
            json!({"query": "tags", "search_modes": ["semantic"]}),
        ),
    ] {
        let refused = service
            .post(&format!("/v1/contexts/search/{kind}"), body)
            .send()
            .await;
        assert_eq!(refused.reason(), "FEATURE_UNAVAILABLE", "{kind}");
    }
}

/// An embedder that records each encoded query.
struct Noting {
    embedder: LocalEmbedder,
    /// Whether it returns a query's vector and its token vectors from one pass.
    in_one_pass: bool,
    queries: Arc<Mutex<Vec<String>>>,
}

impl Noting {
    fn note(&self, texts: &[String], role: Role) {
        if role == Role::Query {
            self.queries.lock().unwrap().extend_from_slice(texts);
        }
    }
}

#[async_trait::async_trait]
impl Embedder for Noting {
    fn model(&self) -> &Model {
        self.embedder.model()
    }

    fn chunk_sizes(&self) -> ChunkSizes {
        self.embedder.chunk_sizes()
    }

    fn token_starts(&self, text: &str) -> Vec<usize> {
        self.embedder.token_starts(text)
    }

    async fn embed(&self, texts: Vec<String>, role: Role) -> Result<Vec<Vec<f32>>, ProviderError> {
        self.note(&texts, role);
        self.embedder.embed(texts, role).await
    }

    async fn embed_with_tokens(
        &self,
        texts: Vec<String>,
        role: Role,
    ) -> Result<Vec<TextVectors>, ProviderError> {
        self.note(&texts, role);
        self.embedder.embed_with_tokens(texts, role).await
    }

    async fn embed_query(&self, query: String) -> Result<QueryVectors, ProviderError> {
        self.note(std::slice::from_ref(&query), Role::Query);
        let QueryVectors { vector, tokens } = self.embedder.embed_query(query).await?;
        Ok(QueryVectors {
            vector,
            tokens: tokens.filter(|_| self.in_one_pass),
        })
    }

    fn has_token_vectors(&self) -> bool {
        true
    }

    async fn token_vectors(
        &self,
        texts: Vec<String>,
        role: Role,
    ) -> Result<Option<Vec<TokenVectors>>, ProviderError> {
        self.note(&texts, role);
        self.embedder.token_vectors(texts, role).await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_query_is_encoded_once_for_a_search_that_is_reranked() {
    let service =
        start(&[with_model(), vec!["--rerank-timeout-ms=60000".to_owned()]].concat()).await;
    for text in TEXTS {
        service.store("t", text).await;
    }
    let searches = [
        ("semantic", json!({"query": "tags of threads"})),
        ("hybrid", json!({"query": "tags of threads"})),
        (
            "hybrid",
            json!({"query": "tags of threads", "search_modes": ["semantic"]}),
        ),
        (
            "hybrid",
            json!({"query": "tags agents", "search_modes": ["fts"]}),
        ),
    ];
    let mut scores = Vec::new();
    // An embedder that cannot return both in one pass encodes the query twice, except in the search that needs no
    // vector of the query.
    for (in_one_pass, encodings) in [(true, [1, 1, 1, 1]), (false, [2, 2, 2, 1])] {
        let queries = Arc::default();
        let embedder = LocalEmbedder::load(
            &ModelDirectory::new(model(), None),
            Prefixes::default(),
            ChunkSettings::default(),
        )
        .unwrap();
        service
            .engine
            .retrieval
            .use_embedder(Arc::new(Noting {
                embedder,
                in_one_pass,
                queries: Arc::clone(&queries),
            }))
            .await
            .unwrap();
        assert_eq!(service.engine.retrieval.why_no_semantic_search(), None);
        for ((kind, body), expected) in searches.iter().zip(encodings) {
            let found = search(&service, kind, body.clone()).await;
            let all: Vec<(i64, f64)> = found["results"]
                .as_array()
                .unwrap()
                .iter()
                .map(|hit| {
                    (
                        hit["id"].as_i64().unwrap(),
                        hit["scores"]["rerank_score"]
                            .as_f64()
                            .expect("it was reranked"),
                    )
                })
                .collect();
            assert!(all.len() > 1, "{found}");
            scores.push(all);
            let query = body["query"].as_str().unwrap();
            assert_eq!(
                std::mem::take(&mut *queries.lock().unwrap()),
                vec![query; expected],
                "{kind} {body} {in_one_pass}"
            );
        }
    }
    let in_two_passes = scores.split_off(searches.len());
    assert_eq!(scores, in_two_passes);
}

/// The results of a hybrid search over 30 long entries, and how many texts it encoded and how many were in memory.
async fn reranked_within_a_millisecond(service: &Service) -> (Value, [usize; 2]) {
    let body = json!({"query": "tags", "limit": 100, "explain_query": true});
    let found = search(service, "hybrid", body).await;
    let plan = found["stats"]["query_plan"].as_array().unwrap();
    let numbers = |line: &str| {
        let line = line.strip_prefix("rerank: ")?;
        let (encoded, rest) = line.split_once(" texts encoded, ")?;
        let (cached, rest) = rest.split_once(" in memory, ")?;
        let (beyond, _) = rest.split_once(" beyond the 1 ms")?;
        let [encoded, cached, beyond] = [encoded, cached, beyond].map(|n| n.parse().unwrap());
        assert_eq!(encoded + cached + beyond, 30, "{plan:?}");
        Some([encoded, cached])
    };
    let counts = plan.iter().filter_map(Value::as_str).find_map(numbers);
    let counts: [usize; 2] = counts.unwrap_or_else(|| panic!("{plan:?}"));
    let compared = counts[0] + counts[1];
    let line = format!("rerank: {compared} of 30 candidates in ");
    assert!(
        plan.iter()
            .any(|other| other.as_str().unwrap().starts_with(&line)),
        "{plan:?}"
    );
    (found, counts)
}

#[tokio::test(flavor = "multi_thread")]
async fn candidates_that_the_budget_does_not_suffice_for_have_a_place_among_the_others() {
    for database in Database::all().await {
        let flags = |cache: &str| {
            let own = ["--rerank-budget-ms=1".to_owned(), cache.to_owned()];
            [&with_model()[..3], &own[..]].concat()
        };
        let service = database.start(&flags("--rerank-cache-mb=0")).await;
        for n in 0..30 {
            let text = format!("{} tags {n}. ", TEXTS[n % TEXTS.len()]).repeat(40);
            service.store(&format!("t{n}"), &text).await;
        }
        let mut before = None;
        for _ in 0..2 {
            let (found, [encoded, cached]) = reranked_within_a_millisecond(&service).await;
            assert!((1..30).contains(&encoded) && cached == 0, "{found}");
            let score = |hit: &Value| hit["scores"]["rerank_score"].as_f64();
            let scores: Option<Vec<f64>> = hits(&found).iter().map(score).collect();
            let scores = scores.unwrap_or_else(|| panic!("each has a score: {found}"));
            assert!(
                scores.len() == 30 && scores.is_sorted_by(|a, b| a >= b),
                "{scores:?}"
            );
            assert!(scores[1] > scores[0] / 2.0, "no score jumps: {scores:?}");
            let ids: Vec<Value> = hits(&found).iter().map(|hit| hit["id"].clone()).collect();
            let reply = Some((ids, scores));
            assert!(before.is_none() || before == reply, "{before:?} {reply:?}");
            before = reply;
        }
        service.begin_stop();
        service.stopped().await;

        // After a start nothing is in memory. What is stored from then on is, and so is what a search has encoded.
        let service = database.start(&flags("--rerank-cache-mb=1")).await;
        service
            .patch("/v1/contexts/1", json!({"text": "tags tags tags"}))
            .send()
            .await;
        let mut remembered = 1;
        for _ in 0..3 {
            let (_, [encoded, cached]) = reranked_within_a_millisecond(&service).await;
            assert_eq!(cached, remembered);
            remembered += encoded;
        }
        service.begin_stop();
        service.stopped().await;
    }
}

/// An embedder that embeds a number of documents and then does not respond until it is released.
struct Halting {
    embedder: LocalEmbedder,
    documents: AtomicUsize,
    released: Semaphore,
}

#[async_trait::async_trait]
impl Embedder for Halting {
    fn model(&self) -> &Model {
        self.embedder.model()
    }

    fn chunk_sizes(&self) -> ChunkSizes {
        self.embedder.chunk_sizes()
    }

    fn token_starts(&self, text: &str) -> Vec<usize> {
        self.embedder.token_starts(text)
    }

    async fn embed(&self, texts: Vec<String>, role: Role) -> Result<Vec<Vec<f32>>, ProviderError> {
        let left = self
            .documents
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
                left.checked_sub(texts.len())
            });
        if role == Role::LateDocument || left.is_err() {
            let _ = self.released.acquire().await.expect("it is not closed");
        }
        self.embedder.embed(texts, role).await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_embeds_as_much_as_its_time_allows_and_says_how_many_entries_wait() {
    for database in Database::all().await {
        let service = database.start(&with_model()).await;
        let embedder = LocalEmbedder::load(
            &ModelDirectory::new(model(), None),
            Prefixes::default(),
            ChunkSettings::default(),
        );
        let embedder = Arc::new(Halting {
            embedder: embedder.unwrap(),
            documents: AtomicUsize::new(20),
            released: Semaphore::new(0),
        });
        let retrieval = &service.engine.retrieval;
        retrieval.use_embedder(embedder.clone()).await.unwrap();
        let entry = |n: usize| StoreContextRequest {
            thread_id: "t".to_owned(),
            source: "user".to_owned(),
            text: format!("{} {n}", TEXTS[n % TEXTS.len()]),
            ..StoreContextRequest::default()
        };
        let request = StoreContextBatchRequest {
            entries: (0..40).map(entry).collect(),
            atomic: Some(true),
        };
        let caller = Caller::local();
        let contexts = &service.engine.contexts;
        let storing = contexts.store_context_batch(&caller, request, WriteContext::default());
        let reply = context_store::call::within(Duration::from_secs(2), None, storing)
            .await
            .unwrap();
        // 16 texts are embedded at a time, and the second 16 are more than the embedder takes.
        assert_eq!(
            (reply.succeeded, reply.message.as_str()),
            (
                40,
                "Stored 40 of 40 contexts; the embeddings of 24 entries are pending and will be created in the background"
            )
        );
        let semantic = async || {
            let statistics = service.get("/v1/statistics").send().await.json();
            statistics["semantic_search"].clone()
        };
        let status = semantic().await;
        assert_eq!(
            (
                &status["embedding_count"],
                &status["pending_count"],
                &status["pending_seconds"]
            ),
            (&json!(16), &json!(24), &Value::Null)
        );
        let metrics = service.get("/metrics").send().await.body;
        assert!(
            metrics.contains("\ncontext_embeddings_pending 24\n"),
            "{metrics}"
        );
        assert!(
            metrics.contains("\ncontext_embeddings_pending_time_seconds NaN\n"),
            "{metrics}"
        );
        embedder.released.add_permits(Semaphore::MAX_PERMITS);
        until_embedded(&service, 40).await;
        let status = semantic().await;
        assert_eq!(
            (&status["pending_count"], &status["pending_seconds"]),
            (&json!(0), &json!(0))
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_entry_stored_before_the_provider_responded_for_the_first_time_waits_for_it() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let flags = [
        "--embedding-provider=ollama".to_owned(),
        format!("--ollama-host=http://{}", listener.local_addr().unwrap()),
    ];
    let service = start(&flags).await;
    let body = json!({"thread_id": "t", "source": "user", "text": "aaaa"});
    let storing = tokio::spawn(service.post("/v1/contexts", body).send());
    until("the entry waits", async || {
        let metrics = service.get("/metrics").send().await.body;
        metrics.contains("\ncontext_requests_in_flight 1\n")
    })
    .await;
    let server = tokio::spawn(ollama(listener));
    let reply = storing.await.unwrap();
    assert_eq!(
        reply.json()["message"],
        "Stored context 1",
        "{}",
        reply.body
    );
    server.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_query_that_the_model_cannot_read_is_searched_by_its_words_alone() {
    for database in Database::all().await {
        let service = database.start(&with_model()).await;
        for text in ["the database stores tags", "a zebra with stripes"] {
            let entry = json!({"thread_id": "t", "source": "user", "text": text});
            let stored = service.post("/v1/contexts", entry).send().await;
            assert_eq!(stored.status.as_u16(), 201);
        }
        // The network of the tests knows 40 words.
        let found = search(
            &service,
            "hybrid",
            json!({"query": "zebra stripes", "explain_query": true}),
        )
        .await;
        assert_eq!(found["search_modes_used"], json!(["fts"]), "{found}");
        assert_eq!(found["results"][0]["text_content"], "a zebra with stripes");
        assert!(
            found["results"][0]["relevance"].as_f64().unwrap() > 0.9,
            "{found}"
        );
        let plan = found["stats"]["query_plan"].to_string();
        assert!(
            plan.contains("semantic: left out, because the model"),
            "{plan}"
        );
        assert!(!plan.contains("late interaction"), "{plan}");
        let both = search(&service, "hybrid", json!({"query": "tags database"})).await;
        assert_eq!(
            both["search_modes_used"],
            json!(["fts", "semantic"]),
            "{both}"
        );
        let request = json!({"query": "zebra stripes", "search_modes": ["semantic"]});
        let alone = search(&service, "hybrid", request).await;
        assert_eq!(alone["search_modes_used"], json!(["semantic"]), "{alone}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn min_relevance_drops_what_is_not_about_the_query_and_a_warning_says_so() {
    for database in Database::all().await {
        let service = database.start(&with_model()).await;
        for text in ["the database stores tags", "agents search threads"] {
            let entry = json!({"thread_id": "t", "source": "user", "text": text});
            let stored = service.post("/v1/contexts", entry).send().await;
            assert_eq!(stored.status.as_u16(), 201);
        }
        for kind in ["semantic", "hybrid"] {
            let found = search(&service, kind, json!({"query": "the database tags"})).await;
            assert_eq!(found["count"], 2, "{found}");
            assert!(found["warnings"].is_null(), "{found}");
            let floor = json!({"query": "the database tags", "min_relevance": 0.3});
            let found = search(&service, kind, floor).await;
            assert_eq!(found["count"], 1, "{found}");
            assert_eq!(
                found["results"][0]["text_content"],
                "the database stores tags"
            );

            let found = search(&service, kind, json!({"query": "metadata meaning"})).await;
            let warnings = found["warnings"].to_string();
            assert!(warnings.contains("no entry is clearly relevant"), "{found}");
            let scores = &found["results"][0]["scores"];
            assert!(scores["rerank_score"].as_f64().unwrap() < 0.3, "{found}");
            let floor = json!({"query": "metadata meaning", "min_relevance": 0.3});
            let found = search(&service, kind, floor).await;
            assert_eq!(found["results"], json!([]), "{found}");
            let warnings = found["warnings"].to_string();
            assert!(
                warnings.contains("no entry has a relevance of at least 0.3"),
                "{found}"
            );
        }
    }
}
