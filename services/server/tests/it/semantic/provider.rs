//! Storing and searching while the embedding provider is unavailable, fails or is slow.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use context_engine::{Caller, WriteContext};
use context_model::{StoreContextBatchRequest, StoreContextRequest};
use context_providers::local::{ChunkSettings, LocalEmbedder, ModelDirectory, Prefixes};
use context_providers::{Embedder, Model, ProviderError, Role};
use context_test_support::{Reserved, until};
use context_text::ChunkSizes;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use super::harness::{Database, TEXTS, ids, model, search, start, until_embedded, with_model};
use crate::service::Service;

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
        assert_eq!(ids(&found), [4, 5, 2], "the provider embedded the query");
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
                // Retries until the service has reached the provider.
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

        // A hybrid search by embeddings alone fails with a status that allows a retry. Others run without the provider.
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
async fn a_model_that_the_database_fails_to_register_is_registered_later() {
    let Some(database) = Database::postgres().await else {
        return;
    };
    let provider = Reserved::new();
    let flags = [
        "--embedding-provider=ollama".to_owned(),
        format!("--ollama-host={}", provider.address()),
    ];
    let service = database.start(&flags).await;
    service.store("t", "aaaa").await;
    let client = database.server.as_ref().unwrap().connect().await;
    let broken = "INSERT INTO context.settings (key, value) VALUES ('embedding_sets', 'broken')";
    client.batch_execute(broken).await.unwrap();
    let server = tokio::spawn(ollama(provider.listen()));
    until("the database has failed", async || {
        let statistics = service.get("/v1/statistics").send().await.json();
        let reason = statistics["semantic_search"]["reason"].as_str();
        reason.is_some_and(|reason| reason.contains("not registered"))
    })
    .await;
    let mended = "DELETE FROM context.settings WHERE key = 'embedding_sets'";
    client.batch_execute(mended).await.unwrap();
    until_embedded(&service, 1).await;
    server.abort();
    let _ = server.await;
}

/// An embedder that embeds a number of documents and then does not respond until it is released.
struct PausingEmbedder {
    embedder: LocalEmbedder,
    documents: AtomicUsize,
    released: Semaphore,
}

#[async_trait::async_trait]
impl Embedder for PausingEmbedder {
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
        let embedder = Arc::new(PausingEmbedder {
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
        let reply = context_store::call::within(Duration::from_secs(5), None, storing)
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
