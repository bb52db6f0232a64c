//! Starting, refusing to start, draining and stopping.

use std::time::Duration;

use context_service::{Started, start};
use context_test_support::http::Request;
use context_test_support::{grpc, until};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::service::{Service, settings};

async fn refusal(flags: &[&str]) -> String {
    let directory = tempfile::tempdir().unwrap();
    match start(&settings(directory.path(), flags)).await {
        Ok(_) => panic!("{flags:?} must not start"),
        Err(error) => error.to_string(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_socket_in_use_is_reported_before_a_shared_database_is_opened() {
    let service = Service::start().await;
    let refused = refusal(&[
        "--storage-backend=postgresql",
        "--postgresql-connection-string=postgres://u@127.0.0.1:1/d",
        &format!("--socket={}", service.socket.display()),
    ])
    .await;
    assert!(
        refused.starts_with("another service responds on the socket"),
        "{refused}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_work_or_would_be_open_to_everybody_does_not_start() {
    for (flags, words) in [
        (
            &["--listen=0.0.0.0:0"][..],
            &["CONTEXT_LISTEN", "--insecure"][..],
        ),
        (
            &["--grpc-listen=0.0.0.0:0"],
            &["CONTEXT_GRPC_LISTEN", "--insecure"],
        ),
        (&["--auth=oidc"], &["AUTH", "OIDC_ISSUER"]),
        (
            &["--auth=oidc", "--oidc-issuer=https://accounts.example"],
            &["AUTH", "OIDC_AUDIENCE"],
        ),
        (
            &[
                "--auth=oidc",
                "--oidc-issuer=http://accounts.example",
                "--oidc-audience=a",
            ],
            &["OIDC_ISSUER", "https"],
        ),
        (
            &[
                "--auth=oidc",
                "--oidc-issuer=https://accounts.example",
                "--oidc-audience=a",
                "--oidc-client-id=page",
            ],
            &["OIDC_CLIENT_ID", "OIDC_REDIRECT_URL"],
        ),
        (
            &[
                "--auth=oidc",
                "--oidc-issuer=https://accounts.example",
                "--oidc-audience=a",
                "--oidc-client-id=page",
                "--oidc-redirect-url=http://context.example/",
            ],
            &["OIDC_REDIRECT_URL", "https"],
        ),
        (
            &[
                "--auth=oidc",
                "--oidc-issuer=https://accounts.example",
                "--oidc-audience=a",
                "--oidc-client-id=page",
                "--oidc-redirect-url=https://context.example/",
                "--oidc-client-scopes=read",
            ],
            &["OIDC_CLIENT_SCOPES", "openid"],
        ),
        (
            &[
                "--auth=oidc",
                "--oidc-issuer=https://accounts.example",
                "--oidc-audience=a",
                "--oidc-jwks-url=https://accounts.example/keys",
                "--oidc-client-id=page",
                "--oidc-redirect-url=https://context.example/",
            ],
            &["OIDC_CLIENT_ID", "OIDC_JWKS_URL"],
        ),
        (
            &[
                "--storage-backend=postgresql",
                "--postgresql-connection-string=postgres://u:hunter2@h:port/d",
            ],
            &["POSTGRESQL_CONNECTION_STRING", "percent-encoded"],
        ),
        (
            &[
                "--storage-backend=postgresql",
                "--postgresql-connection-string=postgres://u@h/d?sslmode=require",
                "--postgresql-ssl-mode=verify-full",
            ],
            &[
                "POSTGRESQL_CONNECTION_STRING",
                "sslmode=require",
                "POSTGRESQL_SSL_MODE=verify-full",
            ],
        ),
        (
            &[
                "--storage-backend=postgresql",
                "--postgresql-host=127.0.0.1",
                "--postgresql-port=1",
            ],
            &["127.0.0.1:1", "POSTGRESQL_"],
        ),
        (
            &["--enable-semantic-search=true"],
            &["ENABLE_SEMANTIC_SEARCH", "EMBEDDING_PROVIDER"],
        ),
        (
            &["--rerank-provider=local"],
            &["RERANK_PROVIDER", "RERANK_MODEL_PATH"],
        ),
        (
            &["--rerank-provider=tei"],
            &["RERANK_PROVIDER", "RERANK_URL"],
        ),
        (
            &["--rerank-provider=cohere", "--rerank-api-key=k"],
            &["RERANK_PROVIDER", "`cohere`", "RERANK_MODEL"],
        ),
        (
            &["--rerank-provider=voyage", "--rerank-model=m"],
            &["RERANK_PROVIDER", "`voyage`", "RERANK_API_KEY"],
        ),
        (
            &["--rerank-url=http://127.0.0.1:1"],
            &["RERANK_URL", "RERANK_PROVIDER"],
        ),
        (
            &["--summary-provider=anthropic"],
            &["SUMMARY_PROVIDER", "SUMMARY_MODEL"],
        ),
        (
            &["--enable-hybrid-search=true", "--enable-fts=false"],
            &["ENABLE_HYBRID_SEARCH", "ENABLE_FTS"],
        ),
        (
            &["--metadata-indexed-fields=a b"],
            &["METADATA_INDEXED_FIELDS", "`a b`"],
        ),
    ] {
        let sentence = refusal(flags).await;
        for word in words {
            assert!(sentence.contains(word), "{flags:?}: {sentence}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn reranking_and_summaries_that_are_demanded_without_a_model_start_and_are_off() {
    for (flags, feature, words) in [
        (
            &["--enable-reranking=true"][..],
            "reranking",
            "EMBEDDING_PROVIDER=none",
        ),
        (
            &["--enable-reranking=true", "--enable-semantic-search=false"],
            "reranking",
            "ENABLE_SEMANTIC_SEARCH=false",
        ),
        (
            &[
                "--enable-reranking=true",
                "--embedding-provider=ollama",
                "--ollama-host=http://127.0.0.1:1",
            ],
            "reranking",
            "the embedding provider at http://127.0.0.1:1",
        ),
        (
            &[
                "--enable-summary-generation=true",
                "--summary-provider=none",
            ],
            "summary_generation",
            "SUMMARY_MODEL",
        ),
    ] {
        let service = Service::start_with(flags).await;
        let status = service.get("/v1/statistics").send().await.json()[feature].clone();
        assert_eq!(status["available"], false, "{flags:?}: {status}");
        let reason = status["reason"].as_str().unwrap_or_default();
        assert!(reason.contains(words), "{flags:?}: {status}");
        service.store("t", "an entry").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_taken_address_is_refused_by_name() {
    let first = Service::start().await;
    let sentence = refusal(&[&format!("--listen={}", first.address)]).await;
    assert!(
        sentence.contains("CONTEXT_LISTEN") && sentence.contains(&first.address.to_string()),
        "{sentence}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_another_service_holds_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let Started::Running(first) = start(&settings(directory.path(), &[])).await.unwrap() else {
        panic!("the service must run")
    };
    let sentence = match start(&settings(directory.path(), &[])).await {
        Ok(_) => panic!("two services on one database"),
        Err(error) => error.to_string(),
    };
    assert!(
        sentence.contains("held by") && sentence.contains("contexts.db"),
        "{sentence}"
    );
    let stop = first.stop();
    let running = tokio::spawn(first.run());
    stop.cancel();
    running.await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_that_fails_late_leaves_the_database_to_the_next_one() {
    let directory = tempfile::tempdir().unwrap();
    let notes = directory.path().join("notes.txt");
    std::fs::write(&notes, "no socket").unwrap();
    let error = match start(&settings(
        directory.path(),
        &[&format!("--socket={}", notes.display())],
    ))
    .await
    {
        Ok(_) => panic!("the socket cannot be bound"),
        Err(error) => error.to_string(),
    };
    assert!(error.contains("notes.txt"), "{error}");
    let Started::Running(running) = start(&settings(directory.path(), &[]))
        .await
        .expect("it starts now")
    else {
        panic!("no other service uses this database");
    };
    running.stop().cancel();
    running.run().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_has_begun_is_finished_before_the_service_stops() {
    let service = Service::start().await;
    let address = service.address;
    let mut stream = TcpStream::connect(address).await.unwrap();
    let body = json!({"thread_id": "t", "source": "user", "text": "in flight"}).to_string();
    let (first, rest) = body.split_at(10);
    let head = format!(
        "POST /v1/contexts HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {}\r\nexpect: 100-continue\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    // `100 Continue` comes when the handler reads the body: from then on the request is in flight.
    let mut interim = [0; 25];
    stream.read_exact(&mut interim).await.unwrap();
    assert!(interim.starts_with(b"HTTP/1.1 100"));
    stream.write_all(first.as_bytes()).await.unwrap();
    service.begin_stop();
    until("nothing listens any more", async || {
        TcpStream::connect(address).await.is_err()
    })
    .await;
    stream.write_all(rest.as_bytes()).await.unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).await.unwrap();
    assert!(reply.starts_with("HTTP/1.1 201"), "{reply}");
    let socket = service.socket.clone();
    service.stopped().await;
    assert!(!socket.exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_does_not_end_holds_the_stop_up_no_longer_than_set() {
    let service = Service::start_with(&["--drain-timeout-seconds=0"]).await;
    let mut stream = TcpStream::connect(service.address).await.unwrap();
    let head = "POST /v1/contexts HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\
         expect: 100-continue\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    // From `100 Continue` on the request is in flight.
    let mut interim = [0; 25];
    stream.read_exact(&mut interim).await.unwrap();
    assert!(interim.starts_with(b"HTTP/1.1 100"));
    stream.write_all(b"{").await.unwrap();
    service.begin_stop();
    tokio::time::timeout(Duration::from_secs(5), service.stopped())
        .await
        .expect("it stops");
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_without_a_request_do_not_hold_the_stop_up() {
    // If the service waited for one of the connections, it would take a minute.
    let service = Service::start_with(&["--drain-timeout-seconds=60"]).await;
    let _silent = TcpStream::connect(service.address).await.unwrap();
    let mut kept_alive = TcpStream::connect(service.address).await.unwrap();
    kept_alive
        .write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n")
        .await
        .unwrap();
    kept_alive.read_exact(&mut [0; 12]).await.unwrap();
    let mut idle = grpc::contexts(grpc::at_socket(&service.socket));
    idle.list_threads(context_proto::v1::ListThreadsRequest::default())
        .await
        .unwrap();
    service.begin_stop();
    tokio::time::timeout(Duration::from_secs(20), service.stopped())
        .await
        .expect("it stops at once");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_stored_is_there_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    for round in 1..=2 {
        let Started::Running(running) = start(&settings(directory.path(), &[])).await.unwrap()
        else {
            panic!("the service must run")
        };
        let (address, stop) = (running.address().unwrap(), running.stop());
        let task = tokio::spawn(running.run());
        let body = json!({"thread_id": "t", "source": "user", "text": format!("round {round}")});
        let request = Request::post(address, "/v1/contexts", &body);
        assert_eq!(request.send().await.status, 201);
        let statistics = Request::get(address, "/v1/statistics").send().await.json();
        assert_eq!(statistics["total_entries"], round);
        stop.cancel();
        task.await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_cannot_be_drained_over_tcp() {
    let service = Service::start().await;
    let reply = service.request("POST", "/internal/drain").send().await;
    assert_eq!(
        (reply.status.as_u16(), reply.reason().as_str()),
        (404, "NOT_FOUND")
    );
    assert_eq!(service.get("/readyz").send().await.status, 200);
}
