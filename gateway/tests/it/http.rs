//! The HTTP transport: what is served, what is refused, and in which words.

use axum::body::Body;
use axum::http::{Request, StatusCode};
use context_gateway::handler::Credentials;
use context_gateway::http::{HttpConfig, app, serve};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tower::ServiceExt as _;

use crate::fake::{Behaviour, MAX_MESSAGE_BYTES, setup};
use crate::session::{ERAS, Era, exchange, post, router};

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
        assert_eq!(exchange(&router(&setup), request).await.0, StatusCode::OK, "{path}");
    }
}

#[tokio::test]
async fn initialize_and_every_revision_are_answered_in_plain_json_without_a_session() {
    let setup = setup(Credentials::Callers);
    for era in ERAS {
        let Era::Legacy(version) = era else { continue };
        let params = json!({"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}});
        let response = router(&setup).oneshot(post(era, &era.request(1, "initialize", params))).await.unwrap();
        assert_eq!(response.headers()["content-type"], "application/json");
        assert!(response.headers().get("mcp-session-id").is_none());
        let body = axum::body::to_bytes(response.into_body(), MAX_MESSAGE_BYTES).await.unwrap();
        let reply: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(reply["result"]["protocolVersion"], version);
        assert!(reply["result"]["instructions"].as_str().unwrap().len() < 2000);
    }
    let (status, reply) = exchange(&router(&setup), post(Era::Modern, &Era::Modern.request(1, "server/discover", json!({})))).await;
    assert_eq!((status, reply["result"]["supportedVersions"].as_array().unwrap().len()), (StatusCode::OK, 5));
}

#[tokio::test]
async fn a_client_that_accepts_json_alone_anything_or_nothing_in_particular_is_served() {
    let setup = setup(Credentials::Callers);
    for accept in ["application/json", "*/*", "application/json, text/event-stream"] {
        let (status, _) = exchange(&router(&setup), with(post(LEGACY, &list()), "accept", accept)).await;
        assert_eq!(status, StatusCode::OK, "{accept}");
    }
    let mut request = post(LEGACY, &list());
    request.headers_mut().remove("accept");
    assert_eq!(exchange(&router(&setup), request).await.0, StatusCode::OK);
    let (status, _) = exchange(&router(&setup), with(post(LEGACY, &list()), "accept", "text/html")).await;
    assert_eq!(status, StatusCode::NOT_ACCEPTABLE);
}

#[tokio::test]
async fn foreign_hosts_and_origins_are_refused_and_configured_ones_served() {
    let setup = setup(Credentials::Callers);
    let router = router(&setup);
    for (name, value, expected) in [
        ("host", "localhost:7421", StatusCode::OK),
        ("host", "gateway.example", StatusCode::OK),
        ("host", "evil.example", StatusCode::FORBIDDEN),
        ("origin", "http://localhost:7421", StatusCode::OK),
        ("origin", "https://app.example", StatusCode::OK),
        ("origin", "http://evil.example", StatusCode::FORBIDDEN),
        ("origin", "http://localhost:9999", StatusCode::FORBIDDEN),
        ("origin", "null", StatusCode::FORBIDDEN),
    ] {
        assert_eq!(exchange(&router, with(post(LEGACY, &list()), name, value)).await.0, expected, "{name}: {value}");
    }
    let preflight = |origin: &str| {
        Request::options("/mcp")
            .header("host", "localhost:7421")
            .header("origin", origin)
            .header("access-control-request-method", "POST")
            .header("access-control-request-headers", "content-type,mcp-protocol-version")
            .body(Body::empty())
            .unwrap()
    };
    let allowed = router.clone().oneshot(preflight("https://app.example")).await.unwrap();
    assert_eq!(allowed.headers()["access-control-allow-origin"], "https://app.example");
    let refused = router.clone().oneshot(preflight("https://evil.example")).await.unwrap();
    assert!(refused.headers().get("access-control-allow-origin").is_none());
}

#[tokio::test]
async fn the_callers_authorization_reaches_the_service_and_nobody_elses_does() {
    let setup = setup(Credentials::Callers);
    let call = LEGACY.request(1, "tools/call", json!({"name": "list_threads", "arguments": {}}));
    exchange(&router(&setup), with(post(LEGACY, &call), "authorization", "Bearer sk_prod_x")).await;
    exchange(&router(&setup), post(LEGACY, &call)).await;
    let seen: Vec<_> = setup.fake.seen().into_iter().filter(|seen| seen.operation == "list_threads").collect();
    assert_eq!(seen[0].metadata.get("authorization").unwrap(), "Bearer sk_prod_x");
    assert!(seen[1].metadata.get("authorization").is_none());
}

#[tokio::test]
async fn unreadable_bodies_are_json_rpc_errors() {
    let setup = setup(Credentials::Callers);
    for (body, code) in [("{\"jsonrpc\": ", -32700), ("", -32700), ("\u{0}", -32700), ("[]", -32600), ("{}", -32600), ("5", -32600)] {
        let mut request = post(LEGACY, &list());
        *request.body_mut() = Body::from(body);
        let (status, reply) = exchange(&router(&setup), request).await;
        assert_eq!((status, reply["error"]["code"].as_i64()), (StatusCode::BAD_REQUEST, Some(code)), "{body:?} {reply}");
    }
    let (status, _) = exchange(&router(&setup), with(post(LEGACY, &list()), "content-type", "text/plain")).await;
    assert_eq!(status, StatusCode::UNSUPPORTED_MEDIA_TYPE);
}

#[tokio::test]
async fn a_body_over_the_limit_is_refused() {
    let setup = setup(Credentials::Callers);
    let mut request = post(LEGACY, &list());
    *request.body_mut() = Body::from(vec![b' '; MAX_MESSAGE_BYTES + 1]);
    assert_eq!(exchange(&router(&setup), request).await.0, StatusCode::PAYLOAD_TOO_LARGE);
}

#[tokio::test]
async fn health_says_alive_always_and_ready_only_with_the_service() {
    let mut setup = setup(Credentials::Callers);
    let router = router(&setup);
    let get = |path: &str| Request::get(path).header("host", "probe").body(Body::empty()).unwrap();
    assert_eq!(exchange(&router, get("/healthz")).await.0, StatusCode::OK);
    assert_eq!(exchange(&router, get("/readyz")).await.0, StatusCode::OK);
    setup.server.kill();
    std::fs::remove_file(setup.dir.path().join("service.sock")).unwrap();
    assert_eq!(exchange(&router, get("/healthz")).await.0, StatusCode::OK);
    assert_eq!(exchange(&router, get("/readyz")).await.0, StatusCode::SERVICE_UNAVAILABLE);
}

#[tokio::test]
async fn a_client_that_disconnects_takes_its_call_with_it() {
    let setup = setup(Credentials::Callers);
    setup.fake.behave(Behaviour::Hang);
    for era in [LEGACY, Era::Modern] {
        let call = era.request(1, "tools/call", json!({"name": "list_threads", "arguments": {}}));
        let waiting = tokio::spawn(router(&setup).oneshot(post(era, &call)));
        setup.fake.arrived().await;
        waiting.abort();
        setup.fake.given_up().await;
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
        assert_eq!(exchange(&router(&setup), request).await.0, StatusCode::METHOD_NOT_ALLOWED, "{method}");
    }
    let request = Request::get("/nothing").header("host", "localhost").body(Body::empty()).unwrap();
    assert_eq!(exchange(&router(&setup), request).await.0, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn a_modern_request_whose_headers_contradict_its_body_is_refused() {
    let setup = setup(Credentials::Callers);
    let call = Era::Modern.request(1, "tools/call", json!({"name": "list_threads", "arguments": {}}));
    let (status, reply) = exchange(&router(&setup), with(post(Era::Modern, &call), "mcp-name", "delete_context")).await;
    assert_eq!((status, reply["error"]["code"].as_i64()), (StatusCode::BAD_REQUEST, Some(-32020)));
    assert!(setup.fake.seen().is_empty());
}

#[tokio::test]
async fn a_body_that_breaks_off_is_the_callers_fault() {
    let setup = setup(Credentials::Callers);
    let (parts, _) = post(LEGACY, &list()).into_parts();
    let pieces = [Ok("{\"jsonrpc\": "), Err(std::io::Error::other("connection reset"))];
    let request = Request::from_parts(parts, Body::from_stream(futures::stream::iter(pieces)));
    let (status, reply) = exchange(&router(&setup), request).await;
    assert_eq!((status, &reply["error"]["code"]), (StatusCode::BAD_REQUEST, &json!(-32700)));
}

#[tokio::test]
async fn a_message_that_must_not_be_parsed_is_refused_with_its_id() {
    let setup = setup(Credentials::Callers);
    let call = LEGACY.request(7, "tools/call", json!({"name": "store_context", "arguments": {"metadata": {"list": vec![0; 1_100_000]}}}));
    let (status, reply) = exchange(&router(&setup), post(LEGACY, &call)).await;
    assert_eq!((status, reply["id"].as_u64(), reply["error"]["code"].as_i64()), (StatusCode::BAD_REQUEST, Some(7), Some(-32600)));
    let mut request = post(LEGACY, &list());
    *request.body_mut() = Body::from("{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"ping\",\"params\":{\"n\":18446744073709551616}}");
    let (status, reply) = exchange(&router(&setup), request).await;
    assert_eq!((status, reply["id"].as_u64()), (StatusCode::BAD_REQUEST, Some(7)));
    assert!(reply["error"]["message"].as_str().unwrap().contains("18446744073709551616"), "{reply}");
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
    let serving = tokio::spawn(serve(listener, app(setup.gateway.clone(), &config, stop.clone()), stop.clone()));
    let mut idle = tokio::net::TcpStream::connect(address).await.unwrap();
    idle.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    let mut start = [0; 15];
    idle.read_exact(&mut start).await.unwrap();
    assert_eq!(&start, b"HTTP/1.1 200 OK");
    let listen = Era::Modern.request(1, "subscriptions/listen", json!({"notifications": {"toolsListChanged": true}})).to_string();
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let head = format!(
        "POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\nmcp-protocol-version: 2026-07-28\r\n\
         mcp-method: subscriptions/listen\r\ncontent-length: {}\r\n\r\n",
        listen.len()
    );
    stream.write_all((head + &listen).as_bytes()).await.unwrap();
    let mut seen = Vec::new();
    while !String::from_utf8_lossy(&seen).contains("acknowledged") {
        assert_ne!(stream.read_buf(&mut seen).await.unwrap(), 0, "{}", String::from_utf8_lossy(&seen));
    }
    stop.cancel();
    serving.await.unwrap().unwrap();
    let mut rest = Vec::new();
    idle.read_to_end(&mut rest).await.unwrap();
    stream.read_to_end(&mut rest).await.unwrap();
    assert!(tokio::net::TcpStream::connect(address).await.is_err());
}
