//! Streams of changes over SSE and gRPC, on both databases.

#![expect(
    clippy::disallowed_methods,
    reason = "measures how long a stream stays open"
)]

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use context_engine::Admin;
use context_proto::error_from_status;
use context_proto::v1::change_service_client::ChangeServiceClient;
use context_proto::v1::watch_response::Frame;
use context_proto::v1::{Filter, WatchRequest, WatchResponse};
use context_test_support::http::{Event, Events, Request};
use context_test_support::{from_now, grpc, until};
use serde_json::{Value, json};
use tonic::{Code, Streaming};

use crate::changes::{both, on};
use crate::service::{Key, Service};

/// The next event, which must arrive within 20 seconds.
async fn next(events: &mut Events) -> Event {
    tokio::time::timeout(Duration::from_secs(20), events.next())
        .await
        .expect("an event in time")
        .expect("the stream goes on")
}

/// The next frame, which must arrive within 20 seconds.
async fn frame(stream: &mut Streaming<WatchResponse>) -> WatchResponse {
    tokio::time::timeout(Duration::from_secs(20), stream.message())
        .await
        .expect("a frame in time")
        .expect("no error")
        .expect("the stream goes on")
}

fn watch(service: &Service, query: &str) -> Request {
    service.get(&format!("/v1/watch?{query}"))
}

async fn grpc_stream(service: &Service, request: WatchRequest) -> Streaming<WatchResponse> {
    ChangeServiceClient::new(grpc::at(service.address))
        .watch(request)
        .await
        .expect("a stream")
        .into_inner()
}

fn id(event: &Event) -> String {
    event.data["id"].as_str().expect("an id").to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_sends_each_change_and_a_later_one_continues_after_any_of_them() {
    for (service, _database) in both(&[]).await {
        let mut events = watch(&service, "cursor=now&preview_chars=20")
            .events()
            .await;
        let opened = next(&mut events).await;
        assert_eq!(
            (opened.name.as_str(), &opened.data),
            ("opened", &json!({"revision": 0}))
        );
        let mut seen = Vec::new();
        for n in 1..=5 {
            let stored = service.store("t", &format!("text {n}")).await;
            let event = next(&mut events).await;
            assert_eq!(event.name, "change");
            assert_eq!(id(&event), stored.to_string());
            assert_eq!(event.data["revision"], n);
            assert_eq!(event.data["preview"], format!("text {n}"));
            seen.push(event);
        }
        drop(events);
        // An empty Last-Event-ID is none, so the cursor counts.
        let request = watch(&service, "cursor=now").header("last-event-id", "");
        let opened = next(&mut request.events().await).await;
        assert_eq!(opened.data["revision"], json!(seen.len()));
        for (n, event) in seen.iter().enumerate() {
            let cursor = event.id.as_deref().expect("a cursor");
            // Last-Event-ID wins over cursor and snapshot.
            let request = watch(&service, "cursor=now&snapshot=true&preview_chars=20");
            let mut again = request.header("last-event-id", cursor).events().await;
            assert_eq!(next(&mut again).await.data["revision"], json!(n + 1));
            // Cursors are not compared: they also name the newest state that the stream showed.
            for expected in &seen[n + 1..] {
                let event = next(&mut again).await;
                assert_eq!(
                    (event.name, event.data),
                    (expected.name.clone(), expected.data.clone())
                );
            }
        }
        until("the streams are gone", async || {
            let metrics = service.get("/metrics").send().await.body;
            metrics.contains("context_watch_streams 0\n")
        })
        .await;
    }
}

/// Applies a frame to what a reader holds: the text of each entry and artifact.
fn apply(view: &mut BTreeMap<String, String>, frame: Frame) {
    let text = |context: Option<context_proto::v1::Context>,
                artifact: Option<context_proto::v1::Artifact>| {
        context
            .map(|context| context.text_content)
            .or(artifact.map(|artifact| artifact.content))
    };
    match frame {
        Frame::Entry(entry) => {
            let text = text(entry.context, entry.artifact).expect("a body");
            view.insert(entry.id, text);
        }
        Frame::Change(change) => match text(change.context, change.artifact) {
            Some(text) => _ = view.insert(change.id, text),
            None => _ = view.remove(&change.id),
        },
        Frame::Left(left) => _ = view.remove(&left.id),
        Frame::Opened(_) | Frame::SnapshotEnd(_) | Frame::Bookmark(_) => {}
        Frame::Resync(_) | Frame::End(_) => panic!("the stream ends"),
    }
}

/// There are more entries than one step reads, and others are stored, changed and deleted meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_and_the_changes_after_it_give_what_is_stored() {
    for (service, _database) in both(&[]).await {
        for batch in 0..3 {
            let entries: Vec<Value> = (0..90)
                .map(
                    |n| json!({"thread_id": "t", "source": "user", "text": format!("{batch} {n}")}),
                )
                .collect();
            let stored = service.post("/v1/contexts/batch", json!({"entries": entries}));
            assert_eq!(stored.send().await.json()["succeeded"], 90);
            let artifact = json!({"content": format!("artifact {batch}")});
            service.post("/v1/artifacts", artifact).send().await;
        }
        let request = WatchRequest {
            snapshot: Some(true),
            include_body: Some(true),
            ..WatchRequest::default()
        };
        let mut stream = grpc_stream(&service, request).await;
        let first = frame(&mut stream).await;
        assert!(first.cursor.is_empty());
        assert!(matches!(first.frame, Some(Frame::Opened(opened)) if opened.revision == 273));
        let mut view = BTreeMap::new();
        let (mut last, mut snapshot_ended) = (0, false);
        for n in 0..20 {
            service.store("t", &format!("late {n}")).await;
            service
                .patch(
                    &format!("/v1/contexts/{}", n * 5 + 1),
                    json!({"text": format!("changed {n}")}),
                )
                .send()
                .await;
            let gone = service.delete(&format!("/v1/contexts/{}", n * 5 + 2));
            last = gone.send().await.json()["revision"]
                .as_i64()
                .expect("a revision");
        }
        assert_eq!(last, 273 + 60, "each write succeeded");
        let mut revision = 273;
        while revision < last {
            let WatchResponse { cursor, frame } = frame(&mut stream).await;
            let frame = frame.expect("a frame");
            assert_eq!(cursor.is_empty(), matches!(frame, Frame::Entry(_)));
            match &frame {
                Frame::SnapshotEnd(end) => {
                    assert_eq!(end.revision, 273);
                    snapshot_ended = true;
                }
                Frame::Entry(_) => assert!(!snapshot_ended),
                Frame::Change(change) => {
                    assert!(snapshot_ended);
                    assert_eq!(change.revision, revision + 1, "in order, each once");
                    revision = change.revision;
                }
                _ => {}
            }
            apply(&mut view, frame);
        }
        let mut stored = BTreeMap::new();
        for offset in [0, 100, 200] {
            let page = service.post(
                "/v1/contexts/search",
                json!({"limit": 100, "offset": offset}),
            );
            for entry in page.send().await.json()["results"]
                .as_array()
                .expect("a list")
            {
                let text = entry["text_content"].as_str().expect("a text").to_owned();
                stored.insert(entry["id"].to_string(), text);
            }
        }
        let artifacts = service.get("/v1/artifacts?limit=50").send().await.json();
        for artifact in artifacts["result"].as_array().expect("a list") {
            let content = artifact["content_preview"]
                .as_str()
                .expect("a text")
                .to_owned();
            let id = artifact["id"].as_str().expect("an id").to_owned();
            stored.insert(id, content);
        }
        assert_eq!(stored.len(), 273);
        assert_eq!(view, stored);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_filtered_stream_says_what_left_and_bookmarks_what_it_leaves_out() {
    for (service, _database) in both(&[]).await {
        let request = WatchRequest {
            cursor: Some("now".to_owned()),
            filter: Some(Filter {
                tags: Some(context_proto::v1::StringList {
                    values: vec!["keep".to_owned()],
                }),
                ..Filter::default()
            }),
            ..WatchRequest::default()
        };
        let mut stream = grpc_stream(&service, request).await;
        frame(&mut stream).await;
        let entry = json!({"thread_id": "t", "source": "user", "text": "x", "tags": ["keep"]});
        let stored = service.post("/v1/contexts", entry).send().await.json();
        let path = format!("/v1/contexts/{}", stored["context_id"]);
        let Some(Frame::Change(created)) = frame(&mut stream).await.frame else {
            panic!("a change");
        };
        assert_eq!(created.operation, "created");
        service
            .patch(&path, json!({"tags": ["other"]}))
            .send()
            .await;
        let Some(Frame::Left(left)) = frame(&mut stream).await.frame else {
            panic!("it left");
        };
        assert_eq!(left.id, created.id);
        // After a thousand changes that are left out there is a bookmark.
        for batch in 0..10 {
            let entries: Vec<Value> = (0..100)
                .map(
                    |n| json!({"thread_id": "t", "source": "user", "text": format!("{batch} {n}")}),
                )
                .collect();
            let stored = service.post("/v1/contexts/batch", json!({"entries": entries}));
            assert_eq!(stored.send().await.json()["succeeded"], 100);
        }
        let WatchResponse { cursor, frame } = frame(&mut stream).await;
        let Some(Frame::Bookmark(bookmark)) = frame else {
            panic!("{frame:?}");
        };
        assert_eq!(bookmark.revision, 1002);
        let rest = service.get(&format!("/v1/changes?cursor={cursor}"));
        assert_eq!(rest.send().await.json()["changes"], json!([]));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_that_the_filter_leaves_out_do_not_delay_bookmarks() {
    let service = Service::start().await;
    let mut events = watch(&service, "cursor=now&thread_id=mine").events().await;
    next(&mut events).await;
    let others = async {
        let mut pace = tokio::time::interval(Duration::from_secs(1));
        for n in 0.. {
            pace.tick().await;
            service.store("other", &format!("text {n}")).await;
        }
    };
    // A bookmark comes 15 seconds after the last event.
    tokio::select! {
        event = tokio::time::timeout(Duration::from_secs(40), events.next()) => {
            let event = event.expect("an event in time").expect("the stream goes on");
            assert_eq!(event.name, "bookmark");
        }
        () = others => {}
    }
}

/// Two streams of the key, one of them limited to a thread.
async fn two_streams(service: &Service, key: &Key) -> [Events; 2] {
    let mut streams = Vec::new();
    for query in ["cursor=now", "cursor=now&thread_id=t"] {
        let mut events = watch(service, query).key(&key.text).events().await;
        assert_eq!(next(&mut events).await.name, "opened");
        streams.push(events);
    }
    streams.try_into().expect("two")
}

async fn end_within_a_second(streams: [Events; 2]) {
    let started = Instant::now();
    for mut events in streams {
        let end = next(&mut events).await;
        assert_eq!(
            (end.name.as_str(), &end.data),
            ("end", &json!({"reason": "KEY_REVOKED"}))
        );
        assert_eq!(events.next().await, None);
    }
    let took = started.elapsed();
    assert!(took < Duration::from_secs(1), "{took:?}");
}

/// The streams are idle while their keys are revoked, lose a scope, or expire. On PostgreSQL another service changes
/// the keys.
#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_loses_its_rights_ends_its_streams_within_a_second() {
    for (service, database) in both(&["--auth=keys"]).await {
        let other = match &database {
            Some(database) => Some(on(database, &["--auth=keys"]).await),
            None => None,
        };
        let elsewhere = other.as_ref().unwrap_or(&service);
        let manager = service.key("default", &["read", "write", "manage"]).await;
        let key = async || service.key("default", &["read", "write"]).await;
        let (revoked, reduced, expiring) = (key().await, key().await, key().await);
        let stays = two_streams(&service, &manager).await;

        let streams = two_streams(&service, &revoked).await;
        let command = Admin::RevokeKey {
            owner: "default".to_owned(),
            key_id: revoked.id,
        };
        elsewhere.engine.access.administer(command).await.unwrap();
        end_within_a_second(streams).await;

        let change = async |key: &Key, change: Value| {
            let path = format!("/v1/api-keys/{}", key.id);
            let reply = elsewhere
                .patch(&path, change)
                .key(&manager.text)
                .send()
                .await;
            assert_eq!(reply.status, 200, "{}", reply.body);
        };
        let streams = two_streams(&service, &reduced).await;
        change(&reduced, json!({"scopes": ["write"]})).await;
        end_within_a_second(streams).await;

        let streams = two_streams(&service, &expiring).await;
        let expiry = from_now(Duration::from_secs(2)).to_string();
        change(&expiring, json!({"expires_at": expiry})).await;
        tokio::time::sleep(Duration::from_secs(2)).await;
        end_within_a_second(streams).await;

        // A key whose streams have ended is checked again for later ones.
        drop(stays);
        tokio::time::sleep(Duration::from_millis(600)).await;
        let stays = two_streams(&service, &manager).await;
        let entry = json!({"thread_id": "t", "source": "user", "text": "x"});
        let stored = service
            .post("/v1/contexts", entry)
            .key(&manager.text)
            .send()
            .await;
        assert_eq!(stored.status, 201, "{}", stored.body);
        for mut events in stays {
            assert_eq!(next(&mut events).await.name, "change");
        }
        let streams = two_streams(&service, &manager).await;
        let command = Admin::RevokeKey {
            owner: "default".to_owned(),
            key_id: manager.id,
        };
        elsewhere.engine.access.administer(command).await.unwrap();
        end_within_a_second(streams).await;
    }
}

/// Two streams and lists of changes, while another owner makes 10 000 changes.
#[tokio::test(flavor = "multi_thread")]
async fn readers_see_no_change_of_another_owner() {
    const CANARY: &str = "canary";
    let entry = |word: &str, n: u64| {
        let text = format!("{word} {n}");
        json!({"thread_id": word, "source": "user", "text": text, "tags": [word], "metadata": {word: word}})
    };
    for (service, _database) in both(&["--auth=keys"]).await {
        let mine = service.key("mine", &["read", "write"]).await;
        let theirs = service.key("theirs", &["read", "write"]).await;
        let mut events = watch(&service, "cursor=now&include_body=true")
            .key(&mine.text)
            .events()
            .await;
        assert_eq!(next(&mut events).await.name, "opened");
        let mut of_their_thread = watch(&service, &format!("thread_id={CANARY}&include_body=true"))
            .key(&mine.text)
            .events()
            .await;
        assert_eq!(next(&mut of_their_thread).await.name, "opened");
        let now = async |key: &Key| {
            let page = service.get("/v1/changes?cursor=now").key(&key.text).send();
            let page = page.await.json();
            let cursor = page["next_cursor"].as_str().expect("a cursor").to_owned();
            (page["revision"].clone(), cursor)
        };
        let (_, mut cursor) = now(&mine).await;
        for round in 1..=100 {
            let entries: Vec<_> = (0..100).map(|n| entry(CANARY, 100 * round + n)).collect();
            let stored = service
                .post("/v1/contexts/batch", json!({"entries": entries}))
                .key(&theirs.text)
                .send()
                .await;
            assert_eq!(stored.json()["succeeded"], 100);
            service
                .post("/v1/contexts", entry("mine", round))
                .key(&mine.text)
                .send()
                .await;
            let change = next(&mut events).await;
            assert_eq!(
                (change.name.as_str(), &change.data["revision"]),
                ("change", &json!(round))
            );
            assert!(
                !change.data.to_string().contains(CANARY),
                "{:?}",
                change.data
            );
            let path = format!("/v1/changes?include_body=true&wait_ms=20000&cursor={cursor}");
            let page = service.get(&path).key(&mine.text).send().await;
            assert!(!page.body.contains(CANARY), "{}", page.body);
            let page = page.json();
            let revisions: Vec<_> = page["changes"]
                .as_array()
                .expect("changes")
                .iter()
                .map(|change| change["revision"].clone())
                .collect();
            assert_eq!(revisions, [json!(round)]);
            cursor = page["next_cursor"].as_str().expect("a cursor").to_owned();
        }
        let (their_revision, their_cursor) = now(&theirs).await;
        assert_eq!(their_revision, 10_000);
        let refused = service
            .get(&format!("/v1/changes?cursor={their_cursor}"))
            .key(&mine.text)
            .send()
            .await;
        assert_eq!(refused.status, 400, "{}", refused.body);
        service.begin_stop();
        let mut end = next(&mut of_their_thread).await;
        while end.name == "bookmark" {
            end = next(&mut of_their_thread).await;
        }
        assert_eq!(end.name, "end");
        service.stopped().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_ends_when_its_owner_is_erased_or_the_service_stops() {
    for (service, _database) in both(&["--auth=keys"]).await {
        let key = service.key("gone", &["read", "write"]).await.text;
        let entry = json!({"thread_id": "t", "source": "user", "text": "x"});
        service.post("/v1/contexts", entry).key(&key).send().await;
        let mut of_gone = watch(&service, "").key(&key).events().await;
        assert_eq!(next(&mut of_gone).await.name, "opened");
        assert_eq!(next(&mut of_gone).await.name, "change");
        let stays = service.key("stays", &["read"]).await.text;
        let mut of_stays = watch(&service, "").key(&stays).events().await;
        assert_eq!(next(&mut of_stays).await.name, "opened");
        let erase = Admin::EraseOwner {
            owner: "gone".to_owned(),
        };
        service.engine.access.administer(erase).await.unwrap();
        let end = next(&mut of_gone).await;
        // The key is erased with its owner, so either may be noticed first.
        let reason = end.data["reason"].as_str().expect("a reason");
        assert!(
            ["OWNER_ERASED", "KEY_REVOKED"].contains(&reason),
            "{reason}"
        );
        service.begin_stop();
        let end = next(&mut of_stays).await;
        assert_eq!(end.data, json!({"reason": "DRAINING"}));
        assert_eq!(of_stays.next().await, None);
        service.stopped().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_are_counted_and_bounded() {
    let service = Service::start_with(&["--watch-max-streams=2"]).await;
    let mut open = Vec::new();
    for _ in 0..2 {
        open.push(watch(&service, "cursor=now").events().await);
    }
    let metrics = service.get("/metrics").send().await.body;
    assert!(metrics.contains("context_watch_streams 2\n"), "{metrics}");
    let refused = watch(&service, "cursor=now").send().await;
    assert_eq!(
        (refused.status.as_u16(), refused.reason().as_str()),
        (503, "OVERLOADED")
    );
    assert!(
        refused.body.contains("WATCH_MAX_STREAMS"),
        "{}",
        refused.body
    );
    let status = ChangeServiceClient::new(grpc::at(service.address))
        .watch(WatchRequest::default())
        .await
        .expect_err("no slot is left");
    assert_eq!(status.code(), Code::Unavailable);
    drop(open);
    until("a slot is free again", async || {
        let request = watch(&service, "cursor=nonsense").send().await;
        request.status == 400
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_waits_for_slow_readers_is_bounded_and_counted() {
    const READERS: usize = 5;
    const BYTES: usize = 3_000_000;
    let service = Service::start().await;
    let text = "🦀".repeat(BYTES / 4);
    for number in 0..10 {
        service.store("large", &format!("{number}{text}")).await;
    }
    let held = async || {
        let metrics = service.get("/metrics").send().await.body;
        let line = metrics
            .lines()
            .find_map(|line| line.strip_prefix("context_body_bytes "));
        let bytes: usize = line.expect("the metric").parse().expect("a number");
        bytes
    };
    let mut streams = Vec::new();
    for _ in 0..READERS {
        let request = WatchRequest {
            include_body: Some(true),
            ..WatchRequest::default()
        };
        streams.push(grpc_stream(&service, request).await);
    }
    until("each stream has something to send", async || {
        held().await >= READERS * BYTES
    })
    .await;
    // Two steps of one entry each. Memory that a read counts beyond that is returned when the read ends.
    until("each stream holds two entries at most", async || {
        let held = held().await;
        (READERS * BYTES..=READERS * 2 * BYTES + BYTES).contains(&held)
    })
    .await;
    let first = frame(&mut streams[0]).await;
    assert!(matches!(first.frame, Some(Frame::Opened(_))), "{first:?}");
    for _ in 0..10 {
        let next = frame(&mut streams[0]).await;
        assert!(matches!(next.frame, Some(Frame::Change(_))));
    }
    drop(streams);
    until("no frame waits any more", async || held().await < BYTES).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_cannot_begin_is_an_error() {
    let service = Service::start().await;
    for (query, reason) in [
        ("cursor=nonsense", "CURSOR_INVALID"),
        ("cursor=now&snapshot=true", "INVALID_ARGUMENT"),
        ("entity=thread", "INVALID_ARGUMENT"),
        ("limit=1", "INVALID_ARGUMENT"),
    ] {
        let reply = watch(&service, query).send().await;
        assert_eq!(
            (reply.status.as_u16(), reply.reason().as_str()),
            (400, reason),
            "{query}"
        );
    }
    let request = WatchRequest {
        cursor: Some("nonsense".to_owned()),
        ..WatchRequest::default()
    };
    let status = ChangeServiceClient::new(grpc::at(service.address))
        .watch(request)
        .await
        .expect_err("the cursor is no cursor");
    assert_eq!(error_from_status(&status).reason.as_str(), "CURSOR_INVALID");
}
