//! Providers over HTTP: with a server that responds as the providers' documentation describes, and with one that fails.

mod server;

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use context_model::Secret;
use context_providers::http::{Access, Dialect, HttpEmbedder, RemoteModel};
use context_providers::local::{ChunkSettings, Prefixes};
use context_providers::{Embedder as _, ProviderError, Role};
use context_test_support::Reserved;
use futures::future::join_all;
use serde_json::{Value, json};

use server::{Reply, Seen, Server};

/// The timeout is long, so that tests do not fail on a busy machine.
fn access(url: &str) -> Access {
    Access {
        url: url.to_owned(),
        key: Some(Secret::new("key-of-the-test")),
        timeout: Duration::from_secs(30),
    }
}

fn remote(dialect: Dialect) -> RemoteModel {
    RemoteModel {
        dialect,
        name: "m".to_owned(),
        dimensions: None,
        prefixes: Prefixes::default(),
        chunks: ChunkSettings::default(),
    }
}

/// The vector of a text. It contains the number in the text, so that a vector of another text is detected.
fn vector(text: &Value) -> Value {
    let number = text
        .as_str()
        .and_then(|text| text.rsplit(' ').next()?.parse::<f64>().ok());
    json!([number.unwrap_or(0.0) + 1.0, 0.5, -0.25])
}

/// The vectors of [`texts`].
fn expected(count: usize) -> Vec<[f32; 3]> {
    (0..count).map(|n| [n as f32 + 1.0, 0.5, -0.25]).collect()
}

/// The vector as base64 of its bytes.
fn base64_of(vector: &Value) -> Value {
    let numbers = vector
        .as_array()
        .unwrap()
        .iter()
        .map(|number| number.as_f64().unwrap() as f32);
    json!(STANDARD.encode(numbers.flat_map(f32::to_le_bytes).collect::<Vec<u8>>()))
}

/// A response in the documented form of the provider. Lists whose items have an index are reversed.
fn recorded(dialect: Dialect, request: &Value) -> Value {
    let sent = |key: &str| request[key].as_array().cloned().unwrap_or_default();
    let vectors = |key: &str| -> Vec<Value> { sent(key).iter().map(vector).collect() };
    let encoded = |text: &Value| {
        if request["encoding_format"] == "base64" {
            base64_of(&vector(text))
        } else {
            vector(text)
        }
    };
    let indexed = |key: &str| -> Vec<Value> {
        let sent = sent(key);
        let items = sent.iter().enumerate().rev();
        items
            .map(|(index, text)| json!({"object": "embedding", "index": index, "embedding": encoded(text)}))
            .collect()
    };
    match dialect {
        Dialect::Ollama => {
            json!({"model": "m", "embeddings": vectors("input"), "total_duration": 14_143_917, "load_duration": 1_019_500,
                                  "prompt_eval_count": 8})
        }
        Dialect::Tei => json!(vectors("inputs")),
        Dialect::Cohere => {
            json!({"id": "da6e", "embeddings": {"float": vectors("texts")}, "texts": request["texts"],
                                  "meta": {"api_version": {"version": "2"}, "billed_units": {"input_tokens": 2}}})
        }
        Dialect::OpenAi | Dialect::Azure | Dialect::Voyage => {
            json!({"object": "list", "data": indexed("input"), "model": "m",
                                                                    "usage": {"prompt_tokens": 8, "total_tokens": 8}})
        }
    }
}

const DIALECTS: [Dialect; 6] = [
    Dialect::Ollama,
    Dialect::OpenAi,
    Dialect::Azure,
    Dialect::Tei,
    Dialect::Voyage,
    Dialect::Cohere,
];

fn texts(count: usize) -> Vec<String> {
    (0..count).map(|n| format!("text {n}")).collect()
}

#[tokio::test]
async fn each_provider_gets_its_documented_request_and_the_vectors_are_in_the_order_of_the_texts() {
    for dialect in DIALECTS {
        let server =
            Server::start(move |request, _| Reply::Json(recorded(dialect, &request.body))).await;
        let embedder = HttpEmbedder::connect(&access(&server.url), remote(dialect))
            .await
            .unwrap();
        assert_eq!(
            (embedder.model().provider, embedder.model().dimensions),
            (dialect.name(), 3)
        );
        let found = embedder.embed(texts(3), Role::Query).await.unwrap();
        assert_eq!(found, expected(3), "{dialect:?}");
        let Seen { path, head, body } = server.last().await;
        let (wanted_path, wanted_body) = match dialect {
            Dialect::Ollama => (
                "/api/embed",
                json!({"model": "m", "input": texts(3), "truncate": true}),
            ),
            Dialect::OpenAi => (
                "/embeddings",
                json!({"model": "m", "input": texts(3), "encoding_format": "base64"}),
            ),
            Dialect::Azure => (
                "/openai/v1/embeddings",
                json!({"model": "m", "input": texts(3), "encoding_format": "base64"}),
            ),
            Dialect::Tei => (
                "/embed",
                json!({"inputs": texts(3), "normalize": true, "truncate": true}),
            ),
            Dialect::Voyage => (
                "/v1/embeddings",
                json!({"model": "m", "input": texts(3), "input_type": "query", "truncation": true, "encoding_format": "base64"}),
            ),
            Dialect::Cohere => (
                "/v2/embed",
                json!({"model": "m", "texts": texts(3), "embedding_types": ["float"], "truncate": "END",
                                                    "input_type": "search_query"}),
            ),
        };
        assert_eq!((path.as_str(), body), (wanted_path, wanted_body));
        let key = if dialect == Dialect::Azure {
            "api-key: key-of-the-test"
        } else {
            "authorization: bearer key-of-the-test"
        };
        assert!(head.contains(key), "{head}");
    }
}

#[tokio::test]
async fn many_texts_go_in_several_requests_of_what_the_provider_takes() {
    let server =
        Server::start(|request, _| Reply::Json(recorded(Dialect::Cohere, &request.body))).await;
    let embedder = HttpEmbedder::connect(&access(&server.url), remote(Dialect::Cohere))
        .await
        .unwrap();
    assert_eq!(
        embedder.embed(texts(200), Role::Document).await.unwrap(),
        expected(200)
    );
    let sizes: Vec<usize> = server.seen.lock().await[1..]
        .iter()
        .map(|seen| seen.body["texts"].as_array().unwrap().len())
        .collect();
    assert_eq!(sizes, [96, 96, 8]);
}

#[tokio::test]
async fn dimensions_and_prefixes_are_sent_when_they_are_wanted() {
    let server =
        Server::start(|request, _| Reply::Json(recorded(Dialect::Voyage, &request.body))).await;
    let prefixes = Prefixes {
        query: "find: ".to_owned(),
        document: "keep: ".to_owned(),
    };
    let wanted = RemoteModel {
        dimensions: Some(3),
        prefixes,
        ..remote(Dialect::Voyage)
    };
    let embedder = HttpEmbedder::connect(&access(&server.url), wanted)
        .await
        .unwrap();
    embedder.embed(texts(1), Role::Document).await.unwrap();
    let body = server.last().await.body;
    assert_eq!(
        (
            &body["output_dimension"],
            &body["input"],
            &body["input_type"]
        ),
        (&json!(3), &json!(["keep: text 0"]), &json!("document"))
    );
    let other = RemoteModel {
        dimensions: Some(4),
        ..remote(Dialect::Voyage)
    };
    let error = HttpEmbedder::connect(&access(&server.url), other)
        .await
        .unwrap_err();
    assert!(
        matches!(&error, ProviderError::Refused(what) if what.contains("3 dimensions, but EMBEDDING_DIM is 4")),
        "{error}"
    );
}

#[tokio::test]
async fn a_server_that_gives_lists_whatever_it_is_asked_is_understood() {
    let server = Server::start(|request, _| {
        let mut plain = request.body.clone();
        plain["encoding_format"].take();
        Reply::Json(recorded(Dialect::OpenAi, &plain))
    })
    .await;
    let embedder = HttpEmbedder::connect(&access(&server.url), remote(Dialect::OpenAi))
        .await
        .unwrap();
    assert_eq!(
        embedder.embed(texts(2), Role::Query).await.unwrap(),
        expected(2)
    );
    assert_eq!(server.last().await.body["encoding_format"], "base64");
}

#[tokio::test]
async fn a_server_that_refuses_base64_is_asked_for_lists_from_then_on() {
    for (status, refusal) in [
        (
            400,
            json!({"error": {"message": "encoding_format 'base64' is not supported", "type": "invalid_request_error"}}),
        ),
        (
            400,
            json!({"error": {"message": "Unknown parameter", "param": "encoding_format"}}),
        ),
        (
            422,
            json!({"detail": [{"type": "literal_error", "loc": ["body", "encoding_format"], "msg": "Input should be 'float'"}]}),
        ),
    ] {
        let message = refusal.clone();
        let server = Server::start(
            move |request, _| match request.body.get("encoding_format") {
                Some(_) => Reply::Status(status, &[], message.clone()),
                None => Reply::Json(recorded(Dialect::OpenAi, &request.body)),
            },
        )
        .await;
        let embedder = HttpEmbedder::connect(&access(&server.url), remote(Dialect::OpenAi))
            .await
            .unwrap();
        assert_eq!(server.count(), 2, "{refusal}");
        for role in [Role::Query, Role::Document] {
            assert_eq!(embedder.embed(texts(2), role).await.unwrap(), expected(2));
        }
        assert_eq!(server.count(), 4, "{refusal}");
    }
    let server = Server::start(|_, _| {
        Reply::Status(400, &[], json!({"error": {"message": "no such model"}}))
    })
    .await;
    HttpEmbedder::connect(&access(&server.url), remote(Dialect::OpenAi))
        .await
        .unwrap_err();
    assert_eq!(server.count(), 1, "other refusals are final");
}

#[tokio::test]
async fn what_is_no_base64_of_numbers_is_not_used() {
    let nan = STANDARD.encode(
        [1.0f32, f32::NAN, 0.0]
            .into_iter()
            .flat_map(f32::to_le_bytes)
            .collect::<Vec<u8>>(),
    );
    for wrong in ["", "*", "AAA", "AAAAAAA=", nan.as_str()] {
        let response = json!({"data": [{"index": 0, "embedding": wrong}]});
        let server = Server::start(move |request, number| match number {
            0 => Reply::Json(recorded(Dialect::OpenAi, &request.body)),
            _ => Reply::Json(response.clone()),
        })
        .await;
        let embedder = HttpEmbedder::connect(&access(&server.url), remote(Dialect::OpenAi))
            .await
            .unwrap();
        let error = embedder.embed(texts(1), Role::Query).await.unwrap_err();
        assert!(
            matches!(error, ProviderError::Malformed(_)),
            "{wrong}: {error}"
        );
    }
}

/// An embedder whose server responds correctly to the first request, and with `reply` to the later ones.
async fn faulty(
    reply: impl Fn(&Seen, usize) -> Reply + Send + Sync + 'static,
) -> (Server, HttpEmbedder) {
    faulty_for(access("").timeout, reply).await
}

/// Like [`faulty`], with this timeout.
async fn faulty_for(
    timeout: Duration,
    reply: impl Fn(&Seen, usize) -> Reply + Send + Sync + 'static,
) -> (Server, HttpEmbedder) {
    let server = Server::start(move |request, number| match number {
        0 => Reply::Json(recorded(Dialect::Ollama, &request.body)),
        number => reply(request, number),
    })
    .await;
    let access = Access {
        timeout,
        ..access(&server.url)
    };
    let embedder = HttpEmbedder::connect(&access, remote(Dialect::Ollama))
        .await
        .unwrap();
    (server, embedder)
}

#[tokio::test]
async fn overload_is_retried_after_the_pause_the_server_asks_for() {
    let arrivals = Arc::new(Mutex::new(Vec::new()));
    let of_server = Arc::clone(&arrivals);
    let busy = move |request: &Seen, number: usize| {
        #[expect(
            clippy::disallowed_methods,
            reason = "the pause that the server asked for, over a real connection"
        )]
        let now = Instant::now();
        of_server.lock().unwrap().push(now);
        match number {
            1 => Reply::Status(429, &[("retry-after", "1")], json!({"error": "busy"})),
            2 => Reply::Status(500, &[], json!({"error": "broken"})),
            _ => Reply::Json(recorded(Dialect::Ollama, &request.body)),
        }
    };
    let (server, embedder) = faulty(busy).await;
    assert_eq!(
        embedder.embed(texts(1), Role::Query).await.unwrap(),
        expected(1)
    );
    assert_eq!(server.count(), 4);
    let arrivals = arrivals.lock().unwrap();
    // Without the server's pause the first retry comes after at most 250 ms.
    assert!(arrivals[1] - arrivals[0] >= Duration::from_secs(1));
}

#[tokio::test]
async fn a_long_pause_is_handed_to_the_caller() {
    let (server, embedder) =
        faulty(|_, _| Reply::Status(429, &[("retry-after", "120")], json!({"error": "later"})))
            .await;
    let error = embedder.embed(texts(1), Role::Query).await.unwrap_err();
    let expected = ProviderError::Unavailable {
        what: "status 429 Too Many Requests: later".to_owned(),
        retry_after: Some(Duration::from_secs(120)),
    };
    assert_eq!((error, server.count()), (expected, 2));
}

#[tokio::test]
async fn a_provider_that_is_away_is_left_alone_until_it_may_be_back() {
    let away = |request: &Seen, number| match number {
        1..=9 => Reply::Status(503, &[], json!({"error": "starting"})),
        _ => Reply::Json(recorded(Dialect::Ollama, &request.body)),
    };
    let (server, embedder) = faulty(away).await;
    for _ in 0..3 {
        embedder.embed(texts(1), Role::Query).await.unwrap_err();
    }
    assert_eq!(
        server.count(),
        10,
        "one request to connect, and three attempts for each call"
    );
    let error = embedder.embed(texts(1), Role::Query).await.unwrap_err();
    assert!(
        error.is_retryable()
            && error
                .to_string()
                .contains("starting; the next attempt is in "),
        "{error}"
    );
    assert_eq!(server.count(), 10);
    // Simulates the end of the pause.
    tokio::time::pause();
    tokio::time::advance(Duration::from_millis(2_100)).await;
    tokio::time::resume();
    assert_eq!(
        embedder.embed(texts(1), Role::Query).await.unwrap().len(),
        1
    );
}

#[tokio::test]
async fn a_text_that_the_server_fails_at_does_not_block_other_calls() {
    let fails = |request: &Seen, _| match request.body["input"][0].as_str() {
        Some(text) if text.contains("poison") => {
            Reply::Status(500, &[], json!({"error": "json: unsupported value: NaN"}))
        }
        _ => Reply::Json(recorded(Dialect::Ollama, &request.body)),
    };
    let (_server, embedder) = faulty(fails).await;
    for _ in 0..4 {
        assert!(
            embedder
                .embed(vec!["poison".to_owned()], Role::Document)
                .await
                .unwrap_err()
                .is_retryable()
        );
    }
    assert_eq!(
        embedder.embed(texts(1), Role::Query).await.unwrap().len(),
        1
    );
}

#[tokio::test]
async fn what_is_wrong_is_refused_at_once_and_the_key_is_in_no_message() {
    for (status, body) in [
        (400, json!({"error": "bad input"})),
        (
            401,
            json!({"error": {"message": "Incorrect API key provided", "type": "invalid_request_error", "code": "invalid_api_key"}}),
        ),
        (
            401,
            json!({"error": {"message": "Incorrect API key provided: key-of-the-test"}}),
        ),
        (403, json!({"detail": "forbidden"})),
        (
            404,
            json!({"error": "model \"m\" not found, try pulling it first"}),
        ),
        (
            422,
            json!({"error": "Validation", "error_type": "Validation"}),
        ),
        (
            429,
            json!({"error": {"message": "You exceeded your current quota", "code": "insufficient_quota"}}),
        ),
    ] {
        let message = body.clone();
        let (server, embedder) =
            faulty(move |_, _| Reply::Status(status, &[], message.clone())).await;
        let error = embedder.embed(texts(1), Role::Query).await.unwrap_err();
        assert!(
            matches!(error, ProviderError::Refused(_)),
            "{status}: {error}"
        );
        assert_eq!(server.count(), 2, "{status}");
        let shown = format!("{error} {error:?} {embedder:?} {:?}", access(&server.url));
        assert!(!shown.contains("key-of-the-test"), "{shown}");
    }
}

#[tokio::test]
async fn silence_a_trickle_and_a_broken_response_end_in_time() {
    let faults = ["hang", "trickle", "truncated"].map(|fault| async move {
        // The first request must succeed in this time too.
        let (server, embedder) = faulty_for(Duration::from_secs(2), move |_, _| match fault {
            "hang" => Reply::Hang,
            "trickle" => Reply::Trickle,
            _ => Reply::Truncated,
        })
        .await;
        let embedding = embedder.embed(texts(1), Role::Query);
        let outcome = tokio::time::timeout(Duration::from_secs(60), embedding).await;
        let error = outcome.expect("three attempts in time").unwrap_err();
        assert!(error.is_retryable(), "{fault}: {error}");
        assert_eq!(server.count(), 4, "{fault}: three attempts");
    });
    join_all(faults).await;
}

#[tokio::test]
async fn a_response_that_does_not_fit_the_request_is_not_used() {
    let wrong = [
        json!({"embeddings": []}),
        json!({"embeddings": [[0.1, 0.2]]}),
        json!({"embeddings": [[0.1, 0.2, null]]}),
        json!({"embeddings": [[0.1, 0.2, 1e300]]}),
        json!({"embeddings": [[0.1, 0.2, "NaN"]]}),
        json!({"nothing": "of the kind"}),
        json!([[0.1, 0.2, 0.3]]),
        json!({"embeddings": [vec![0.5; 300_000]]}),
    ];
    let wrong = wrong
        .into_iter()
        .map(|response| (response, None))
        .chain([(Value::Null, Some("{\"embeddings\": [[0.1, 0.2, NaN]]}"))]);
    for (response, raw) in wrong {
        let reply = move || raw.map_or_else(|| Reply::Json(response.clone()), Reply::Raw);
        let (_server, embedder) = faulty(move |_, _| reply()).await;
        let error = embedder.embed(texts(1), Role::Query).await.unwrap_err();
        assert!(matches!(error, ProviderError::Malformed(_)), "{error}");
    }
}

#[tokio::test]
async fn a_batch_that_is_too_large_is_halved_once() {
    let (server, embedder) = faulty(|request, _| {
        if request.body["input"].as_array().unwrap().len() > 4 {
            return Reply::Status(413, &[], json!({"error": "too large"}));
        }
        Reply::Json(recorded(Dialect::Ollama, &request.body))
    })
    .await;
    assert_eq!(
        embedder.embed(texts(8), Role::Document).await.unwrap(),
        expected(8)
    );
    assert_eq!(server.count(), 4);
    assert!(matches!(
        embedder.embed(texts(20), Role::Document).await,
        Err(ProviderError::Refused(_))
    ));
}

#[tokio::test]
async fn an_address_or_key_that_cannot_be_used_is_named_at_once() {
    for url in ["", "nonsense", "ftp://host", "http://", "http://host?x=1"] {
        let error = HttpEmbedder::connect(&access(url), remote(Dialect::Tei))
            .await
            .unwrap_err();
        assert!(
            matches!(&error, ProviderError::Refused(what) if what.contains("is not an address")),
            "{url}: {error}"
        );
    }
    let bad_key = Access {
        key: Some(Secret::new("line\nbreak")),
        ..access("http://127.0.0.1:1")
    };
    let error = HttpEmbedder::connect(&bad_key, remote(Dialect::OpenAi))
        .await
        .unwrap_err();
    assert!(
        matches!(&error, ProviderError::Refused(what) if what.contains("the key contains characters")),
        "{error}"
    );
    assert!(!error.to_string().contains("line"), "{error}");
    let absent = Reserved::new();
    let absent_url = format!("http://{}", absent.address());
    let unreachable = HttpEmbedder::connect(&access(&absent_url), remote(Dialect::OpenAi))
        .await
        .unwrap_err();
    assert!(unreachable.is_retryable(), "{unreachable}");
}
