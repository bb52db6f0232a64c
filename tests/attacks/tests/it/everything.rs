//! Runs every attack that keeps the service busy on every RPC of the descriptor and every route of the OpenAPI
//! document.

use std::time::Duration;

use bytes::Bytes;
use context_attacks::http2::{self, Connection, Stream};
use context_attacks::{BOUND_KIB, Target};
use http::Request;
use prost::Message as _;
use serde_json::Value;

/// What an attacker does with a request.
#[derive(Debug, Clone, Copy)]
enum Attack {
    /// Announces a body that never arrives.
    Withheld,
    /// Sends a message and the beginning of a second one.
    Second,
    /// Sends a small body that decompresses to a large one.
    Bomb,
    /// Sends one byte at a time.
    Trickle,
    /// Sends the complete request and reads nothing of the reply.
    Unread,
}

const ATTACKS: [Attack; 5] = [
    Attack::Withheld,
    Attack::Second,
    Attack::Bomb,
    Attack::Trickle,
    Attack::Unread,
];

/// A callable operation: a gRPC method, or a method and path of REST.
#[derive(Debug, Clone)]
enum Call {
    Grpc(String),
    Rest(http::Method, String),
}

fn calls() -> Vec<Call> {
    let mut calls = Vec::new();
    let descriptors = prost_types::FileDescriptorSet::decode(context_proto::FILE_DESCRIPTOR_SET)
        .expect("descriptors");
    for file in descriptors.file {
        for service in &file.service {
            for method in &service.method {
                calls.push(Call::Grpc(format!(
                    "/{}.{}/{}",
                    file.package(),
                    service.name(),
                    method.name()
                )));
            }
        }
    }
    for method in [
        "/grpc.health.v1.Health/Check",
        "/grpc.health.v1.Health/Watch",
        "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
    ] {
        calls.push(Call::Grpc(method.to_owned()));
    }
    let document = std::fs::read_to_string(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../openapi/openapi.json"
    ))
    .expect("the document");
    let document: Value = serde_json::from_str(&document).expect("JSON");
    for (path, methods) in document["paths"].as_object().expect("paths") {
        // No owner has anything with the id 7.
        let path = path
            .split('/')
            .map(|part| if part.starts_with('{') { "7" } else { part })
            .collect::<Vec<_>>()
            .join("/");
        for method in methods
            .as_object()
            .expect("methods")
            .keys()
            .filter(|name| *name != "parameters")
        {
            calls.push(Call::Rest(
                method.to_uppercase().parse().expect("a method"),
                path.clone(),
            ));
        }
    }
    for path in ["/docs/", "/openapi.json"] {
        calls.push(Call::Rest(http::Method::GET, path.to_owned()));
    }
    calls
}

async fn begin(
    connection: &Connection,
    target: &Target,
    call: &Call,
    attack: Attack,
    key: Option<&str>,
) -> Stream {
    let bomb = matches!(attack, Attack::Bomb);
    let mut stream = match call {
        Call::Grpc(path) if bomb => connection.compressed_grpc(path, key).await,
        Call::Grpc(path) => connection.grpc(path, key).await,
        Call::Rest(method, path) => {
            let mut request = Request::builder()
                .method(method)
                .uri(format!("http://{}{path}", target.address()));
            request = request.header("content-type", "application/json");
            if bomb {
                request = request.header("content-encoding", "gzip");
            }
            if let Some(key) = key {
                request = request.header("authorization", format!("Bearer {key}"));
            }
            connection
                .request(request.body(()).expect("a request"), false)
                .await
        }
    };
    let grpc = matches!(call, Call::Grpc(_));
    let (data, end) = match (attack, grpc) {
        (Attack::Withheld, true) => (Bytes::from_static(&[0, 0, 64, 0, 0]), false),
        (Attack::Withheld, false) => (Bytes::from_static(b"{"), false),
        (Attack::Second, true) => (
            [&http2::message(b"")[..], &[0, 0, 64, 0, 0]]
                .concat()
                .into(),
            false,
        ),
        (Attack::Second, false) => (Bytes::from_static(b"{}{\"and\": \"more\"}"), false),
        (Attack::Bomb, true) => (http2::compressed_message(bomb_of_zeros()), true),
        (Attack::Bomb, false) => (Bytes::from_static(bomb_of_zeros()), true),
        (Attack::Trickle, _) => (Bytes::from_static(&[0]), false),
        (Attack::Unread, true) => (http2::message(b""), true),
        (Attack::Unread, false) => (Bytes::from_static(b"{}"), true),
    };
    stream.send(data, end).await;
    stream
}

fn bomb_of_zeros() -> &'static [u8] {
    static BOMB: std::sync::LazyLock<Vec<u8>> =
        std::sync::LazyLock::new(|| http2::gzip(&vec![0; 32 << 20]));
    &BOMB
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_request_to_any_operation_keeps_another_owner_from_being_served() {
    let target = Target::with_small_budget().await;
    let idle = target.anonymous_kib();
    let calls = calls();
    assert!(calls.len() > 60, "{}", calls.len());
    let (mut highest, mut most_open) = (0, 0);
    for attack in ATTACKS {
        for key in [
            None,
            Some(target.read_key.as_str()),
            Some(target.write_key.as_str()),
        ] {
            // One connection may have more streams than there are calls.
            let connection = Connection::open(target.address()).await;
            let mut streams = Vec::new();
            for call in &calls {
                // A closed connection is also an acceptable reaction.
                if !connection.is_open().await {
                    break;
                }
                streams.push(begin(&connection, &target, call, attack, key).await);
            }
            most_open = most_open.max(streams.len());
            for _ in 0..3 {
                if matches!(attack, Attack::Trickle) {
                    for stream in &mut streams {
                        stream.send(Bytes::from_static(&[0]), false).await;
                    }
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
                let when = format!(
                    "{attack:?}, with {} of {} requests open, key: {}",
                    streams.len(),
                    calls.len(),
                    key.is_some()
                );
                target.assert_bystander_is_served(&when).await;
                highest = highest.max(target.anonymous_kib().saturating_sub(idle));
            }
        }
    }
    target.assert_bystander_is_served("afterwards").await;
    assert_eq!(most_open, calls.len(), "each call was attacked");
    assert!(highest < BOUND_KIB, "{highest} KiB");
}
