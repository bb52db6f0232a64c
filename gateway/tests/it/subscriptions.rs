//! Subscriptions to resources: over stdio with `resources/subscribe`, and with `subscriptions/listen`.

use std::sync::Arc;

use axum::body::BodyDataStream;
use context_gateway::handler::Credentials;
use context_gateway::key_file::KeyFile;
use context_proto::v1 as pb;
use context_test_support::wait_for;
use futures::StreamExt as _;
use pb::watch_response::Frame;
use serde_json::{Value, json};
use tower::ServiceExt as _;

use crate::fake::{ARTIFACT, Behaviour, Watching, setup};
use crate::session::{Era, Pipe, exchange, post, router, within_a_minute};

fn change(entity: &str, id: &str, thread: Option<&str>) -> Frame {
    Frame::Change(pb::Change {
        operation: "updated".to_owned(),
        entity: entity.to_owned(),
        id: id.to_owned(),
        thread_id: thread.map(str::to_owned),
        ..pb::Change::default()
    })
}

async fn send(stream: &Watching, cursor: &str, frame: Frame) {
    let cursor = cursor.to_owned();
    let frame = Some(frame);
    let response = pb::WatchResponse { cursor, frame };
    stream.frames.send(Ok(response)).await.unwrap();
}

/// The URI of the next notification.
async fn updated(pipe: &mut Pipe) -> String {
    let notification = pipe.line().await.unwrap();
    assert_eq!(
        notification["method"], "notifications/resources/updated",
        "{notification}"
    );
    notification["params"]["uri"].as_str().unwrap().to_owned()
}

/// The messages of a stream over HTTP.
struct Events {
    body: BodyDataStream,
    received: String,
}

impl Events {
    async fn next(&mut self) -> Value {
        loop {
            if let Some((event, rest)) = self.received.split_once("\n\n") {
                let data = event.lines().find_map(|line| line.strip_prefix("data:"));
                // An event without a message only keeps the stream open.
                let message = data.and_then(|data| serde_json::from_str(data).ok());
                self.received = rest.to_owned();
                if let Some(message) = message {
                    return message;
                }
            } else {
                let piece = within_a_minute("the next event", self.body.next()).await;
                let piece = piece.expect("an open stream").unwrap();
                self.received.push_str(std::str::from_utf8(&piece).unwrap());
            }
        }
    }
}

const THREAD: &str = "context://threads/a%2Fb";

#[tokio::test]
async fn a_client_hears_of_each_change_of_what_it_subscribed_to() {
    let setup = setup(Credentials::Own(None));
    let mut pipe = Pipe::open(&setup, Era::Legacy("2025-11-25")).await;
    // An id may be written in any form.
    let artifact = format!("context://artifacts/{}", ARTIFACT.to_uppercase());
    for uri in ["context://entries/42", THREAD, artifact.as_str()] {
        let reply = pipe
            .request("resources/subscribe", json!({ "uri": uri }))
            .await;
        assert!(reply["result"].is_object(), "{reply}");
    }
    let unknown = pipe
        .request("resources/subscribe", json!({"uri": "context://x/1"}))
        .await;
    assert_eq!(unknown["error"]["code"], -32002);
    // The stream continues after the cursor that the service gave before the first reply.
    let stream = setup.fake.watching().await;
    assert_eq!(stream.cursor, "c");
    send(&stream, "", Frame::Opened(pb::Opened::default())).await;
    send(&stream, "1", change("context", "42", Some("elsewhere"))).await;
    send(&stream, "2", change("context", "7", Some("elsewhere"))).await;
    send(&stream, "3", change("artifact", ARTIFACT, None)).await;
    send(&stream, "4", change("context", "7", Some("a/b"))).await;
    for expected in ["context://entries/42", artifact.as_str(), THREAD] {
        assert_eq!(updated(&mut pipe).await, expected);
    }

    // A service that stops ends the stream. The gateway opens it again at the last cursor.
    let reason = "DRAINING".to_owned();
    send(&stream, "", Frame::End(pb::End { reason })).await;
    drop(stream);
    let stream = setup.fake.watching().await;
    assert_eq!(stream.cursor, "4");
    let reply = pipe
        .request("resources/unsubscribe", json!({ "uri": THREAD }))
        .await;
    assert!(reply["result"].is_object(), "{reply}");
    send(&stream, "", Frame::Opened(pb::Opened::default())).await;
    send(&stream, "5", change("context", "7", Some("a/b"))).await;
    send(&stream, "6", change("artifact", ARTIFACT, None)).await;
    assert_eq!(updated(&mut pipe).await, artifact);

    // When the changes cannot be continued, each resource may have changed.
    let resync = pb::Resync {
        reason: "RESYNC_REQUIRED".to_owned(),
        oldest_cursor: None,
    };
    send(&stream, "", Frame::Resync(resync)).await;
    drop(stream);
    let stream = setup.fake.watching().await;
    assert_eq!(stream.cursor, "now");
    send(&stream, "7", Frame::Opened(pb::Opened::default())).await;
    let mut both = [updated(&mut pipe).await, updated(&mut pipe).await];
    both.sort();
    assert_eq!(both, [&*artifact, "context://entries/42"]);
}

#[tokio::test]
async fn a_client_whose_token_is_replaced_misses_no_change() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("token");
    std::fs::write(&file, "first").unwrap();
    let key = Arc::new(KeyFile::open(&file).unwrap());
    let setup = setup(Credentials::File(key.clone()));
    let mut pipe = Pipe::open(&setup, Era::Legacy("2025-11-25")).await;
    let reply = pipe
        .request("resources/subscribe", json!({ "uri": THREAD }))
        .await;
    assert!(reply["result"].is_object(), "{reply}");
    let stream = setup.fake.watching().await;
    assert_eq!(stream.authorization.as_deref(), Some("Bearer first"));
    send(&stream, "1", change("context", "7", Some("a/b"))).await;
    assert_eq!(updated(&mut pipe).await, THREAD);

    // The service ends the stream of a token that is no longer valid.
    std::fs::write(&file, "second").unwrap();
    wait_for("the new token", || {
        (key.current()? == "Bearer second").then_some(())
    })
    .await;
    let reason = "KEY_REVOKED".to_owned();
    send(&stream, "", Frame::End(pb::End { reason })).await;
    drop(stream);
    let stream = setup.fake.watching().await;
    assert_eq!(
        (stream.authorization.as_deref(), stream.cursor.as_str()),
        (Some("Bearer second"), "1")
    );
    send(&stream, "2", change("context", "7", Some("a/b"))).await;
    assert_eq!(updated(&mut pipe).await, THREAD);
}

#[tokio::test]
async fn a_listener_hears_of_what_it_listens_to() {
    let setup = setup(Credentials::Own(None));
    let mut pipe = Pipe::open(&setup, Era::Modern).await;
    let uris = json!([THREAD, "file:///etc/passwd"]);
    pipe.start(
        "subscriptions/listen",
        json!({"notifications": {"resourceSubscriptions": uris}}),
    )
    .await;
    let acknowledged = pipe.line().await.unwrap();
    assert_eq!(
        acknowledged["params"]["notifications"]["resourceSubscriptions"],
        json!([THREAD]),
        "{acknowledged}"
    );
    let stream = setup.fake.watching().await;
    assert_eq!(stream.cursor, "now");
    send(&stream, "1", Frame::Opened(pb::Opened::default())).await;
    // The thread may have changed between the acknowledgement and the opening of the stream.
    assert_eq!(updated(&mut pipe).await, THREAD);
    send(&stream, "2", change("context", "7", Some("other"))).await;
    send(&stream, "3", change("context", "7", Some("a/b"))).await;
    assert_eq!(updated(&mut pipe).await, THREAD);
    // A key that is no longer valid ends the subscription with an error.
    let reason = "KEY_REVOKED".to_owned();
    send(&stream, "", Frame::End(pb::End { reason })).await;
    let ended = pipe.line().await.unwrap();
    assert_eq!(
        ended["error"]["data"]["reason"], "UNAUTHENTICATED",
        "{ended}"
    );
}

#[tokio::test]
async fn a_listener_over_http_hears_of_the_entry_it_listens_to() {
    let setup = setup(Credentials::Callers);
    let entry = "context://entries/42";
    let params = json!({"notifications": {"resourceSubscriptions": [entry]}});
    let listen = Era::Modern.request(1, "subscriptions/listen", params);
    let response = router(&setup).oneshot(post(Era::Modern, &listen)).await;
    let mut events = Events {
        body: response.unwrap().into_body().into_data_stream(),
        received: String::new(),
    };
    let acknowledged = events.next().await;
    assert_eq!(
        acknowledged["params"]["notifications"]["resourceSubscriptions"],
        json!([entry]),
        "{acknowledged}"
    );
    let stream = setup.fake.watching().await;
    send(&stream, "1", Frame::Opened(pb::Opened::default())).await;
    send(&stream, "2", change("context", "7", Some("other"))).await;
    send(&stream, "3", change("context", "42", Some("other"))).await;
    // The entry may have changed before the stream was open, so the first notification comes at once.
    for _ in 0..2 {
        let updated = events.next().await;
        assert_eq!(
            (&updated["method"], &updated["params"]["uri"]),
            (&json!("notifications/resources/updated"), &json!(entry)),
            "{updated}"
        );
    }
}

#[tokio::test]
async fn a_listener_to_resources_outlasts_a_change_of_the_tool_list() {
    let setup = setup(Credentials::Own(None));
    let mut pipe = Pipe::open(&setup, Era::Modern).await;
    pipe.start(
        "subscriptions/listen",
        json!({"notifications": {"resourceSubscriptions": [THREAD]}}),
    )
    .await;
    let acknowledged = pipe.line().await.unwrap();
    assert!(acknowledged["error"].is_null(), "{acknowledged}");
    let stream = setup.fake.watching().await;
    send(&stream, "1", Frame::Opened(pb::Opened::default())).await;
    assert_eq!(updated(&mut pipe).await, THREAD);
    setup.fake.behave(Behaviour::Features(true, false, false));
    let statistics = pipe.call("get_statistics", json!({})).await;
    assert_eq!(statistics["isError"], false, "{statistics}");
    for cursor in ["2", "3"] {
        send(&stream, cursor, change("context", "7", Some("a/b"))).await;
        assert_eq!(updated(&mut pipe).await, THREAD);
    }
}

#[tokio::test]
async fn subscriptions_are_bounded_and_a_second_one_to_the_same_resource_is_free() {
    let setup = setup(Credentials::Own(None));
    let mut pipe = Pipe::open(&setup, Era::Legacy("2025-06-18")).await;
    let mut last = Value::Null;
    for id in (1..=101).chain([1]) {
        let uri = format!("context://entries/{id}");
        last = pipe
            .request("resources/subscribe", json!({ "uri": uri }))
            .await;
        assert_eq!(last["error"].is_object(), id == 101, "{last}");
    }
    assert!(last["result"].is_object(), "{last}");
}

#[tokio::test]
async fn clients_over_http_subscribe_only_by_listening() {
    let setup = setup(Credentials::Callers);
    let router = router(&setup);
    for era in [Era::Legacy("2025-11-25"), Era::Modern] {
        let request = era.request(1, "resources/subscribe", json!({ "uri": THREAD }));
        let (_, reply) = exchange(&router, post(era, &request)).await;
        assert_eq!(reply["error"]["code"], -32601, "{era:?}: {reply}");
    }
    assert!(setup.fake.seen().is_empty());
}

#[tokio::test]
async fn a_client_that_listens_many_times_is_still_read() {
    let setup = setup(Credentials::Own(None));
    let mut pipe = Pipe::open(&setup, Era::Modern).await;
    let params = || json!({"notifications": {"toolsListChanged": true}});
    for _ in 0..64 {
        pipe.start("subscriptions/listen", params()).await;
        let acknowledged = pipe.line().await.unwrap();
        assert!(acknowledged["error"].is_null(), "{acknowledged}");
    }
    let id = pipe.start("subscriptions/listen", params()).await;
    let refused = loop {
        let line = pipe.line().await.unwrap();
        if line["id"] == id {
            break line;
        }
    };
    let sentence = refused["error"]["message"].as_str().unwrap();
    assert!(sentence.contains("at most 64"), "{refused}");
    assert_eq!(pipe.call("list_threads", json!({})).await["isError"], false);
}
