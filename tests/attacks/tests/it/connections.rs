//! Connections that stay open without sending requests.

use std::net::SocketAddr;
use std::os::unix::process::CommandExt as _;
use std::time::{Duration, Instant};

use context_attacks::{Target, http2};
use context_test_support::http::Request;
use context_test_support::{Home, until};
use serde_json::json;
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;

/// A number of the service's metrics. The request uses a connection of its own.
async fn metric(address: SocketAddr, name: &str) -> u64 {
    let metrics = Request::get(address, "/metrics").send().await;
    let mut lines = metrics.body.lines();
    let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    value
        .and_then(|value| value.parse().ok())
        .unwrap_or_else(|| panic!("no {name}:\n{}", metrics.body))
}

/// Waits until the service has this many connections, including the one that asks.
async fn until_connected(address: SocketAddr, connections: u64) {
    until("the connections are open", async || {
        metric(address, "context_connections").await == connections
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_only_answer_pings_and_silent_ones_make_room() {
    // All connections come from one address. By default it may have half of the connections.
    for (per_address, limit) in [("0", 32), ("64", 64)] {
        let target = Target::start(&[
            ("CONTEXT_MAX_CONNECTIONS", "64"),
            ("CONTEXT_MAX_CONNECTIONS_PER_ADDRESS", per_address),
        ])
        .await;
        let mut silent = Vec::new();
        let mut pinging = Vec::new();
        for round in 0..100 {
            silent.push(
                TcpStream::connect(target.address())
                    .await
                    .expect("a connection"),
            );
            // Some connections are closed during the handshake.
            pinging.extend(http2::Connection::try_open(target.address()).await);
            if round % 25 == 0 {
                target
                    .assert_bystander_is_served("while connections are opened")
                    .await;
            }
        }
        until_connected(target.address(), limit).await;
        target
            .assert_bystander_is_served("with all connections taken")
            .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_without_credentials_cannot_hold_all_connections() {
    let target = Target::start(&[
        ("CONTEXT_MAX_CONNECTIONS", "64"),
        ("CONTEXT_MAX_CONNECTIONS_PER_ADDRESS", "64"),
    ])
    .await;
    let mut held = Vec::new();
    for _ in 0..64 {
        let Ok(connection) = http2::Connection::try_open(target.address()).await else {
            continue;
        };
        // A stream that never ends is a request in flight.
        let path = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo";
        let Ok(mut stream) = connection.try_grpc(path, None).await else {
            continue;
        };
        stream.send(bytes::Bytes::from_static(&[0]), false).await;
        held.push((connection, stream));
    }
    assert!(!held.is_empty(), "no stream was opened");
    until_connected(target.address(), 64).await;
    target
        .assert_bystander_is_served("while reflection streams are held")
        .await;
    let healthy = Request::get(target.address(), "/healthz").send().await;
    assert_eq!(
        healthy.status.as_u16(),
        200,
        "streams have slots of their own"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_unix_socket_and_the_database_find_a_file_when_tcp_has_taken_all_it_may() {
    let home = Home::new()
        .with("AUTH", "keys")
        .with("CONTEXT_MAX_CONNECTIONS_PER_ADDRESS", "1024");
    let mut command = home.command("context-service");
    // SAFETY: setrlimit is a single system call, allocates nothing and takes no lock.
    unsafe {
        command.pre_exec(|| {
            let limit = rustix::process::Rlimit {
                current: Some(256),
                maximum: Some(256),
            };
            Ok(rustix::process::setrlimit(
                rustix::process::Resource::Nofile,
                limit,
            )?)
        });
    }
    let mut service = home.spawn_as(command);
    service.listening().await;
    assert!(
        service.log().contains("256 open files"),
        "{}",
        service.log()
    );
    let mut taken = Vec::new();
    for _ in 0..300 {
        taken.push(
            TcpStream::connect(service.address())
                .await
                .expect("the system queues it"),
        );
    }
    // Of the 256 files, 64 are for connections over TCP.
    until_connected(service.address(), 64).await;
    for name in ["one", "two", "three"] {
        let output = home
            .command("context-service")
            .args(["keys", "create", name])
            .output()
            .expect("it runs");
        assert!(
            output.status.success(),
            "{}{}",
            String::from_utf8_lossy(&output.stderr),
            service.log()
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_peer_that_takes_nothing_of_a_reply_is_cut_and_its_memory_comes_back() {
    let target = Target::start(&[]).await;
    let images = vec![json!({"data": "A".repeat(8 << 20)}); 2];
    let body = json!({"thread_id": "big", "source": "user", "text": "large", "images": images});
    let stored = target.post("/v1/contexts", &target.write_key, &body).await;
    assert_eq!(
        stored.status(),
        201,
        "{}",
        stored.text().await.unwrap_or_default()
    );
    let connection = http2::Connection::open(target.address()).await;
    let mut stuck = connection.get("/v1/contexts/1", &target.read_key).await;
    assert_eq!(stuck.head().await, 200);
    let held = async || metric(target.address(), "context_body_bytes").await;
    assert!(
        held().await > 8 << 20,
        "the reply is held while it may still be read"
    );
    until("the peer is cut, although it sends requests", async || {
        if let Ok(mut other) = connection.try_get("/v1/threads", &target.read_key).await {
            let _ = other.try_head().await;
        }
        held().await < 1 << 20
    })
    .await;
    target.assert_bystander_is_served("afterwards").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_says_nothing_is_closed() {
    let target = Target::start(&[]).await;
    #[expect(
        clippy::disallowed_methods,
        reason = "the time before a silent connection is closed"
    )]
    let started = Instant::now();
    let mut silent = TcpStream::connect(target.address())
        .await
        .expect("a connection");
    let mut nothing = [0; 64];
    let read = tokio::time::timeout(Duration::from_secs(60), silent.read(&mut nothing))
        .await
        .expect("it is closed");
    assert!(matches!(read, Ok(0) | Err(_)));
    assert!(
        started.elapsed() > Duration::from_secs(5),
        "it is not closed at once"
    );
}
