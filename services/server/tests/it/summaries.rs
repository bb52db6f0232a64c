//! Summaries, which are created in the background, on each available database.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::extract::State;
use context_test_postgres::TestDatabase;
use context_test_support::{Reserved, until};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpListener;

use crate::service::Service;

/// A server with the API of Anthropic. The summary of a text is its first two words. Texts with the word refuse are
/// rejected, and those with the word poison fail. Those with the word flaky fail until another text has a summary.
async fn anthropic(listener: TcpListener) {
    let summarize = |State(is_mended): State<Arc<AtomicBool>>,
                     headers: http::HeaderMap,
                     axum::Json(request): axum::Json<Value>| async move {
        assert_eq!(headers["x-api-key"], "sk-of-the-test");
        let text = request["messages"][0]["content"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        if text.contains("refuse") {
            let body = json!({"type": "error", "error": {"type": "invalid_request_error", "message": "no"}});
            return (http::StatusCode::BAD_REQUEST, axum::Json(body));
        }
        if text.contains("poison") || (text.contains("flaky") && !is_mended.load(Ordering::Relaxed))
        {
            let body = json!({"type": "error", "error": {"type": "api_error", "message": "no"}});
            return (http::StatusCode::INTERNAL_SERVER_ERROR, axum::Json(body));
        }
        is_mended.store(true, Ordering::Relaxed);
        let summary: Vec<&str> = text.split(' ').take(2).collect();
        let body = json!({"type": "message", "content": [{"type": "text", "text": summary.join(" ")}], "stop_reason": "end_turn"});
        (http::StatusCode::OK, axum::Json(body))
    };
    let router = axum::Router::new()
        .route("/v1/messages", axum::routing::post(summarize))
        .with_state(Arc::new(AtomicBool::new(false)));
    axum::serve(listener, router).await.unwrap();
}

fn flags(address: SocketAddr) -> Vec<String> {
    [
        "--summary-provider=anthropic",
        "--summary-model=m",
        "--summary-api-key=sk-of-the-test",
        "--summary-min-content-length=12",
    ]
    .into_iter()
    .map(str::to_owned)
    .chain([format!("--summary-url=http://{address}")])
    .collect()
}

/// Flags of each database.
async fn databases(directory: &TempDir) -> Vec<(Vec<String>, Option<TestDatabase>)> {
    let file = format!(
        "--db-path={}",
        directory.path().join("contexts.db").display()
    );
    let mut all = vec![(vec![file], None)];
    if let Some(server) = TestDatabase::empty().await {
        let string = format!("--postgresql-connection-string={}", server.url());
        all.push((
            vec!["--storage-backend=postgresql".to_owned(), string],
            Some(server),
        ));
    }
    all
}

async fn start(database: &[String], more: &[String]) -> Service {
    Service::start_with(
        &database
            .iter()
            .chain(more)
            .map(String::as_str)
            .collect::<Vec<_>>(),
    )
    .await
}

async fn summary(service: &Service, id: i64) -> String {
    service
        .get(&format!("/v1/contexts/{id}"))
        .send()
        .await
        .json()["summary"]
        .as_str()
        .unwrap()
        .to_owned()
}

/// Waits until an entry has this summary.
async fn until_summarized(service: &Service, id: i64, expected: &str) {
    until("the entry has the summary", async || {
        summary(service, id).await == expected
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn long_texts_get_summaries_in_the_background_and_new_ones_with_new_texts() {
    let directory = TempDir::new().unwrap();
    for (database, _server) in databases(&directory).await {
        let provider = Reserved::new();
        let flags = flags(provider.address());
        tokio::spawn(anthropic(provider.listen()));
        let service = start(&database, &flags).await;
        let short = service.store("t", "only short").await;
        let refused = service.store("t", "texts that they refuse").await;
        let long = service.store("t", "Ann met Bob at the station").await;
        until_summarized(&service, long, "Ann met").await;
        let path = format!("/v1/contexts/{long}");
        let without_summary = service.get(&path).header("if-none-match", "\"1\"");
        assert_eq!(without_summary.send().await.status, 200);
        assert_eq!(
            (
                summary(&service, short).await,
                summary(&service, refused).await
            ),
            (String::new(), String::new())
        );
        let found = service
            .post("/v1/contexts/search", json!({"thread_id": "t"}))
            .send()
            .await
            .json();
        assert_eq!(found["results"][0]["summary"], "Ann met");
        let status =
            service.get("/v1/statistics").send().await.json()["summary_generation"].clone();
        let expected = json!({"enabled": true, "available": true, "provider": "anthropic", "model": "m", "summary_count": 1,
                              "coverage_percentage": 33.33, "min_content_length": 12});
        for (key, value) in expected.as_object().unwrap() {
            assert_eq!(&status[key], value, "{key}");
        }

        let change = |body: Value| service.patch(&format!("/v1/contexts/{long}"), body).send();
        change(json!({"text": "Eve waits for a train"})).await;
        until_summarized(&service, long, "Eve waits").await;
        change(json!({"text": "now short"})).await;
        assert_eq!(
            summary(&service, long).await,
            "",
            "a summary goes with its text"
        );
        let batch = json!({"entries": [{"thread_id": "t", "source": "user", "text": "one more long text"}]});
        let stored = service
            .post("/v1/contexts/batch", batch)
            .send()
            .await
            .json();
        until_summarized(
            &service,
            stored["results"][0]["context_id"].as_i64().unwrap(),
            "one more",
        )
        .await;
        service.begin_stop();
        service.stopped().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_minimum_length_beyond_what_the_model_reads_delays_no_summary() {
    let directory = TempDir::new().unwrap();
    for (database, _server) in databases(&directory).await {
        let provider = Reserved::new();
        let mut flags = flags(provider.address());
        flags.retain(|flag| !flag.starts_with("--summary-min-content-length"));
        flags.push("--summary-min-content-length=50000".to_owned());
        tokio::spawn(anthropic(provider.listen()));
        let service = start(&database, &flags).await;
        let long = service.store("t", &"Ann met Bob. ".repeat(4_000)).await;
        until_summarized(&service, long, "Ann met").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn while_the_provider_is_away_entries_are_stored_and_their_summaries_follow_over_a_restart() {
    let directory = TempDir::new().unwrap();
    for (database, _server) in databases(&directory).await {
        let provider = Reserved::new();
        let service = start(&database, &flags(provider.address())).await;
        let id = service.store("t", "Ann met Bob at the station").await;
        assert_eq!(summary(&service, id).await, "");
        service.begin_stop();
        service.stopped().await;

        let service = start(&database, &flags(provider.address())).await;
        tokio::spawn(anthropic(provider.listen()));
        until_summarized(&service, id, "Ann met").await;
        service.begin_stop();
        service.stopped().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_text_that_the_provider_fails_at_keeps_no_other_waiting_and_is_tried_again() {
    let directory = TempDir::new().unwrap();
    for (database, _server) in databases(&directory).await {
        let provider = Reserved::new();
        let service = start(&database, &flags(provider.address())).await;
        let failing = service.store("t", "a text with poison in it").await;
        let flaky = service.store("t", "a flaky text of the day").await;
        let other = service.store("t", "Ann met Bob at the station").await;
        tokio::spawn(anthropic(provider.listen()));
        until_summarized(&service, other, "Ann met").await;
        until_summarized(&service, flaky, "a flaky").await;
        assert_eq!(summary(&service, failing).await, "");
        service.begin_stop();
        service.stopped().await;
    }
}

/// Ollama, whose model `qwen3:0.6b` is pulled after the first request.
async fn ollama(listener: TcpListener) {
    let pulled = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let chat = move |axum::Json(request): axum::Json<Value>| async move {
        assert_eq!(request["model"], "qwen3:0.6b");
        if pulled.swap(true, std::sync::atomic::Ordering::Relaxed) {
            let body =
                json!({"message": {"role": "assistant", "content": "Ann met"}, "done": true});
            (http::StatusCode::OK, axum::Json(body))
        } else {
            let body = json!({"error": "model 'qwen3:0.6b' not found"});
            (http::StatusCode::NOT_FOUND, axum::Json(body))
        }
    };
    let router = axum::Router::new().route("/api/chat", axum::routing::post(chat));
    axum::serve(listener, router).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn summaries_that_are_demanded_come_from_ollama_once_it_has_the_default_model() {
    for switch in [
        "--enable-summary-generation=true",
        "--summary-provider=ollama",
    ] {
        let provider = Reserved::new();
        let host = format!("--ollama-host=http://{}", provider.address());
        let length = "--summary-min-content-length=12";
        let service =
            Service::start_with(&[switch, host.as_str(), length, "--embedding-provider=none"])
                .await;
        let id = service.store("t", "Ann met Bob at the station").await;
        tokio::spawn(ollama(provider.listen()));
        until_summarized(&service, id, "Ann met").await;
        let status =
            service.get("/v1/statistics").send().await.json()["summary_generation"].clone();
        assert_eq!(
            (&status["provider"], &status["model"]),
            (&json!("ollama"), &json!("qwen3:0.6b"))
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_model_there_are_none_and_the_statistics_say_why() {
    let service = Service::start().await;
    let status = service.get("/v1/statistics").send().await.json()["summary_generation"].clone();
    assert_eq!(
        (&status["enabled"], &status["provider"]),
        (&json!(false), &Value::Null)
    );
    assert!(
        status["reason"].as_str().unwrap().contains("SUMMARY_MODEL"),
        "{status}"
    );
}
