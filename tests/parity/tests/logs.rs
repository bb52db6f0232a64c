//! No process logs what callers send or store, at any LOG_LEVEL: the tests log at DEBUG, which includes all others.

use std::fs::File;

use context_parity::Storage;
use context_test_postgres::TestDatabase;
use context_test_support::http::Request;
use context_test_support::{Home, Mcp, Process};
use serde_json::{Value, json};

/// A word that occurs in everything that the calls hold, and nowhere else.
const SECRET: &str = "quokkaquill";

/// Tool calls with the secret in every place: accepted ones, refused ones, and one of a tool that does not exist.
fn calls() -> Vec<(&'static str, Value)> {
    let entry = json!({"thread_id": SECRET, "source": "user", "text": format!("the {SECRET} of the entry"),
        "metadata": {"key": SECRET, SECRET: [SECRET]}, "tags": [SECRET]});
    vec![
        ("store_context", entry.clone()),
        ("store_context_batch", json!({"entries": [entry]})),
        (
            "update_context",
            json!({"context_id": 1, "text": format!("another {SECRET}")}),
        ),
        ("get_context_by_ids", json!({"context_ids": [1]})),
        (
            "search_context",
            json!({"metadata": {"key": SECRET}, "tags": [SECRET]}),
        ),
        (
            "fts_search_context",
            json!({"query": SECRET, "highlight": true}),
        ),
        (
            "hybrid_search_context",
            json!({"query": SECRET, "explain_query": true}),
        ),
        ("semantic_search_context", json!({"query": SECRET})),
        ("list_threads", json!({})),
        (
            "create_artifact",
            json!({"content": format!("# {SECRET}\n{SECRET}")}),
        ),
        ("search_artifacts", json!({"query": SECRET})),
        // Refused.
        (
            "fts_search_context",
            json!({"query": format!("({SECRET} AND"), "mode": "boolean"}),
        ),
        ("search_context", json!({"limit": SECRET})),
        ("search_context", json!({SECRET: SECRET})),
        (
            "search_context",
            json!({"metadata_filters": [{"key": "key", "operator": SECRET, "value": SECRET}]}),
        ),
        (
            "store_context",
            json!({"thread_id": "t", "source": SECRET, "text": SECRET}),
        ),
        ("get_artifact", json!({"artifact_id": SECRET})),
        (
            "delete_context",
            json!({"thread_id": SECRET, "context_ids": [1]}),
        ),
        (SECRET, json!({SECRET: SECRET})),
    ]
}

/// Sends every call over HTTP, alone and in a batch, and two bodies that are no message.
async fn over_http(gateway: &Process) {
    let post = |body: String| {
        Request::post(gateway.address(), "/mcp", &Value::Null)
            .body(body)
            .header("accept", "application/json")
            .header("mcp-protocol-version", "2025-03-26")
    };
    let messages: Vec<Value> = calls()
        .into_iter()
        .map(|(tool, arguments)| {
            let params = json!({"name": tool, "arguments": arguments});
            json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
        })
        .collect();
    for message in &messages {
        post(message.to_string()).send().await;
    }
    let batch = post(json!(messages).to_string()).send().await.json();
    assert_eq!(batch.as_array().expect("responses").len(), messages.len());
    for body in [
        format!("{{\"{SECRET}\": "),
        json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": SECRET}).to_string(),
    ] {
        post(body).send().await;
    }
}

/// Sends entries and queries over REST: accepted ones, and refused ones.
async fn over_rest(service: &Process) {
    let address = service.address();
    let mut entry = calls()[0].1.clone();
    entry["text"] = json!(format!("the {SECRET} over REST"));
    for (path, body, status) in [
        ("/v1/contexts", entry, 201_u16),
        ("/v1/contexts", json!({SECRET: SECRET}), 400),
        ("/v1/contexts/search/fts", json!({"query": SECRET}), 200),
        ("/v1/contexts/search", json!(SECRET), 400),
    ] {
        let reply = Request::post(address, path, &body).send().await;
        assert_eq!(reply.status, status, "{path} with {body}: {}", reply.body);
    }
    for (path, status) in [
        (format!("/v1/artifacts/search?query={SECRET}"), 200_u16),
        (format!("/v1/contexts?ids={SECRET}"), 400),
        (format!("/v1/artifacts/{SECRET}"), 400),
        (format!("/{SECRET}"), 404),
    ] {
        let reply = Request::get(address, &path).send().await;
        assert_eq!(reply.status, status, "{path}: {}", reply.body);
    }
}

async fn nothing_is_logged(storage: Storage) {
    let database = match storage {
        Storage::Sqlite => None,
        Storage::Postgres => Some(TestDatabase::empty().await.expect("there is a server")),
    };
    let mut home = Home::new()
        .with("LOG_LEVEL", "DEBUG")
        .with("EMBEDDING_PROVIDER", "none");
    if let Some(database) = &database {
        home = home
            .with("STORAGE_BACKEND", "postgresql")
            .with("POSTGRESQL_CONNECTION_STRING", database.url());
    }
    let service = home.start().await;
    let mut http = home.command("context-gateway");
    http.arg("http");
    let http = home.start_as(http).await;
    let log = home.path().join("stdio.log");
    let stderr = File::create(&log).expect("a log").into();
    let stdio = Mcp::start_with(home.command("context-gateway"), stderr).await;

    over_http(&http).await;
    over_rest(&service).await;
    for (tool, arguments) in calls() {
        stdio.tool(tool, &arguments).await;
    }
    stdio.request("tools/call", json!(SECRET)).await;
    stdio.leave().await;

    let stdio = std::fs::read_to_string(&log).expect("a log");
    for (process, log, line) in [
        ("the service", service.log(), "Rejected a request"),
        (
            "the gateway over HTTP",
            http.log(),
            "Tool call succeeded tool=\"store_context\"",
        ),
        (
            "the gateway on stdio",
            stdio,
            "Tool call succeeded tool=\"store_context\"",
        ),
    ] {
        assert!(log.contains(line), "{process} logs at DEBUG:\n{log}");
        let leaks: Vec<&str> = log.lines().filter(|line| line.contains(SECRET)).collect();
        assert_eq!(leaks, Vec::<&str>::new(), "{process}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn at_debug_no_process_logs_what_callers_send_or_store() {
    nothing_is_logged(Storage::Sqlite).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn at_debug_no_process_logs_what_callers_send_or_store_on_postgresql() {
    if context_test_postgres::server().is_some() {
        nothing_is_logged(Storage::Postgres).await;
    }
}
