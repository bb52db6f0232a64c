//! Checks of hosts and origins, request ids, and response headers.

use crate::service::Service;

#[tokio::test(flavor = "multi_thread")]
async fn a_page_under_another_name_does_not_reach_the_service() {
    let service = Service::start_with(&["--allowed-hosts=context.example"]).await;
    for (host, status) in [
        ("localhost:7420", 200),
        ("127.0.0.1", 200),
        ("[::1]:7420", 200),
        ("context.example", 200),
        ("evil.example", 400),
        ("localhost.evil.example", 400),
    ] {
        let reply = service.get("/v1/threads").header("host", host).send().await;
        assert_eq!(reply.status, status, "{host}: {}", reply.body);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn browsers_of_other_origins_get_no_permission() {
    let service = Service::start().await;
    let reply = service
        .get("/v1/threads")
        .header("origin", "https://app.example")
        .send()
        .await;
    assert_eq!(reply.header("access-control-allow-origin"), None);
    let preflight = service
        .request("OPTIONS", "/v1/contexts")
        .header("origin", "https://app.example")
        .header("access-control-request-method", "POST")
        .send()
        .await;
    assert_eq!(preflight.header("access-control-allow-origin"), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_allowed_origin_may_call_and_read_the_etag() {
    let service = Service::start_with(&["--cors-origins=https://app.example"]).await;
    let reply = service
        .get("/v1/threads")
        .header("origin", "https://app.example")
        .send()
        .await;
    assert_eq!(
        reply.header("access-control-allow-origin"),
        Some("https://app.example")
    );
    assert!(
        reply
            .header("access-control-expose-headers")
            .unwrap()
            .contains("etag")
    );
    assert_eq!(reply.header("access-control-allow-credentials"), None);
    let other = service
        .get("/v1/threads")
        .header("origin", "https://evil.example")
        .send()
        .await;
    assert_eq!(other.header("access-control-allow-origin"), None);
    let preflight = async |origin: &str| {
        service
            .request("OPTIONS", "/v1/contexts/1")
            .header("origin", origin)
            .header("access-control-request-method", "PATCH")
            .header("access-control-request-headers", "content-type,if-match")
            .send()
            .await
    };
    let other = preflight("https://evil.example").await;
    assert_eq!(other.header("access-control-allow-origin"), None);
    let preflight = preflight("https://app.example").await;
    assert_eq!(preflight.status, 200);
    assert_eq!(
        preflight.header("access-control-allow-origin"),
        Some("https://app.example")
    );
    assert!(
        preflight
            .header("access-control-allow-methods")
            .unwrap()
            .contains("PATCH")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_id_is_kept_when_harmless_and_made_otherwise() {
    let service = Service::start().await;
    let echoed = service
        .get("/v1/contexts/5")
        .header("x-request-id", "job-17.a_b")
        .send()
        .await;
    assert_eq!(echoed.header("x-request-id"), Some("job-17.a_b"));
    assert_eq!(echoed.json()["instance"], "job-17.a_b");
    let longest = "x".repeat(128);
    let kept = service
        .get("/healthz")
        .header("x-request-id", &longest)
        .send()
        .await;
    assert_eq!(kept.header("x-request-id"), Some(longest.as_str()));
    for odd in ["", "<script>", "a b", &"x".repeat(129)] {
        let made = service
            .get("/healthz")
            .header("x-request-id", odd)
            .send()
            .await;
        assert_eq!(made.header("x-request-id").map(str::len), Some(32), "{odd}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn replies_are_not_sniffed_framed_or_stored() {
    let service = Service::start().await;
    for (path, status) in [("/v1/threads", 200), ("/v1/contexts/99", 404)] {
        let reply = service.get(path).send().await;
        assert_eq!(reply.status, status, "{path}");
        assert_eq!(reply.header("x-content-type-options"), Some("nosniff"));
        assert_eq!(reply.header("x-frame-options"), Some("DENY"));
        assert_eq!(reply.header("cache-control"), Some("no-store"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_explorer_needs_no_other_host() {
    let service = Service::start().await;
    let moved = service.get("/docs").send().await;
    assert_eq!(
        (moved.status.as_u16(), moved.header("location")),
        (308, Some("docs/"))
    );
    let page = service.get("/docs/").send().await;
    assert_eq!(page.status, 200);
    assert!(
        page.header("content-type")
            .unwrap()
            .starts_with("text/html")
    );
    assert!(!page.body.contains("https://"), "{}", page.body);
    let files = page
        .body
        .split('"')
        .filter(|part| part.ends_with(".js") || part.ends_with(".css"));
    let files: Vec<&str> = files.collect();
    assert!(files.len() >= 4, "{files:?}");
    for part in files {
        let file = service
            .get(&format!("/docs/{}", part.trim_start_matches("./")))
            .send()
            .await;
        assert_eq!(file.status, 200, "{part}");
    }
    assert!(
        service
            .get("/docs/swagger-initializer.js")
            .send()
            .await
            .body
            .contains("\"../openapi.json\"")
    );
    assert_eq!(
        service.get("/docs/../../etc/passwd").send().await.status,
        404
    );
    assert_eq!(
        service.get("/docs/nothing.js").send().await.reason(),
        "NOT_FOUND"
    );
    assert_eq!(service.get("/docs/%FF").send().await.reason(), "NOT_FOUND");
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_count_operations_by_outcome() {
    let service = Service::start().await;
    service.store("t", "one").await;
    service.get("/v1/contexts/99").send().await;
    let metrics = service.get("/metrics").send().await;
    for line in [
        "context_requests_total{operation=\"store_context\",transport=\"rest\",outcome=\"OK\"} 1",
        "context_requests_total{operation=\"get_context_by_ids\",transport=\"rest\",outcome=\"CONTEXT_NOT_FOUND\"} 1",
        "context_requests_in_flight 0",
        "context_store_writes 1",
    ] {
        assert!(
            metrics.body.lines().any(|found| found == line),
            "{line} in\n{}",
            metrics.body
        );
    }
}
