//! Bodies and replies that are intended to exhaust memory.

use std::time::Duration;

use bytes::Bytes;
use context_attacks::{BOUND_KIB, Target, http2};
use context_model::Operation;
use context_test_support::http::Request;
use serde_json::{Value, json};
use tokio::task::JoinSet;

/// The path of an operation's gRPC method.
fn path(operation: Operation) -> String {
    format!("/{}/{}", operation.service(), operation.method())
}

/// The beginning of a gRPC message with this length.
fn announced(length: u32) -> Bytes {
    let [a, b, c, d] = length.to_be_bytes();
    Bytes::from(vec![0, a, b, c, d])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_that_are_announced_and_withheld_take_nothing_from_others() {
    let target = Target::with_small_budget().await;
    let idle = target.anonymous_kib();
    let attacker = http2::Connection::open(target.address()).await;
    // Without a key: 4 MiB are announced on each of 100 streams.
    let mut streams = Vec::new();
    for _ in 0..100 {
        let mut stream = attacker.grpc("/grpc.health.v1.Health/Check", None).await;
        stream.send(announced(4 << 20), false).await;
        streams.push(stream);
    }
    // With a key: 60 MiB are announced on each of 100 streams.
    let with_key = http2::Connection::open(target.address()).await;
    for _ in 0..100 {
        let mut stream = with_key
            .grpc(&path(Operation::GetContextByIds), Some(&target.read_key))
            .await;
        stream.send(announced(60 << 20), false).await;
        streams.push(stream);
    }
    target
        .assert_bystander_is_served("while messages are withheld")
        .await;
    let body = json!({"thread_id": "t", "source": "user", "text": "another entry"});
    assert_eq!(
        target
            .post("/v1/contexts", &target.bystander_key, &body)
            .await
            .status(),
        201
    );
    // Meanwhile the operator's commands work.
    let listed = target
        .home
        .command("context-service")
        .args(["keys", "list", "--owner", "attacker"])
        .output()
        .expect("it runs");
    assert!(
        listed.status.success(),
        "{}",
        String::from_utf8_lossy(&listed.stderr)
    );
    let held = target.anonymous_kib().saturating_sub(idle);
    assert!(held < BOUND_KIB, "{held} KiB");
    drop(streams);
    target.assert_bystander_is_served("afterwards").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_message_is_refused_and_never_buffered() {
    let target = Target::with_small_budget().await;
    let idle = target.anonymous_kib();
    let operations = [
        ("/grpc.health.v1.Health/Check".to_owned(), None),
        (path(Operation::GetStatistics), Some(&target.read_key)),
    ];
    let mut highest = 0;
    for (path, key) in operations {
        let connection = http2::Connection::open(target.address()).await;
        let mut streams = Vec::new();
        for _ in 0..50 {
            let mut stream = connection.grpc(&path, key.map(String::as_str)).await;
            stream.send(announced(0), false).await;
            stream.send(announced(4 << 20), false).await;
            streams.push(stream);
        }
        let mut codes = vec![streams.pop().expect("streams").grpc_status().await];
        highest = highest.max(target.anonymous_kib().saturating_sub(idle));
        for stream in streams {
            codes.push(stream.grpc_status().await);
        }
        // One address may not have 50 requests without a key, so some are UNAVAILABLE (14).
        for (code, message) in &codes {
            assert!([3, 14].contains(code), "{path}: {code} {message}");
        }
        assert!(
            codes.iter().any(|(code, _)| *code == 3),
            "{path}: {codes:?}"
        );
    }
    assert!(highest < BOUND_KIB, "{highest} KiB");
    target.assert_bystander_is_served("afterwards").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gzip_bomb_is_refused_by_scope_before_it_is_read_and_by_size_while_it_is_unpacked() {
    let target = Target::with_small_budget().await;
    let idle = target.anonymous_kib();
    // 60 MiB of zeros compressed to 60 KB.
    let bomb = http2::gzip(&vec![0; 60 << 20]);
    let mut highest = 0;
    for (key, codes) in [
        (&target.read_key, &[7][..]),
        (&target.write_key, &[3, 8, 14][..]),
    ] {
        let connection = http2::Connection::open(target.address()).await;
        let mut requests = JoinSet::new();
        for _ in 0..12 {
            let mut stream = connection
                .compressed_grpc(&path(Operation::StoreContext), Some(key))
                .await;
            stream.send(http2::compressed_message(&bomb), true).await;
            requests.spawn(async move { stream.grpc_status().await });
        }
        while let Some(status) = requests.join_next().await {
            let (code, message) = status.expect("no panic");
            assert!(codes.contains(&code), "{code} {message}");
            highest = highest.max(target.anonymous_kib().saturating_sub(idle));
        }
        target
            .assert_bystander_is_served("while bombs are unpacked")
            .await;
    }
    assert!(highest < BOUND_KIB, "{highest} KiB");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_replies_that_are_not_read_stay_within_the_budget() {
    let target = Target::with_small_budget().await;
    let image = "A".repeat(8 << 20);
    for entry in 0..2 {
        let images = vec![json!({"data": image}); 2];
        let body = json!({"thread_id": "big", "source": "user", "text": format!("entry {entry}"), "images": images});
        let reply = target.post("/v1/contexts", &target.write_key, &body).await;
        assert_eq!(
            reply.status(),
            201,
            "{}",
            reply.text().await.unwrap_or_default()
        );
    }
    let idle = target.anonymous_kib();
    let mut highest = 0;
    let mut accepted = 0;
    // REST over HTTP/2 and gRPC, each on a new connection. The bodies of the replies are not read.
    let mut streams = Vec::new();
    for round in 0..16 {
        let connection = http2::Connection::open(target.address()).await;
        let mut stream = if round % 2 == 0 {
            connection
                .get("/v1/contexts?ids=1,2", &target.read_key)
                .await
        } else {
            let mut stream = connection
                .grpc(&path(Operation::GetContextByIds), Some(&target.read_key))
                .await;
            // GetContextByIdsRequest { context_ids: [1, 2], include_images: absent }
            stream.send(http2::message(&[0x0a, 2, 1, 2]), true).await;
            stream
        };
        stream.head().await;
        accepted += usize::from(stream.is_accepted());
        streams.push((connection, stream));
        highest = highest.max(target.anonymous_kib().saturating_sub(idle));
    }
    assert!(accepted > 0, "no reader got a large reply");
    target
        .assert_bystander_is_served("while replies wait")
        .await;
    for _ in 0..20 {
        tokio::time::sleep(Duration::from_millis(50)).await;
        highest = highest.max(target.anonymous_kib().saturating_sub(idle));
    }
    assert!(highest < BOUND_KIB, "{highest} KiB");
    eprintln!(
        "{highest} KiB held; {accepted} of 16 readers got a reply (of 32 MiB over REST, 24 MiB over gRPC)"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_replies_that_are_not_read_keep_no_thread_from_others() {
    let target = Target::start(&[]).await;
    let images = json!([{"data": "A".repeat(2 << 20)}]);
    let body = json!({"thread_id": "big", "source": "user", "text": "large", "images": images});
    let reply = target.post("/v1/contexts", &target.write_key, &body).await;
    assert_eq!(reply.status(), 201);
    let stored: Value = reply.json().await.expect("JSON");
    let path = format!("/v1/contexts/{}", stored["context_id"]);
    let connection = http2::Connection::try_open_with_window(target.address(), 0)
        .await
        .expect("a connection");
    // More than the service has threads for work that takes long.
    let mut streams = Vec::new();
    for _ in 0..20 {
        let mut stream = connection.get(&path, &target.read_key).await;
        assert_eq!(stream.head().await, 200);
        streams.push(stream);
    }
    // A body of this size is read on such a thread.
    let text = "word ".repeat(60_000);
    let body = json!({"thread_id": "t", "source": "user", "text": text});
    let reply = target
        .post("/v1/contexts", &target.bystander_key, &body)
        .await;
    assert_eq!(reply.status(), 201);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn small_messages_that_decode_to_much_stay_within_the_budget() {
    let target = Target::with_small_budget().await;
    let idle = target.anonymous_kib();
    // A list of ten million numbers takes 20 MB as JSON and would take 700 MB as values.
    let numbers = format!(
        "{{\"thread_id\":\"t\",\"source\":\"user\",\"text\":\"x\",\"metadata\":{{\"n\":[1{}]}}}}",
        ",1".repeat(10_000_000)
    );
    let mut highest = 0;
    for _ in 0..3 {
        let url = format!("http://{}/v1/contexts", target.address());
        let request = Request::new("POST", url)
            .key(&target.write_key)
            .header("content-type", "application/json");
        let reply = request.body(numbers.clone()).send().await;
        assert!(
            [400, 413, 503].contains(&reply.status.as_u16()),
            "{}",
            reply.status
        );
        highest = highest.max(target.anonymous_kib().saturating_sub(idle));
    }
    assert!(highest < BOUND_KIB, "{highest} KiB");
    target.assert_bystander_is_served("afterwards").await;
}
