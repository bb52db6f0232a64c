//! Clients that disconnect in the middle of a request, and clients that never finish one.

use std::collections::BTreeMap;
use std::time::Duration;

use context_faults::audit::audit;
use context_faults::blocker::Blocker;
use context_faults::client::{Client as _, Grpc};
use context_faults::content::Content;
use context_model::StoreContextBatchRequest;
use context_test_support::http::Request;
use context_test_support::{Home, Random, seed};
use serde_json::json;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

const CLIENTS: u64 = 40;
const BATCH: u64 = 5;

/// Asserts that every stored entry was sent and is complete, and that batches are stored completely or not at all.
/// Returns the serials found.
fn check(stored: &BTreeMap<i64, context_model::Entry>) -> Vec<u64> {
    let mut sizes: BTreeMap<u64, u64> = BTreeMap::new();
    for entry in stored.values() {
        let content = Content::from(entry.clone());
        let serial: u64 = content
            .word()
            .trim_start_matches("w0n")
            .split('r')
            .next()
            .and_then(|serial| serial.parse().ok())
            .expect("ours");
        assert_eq!(
            content,
            Content::new(0, serial, 0, &content.thread_id),
            "an entry is whole"
        );
        *sizes.entry(serial / BATCH).or_default() += 1;
    }
    assert!(
        sizes.values().all(|size| *size == BATCH),
        "a batch is stored whole or not at all: {sizes:?}"
    );
    sizes.into_keys().collect()
}

fn batch(client: u64) -> StoreContextBatchRequest {
    let entries = (0..BATCH).map(|item| {
        Content::new(0, client * BATCH + item, 0, &format!("client {client}")).request()
    });
    StoreContextBatchRequest {
        entries: entries.collect(),
        atomic: Some(true),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cancelled_calls_leave_nothing_half_done_and_harm_no_other_call() {
    let home = Home::new().with("SQLITE_BUSY_TIMEOUT_MS", "600000");
    let service = home.start().await;
    let grpc = Grpc::of(&home);
    // The owner must exist, because its statistics show the number of queued requests.
    grpc.store_batch(batch(0)).await.expect("it works");
    let blocker = Blocker::hold(&home.database());
    let mut staying = JoinSet::new();
    let mut leaving = Vec::new();
    // The writer takes everything that is queued at once, so the number of calls left in the queue varies. Clients call
    // until enough calls are queued. Every second client leaves.
    let waiting = i64::try_from(CLIENTS / 2).expect("a small number");
    let queued = async {
        for client in 1..1000 {
            let calling = Grpc::of(&home);
            let call = async move { calling.store_batch(batch(client)).await };
            if client % 2 == 0 {
                staying.spawn(call);
            } else {
                leaving.push(tokio::spawn(call));
            }
            let metrics = grpc
                .statistics()
                .await
                .expect("statistics")
                .connection_metrics
                .expect("without keys they are shown");
            if metrics.queued_writes >= waiting {
                return client;
            }
        }
        panic!("1000 calls and the queue is not filled");
    };
    let clients = tokio::time::timeout(Duration::from_secs(60), queued)
        .await
        .expect("the calls are queued");
    for call in leaving {
        call.abort();
        assert!(
            call.await.is_err_and(|error| error.is_cancelled()),
            "no call ends while the database is locked"
        );
    }
    drop(blocker);
    while let Some(outcome) = staying.join_next().await {
        assert!(
            outcome
                .expect("no panic")
                .expect("a client that stays is served")
                .success
        );
    }
    let found = check(&grpc.everything().await.expect("entries"));
    assert!(
        (0..=clients)
            .filter(|client| client % 2 == 0)
            .all(|client| found.contains(&client)),
        "{found:?}"
    );
    assert!(service.terminate().await.success());
    assert_eq!(audit(&home.database()), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_break_at_any_byte_leave_nothing_half_done() {
    let mut random = Random::new(seed());
    // A service that closes connections by force says so at this level.
    let home = Home::new().with("LOG_LEVEL", "WARNING");
    let mut service = home.start().await;
    let address = service.address();
    for client in 0..CLIENTS {
        let body = serde_json::to_string(&batch(client)).expect("JSON");
        let head = format!(
            "POST /v1/contexts/batch HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        let request = [head.as_bytes(), body.as_bytes()].concat();
        // Some break in the head, most in the body, some right after the last byte, before the reply.
        let sent = if random.chance(20) {
            request.len()
        } else {
            random.below(request.len())
        };
        let mut stream = TcpStream::connect(address).await.expect("a connection");
        // A service that has rejected the request may already have closed the connection.
        let _ = stream.write_all(&request[..sent]).await;
        drop(stream);
    }
    check(&Grpc::of(&home).everything().await.expect("entries"));
    let body = json!(batch(CLIENTS));
    assert_eq!(
        Request::post(address, "/v1/contexts/batch", &body)
            .send()
            .await
            .status,
        200
    );
    let found = check(&Grpc::of(&home).everything().await.expect("entries"));
    assert!(found.contains(&CLIENTS), "{found:?}");
    service.stop();
    assert!(service.ended().await.success());
    let log = service.log();
    assert!(
        !log.contains("Closing connections that did not finish in time"),
        "no broken connection holds up the stop: {log}"
    );
    assert_eq!(audit(&home.database()), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_clients_do_not_stop_others() {
    let home = Home::new().with("CONTEXT_MAX_CONNECTIONS", "200");
    let service = home.start().await;
    let address = service.address();
    let mut slow = Vec::new();
    // Nothing, half a line, half a head, half an HTTP/2 preface, a head and the first byte of its body.
    let starts = [
        "",
        "POST /v1/con",
        "POST /v1/contexts HTTP/1.1\r\nhost: localhost\r\nx-slow: ",
        "PRI * HTTP/2.0\r\n",
        "POST /v1/contexts HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 500\r\n\r\n{",
    ];
    for client in 0..150 {
        let mut stream = TcpStream::connect(address).await.expect("a connection");
        stream
            .write_all(starts[client % starts.len()].as_bytes())
            .await
            .expect("a few bytes");
        slow.push(stream);
    }
    let body = json!(batch(0));
    let reply = tokio::time::timeout(
        Duration::from_secs(10),
        Request::post(address, "/v1/contexts/batch", &body).send(),
    );
    assert_eq!(
        reply.await.expect("others are served meanwhile").status,
        200
    );

    // Even when they use all connections: silent connections are closed after a while.
    for client in 150..400 {
        let mut stream = TcpStream::connect(address)
            .await
            .expect("the system accepts on the service's behalf");
        let _ = stream.write_all(starts[client % 4].as_bytes()).await;
        slow.push(stream);
    }
    let body = json!(batch(1));
    let reply = tokio::time::timeout(
        Duration::from_secs(120),
        Request::post(address, "/v1/contexts/batch", &body).send(),
    );
    assert_eq!(
        reply.await.expect("others are served in the end").status,
        200
    );
    drop(slow);
    check(&Grpc::of(&home).everything().await.expect("entries"));
}
