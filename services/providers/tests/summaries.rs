//! Summaries over HTTP: with a server that responds as the providers' documentation describes, and with one that fails.

mod server;

use std::time::Duration;

use context_model::Secret;
use context_providers::http::{Access, HttpSummarizer, SummaryDialect};
use context_providers::{ProviderError, Summarizer as _};
use serde_json::{Value, json};

use server::{Reply, Server};

const DIALECTS: [SummaryDialect; 3] = [
    SummaryDialect::Ollama,
    SummaryDialect::OpenAi,
    SummaryDialect::Anthropic,
];

/// The timeout is long, so that tests do not fail on a busy machine.
fn summarizer(url: &str, dialect: SummaryDialect) -> HttpSummarizer {
    summarizer_for(Duration::from_secs(30), url, dialect)
}

fn summarizer_for(timeout: Duration, url: &str, dialect: SummaryDialect) -> HttpSummarizer {
    let access = Access {
        url: url.to_owned(),
        key: Some(Secret::new("key-of-the-test")),
        timeout,
    };
    HttpSummarizer::new(&access, dialect, "m", 77).unwrap()
}

/// A response in the documented form of the provider.
fn recorded(dialect: SummaryDialect, text: &str) -> Value {
    match dialect {
        SummaryDialect::Ollama => {
            json!({"model": "m", "created_at": "2026-01-01T00:00:00Z", "done": true, "done_reason": "stop",
                                         "message": {"role": "assistant", "content": text}, "prompt_eval_count": 26, "eval_count": 298})
        }
        SummaryDialect::OpenAi => json!({"id": "c", "object": "chat.completion", "model": "m",
                                         "choices": [{"index": 0, "message": {"role": "assistant", "content": text, "refusal": null},
                                                      "finish_reason": "stop"}], "usage": {"total_tokens": 21}}),
        SummaryDialect::Anthropic => {
            json!({"id": "msg", "type": "message", "role": "assistant", "model": "m", "stop_reason": "end_turn",
                                            "content": [{"type": "thinking", "thinking": "no"}, {"type": "text", "text": text}],
                                            "usage": {"input_tokens": 10, "output_tokens": 5}})
        }
    }
}

#[tokio::test]
async fn every_provider_gets_the_request_that_it_documents_and_its_response_is_read() {
    for dialect in DIALECTS {
        let server =
            Server::start(move |_, _| Reply::Json(recorded(dialect, " Two boats met.\n\0"))).await;
        let summary = summarizer(&server.url, dialect)
            .summarize("A long story")
            .await
            .unwrap();
        assert_eq!(summary, "Two boats met.", "{dialect:?}");
        let seen = server.last().await;
        let (path, text, tokens, headers) = match dialect {
            SummaryDialect::Ollama => (
                "/api/chat",
                "/messages/1/content",
                "/options/num_predict",
                &["authorization: bearer key-of-the-test"][..],
            ),
            SummaryDialect::OpenAi => (
                "/chat/completions",
                "/messages/1/content",
                "/max_completion_tokens",
                &["authorization: bearer key-of-the-test"][..],
            ),
            SummaryDialect::Anthropic => (
                "/v1/messages",
                "/messages/0/content",
                "/max_tokens",
                &[
                    "x-api-key: key-of-the-test",
                    "anthropic-version: 2023-06-01",
                ][..],
            ),
        };
        assert_eq!(seen.path, path);
        for header in headers {
            assert!(seen.head.contains(header), "{}", seen.head);
        }
        assert_eq!(seen.body.pointer(text), Some(&json!("A long story")));
        assert_eq!(
            (seen.body.pointer(tokens), &seen.body["model"]),
            (Some(&json!(77)), &json!("m"))
        );
    }
}

#[tokio::test]
async fn overload_is_tried_again_and_a_refusal_is_not() {
    let server = Server::start(|_, number| match number {
        0 => Reply::Status(529, &[], json!({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}})),
        1 => Reply::Status(429, &[("retry-after", "0")], json!({})),
        _ => Reply::Json(recorded(SummaryDialect::Anthropic, "Short.")),
    })
    .await;
    assert_eq!(
        summarizer(&server.url, SummaryDialect::Anthropic)
            .summarize("x")
            .await
            .unwrap(),
        "Short."
    );
    assert_eq!(server.count(), 3);
    for status in [400, 401, 403, 404, 413, 422] {
        let server = Server::start(move |_, _| {
            let message = "not with key-of-the-test";
            Reply::Status(status, &[], json!({"error": {"message": message}}))
        })
        .await;
        let error = summarizer(&server.url, SummaryDialect::OpenAi)
            .summarize("x")
            .await
            .unwrap_err();
        assert!(
            matches!(&error, ProviderError::Refused(what) if what.contains("not with ***")),
            "{error}"
        );
        assert_eq!(server.count(), 1);
        assert!(!error.to_string().contains("key-of-the-test"));
    }
}

#[tokio::test]
async fn silence_a_trickle_and_a_broken_response_pass_as_unavailable() {
    for fault in [|| Reply::Hang, || Reply::Trickle, || Reply::Truncated] {
        let server = Server::start(move |_, _| fault()).await;
        let timeout = Duration::from_millis(500);
        let error = summarizer_for(timeout, &server.url, SummaryDialect::Ollama)
            .summarize("x")
            .await
            .unwrap_err();
        assert!(error.is_retryable(), "{error}");
        assert_eq!(server.count(), 3, "three attempts");
    }
}

#[tokio::test]
async fn a_response_without_a_summary_is_malformed() {
    for dialect in DIALECTS {
        for response in [
            json!({}),
            json!([]),
            recorded(dialect, " \n\0"),
            json!({"choices": [{"message": {"content": null}}], "content": 1}),
        ] {
            let server = Server::start(move |_, _| Reply::Json(response.clone())).await;
            let error = summarizer(&server.url, dialect)
                .summarize("x")
                .await
                .unwrap_err();
            assert!(
                matches!(error, ProviderError::Malformed(_)),
                "{dialect:?}: {error}"
            );
        }
    }
    let server = Server::start(|_, _| Reply::Raw("<html>a proxy's page</html>")).await;
    let error = summarizer(&server.url, SummaryDialect::OpenAi)
        .summarize("x")
        .await
        .unwrap_err();
    assert!(matches!(error, ProviderError::Malformed(_)), "{error}");
}

#[tokio::test]
async fn a_long_text_is_cut_between_characters_and_a_long_summary_too() {
    let server =
        Server::start(|_, _| Reply::Json(recorded(SummaryDialect::OpenAi, &"ä".repeat(100_000))))
            .await;
    let summarizer = summarizer(&server.url, SummaryDialect::OpenAi);
    let summary = summarizer.summarize(&"ü".repeat(200_000)).await.unwrap();
    assert_eq!(summary, "ä".repeat(20_000));
    let body = server.last().await.body;
    let sent = body.pointer("/messages/1/content").and_then(Value::as_str);
    assert!(sent.is_some_and(|sent| sent == "ü".repeat(48_000)));
    assert_eq!(summarizer.max_chars(), 48_000);
}
