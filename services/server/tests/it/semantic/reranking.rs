//! Reranking of search results by late interaction or by a cross-encoder.

use std::sync::{Arc, Mutex};

use context_providers::local::{ChunkSettings, LocalEmbedder, ModelDirectory, Prefixes};
use context_providers::{
    Embedder, Model, ProviderError, QueryVectors, Role, TextVectors, TokenVectors,
};
use context_text::ChunkSizes;
use serde_json::{Value, json};

use super::harness::{Database, TEXTS, hits, ids, model, search, start, with_model};
use crate::service::Service;

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
            // No entry contains both words, so the entries with one of them are found and marked.
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
                !scores.is_empty()
                    && scores.is_sorted_by(|a, b| a >= b)
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
        let is_null = |hit: &Value| hit["scores"].get("rerank_score") == Some(&Value::Null);
        assert!(rest.iter().all(is_null), "{rest:?}");
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
        // On a page without any reranked result the key is there too.
        for (kind, offset) in [("fts", 60), ("semantic", 60)] {
            let page = json!({"query": "tags", "limit": 3, "offset": offset});
            let page = search(&service, kind, page).await;
            assert!(hits(&page).iter().all(is_null), "{kind}: {page}");
            assert_eq!(hits(&page).len(), 3, "{page}");
        }
        service.begin_stop();
        service.stopped().await;
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

/// An embedder that records each encoded query.
struct RecordingEmbedder {
    embedder: LocalEmbedder,
    /// Whether it returns a query's vector and its token vectors from one pass.
    in_one_pass: bool,
    queries: Arc<Mutex<Vec<String>>>,
}

impl RecordingEmbedder {
    fn record(&self, texts: &[String], role: Role) {
        if role == Role::Query {
            self.queries.lock().unwrap().extend_from_slice(texts);
        }
    }
}

#[async_trait::async_trait]
impl Embedder for RecordingEmbedder {
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
        self.record(&texts, role);
        self.embedder.embed(texts, role).await
    }

    async fn embed_with_tokens(
        &self,
        texts: Vec<String>,
        role: Role,
    ) -> Result<Vec<TextVectors>, ProviderError> {
        self.record(&texts, role);
        self.embedder.embed_with_tokens(texts, role).await
    }

    async fn embed_query(&self, query: String) -> Result<QueryVectors, ProviderError> {
        self.record(std::slice::from_ref(&query), Role::Query);
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
        self.record(&texts, role);
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
    // Without `in_one_pass` a query is encoded twice: for its vector, and for its token vectors. The last search needs
    // no vector.
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
            .use_embedder(Arc::new(RecordingEmbedder {
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

        // After a start no token vectors are in memory. Those of entries stored later, and of texts that a search
        // encoded, are.
        let service = database.start(&flags("--rerank-cache-mb=1")).await;
        service
            .patch("/v1/contexts/1", json!({"text": "tags tags tags"}))
            .send()
            .await;
        let mut in_memory = 1;
        for _ in 0..3 {
            let (_, [encoded, cached]) = reranked_within_a_millisecond(&service).await;
            assert_eq!(cached, in_memory);
            in_memory += encoded;
        }
        service.begin_stop();
        service.stopped().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_show_each_entry_once_although_the_budget_suffices_for_few_texts() {
    for database in Database::all().await {
        let flags = |cache: &str| {
            let own = ["--rerank-budget-ms=1".to_owned(), cache.to_owned()];
            [&with_model()[..3], &own[..]].concat()
        };
        let service = database.start(&flags("--rerank-cache-mb=0")).await;
        for n in 0..30 {
            // Two entries have the same text. A page that encodes one of them compares both.
            let text = format!("{} tags {}. ", TEXTS[n % TEXTS.len()], n / 8).repeat(40);
            service.store(&format!("t{n}"), &text).await;
        }
        service.begin_stop();
        service.stopped().await;

        let service = database.start(&flags("--rerank-cache-mb=1")).await;
        let page = async |kind: &str, offset: usize| {
            let body =
                json!({"query": "tags", "limit": 3, "offset": offset, "explain_query": true});
            let found = search(&service, kind, body).await;
            let plan = found["stats"]["query_plan"].to_string();
            let encodes_nothing = plan.contains("rerank: 0 texts encoded");
            (found, encodes_nothing)
        };
        let (found, encodes_nothing) = page("hybrid", 3).await;
        assert!(!encodes_nothing, "nothing was in memory: {found}");
        for kind in ["fts", "semantic", "hybrid"] {
            let mut shown = Vec::new();
            let mut scores = Vec::new();
            for offset in (0..30).step_by(3) {
                let (found, encodes_nothing) = page(kind, offset).await;
                assert!(offset == 0 || encodes_nothing, "{kind}: {found}");
                let score = |hit: &Value| hit["scores"]["rerank_score"].as_f64().unwrap();
                scores.extend(hits(&found).iter().map(score));
                shown.extend(ids(&found));
            }
            assert!(scores.is_sorted_by(|a, b| a >= b), "{kind}: {scores:?}");
            shown.sort_unstable();
            let distinct = shown.chunk_by(|a, b| a == b).count();
            assert_eq!((shown.len(), distinct), (30, 30), "{kind}: {shown:?}");
        }
        service.begin_stop();
        service.stopped().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn later_pages_encode_texts_too_when_none_are_cached() {
    for database in Database::all().await {
        let flags = |more: &str| {
            let own = ["--rerank-cache-mb=0".to_owned(), more.to_owned()];
            [&with_model()[..], &own[..]].concat()
        };
        let service = database.start(&flags("--rerank-store-tokens=false")).await;
        for text in TEXTS {
            service.store("t", text).await;
        }
        service.begin_stop();
        service.stopped().await;

        let service = database.start(&flags("--rerank-store-tokens=true")).await;
        service.store("t", "tags of threads").await;
        for offset in [0, 1] {
            let body =
                json!({"query": "tags", "limit": 1, "offset": offset, "explain_query": true});
            let found = search(&service, "semantic", body).await;
            let plan = found["stats"]["query_plan"].to_string();
            assert!(
                plan.contains("of 1 entries were stored, of 4 not")
                    && plan.contains("rerank: 4 texts encoded, 0 in memory, 0 beyond"),
                "{offset}: {plan}"
            );
        }
        service.begin_stop();
        service.stopped().await;
    }
}
