//! Reranking over HTTP: with a server that responds as the providers' documentation describes, and with one that fails.

mod server;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use context_model::Secret;
use context_providers::http::{Access, HttpReranker, RerankDialect};
use context_providers::{ProviderError, Reranker as _};
use context_test_support::Reserved;
use serde_json::{Value, json};

use server::{Reply, Seen, Server};

const DIALECTS: [RerankDialect; 4] = [
    RerankDialect::Tei,
    RerankDialect::Cohere,
    RerankDialect::Jina,
    RerankDialect::Voyage,
];

/// The timeout is long, so that tests do not fail on a busy machine.
fn reranker(url: &str, dialect: RerankDialect) -> HttpReranker {
    reranker_for(Duration::from_secs(30), url, dialect)
}

fn reranker_for(timeout: Duration, url: &str, dialect: RerankDialect) -> HttpReranker {
    let access = Access {
        url: url.to_owned(),
        key: Some(Secret::new("key-of-the-test")),
        timeout,
    };
    HttpReranker::new(&access, dialect, "m").unwrap()
}

fn texts(count: usize) -> Vec<String> {
    (0..count).map(|n| format!("text {n}")).collect()
}

/// The scores of [`texts`].
fn scores(count: usize) -> Vec<f64> {
    (0..count).map(|n| n as f64 / 1_000.0).collect()
}

/// The score of a text: its number, as a fraction.
fn score(text: &Value) -> f64 {
    text.as_str()
        .and_then(|text| text.strip_prefix("text ")?.parse::<f64>().ok())
        .map_or(0.0, |n| n / 1_000.0)
}

/// A response in the documented form of the provider, best first, as every provider returns it.
fn recorded(dialect: RerankDialect, request: &Value) -> Value {
    let texts = request[if dialect == RerankDialect::Tei {
        "texts"
    } else {
        "documents"
    }]
    .as_array()
    .unwrap();
    let mut scores: Vec<(usize, f64)> = texts.iter().map(score).enumerate().collect();
    scores.sort_by(|a, b| b.1.total_cmp(&a.1));
    let items = |key: &str| -> Vec<Value> {
        scores
            .iter()
            .map(|(index, score)| json!({"index": index, key: score}))
            .collect()
    };
    match dialect {
        RerankDialect::Tei => json!(items("score")),
        RerankDialect::Cohere => json!({"id": "07734bd2", "results": items("relevance_score"),
                                        "meta": {"api_version": {"version": "2"}, "billed_units": {"search_units": 1}}}),
        RerankDialect::Jina => {
            json!({"model": "m", "usage": {"total_tokens": 815}, "results": items("relevance_score")})
        }
        RerankDialect::Voyage => {
            json!({"object": "list", "data": items("relevance_score"), "model": "m", "usage": {"total_tokens": 26}})
        }
    }
}

#[tokio::test]
async fn each_provider_gets_its_documented_request_and_the_scores_are_in_the_order_of_the_texts() {
    for dialect in DIALECTS {
        let server =
            Server::start(move |request, _| Reply::Json(recorded(dialect, &request.body))).await;
        let reranker = reranker(&server.url, dialect);
        assert_eq!(
            (reranker.provider(), reranker.model()),
            (dialect.name(), "m")
        );
        assert_eq!(
            reranker.rerank("q", texts(3)).await.unwrap(),
            [0.0, 0.001, 0.002],
            "{dialect:?}"
        );
        let Seen { path, head, body } = server.last().await;
        let (wanted_path, wanted_body) = match dialect {
            RerankDialect::Tei => (
                "/rerank",
                json!({"query": "q", "texts": texts(3), "raw_scores": false, "return_text": false, "truncate": true}),
            ),
            RerankDialect::Cohere => (
                "/v2/rerank",
                json!({"model": "m", "query": "q", "documents": texts(3)}),
            ),
            RerankDialect::Jina => (
                "/v1/rerank",
                json!({"model": "m", "query": "q", "documents": texts(3), "return_documents": false}),
            ),
            RerankDialect::Voyage => (
                "/v1/rerank",
                json!({"model": "m", "query": "q", "documents": texts(3), "return_documents": false, "truncation": true}),
            ),
        };
        assert_eq!((path.as_str(), body), (wanted_path, wanted_body));
        assert!(
            head.contains("authorization: bearer key-of-the-test"),
            "{head}"
        );
    }
}

#[tokio::test]
async fn many_texts_go_in_several_requests_of_what_the_provider_takes() {
    let server =
        Server::start(|request, _| Reply::Json(recorded(RerankDialect::Tei, &request.body))).await;
    let found = reranker(&server.url, RerankDialect::Tei)
        .rerank("q", texts(70))
        .await
        .unwrap();
    assert_eq!(found, scores(70));
    let mut sizes: Vec<usize> = server
        .seen
        .lock()
        .await
        .iter()
        .map(|seen| seen.body["texts"].as_array().unwrap().len())
        .collect();
    sizes.sort_unstable();
    assert_eq!(sizes, [6, 32, 32]);
    let server =
        Server::start(|request, _| Reply::Json(recorded(RerankDialect::Cohere, &request.body)))
            .await;
    assert_eq!(
        reranker(&server.url, RerankDialect::Cohere)
            .rerank("q", texts(70))
            .await
            .unwrap(),
        scores(70)
    );
    assert_eq!(
        reranker(&server.url, RerankDialect::Cohere)
            .rerank("q", Vec::new())
            .await
            .unwrap()
            .len(),
        0
    );
    assert_eq!(server.count(), 1);
}

#[tokio::test]
async fn overload_is_tried_again_after_the_pause_the_server_asks_for() {
    let arrivals = Arc::new(Mutex::new(Vec::new()));
    let of_server = Arc::clone(&arrivals);
    let server = Server::start(move |request, number| {
        #[expect(
            clippy::disallowed_methods,
            reason = "the pause that the server asked for, over a real connection"
        )]
        let now = Instant::now();
        of_server.lock().unwrap().push(now);
        match number {
            0 => Reply::Status(
                429,
                &[("retry-after", "1")],
                json!({"error": "Model is overloaded", "error_type": "overloaded"}),
            ),
            1 => Reply::Status(500, &[], json!({"message": "internal server error"})),
            _ => Reply::Json(recorded(RerankDialect::Jina, &request.body)),
        }
    })
    .await;
    assert_eq!(
        reranker(&server.url, RerankDialect::Jina)
            .rerank("q", texts(2))
            .await
            .unwrap(),
        scores(2)
    );
    assert_eq!(server.count(), 3);
    let arrivals = arrivals.lock().unwrap();
    // Without the server's pause the first retry comes after at most 250 ms.
    assert!(arrivals[1] - arrivals[0] >= Duration::from_secs(1));
}

#[tokio::test]
async fn several_requests_of_a_call_fail_and_come_back_as_one() {
    let is_back = Arc::new(AtomicBool::new(false));
    let responds = Arc::clone(&is_back);
    let server = Server::start(move |request, _| match responds.load(Ordering::SeqCst) {
        false => Reply::Status(
            503,
            &[],
            json!({"error": "starting", "error_type": "unhealthy"}),
        ),
        true => Reply::Json(recorded(RerankDialect::Tei, &request.body)),
    })
    .await;
    let reranker = reranker(&server.url, RerankDialect::Tei);
    for call in 0..4 {
        let error = reranker.rerank("q", texts(70)).await.unwrap_err();
        assert_eq!(
            error.to_string().contains("the next attempt is in"),
            call == 3,
            "{error}"
        );
    }
    is_back.store(true, Ordering::SeqCst);
    // Simulates the end of the pause.
    tokio::time::pause();
    tokio::time::advance(Duration::from_millis(2_100)).await;
    tokio::time::resume();
    let found = reranker.rerank("q", texts(70)).await.unwrap();
    assert_eq!(found, scores(70));
}

#[tokio::test]
async fn a_refusal_is_not_tried_again_and_the_key_is_in_no_message() {
    for (status, body) in [
        (
            400,
            json!({"message": "invalid request: list of documents must not be empty"}),
        ),
        (
            401,
            json!({"detail": "Provided API key key-of-the-test is invalid."}),
        ),
        (404, json!({"message": "model 'm' not found"})),
        (
            422,
            json!({"error": "batch size 33 > maximum allowed batch size 32", "error_type": "Validation"}),
        ),
    ] {
        let message = body.clone();
        let server = Server::start(move |_, _| Reply::Status(status, &[], message.clone())).await;
        let reranker = reranker(&server.url, RerankDialect::Cohere);
        let error = reranker.rerank("q", texts(1)).await.unwrap_err();
        assert!(
            matches!(error, ProviderError::Refused(_)),
            "{status}: {error}"
        );
        assert_eq!(server.count(), 1, "{status}");
        let shown = format!("{error} {error:?} {reranker:?}");
        assert!(!shown.contains("key-of-the-test"), "{shown}");
    }
}

#[tokio::test]
async fn silence_a_trickle_and_a_broken_response_pass_as_unavailable() {
    for fault in [|| Reply::Hang, || Reply::Trickle, || Reply::Truncated] {
        let server = Server::start(move |_, _| fault()).await;
        let timeout = Duration::from_millis(500);
        let error = reranker_for(timeout, &server.url, RerankDialect::Voyage)
            .rerank("q", texts(1))
            .await
            .unwrap_err();
        assert!(error.is_retryable(), "{error}");
        assert_eq!(server.count(), 3, "three attempts");
    }
    let absent = Reserved::new();
    let absent_url = format!("http://{}", absent.address());
    let unreachable = reranker(&absent_url, RerankDialect::Tei)
        .rerank("q", texts(1))
        .await
        .unwrap_err();
    assert!(unreachable.is_retryable(), "{unreachable}");
}

#[tokio::test]
async fn a_response_without_exactly_one_score_for_each_text_is_not_used() {
    let item = |index: Value, score: Value| json!({"index": index, "relevance_score": score});
    let wrong = [
        json!({"results": []}),
        json!({"results": [item(json!(0), json!(0.5))]}),
        json!({"results": [item(json!(0), json!(0.5)), item(json!(0), json!(0.5))]}),
        json!({"results": [item(json!(0), json!(0.5)), item(json!(2), json!(0.5))]}),
        json!({"results": [item(json!(0), json!(0.5)), item(json!(-1), json!(0.5))]}),
        json!({"results": [item(json!(0), json!(0.5)), item(json!("1"), json!(0.5))]}),
        json!({"results": [item(json!(0), json!(0.5)), {"relevance_score": 0.5}]}),
        json!({"results": [item(json!(0), json!(0.5)), item(json!(1), json!(0.5)), item(json!(1), json!(0.5))]}),
        json!({"results": [item(json!(0), json!(0.5)), item(json!(1), json!(null))]}),
        json!({"results": [item(json!(0), json!(0.5)), item(json!(1), json!("NaN"))]}),
        json!({"results": [item(json!(0), json!(0.5)), {"index": 1}]}),
        json!({"results": [0.5, 0.5]}),
        json!({"results": {"0": 0.5}}),
        json!([0.5, 0.5]),
        json!("nothing of the kind"),
        json!({"results": [item(json!(0), json!(0.5)), item(json!(1), json!(0.5))], "padding": "x".repeat(5_000_000)}),
    ];
    for response in wrong {
        let message = response.clone();
        let server = Server::start(move |_, _| Reply::Json(message.clone())).await;
        let error = reranker(&server.url, RerankDialect::Cohere)
            .rerank("q", texts(2))
            .await
            .unwrap_err();
        assert!(matches!(error, ProviderError::Malformed(_)), "{error}");
    }
    let server = Server::start(|_, _| Reply::Raw("[{\"index\": 0, \"score\": NaN}]")).await;
    let error = reranker(&server.url, RerankDialect::Tei)
        .rerank("q", texts(1))
        .await
        .unwrap_err();
    assert!(matches!(error, ProviderError::Malformed(_)), "{error}");
}

#[tokio::test]
async fn an_address_or_key_that_cannot_be_used_is_named_at_once() {
    let access = |url: &str, key: &str| Access {
        url: url.to_owned(),
        key: Some(Secret::new(key)),
        timeout: Duration::from_secs(1),
    };
    for (url, key, named) in [
        ("", "k", "``"),
        ("ftp://host", "k", "ftp://host"),
        ("http://host?x=1", "k", "http://host"),
        ("http://host", "line\nbreak", "key"),
    ] {
        let error = HttpReranker::new(&access(url, key), RerankDialect::Tei, "m").unwrap_err();
        assert!(error.contains(named), "{error}");
        assert!(!error.contains("line"), "{error}");
    }
}
