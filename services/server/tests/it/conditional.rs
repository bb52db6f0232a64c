//! `ETag`, `If-Match`, `If-None-Match` and `Idempotency-Key`.

use serde_json::{Value, json};

use crate::changes::both;
use crate::service::Service;

#[tokio::test(flavor = "multi_thread")]
async fn an_update_based_on_an_old_version_is_refused_and_changes_nothing() {
    let service = Service::start().await;
    service.store("t", "first").await;
    let updated = service
        .patch("/v1/contexts/1", json!({"text": "second"}))
        .header("if-match", "\"1\"")
        .send()
        .await;
    assert_eq!(
        (updated.status.as_u16(), updated.header("etag")),
        (200, Some("\"2\""))
    );

    let stale = service
        .patch("/v1/contexts/1", json!({"text": "third"}))
        .header("if-match", "\"1\"")
        .send()
        .await;
    assert_eq!(
        (stale.status.as_u16(), stale.reason().as_str()),
        (412, "VERSION_MISMATCH")
    );
    let weak = service
        .patch("/v1/contexts/1", json!({"text": "third"}))
        .header("if-match", "W/\"2\"")
        .send()
        .await;
    assert_eq!(weak.status, 412);
    assert_eq!(
        service.get("/v1/contexts/1").send().await.json()["text_content"],
        "second"
    );

    let any = service
        .patch("/v1/contexts/1", json!({"text": "third"}))
        .header("if-match", "*")
        .send()
        .await;
    assert_eq!(any.status, 200);
    let both = service
        .patch(
            "/v1/contexts/1",
            json!({"text": "x", "expected_version": 2}),
        )
        .header("if-match", "\"3\"")
        .send()
        .await;
    assert_eq!(
        (both.status.as_u16(), both.reason().as_str()),
        (400, "INVALID_ARGUMENT")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_version_the_caller_has_is_not_sent_again() {
    let service = Service::start().await;
    service.store("t", "first").await;
    let same = service
        .get("/v1/contexts/1")
        .header("if-none-match", "W/\"7\", \"1\"")
        .send()
        .await;
    assert_eq!(
        (
            same.status.as_u16(),
            same.body.as_str(),
            same.header("etag")
        ),
        (304, "", Some("\"1\""))
    );
    let newer = service
        .get("/v1/contexts/1")
        .header("if-none-match", "\"7\"")
        .send()
        .await;
    assert_eq!(newer.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn another_artifact_at_a_path_and_another_path_of_an_artifact_are_sent() {
    let service = Service::start().await;
    let create = async |content: &str| {
        let body = json!({"content": content, "path": "/p"});
        let created = service.post("/v1/artifacts", body).send().await.json();
        created["id"].as_str().unwrap().to_owned()
    };
    let (by_path, first) = ("/v1/artifacts/by-path?path=/p", create("first").await);
    let tag_of_first = service.get(by_path).send().await;
    let tag_of_first = tag_of_first.header("etag").unwrap();
    let get = |path: &str| {
        service
            .get(path)
            .header("if-none-match", &format!("\"1\", {tag_of_first}"))
    };
    assert_eq!(get(by_path).send().await.status, 304);

    service
        .delete(&format!("/v1/artifacts/{first}"))
        .send()
        .await;
    let second = create("second").await;
    let replaced = get(by_path).send().await;
    assert_eq!(replaced.json()["content"], "second");

    let by_id = format!("/v1/artifacts/{second}");
    let tag = replaced.header("etag").unwrap().to_owned();
    let current = async |path: &str| service.get(path).header("if-none-match", &tag).send().await;
    assert_eq!(current(&by_id).await.status, 304);
    let to = json!({"path": "/p", "to": "/q"});
    service.post("/v1/artifacts/move", to).send().await;
    assert_eq!(current(&by_id).await.json()["path"], "/q");

    let changed = service
        .patch(&by_id, json!({"content": "third"}))
        .header("if-match", &tag)
        .send()
        .await;
    assert_eq!(
        (changed.status.as_u16(), changed.header("etag")),
        (200, Some("\"2\""))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_retry_with_its_key_gives_the_first_reply_and_another_request_is_refused() {
    let service = Service::start().await;
    let store = |text: &str| {
        service
            .post(
                "/v1/contexts",
                json!({"thread_id": "t", "source": "user", "text": text}),
            )
            .header("idempotency-key", "key-1")
    };
    let first = store("one").send().await;
    assert_eq!(
        (first.status.as_u16(), &first.json()["context_id"]),
        (201, &json!(1))
    );
    let between = service.store("t", "between").await;
    let retry = store("one").send().await;
    assert!(retry.status.is_success(), "{}", retry.body);
    assert_eq!(retry.json()["context_id"], 1);
    // The retry stored nothing.
    let statistics = service.get("/v1/statistics").send().await.json();
    assert_eq!((between, &statistics["total_entries"]), (2, &json!(2)));
    let other = store("two").send().await;
    assert_eq!(
        (other.status.as_u16(), other.reason().as_str()),
        (422, "IDEMPOTENCY_KEY_REUSED")
    );
    let malformed = service
        .delete("/v1/contexts/1")
        .header("idempotency-key", "a b")
        .send()
        .await;
    assert_eq!(malformed.status, 400);
    assert_eq!(
        malformed.json()["violations"][0]["field"],
        "idempotency-key"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_without_valid_items_uses_up_its_key() {
    for (service, _database) in both(&[]).await {
        service.store("t", "first").await;
        let entries = |text: &str| {
            let entry = json!({"thread_id": "t", "source": "user", "text": text});
            json!({"entries": [entry], "atomic": false})
        };
        let updates = |text: &str| {
            let update = json!({"context_id": 1, "text": text});
            json!({"updates": [update], "atomic": false})
        };
        let path = "/v1/contexts/batch";
        let store = |text: &str| service.post(path, entries(text));
        let update = |text: &str| service.patch(path, updates(text));
        for (invalid, again, other, key) in [
            (store(""), store(""), store("second"), "store"),
            (update(""), update(""), update("second"), "update"),
        ] {
            let invalid = invalid.header("idempotency-key", key).send().await;
            assert_eq!(invalid.status, 200, "{}", invalid.body);
            let reply = invalid.json();
            assert_eq!(
                (&reply["failed"], &reply["revision"]),
                (&json!(1), &json!(1))
            );
            let again = again.header("idempotency-key", key).send().await;
            assert_eq!(again.json(), reply);
            let other = other.header("idempotency-key", key).send().await;
            assert_eq!(
                (other.status.as_u16(), other.reason().as_str()),
                (422, "IDEMPOTENCY_KEY_REUSED"),
                "{}",
                other.body
            );
        }
        let statistics = service.get("/v1/statistics").send().await.json();
        assert_eq!(statistics["total_entries"], 1);
        let first = service.get("/v1/contexts/1").send().await.json();
        assert_eq!(first["text_content"], "first");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_delete_that_cannot_keep_its_condition_is_refused() {
    let service = Service::start().await;
    service.store("t", "still there").await;
    assert_eq!(
        service
            .delete("/v1/contexts/1")
            .header("if-match", "\"1\"")
            .send()
            .await
            .status,
        400
    );
    assert_eq!(service.get("/v1/contexts/1").send().await.status, 200);
    let body = json!({"content": "still there"});
    let created = service.post("/v1/artifacts", body).send().await.json();
    let path = format!("/v1/artifacts/{}", created["id"].as_str().unwrap());
    let refused = service.delete(&path).header("if-match", "\"1\"");
    assert_eq!(refused.send().await.status, 400);
    assert_eq!(service.get(&path).send().await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restore_based_on_an_old_version_is_refused() {
    let service = Service::start().await;
    let body = json!({"content": "first"});
    let created = service.post("/v1/artifacts", body).send().await.json();
    let path = format!("/v1/artifacts/{}", created["id"].as_str().unwrap());
    let changed = service.patch(&path, json!({"content": "second"}));
    assert_eq!(changed.send().await.status, 200);
    let url = format!("{path}/versions/1/restore");
    let restore = async |tag: &str| {
        let restore = service.post(&url, json!({}));
        restore.header("if-match", tag).send().await
    };
    let by_body = async |body: Value| service.post(&url, body).send().await;
    for stale in [
        restore("\"1\"").await,
        by_body(json!({"expected_version": 1})).await,
    ] {
        assert_eq!(
            (stale.status.as_u16(), stale.reason().as_str()),
            (412, "VERSION_MISMATCH")
        );
    }
    for (body, field) in [
        (json!({"expected_version": 0}), "expected_version"),
        (json!({"version": 1}), "version"),
    ] {
        let refused = by_body(body).await;
        assert_eq!(refused.reason(), "INVALID_ARGUMENT");
        assert_eq!(refused.json()["violations"][0]["field"], field);
    }
    let contradicting = service.post(&url, json!({"expected_version": 1}));
    let contradicting = contradicting.header("if-match", "\"2\"").send().await;
    assert_eq!(contradicting.reason(), "INVALID_ARGUMENT");
    let no_json = service.request("POST", &url).body("{}").send().await;
    assert_eq!(no_json.reason(), "UNSUPPORTED_MEDIA_TYPE");
    let content = service.get(&path).send().await.json()["content"].clone();
    assert_eq!(content, "second");
    let restored = restore("\"2\"").await;
    assert_eq!(
        (restored.status.as_u16(), restored.header("etag")),
        (200, Some("\"3\""))
    );
    let content = service.get(&path).send().await.json()["content"].clone();
    assert_eq!(content, "first");
    // The body may also name the version, be null, or be absent.
    for (request, version) in [
        (service.post(&url, json!({"expected_version": 3})), "\"4\""),
        (service.post(&url, Value::Null), "\"5\""),
        (service.request("POST", &url), "\"6\""),
    ] {
        let restored = request.send().await;
        assert_eq!(
            (restored.status.as_u16(), restored.header("etag")),
            (200, Some(version)),
            "{}",
            restored.body
        );
    }
}
