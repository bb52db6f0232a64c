//! What happens when a service starts with another embedding model, or with its first one.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use context_engine::Reembedded;
use context_model::Reason;
use context_providers::local::{ChunkSettings, LocalEmbedder, ModelDirectory, Prefixes};
use context_providers::{Embedder, Model, ProviderError, Role};
use context_text::ChunkSizes;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::harness::{Database, TEXTS, ids, model, named, search, until_embedded, with_model};
use crate::service::Service;

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
                json!({"query": TEXTS[1], "limit": 100}),
            )
            .await;
            assert_eq!(
                ids(&found).len(),
                60,
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

/// An embedder that refuses some calls, is down for the first others, and then fails on texts with the word poison.
struct FailingEmbedder {
    inner: LocalEmbedder,
    calls: AtomicU32,
    refused: Range<u32>,
    calls_down: AtomicU32,
}

impl FailingEmbedder {
    fn new(calls_down: u32) -> Arc<Self> {
        Self::refusing(0..0, calls_down)
    }

    fn refusing(refused: Range<u32>, calls_down: u32) -> Arc<Self> {
        let model = ModelDirectory::new(model(), Some("second"));
        let inner = LocalEmbedder::load(&model, Prefixes::default(), ChunkSettings::default());
        Arc::new(Self {
            inner: inner.unwrap(),
            calls: AtomicU32::new(0),
            refused,
            calls_down: AtomicU32::new(calls_down),
        })
    }
}

#[async_trait::async_trait]
impl Embedder for FailingEmbedder {
    fn model(&self) -> &Model {
        self.inner.model()
    }

    fn chunk_sizes(&self) -> ChunkSizes {
        self.inner.chunk_sizes()
    }

    fn token_starts(&self, text: &str) -> Vec<usize> {
        self.inner.token_starts(text)
    }

    async fn embed(&self, texts: Vec<String>, role: Role) -> Result<Vec<Vec<f32>>, ProviderError> {
        let call = self.calls.fetch_add(1, Ordering::Relaxed);
        if self.refused.contains(&call) {
            return Err(ProviderError::Refused("the quota is spent".to_owned()));
        }
        let is_down = self
            .calls_down
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |calls| {
                calls.checked_sub(1)
            })
            .is_ok();
        if is_down || texts.iter().any(|text| text.contains("poison")) {
            return Err(ProviderError::Unavailable {
                what: "it failed".to_owned(),
                retry_after: is_down.then_some(Duration::from_millis(1)),
            });
        }
        self.inner.embed(texts, role).await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_switch_leaves_out_all_entries_that_a_provider_which_responds_fails_at() {
    for database in Database::all().await {
        let service = database.start(&named("first")).await;
        for n in 0..12 {
            service.store("t", &format!("poison {n}")).await;
        }
        let stored = service.store("t", TEXTS[1]).await;
        let background = &service.engine.background;
        let outcome = background.reembed(FailingEmbedder::new(0), |_| ()).await;
        assert_eq!(outcome.unwrap(), Reembedded::Now { refused: 12 });
        let found = search(&service, "semantic", json!({"query": TEXTS[1]})).await;
        assert_eq!(
            (ids(&found), &found["model"]),
            (vec![stored], &json!("second"))
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_switch_leaves_out_nothing_because_the_provider_was_down() {
    for calls_down in 1..9 {
        let database = Database::sqlite();
        let service = database.start(&named("first")).await;
        for text in TEXTS {
            service.store("t", text).await;
        }
        let background = &service.engine.background;
        let outcome = background.reembed(FailingEmbedder::new(calls_down), |_| ());
        assert_eq!(outcome.await.unwrap(), Reembedded::Now { refused: 0 });
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_switch_to_a_provider_that_comes_to_refuse_every_text_keeps_the_old_vectors() {
    for database in Database::all().await {
        let service = database.start(&named("first")).await;
        for n in 0..20 {
            service.store("t", &format!("apple {n}")).await;
        }
        let stored = service.store("t", TEXTS[1]).await;
        let background = &service.engine.background;
        // It embeds the first page, and refuses the rest.
        let embedder = FailingEmbedder::refusing(1..u32::MAX, 0);
        let outcome = background.reembed(embedder, |_| ()).await;
        assert_eq!(outcome.unwrap_err().reason, Reason::FeatureUnavailable);
        let found = search(&service, "semantic", json!({"query": TEXTS[1], "limit": 1})).await;
        assert_eq!(
            (ids(&found), &found["model"]),
            (vec![stored], &json!("first"))
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn entries_are_embedded_soon_after_a_provider_that_refused_every_text_accepts_them() {
    let database = Database::sqlite();
    let service = database
        .start(&["--embedding-provider=none".to_owned()])
        .await;
    for text in TEXTS {
        service.store("t", text).await;
    }
    // It refuses the four texts, first together and then one by one, and the text by which that is recognised.
    let embedder = FailingEmbedder::refusing(0..6, 0);
    let retrieval = &service.engine.retrieval;
    retrieval.use_embedder(embedder).await.unwrap();
    until_embedded(&service, 4).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_switch_to_one_model_refuses_a_switch_to_another() {
    let database = Database::sqlite();
    let service = database.start(&named("first")).await;
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let switch = |model: &str| {
        let flags = [
            "--embedding-provider=ollama".to_owned(),
            format!("--ollama-host=http://{}", silent.local_addr().unwrap()),
            format!("--embedding-model={model}"),
            format!("--socket={}", service.socket.display()),
        ];
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        let elsewhere = TempDir::new().unwrap();
        let config = crate::service::settings(elsewhere.path(), &flags);
        tokio::spawn(async move { context_service::reembed(&config).await })
    };
    let (mut one, mut other) = (switch("second"), switch("third"));
    // The provider does not respond, so the switch that was first continues.
    let refused = tokio::select! {
        refused = &mut one => refused,
        refused = &mut other => refused,
    };
    let why = refused.unwrap().unwrap_err();
    assert!(
        why.contains("is switching to a model with other settings"),
        "{why}"
    );
    one.abort();
    other.abort();
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

        // No service uses the database, so the command itself embeds the entries.
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
async fn hybrid_search_uses_words_when_the_database_has_no_vectors_of_its_model_any_more() {
    let Some(database) = Database::postgres().await else {
        return;
    };
    let service = database.start(&named("first")).await;
    let stored = service.store("t", TEXTS[3]).await;
    // An hour after a change to another model, the vectors of the previous one are deleted. This service still uses the
    // previous one.
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
