//! The HTTP transport: which requests are served, which are refused, and with which messages.

use axum::body::Body;
use axum::http::{Request, StatusCode};
use context_gateway::catalogue::Selection;
use context_gateway::handler::Credentials;
use context_gateway::http::{ConnectionLimits, Guarded, HttpConfig, app, serve};
use context_gateway::memory::{Budget, Caller};
use context_test_support::{until, wait_for};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tower::ServiceExt as _;

use crate::fake::{Behaviour, MAX_MESSAGE_BYTES, setup, setup_within};
use crate::session::{
    ERAS, Era, UNREADABLE, budget, exchange, memory_of, post, router, within_a_minute,
};

const LEGACY: Era = Era::Legacy("2025-11-25");

fn list() -> Value {
    LEGACY.request(1, "tools/list", json!({}))
}

fn with(request: Request<Body>, name: &'static str, value: &str) -> Request<Body> {
    let mut request = request;
    request.headers_mut().insert(name, value.parse().unwrap());
    request
}

#[tokio::test]
async fn both_spellings_of_the_path_are_served_without_a_redirect() {
    let setup = setup(Credentials::Callers);
    for path in ["/mcp", "/mcp/"] {
        let mut request = post(LEGACY, &list());
        *request.uri_mut() = path.parse().unwrap();
        assert_eq!(
            exchange(&router(&setup), request).await.0,
            StatusCode::OK,
            "{path}"
        );
    }
}

#[tokio::test]
async fn initialize_and_every_revision_are_answered_in_plain_json_without_a_session() {
    let setup = setup(Credentials::Callers);
    for era in ERAS {
        let Era::Legacy(version) = era else { continue };
        let params = json!({"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}});
        let response = router(&setup)
            .oneshot(post(era, &era.request(1, "initialize", params)))
            .await
            .unwrap();
        assert_eq!(response.headers()["content-type"], "application/json");
        assert!(response.headers().get("mcp-session-id").is_none());
        let body = axum::body::to_bytes(response.into_body(), MAX_MESSAGE_BYTES)
            .await
            .unwrap();
        let reply: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(reply["result"]["protocolVersion"], version);
        // `resources/subscribe` does not work over HTTP.
        let resources = &reply["result"]["capabilities"]["resources"];
        assert!(
            resources.is_object() && resources["subscribe"].is_null(),
            "{reply}"
        );
        assert!(reply["result"]["instructions"].as_str().unwrap().len() < 2000);
    }
    let (status, reply) = exchange(
        &router(&setup),
        post(
            Era::Modern,
            &Era::Modern.request(1, "server/discover", json!({})),
        ),
    )
    .await;
    assert_eq!(
        (
            status,
            reply["result"]["supportedVersions"]
                .as_array()
                .unwrap()
                .len()
        ),
        (StatusCode::OK, 5)
    );
    assert_eq!(
        reply["result"]["capabilities"]["resources"]["subscribe"],
        true
    );
}

#[tokio::test]
async fn a_client_that_accepts_json_alone_anything_or_nothing_in_particular_is_served() {
    let setup = setup(Credentials::Callers);
    for accept in [
        "application/json",
        "*/*",
        "application/json, text/event-stream",
    ] {
        let (status, _) = exchange(
            &router(&setup),
            with(post(LEGACY, &list()), "accept", accept),
        )
        .await;
        assert_eq!(status, StatusCode::OK, "{accept}");
    }
    let mut request = post(LEGACY, &list());
    request.headers_mut().remove("accept");
    assert_eq!(exchange(&router(&setup), request).await.0, StatusCode::OK);
    let (status, said) = exchange(
        &router(&setup),
        with(post(LEGACY, &list()), "accept", "text/html"),
    )
    .await;
    assert_eq!(
        (status, said),
        (
            StatusCode::NOT_ACCEPTABLE,
            json!("the client must accept application/json\n")
        )
    );
}

#[tokio::test]
async fn foreign_hosts_and_origins_are_refused_and_configured_ones_served() {
    let setup = setup(Credentials::Callers);
    let router = router(&setup);
    for (name, value, expected) in [
        ("host", "localhost:7421", StatusCode::OK),
        ("host", "gateway.example", StatusCode::OK),
        ("host", "192.0.2.7:7421", StatusCode::OK),
        ("host", "evil.example", StatusCode::FORBIDDEN),
        ("origin", "http://localhost:7421", StatusCode::OK),
        ("origin", "https://app.example", StatusCode::OK),
        ("origin", "https://app.example:8443", StatusCode::FORBIDDEN),
        ("origin", "http://evil.example", StatusCode::FORBIDDEN),
        ("origin", "http://localhost:9999", StatusCode::FORBIDDEN),
        ("origin", "null", StatusCode::FORBIDDEN),
    ] {
        assert_eq!(
            exchange(&router, with(post(LEGACY, &list()), name, value))
                .await
                .0,
            expected,
            "{name}: {value}"
        );
    }
    let preflight = |origin: &str| {
        Request::options("/mcp")
            .header("host", "localhost:7421")
            .header("origin", origin)
            .header("access-control-request-method", "POST")
            .header(
                "access-control-request-headers",
                "content-type,mcp-protocol-version",
            )
            .body(Body::empty())
            .unwrap()
    };
    let allowed = router
        .clone()
        .oneshot(preflight("https://app.example"))
        .await
        .unwrap();
    assert_eq!(
        allowed.headers()["access-control-allow-origin"],
        "https://app.example"
    );
    let request = with(post(LEGACY, &list()), "origin", "https://app.example");
    let reply = router.clone().oneshot(request).await.unwrap();
    let exposed = reply.headers()["access-control-expose-headers"].to_str();
    assert_eq!(exposed.unwrap(), "www-authenticate,retry-after");
    let refused = router
        .clone()
        .oneshot(preflight("https://evil.example"))
        .await
        .unwrap();
    assert_eq!(refused.status(), StatusCode::FORBIDDEN);
    assert!(
        refused
            .headers()
            .get("access-control-allow-origin")
            .is_none()
    );
}

#[tokio::test]
async fn foreign_hosts_and_origins_are_refused_on_every_path_and_without_a_key() {
    let setup = setup(Credentials::Callers);
    let router = guarded(&setup, budget());
    for (path, expected) in [
        ("/healthz", StatusCode::OK),
        ("/readyz", StatusCode::OK),
        ("/.well-known/oauth-protected-resource/mcp", StatusCode::OK),
        ("/mcp", StatusCode::UNAUTHORIZED),
    ] {
        for (host, origin, expected) in [
            ("localhost:7421", "http://localhost:7421", expected),
            (
                "evil.example",
                "http://localhost:7421",
                StatusCode::FORBIDDEN,
            ),
            (
                "localhost:7421",
                "http://evil.example",
                StatusCode::FORBIDDEN,
            ),
        ] {
            let request = Request::get(path)
                .header("host", host)
                .header("origin", origin)
                .body(Body::empty())
                .unwrap();
            let (status, _) = exchange(&router, request).await;
            assert_eq!(status, expected, "{path} {host} {origin}");
        }
    }
}

#[tokio::test]
async fn the_callers_authorization_reaches_the_service_and_no_other_does() {
    let setup = setup(Credentials::Callers);
    let call = LEGACY.request(
        1,
        "tools/call",
        json!({"name": "list_threads", "arguments": {}}),
    );
    exchange(
        &router(&setup),
        with(post(LEGACY, &call), "authorization", "Bearer sk_prod_x"),
    )
    .await;
    exchange(&router(&setup), post(LEGACY, &call)).await;
    let seen: Vec<_> = setup
        .fake
        .seen()
        .into_iter()
        .filter(|seen| seen.operation == "list_threads")
        .collect();
    assert_eq!(
        seen[0].metadata.get("authorization").unwrap(),
        "Bearer sk_prod_x"
    );
    assert!(seen[1].metadata.get("authorization").is_none());
}

#[tokio::test]
async fn unreadable_bodies_are_json_rpc_errors() {
    let setup = setup(Credentials::Callers);
    let bodies: [(&[u8], i64); 8] = [
        (b"{\"jsonrpc\": ", -32700),
        (b"", -32700),
        (b"\0", -32700),
        (
            b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\",\"params\":{\"x\":\"\xff\"}}",
            -32700,
        ),
        (b"[]", -32600),
        (b"{}", -32600),
        (b"5", -32600),
        (b"{\"method\":\"notifications/initialized\"}", -32600),
    ];
    for (body, code) in bodies {
        let mut request = post(LEGACY, &list());
        *request.body_mut() = Body::from(body);
        let (status, reply) = exchange(&router(&setup), request).await;
        assert_eq!(
            (status, reply["error"]["code"].as_i64()),
            (StatusCode::BAD_REQUEST, Some(code)),
            "{} {reply}",
            body.escape_ascii()
        );
    }
    let (status, _) = exchange(
        &router(&setup),
        with(post(LEGACY, &list()), "content-type", "text/plain"),
    )
    .await;
    assert_eq!(status, StatusCode::UNSUPPORTED_MEDIA_TYPE);
}

#[tokio::test]
async fn a_body_over_the_limit_is_refused() {
    let setup = setup(Credentials::Callers);
    let mut request = post(LEGACY, &list());
    *request.body_mut() = Body::from(vec![b' '; MAX_MESSAGE_BYTES + 1]);
    assert_eq!(
        exchange(&router(&setup), request).await.0,
        StatusCode::PAYLOAD_TOO_LARGE
    );
    let config = HttpConfig {
        listen: "127.0.0.1:7421".parse().unwrap(),
        allowed_hosts: vec![],
        allowed_origins: vec![],
        guarded_as: None,
        max_message_bytes: 1024,
    };
    let stop = tokio_util::sync::CancellationToken::new();
    let router = app(setup.gateway.clone(), &config, budget(), stop);
    for (bytes, expected) in [
        (1024, StatusCode::OK),
        (1025, StatusCode::PAYLOAD_TOO_LARGE),
    ] {
        let message = list().to_string();
        let body = format!("{message:bytes$}");
        let whole = post(LEGACY, &list()).map(|_| Body::from(body.clone()));
        let announced = with(whole, "content-length", &bytes.to_string());
        let pieces: Vec<_> = body.as_bytes().chunks(100).map(<[u8]>::to_vec).collect();
        let pieces = futures::stream::iter(pieces.into_iter().map(Ok::<_, std::io::Error>));
        let in_pieces = post(LEGACY, &list()).map(|_| Body::from_stream(pieces));
        for request in [announced, in_pieces] {
            assert_eq!(exchange(&router, request).await.0, expected, "{bytes}");
        }
    }
}

#[tokio::test]
async fn health_says_alive_always_and_ready_only_with_the_service() {
    let mut setup = setup(Credentials::Callers);
    let router = router(&setup);
    let get = |path: &str| {
        Request::get(path)
            .header("host", "192.0.2.7:7421")
            .body(Body::empty())
            .unwrap()
    };
    assert_eq!(exchange(&router, get("/healthz")).await.0, StatusCode::OK);
    assert_eq!(exchange(&router, get("/readyz")).await.0, StatusCode::OK);
    setup.server.kill();
    std::fs::remove_file(setup.dir.path().join("service.sock")).unwrap();
    assert_eq!(exchange(&router, get("/healthz")).await.0, StatusCode::OK);
    assert_eq!(
        exchange(&router, get("/readyz")).await.0,
        StatusCode::SERVICE_UNAVAILABLE
    );
}

#[tokio::test]
async fn a_client_that_disconnects_takes_its_call_with_it() {
    let setup = setup(Credentials::Callers);
    setup.fake.behave(Behaviour::Hang);
    for era in [LEGACY, Era::Modern] {
        let call = era.request(
            1,
            "tools/call",
            json!({"name": "list_threads", "arguments": {}}),
        );
        let waiting = tokio::spawn(router(&setup).oneshot(post(era, &call)));
        setup.fake.arrived().await;
        waiting.abort();
        setup.fake.cancelled().await;
    }
}

#[tokio::test]
async fn other_methods_are_not_allowed_and_other_paths_not_found() {
    let setup = setup(Credentials::Callers);
    for method in ["GET", "DELETE"] {
        let request = Request::builder()
            .method(method)
            .uri("/mcp")
            .header("host", "localhost")
            .header("accept", "text/event-stream")
            .body(Body::empty())
            .unwrap();
        assert_eq!(
            exchange(&router(&setup), request).await.0,
            StatusCode::METHOD_NOT_ALLOWED,
            "{method}"
        );
    }
    let request = Request::get("/nothing")
        .header("host", "localhost")
        .body(Body::empty())
        .unwrap();
    assert_eq!(
        exchange(&router(&setup), request).await.0,
        StatusCode::NOT_FOUND
    );
}

#[tokio::test]
async fn a_modern_request_whose_headers_contradict_its_body_is_refused() {
    let setup = setup(Credentials::Callers);
    let call = Era::Modern.request(
        1,
        "tools/call",
        json!({"name": "list_threads", "arguments": {}}),
    );
    let (status, reply) = exchange(
        &router(&setup),
        with(post(Era::Modern, &call), "mcp-name", "delete_context"),
    )
    .await;
    assert_eq!(
        (status, reply["error"]["code"].as_i64()),
        (StatusCode::BAD_REQUEST, Some(-32020))
    );
    assert!(setup.fake.seen().is_empty());
}

#[tokio::test]
async fn a_body_that_breaks_off_is_the_callers_fault() {
    let setup = setup(Credentials::Callers);
    let (parts, _) = post(LEGACY, &list()).into_parts();
    let pieces = [
        Ok("{\"jsonrpc\": "),
        Err(std::io::Error::other("connection reset")),
    ];
    let request = Request::from_parts(parts, Body::from_stream(futures::stream::iter(pieces)));
    let (status, reply) = exchange(&router(&setup), request).await;
    assert_eq!(
        (status, &reply["error"]["code"]),
        (StatusCode::BAD_REQUEST, &json!(-32700))
    );
}

#[tokio::test]
async fn a_message_that_must_not_be_parsed_is_refused_with_its_id() {
    let setup = setup(Credentials::Callers);
    let call = LEGACY.request(
        7,
        "tools/call",
        json!({"name": "store_context", "arguments": {"metadata": {"list": vec![0; 1_100_000]}}}),
    );
    let (status, reply) = exchange(&router(&setup), post(LEGACY, &call)).await;
    assert_eq!(
        (
            status,
            reply["id"].as_u64(),
            reply["error"]["code"].as_i64()
        ),
        (StatusCode::OK, Some(7), Some(-32600))
    );
    let mut request = post(LEGACY, &list());
    *request.body_mut() = Body::from(
        "{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"ping\",\"params\":{\"n\":18446744073709551616}}",
    );
    let (status, reply) = exchange(&router(&setup), request).await;
    assert_eq!((status, reply["id"].as_u64()), (StatusCode::OK, Some(7)));
    assert!(
        reply["error"]["message"]
            .as_str()
            .unwrap()
            .contains("18446744073709551616"),
        "{reply}"
    );
    assert!(setup.fake.seen().is_empty());
}

#[tokio::test]
async fn the_stop_closes_idle_connections_and_ends_subscriptions() {
    let setup = setup(Credentials::Callers);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let stop = tokio_util::sync::CancellationToken::new();
    let config = HttpConfig {
        listen: address,
        allowed_hosts: vec![],
        allowed_origins: vec![],
        guarded_as: None,
        max_message_bytes: MAX_MESSAGE_BYTES,
    };
    let app = app(setup.gateway.clone(), &config, budget(), stop.clone());
    let serving = tokio::spawn(serve(
        listener,
        app,
        ConnectionLimits::default(),
        stop.clone(),
    ));
    let mut idle = tokio::net::TcpStream::connect(address).await.unwrap();
    idle.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n")
        .await
        .unwrap();
    let mut start = [0; 15];
    idle.read_exact(&mut start).await.unwrap();
    assert_eq!(&start, b"HTTP/1.1 200 OK");
    let listen = Era::Modern
        .request(
            1,
            "subscriptions/listen",
            json!({"notifications": {"toolsListChanged": true}}),
        )
        .to_string();
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let head = format!(
        "POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\nmcp-protocol-version: 2026-07-28\r\n\
         mcp-method: subscriptions/listen\r\ncontent-length: {}\r\n\r\n",
        listen.len()
    );
    stream.write_all((head + &listen).as_bytes()).await.unwrap();
    let mut seen = Vec::new();
    while !String::from_utf8_lossy(&seen).contains("acknowledged") {
        assert_ne!(
            stream.read_buf(&mut seen).await.unwrap(),
            0,
            "{}",
            String::from_utf8_lossy(&seen)
        );
    }
    stop.cancel();
    serving.await.unwrap().unwrap();
    let mut rest = Vec::new();
    idle.read_to_end(&mut rest).await.unwrap();
    stream.read_to_end(&mut rest).await.unwrap();
    assert!(tokio::net::TcpStream::connect(address).await.is_err());
}

#[tokio::test]
async fn every_request_that_cannot_be_read_is_answered_with_its_id_and_not_by_a_bare_400() {
    let setup = setup(Credentials::Callers);
    let router = router(&setup);
    for (message, code) in UNREADABLE {
        let mut request = post(LEGACY, &list());
        *request.body_mut() = Body::from(message);
        let (status, reply) = exchange(&router, request).await;
        let seen = (
            status,
            reply["id"].as_str(),
            reply["error"]["code"].as_i64(),
        );
        assert_eq!(
            seen,
            (StatusCode::OK, Some("ID"), Some(code)),
            "{message}\n{reply}"
        );
    }
    assert!(setup.fake.seen().is_empty());
}

#[tokio::test]
async fn a_revision_without_initialize_answers_it_as_an_unknown_method() {
    let setup = setup(Credentials::Callers);
    let router = router(&setup);
    let mut request = with(post(LEGACY, &list()), "mcp-protocol-version", "2026-07-28");
    request
        .headers_mut()
        .insert("mcp-method", "initialize".parse().unwrap());
    let meta = json!({"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}});
    let message =
        json!({"jsonrpc": "2.0", "id": "ID", "method": "initialize", "params": {"_meta": meta}});
    *request.body_mut() = Body::from(message.to_string());
    let (status, reply) = exchange(&router, request).await;
    let seen = (
        status,
        reply["id"].as_str(),
        reply["error"]["code"].as_i64(),
    );
    assert_eq!(
        seen,
        (StatusCode::NOT_FOUND, Some("ID"), Some(-32601)),
        "{reply}"
    );
}

/// A body of `count` chunks of 1 MiB each, and the number of chunks that were read.
fn chunks(count: usize) -> (Body, std::sync::Arc<std::sync::atomic::AtomicUsize>) {
    let taken = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counter = taken.clone();
    let chunks = futures::stream::iter((0..count).map(move |_| {
        counter.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        Ok::<_, std::io::Error>(vec![b' '; 1024 * 1024])
    }));
    (Body::from_stream(chunks), taken)
}

pub fn router_with(
    setup: &crate::fake::Setup,
    budget: std::sync::Arc<Budget>,
    guarded_as: Option<Guarded>,
) -> axum::Router {
    let config = HttpConfig {
        listen: "127.0.0.1:7421".parse().unwrap(),
        allowed_hosts: vec![],
        allowed_origins: vec![],
        guarded_as,
        max_message_bytes: MAX_MESSAGE_BYTES,
    };
    app(
        setup.gateway.clone(),
        &config,
        budget,
        tokio_util::sync::CancellationToken::new(),
    )
}

fn guarded(setup: &crate::fake::Setup, budget: std::sync::Arc<Budget>) -> axum::Router {
    let guarded_as = Guarded {
        resource: "http://127.0.0.1:7421/mcp".into(),
        issuer: None,
        scope_prefix: String::new(),
    };
    router_with(setup, budget, Some(guarded_as))
}

#[tokio::test]
async fn nothing_is_read_from_a_caller_without_a_key_and_little_from_one_whom_the_service_cannot_name()
 {
    let mut setup = setup(Credentials::Callers);
    setup.server.kill();
    let budget = budget();
    let router = guarded(&setup, budget.clone());
    let (body, taken) = chunks(50);
    let request = post(LEGACY, &list()).map(|_| body);
    assert_eq!(exchange(&router, request).await.0, StatusCode::UNAUTHORIZED);
    assert_eq!(taken.load(std::sync::atomic::Ordering::Relaxed), 0);
    let (body, taken) = chunks(50);
    let request = with(
        post(LEGACY, &list()).map(|_| body),
        "authorization",
        "Bearer sk_prod_garbage",
    );
    let response = router.clone().oneshot(request).await.unwrap();
    assert_eq!(
        (
            response.status(),
            response.headers()["retry-after"].to_str().unwrap()
        ),
        (StatusCode::SERVICE_UNAVAILABLE, "1")
    );
    let share = budget.total() / 16;
    assert!(taken.load(std::sync::atomic::Ordering::Relaxed) <= share / 1024 / 1024 + 1);
    drop(response);
    assert_eq!(budget.used(), 0);
    // Small requests are served: the tools are listed while the service is unreachable.
    let request = with(
        post(LEGACY, &list()),
        "authorization",
        "Bearer sk_prod_garbage",
    );
    assert_eq!(exchange(&router, request).await.0, StatusCode::OK);
}

#[tokio::test]
async fn streams_leave_the_requests_of_their_callers_free() {
    let mut setup = setup(Credentials::Callers);
    setup.server.kill();
    let budget = budget();
    let router = guarded(&setup, budget.clone());
    let with_key = |request| with(request, "authorization", "Bearer sk_prod_garbage");
    let notifications = json!({"notifications": {"toolsListChanged": true}});
    let listen = Era::Modern.request(1, "subscriptions/listen", notifications);
    let mut streams = Vec::new();
    for _ in 0..32 {
        let request = with_key(post(Era::Modern, &listen));
        let response = router.clone().oneshot(request).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        streams.push(response);
    }
    let (status, _) = exchange(&router, with_key(post(Era::Modern, &listen))).await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "one stream more");
    let (status, _) = exchange(&router, with_key(post(LEGACY, &list()))).await;
    assert_eq!(status, StatusCode::OK);
    drop(streams);
    wait_for("the memory of the streams is free", || {
        (budget.used() == 0).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_length_beyond_the_limit_is_refused_before_a_byte_is_read_and_an_announced_one_takes_nothing()
 {
    let setup = setup(Credentials::Callers);
    let budget = budget();
    let router = router_with(&setup, budget.clone(), None);
    let (body, taken) = chunks(1);
    let request = with(
        post(LEGACY, &list()).map(|_| body),
        "content-length",
        &(MAX_MESSAGE_BYTES + 1).to_string(),
    );
    assert_eq!(
        exchange(&router, request).await.0,
        StatusCode::PAYLOAD_TOO_LARGE
    );
    assert_eq!(taken.load(std::sync::atomic::Ordering::Relaxed), 0);
    // A body whose length is announced but that is never sent.
    let arrived = std::sync::Arc::new(tokio::sync::Notify::new());
    let notify = arrived.clone();
    let body = Body::from_stream(futures::stream::poll_fn(move |_| {
        notify.notify_one();
        std::task::Poll::<Option<Result<Vec<u8>, std::io::Error>>>::Pending
    }));
    let request = with(
        post(LEGACY, &list()).map(|_| body),
        "content-length",
        &MAX_MESSAGE_BYTES.to_string(),
    );
    let waiting = tokio::spawn(router.clone().oneshot(request));
    arrived.notified().await;
    assert_eq!(budget.used(), 0);
    waiting.abort();
}

#[tokio::test]
async fn a_reply_for_which_there_is_no_room_is_an_error_that_says_so() {
    let setup = setup(Credentials::Callers);
    let budget = Budget::new(1024 * 1024);
    let router = router_with(&setup, budget.clone(), None);
    let call = LEGACY.request(
        1,
        "tools/call",
        json!({"name": "get_context_by_ids", "arguments": {"context_ids": [42]}}),
    );
    let (status, reply) = exchange(&router, post(LEGACY, &call)).await;
    assert_eq!(
        (status, &reply["result"]["isError"]),
        (StatusCode::OK, &json!(false))
    );
    // Room for the request and 100 bytes.
    let request = memory_of(&call.to_string());
    let rest = budget.enter(Caller::Anyone).unwrap();
    rest.grow(budget.total() / 16 * 15 - request - 100).unwrap();
    let (status, reply) = exchange(&router, post(LEGACY, &call)).await;
    let error: Value =
        serde_json::from_str(reply["result"]["content"][0]["text"].as_str().unwrap()).unwrap();
    assert_eq!(
        (status, &reply["result"]["isError"], &error["reason"]),
        (StatusCode::OK, &json!(true), &json!("OVERLOADED"))
    );
    // The gateway also requests statistics in the background, to learn which features are off.
    let seen = setup.fake.seen();
    let reads = seen
        .iter()
        .filter(|seen| seen.operation == "get_context_by_ids");
    assert_eq!(
        reads.count(),
        2,
        "a read with a response is not repeated: {seen:?}"
    );
    drop(rest);
    assert_eq!(budget.used(), 0);
}

#[tokio::test]
async fn a_reply_beyond_the_memory_is_sent_alone() {
    let setup = setup(Credentials::Callers);
    let call = LEGACY.request(
        1,
        "tools/call",
        json!({"name": "get_context_by_ids", "arguments": {"context_ids": [42]}}),
    );
    // Room for the request and about 100 bytes.
    let budget = Budget::new((memory_of(&call.to_string()) + 100) / 15 * 16 + 16);
    let router = router_with(&setup, budget.clone(), None);
    let (status, reply) = exchange(&router, post(LEGACY, &call)).await;
    assert_eq!(
        (status, &reply["result"]["isError"]),
        (StatusCode::OK, &json!(false)),
        "{reply}"
    );
    assert_eq!(budget.used(), 0);
}

#[tokio::test]
async fn a_reply_beyond_the_largest_message_is_refused_for_its_size() {
    let setup = setup_within(64, Credentials::Callers, Selection::default());
    let call = LEGACY.request(
        1,
        "tools/call",
        json!({"name": "get_context_by_ids", "arguments": {"context_ids": [42]}}),
    );
    let (status, reply) = exchange(&router(&setup), post(LEGACY, &call)).await;
    let error: Value =
        serde_json::from_str(reply["result"]["content"][0]["text"].as_str().unwrap()).unwrap();
    assert_eq!(
        (status, &error["reason"]),
        (StatusCode::OK, &json!("RESULT_TOO_LARGE"))
    );
    let message = error["error"].as_str().unwrap();
    assert!(
        message.contains("more than 64 bytes") && message.contains("include_images=false"),
        "{message}"
    );
}

/// Serves this router with these limits. Returns its address.
async fn listening(app: axum::Router, limits: ConnectionLimits) -> std::net::SocketAddr {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(serve(
        listener,
        app,
        limits,
        tokio_util::sync::CancellationToken::new(),
    ));
    address
}

fn hello_app() -> axum::Router {
    axum::Router::new().route("/", axum::routing::get(|| async { "hello" }))
}

async fn get_hello(stream: &mut tokio::net::TcpStream) -> std::io::Result<String> {
    stream
        .write_all(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n")
        .await?;
    let mut seen = Vec::new();
    while !seen.ends_with(b"hello") {
        if stream.read_buf(&mut seen).await? == 0 {
            break;
        }
    }
    Ok(String::from_utf8_lossy(&seen).into_owned())
}

/// The next reply on this connection.
async fn reply(stream: &mut tokio::net::TcpStream) -> String {
    let mut seen = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&seen).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let mut lines = head.lines();
            let length = lines.find_map(|line| line.strip_prefix("content-length: "));
            if body.len() == length.expect("a length").parse::<usize>().unwrap() {
                return text;
            }
        }
        assert_ne!(stream.read_buf(&mut seen).await.unwrap(), 0, "{text}");
    }
}

#[tokio::test]
async fn a_refusal_keeps_the_connection_if_the_unread_body_is_small_and_else_says_that_it_closes() {
    let setup = setup(Credentials::Callers);
    let address = listening(router(&setup), ConnectionLimits::default()).await;
    let head = |path: &str, more: &str, length: usize| {
        format!(
            "POST {path} HTTP/1.1\r\nhost: localhost\r\n{more}\r\ncontent-length: {length}\r\n\r\n"
        )
    };
    let (json, text) = ("content-type: application/json", "content-type: text/plain");
    // More than the gateway reads at once.
    let body = "x".repeat(60_000);
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    for (path, more, status) in [
        ("/nothing", text, 404),
        ("/healthz", text, 405),
        ("/mcp", "origin: http://evil.example", 403),
    ] {
        let request = head(path, more, body.len()) + &body;
        stream.write_all(request.as_bytes()).await.unwrap();
        let refused = reply(&mut stream).await;
        assert!(
            refused.starts_with(&format!("HTTP/1.1 {status}")),
            "{refused}"
        );
        assert!(!refused.contains("connection: close"), "{refused}");
    }
    stream
        .write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n")
        .await
        .unwrap();
    assert!(reply(&mut stream).await.ends_with("ok\n"));

    for (path, more, length, status) in [
        ("/nothing", text, 10_000_000, 404),
        ("/mcp", json, MAX_MESSAGE_BYTES + 1, 413),
    ] {
        let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
        let request = head(path, more, length);
        stream.write_all(request.as_bytes()).await.unwrap();
        let refused = reply(&mut stream).await;
        assert!(
            refused.starts_with(&format!("HTTP/1.1 {status}")),
            "{refused}"
        );
        assert!(refused.contains("\r\nconnection: close\r\n"), "{refused}");
    }
}

#[tokio::test]
async fn the_answer_to_a_body_that_is_refused_on_the_way_reaches_its_sender() {
    let setup = setup(Credentials::Callers);
    let address = listening(router(&setup), ConnectionLimits::default()).await;
    // The body begins with too many values. Its rest is larger than any socket buffer.
    let values = "0,".repeat(1_100_000);
    let rest = " ".repeat(16 * 1024 * 1024);
    let body = format!(
        r#"{{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{{"name":"list_threads","arguments":{{"a":[{values}0]}}}}}}{rest}"#
    );
    for _ in 0..5 {
        let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
        let head = format!(
            "POST /mcp HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\n\
             accept: application/json\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        stream.write_all(body.as_bytes()).await.unwrap();
        let mut reply = String::new();
        stream.read_to_string(&mut reply).await.unwrap();
        assert!(reply.starts_with("HTTP/1.1 200"), "{reply}");
        assert!(reply.contains(r#""id":7"#), "{reply}");
    }
}

#[tokio::test]
async fn silent_connections_make_way_for_those_that_ask() {
    let limits = ConnectionLimits {
        connections: 8,
        per_address: 4,
        ..ConnectionLimits::default()
    };
    let address = listening(hello_app(), limits).await;
    let mut silent = Vec::new();
    for _ in 0..20 {
        silent.push(tokio::net::TcpStream::connect(address).await.unwrap());
    }
    let mut active = tokio::net::TcpStream::connect(address).await.unwrap();
    assert!(get_hello(&mut active).await.unwrap().ends_with("hello"));
    // The connection that had been silent longest was closed to make room.
    let mut byte = [0];
    let read = within_a_minute("the first one is closed", silent[0].read(&mut byte));
    assert_eq!(read.await.unwrap_or(0), 0);
}

#[tokio::test]
async fn an_address_whose_connections_are_all_in_work_gets_no_more_and_the_others_do() {
    let started = std::sync::Arc::new(tokio::sync::Semaphore::new(0));
    let entered = started.clone();
    let slow = hello_app().route(
        "/slow",
        axum::routing::get(move || async move {
            entered.add_permits(1);
            std::future::pending::<()>().await;
        }),
    );
    let limits = ConnectionLimits {
        connections: 8,
        per_address: 4,
        ..ConnectionLimits::default()
    };
    let address = listening(slow, limits).await;
    let mut busy = Vec::new();
    for _ in 0..4 {
        let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
        stream
            .write_all(b"GET /slow HTTP/1.1\r\nhost: localhost\r\n\r\n")
            .await
            .unwrap();
        busy.push(stream);
    }
    let _all = started.acquire_many(4).await.unwrap();
    let mut fifth = tokio::net::TcpStream::connect(address).await.unwrap();
    assert!(
        get_hello(&mut fifth)
            .await
            .map_or(true, |seen| seen.is_empty())
    );
    let other = tokio::net::TcpSocket::new_v4().unwrap();
    other.bind("127.0.0.2:0".parse().unwrap()).unwrap();
    let mut other = other.connect(address).await.unwrap();
    assert!(get_hello(&mut other).await.unwrap().ends_with("hello"));
}

#[tokio::test]
async fn a_connection_without_a_request_is_closed_whatever_it_began() {
    let limits = ConnectionLimits {
        idle: std::time::Duration::from_millis(200),
        ..ConnectionLimits::default()
    };
    let address = listening(hello_app(), limits).await;
    for begun in [
        "",
        "GET / HT",
        "GET / HTTP/1.1\r\nhost: loc",
        "PRI * HTTP/2.0\r\n",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ] {
        let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
        stream.write_all(begun.as_bytes()).await.unwrap();
        let mut rest = Vec::new();
        // The gateway closes the connection. It may also reset it.
        let _ = within_a_minute(begun, stream.read_to_end(&mut rest)).await;
    }
}

#[tokio::test]
async fn a_peer_that_takes_nothing_of_a_reply_is_cut_and_one_that_reads_gets_all() {
    const LENGTH: usize = 64 * 1024 * 1024;
    let big = hello_app().route("/big", axum::routing::get(|| async { vec![b'x'; LENGTH] }));
    let limits = ConnectionLimits {
        reply: std::time::Duration::from_millis(500),
        ..ConnectionLimits::default()
    };
    let address = listening(big, limits).await;
    let request = b"GET /big HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    let mut stuck = tokio::net::TcpStream::connect(address).await.unwrap();
    stuck.write_all(request).await.unwrap();
    let mut reader = tokio::net::TcpStream::connect(address).await.unwrap();
    reader.write_all(request).await.unwrap();
    let mut all = Vec::new();
    reader.read_to_end(&mut all).await.unwrap();
    assert!(all.len() > LENGTH);
    // Writing fails only after the gateway has closed the connection.
    until("the other side closes", async || {
        stuck.write_all(b" ").await.is_err()
    })
    .await;
}

#[tokio::test]
async fn a_peer_on_http_2_that_gives_a_reply_no_room_is_cut() {
    let big = hello_app().route(
        "/big",
        axum::routing::get(|| async { vec![b'x'; 1024 * 1024] }),
    );
    let limits = ConnectionLimits {
        reply: std::time::Duration::from_millis(500),
        ..ConnectionLimits::default()
    };
    let address = listening(big, limits).await;
    let stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let mut builder = h2::client::Builder::new();
    let (client, connection) = builder
        .initial_window_size(0)
        .handshake::<_, bytes::Bytes>(stream)
        .await
        .unwrap();
    let connection = tokio::spawn(connection);
    let request = Request::get(format!("http://{address}/big"))
        .body(())
        .unwrap();
    let (response, _) = client
        .ready()
        .await
        .unwrap()
        .send_request(request, true)
        .unwrap();
    let response = response.await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    // The connection ends although its client still responds to pings.
    let _ = within_a_minute("the end of the connection", connection)
        .await
        .unwrap();
    drop(response);
}
