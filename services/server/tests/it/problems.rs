//! Every error response has the same form.

use context_test_support::http::Request;
use serde_json::json;

use crate::service::Service;

fn without_id(mut problem: serde_json::Value) -> serde_json::Value {
    problem["instance"] = "[request id]".into();
    problem
}

#[tokio::test(flavor = "multi_thread")]
async fn failures_look_like_this() {
    let service = Service::start().await;
    let requests: [(&str, Request); 12] = [
        ("unknown route", service.get("/v2/contexts")),
        ("unknown method", service.request("PUT", "/v1/contexts/1")),
        ("unknown entry", service.get("/v1/contexts/5")),
        ("malformed id", service.get("/v1/contexts/0x5")),
        ("malformed percent", service.get("/v1/contexts/%ff")),
        (
            "malformed query",
            service.get("/v1/threads?limit=many&colour=red"),
        ),
        (
            "range",
            service.post("/v1/contexts/search", json!({"limit": 500})),
        ),
        (
            "no body",
            service
                .request("POST", "/v1/contexts")
                .header("content-type", "application/json"),
        ),
        (
            "broken body",
            service
                .request("POST", "/v1/contexts")
                .header("content-type", "application/json")
                .body("{\"a\":"),
        ),
        (
            "unknown field",
            service.post("/v1/contexts", json!({"thread": "t"})),
        ),
        (
            "media type",
            service
                .request("POST", "/v1/contexts")
                .header("content-type", "text/plain")
                .body("{}"),
        ),
        (
            "compressed",
            service
                .post("/v1/contexts", json!({}))
                .header("content-encoding", "gzip"),
        ),
    ];
    let mut shown = serde_json::Map::new();
    for (name, request) in requests {
        let reply = request.send().await;
        reply.reason();
        shown.insert(name.to_owned(), without_id(reply.json()));
    }
    insta::assert_json_snapshot!(shown);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_parameter_of_a_route_without_parameters_is_refused_and_nothing_changes() {
    let service = Service::start().await;
    service.store("t", "still there").await;
    let delete = json!({"context_ids": [1]});
    for request in [
        service.delete("/v1/contexts/1?dry_run=true"),
        service.post("/v1/contexts/delete?dry_run=true", delete),
    ] {
        let refused = request.send().await;
        assert_eq!(
            (refused.status.as_u16(), refused.reason().as_str()),
            (400, "INVALID_ARGUMENT")
        );
        assert_eq!(
            refused.json()["detail"],
            "`dry_run` is not a parameter of this route"
        );
    }
    assert_eq!(service.get("/v1/contexts/1").send().await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_method_that_a_route_lacks_is_answered_with_those_it_has() {
    let service = Service::start().await;
    let reply = service
        .request("PUT", "/v1/contexts/batch")
        .json(&json!({}))
        .send()
        .await;
    assert_eq!(
        (reply.status.as_u16(), reply.reason().as_str()),
        (405, "METHOD_NOT_ALLOWED")
    );
    let mut allowed: Vec<_> = reply
        .header("allow")
        .unwrap()
        .split(',')
        .map(str::trim)
        .collect();
    allowed.sort_unstable();
    assert_eq!(allowed, ["PATCH", "POST"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_part_of_a_path_that_is_not_utf8_is_named() {
    let service = Service::start().await;
    for (path, field) in [
        ("/v1/contexts/%ff", "context_id"),
        ("/v1/artifacts/%ff", "artifact_id"),
        ("/v1/artifacts/%ff/versions/1", "artifact_id"),
        ("/v1/artifacts/version/versions/%ff", "version"),
    ] {
        let refused = service.get(path).send().await;
        assert_eq!(refused.reason(), "INVALID_ARGUMENT", "{path}");
        let named = refused.json()["violations"][0]["field"].clone();
        assert_eq!(named, field, "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_bad_field_is_named_at_once() {
    let service = Service::start().await;
    let reply = service
        .post(
            "/v1/contexts",
            json!({"thread_id": " ", "source": "bot", "text": ""}),
        )
        .send()
        .await;
    let problem = reply.json();
    let fields: Vec<_> = problem["violations"]
        .as_array()
        .unwrap()
        .iter()
        .map(|violation| violation["field"].as_str().unwrap())
        .collect();
    assert_eq!(fields, ["thread_id", "source", "text"]);
}
