//! JSON-RPC batches, which only the protocol revision 2025-03-26 has.

use axum::body::{Body, HttpBody as _};
use axum::http::{Request, StatusCode};
use context_gateway::handler::Credentials;
use context_gateway::memory::Caller;
use context_test_support::until;
use serde_json::{Value, json};
use tower::ServiceExt as _;

use crate::fake::{Behaviour, setup};
use crate::http::router_with;
use crate::session::{ERAS, Era, Pipe, budget, exchange, memory_of, post, router};

const REVISION: Era = Era::Legacy("2025-03-26");

fn call(id: u64, tool: &str) -> Value {
    REVISION.request(id, "tools/call", json!({"name": tool, "arguments": {}}))
}

fn ping(id: u64) -> Value {
    REVISION.request(id, "ping", json!({}))
}

fn notification() -> Value {
    json!({"jsonrpc": "2.0", "method": "notifications/initialized"})
}

/// Every kind of message, and the ids and error codes of the responses in their order.
fn mixed() -> (Value, Vec<(Value, Option<i64>)>) {
    let initialize = json!({"protocolVersion": "2025-03-26", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}});
    let batch = json!([
        call(1, "list_threads"),
        notification(),
        call(2, "no_such_tool"),
        REVISION.request(3, "tools/call", json!(5)),
        7,
        [ping(4)],
        {"jsonrpc": "2.0", "method": "notifications/progress", "params": 1},
        REVISION.request(5, "initialize", initialize),
        REVISION.request(6, "subscriptions/listen", json!({"notifications": {}})),
        ping(8),
    ]);
    let responses = vec![
        (json!(1), None),
        (json!(2), Some(-32602)),
        (json!(3), Some(-32602)),
        (Value::Null, Some(-32600)),
        (Value::Null, Some(-32600)),
        (json!(5), Some(-32600)),
        (json!(6), Some(-32600)),
        (json!(8), None),
    ];
    (batch, responses)
}

/// The ids and error codes of an array of responses.
fn outline(responses: &Value) -> Vec<(Value, Option<i64>)> {
    let responses = responses.as_array().expect("an array");
    responses
        .iter()
        .map(|response| (response["id"].clone(), response["error"]["code"].as_i64()))
        .collect()
}

fn post_batch(era: Era, batch: &Value) -> Request<Body> {
    let mut request = post(era, &ping(1));
    *request.body_mut() = Body::from(batch.to_string());
    request
}

#[tokio::test]
async fn over_http_the_responses_come_in_one_array_and_notifications_get_none() {
    let setup = setup(Credentials::Callers);
    let router = router(&setup);
    let (batch, expected) = mixed();
    let named = post_batch(REVISION, &batch);
    // A client that names no revision is assumed to have this one.
    let mut unnamed = post_batch(REVISION, &batch);
    unnamed.headers_mut().remove("mcp-protocol-version");
    for request in [named, unnamed] {
        let (status, responses) = exchange(&router, request).await;
        assert_eq!(
            (status, outline(&responses)),
            (StatusCode::OK, expected.clone()),
            "{responses}"
        );
    }
    let silent = post_batch(REVISION, &json!([notification(), notification()]));
    assert_eq!(
        exchange(&router, silent).await,
        (StatusCode::ACCEPTED, json!(""))
    );
}

#[tokio::test]
async fn on_stdio_the_responses_come_in_one_line_and_notifications_get_none() {
    let setup = setup(Credentials::Own(None));
    let mut pipe = Pipe::open(&setup, REVISION).await;
    let (batch, expected) = mixed();
    pipe.send(&batch).await;
    let responses = pipe.line().await.unwrap();
    assert_eq!(outline(&responses), expected, "{responses}");
    pipe.send(&json!([notification(), 7, notification()])).await;
    assert_eq!(
        outline(&pipe.line().await.unwrap()),
        [(Value::Null, Some(-32600))]
    );
    pipe.send(&json!([notification()])).await;
    assert_eq!(pipe.call("list_threads", json!({})).await["isError"], false);
}

#[tokio::test]
async fn the_other_revisions_refuse_a_batch() {
    let setup = setup(Credentials::Own(None));
    let router = router(&setup);
    let one = json!([call(1, "store_context")]);
    let two = json!([call(1, "store_context"), ping(2)]);
    let others = ERAS.into_iter().filter(|era| *era != REVISION);
    for (era, batch) in others.flat_map(|era| [(era, &one), (era, &two)]) {
        let mut pipe = Pipe::open(&setup, era).await;
        pipe.send(batch).await;
        let on_stdio = pipe.line().await.unwrap();
        let (status, over_http) = exchange(&router, post_batch(era, batch)).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{era:?}");
        for refusal in [on_stdio, over_http] {
            assert_eq!(
                (&refusal["id"], &refusal["error"]["code"]),
                (&Value::Null, &json!(-32600)),
                "{era:?} {refusal}"
            );
            assert!(
                refusal["error"]["message"]
                    .as_str()
                    .unwrap()
                    .contains("2025-03-26"),
                "{refusal}"
            );
        }
    }
    assert!(setup.fake.seen().is_empty());
}

#[tokio::test]
async fn an_empty_batch_and_one_of_more_than_a_hundred_messages_are_one_error() {
    let setup = setup(Credentials::Own(None));
    let router = router(&setup);
    let mut pipe = Pipe::open(&setup, REVISION).await;
    for (count, words) in [(0, "empty"), (101, "the maximum is 100")] {
        let batch: Vec<Value> = (0..count).map(|id| call(id, "store_context")).collect();
        let batch = Value::from(batch);
        pipe.send(&batch).await;
        let on_stdio = pipe.line().await.unwrap();
        let (status, over_http) = exchange(&router, post_batch(REVISION, &batch)).await;
        assert_eq!(status, StatusCode::BAD_REQUEST);
        for refusal in [on_stdio, over_http] {
            assert_eq!(
                (&refusal["id"], &refusal["error"]["code"]),
                (&Value::Null, &json!(-32600))
            );
            assert!(
                refusal["error"]["message"]
                    .as_str()
                    .unwrap()
                    .contains(words),
                "{refusal}"
            );
        }
    }
    assert!(setup.fake.seen().is_empty());
    let batch: Vec<Value> = (0..100).map(ping).collect();
    let batch = Value::from(batch);
    pipe.send(&batch).await;
    let all: Vec<(Value, Option<i64>)> = (0..100).map(|id| (json!(id), None)).collect();
    assert_eq!(outline(&pipe.line().await.unwrap()), all);
    let (_, responses) = exchange(&router, post_batch(REVISION, &batch)).await;
    assert_eq!(outline(&responses), all);
}

#[tokio::test]
async fn a_batch_that_must_not_be_parsed_is_one_error() {
    let setup = setup(Credentials::Own(None));
    let router = router(&setup);
    let mut pipe = Pipe::open(&setup, REVISION).await;
    let batch = json!([call(1, "store_context"), ping(2)]).to_string();
    let batch = batch.replace(
        "\"arguments\":{}",
        "\"arguments\":{\"n\":18446744073709551616}",
    );
    pipe.send_raw(&batch).await;
    let on_stdio = pipe.line().await.unwrap();
    let request = post(REVISION, &ping(1)).map(|_| Body::from(batch));
    let (status, over_http) = exchange(&router, request).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    for refusal in [on_stdio, over_http] {
        assert_eq!(
            (&refusal["id"], &refusal["error"]["code"]),
            (&Value::Null, &json!(-32600))
        );
        let said = refusal["error"]["message"].as_str().unwrap();
        assert!(said.contains("18446744073709551616"), "{said}");
    }
    assert!(setup.fake.seen().is_empty());
}

#[tokio::test]
async fn each_message_of_a_batch_carries_the_callers_credentials() {
    let setup = setup(Credentials::Callers);
    let batch = json!([call(1, "list_threads"), call(2, "search_context")]);
    let mut request = post_batch(REVISION, &batch);
    request
        .headers_mut()
        .insert("authorization", "Bearer sk_prod_x".parse().unwrap());
    exchange(&router(&setup), request).await;
    for operation in ["list_threads", "search_context"] {
        let seen = setup.fake.seen();
        let seen = seen
            .iter()
            .find(|seen| seen.operation == operation)
            .unwrap();
        assert_eq!(
            seen.metadata.get("authorization").unwrap(),
            "Bearer sk_prod_x"
        );
    }
}

#[tokio::test]
async fn a_foreign_host_is_refused_as_for_a_single_message() {
    let setup = setup(Credentials::Callers);
    let mut request = post_batch(REVISION, &json!([call(1, "list_threads")]));
    request
        .headers_mut()
        .insert("host", "evil.example".parse().unwrap());
    assert_eq!(
        exchange(&router(&setup), request).await.0,
        StatusCode::FORBIDDEN
    );
    assert!(setup.fake.seen().is_empty());
}

#[tokio::test]
async fn a_client_that_disconnects_takes_every_call_of_its_batch_with_it() {
    let setup = setup(Credentials::Callers);
    setup.fake.behave(Behaviour::Hang);
    let batch = json!([
        call(1, "list_threads"),
        call(2, "search_context"),
        call(3, "store_context")
    ]);
    let waiting = tokio::spawn(router(&setup).oneshot(post_batch(REVISION, &batch)));
    until("every call has arrived", async || {
        setup.fake.seen().len() == 3
    })
    .await;
    waiting.abort();
    until("every call is cancelled", async || {
        setup.fake.count_cancelled() == 3
    })
    .await;
}

#[tokio::test]
async fn each_message_of_a_batch_counts_as_a_request_and_its_memory_is_held_until_the_array_is_sent()
 {
    let setup = setup(Credentials::Callers);
    let budget = budget();
    let router = router_with(&setup, budget.clone(), None);
    let batch: Vec<Value> = (0..100).map(|id| call(id, "list_threads")).collect();
    let batch = Value::from(batch);
    // The limit is 512 requests. These and the HTTP request itself leave 99 for the 100 messages.
    let mut others: Vec<_> = (0..412)
        .map(|_| budget.enter(Caller::Anyone).unwrap())
        .collect();
    let refused = router
        .clone()
        .oneshot(post_batch(REVISION, &batch))
        .await
        .unwrap();
    assert_eq!(
        (
            refused.status(),
            refused.headers()["retry-after"].to_str().unwrap()
        ),
        (StatusCode::SERVICE_UNAVAILABLE, "1")
    );
    assert!(setup.fake.seen().is_empty(), "none of its calls ran");
    drop(refused);
    others.pop();
    let (status, responses) = exchange(&router, post_batch(REVISION, &batch)).await;
    let all: Vec<(Value, Option<i64>)> = (0..100).map(|id| (json!(id), None)).collect();
    assert_eq!((status, outline(&responses)), (StatusCode::OK, all));
    drop(others);
    let response = router.oneshot(post_batch(REVISION, &batch)).await.unwrap();
    let length = response.body().size_hint().exact().unwrap();
    assert_eq!(budget.used() as u64, length);
    drop(response);
    assert_eq!(budget.used(), 0);
}

#[tokio::test]
async fn a_reply_without_room_fails_alone() {
    let setup = setup(Credentials::Callers);
    let budget = context_gateway::memory::Budget::new(1024 * 1024);
    let router = router_with(&setup, budget.clone(), None);
    let batch = json!([call(1, "list_threads"), ping(2)]);
    // Room for the request and 100 bytes.
    let request = memory_of(&batch.to_string());
    let rest = budget.enter(Caller::Anyone).unwrap();
    rest.grow(budget.total() / 16 * 15 - request - 100).unwrap();
    let (status, responses) = exchange(&router, post_batch(REVISION, &batch)).await;
    assert_eq!(status, StatusCode::OK);
    assert!(
        responses[0]["result"]["content"][0]["text"]
            .as_str()
            .unwrap()
            .contains("OVERLOADED"),
        "{responses}"
    );
    assert_eq!(responses[1]["result"], json!({}));
    drop(rest);
    assert_eq!(budget.used(), 0);
}

#[tokio::test]
async fn a_cancelled_call_of_a_batch_is_left_out_of_its_array() {
    let setup = setup(Credentials::Own(None));
    let mut pipe = Pipe::open(&setup, REVISION).await;
    setup.fake.behave(Behaviour::Hang);
    pipe.send(&json!([call(1, "list_threads"), ping(2)])).await;
    setup.fake.arrived().await;
    pipe.send(
        &json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}),
    )
    .await;
    assert_eq!(outline(&pipe.line().await.unwrap()), [(json!(2), None)]);
    setup.fake.cancelled().await;
}

#[tokio::test]
async fn two_calls_of_a_batch_with_one_id_get_one_response() {
    let setup = setup(Credentials::Own(None));
    let mut pipe = Pipe::open(&setup, REVISION).await;
    pipe.send(&json!([ping(1), ping(1), ping(2)])).await;
    assert_eq!(
        outline(&pipe.line().await.unwrap()),
        [(json!(1), None), (json!(2), None)]
    );
}
