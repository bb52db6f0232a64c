//! A failed call is a result that a model can read and act on. No failure ends the gateway.

use std::time::Duration;

use context_gateway::catalogue::{Selection, ToolSet};
use context_gateway::handler::Credentials;
use context_model::{Error, Reason, Violations};
use context_proto::status_from_error;
use context_proto::v1::ListThreadsRequest;
use context_test_support::until;
use serde_json::json;
use tokio::task::JoinSet;
use tonic::{Code, Status};

use crate::fake::{Behaviour, setup, setup_with};
use crate::session::{Era, Pipe, text};

#[tokio::test]
async fn what_the_service_refuses_is_told_word_for_word() {
    let setup = setup(Credentials::Own(None));
    let mut pipe = Pipe::open(&setup, Era::Modern).await;
    let mut violations = Violations::default();
    violations.push("limit", "`limit` is 500; the allowed range is 1 to 100");
    violations.push("offset", "`offset` is -1; it must not be negative");
    let error = violations.finish(()).unwrap_err();
    setup.fake.behave(Behaviour::Fail(status_from_error(
        &error,
        Code::InvalidArgument,
    )));
    let result = pipe.call("search_context", json!({})).await;
    assert_eq!(result["isError"], true);
    assert!(result.get("structuredContent").is_none());
    assert_eq!(
        text(&result),
        json!({"error": "`limit` is 500; the allowed range is 1 to 100; `offset` is -1; it must not be negative",
            "reason": "INVALID_ARGUMENT", "violations": [{"field": "limit"}, {"field": "offset"}]})
    );
}

#[tokio::test]
async fn every_reason_reaches_the_client() {
    let setup = setup(Credentials::Own(None));
    let mut pipe = Pipe::open(&setup, Era::Modern).await;
    for reason in Reason::ALL {
        setup.fake.behave(Behaviour::Fail(status_from_error(
            &Error::new(reason, "a sentence"),
            Code::Unavailable,
        )));
        let text = text(&pipe.call("list_threads", json!({})).await);
        assert_eq!(
            (text["reason"].as_str(), text["error"].as_str()),
            (Some(reason.as_str()), Some("a sentence"))
        );
    }
    // The gateway also requests statistics in the background, to learn which features are off.
    let mut seen = setup.fake.seen();
    seen.retain(|seen| seen.operation == "list_threads");
    assert_eq!(
        seen.len(),
        Reason::ALL.len(),
        "a call with a response is not repeated"
    );
}

#[tokio::test]
async fn a_hint_to_retry_is_passed_on() {
    let setup = setup(Credentials::Own(None));
    let mut pipe = Pipe::open(&setup, Era::Modern).await;
    let error =
        Error::new(Reason::Overloaded, "busy").with_retry_after(std::time::Duration::from_secs(3));
    setup.fake.behave(Behaviour::Fail(status_from_error(
        &error,
        Code::Unavailable,
    )));
    assert_eq!(
        text(&pipe.call("store_context", json!({})).await)["retry_after_seconds"],
        3
    );
}

#[tokio::test]
async fn a_refusal_without_details_still_makes_a_sentence() {
    let setup = setup(Credentials::Own(None));
    let mut pipe = Pipe::open(&setup, Era::Modern).await;
    setup
        .fake
        .behave(Behaviour::Fail(Status::unimplemented("")));
    let result = pipe.call("list_threads", json!({})).await;
    assert_eq!(result["isError"], true);
    assert!(
        !text(&result)["error"].as_str().unwrap().is_empty(),
        "{result}"
    );
}

#[tokio::test]
async fn bad_arguments_never_reach_the_service() {
    let setup = setup(Credentials::Own(None));
    let mut pipe = Pipe::open(&setup, Era::Modern).await;
    let result = pipe
        .call("search_context", json!({"limit": "many", "thread": "t"}))
        .await;
    let fields: Vec<_> = text(&result)["violations"]
        .as_array()
        .unwrap()
        .iter()
        .map(|v| v["field"].clone())
        .collect();
    assert_eq!(fields, ["limit", "thread"]);
    let result = pipe
        .call("search_context", json!({"limit": u64::MAX}))
        .await;
    assert_eq!(
        text(&result)["error"],
        "`limit` must be an integer of at most 64 bits"
    );
    assert!(setup.fake.seen().is_empty());
}

#[tokio::test]
async fn an_image_that_is_no_base64_is_left_to_the_service_which_may_store_the_other_items() {
    let setup = setup(Credentials::Own(None));
    let mut pipe = Pipe::open(&setup, Era::Modern).await;
    let entries = ["AA==", "no base64!"].map(
        |data| json!({"thread_id": "t", "source": "user", "text": "x", "images": [{"data": data}]}),
    );
    let batch = json!({"entries": entries, "atomic": false});
    pipe.call("store_context_batch", batch).await;
    let seen = setup.fake.seen();
    let seen = seen
        .iter()
        .find(|seen| seen.operation == "store_context_batch")
        .unwrap();
    let sent = |item: usize| seen.request["entries"][item]["images"][0]["data"].clone();
    assert_eq!([sent(0), sent(1)], [json!("AA=="), json!("")]);
}

#[tokio::test]
async fn an_unknown_tool_is_a_protocol_error_that_names_the_nearest() {
    let setup = setup(Credentials::Own(None));
    let mut pipe = Pipe::open(&setup, Era::Legacy("2025-06-18")).await;
    let reply = pipe
        .request(
            "tools/call",
            json!({"name": "store_contexts", "arguments": {}}),
        )
        .await;
    assert_eq!(reply["error"]["code"], -32602);
    assert_eq!(
        reply["error"]["message"],
        "unknown tool `store_contexts`; did you mean `store_context`?"
    );
}

#[tokio::test]
async fn a_disabled_tool_is_not_listed_and_is_unknown_to_every_call() {
    let disabled = [
        " Delete_Context".to_owned(),
        "diff_artifact_versions".to_owned(),
        String::new(),
    ];
    for set in [ToolSet::Default, ToolSet::Full] {
        let setup = setup_with(Credentials::Own(None), Selection::new(set, &disabled));
        let mut pipe = Pipe::open(&setup, Era::Modern).await;
        let listed = pipe.request("tools/list", json!({})).await["result"]["tools"].clone();
        let listed: Vec<_> = listed
            .as_array()
            .unwrap()
            .iter()
            .map(|tool| tool["name"].clone())
            .collect();
        assert_eq!(listed.len(), 22, "{listed:?}");
        for name in ["delete_context", "diff_artifact_versions"] {
            assert!(!listed.contains(&json!(name)), "{name}");
            let reply = pipe
                .request(
                    "tools/call",
                    json!({"name": name, "arguments": {"context_ids": [1]}}),
                )
                .await;
            assert_eq!(
                (
                    reply["error"]["code"].as_i64(),
                    reply["error"]["message"].as_str()
                ),
                (
                    Some(-32602),
                    Some(format!("unknown tool `{name}`").as_str())
                )
            );
        }
        // A disabled tool is not suggested for a misspelt name.
        let reply = pipe
            .request(
                "tools/call",
                json!({"name": "delete_contxt", "arguments": {}}),
            )
            .await;
        let said = reply["error"]["message"].as_str().unwrap();
        assert!(!said.contains("`delete_context`"), "{said}");
        assert!(setup.fake.seen().is_empty());
        assert_eq!(pipe.call("list_threads", json!({})).await["isError"], false);
    }
}

#[tokio::test]
async fn entries_are_no_resources_when_the_tool_that_reads_them_is_disabled() {
    let tools = Selection::new(ToolSet::Default, &["get_context_by_ids".to_owned()]);
    let setup = setup_with(Credentials::Own(None), tools);
    let mut pipe = Pipe::open(&setup, Era::Legacy("2025-11-25")).await;
    let templates = pipe.request("resources/templates/list", json!({})).await;
    let templates = templates["result"]["resourceTemplates"].as_array().unwrap();
    let names = templates.iter().map(|template| &template["name"]);
    assert_eq!(
        names.collect::<Vec<_>>(),
        ["context_thread", "context_artifact"]
    );
    let reply = pipe
        .request("resources/read", json!({"uri": "context://entries/42"}))
        .await;
    assert_eq!(reply["error"]["code"], -32002, "{reply}");
    assert_eq!(reply["error"]["data"]["reason"], "FEATURE_UNAVAILABLE");
    let said = reply["error"]["message"].as_str().unwrap();
    assert!(said.contains("`get_context_by_ids`"), "{said}");
    // The prompt `recall` calls it too.
    let prompts = pipe.request("prompts/list", json!({})).await["result"]["prompts"].clone();
    assert_eq!(prompts.as_array().unwrap().len(), 1, "{prompts}");
    assert_eq!(prompts[0]["name"], "handover");
    assert!(setup.fake.seen().is_empty());
}

#[tokio::test]
async fn a_service_that_is_down_is_an_error_and_the_next_call_after_its_return_works() {
    let mut setup = setup(Credentials::Own(None));
    let mut pipe = Pipe::open(&setup, Era::Modern).await;
    assert_eq!(pipe.call("list_threads", json!({})).await["isError"], false);
    setup.server.kill();
    std::fs::remove_file(setup.dir.path().join("service.sock")).unwrap();
    let result = pipe
        .call(
            "store_context",
            json!({"thread_id": "t", "source": "user", "text": "x"}),
        )
        .await;
    assert_eq!(result["isError"], true);
    assert_eq!(text(&result)["reason"], "STORE_UNAVAILABLE");
    let said = text(&result)["error"].as_str().unwrap().to_owned();
    assert!(
        said.contains("cannot be reached") || said.contains("may or may not have been made"),
        "{said}"
    );
    let said = text(&pipe.call("list_threads", json!({})).await)["error"]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(said.contains("cannot be reached"), "{said}");
    let (_, _server) = setup.fake.serve(setup.dir.path());
    assert_eq!(pipe.call("list_threads", json!({})).await["isError"], false);
    assert_eq!(
        pipe.call(
            "store_context",
            json!({"thread_id": "t", "source": "user", "text": "x"})
        )
        .await["isError"],
        false
    );
}

#[tokio::test]
async fn a_read_during_a_restart_waits_for_the_service() {
    let mut setup = setup(Credentials::Own(None));
    let mut pipe = Pipe::open(&setup, Era::Modern).await;
    setup.server.kill();
    let socket = setup.dir.path().join("service.sock");
    std::fs::remove_file(&socket).unwrap();
    // The first attempt reaches a service that ends without a response.
    let ending = tokio::net::UnixListener::bind(&socket).unwrap();
    let id = pipe
        .start(
            "tools/call",
            json!({"name": "list_threads", "arguments": {}}),
        )
        .await;
    drop(ending.accept().await.unwrap());
    drop(ending);
    let (_, _server) = setup.fake.serve(setup.dir.path());
    let reply = pipe.line().await.unwrap();
    assert_eq!(
        (reply["id"].as_u64(), &reply["result"]["isError"]),
        (Some(id), &json!(false)),
        "{reply}"
    );
}

#[tokio::test]
async fn a_cancelled_call_is_given_up_in_the_service_too() {
    let setup = setup(Credentials::Own(None));
    let mut pipe = Pipe::open(&setup, Era::Legacy("2025-11-25")).await;
    setup.fake.behave(Behaviour::Hang);
    let id = pipe
        .start(
            "tools/call",
            json!({"name": "list_threads", "arguments": {}}),
        )
        .await;
    setup.fake.arrived().await;
    pipe.send(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}})).await;
    setup.fake.cancelled().await;
    setup.fake.behave(Behaviour::Respond);
    assert_eq!(pipe.call("list_threads", json!({})).await["isError"], false);
}

#[tokio::test]
async fn calls_that_wait_do_not_block_the_others() {
    let setup = setup(Credentials::Own(None));
    setup.fake.behave(Behaviour::Hang);
    let backend = setup.gateway.backend();
    let mut waiting = JoinSet::new();
    // More than the service takes on one connection.
    for _ in 0..300 {
        let mut client = backend.contexts();
        waiting.spawn(async move { client.list_threads(ListThreadsRequest::default()).await });
    }
    until("every call arrives", async || {
        setup.fake.seen().len() == 300
    })
    .await;
    setup.fake.behave(Behaviour::Respond);
    assert!(backend.is_ready(Duration::from_secs(10)).await);
    let mut client = backend.contexts();
    let call = client.list_threads(ListThreadsRequest::default());
    let reply = tokio::time::timeout(Duration::from_secs(10), call).await;
    assert!(reply.unwrap().is_ok());
}
