//! Keys that are narrowed to threads, on both databases: entries in other threads are neither returned, counted nor
//! changed.

use context_model::CreateApiKeyRequest;
use context_test_postgres::TestDatabase;
use context_test_support::http::{Reply, Request};
use http::StatusCode;
use serde_json::{Value, json};

use crate::service::Service;

/// A word that occurs only in entries of other threads.
const CANARY: &str = "canary";

/// A service with entries in three threads, and two keys of one owner.
struct Fixture {
    service: Service,
    all: String,
    narrowed: String,
    /// The entries in `billing`, `team-a/x` and `secret`.
    ids: [i64; 3],
    _database: Option<TestDatabase>,
}

impl Fixture {
    async fn build(database: Option<TestDatabase>) -> Self {
        let mut flags = vec!["--auth=keys".to_owned()];
        if let Some(database) = &database {
            flags.push("--storage-backend=postgresql".to_owned());
            flags.push(format!("--postgresql-connection-string={}", database.url()));
        }
        let service =
            Service::start_with(&flags.iter().map(String::as_str).collect::<Vec<_>>()).await;
        let threads = Some(vec!["billing".to_owned(), "team-a/*".to_owned()]);
        let narrowing = CreateApiKeyRequest {
            threads,
            ..CreateApiKeyRequest::default()
        };
        let narrowed = service
            .key_with("default", &["read", "write", "delete", "manage"], narrowing)
            .await
            .text;
        let all = service
            .first_key
            .clone()
            .expect("the first start makes a key");
        let mut fixture = Self {
            service,
            all,
            narrowed,
            ids: [0; 3],
            _database: database,
        };
        for (i, thread) in ["billing", "team-a/x", "secret"].into_iter().enumerate() {
            let word = if thread == "secret" { CANARY } else { "open" };
            let image = json!([{"data": "iVBORw0KGgo=", "mime_type": "image/png"}]);
            let entry = json!({"thread_id": thread, "source": "user", "text": format!("{word} words"), "tags": [word],
                "metadata": {"word": word}, "images": image});
            let reply = fixture
                .with(fixture.service.post("/v1/contexts", entry), false)
                .await;
            fixture.ids[i] = reply.json()["context_id"].as_i64().expect("an id");
        }
        fixture
    }

    /// One fixture for each database. PostgreSQL only if there is a server.
    async fn both() -> Vec<Self> {
        let mut fixtures = vec![Self::build(None).await];
        if let Some(database) = TestDatabase::empty().await {
            fixtures.push(Self::build(Some(database)).await);
        }
        fixtures
    }

    /// The reply to a request with one of the keys.
    async fn with(&self, request: Request, narrowed: bool) -> Reply {
        let key = if narrowed { &self.narrowed } else { &self.all };
        let reply = request
            .header("authorization", &format!("Bearer {key}"))
            .send()
            .await;
        assert!(
            !narrowed || !reply.body.contains(CANARY),
            "it sees the other thread: {}",
            reply.body
        );
        reply
    }

    async fn narrowed(&self, request: Request) -> Reply {
        self.with(request, true).await
    }
}

fn refused(reply: &Reply) -> bool {
    reply.status == StatusCode::FORBIDDEN && reply.reason() == "SCOPE_MISSING"
}

fn entry(thread: &str) -> Value {
    json!({"thread_id": thread, "source": "agent", "text": "new"})
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_narrowed_to_threads_reads_nothing_of_others() {
    for fixture in Fixture::both().await {
        let service = &fixture.service;
        let [billing, team, secret] = fixture.ids;
        assert_eq!(
            fixture
                .narrowed(service.get(&format!("/v1/contexts/{team}")))
                .await
                .status,
            StatusCode::OK
        );
        let gone = fixture
            .narrowed(service.get(&format!("/v1/contexts/{secret}")))
            .await;
        assert_eq!(
            (gone.status, gone.reason().as_str()),
            (StatusCode::NOT_FOUND, "CONTEXT_NOT_FOUND")
        );
        let listed = fixture
            .narrowed(service.get(&format!("/v1/contexts?ids={billing},{team},{secret}")))
            .await
            .json();
        assert_eq!(
            listed["result"].as_array().map(Vec::len),
            Some(2),
            "{listed}"
        );

        for (path, body, found) in [
            ("/v1/contexts/search", json!({}), 2),
            ("/v1/contexts/search", json!({"thread_id": "secret"}), 0),
            ("/v1/contexts/search", json!({"thread_id": "team-a/x"}), 1),
            ("/v1/contexts/search", json!({"tags": [CANARY]}), 0),
            (
                "/v1/contexts/search",
                json!({"metadata": {"word": "open"}}),
                2,
            ),
            (
                "/v1/contexts/search",
                json!({"content_type": "multimodal", "limit": 1, "offset": 1}),
                1,
            ),
            ("/v1/contexts/search/fts", json!({"query": "words"}), 2),
            (
                "/v1/contexts/search/fts",
                json!({"query": "words", "thread_id": "secret"}),
                0,
            ),
            (
                "/v1/contexts/search/fts",
                json!({"query": "words", "source": "user"}),
                2,
            ),
            ("/v1/contexts/search/hybrid", json!({"query": "words"}), 2),
        ] {
            let reply = fixture
                .narrowed(service.post(path, body.clone()))
                .await
                .json();
            assert_eq!(reply["count"], found, "{path} {body}: {reply}");
        }

        let threads = fixture.narrowed(service.get("/v1/threads")).await.json();
        let names: Vec<_> = threads["threads"]
            .as_array()
            .expect("threads")
            .iter()
            .map(|thread| thread["thread_id"].clone())
            .collect();
        assert_eq!(
            (json!(names), &threads["total_threads"]),
            (json!(["team-a/x", "billing"]), &json!(2))
        );
        let page = fixture
            .narrowed(service.get("/v1/threads?limit=1&offset=1"))
            .await
            .json();
        assert_eq!(
            (&page["threads"][0]["thread_id"], &page["total_threads"]),
            (&json!("billing"), &json!(2))
        );
        let thread = fixture
            .narrowed(service.get("/v1/threads/team-a%2Fx"))
            .await
            .json();
        assert_eq!(thread, {
            let mut listed = threads["threads"][0].clone();
            listed["revision"] = threads["revision"].clone();
            listed
        });
        let gone = fixture.narrowed(service.get("/v1/threads/secret")).await;
        assert_eq!(
            (gone.status, gone.reason().as_str()),
            (StatusCode::NOT_FOUND, "CONTEXT_NOT_FOUND")
        );
        for (path, expected) in [
            ("/v1/tags", json!([{"tag": "open", "entry_count": 2}])),
            (
                "/v1/tags?thread_id=billing",
                json!([{"tag": "open", "entry_count": 1}]),
            ),
            ("/v1/tags?thread_id=secret", json!([])),
            ("/v1/tags?prefix=can", json!([])),
        ] {
            let tags = fixture.narrowed(service.get(path)).await.json();
            let total = expected.as_array().map_or(0, Vec::len);
            assert_eq!(
                (&tags["tags"], &tags["total"]),
                (&expected, &json!(total)),
                "{path}"
            );
        }
        for (path, list, expected) in [
            (
                "/v1/metadata/keys",
                "keys",
                json!([{"key": "word", "entry_count": 2}]),
            ),
            (
                "/v1/metadata/values?key=word",
                "values",
                json!([{"value": "open", "entry_count": 2}]),
            ),
            (
                "/v1/metadata/values?key=word&thread_id=secret",
                "values",
                json!([]),
            ),
            ("/v1/days?thread_id=secret", "days", json!([])),
            ("/v1/threads?name=secret", "threads", json!([])),
        ] {
            let reply = fixture.narrowed(service.get(path)).await.json();
            assert_eq!(reply[list], expected, "{path}");
        }
        let days = fixture.narrowed(service.get("/v1/days")).await.json();
        assert_eq!(days["scanned"], 2, "{days}");
        let counts = fixture.narrowed(service.get("/v1/statistics")).await.json();
        assert_eq!(
            json!([
                counts["total_entries"],
                counts["by_source"]["user"],
                counts["total_images"],
                counts["unique_tags"]
            ]),
            json!([2, 2, 2, 1])
        );
        assert_eq!(
            (
                &counts["by_content_type"]["multimodal"],
                &counts["fts"]["indexed_entries"]
            ),
            (&json!(2), &json!(2))
        );
        for path in ["/v1/artifacts", "/v1/api-keys"] {
            assert!(
                refused(&fixture.narrowed(service.get(path)).await),
                "{path}"
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_narrowed_to_threads_changes_nothing_in_others() {
    for fixture in Fixture::both().await {
        let service = &fixture.service;
        let [billing, _, secret] = fixture.ids;
        let unknown = 4_000_000;
        assert_eq!(
            fixture
                .narrowed(service.post("/v1/contexts", entry("team-a/new")))
                .await
                .status,
            StatusCode::CREATED
        );
        assert!(refused(
            &fixture
                .narrowed(service.post("/v1/contexts", entry("secret")))
                .await
        ));
        assert!(refused(
            &fixture
                .narrowed(service.post("/v1/contexts", entry("team-a")))
                .await
        ));
        let both = json!([entry("billing"), entry("secret")]);
        let all = fixture
            .narrowed(service.post("/v1/contexts/batch", json!({"entries": both})))
            .await;
        assert!(
            refused(&all)
                && all.json()["detail"]
                    .as_str()
                    .is_some_and(|detail| detail.contains("entries[1]")),
            "{}",
            all.body
        );
        let some = fixture
            .narrowed(service.post(
                "/v1/contexts/batch",
                json!({"entries": both, "atomic": false}),
            ))
            .await
            .json();
        assert_eq!(
            (
                &some["results"][0]["success"],
                &some["results"][1]["success"]
            ),
            (&json!(true), &json!(false)),
            "{some}"
        );

        // The same response as for an entry that does not exist.
        for request in [json!({"text": "changed"}), json!({"tags": []})] {
            let detail = async |id: i64| {
                let reply = fixture
                    .narrowed(service.patch(&format!("/v1/contexts/{id}"), request.clone()))
                    .await;
                assert_eq!(reply.status, StatusCode::NOT_FOUND);
                reply.json()["detail"]
                    .as_str()
                    .expect("a sentence")
                    .replace(&id.to_string(), "ID")
            };
            assert_eq!(detail(secret).await, detail(unknown).await);
        }
        let updates = json!([{"context_id": billing, "tags": ["new"]}, {"context_id": secret, "tags": ["new"]}]);
        let all = fixture
            .narrowed(service.patch("/v1/contexts/batch", json!({"updates": updates})))
            .await;
        assert_eq!(all.status, StatusCode::NOT_FOUND, "{}", all.body);
        let some = fixture
            .narrowed(service.patch(
                "/v1/contexts/batch",
                json!({"updates": updates, "atomic": false}),
            ))
            .await
            .json();
        assert_eq!(
            (
                &some["results"][0]["success"],
                &some["results"][1]["success"]
            ),
            (&json!(true), &json!(false)),
            "{some}"
        );

        assert!(refused(
            &fixture
                .narrowed(service.post("/v1/contexts/delete", json!({"thread_id": "secret"})))
                .await
        ));
        let threads = json!({"thread_ids": ["billing", "secret"]});
        assert!(refused(
            &fixture
                .narrowed(service.post("/v1/contexts/batch-delete", threads))
                .await
        ));
        assert_eq!(
            fixture
                .narrowed(service.delete(&format!("/v1/contexts/{secret}")))
                .await
                .json()["deleted_count"],
            0
        );
        for body in [
            json!({"context_ids": [secret, unknown]}),
            json!({"context_ids": [secret], "source": "user"}),
        ] {
            let path = if body.get("source").is_some() {
                "/v1/contexts/batch-delete"
            } else {
                "/v1/contexts/delete"
            };
            assert_eq!(
                fixture.narrowed(service.post(path, body)).await.json()["deleted_count"],
                0
            );
        }
        let still = fixture
            .with(service.get(&format!("/v1/contexts/{secret}")), false)
            .await
            .json();
        assert_eq!(
            (&still["version"], &still["text_content"]),
            (&json!(1), &json!("canary words"))
        );
        let deleted = fixture
            .narrowed(service.post("/v1/contexts/delete", json!({"thread_id": "billing"})))
            .await
            .json();
        assert!(deleted["deleted_count"].as_i64() > Some(0), "{deleted}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_retry_gets_the_first_reply_although_an_entry_is_gone() {
    for fixture in Fixture::both().await {
        let service = &fixture.service;
        let [billing, team, secret] = fixture.ids;
        let updates = [secret, billing, team].map(|id| json!({"context_id": id, "tags": ["new"]}));
        let batch = || {
            let body = json!({"updates": updates, "atomic": false});
            let request = service.patch("/v1/contexts/batch", body);
            fixture.narrowed(request.header("idempotency-key", "several"))
        };
        let single = || {
            let request = service.patch(&format!("/v1/contexts/{billing}"), json!({"tags": ["x"]}));
            fixture.narrowed(request.header("idempotency-key", "one"))
        };
        let first = (batch().await, single().await);
        let deleted = service.delete(&format!("/v1/contexts/{billing}"));
        let deleted = fixture.with(deleted, false).await;
        assert_eq!(deleted.json()["deleted_count"], 1);
        let retry = (batch().await, single().await);
        assert_eq!(retry.0.json(), first.0.json());
        assert_eq!(
            (&first.0.json()["total"], &first.0.json()["failed"]),
            (&json!(3), &json!(1))
        );
        assert_eq!(
            (retry.1.status, retry.1.json()),
            (StatusCode::OK, first.1.json())
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_says_which_threads_it_reaches_and_a_replacement_reaches_the_same() {
    let fixture = Fixture::build(None).await;
    let service = &fixture.service;
    let body = json!({"name": "bot", "threads": ["b", "a*", "ab"]});
    let made = fixture
        .with(service.post("/v1/api-keys", body), false)
        .await
        .json();
    assert_eq!(
        (&made["api_key"]["threads"], &made["api_key"]["only"]),
        (&json!(["b", "a*"]), &json!("contexts"))
    );
    let key_id = made["api_key"]["id"].as_str().expect("an id").to_owned();
    let command = context_engine::Admin::RotateKey {
        owner: "default".to_owned(),
        key_id,
    };
    let rotated = service
        .engine
        .access
        .administer(command)
        .await
        .expect("a key");
    let key = format!("Bearer {}", rotated.lines().next().expect("the key"));
    let inside = service
        .post("/v1/contexts", entry("apple"))
        .header("authorization", &key)
        .send()
        .await;
    let outside = service
        .post("/v1/contexts", entry("c"))
        .header("authorization", &key)
        .send()
        .await;
    assert_eq!(
        (inside.status, refused(&outside)),
        (StatusCode::CREATED, true)
    );
    for (body, field) in [
        (json!({"name": "x", "threads": []}), "threads"),
        (json!({"name": "x", "threads": ["*"]}), "threads[0]"),
        (
            json!({"name": "x", "threads": ["a"], "only": "artifacts"}),
            "threads",
        ),
    ] {
        let reply = fixture
            .with(service.post("/v1/api-keys", body), false)
            .await;
        assert_eq!(
            (
                reply.status,
                reply.json()["violations"][0]["field"].as_str()
            ),
            (StatusCode::BAD_REQUEST, Some(field))
        );
    }
}
