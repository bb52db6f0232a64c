//! Keys: made, listed, changed, switched off; verified once; limited in their rate.

use std::time::{Duration, Instant};

use context_engine::Admin;
use http::StatusCode;
use serde_json::json;

use crate::client::{Reply, Request};
use crate::service::{Service, settings};

fn with(request: Request, key: &str) -> Request {
    request.header("authorization", &format!("Bearer {key}"))
}

async fn keyed() -> (Service, String) {
    let service = Service::start_with(&["--auth=keys"]).await;
    let key = service.first_key.clone().expect("the first start makes a key");
    (service, key)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_owner_manages_its_keys() {
    let (service, first) = keyed().await;
    let body = json!({"name": "dashboard", "scopes": ["read"], "expires_at": "2035-01-01"});
    let made = with(service.post("/v1/api-keys", body), &first).send().await;
    assert_eq!(made.status, StatusCode::CREATED);
    let (key, id) = (made.json()["key"].as_str().unwrap().to_owned(), made.json()["api_key"]["id"].as_str().unwrap().to_owned());
    assert_eq!(made.header("location"), Some(format!("/v1/api-keys/{id}").as_str()));
    assert_eq!((key.len(), key.starts_with("sk_prod_")), (40, true));

    let listed = with(service.get("/v1/api-keys"), &first).send().await;
    assert_eq!(listed.json()["result"].as_array().unwrap().len(), 2);
    assert!(!listed.body.contains(&key[8..]) && !listed.body.contains("$2"), "neither the key nor its hash");
    assert_eq!(with(service.get("/v1/threads"), &key).send().await.status, StatusCode::OK);
    let shown = loop {
        let shown = with(service.get(&format!("/v1/api-keys/{id}")), &first).send().await.json();
        if !shown["last_used_at"].is_null() {
            break shown;
        }
        tokio::task::yield_now().await;
    };
    assert_eq!((&shown["name"], &shown["scopes"], &shown["active"]), (&json!("dashboard"), &json!(["read"]), &json!(true)));

    let changed = with(service.patch(&format!("/v1/api-keys/{id}"), json!({"name": "wall", "expires_at": ""})), &first).send().await;
    assert_eq!((&changed.json()["name"], &changed.json()["expires_at"]), (&json!("wall"), &json!(null)));
    let off = with(service.post(&format!("/v1/api-keys/{id}/deactivate"), json!({})), &first).send().await;
    assert_eq!(off.json()["active"], false);
    for (body, field) in [
        (json!({"name": " "}), "name"),
        (json!({"name": "x", "scopes": ["admin"]}), "scopes"),
        (json!({"name": "x", "scopes": []}), "scopes"),
        (json!({"name": "x", "expires_at": "2020-01-01"}), "expires_at"),
        (json!({"name": "x", "only": "threads"}), "only"),
    ] {
        let refused = with(service.post("/v1/api-keys", body), &first).send().await;
        assert_eq!((refused.status, refused.json()["violations"][0]["field"].as_str()), (StatusCode::BAD_REQUEST, Some(field)));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_gives_no_right_that_it_lacks_itself() {
    let (service, _) = keyed().await;
    let key = service.key("default", &["read", "manage"]).await;
    let refused = with(service.post("/v1/api-keys", json!({"name": "x", "scopes": ["read", "write"]})), &key.text).send().await;
    assert_eq!((refused.status, refused.reason().as_str()), (StatusCode::FORBIDDEN, "SCOPE_MISSING"));
    let refused = with(service.patch(&format!("/v1/api-keys/{}", key.id), json!({"scopes": ["delete"]})), &key.text).send().await;
    assert_eq!(refused.status, StatusCode::FORBIDDEN);
    let theirs = service.key("other", &["read"]).await;
    let unknown = with(service.get(&format!("/v1/api-keys/{}", theirs.id)), &key.text).send().await;
    assert_eq!((unknown.status, unknown.reason().as_str()), (StatusCode::NOT_FOUND, "API_KEY_NOT_FOUND"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_burst_with_one_key_verifies_it_once() {
    let (service, key) = keyed().await;
    let requests = (0..2000).map(|_| with(service.get("/v1/threads?limit=1"), &key).send());
    let replies: Vec<Reply> = futures::StreamExt::collect(futures::StreamExt::buffer_unordered(futures::stream::iter(requests), 100)).await;
    assert!(replies.iter().all(|reply| reply.status == StatusCode::OK));
    let metrics = service.get("/metrics").send().await.body;
    assert!(metrics.contains("context_key_verifications 1\n"), "{metrics}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revoked_key_stops_within_a_second() {
    let (service, _) = keyed().await;
    let key = service.key("default", &["read"]).await;
    assert_eq!(with(service.get("/v1/threads"), &key.text).send().await.status, StatusCode::OK);
    service.engine.administer(Admin::RevokeKey { owner: "default".into(), key_id: key.id }).await.unwrap();
    let revoked = Instant::now();
    while with(service.get("/v1/threads"), &key.text).send().await.status != StatusCode::UNAUTHORIZED {
        assert!(revoked.elapsed() < Duration::from_secs(1), "it still works");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_over_its_rate_is_told_when_to_come_back() {
    let service = Service::start_with(&["--auth=keys", "--rate-limit-per-minute=6"]).await;
    let key = service.first_key.clone().unwrap();
    assert_eq!(with(service.get("/v1/threads"), &key).send().await.status, StatusCode::OK);
    let refused = with(service.get("/v1/threads"), &key).send().await;
    assert_eq!((refused.status, refused.reason().as_str()), (StatusCode::TOO_MANY_REQUESTS, "RATE_LIMITED"));
    let seconds: u64 = refused.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=10).contains(&seconds), "{seconds}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_audit_log_says_who_did_what_and_what_was_refused_without_contents() {
    let (service, first) = keyed().await;
    let reader = service.key("default", &["read"]).await;
    let body = json!({"thread_id": "t", "source": "user", "text": "a secret canary"});
    with(service.post("/v1/contexts", body.clone()), &first).send().await;
    with(service.post("/v1/artifacts", json!({"content": "a secret canary"})), &first).send().await;
    assert_eq!(with(service.post("/v1/contexts", body), &reader.text).send().await.status, StatusCode::FORBIDDEN);
    let audit = || service.engine.administer(Admin::Audit { owner: "default".into(), from: None });
    let log = loop {
        let log = audit().await.unwrap();
        if log.contains("SCOPE_MISSING") {
            break log;
        }
        tokio::task::yield_now().await;
    };
    let lines: Vec<serde_json::Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of = |outcome: &str| lines.iter().filter(|line| line["outcome"] == outcome).cloned().collect::<Vec<_>>();
    let made: Vec<_> = of("OK").iter().map(|line| line["entity"].clone()).collect();
    assert_eq!(made, [json!("context"), json!("artifact")]);
    let refused = &of("SCOPE_MISSING")[0];
    assert_eq!((&refused["operation"], &refused["key_id"]), (&json!("store_context"), &json!(reader.id)));
    assert!(!log.contains("canary"), "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_key_is_made_once() {
    let directory = tempfile::tempdir().unwrap();
    let config = settings(directory.path(), &["--auth=keys"]);
    let mut keys = Vec::new();
    for _ in 0..2 {
        let context_service::Started::Running(running) = context_service::start(&config).await.unwrap() else { panic!("it runs") };
        keys.push(running.places().first_key.clone());
        if let Some(key) = &keys[0] {
            assert_eq!(running.places().banner().contains(key), keys.len() == 1);
        }
        running.stop().cancel();
        running.run().await;
    }
    assert!(keys[0].is_some() && keys[1].is_none());
}
