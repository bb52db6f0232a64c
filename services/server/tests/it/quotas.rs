//! Quotas of owners, on both databases.

use context_test_support::http::Reply;
use http::StatusCode;
use serde_json::{Value, json};

use crate::changes::both;

fn refused(reply: &Reply, what: &str) -> bool {
    let detail = reply.json()["detail"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    reply.status == StatusCode::INSUFFICIENT_STORAGE
        && reply.reason() == "QUOTA_EXCEEDED"
        && detail.contains(what)
}

fn entry(text: &str) -> Value {
    json!({"thread_id": "t", "source": "user", "text": text})
}

#[tokio::test(flavor = "multi_thread")]
async fn an_owner_has_no_more_entries_and_artifacts_than_it_may() {
    for (service, _database) in both(&["--quota-entries=3", "--quota-artifacts=1"]).await {
        for i in 0..2 {
            service.store("t", &format!("entry {i}")).await;
        }
        let two = json!({"entries": [entry("third"), entry("fourth")]});
        let reply = service.post("/v1/contexts/batch", two).send().await;
        assert!(
            refused(&reply, "2 of at most 3 context entries"),
            "{}",
            reply.body
        );
        let third = service.store("t", "third").await;
        let reply = service.post("/v1/contexts", entry("fourth")).send().await;
        assert!(
            refused(&reply, "3 of at most 3 context entries"),
            "{}",
            reply.body
        );
        let changed = service
            .patch(&format!("/v1/contexts/{third}"), json!({"text": "changed"}))
            .send()
            .await;
        assert_eq!(
            changed.status,
            StatusCode::OK,
            "a change that adds no entry is not refused"
        );
        assert_eq!(
            service
                .delete(&format!("/v1/contexts/{third}"))
                .send()
                .await
                .json()["deleted_count"],
            1
        );
        let fourth = service.post("/v1/contexts", entry("fourth")).send().await;
        assert_eq!(
            fourth.status,
            StatusCode::CREATED,
            "a deleted entry no longer counts: {}",
            fourth.body
        );

        let artifact = || service.post("/v1/artifacts", json!({"content": "# Plan"}));
        assert_eq!(artifact().send().await.status, StatusCode::CREATED);
        let reply = artifact().send().await;
        assert!(
            refused(&reply, "1 of at most 1 artifacts"),
            "{}",
            reply.body
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_just_deleted_does_not_count() {
    for (service, _database) in both(&["--quota-entries=1", "--quota-artifacts=1"]).await {
        let id = service.store("t", "first").await;
        let by_thread = json!({"thread_ids": ["t"]});
        for delete in [
            service.delete(&format!("/v1/contexts/{id}")),
            service.post("/v1/contexts/batch-delete", by_thread),
        ] {
            let refusal = service.post("/v1/contexts", entry("second")).send().await;
            assert!(refused(&refusal, "1 of at most 1"), "{}", refusal.body);
            assert_eq!(delete.send().await.json()["deleted_count"], 1);
            service.store("t", "second").await;
        }

        let create = async || {
            let body = json!({"content": "# Plan", "path": "plans/a"});
            service.post("/v1/artifacts", body).send().await
        };
        let first = create().await;
        assert_eq!(first.status, StatusCode::CREATED, "{}", first.body);
        let id = first.json()["id"].as_str().expect("an id").to_owned();
        for delete in [
            service.delete(&format!("/v1/artifacts/{id}")),
            service.post("/v1/artifacts/delete", json!({"path": "plans"})),
        ] {
            let refusal = create().await;
            assert!(refused(&refusal, "1 of at most 1"), "{}", refusal.body);
            assert_eq!(delete.send().await.status, StatusCode::OK);
            let again = create().await;
            assert_eq!(again.status, StatusCode::CREATED, "{}", again.body);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_owner_has_no_more_bytes_than_it_may_and_sees_its_own_alone() {
    for (service, _database) in both(&["--auth=keys", "--quota-mb=1"]).await {
        let all = ["read", "write", "delete"];
        let (one, other) = (
            service.key("one", &all).await.text,
            service.key("other", &all).await.text,
        );
        let store = |key: &str, text: String| {
            service
                .post("/v1/contexts", entry(&text))
                .header("authorization", key)
                .send()
        };
        let size = async |key: &str| {
            service
                .get("/v1/statistics")
                .header("authorization", key)
                .send()
                .await
                .json()["database_size_mb"]
                .clone()
        };
        let large = "word ".repeat(120_000);
        assert_eq!(store(&one, large.clone()).await.status, StatusCode::CREATED);
        let reply = store(&one, format!("{large}.")).await;
        assert!(
            refused(&reply, "of at most 1048576 bytes"),
            "{}",
            reply.body
        );
        let reply = service
            .post("/v1/artifacts", json!({"content": "x".repeat(100_000)}))
            .header("authorization", &one)
            .send()
            .await;
        assert_eq!(reply.status, StatusCode::CREATED, "it fits: {}", reply.body);
        assert_eq!(
            store(&other, large.clone()).await.status,
            StatusCode::CREATED,
            "each owner has a quota of its own"
        );
        assert_eq!(
            (size(&one).await, size(&other).await),
            (json!(0.67), json!(0.57))
        );
        let artifact = reply.json()["id"].as_str().expect("an id").to_owned();
        let update = async |body: Value| {
            service
                .patch(&format!("/v1/artifacts/{artifact}"), body)
                .header("authorization", &one)
                .send()
                .await
        };
        let metadata = json!({"metadata": {"notes": "x".repeat(200_000)}});
        assert_eq!(update(metadata).await.status, StatusCode::OK, "it fits");
        let reply = update(json!({"content": "x"})).await;
        assert!(
            refused(&reply, "of at most 1048576 bytes"),
            "the new version has the metadata too: {}",
            reply.body
        );
        let reply = update(json!({"path": "notes/x"})).await;
        assert_eq!(
            reply.status,
            StatusCode::OK,
            "a path makes no version: {}",
            reply.body
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tags_and_paths_count_towards_the_quota() {
    for (service, _database) in both(&["--quota-mb=1"]).await {
        // 100 tags of 400 bytes.
        let tags: Vec<String> = (100..200)
            .map(|i| format!("{i}x{}", "😀".repeat(99)))
            .collect();
        let batch = |count: usize| {
            let entries = (0..count).map(|i| {
                let mut entry = entry(&format!("entry {i:02}"));
                entry["tags"] = json!(tags);
                entry
            });
            let body = json!({"entries": entries.collect::<Vec<_>>()});
            service.post("/v1/contexts/batch", body).send()
        };
        let reply = batch(27).await;
        assert!(refused(&reply, "would add 1080216"), "{}", reply.body);
        let reply = batch(26).await;
        assert!(reply.status.is_success(), "it fits: {}", reply.body);
        let id = reply.json()["results"][0]["context_id"].clone();
        let reply = service
            .patch(&format!("/v1/contexts/{id}"), json!({"tags": tags}))
            .send()
            .await;
        assert!(refused(&reply, "would add 40000"), "{}", reply.body);
        let artifact = json!({"content": "# Plan", "path": "p"});
        let fits = service.post("/v1/artifacts", artifact).send().await;
        assert_eq!(fits.status, StatusCode::CREATED, "{}", fits.body);
        let long = "😀".repeat(1000);
        let mut last = fits;
        for i in 0..3 {
            let artifact = json!({"content": "# Plan", "path": format!("{i}{long}")});
            last = service.post("/v1/artifacts", artifact).send().await;
        }
        // A title of 4 bytes, a content of 6, empty metadata of 2, and a path.
        assert!(refused(&last, "would add 4013"), "{}", last.body);
        let to = json!({"path": "p", "to": long});
        let moved = service.post("/v1/artifacts/move", to).send().await;
        assert!(refused(&moved, "would add 3999"), "{}", moved.body);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_retry_gets_its_reply_when_the_quota_is_reached() {
    for (service, _database) in both(&["--quota-entries=1", "--quota-artifacts=1"]).await {
        let keyed = |path: &str, body: Value, key: &str| {
            service
                .post(path, body)
                .header("idempotency-key", key)
                .send()
        };
        for (path, body, limit) in [
            (
                "/v1/contexts",
                entry("first"),
                "1 of at most 1 context entries",
            ),
            (
                "/v1/artifacts",
                json!({"content": "# Plan"}),
                "1 of at most 1 artifacts",
            ),
        ] {
            let first = keyed(path, body.clone(), path).await;
            assert_eq!(first.status, StatusCode::CREATED, "{}", first.body);
            let again = keyed(path, body.clone(), path).await;
            assert_eq!(
                (again.status, again.json()),
                (StatusCode::CREATED, first.json()),
                "the retry of {path}"
            );
            let new = keyed(path, body, "another-key").await;
            assert!(refused(&new, limit), "{}", new.body);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_owner_s_stored_outcomes_are_bounded_and_none_is_forgotten_early() {
    for (service, _database) in both(&["--idempotency-mb=1"]).await {
        // The entries do not exist, so only outcomes are stored.
        let updates: Vec<Value> = (1..=100)
            .map(|id| json!({"context_id": id, "text": "x"}))
            .collect();
        let body = json!({"updates": updates, "atomic": false});
        let update = |key: String| {
            service
                .patch("/v1/contexts/batch", body.clone())
                .header("idempotency-key", &key)
                .send()
        };
        let first = update("first".to_owned()).await;
        assert_eq!(first.status, StatusCode::OK, "{}", first.body);
        let key = |n: usize| format!("{n:0200}");
        let mut accepted = Vec::new();
        let last = loop {
            let more = accepted.len();
            assert!(more < 200, "{more} outcomes of 100 items each are stored");
            let reply = update(key(more)).await;
            if reply.status != StatusCode::OK {
                break reply;
            }
            accepted.push(reply.json());
        };
        assert!(refused(&last, "of at most 1048576 bytes"), "{}", last.body);
        let more = accepted.len();
        assert!(more > 2, "only {more} more outcomes were accepted");
        let again = update("first".to_owned()).await;
        assert_eq!(
            (again.status, again.json()),
            (StatusCode::OK, first.json()),
            "the oldest is still there"
        );
        for n in [more / 2, more - 1] {
            let again = update(key(n)).await;
            assert_eq!(
                (again.status, &again.json()),
                (StatusCode::OK, &accepted[n]),
                "number {n} of {more} is still there"
            );
        }
        service.store("t", "without a key").await;
    }
}
