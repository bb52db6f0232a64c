//! Callers that share requests. The server withholds its responses until the test releases them, so that requests are
//! certain to overlap.

mod server;

use std::sync::Arc;
use std::time::Duration;

use context_providers::http::{Access, Dialect, HttpEmbedder, RemoteModel};
use context_providers::local::{ChunkSettings, Prefixes};
use context_providers::{Embedder as _, ProviderError, Role};
use futures::future::join_all;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use server::{Reply, Seen, Server};

/// Maximum number of concurrent requests.
const SLOTS: usize = 4;
/// More permits than any test needs.
const ALL: usize = 1_000;

/// The vector of a text. It contains the number in the text, so that a caller with another text's vector is detected.
fn vector(text: &Value) -> Vec<f32> {
    let number = text
        .as_str()
        .unwrap()
        .rsplit(' ')
        .next()
        .unwrap()
        .parse()
        .unwrap_or(0.0);
    vec![number, 1.0]
}

fn text(n: usize) -> Vec<String> {
    vec![format!("text {n}")]
}

fn inputs(request: &Seen) -> &Vec<Value> {
    request.body["input"].as_array().unwrap()
}

fn vectors(request: &Seen) -> Value {
    json!({"embeddings": inputs(request).iter().map(vector).collect::<Vec<_>>()})
}

async fn connect(server: &Server, dialect: Dialect) -> Arc<HttpEmbedder> {
    let access = Access {
        url: server.url.clone(),
        key: None,
        timeout: Duration::from_secs(60),
    };
    let name = "m".to_owned();
    let remote = RemoteModel {
        dialect,
        name,
        dimensions: None,
        prefixes: Prefixes::default(),
        chunks: ChunkSettings::default(),
    };
    Arc::new(HttpEmbedder::connect(&access, remote).await.unwrap())
}

/// An embedder whose provider rejects requests with `bad` texts and withholds all other responses but the first, from
/// which the embedder learns the number of dimensions.
async fn held(dialect: Dialect) -> (Server, Arc<HttpEmbedder>, Arc<Semaphore>) {
    let gate = Arc::new(Semaphore::new(1));
    let of_server = Arc::clone(&gate);
    let server = Server::start(move |request, _| {
        if inputs(request)
            .iter()
            .any(|text| text.as_str().unwrap().contains("bad"))
        {
            return Reply::Status(400, &[], json!({"error": {"message": "a text is bad"}}));
        }
        let response = if dialect == Dialect::Voyage {
            let items = inputs(request)
                .iter()
                .enumerate()
                .map(|(n, text)| json!({"index": n, "embedding": vector(text)}));
            json!({"data": items.collect::<Vec<_>>()})
        } else {
            vectors(request)
        };
        Reply::Held(Arc::clone(&of_server), response)
    })
    .await;
    let embedder = connect(&server, dialect).await;
    (server, embedder, gate)
}

/// Starts requests of one text each until every slot is in use.
async fn take_all_slots(
    server: &Server,
    embedder: &Arc<HttpEmbedder>,
) -> Vec<tokio::task::JoinHandle<()>> {
    let mut tasks = Vec::new();
    for n in 0..SLOTS {
        let own = Arc::clone(embedder);
        tasks.push(tokio::spawn(async move {
            assert_eq!(
                own.embed(text(n), Role::Document).await.unwrap(),
                [[n as f32, 1.0]]
            );
        }));
        // The first request was the one for the number of dimensions.
        server.until(n + 2).await;
    }
    tasks
}

async fn finish(tasks: Vec<tokio::task::JoinHandle<()>>) {
    for task in tasks {
        task.await.unwrap();
    }
}

#[tokio::test]
async fn callers_that_come_while_every_place_is_taken_share_a_request_and_get_their_own_vectors() {
    let (server, embedder, gate) = held(Dialect::Ollama).await;
    let first = take_all_slots(&server, &embedder).await;
    let mut others = std::pin::pin!(join_all(
        (SLOTS..32).map(|n| embedder.embed(text(n), Role::Document))
    ));
    assert!(futures::poll!(others.as_mut()).is_pending());
    gate.add_permits(ALL);
    for (n, vectors) in (SLOTS..).zip(others.await) {
        assert_eq!(vectors.unwrap(), [[n as f32, 1.0]]);
    }
    finish(first).await;
    assert_eq!(server.count(), 1 + SLOTS + 1, "32 callers, five requests");
}

#[tokio::test]
async fn texts_of_a_lone_caller_are_sent_at_once_and_requests_are_no_larger_than_allowed() {
    let (server, embedder, gate) = held(Dialect::Ollama).await;
    let first = take_all_slots(&server, &embedder).await;
    assert_eq!(
        server.count(),
        1 + SLOTS,
        "each was sent alone, before the previous ones had a response"
    );
    let mut others = std::pin::pin!(join_all((0..30).map(|n| {
        let texts: Vec<String> = (0..3).flat_map(|part| text(n * 3 + part)).collect();
        embedder.embed(texts, Role::Document)
    })));
    assert!(futures::poll!(others.as_mut()).is_pending());
    gate.add_permits(ALL);
    for (n, vectors) in others.await.into_iter().enumerate() {
        let first = n as f32 * 3.0;
        assert_eq!(
            vectors.unwrap(),
            [[first, 1.0], [first + 1.0, 1.0], [first + 2.0, 1.0]]
        );
    }
    finish(first).await;
    let sizes: Vec<usize> = server.seen.lock().await[1 + SLOTS..]
        .iter()
        .map(|seen| inputs(seen).len())
        .collect();
    assert_eq!(
        (sizes.iter().sum::<usize>(), sizes.iter().max()),
        (90, Some(&30)),
        "{sizes:?}"
    );
    assert_eq!(sizes.len(), 3, "{sizes:?}");
}

#[tokio::test]
async fn a_bad_text_fails_its_caller_alone() {
    let (server, embedder, gate) = held(Dialect::Ollama).await;
    let first = take_all_slots(&server, &embedder).await;
    let calls = (0..28).map(|n| {
        embedder.embed(
            vec![format!("{} {n}", if n == 17 { "bad" } else { "good" })],
            Role::Document,
        )
    });
    let mut others = std::pin::pin!(join_all(calls));
    assert!(futures::poll!(others.as_mut()).is_pending());
    gate.add_permits(ALL);
    for (n, outcome) in others.await.into_iter().enumerate() {
        assert_eq!(outcome.is_err(), n == 17, "{n}");
        match outcome {
            Ok(vectors) => assert_eq!(vectors, [[n as f32, 1.0]]),
            Err(error) => assert!(
                matches!(&error, ProviderError::Refused(what) if what.contains("bad")),
                "{n}: {error}"
            ),
        }
    }
    finish(first).await;
    let requests = server.count() - 1 - SLOTS;
    assert!(
        (3..=11).contains(&requests),
        "28 callers, one of them bad: {requests} requests"
    );
}

#[tokio::test]
async fn a_text_at_which_the_provider_fails_fails_its_caller_alone() {
    let server = Server::start(|request, _| {
        let is_bad = |text: &Value| text.as_str().unwrap().contains("bad");
        if inputs(request).iter().any(is_bad) {
            return Reply::Status(500, &[], json!({"error": "json: unsupported value: NaN"}));
        }
        Reply::Json(vectors(request))
    })
    .await;
    let embedder = connect(&server, Dialect::Ollama).await;
    // All callers are queued before any request begins, because this test has one thread.
    let calls = (0..5).map(|n| {
        let text = format!("{} {n}", if n == 3 { "bad" } else { "good" });
        embedder.embed(vec![text], Role::Document)
    });
    for (n, outcome) in join_all(calls).await.into_iter().enumerate() {
        assert_eq!(outcome.is_err(), n == 3, "{n}");
        match outcome {
            Ok(vectors) => assert_eq!(vectors, [[n as f32, 1.0]]),
            Err(error) => assert!(error.is_retryable(), "{n}: {error}"),
        }
    }
}

#[tokio::test]
async fn a_key_that_is_refused_is_not_tried_for_each_caller() {
    let server = Server::start(|request, number| match number {
        0 => Reply::Json(vectors(request)),
        _ => Reply::Status(401, &[], json!({"error": "wrong key"})),
    })
    .await;
    let embedder = connect(&server, Dialect::Ollama).await;
    // All callers are queued before any request begins, because this test has one thread.
    for outcome in join_all((0..30).map(|n| embedder.embed(text(n), Role::Document))).await {
        assert!(matches!(outcome, Err(ProviderError::Refused(_))));
    }
    assert_eq!(server.count(), 2);
}

#[tokio::test]
async fn queries_and_documents_go_in_requests_of_their_own() {
    let (server, embedder, gate) = held(Dialect::Voyage).await;
    let first = take_all_slots(&server, &embedder).await;
    let role = |n| {
        if n % 2 == 0 {
            Role::Query
        } else {
            Role::Document
        }
    };
    let mut others = std::pin::pin!(join_all((0..10).map(|n| embedder.embed(text(n), role(n)))));
    assert!(futures::poll!(others.as_mut()).is_pending());
    gate.add_permits(ALL);
    for (n, vectors) in others.await.into_iter().enumerate() {
        assert_eq!(vectors.unwrap(), [[n as f32, 1.0]]);
    }
    finish(first).await;
    let seen = server.seen.lock().await;
    let kinds: Vec<(&Value, usize)> = seen[1 + SLOTS..]
        .iter()
        .map(|seen| (&seen.body["input_type"], inputs(seen).len()))
        .collect();
    assert_eq!(kinds.len(), 2, "{kinds:?}");
    assert!(
        kinds.contains(&(&json!("query"), 5)) && kinds.contains(&(&json!("document"), 5)),
        "{kinds:?}"
    );
}

#[tokio::test]
async fn callers_that_go_away_leave_nothing_behind() {
    let (server, embedder, gate) = held(Dialect::Ollama).await;
    let first = take_all_slots(&server, &embedder).await;
    {
        let mut gone = std::pin::pin!(join_all(
            (10..20).map(|n| embedder.embed(text(n), Role::Document))
        ));
        assert!(futures::poll!(gone.as_mut()).is_pending());
    }
    let mut stays = embedder.embed(text(20), Role::Document);
    assert!(futures::poll!(stays.as_mut()).is_pending());
    for task in first {
        task.abort();
    }
    // The requests in flight are never released. They must end because no caller waits for them. Otherwise there would
    // be no free slot.
    server.until(1 + SLOTS + 1).await;
    gate.add_permits(ALL);
    assert_eq!(stays.await.unwrap(), [[20.0, 1.0]]);
    assert_eq!(
        inputs(&server.last().await),
        &[json!("text 20")],
        "the queued texts of callers that left are not sent"
    );
}
