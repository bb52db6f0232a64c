//! Requests that are too large, too many or too slow.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use context_engine::{Caller, Reach, WriteContext};
use context_model::{
    Error, FilterInput, HybridSearchContextRequest, ListChangesRequest, ListMetadataKeysRequest,
    Reason, ThreadSet, UpdateContextRequest,
};
use context_store::{Memory, Meter};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::service::Service;

#[tokio::test(flavor = "multi_thread")]
async fn a_body_beyond_the_limit_is_refused_by_its_length_alone() {
    let service = Service::start_with(&["--max-total-size-mb=1", "--max-image-size-mb=1"]).await;
    let mut stream = TcpStream::connect(service.address).await.unwrap();
    let head = "POST /v1/contexts HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 99999999999\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut reply = vec![0; 12];
    stream.read_exact(&mut reply).await.unwrap();
    assert_eq!(String::from_utf8_lossy(&reply), "HTTP/1.1 413");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chunked_body_beyond_the_limit_is_refused_when_it_passes_the_limit() {
    let service = Service::start_with(&["--max-total-size-mb=1", "--max-image-size-mb=1"]).await;
    let mut stream = TcpStream::connect(service.address).await.unwrap();
    let head = "POST /v1/contexts HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    let (mut read, mut write) = stream.into_split();
    let sender = tokio::spawn(async move {
        let chunk = format!("100000\r\n{}\r\n", " ".repeat(1 << 20));
        for _ in 0..100 {
            if write.write_all(chunk.as_bytes()).await.is_err() {
                break;
            }
        }
    });
    let mut reply = vec![0; 12];
    read.read_exact(&mut reply).await.unwrap();
    assert_eq!(String::from_utf8_lossy(&reply), "HTTP/1.1 413");
    sender.abort();
}

/// The next reply on this connection, which is JSON.
async fn json_reply(stream: &mut TcpStream) -> String {
    let mut reply = Vec::new();
    while reply.last() != Some(&b'}') {
        let read = stream.read_buf(&mut reply).await.unwrap();
        assert_ne!(read, 0, "{}", String::from_utf8_lossy(&reply));
    }
    String::from_utf8(reply).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_keeps_the_connection_if_the_unread_body_is_small_and_else_says_that_it_closes() {
    let service = Service::start().await;
    let head = |path: &str, more: &str| {
        format!(
            "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: text/plain\r\n{more}\r\n\r\n"
        )
    };
    // More than the service reads at once.
    let body = "x".repeat(60_000);
    let mut stream = TcpStream::connect(service.address).await.unwrap();
    for (path, status) in [
        ("/v1/contexts", 415),
        ("/v1/nothing", 404),
        ("/v1/statistics", 405),
    ] {
        let request = head(path, "content-length: 60000") + &body;
        stream.write_all(request.as_bytes()).await.unwrap();
        let refused = json_reply(&mut stream).await;
        assert!(
            refused.starts_with(&format!("HTTP/1.1 {status}")),
            "{refused}"
        );
        assert!(!refused.contains("connection: close"), "{refused}");
    }
    stream
        .write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n")
        .await
        .unwrap();
    let reply = json_reply(&mut stream).await;
    assert!(reply.starts_with("HTTP/1.1 200"), "{reply}");

    for more in [
        "content-length: 10000000",
        "content-length: 5\r\nexpect: 100-continue",
    ] {
        let mut stream = TcpStream::connect(service.address).await.unwrap();
        let request = head("/v1/contexts", more);
        stream.write_all(request.as_bytes()).await.unwrap();
        let refused = json_reply(&mut stream).await;
        assert!(refused.starts_with("HTTP/1.1 415"), "{refused}");
        assert!(refused.contains("\r\nconnection: close\r\n"), "{refused}");
        assert_eq!(stream.read(&mut [0]).await.unwrap(), 0, "it is closed");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_only_allowed_connection_stays_open_until_another_one_comes() {
    let service = Service::start_with(&["--max-connections=1"]).await;
    let mut only = TcpStream::connect(service.address).await.unwrap();
    let mut buffer = [0; 1024];
    for request in 1..=2 {
        only.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n")
            .await
            .unwrap();
        let mut reply = String::new();
        while !reply.ends_with('}') {
            let read = only.read(&mut buffer).await.unwrap();
            assert_ne!(read, 0, "request {request} was cut off: {reply}");
            reply.push_str(&String::from_utf8_lossy(&buffer[..read]));
        }
        assert!(reply.starts_with("HTTP/1.1 200"), "{reply}");
    }
    assert_eq!(service.get("/healthz").send().await.status, 200);
    assert_eq!(only.read(&mut buffer).await.unwrap(), 0, "it made room");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_queue_answers_503_with_retry_after() {
    let service = Service::start_with(&["--max-concurrent-requests=1", "--request-queue=0"]).await;
    let slow = tokio::spawn(service.endless_search().await.send());
    service.until_busy().await;
    let refused = service.get("/v1/threads").send().await;
    assert_eq!(
        (refused.status.as_u16(), refused.reason().as_str()),
        (503, "OVERLOADED")
    );
    assert_eq!(refused.header("retry-after"), Some("1"));
    assert_eq!(
        service.get("/healthz").send().await.status,
        200,
        "health is not queued"
    );
    slow.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operation_that_takes_too_long_is_answered_504() {
    let service = Service::start_with(&["--request-timeout-seconds=3"]).await;
    let reply = service.endless_search().await.send().await;
    assert_eq!(
        (reply.status.as_u16(), reply.reason().as_str()),
        (504, "DEADLINE_EXCEEDED")
    );
    let detail = reply.json()["detail"].as_str().unwrap().to_owned();
    assert!(
        detail.contains("no index serves the metadata filter labels (array_contains)"),
        "{detail}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn large_replies_are_compressed_when_the_caller_can_read_that() {
    let service = Service::start().await;
    service.store("t", &"word ".repeat(2000)).await;
    let plain = service.get("/v1/contexts/1").send().await;
    assert_eq!(plain.header("content-encoding"), None);
    let compressed = service
        .get("/v1/contexts/1")
        .header("accept-encoding", "gzip")
        .send()
        .await;
    assert_eq!(compressed.header("content-encoding"), Some("gzip"));
    assert!(compressed.body.len() * 2 < plain.body.len());
    let small = service
        .get("/healthz")
        .header("accept-encoding", "gzip")
        .send()
        .await;
    assert_eq!(small.header("content-encoding"), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn deeply_nested_json_is_refused() {
    let service = Service::start().await;
    let body = format!(
        "{{\"metadata\":{}{}}}",
        "[".repeat(100_000),
        "]".repeat(100_000)
    );
    let reply = service
        .request("POST", "/v1/contexts")
        .header("content-type", "application/json")
        .body(body)
        .send()
        .await;
    assert_eq!(
        (reply.status.as_u16(), reply.reason().as_str()),
        (400, "INVALID_ARGUMENT")
    );
    let id = service
        .post(
            "/v1/contexts",
            json!({"thread_id": "t", "source": "user", "text": "after"}),
        )
        .send()
        .await;
    assert_eq!(id.status, 201);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_would_unpack_to_more_memory_than_there_is_is_refused_before_it_is_parsed() {
    let service = Service::start().await;
    let body = format!(
        "{{\"thread_id\":\"t\",\"source\":\"user\",\"text\":\"x\",\"metadata\":{{\"a\":[0{}]}}}}",
        ",0".repeat(10_000_000)
    );
    let reply = service
        .request("POST", "/v1/contexts")
        .header("content-type", "application/json")
        .body(body)
        .send()
        .await;
    assert_eq!(
        (reply.status.as_u16(), reply.reason().as_str()),
        (413, "REQUEST_TOO_LARGE")
    );
}

/// A memory budget with room for this many bytes.
struct Room(AtomicU64);

impl Meter for Room {
    fn take(&self, bytes: u64) -> Result<(), Error> {
        let left = |room: u64| room.checked_sub(bytes);
        self.0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, left)
            .map(|_| ())
            .map_err(|_| Error::new(Reason::Overloaded, "no room"))
    }

    fn give_back(&self, bytes: u64) {
        self.0.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// A caller whose memory budget has room for this many bytes.
fn caller_with(room: u64, reach: Reach) -> Caller {
    Caller {
        memory: Memory::counted_by(Arc::new(Room(AtomicU64::new(room)))),
        reach,
        ..Caller::local()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_of_metadata_and_checks_of_threads_count_the_metadata_that_they_read() {
    let service = Service::start().await;
    let metadata = json!({"note": "x".repeat(3_000)});
    let entry = json!({"thread_id": "t", "source": "user", "text": "a", "metadata": metadata});
    service.store_unseen(entry).await;
    let contexts = &service.engine.contexts;
    for (room, refused) in [(100_000, Some(Reason::Overloaded)), (1_000_000, None)] {
        let listed = contexts
            .list_metadata_keys(
                &caller_with(room, Reach::All),
                ListMetadataKeysRequest::default(),
            )
            .await;
        assert_eq!(listed.err().map(|error| error.reason), refused, "{room}");
    }
    let threads = Arc::new(ThreadSet::from_shown(&["t".to_owned()]).unwrap());
    for (room, refused) in [(2_000, Some(Reason::Overloaded)), (4_000, None)] {
        let narrowed = caller_with(room, Reach::Threads(threads.clone()));
        // What was read is given back, so there is room for the next check.
        for _ in 0..3 {
            let update = UpdateContextRequest {
                context_id: 1,
                text: Some("b".to_owned()),
                ..UpdateContextRequest::default()
            };
            let updated = contexts
                .update_context(&narrowed, update, WriteContext::default())
                .await;
            assert_eq!(updated.err().map(|error| error.reason), refused, "{room}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_of_changes_gives_back_the_memory_that_only_its_filters_needed() {
    let service = Service::start().await;
    for i in 0..120 {
        let metadata = json!({"note": "x".repeat(3_000)});
        let entry = json!({"thread_id": "t", "source": "user", "text": format!("{i}"), "metadata": metadata});
        service.store_unseen(entry).await;
    }
    // There is room for 100 of the entries.
    let caller = caller_with(330_000, Reach::All);
    for _ in 0..3 {
        let request = ListChangesRequest {
            limit: Some(1_000),
            filters: FilterInput {
                tags: Some(vec!["other".to_owned()]),
                ..FilterInput::default()
            },
            ..ListChangesRequest::default()
        };
        let listed = service.engine.changes.list_changes(&caller, request).await;
        let listed = listed.expect("there is room for each page");
        assert!(listed.changes.is_empty() && !listed.has_more);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_search_reads_the_metadata_of_a_part_of_its_candidates_at_a_time() {
    let service = Service::start().await;
    for i in 0..120 {
        let metadata = json!({"note": "x".repeat(3_000)});
        let entry = json!({"thread_id": "t", "source": "user", "text": format!("apple {i}"), "metadata": metadata});
        service.store_unseen(entry).await;
    }
    // There is room for 60 of the entries.
    let caller = caller_with(200_000, Reach::All);
    let request = HybridSearchContextRequest {
        query: "apple".to_owned(),
        limit: Some(5),
        min_relevance: Some(0.0),
        ..HybridSearchContextRequest::default()
    };
    let retrieval = &service.engine.retrieval;
    let found = retrieval.hybrid_search_context(&caller, request).await;
    assert_eq!(found.expect("there is room for each part").count, 5);
}
