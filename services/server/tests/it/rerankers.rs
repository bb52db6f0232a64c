//! Reranking by a provider over HTTP.

use std::net::SocketAddr;

use context_service::config::Predecessor;
use context_test_support::Reserved;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::service::{Service, settings};

/// A server with the API of Cohere. It scores longer texts lower, which reverses the full-text order of these entries.
async fn cohere(listener: TcpListener) {
    let rerank = |headers: http::HeaderMap, axum::Json(request): axum::Json<Value>| async move {
        assert_eq!(headers["authorization"], "Bearer key-of-the-test");
        assert_eq!(request["model"], "m");
        let texts = request["documents"].as_array().unwrap().iter().enumerate();
        let score = |text: &Value| 1.0 / text.as_str().unwrap().len() as f64;
        let mut results: Vec<(usize, f64)> =
            texts.map(|(index, text)| (index, score(text))).collect();
        results.sort_by(|a, b| b.1.total_cmp(&a.1));
        let results: Vec<Value> = results
            .iter()
            .map(|(index, score)| json!({"index": index, "relevance_score": score}))
            .collect();
        axum::Json(
            json!({"id": "a", "results": results, "meta": {"billed_units": {"search_units": 1}}}),
        )
    };
    let router = axum::Router::new().route("/v2/rerank", axum::routing::post(rerank));
    axum::serve(listener, router).await.unwrap();
}

fn flags(address: SocketAddr) -> Vec<String> {
    [
        "--enable-reranking=true",
        "--rerank-provider=cohere",
        "--rerank-model=m",
        "--rerank-api-key=key-of-the-test",
    ]
    .into_iter()
    .map(str::to_owned)
    .chain([format!("--rerank-url=http://{address}")])
    .collect()
}

fn as_strs(flags: &[String]) -> Vec<&str> {
    flags.iter().map(String::as_str).collect()
}

async fn search(service: &Service, kind: &str) -> Value {
    let reply = service
        .post(
            &format!("/v1/contexts/search/{kind}"),
            json!({"query": "tags", "explain_query": true}),
        )
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

#[tokio::test(flavor = "multi_thread")]
async fn a_provider_orders_the_results_and_while_it_is_away_they_keep_their_order() {
    let provider = Reserved::new();
    // The provider does not respond yet. Reranking with it needs no embedding model.
    let service = Service::start_with(&as_strs(&flags(provider.address()))).await;
    let mut stored = Vec::new();
    // Each in its own thread, because words of the context window would count too.
    for (thread, text) in [
        ("a", "tags tags tags of every kind"),
        ("b", "tags and tags of a kind"),
        ("c", "tags of a kind"),
    ] {
        stored.push(service.store(thread, text).await);
    }
    for kind in ["fts", "hybrid"] {
        let away = search(&service, kind).await;
        assert_eq!(ids(&away), stored, "in full-text order");
        assert!(
            away["results"]
                .as_array()
                .unwrap()
                .iter()
                .all(|hit| hit["scores"]["rerank_score"].is_null())
        );
        assert!(
            away["warnings"]
                .to_string()
                .contains("results are not reranked"),
            "{kind}: {}",
            away["warnings"]
        );
    }

    let server = tokio::spawn(cohere(provider.listen()));
    stored.reverse();
    for kind in ["fts", "hybrid"] {
        let found = search(&service, kind).await;
        assert_eq!(ids(&found), stored, "in the provider's order");
        let scores: Vec<f64> = found["results"]
            .as_array()
            .unwrap()
            .iter()
            .map(|hit| hit["scores"]["rerank_score"].as_f64().unwrap())
            .collect();
        assert!(
            scores.is_sorted_by(|a, b| a > b)
                && scores.iter().all(|score| (0.0..=1.0).contains(score)),
            "{kind}: {scores:?}"
        );
        assert!(
            found["stats"]["query_plan"]
                .to_string()
                .contains("rerank: by m of cohere"),
            "{kind}: {}",
            found["stats"]
        );
        assert!(
            !found["warnings"].to_string().contains("reranked"),
            "{kind}: {}",
            found["warnings"]
        );
    }
    let statistics = service.get("/v1/statistics").send().await.json();
    let expected = json!({"enabled": true, "available": true, "provider": "cohere", "model": "m"});
    for (key, value) in expected.as_object().unwrap() {
        assert_eq!(&statistics["reranking"][key], value, "{key}");
    }
    server.abort();
    let _ = server.await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_doctor_names_the_reranker_and_says_whether_it_responds() {
    let provider = Reserved::new();
    let directory = tempfile::tempdir().unwrap();
    let flags = flags(provider.address());
    let config = settings(directory.path(), &as_strs(&flags));
    let away = context_service::examine(&config, &Predecessor::default()).await;
    assert!(
        !away.healthy && away.report.contains("✘ reranking  `m` of cohere"),
        "{}",
        away.report
    );
    let server = tokio::spawn(cohere(provider.listen()));
    let running = context_service::examine(&config, &Predecessor::default()).await;
    assert!(
        running.healthy && running.report.contains("✔ reranking  `m` works (cohere)"),
        "{}",
        running.report
    );
    assert!(!format!("{}{config:?}", running.report).contains("key-of-the-test"));
    server.abort();
    let _ = server.await;
}
