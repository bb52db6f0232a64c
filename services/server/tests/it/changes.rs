//! Lists of changes, on both databases: cursors, filters, rights, bodies, and waiting for the next change.

#![expect(clippy::disallowed_methods, reason = "measures how long a list waited")]

use std::time::{Duration, Instant};

use context_engine::{Admin, Caller};
use context_model::{CreateApiKeyRequest, Reason, WatchEvent, WatchFrame, WatchRequest};
use context_test_postgres::TestDatabase;
use context_test_support::http::{Reply, Request};
use context_test_support::until;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::service::Service;

/// The longest wait that a list allows.
const LONG: &str = "wait_ms=25000";

/// A service on each available database, with these flags.
pub async fn both(flags: &[&str]) -> Vec<(Service, Option<TestDatabase>)> {
    let mut services = vec![(Service::start_with(flags).await, None)];
    if let Some(database) = TestDatabase::empty().await {
        let service = on(&database, flags).await;
        services.push((service, Some(database)));
    }
    services
}

/// A service on this database, with these flags.
pub async fn on(database: &TestDatabase, flags: &[&str]) -> Service {
    let string = format!("--postgresql-connection-string={}", database.url());
    let flags: Vec<&str> = ["--storage-backend=postgresql", &string]
        .into_iter()
        .chain(flags.iter().copied())
        .collect();
    Service::start_with(&flags).await
}

async fn reply(request: Request) -> Value {
    let reply = request.send().await;
    assert_eq!(reply.status, 200, "{}", reply.body);
    reply.json()
}

async fn changes(service: &Service, query: &str) -> Value {
    reply(service.get(&format!("/v1/changes?{query}"))).await
}

async fn now(service: &Service) -> String {
    cursor(&changes(service, "cursor=now").await)
}

fn cursor(reply: &Value) -> String {
    reply["next_cursor"].as_str().expect("a cursor").to_owned()
}

/// Operation and id of each change.
fn shown(reply: &Value) -> Vec<String> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    reply["changes"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|change| format!("{} {}", text(&change["operation"]), text(&change["id"])))
        .collect()
}

async fn store(service: &Service, entry: Value) -> i64 {
    let stored = service.post("/v1/contexts", entry).send().await;
    assert_eq!(stored.status, 201, "{}", stored.body);
    stored.json()["context_id"].as_i64().expect("an id")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cursor_leads_through_every_change_once_and_in_order() {
    for (service, _database) in both(&[]).await {
        let before_all = now(&service).await;
        let id = service.store("t", "a").await;
        let path = format!("/v1/contexts/{id}");
        service.patch(&path, json!({"text": "b"})).send().await;
        let made = service
            .post("/v1/artifacts", json!({"content": "# Plan"}))
            .send()
            .await
            .json();
        let artifact = made["id"].as_str().expect("an id");
        service.delete(&path).send().await;
        let expected = [
            format!("created {id}"),
            format!("updated {id}"),
            format!("created {artifact}"),
            format!("deleted {id}"),
        ];
        for start in [format!("cursor={before_all}&"), String::new()] {
            let all = changes(&service, &start).await;
            assert_eq!(shown(&all), expected);
            assert_eq!(
                (&all["revision"], &all["has_more"]),
                (&json!(4), &json!(false))
            );
            assert_eq!(all["changes"][3]["thread_id"], "t");
            assert!(all["changes"][2].get("thread_id").is_none());
            // One by one.
            let mut next = changes(&service, &format!("{start}limit=1")).await;
            let mut seen = shown(&next);
            while next["has_more"] == true {
                next = changes(&service, &format!("limit=1&cursor={}", cursor(&next))).await;
                seen.extend(shown(&next));
            }
            assert_eq!(seen, expected);
            let end = changes(&service, &format!("cursor={}", cursor(&next))).await;
            assert_eq!(shown(&end), [""; 0]);
            assert_eq!(cursor(&end), cursor(&next));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_is_not_split_between_pages() {
    for (service, _database) in both(&[]).await {
        service.store("first", "x").await;
        for batch in 0..2 {
            let entries: Vec<Value> = (0..40)
                .map(|n| json!({"thread_id": format!("t{batch}"), "source": "user", "text": format!("{n}")}))
                .collect();
            let stored = service.post("/v1/contexts/batch", json!({"entries": entries}));
            assert_eq!(stored.send().await.json()["succeeded"], 40);
        }
        let first = changes(&service, "limit=5").await;
        let listed = first["changes"].as_array().expect("a list");
        assert_eq!(listed.len(), 41);
        let ends: Vec<usize> = (0..listed.len())
            .filter(|n| listed[*n]["commit_end"] == true)
            .collect();
        assert_eq!(ends, [0, 40]);
        assert_eq!(first["has_more"], true);
        let second = changes(&service, &format!("limit=5&cursor={}", cursor(&first))).await;
        assert_eq!(second["changes"].as_array().map(Vec::len), Some(40));
        assert_eq!(second["has_more"], false);
        // The last change that passes the filter ends the commit.
        let filtered = changes(&service, "thread_id=t0&limit=1000").await;
        assert_eq!(filtered["changes"][39]["commit_end"], true);
        let few = changes(&service, "thread_id=first&limit=1000").await;
        assert_eq!(few["changes"][0]["commit_end"], true);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_filter_judges_entries_as_they_are_now_and_says_what_left() {
    for (service, _database) in both(&[]).await {
        let entry = |thread: &str, source: &str, tags: Value| json!({"thread_id": thread, "source": source, "text": "x", "tags": tags, "metadata": {"n": 1}});
        let stays = store(&service, entry("a", "user", json!(["keep"]))).await;
        let leaves = store(&service, entry("a", "agent", json!(["keep"]))).await;
        let never = store(&service, entry("b", "user", json!(["other"]))).await;
        service
            .patch(
                &format!("/v1/contexts/{leaves}"),
                json!({"tags": ["other"]}),
            )
            .send()
            .await;
        service
            .delete(&format!("/v1/contexts/{never}"))
            .send()
            .await;
        service
            .post(
                "/v1/artifacts",
                json!({"content": "x", "metadata": {"n": 1}}),
            )
            .send()
            .await;
        let of = async |query: &str| shown(&changes(&service, query).await);
        assert_eq!(
            of("tag=keep").await,
            [
                format!("created {stays}"),
                format!("left {leaves}"),
                format!("left {never}")
            ]
        );
        assert_eq!(
            of("thread_id=b").await,
            [format!("created {never}"), format!("deleted {never}")]
        );
        assert_eq!(
            of("source=agent").await,
            [format!("created {leaves}"), format!("updated {leaves}")]
        );
        assert_eq!(of("entity=context").await.len(), 5);
        assert_eq!(of("entity=artifact").await.len(), 1);
        // Metadata filters concern artifacts too. A deleted one is reported as `left`.
        let filters =
            "%5B%7B%22key%22%3A%22n%22%2C%22operator%22%3A%22gte%22%2C%22value%22%3A1%7D%5D";
        assert_eq!(of(&format!("metadata_filters={filters}")).await.len(), 5);
        assert_eq!(of("metadata=%7B%22n%22%3A2%7D").await.len(), 2, "both left");
        // A filter that matches nothing makes progress.
        let none = changes(&service, "thread_id=none&limit=2").await;
        assert_eq!((shown(&none).len(), &none["has_more"]), (0, &json!(true)));
        assert_ne!(cursor(&none), cursor(&changes(&service, "limit=1").await));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_carries_the_current_state_when_asked() {
    for (service, _database) in both(&[]).await {
        let id = service.store("t", "the first words of a text").await;
        let gone = service.store("t", "gone").await;
        service.delete(&format!("/v1/contexts/{gone}")).send().await;
        service
            .post("/v1/artifacts", json!({"content": "# A plan"}))
            .send()
            .await;
        let listed = changes(&service, "include_body=true&preview_chars=9").await;
        let change = |n: usize| &listed["changes"][n];
        assert_eq!(change(0)["id"], id.to_string());
        assert_eq!(
            change(0)["context"]["text_content"],
            "the first words of a text"
        );
        assert!(change(0)["context"].get("images").is_none());
        assert_eq!(change(0)["preview"], "the first...");
        assert_eq!(change(1)["operation"], "created");
        assert!(change(1).get("context").is_none() && change(1).get("preview").is_none());
        assert_eq!(change(3)["artifact"]["content"], "# A plan");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_number_is_refused_outside_its_range_and_read_at_its_bounds() {
    let service = Service::start().await;
    // With a change to return, no list waits.
    service.store("t", "x").await;
    for (field, least, most) in [
        ("limit", 1, 1000),
        ("wait_ms", 0, 25_000),
        ("preview_chars", 0, 1000),
    ] {
        for (value, status) in [(least - 1, 400), (least, 200), (most, 200), (most + 1, 400)] {
            let path = format!("/v1/changes?{field}={value}");
            let reply = service.get(&path).send().await;
            assert_eq!(reply.status, status, "{path}: {}", reply.body);
            if status == 400 {
                assert_eq!(reply.json()["violations"][0]["field"], field, "{path}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_with_bodies_ends_at_four_megabytes() {
    let service = Service::start().await;
    let entries: Vec<Value> = (0..12)
        .map(|n| json!({"thread_id": "t", "source": "user", "text": format!("{n}{}", "x".repeat(900_000))}))
        .collect();
    let stored = service.post("/v1/contexts/batch", json!({"entries": entries}));
    assert_eq!(stored.send().await.json()["succeeded"], 12);
    let (mut next, mut sizes, mut revision) = (None::<String>, Vec::new(), 0);
    loop {
        let start = next.map(|cursor| format!("&cursor={cursor}"));
        let query = format!("include_body=true{}", start.unwrap_or_default());
        let raw = service.get(&format!("/v1/changes?{query}")).send().await;
        let page = raw.json();
        sizes.push(raw.body.len());
        for change in page["changes"].as_array().expect("a list") {
            revision += 1;
            assert_eq!(change["revision"], revision);
            assert_eq!(change["commit_end"], revision == 12);
            assert!(change["context"]["text_content"].is_string());
        }
        if page["has_more"] == false {
            break;
        }
        next = Some(cursor(&page));
    }
    assert_eq!(revision, 12);
    assert!(sizes.len() >= 3, "{sizes:?}");
    assert!(sizes.iter().all(|size| *size < 5_000_000), "{sizes:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_with_artifacts_ends_at_four_megabytes_unless_it_only_previews_them() {
    let service = Service::start().await;
    for n in 0..20 {
        let content = format!("{n}{}", "語".repeat(99_000));
        let stored = service.post("/v1/artifacts", json!({"content": content}));
        assert_eq!(stored.send().await.status, 201);
    }
    let previews = changes(&service, "preview_chars=3").await;
    assert_eq!(previews["changes"].as_array().map(Vec::len), Some(20));
    assert_eq!(previews["changes"][0]["preview"], "0語語...");
    let mut shown = Vec::new();
    let mut page = changes(&service, "include_body=true").await;
    loop {
        let bodies = page["changes"].as_array().expect("a list").clone();
        shown.push(bodies.len());
        let bytes = bodies.iter().map(|change| {
            let content = change["artifact"]["content"].as_str();
            content.expect("a content").len()
        });
        assert!(bytes.sum::<usize>() <= 4 * 1024 * 1024, "{shown:?}");
        if page["has_more"] == false {
            break;
        }
        let query = format!("include_body=true&cursor={}", cursor(&page));
        page = changes(&service, &query).await;
    }
    assert_eq!(shown.iter().sum::<usize>(), 20, "{shown:?}");
    assert!(shown.len() > 1, "{shown:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_metadata_of_artifacts_counts_for_the_size_of_a_page() {
    for (service, _database) in both(&[]).await {
        let metadata = json!({"notes": "x".repeat(900_000)});
        let body = json!({"content": "0", "metadata": metadata, "path": "a"});
        let stored = service.post("/v1/artifacts", body).send().await.json();
        let id = stored["id"].as_str().expect("an id");
        // Each change of the one artifact has its whole body.
        for content in 1..8 {
            let body = json!({"content": content.to_string()});
            let changed = service.patch(&format!("/v1/artifacts/{id}"), body);
            assert_eq!(changed.send().await.status, 200);
        }
        let page = changes(&service, "include_body=true").await;
        let shown = page["changes"].as_array().expect("a list");
        assert_eq!((shown.len(), &page["has_more"]), (4, &json!(true)));
        assert_eq!(shown[3]["artifact"]["metadata"], metadata);
        let rest = format!("include_body=true&cursor={}", cursor(&page));
        let rest = changes(&service, &rest).await;
        assert_eq!(rest["changes"].as_array().map(Vec::len), Some(4));
        let filters =
            "metadata_filters=%5B%7B%22key%22:%22notes%22,%22operator%22:%22exists%22%7D%5D";
        let filtered = changes(&service, filters).await;
        assert_eq!(filtered["changes"].as_array().map(Vec::len), Some(8));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_metadata_of_listed_artifacts_is_taken_from_the_memory_budget() {
    let flags = [
        "--request-memory-mb=64",
        "--max-total-size-mb=1",
        "--max-image-size-mb=1",
    ];
    for (service, _database) in both(&flags).await {
        // Parsed, each takes 29 MB. The budget is raised to 132 MiB.
        let body = json!({"content": "a text", "metadata": {"a": vec![0; 400_000]}});
        for _ in 0..12 {
            let stored = service.post("/v1/artifacts", body.clone());
            assert_eq!(stored.send().await.status, 201);
        }
        for path in ["/v1/artifacts?", "/v1/artifacts/search?query=text&"] {
            let one = service.get(&format!("{path}limit=1")).send().await;
            assert_eq!(one.status, 200, "{}", one.body);
            let all = service.get(&format!("{path}limit=50")).send().await;
            assert_eq!(
                (all.status.as_u16(), all.reason().as_str()),
                (503, "OVERLOADED")
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cursor_that_cannot_be_used_has_its_reason() {
    for (service, _database) in both(&["--auth=keys"]).await {
        let all = ["read", "write", "delete"];
        let (mine, theirs) = (
            service.key("mine", &all).await.text,
            service.key("theirs", &all).await.text,
        );
        let with = |request: Request, key: &str| request.key(key);
        for key in [&mine, &theirs] {
            let entry = json!({"thread_id": "t", "source": "user", "text": "x"});
            with(service.post("/v1/contexts", entry), key).send().await;
        }
        let newest = with(service.get("/v1/changes"), &mine).send().await.json();
        let list_with = async |key: &str| -> Reply {
            let path = format!("/v1/changes?cursor={}", cursor(&newest));
            with(service.get(&path), key).send().await
        };
        assert_eq!(list_with(&mine).await.status, 200);
        let foreign = list_with(&theirs).await;
        assert_eq!(
            (foreign.status.as_u16(), foreign.reason().as_str()),
            (400, "CURSOR_INVALID")
        );
        let garbled = with(service.get("/v1/changes?cursor=AAAA"), &mine)
            .send()
            .await;
        assert_eq!(garbled.reason(), "CURSOR_INVALID");
        // The owner is erased and created again, so its revisions start again.
        service
            .engine
            .access
            .administer(Admin::EraseOwner {
                owner: "mine".to_owned(),
            })
            .await
            .expect("erased");
        let again = service.key("mine", &all).await.text;
        let entry = json!({"thread_id": "t", "source": "user", "text": "x"});
        with(service.post("/v1/contexts", entry), &again)
            .send()
            .await;
        let other = list_with(&again).await;
        assert_eq!(
            (other.status.as_u16(), other.reason().as_str()),
            (410, "RESYNC_REQUIRED")
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_sees_the_changes_of_what_it_reaches() {
    for (service, _database) in both(&["--auth=keys"]).await {
        let owner = service.key("default", &["read", "write", "manage"]).await;
        for thread in ["open", "secret"] {
            let entry = json!({"thread_id": thread, "source": "user", "text": "x"});
            let request = service.post("/v1/contexts", entry).key(&owner.text);
            assert_eq!(request.send().await.status, 201);
        }
        let artifact = service.post("/v1/artifacts", json!({"content": "x"}));
        assert_eq!(artifact.key(&owner.text).send().await.status, 201);
        let narrowed = |threads: Option<Vec<String>>, only: Option<&str>| CreateApiKeyRequest {
            threads,
            only: only.map(ToOwned::to_owned),
            ..CreateApiKeyRequest::default()
        };
        let seen = async |key: &str| reply(service.get("/v1/changes").key(key)).await;
        let all = seen(&owner.text).await;
        assert_eq!(shown(&all).len(), 3);
        assert_eq!(all["changes"][0]["key_id"], owner.id);
        let reader = service.key("default", &["read"]).await.text;
        let all = seen(&reader).await;
        assert_eq!(shown(&all).len(), 3);
        assert!(all["changes"][0].get("key_id").is_none());
        for (more, revisions) in [
            (narrowed(Some(vec!["open".to_owned()]), None), vec![1]),
            (narrowed(None, Some("contexts")), vec![1, 2]),
            (narrowed(None, Some("artifacts")), vec![3]),
        ] {
            let key = service.key_with("default", &["read"], more).await.text;
            let seen = seen(&key).await;
            let found: Vec<i64> = seen["changes"]
                .as_array()
                .expect("a list")
                .iter()
                .filter_map(|change| change["revision"].as_i64())
                .collect();
            assert_eq!(found, revisions);
            assert_eq!(seen["has_more"], false);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_waits_for_the_next_change_that_passes_its_filter() {
    for (service, _database) in both(&[]).await {
        let start = now(&service).await;
        let path = format!("/v1/changes?cursor={start}&thread_id=wanted&{LONG}");
        let waiting = tokio::spawn(reply(service.get(&path)));
        until_waiting(&service, 1).await;
        let started = Instant::now();
        // The first one does not pass the filter.
        service.store("other", "x").await;
        let id = service.store("wanted", "x").await;
        let found = waiting.await.expect("the list");
        assert_eq!(shown(&found), [format!("created {id}")]);
        assert!(started.elapsed() < Duration::from_secs(10));
        // Existing changes are returned at once, even with a wait.
        let found = changes(&service, &format!("cursor={start}&{LONG}")).await;
        assert_eq!(shown(&found).len(), 2);
        // A wait that ends without a change is no error.
        let none = changes(&service, &format!("cursor={}&wait_ms=50", cursor(&found))).await;
        assert_eq!(shown(&none), [""; 0]);
        assert_eq!(cursor(&none), cursor(&found));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_services_on_one_database_wake_each_other() {
    let Some(database) = TestDatabase::empty().await else {
        return;
    };
    let (one, two) = (on(&database, &[]).await, on(&database, &[]).await);
    for (reads, writes) in [(&one, &two), (&two, &one)] {
        let start = now(reads).await;
        let waiting = tokio::spawn(reply(
            reads.get(&format!("/v1/changes?cursor={start}&{LONG}")),
        ));
        until_waiting(reads, 1).await;
        let id = writes.store("t", &writes.address.to_string()).await;
        assert_eq!(
            shown(&waiting.await.expect("the list")),
            [format!("created {id}")]
        );
    }
}

/// Waits until this many lists wait.
async fn until_waiting(service: &Service, lists: usize) {
    until("the lists wait", async || {
        let metrics = service.get("/metrics").send().await.body;
        metrics.contains(&format!("context_waiting_lists {lists}\n"))
    })
    .await;
}

/// A waiting list holds neither a slot nor a connection of the pool: this service has one of each.
#[tokio::test(flavor = "multi_thread")]
async fn lists_that_wait_take_nothing_from_others_and_outlast_the_time_limit() {
    let flags = [
        "--max-concurrent-requests=1",
        "--request-queue=4",
        "--request-timeout-seconds=1",
        "--postgresql-pool-size=1",
    ];
    for (service, _database) in both(&flags).await {
        let start = now(&service).await;
        let mut waiting = Vec::new();
        for lists in 1..=30 {
            let path = format!("/v1/changes?cursor={start}&{LONG}");
            waiting.push(tokio::spawn(reply(service.get(&path))));
            until_waiting(&service, lists).await;
        }
        let started = Instant::now();
        let id = service.store("t", "x").await;
        for list in waiting {
            let list = list.await.expect("a list");
            assert_eq!(shown(&list), [format!("created {id}")]);
        }
        assert!(started.elapsed() < Duration::from_secs(15));
        let path = format!("cursor={}&wait_ms=1500", now(&service).await);
        let started = Instant::now();
        assert_eq!(shown(&changes(&service, &path).await), [""; 0]);
        assert!(started.elapsed() >= Duration::from_millis(1_500));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_is_revoked_ends_its_wait() {
    for (service, _database) in both(&["--auth=keys"]).await {
        let (key, writer) = (
            service.key("default", &["read"]).await,
            service.key("default", &["read", "write"]).await,
        );
        let start = cursor(&reply(service.get("/v1/changes?cursor=now").key(&key.text)).await);
        let path = format!("/v1/changes?cursor={start}&{LONG}");
        let request = service.get(&path).key(&key.text);
        let waiting = tokio::spawn(async move { request.send().await });
        let command = Admin::RevokeKey {
            owner: "default".to_owned(),
            key_id: key.id,
        };
        until_waiting(&service, 1).await;
        service.engine.access.administer(command).await.unwrap();
        until("the key is refused", async || {
            let request = service.get("/v1/threads").key(&key.text);
            request.send().await.status == 401
        })
        .await;
        let entry = json!({"thread_id": "t", "source": "user", "text": "x"});
        let stored = service.post("/v1/contexts", entry).key(&writer.text);
        assert_eq!(stored.send().await.status, 201);
        assert_eq!(waiting.await.expect("a reply").status, 401);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_is_revoked_is_refused_at_the_end_of_its_wait() {
    for (service, _database) in both(&["--auth=keys"]).await {
        let key = service.key("default", &["read"]).await;
        let start = cursor(&reply(service.get("/v1/changes?cursor=now").key(&key.text)).await);
        let path = format!("/v1/changes?cursor={start}&wait_ms=5000");
        let request = service.get(&path).key(&key.text);
        let waiting = tokio::spawn(async move { request.send().await });
        until_waiting(&service, 1).await;
        let command = Admin::RevokeKey {
            owner: "default".to_owned(),
            key_id: key.id,
        };
        service.engine.access.administer(command).await.unwrap();
        assert_eq!(waiting.await.expect("a reply").status, 401);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_is_revoked_ends_the_wait_of_its_list_for_a_slot() {
    let flags = [
        "--auth=keys",
        "--max-concurrent-requests=1",
        "--request-queue=0",
    ];
    let service = Service::start_with(&flags).await;
    let key = service.key("default", &["read"]).await;
    let other = service.key("default", &["read"]).await;
    let search = service.endless_search().await.key(&other.text);
    let start = cursor(&reply(service.get("/v1/changes?cursor=now").key(&key.text)).await);
    let path = format!("/v1/changes?cursor={start}&{LONG}");
    let request = service.get(&path).key(&key.text);
    let waiting = tokio::spawn(async move { request.send().await });
    until_waiting(&service, 1).await;

    let search = tokio::spawn(search.send());
    service.until_busy().await;
    let entry = json!({"thread_id": "t", "source": "user", "text": "x"});
    service.store_unseen(entry).await;
    until_waiting(&service, 0).await;
    let command = Admin::RevokeKey {
        owner: "default".to_owned(),
        key_id: key.id,
    };
    service.engine.access.administer(command).await.unwrap();
    assert_eq!(waiting.await.expect("a reply").status, 401);
    assert!(!search.is_finished(), "the only slot is in use");
    search.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_that_stops_ends_the_waits() {
    let service = Service::start().await;
    let start = now(&service).await;
    let path = format!("/v1/changes?cursor={start}&{LONG}");
    let waiting = tokio::spawn(reply(service.get(&path)));
    until_waiting(&service, 1).await;
    let started = Instant::now();
    service.begin_stop();
    let last = waiting.await.expect("an empty list");
    assert_eq!((shown(&last).len(), cursor(&last)), (0, start));
    assert!(started.elapsed() < Duration::from_secs(5));
    service.stopped().await;
}

/// A database that can be copied while no service uses it.
struct CopyableDatabase {
    flags: Vec<String>,
    file: Option<TempDir>,
    database: Option<TestDatabase>,
}

impl CopyableDatabase {
    fn on_file(directory: TempDir) -> Self {
        let path = directory.path().join("copyable.db");
        Self {
            flags: vec![format!("--db-path={}", path.display())],
            file: Some(directory),
            database: None,
        }
    }

    fn on_server(database: TestDatabase) -> Self {
        Self {
            flags: vec![
                "--storage-backend=postgresql".to_owned(),
                format!("--postgresql-connection-string={}", database.url()),
            ],
            file: None,
            database: Some(database),
        }
    }

    async fn start(&self) -> Service {
        let flags: Vec<&str> = self.flags.iter().map(String::as_str).collect();
        Service::start_with(&flags).await
    }

    /// A copy. No service may use the database.
    async fn copy(&self) -> Self {
        match (&self.file, &self.database) {
            (Some(from), _) => {
                let to = TempDir::new().expect("a temporary directory");
                for file in std::fs::read_dir(from.path()).expect("a directory") {
                    let file = file.expect("a file");
                    std::fs::copy(file.path(), to.path().join(file.file_name()))
                        .expect("room for a copy");
                }
                Self::on_file(to)
            }
            (None, Some(database)) => Self::on_server(database.copy().await),
            (None, None) => unreachable!("it is on a file or on a server"),
        }
    }
}

async fn stop(service: Service) {
    service.begin_stop();
    service.stopped().await;
}

/// Two cursors of streams with texts: that of the first change of a stream, and that at the end of a snapshot. The
/// oldest entry is updated while the snapshot is read.
async fn streamed(service: &Service, oldest: i64) -> Vec<String> {
    let caller = Caller::local();
    let snapshot = WatchRequest {
        snapshot: Some(true),
        include_body: Some(true),
        ..WatchRequest::default()
    };
    let changes = &service.engine.changes;
    let (mut watch, _) = changes.watch(&caller, snapshot).await.expect("a stream");
    changes.next_step(&caller, &mut watch).await.expect("half");
    let path = format!("/v1/contexts/{oldest}");
    reply(service.patch(&path, json!({"tags": ["other"]}))).await;
    let all = WatchRequest {
        include_body: Some(true),
        ..WatchRequest::default()
    };
    let (mut other, _) = changes.watch(&caller, all).await.expect("a stream");
    let step = changes
        .next_step(&caller, &mut other)
        .await
        .expect("a step");
    let mut cursors = vec![step.events[0].cursor.clone().expect("a cursor")];
    loop {
        let step = changes
            .next_step(&caller, &mut watch)
            .await
            .expect("a step");
        for WatchEvent { frame, cursor } in step.events {
            if matches!(frame, WatchFrame::SnapshotEnd { .. }) {
                cursors.extend(cursor);
                return cursors;
            }
        }
    }
}

/// A reader that is behind has been sent states of later changes. When the database is replaced by an older copy, these
/// states are lost, although the change of the reader's cursor still exists.
#[tokio::test(flavor = "multi_thread")]
async fn a_reader_who_was_shown_a_state_that_is_lost_must_read_everything_again() {
    let mut databases = vec![CopyableDatabase::on_file(
        TempDir::new().expect("a temporary directory"),
    )];
    databases.extend(TestDatabase::empty().await.map(CopyableDatabase::on_server));
    for newer in databases {
        let service = newer.start().await;
        let entry = json!({"thread_id": "t", "source": "user", "text": "x", "tags": ["keep"]});
        let first = store(&service, entry.clone()).await;
        for _ in 0..2 {
            let batch = json!({"entries": vec![entry.clone(); 60]});
            reply(service.post("/v1/contexts/batch", batch)).await;
        }
        stop(service).await;
        let older = newer.copy().await;

        let service = newer.start().await;
        let path = format!("/v1/contexts/{first}");
        reply(service.patch(&path, json!({"tags": ["other"]}))).await;
        let filtered = changes(&service, "limit=1&tag=keep").await;
        assert_eq!(shown(&filtered), [""; 0], "it does not match now");
        let with_body = changes(&service, "limit=1&include_body=true").await;
        let with_preview = changes(&service, "limit=1&preview_chars=9").await;
        let next = format!("limit=1&cursor={}", cursor(&filtered));
        let after_one_more = changes(&service, &next).await;
        let mut cursors = [filtered, with_body, with_preview, after_one_more]
            .each_ref()
            .map(cursor)
            .to_vec();
        cursors.extend(streamed(&service, first).await);
        let plain = cursor(&changes(&service, "limit=1").await);
        for cursor in cursors.iter().chain([&plain]) {
            changes(&service, &format!("cursor={cursor}")).await;
        }
        stop(service).await;

        let service = older.start().await;
        let refused = async || {
            for (number, cursor) in cursors.iter().enumerate() {
                for path in ["changes", "watch"] {
                    let reply = service
                        .get(&format!("/v1/{path}?cursor={cursor}"))
                        .send()
                        .await;
                    assert_eq!(reply.reason(), "RESYNC_REQUIRED", "{path} {number}");
                }
            }
        };
        refused().await;
        // New changes get the revisions of the lost ones.
        for _ in 0..3 {
            reply(service.patch(&path, json!({"tags": ["third"]}))).await;
        }
        refused().await;
        changes(&service, &format!("cursor={plain}")).await;
    }
}

/// A snapshot begins, and the database is replaced by an older copy. If the stream continued, the snapshot would lack
/// entries that no later change would bring.
#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_whose_revision_is_lost_ends_with_resync() {
    let mut databases = vec![CopyableDatabase::on_file(
        TempDir::new().expect("a temporary directory"),
    )];
    databases.extend(TestDatabase::empty().await.map(CopyableDatabase::on_server));
    for newer in databases {
        let service = newer.start().await;
        let entry = |text: &str| json!({"thread_id": "t", "source": "user", "text": text});
        store(&service, entry("a")).await;
        stop(service).await;
        let older = newer.copy().await;

        let service = newer.start().await;
        store(&service, entry("b")).await;
        let caller = Caller::local();
        let mut streams = Vec::new();
        for include_body in [false, true] {
            let request = WatchRequest {
                snapshot: Some(true),
                include_body: Some(include_body),
                ..WatchRequest::default()
            };
            let (watch, _) = service
                .engine
                .changes
                .watch(&caller, request)
                .await
                .expect("a stream");
            streams.push(watch);
        }
        stop(service).await;

        let service = older.start().await;
        for mut watch in streams {
            let step = service.engine.changes.next_step(&caller, &mut watch).await;
            assert_eq!(
                step.err().map(|error| error.reason),
                Some(Reason::ResyncRequired)
            );
        }
    }
}
