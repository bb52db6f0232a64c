//! `ETag`, `If-Match`, `If-None-Match` and `Idempotency-Key`.

use serde_json::json;

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
    service.store("t", "between").await;
    let retry = store("one").send().await;
    assert_eq!(retry.json()["context_id"], first.json()["context_id"]);
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
}
