//! `context-service doctor` names each misconfiguration.

use std::net::SocketAddr;
use std::process::Command;

use context_test_postgres::TestDatabase;
use context_test_support::http::Request;
use context_test_support::{Home, Reserved};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::process::{program, run};
use crate::semantic::harness::model;

/// A server with the API of Ollama, whose models return vectors with two dimensions.
async fn ollama(listener: TcpListener) {
    let embed = |axum::Json(request): axum::Json<Value>| async move {
        let texts = request["input"].as_array().map_or(1, Vec::len);
        axum::Json(json!({"model": request["model"], "embeddings": vec![[0.6, 0.8]; texts]}))
    };
    let router = axum::Router::new().route("/api/embed", axum::routing::post(embed));
    axum::serve(listener, router).await.unwrap();
}

/// Starts that server and returns its address.
async fn start_ollama() -> SocketAddr {
    let reserved = Reserved::new();
    let address = reserved.address();
    tokio::spawn(ollama(reserved.listen()));
    address
}

/// Runs the doctor. Checks that it fails, and returns the lines that are not `✔`.
async fn faults(command: Command) -> String {
    let (is_healthy, report) = report(command).await;
    assert!(!is_healthy, "{report}");
    report
}

/// Runs the doctor. Checks that it succeeds, and returns the lines that are not `✔`.
async fn warnings(command: Command) -> String {
    let (is_healthy, report) = report(command).await;
    assert!(is_healthy, "{report}");
    report
}

async fn report(mut command: Command) -> (bool, String) {
    command.arg("doctor");
    let (code, report, stderr) = tokio::task::spawn_blocking(move || run(&mut command))
        .await
        .unwrap();
    assert!(code == 0 || code == 1, "{stderr}");
    let lines: Vec<&str> = report
        .lines()
        .filter(|line| !line.starts_with('✔'))
        .collect();
    (code == 0, lines.join("\n"))
}

fn with(home: &Home, settings: &[(&str, &str)]) -> Command {
    let mut command = program(home);
    command.envs(settings.iter().copied());
    command
}

#[test]
fn a_malformed_value_is_named_with_what_is_allowed() {
    let home = Home::new();
    for (name, value, rule) in [
        ("MAX_IMAGE_SIZE_MB", "huge", "from 1 to 1024"),
        ("POSTGRESQL_SSL_MODE", "on", "verify-full"),
        ("ENABLE_RERANKING", "perhaps", "true, false or auto"),
        ("CHUNK_SIZE", "0", "from 16 to 100000"),
    ] {
        let (code, _, stderr) = run(with(&home, &[(name, value)]).arg("doctor"));
        assert_eq!(code, 2, "{name}: {stderr}");
        assert!(
            stderr.contains(&format!("{name} (--")) && stderr.contains(&format!("is `{value}`")),
            "{stderr}"
        );
        assert!(stderr.contains(rule), "{stderr}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_system_without_certificates_is_named() {
    let home = Home::new();
    let nothing = home.path().join("nothing");
    std::fs::create_dir(&nothing).unwrap();
    let without = |settings: &[(&str, &str)]| {
        let mut command = with(&home, settings);
        command
            .env("SSL_CERT_FILE", "/dev/null")
            .env("SSL_CERT_DIR", &nothing);
        command
    };
    let report = warnings(without(&[])).await;
    assert!(
        report.contains("! https") && report.contains("ca-certificates"),
        "{report}"
    );
    let verified = without(&[
        ("STORAGE_BACKEND", "postgresql"),
        ("POSTGRESQL_HOST", "127.0.0.1"),
        ("POSTGRESQL_SSL_MODE", "verify-full"),
    ]);
    let report = faults(verified).await;
    assert!(
        report.contains("✘ database") && report.contains("has no certificates"),
        "{report}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unreachable_provider_is_named_with_its_address() {
    let home = Home::new();
    let unreachable = Reserved::new();
    let url = format!("http://{}", unreachable.address());
    let report = faults(with(&home, &[("OLLAMA_HOST", &url)])).await;
    assert!(
        report.contains(&format!(
            "✘ embeddings the embedding provider at {url} does not respond"
        )),
        "{report}"
    );
    let summaries = [
        ("SUMMARY_PROVIDER", "ollama"),
        ("SUMMARY_MODEL", "m"),
        ("SUMMARY_URL", url.as_str()),
    ];
    let report = faults(with(&home, &summaries)).await;
    assert!(
        report.contains("✘ summaries  `m` of ollama: the provider does not respond"),
        "{report}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn other_dimensions_than_the_model_s_are_named() {
    let home = Home::new();
    let url = format!("http://{}", start_ollama().await);
    let ollama = [("OLLAMA_HOST", url.as_str()), ("EMBEDDING_DIM", "768")];
    let report = faults(with(&home, &ollama)).await;
    assert!(
        report.contains("✘ embeddings the embedding provider at")
            && report.contains("the model's vectors have 2 dimensions, but EMBEDDING_DIM is 768"),
        "{report}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn vectors_of_another_model_are_named_with_and_without_a_service() {
    let home = Home::new();
    let directory = model();
    let mut process = home
        .start_as(with(&home, &[("EMBEDDING_MODEL_PATH", &directory)]))
        .await;
    let entry = json!({"thread_id": "t", "source": "user", "text": "a text with a vector"});
    let reply = Request::post(process.address(), "/v1/contexts", &entry)
        .send()
        .await;
    assert_eq!(reply.status, 201, "{}", reply.body);
    process.stop();
    assert!(process.ended().await.success());

    let url = format!("http://{}", start_ollama().await);
    let ollama = [("OLLAMA_HOST", url.as_str())];
    let words = [
        "the database holds vectors of the model",
        "(2)",
        "context-service reembed",
    ];
    let report = faults(with(&home, &ollama)).await;
    for words in words {
        assert!(report.contains(words), "{report}");
    }
    let process = home.start_as(with(&home, &ollama)).await;
    context_test_support::until("the service has called the provider", async || {
        let statistics = Request::get(process.address(), "/v1/statistics")
            .send()
            .await;
        statistics.json()["semantic_search"]["reason"]
            .as_str()
            .is_some_and(|reason| reason.contains("reembed"))
    })
    .await;
    let report = faults(with(&home, &ollama)).await;
    assert!(
        report.contains("✘ embeddings the running service has no semantic search: the database"),
        "{report}"
    );
    // With the first model there is nothing to report.
    assert!(process.terminate().await.success());
    let first = with(&home, &[("EMBEDDING_MODEL_PATH", &directory)]);
    assert_eq!(warnings(first).await, "");
}

#[tokio::test(flavor = "multi_thread")]
async fn features_that_are_on_without_a_model_are_named() {
    let home = Home::new();
    let report = warnings(with(&home, &[("ENABLE_RERANKING", "true")])).await;
    assert!(
        report.starts_with("! reranking  ENABLE_RERANKING is true, which needs"),
        "{report}"
    );
    let summaries = [
        ("ENABLE_SUMMARY_GENERATION", "true"),
        ("SUMMARY_PROVIDER", "none"),
    ];
    let report = warnings(with(&home, &summaries)).await;
    assert!(
        report.starts_with("! summaries  ENABLE_SUMMARY_GENERATION is true, but"),
        "{report}"
    );
    let without_provider = [
        ("ENABLE_SUMMARY_GENERATION", "true"),
        ("SUMMARY_PROVIDER", "none"),
        ("SUMMARY_MODEL", "qwen3:0.6b"),
    ];
    let report = warnings(with(&home, &without_provider)).await;
    assert!(report.contains("SUMMARY_PROVIDER is `none`"), "{report}");
    let local = [
        ("ENABLE_SEMANTIC_SEARCH", "true"),
        ("EMBEDDING_PROVIDER", "local"),
    ];
    let report = faults(with(&home, &local)).await;
    assert!(
        report.contains(
            "✘ settings   ENABLE_SEMANTIC_SEARCH is true, which needs an embedding model"
        ),
        "{report}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_downloaded_model_that_explicit_settings_override_is_named() {
    let home = Home::new();
    let cache = home.path().join("context-service/models/all-MiniLM-L6-v2");
    std::fs::create_dir_all(cache.parent().unwrap()).unwrap();
    std::os::unix::fs::symlink(model(), &cache).unwrap();
    let url = format!("http://{}", start_ollama().await);
    let mut command = with(&home, &[("OLLAMA_HOST", &url)]);
    command.env("XDG_CACHE_HOME", home.path());
    let report = warnings(command).await;
    assert!(
        report.contains("! embeddings the downloaded model `all-MiniLM-L6-v2` is not used, because of OLLAMA_HOST;"),
        "{report}"
    );
    let mut command = with(&home, &[]);
    command.env("XDG_CACHE_HOME", home.path());
    assert_eq!(warnings(command).await, "");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_cache_that_cannot_be_written_is_named() {
    let home = Home::new();
    // Not a directory, because root may write to every directory.
    let file = home.path().join("file");
    std::fs::write(&file, "").unwrap();
    let mut command = with(&home, &[]);
    command.env("XDG_CACHE_HOME", &file);
    let report = warnings(command).await;
    assert!(
        report.contains("! embeddings `context-service fetch-model` cannot write to")
            && report.contains("XDG_CACHE_HOME"),
        "{report}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_external_database_without_its_address_is_named() {
    let home = Home::new();
    let unreachable = Reserved::new();
    let port = unreachable.address().port().to_string();
    let external = [
        ("STORAGE_BACKEND", "postgresql"),
        ("POSTGRESQL_PORT", port.as_str()),
    ];
    let report = faults(with(&home, &external)).await;
    assert!(
        report.contains("✘ database")
            && report.contains(&format!("localhost:{port}"))
            && report.contains("POSTGRESQL_CONNECTION_STRING is not set"),
        "{report}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_the_wanted_tls_is_named() {
    let Some(database) = TestDatabase::empty().await else {
        return;
    };
    let home = Home::new();
    let secured = [
        ("STORAGE_BACKEND", "postgresql"),
        ("POSTGRESQL_CONNECTION_STRING", database.url()),
        ("POSTGRESQL_SSL_MODE", "verify-full"),
    ];
    let report = faults(with(&home, &secured)).await;
    assert!(
        report.contains("✘ database") && report.contains("TLS"),
        "{report}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_port_that_another_program_has_is_named_with_its_setting() {
    let home = Home::new();
    let other = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = other.local_addr().unwrap().to_string();
    for setting in ["CONTEXT_LISTEN", "CONTEXT_GRPC_LISTEN"] {
        let report = faults(with(&home, &[(setting, &address)])).await;
        assert!(
            report.contains(&format!("✘ port       cannot listen on {address}"))
                && report.ends_with(&format!("set {setting}")),
            "{report}"
        );
    }
    // A free port that both settings name.
    drop(other);
    let both = [
        ("CONTEXT_LISTEN", address.as_str()),
        ("CONTEXT_GRPC_LISTEN", address.as_str()),
    ];
    let report = faults(with(&home, &both)).await;
    assert!(report.ends_with("set CONTEXT_GRPC_LISTEN"), "{report}");
}
