//! The MCP gateway under attack.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::SocketAddr;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use context_attacks::http2::Connection;
use context_attacks::{Target, highest, passed};
use context_test_support::{Home, Process, anonymous_kib};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};

/// Memory that a process may use in addition to the accounted memory.
const SLACK_KIB: u64 = 64 * 1024;
const BUDGET_KIB: u64 = 128 * 1024;
/// What all callers that are not authenticated may hold together.
const UNKNOWN_CALLERS_KIB: u64 = BUDGET_KIB / 16;
/// Maximum time for a reply to a caller who does not attack.
const SERVED_WITHIN: Duration = Duration::from_secs(60);
/// An address at which nothing listens.
const UNREACHABLE: &str = "http://127.0.0.1:1";

/// Starts a gateway with the memory budget in front of the service at `backend`.
async fn gateway(home: &Home, backend: &str) -> Process {
    let mut command = home.command("context-gateway");
    command
        .arg("http")
        .env("CONTEXT_BACKEND", backend)
        .env("GATEWAY_REQUEST_MEMORY_MB", (BUDGET_KIB / 1024).to_string());
    home.start_as(command).await
}

/// Starts a gateway with the memory budget in front of the target.
async fn gateway_to(target: &Target) -> Process {
    gateway(&target.home, &format!("http://{}", target.address())).await
}

/// Asserts that a caller with this key at another address is served.
async fn assert_served(gateway: &Process, key: &str, body: &str) {
    let status = request_status(gateway.address(), "127.0.0.2:0", Some(key), body);
    let status = tokio::time::timeout(SERVED_WITHIN, status).await;
    assert_eq!(status.expect("a reply in time").unwrap(), 200);
}

fn head(key: Option<&str>, framing: &str) -> String {
    let authorization = key
        .map(|key| format!("authorization: Bearer {key}\r\n"))
        .unwrap_or_default();
    format!(
        "POST /mcp HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\naccept: application/json\r\n{authorization}{framing}\r\n\r\n"
    )
}

fn list_tools() -> String {
    json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}).to_string()
}

/// Sends one request from `local` on a new connection and returns the status of the reply.
async fn request_status(
    gateway: SocketAddr,
    local: &str,
    key: Option<&str>,
    body: &str,
) -> std::io::Result<u16> {
    let socket = TcpSocket::new_v4()?;
    socket.bind(local.parse().expect("an address"))?;
    let mut stream = socket.connect(gateway).await?;
    let request = head(
        key,
        &format!("connection: close\r\ncontent-length: {}", body.len()),
    ) + body;
    stream.write_all(request.as_bytes()).await?;
    let mut reply = Vec::new();
    stream.read_to_end(&mut reply).await?;
    let status = String::from_utf8_lossy(&reply)
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok());
    status.ok_or_else(|| std::io::ErrorKind::UnexpectedEof.into())
}

/// Chunked bodies without an end, from unknown callers: the gateway cannot authenticate them because the service cannot
/// be reached.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn chunked_bodies_of_unknown_callers_are_not_held() {
    let home = Home::new().with("AUTH", "keys");
    let gateway = gateway(&home, UNREACHABLE).await;
    let idle = gateway.anonymous_kib();
    let mut senders = Vec::new();
    for number in 0..48 {
        let address = gateway.address();
        senders.push(tokio::spawn(async move {
            let mut stream = TcpStream::connect(address).await?;
            let key = (number % 2 == 0).then_some("sk_prod_garbage");
            stream
                .write_all(head(key, "transfer-encoding: chunked").as_bytes())
                .await?;
            let chunk = [b"100000\r\n".as_slice(), &vec![b' '; 0x10_0000], b"\r\n"].concat();
            for _ in 0..32 {
                // The other connections are rejected and closed.
                stream.write_all(&chunk).await?;
            }
            // The end of the body never arrives.
            tokio::time::sleep(Duration::from_secs(3)).await;
            Ok::<_, std::io::Error>(())
        }));
    }
    // Chunks that the gateway neither reads nor rejects would never be sent.
    let mut late = passed(Duration::from_secs(180));
    let are_sent = || senders.iter().all(tokio::task::JoinHandle::is_finished);
    let most = highest(|| gateway.anonymous_kib(), || are_sent() || late()).await;
    assert!(are_sent(), "the gateway neither reads nor rejects a body");
    assert!(
        most <= idle + UNKNOWN_CALLERS_KIB + SLACK_KIB,
        "{} MiB",
        (most - idle) / 1024
    );
    assert_served(&gateway, "sk_prod_garbage", &list_tools()).await;
}

/// Streams with large heads and endless bodies, from callers who read nothing of the rejection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn http2_streams_of_unknown_callers_hold_little_while_they_take_no_reply() {
    const CONNECTIONS: usize = 48;
    const STREAMS: usize = 256;
    let target = Target::start(&[]).await;
    let gateway = gateway_to(&target).await;
    assert_served(&gateway, &target.read_key, &list_tools()).await;
    let idle = gateway.anonymous_kib();
    let mut connections = Vec::new();
    let mut streams = Vec::new();
    let mut most = idle;
    for connection in 0..CONNECTIONS {
        let attacker = Connection::try_open_with_window(gateway.address(), 0)
            .await
            .unwrap();
        for stream in 0..STREAMS {
            // Each head is different, so that header compression does not make it small for the receiver.
            let head = format!("{connection}-{stream}-").repeat(1024);
            let request = http::Request::post(format!("http://{}/mcp", gateway.address()))
                .header("content-type", "application/json")
                .header("x-large", &head[..head.len().min(16 * 1024)]);
            // It is also fine when the whole connection is rejected.
            let Ok(mut sent) = attacker.try_request(request.body(()).unwrap(), false).await else {
                break;
            };
            sent.send(Bytes::from_static(&[b' '; 1024]), false).await;
            streams.push(sent);
        }
        connections.push(attacker);
        most = most.max(gateway.anonymous_kib());
    }
    let after = passed(Duration::from_secs(3));
    most = most.max(highest(|| gateway.anonymous_kib(), after).await);
    assert!(!streams.is_empty(), "no stream was opened");
    eprintln!(
        "{} streams hold {} MiB",
        streams.len(),
        (most - idle) / 1024
    );
    assert!(
        most <= idle + UNKNOWN_CALLERS_KIB + SLACK_KIB,
        "{} MiB",
        (most - idle) / 1024
    );
    assert_served(&gateway, &target.read_key, &list_tools()).await;
}

/// Endless bodies from a caller with a key, on many streams of few connections.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn http2_bodies_without_an_end_are_held_within_the_budget() {
    let target = Target::start(&[]).await;
    let gateway = gateway_to(&target).await;
    for key in [&target.bystander_key, &target.read_key] {
        assert_served(&gateway, key, &list_tools()).await;
    }
    let idle = gateway.anonymous_kib();
    let piece = Bytes::from(vec![b' '; 64 * 1024]);
    let mut senders = Vec::new();
    for _ in 0..8 {
        let attacker = Connection::open(gateway.address()).await;
        for _ in 0..32 {
            let request = http::Request::post(format!("http://{}/mcp", gateway.address()))
                .header("content-type", "application/json")
                .header("authorization", format!("Bearer {}", target.read_key));
            let mut stream = attacker.request(request.body(()).unwrap(), false).await;
            for _ in 0..32 {
                stream.send(piece.clone(), false).await;
            }
            // The end of the body never arrives.
            senders.push((attacker.clone(), stream));
        }
    }
    let after = passed(Duration::from_secs(6));
    let most = highest(|| gateway.anonymous_kib(), after).await;
    eprintln!(
        "held at most {} MiB of {} MiB",
        (most - idle) / 1024,
        BUDGET_KIB / 1024
    );
    assert!(
        most <= idle + BUDGET_KIB + SLACK_KIB,
        "{} MiB",
        (most - idle) / 1024
    );
    assert_served(&gateway, &target.bystander_key, &list_tools()).await;
    drop(senders);
}

/// Large replies that are requested but not read.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replies_that_no_client_reads_are_bounded_and_others_are_served() {
    const READERS: usize = 30;
    /// More than a rejection has.
    const BEGINNING: u64 = 64 * 1024;
    let target = Target::start(&[("MAX_TOTAL_SIZE_MB", "40")]).await;
    let data = "A".repeat(4 * 1024 * 1024);
    let mut ids = Vec::new();
    for text in ["a", "b", "c"] {
        let entry = json!({"thread_id": "t", "source": "user", "text": text, "images": [{"data": data, "mime_type": "image/png"}]});
        let reply: Value = target
            .post("/v1/contexts", &target.write_key, &entry)
            .await
            .json()
            .await
            .unwrap();
        ids.push(
            reply["context_id"]
                .as_i64()
                .unwrap_or_else(|| panic!("{reply}")),
        );
    }
    let gateway = gateway_to(&target).await;
    let get = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": {"name": "get_context_by_ids", "arguments": {"context_ids": ids}}})
    .to_string();
    let list = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "list_threads", "arguments": {}}}).to_string();
    assert_served(&gateway, &target.bystander_key, &list).await;
    let idle = gateway.anonymous_kib();
    let answered = Arc::new(AtomicUsize::new(0));
    let large = Arc::new(AtomicUsize::new(0));
    let mut readers = Vec::new();
    for _ in 0..READERS {
        let (address, request, answered, large) = (
            gateway.address(),
            head(
                Some(&target.read_key),
                &format!("connection: close\r\ncontent-length: {}", get.len()),
            ) + &get,
            answered.clone(),
            large.clone(),
        );
        readers.push(tokio::spawn(async move {
            let mut stream = TcpStream::connect(address).await.unwrap();
            stream.write_all(request.as_bytes()).await.unwrap();
            // Reads only the beginning of the reply. The gateway closes the connection after a rejection.
            let mut beginning = Vec::new();
            let mut limited = (&mut stream).take(BEGINNING);
            let read = limited.read_to_end(&mut beginning).await;
            if read.is_ok_and(|read| read as u64 == BEGINNING) {
                large.fetch_add(1, Ordering::Relaxed);
            }
            answered.fetch_add(1, Ordering::Relaxed);
            stream
        }));
    }
    let most = highest(
        || gateway.anonymous_kib(),
        || answered.load(Ordering::Relaxed) == READERS,
    )
    .await;
    assert!(
        large.load(Ordering::Relaxed) > 0,
        "no reader got a large reply"
    );
    eprintln!(
        "held at most {} MiB of {} MiB",
        (most - idle) / 1024,
        BUDGET_KIB / 1024
    );
    assert!(
        most <= idle + BUDGET_KIB + SLACK_KIB,
        "{} MiB",
        (most - idle) / 1024
    );
    assert_served(&gateway, &target.bystander_key, &list).await;
}

/// More silent connections than the 1024 that the gateway accepts by default, and more from each of two addresses than
/// the 512 that one address may have.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silent_sockets_lock_no_client_out() {
    raise_open_files();
    let home = Home::new();
    let gateway = gateway(&home, UNREACHABLE).await;
    let mut silent = Vec::new();
    for number in 0..1100 {
        let local = ["127.0.0.1:0", "127.0.0.3:0"][number % 2];
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(local.parse().expect("an address")).unwrap();
        silent.push(socket.connect(gateway.address()).await.unwrap());
    }
    for local in ["127.0.0.1:0", "127.0.0.2:0"] {
        let list = list_tools();
        let reply = tokio::time::timeout(
            Duration::from_secs(20),
            request_status(gateway.address(), local, None, &list),
        );
        assert_eq!(
            reply.await.expect("a reply in time").unwrap(),
            200,
            "{local}"
        );
    }
    drop(silent);
}

/// The test process holds both ends of many connections.
fn raise_open_files() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut files = getrlimit(Resource::Nofile);
    files.current = files.maximum;
    setrlimit(Resource::Nofile, files).expect("the limit of open files");
}

/// A client on stdio that keeps sending requests and reads nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_on_stdio_that_reads_nothing_is_not_buffered_and_loses_nothing() {
    const REQUESTS: usize = 4_000;
    let home = Home::new();
    let mut command = home.command("context-gateway");
    let command = command.env("CONTEXT_BACKEND", UNREACHABLE).arg("stdio");
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let (mut input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let mut lines = BufReader::new(output).lines();
    let hello = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize",
        "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}});
    writeln!(input, "{hello}").unwrap();
    lines.next().unwrap().unwrap();
    writeln!(
        input,
        "{}",
        json!({"jsonrpc": "2.0", "method": "notifications/initialized"})
    )
    .unwrap();
    let idle = anonymous_kib(child.id());
    let sent = Arc::new(AtomicUsize::new(0));
    let writer = std::thread::spawn({
        let sent = sent.clone();
        move || {
            for id in 1..=REQUESTS {
                writeln!(
                    input,
                    "{}",
                    json!({"jsonrpc": "2.0", "id": id, "method": "tools/list"})
                )
                .unwrap();
                sent.store(id, Ordering::Relaxed);
            }
        }
    });
    // Sends until the gateway stops reading and its memory stops growing.
    const STILL: Duration = Duration::from_secs(3);
    let (mut last, mut still) = ((0, 0), passed(STILL));
    let stopped = || {
        let now = (
            sent.load(Ordering::Relaxed),
            anonymous_kib(child.id()) / 1024,
        );
        if now != last {
            (last, still) = (now, passed(STILL));
        }
        still()
    };
    let most = highest(|| anonymous_kib(child.id()), stopped).await;
    assert!(
        most <= idle + SLACK_KIB,
        "{} MiB for {} requests",
        (most - idle) / 1024,
        sent.load(Ordering::Relaxed)
    );
    assert_eq!(
        lines
            .by_ref()
            .take(REQUESTS)
            .map(Result::unwrap)
            .filter(|line| line.contains("\"tools\""))
            .count(),
        REQUESTS
    );
    writer.join().unwrap();
    assert!(child.wait().unwrap().success());
}
