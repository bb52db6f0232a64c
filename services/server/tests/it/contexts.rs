//! The operations over REST, from storing to deleting.

use serde_json::json;

use crate::service::Service;

#[tokio::test(flavor = "multi_thread")]
async fn store_then_get_returns_the_same_entry() {
    let service = Service::start().await;
    let entry = json!({"thread_id": " t1 ", "source": "agent", "text": "  Füße & <b>  ", "metadata": {"n": 1, "f": 1.5, "nested": {"x": null}},
        "tags": ["B", "a"], "images": [{"data": "iVBORw0KGgo="}]});
    let stored = service.post("/v1/contexts", entry).send().await;
    assert_eq!(stored.status, 201);
    assert_eq!(stored.header("location"), Some("/v1/contexts/1"));
    assert_eq!(stored.header("etag"), Some("\"1\""));

    let got = service.get("/v1/contexts/1").send().await;
    assert_eq!(got.status, 200);
    assert_eq!(got.header("etag"), Some("\"1\""));
    let mut got = got.json();
    for time in ["created_at", "updated_at"] {
        assert!(
            got[time]
                .take()
                .as_str()
                .is_some_and(|time| time.ends_with('Z'))
        );
    }
    assert_eq!(
        got,
        json!({"id": 1, "thread_id": "t1", "source": "agent", "content_type": "multimodal", "text_content": "  Füße & <b>  ",
            "summary": "", "metadata": {"n": 1, "f": 1.5, "nested": {"x": null}}, "tags": ["a", "b"], "created_at": null,
            "updated_at": null, "version": 1, "images": [{"data": "iVBORw0KGgo=", "mime_type": "image/png"}]})
    );
    let bare = service
        .get("/v1/contexts/1?include_images=false")
        .send()
        .await
        .json();
    assert_eq!(bare.get("images"), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_retransmit_is_answered_with_the_first_entry_and_200() {
    let service = Service::start().await;
    let entry = json!({"thread_id": "t", "source": "user", "text": "once"});
    assert_eq!(
        service
            .post("/v1/contexts", entry.clone())
            .send()
            .await
            .status,
        201
    );
    let again = service.post("/v1/contexts", entry).send().await;
    assert_eq!(again.status, 200);
    assert_eq!(again.json()["context_id"], 1);
    assert_eq!(again.json()["duplicate"], true);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_says_which_of_its_items_are_retransmits() {
    let service = Service::start().await;
    let entry = |text: &str| json!({"thread_id": "t", "source": "user", "text": text});
    let store = async |texts: &[&str]| {
        let entries: Vec<_> = texts.iter().copied().map(entry).collect();
        let body = json!({"entries": entries});
        let reply = service.post("/v1/contexts/batch", body).send().await.json();
        let results = reply["results"].as_array().unwrap().iter();
        let items: Vec<_> = results
            .map(|item| (item["context_id"].as_i64(), item.get("duplicate").cloned()))
            .collect();
        (reply["message"].as_str().unwrap().to_owned(), items)
    };
    let repeated = Some(json!(true));
    assert_eq!(
        store(&["once", "once"]).await,
        (
            "Stored 2 of 2 contexts; 1 of them repeats the newest entry of its thread and was not stored again"
                .to_owned(),
            vec![(Some(1), None), (Some(1), repeated.clone())]
        )
    );
    assert_eq!(
        store(&["once", "once"]).await,
        (
            "Stored 2 of 2 contexts; 2 of them repeat the newest entries of their threads and were not stored again"
                .to_owned(),
            vec![(Some(1), repeated.clone()), (Some(1), repeated)]
        )
    );
    assert_eq!(
        store(&["other"]).await,
        ("Stored 1 of 1 contexts".to_owned(), vec![(Some(2), None)])
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_list_form_skips_unknown_ids_and_the_single_form_does_not() {
    let service = Service::start().await;
    let (first, second) = (
        service.store("t", "one").await,
        service.store("t", "two").await,
    );
    let list = service
        .get(&format!("/v1/contexts?ids={first},{second},999"))
        .send()
        .await
        .json();
    let ids: Vec<_> = list["result"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| entry["id"].as_i64().unwrap())
        .collect();
    assert_eq!(ids, [second, first]);
    assert_eq!(list["revision"], 2);
    let unknown = service.get("/v1/contexts/999").send().await;
    assert_eq!(
        (unknown.status.as_u16(), unknown.reason().as_str()),
        (404, "CONTEXT_NOT_FOUND")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn deleting_what_does_not_exist_succeeds_with_zero() {
    let service = Service::start().await;
    let id = service.store("t", "one").await;
    assert_eq!(
        service
            .delete(&format!("/v1/contexts/{id}"))
            .send()
            .await
            .json()["deleted_count"],
        1
    );
    let again = service.delete(&format!("/v1/contexts/{id}")).send().await;
    assert_eq!(
        (
            again.status.as_u16(),
            again.json()["deleted_count"].as_i64()
        ),
        (200, Some(0))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn batches_update_search_delete_and_count() {
    let service = Service::start().await;
    let entries = json!({"entries": [
        {"thread_id": "a", "source": "user", "text": "which database", "metadata": {"status": "open"}},
        {"thread_id": "a", "source": "agent", "text": "PostgreSQL", "tags": ["db"]},
        {"thread_id": "b", "source": "user", "text": "other"}]});
    let stored = service.post("/v1/contexts/batch", entries).send().await;
    assert_eq!(
        (stored.status.as_u16(), stored.json()["succeeded"].as_i64()),
        (200, Some(3))
    );

    let updates = json!({"atomic": false, "updates": [{"context_id": 1, "metadata_patch": {"status": "done"}}, {"context_id": 77, "tags": []}]});
    let updated = service
        .patch("/v1/contexts/batch", updates)
        .send()
        .await
        .json();
    assert_eq!(
        (updated["success"].as_bool(), updated["failed"].as_i64()),
        (Some(false), Some(1))
    );

    let without_id = json!({"atomic": false, "updates": [{"text": "x"}]});
    let refused = service.patch("/v1/contexts/batch", without_id).send().await;
    assert!(
        refused
            .body
            .contains("`context_id` is required, but is missing or 0"),
        "{}",
        refused.body
    );

    let found = service
        .post(
            "/v1/contexts/search",
            json!({"metadata": {"status": "done"}}),
        )
        .send()
        .await
        .json();
    assert_eq!(
        (found["count"].as_i64(), found["results"][0]["id"].as_i64()),
        (Some(1), Some(1))
    );
    let found = service
        .post("/v1/contexts/search/fts", json!({"query": "databases"}))
        .send()
        .await
        .json();
    assert_eq!(found["results"][0]["id"], 1, "{found}");
    let found = service
        .post("/v1/contexts/search/hybrid", json!({"query": "databases"}))
        .send()
        .await
        .json();
    assert_eq!(found["results"][0]["id"], 1, "{found}");
    let semantic = service
        .post(
            "/v1/contexts/search/semantic",
            json!({"query": "databases"}),
        )
        .send()
        .await;
    assert_eq!(
        (semantic.status.as_u16(), semantic.reason().as_str()),
        (409, "FEATURE_UNAVAILABLE")
    );

    let threads = service.get("/v1/threads?limit=1").send().await.json();
    assert_eq!(
        (
            threads["total_threads"].as_i64(),
            threads["threads"][0]["thread_id"].as_str()
        ),
        (Some(2), Some("b"))
    );
    let deleted = service
        .post("/v1/contexts/delete", json!({"thread_id": "a"}))
        .send()
        .await
        .json();
    assert_eq!(deleted["deleted_count"], 2);
    let deleted = service
        .post(
            "/v1/contexts/batch-delete",
            json!({"thread_ids": ["b"], "source": "user"}),
        )
        .send()
        .await
        .json();
    assert_eq!(deleted["deleted_count"], 1);
    assert_eq!(
        service.get("/v1/statistics").send().await.json()["total_entries"],
        0
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_word_of_a_long_query_counts_when_it_is_rare() {
    let service = Service::start().await;
    let words: Vec<String> = (0..70).map(|n| format!("w{n}")).collect();
    let words = words.join(" ");
    for text in [&*words, "a zebra & a lion", &words] {
        let entry = json!({"thread_id": "t", "source": "user", "text": text});
        assert_eq!(service.post("/v1/contexts", entry).send().await.status, 201);
    }
    let query = format!("{words} nowhere zebra");
    for search in ["fts", "hybrid"] {
        let request = json!({"query": query, "explain_query": true});
        let path = format!("/v1/contexts/search/{search}");
        let found = service.post(&path, request).send().await.json();
        let ids = found["results"]
            .as_array()
            .map(|results| results.iter().map(|hit| hit["id"].as_i64()));
        let mut ids: Vec<_> = ids.expect("results").collect();
        ids.sort_unstable();
        assert_eq!(ids, [Some(1), Some(2), Some(3)], "{found}");
        let plan = found["stats"]["query_plan"].to_string();
        assert!(plan.contains("query: the 64 rarest of 72 terms"), "{plan}");
    }
    let request = json!({"query": query, "highlight": true});
    let found = service
        .post("/v1/contexts/search/fts", request)
        .send()
        .await
        .json();
    let shown = found["results"].to_string();
    assert!(
        shown.contains("a <mark>zebra</mark> &amp; a lion"),
        "{shown}"
    );
}
