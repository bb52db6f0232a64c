//! The stdio transport: requests in both forms of the protocol, credentials, notifications, and the end.

use context_gateway::handler::Credentials;
use context_model::{Error, Reason};
use context_proto::status_from_error;
use serde_json::{Value, json};
use tonic::Code;

use crate::fake::{ARTIFACT, Behaviour, setup};
use crate::session::{ERAS, Era, Pipe, UNREADABLE, budget};

#[tokio::test]
async fn every_revision_lists_tools_prompts_and_resources_without_the_service() {
    for era in ERAS {
        let mut setup = setup(Credentials::Own(None));
        setup.server.kill();
        let mut pipe = Pipe::open(&setup, era).await;
        for (method, key, count) in [
            ("tools/list", "tools", 23),
            ("prompts/list", "prompts", 2),
            ("resources/list", "resources", 0),
            ("resources/templates/list", "resourceTemplates", 3),
        ] {
            let result = pipe.request(method, json!({})).await["result"].clone();
            assert_eq!(
                result[key].as_array().unwrap().len(),
                count,
                "{era:?} {method}"
            );
            assert!(result["ttlMs"].as_u64().unwrap() > 0);
            assert_eq!(
                result["_meta"]["io.modelcontextprotocol/serverInfo"]["version"],
                env!("CARGO_PKG_VERSION")
            );
            let refused = pipe.request(method, json!({"cursor": "x"})).await;
            assert_eq!(refused["error"]["code"], -32602, "{method} has one page");
        }
        let completion = json!({"ref": {"type": "ref/prompt", "name": "recall"}, "argument": {"name": "topic", "value": ""}});
        assert_eq!(
            pipe.request("completion/complete", completion).await["error"]["code"],
            -32601
        );
        pipe.close().await.unwrap();
    }
}

#[tokio::test]
async fn the_own_key_and_the_trace_go_with_every_call() {
    let setup = setup(Credentials::own(Some("sk_prod_x")).unwrap());
    let mut pipe = Pipe::open(&setup, Era::Legacy("2025-11-25")).await;
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    pipe.request(
        "tools/call",
        json!({"name": "list_threads", "arguments": {}, "_meta": {"traceparent": trace}}),
    )
    .await;
    let seen = setup.fake.seen().swap_remove(0);
    assert_eq!(
        seen.metadata.get("authorization").unwrap(),
        "Bearer sk_prod_x"
    );
    assert_eq!(seen.metadata.get("traceparent").unwrap(), trace);
    assert!(seen.metadata.get("grpc-timeout").is_some());
}

#[tokio::test]
async fn a_client_that_leaves_ends_the_gateway_even_before_its_first_word() {
    let setup = setup(Credentials::Own(None));
    Pipe::open(&setup, Era::Modern).await.close().await.unwrap();
    let (client, server) = tokio::io::duplex(64);
    drop(client);
    let (reader, writer) = tokio::io::split(server);
    let stop = tokio_util::sync::CancellationToken::new();
    context_gateway::stdio::serve_on(setup.gateway.clone(), reader, writer, 1024, budget(), stop)
        .await
        .unwrap();
}

#[tokio::test]
async fn the_stop_signal_ends_the_gateway() {
    let setup = setup(Credentials::Own(None));
    let pipe = Pipe::open(&setup, Era::Legacy("2025-11-25")).await;
    pipe.stop.cancel();
    pipe.serving.await.unwrap().unwrap();
}

#[tokio::test]
async fn calls_sent_together_run_together() {
    let setup = setup(Credentials::Own(None));
    let mut pipe = Pipe::open(&setup, Era::Modern).await;
    setup.fake.behave(Behaviour::Hang);
    let slow = pipe
        .start(
            "tools/call",
            json!({"name": "get_statistics", "arguments": {}}),
        )
        .await;
    setup.fake.arrived().await;
    setup.fake.behave(Behaviour::Respond);
    let quick = pipe
        .request(
            "tools/call",
            json!({"name": "list_threads", "arguments": {}}),
        )
        .await;
    assert!(quick["id"].as_u64().unwrap() > slow);
}

#[tokio::test]
async fn a_change_of_features_is_announced_and_shows_in_the_list() {
    let setup = setup(Credentials::Own(None));
    let mut pipe = Pipe::open(&setup, Era::Legacy("2025-11-25")).await;
    let names = |reply: Value| -> Vec<String> {
        reply["result"]["tools"]
            .as_array()
            .unwrap()
            .iter()
            .map(|tool| tool["name"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(names(pipe.request("tools/list", json!({})).await).len(), 23);
    // Only the gateway itself requests statistics here, after the first response.
    setup.fake.behave(Behaviour::Features(true, false, false));
    pipe.start(
        "tools/call",
        json!({"name": "list_threads", "arguments": {}}),
    )
    .await;
    let both = [pipe.line().await.unwrap(), pipe.line().await.unwrap()];
    assert!(
        both.iter()
            .any(|message| message["method"] == "notifications/tools/list_changed"),
        "{both:?}"
    );
    let listed = names(pipe.request("tools/list", json!({})).await);
    assert_eq!(listed.len(), 21);
    for hidden in ["semantic_search_context", "hybrid_search_context"] {
        assert!(!listed.contains(&hidden.to_owned()), "{hidden}");
    }
}

#[tokio::test]
async fn a_subscriber_of_the_modern_era_hears_of_the_change() {
    let setup = setup(Credentials::Own(None));
    let mut pipe = Pipe::open(&setup, Era::Modern).await;
    pipe.start(
        "subscriptions/listen",
        json!({"notifications": {"toolsListChanged": true}}),
    )
    .await;
    let acknowledged = pipe.line().await.unwrap();
    assert_eq!(
        acknowledged["method"], "notifications/subscriptions/acknowledged",
        "{acknowledged}"
    );
    setup.fake.behave(Behaviour::Features(false, false, false));
    pipe.start(
        "tools/call",
        json!({"name": "get_statistics", "arguments": {}}),
    )
    .await;
    let both = [pipe.line().await.unwrap(), pipe.line().await.unwrap()];
    assert!(
        both.iter()
            .any(|message| message["method"] == "notifications/tools/list_changed"),
        "{both:?}"
    );
}

#[tokio::test]
async fn entries_threads_and_artifacts_are_resources_and_everything_else_is_not_found() {
    let setup = setup(Credentials::Own(None));
    for (era, code) in [(Era::Legacy("2025-11-25"), -32002), (Era::Modern, -32602)] {
        let mut pipe = Pipe::open(&setup, era).await;
        // Otherwise the gateway would request statistics itself after the first read, perhaps as the last request.
        pipe.call("get_statistics", json!({})).await;
        let reply = pipe
            .request("resources/read", json!({"uri": "context://entries/42"}))
            .await;
        let entry: Value =
            serde_json::from_str(reply["result"]["contents"][0]["text"].as_str().unwrap()).unwrap();
        assert_eq!(entry["id"], 42);
        let artifact = format!("context://artifacts/{ARTIFACT}");
        for (uri, operation, field) in [
            ("context://threads/a%2Fb", "search_context", "thread_id"),
            (artifact.as_str(), "get_artifact", "artifact_id"),
        ] {
            let reply = pipe.request("resources/read", json!({ "uri": uri })).await;
            assert!(
                reply["result"]["contents"][0]["text"].is_string(),
                "{reply}"
            );
            let seen = setup.fake.seen().pop().unwrap();
            assert_eq!(seen.operation, operation);
            let named = if field == "thread_id" {
                "a/b"
            } else {
                ARTIFACT
            };
            assert_eq!(seen.request[field], named);
        }
        for (uri, reason) in [
            ("context://entries/0", "CONTEXT_NOT_FOUND"),
            ("context://entries/x", "CONTEXT_NOT_FOUND"),
            ("context://entries/", "CONTEXT_NOT_FOUND"),
            ("file:///etc/passwd", "NOT_FOUND"),
            (
                "context://entries/99999999999999999999",
                "CONTEXT_NOT_FOUND",
            ),
            ("context://threads/", "CONTEXT_NOT_FOUND"),
            ("context://threads/%ff", "CONTEXT_NOT_FOUND"),
            ("context://artifacts", "NOT_FOUND"),
            ("context://artifacts/x", "ARTIFACT_NOT_FOUND"),
        ] {
            let error =
                pipe.request("resources/read", json!({ "uri": uri })).await["error"].clone();
            let data = &error["data"];
            assert_eq!(
                (
                    error["code"].as_i64(),
                    data["uri"].as_str(),
                    data["reason"].as_str()
                ),
                (Some(code), Some(uri), Some(reason))
            );
        }
        // The service does not know this one.
        let unknown = Error::new(Reason::ArtifactNotFound, "not found");
        let status = status_from_error(&unknown, Code::NotFound);
        setup.fake.behave(Behaviour::Fail(status));
        let reply = pipe
            .request("resources/read", json!({ "uri": artifact }))
            .await;
        assert_eq!(
            reply["error"]["data"]["reason"], "ARTIFACT_NOT_FOUND",
            "{reply}"
        );
        setup.fake.behave(Behaviour::Respond);
    }
}

#[tokio::test]
async fn a_message_that_must_not_be_parsed_is_answered_and_the_next_one_served() {
    let setup = setup(Credentials::Own(None));
    for era in [Era::Legacy("2025-11-25"), Era::Modern] {
        let mut pipe = Pipe::open(&setup, era).await;
        let values = json!({"name": "store_context", "arguments": {"metadata": {"list": vec![0; 1_100_000]}}});
        let error = pipe.request("tools/call", values).await["error"].clone();
        assert_eq!(error["code"], -32600);
        assert!(
            error["message"]
                .as_str()
                .unwrap()
                .contains("more than 1000000 values"),
            "{error}"
        );
        let wide = "{\"jsonrpc\":\"2.0\",\"method\":\"tools/call\",\"params\":{\"name\":\"store_context\",\"arguments\":{\"metadata\":{\"n\":18446744073709551616}}},\"id\":\"wide\"}";
        pipe.send_raw(wide).await;
        let reply = pipe.line().await.unwrap();
        assert_eq!(reply["id"], "wide");
        assert!(
            reply["error"]["message"]
                .as_str()
                .unwrap()
                .contains("18446744073709551616"),
            "{reply}"
        );
        assert_eq!(pipe.call("list_threads", json!({})).await["isError"], false);
    }
    assert!(
        setup
            .fake
            .seen()
            .iter()
            .all(|seen| seen.operation != "store_context"),
        "the refused calls never reached the service"
    );
}

#[tokio::test]
async fn two_calls_with_one_id_make_no_internal_error() {
    let setup = setup(Credentials::Own(None));
    let mut pipe = Pipe::open(&setup, Era::Legacy("2025-11-25")).await;
    setup.fake.behave(Behaviour::Hang);
    let call = json!({"jsonrpc": "2.0", "id": "a", "method": "tools/call", "params": {"name": "search_context", "arguments": {}}});
    pipe.send(&call).await;
    setup.fake.arrived().await;
    let bad = json!({"jsonrpc": "2.0", "id": "a", "method": "tools/call", "params": {"name": "search_context", "arguments": {"x": 1}}});
    pipe.send(&bad).await;
    let reply = pipe.line().await.unwrap();
    assert_eq!(reply["id"], "a", "{reply}");
    assert!(reply["error"]["code"] != -32603, "{reply}");
    setup.fake.behave(Behaviour::Respond);
    assert_eq!(pipe.call("list_threads", json!({})).await["isError"], false);
}

#[tokio::test]
async fn every_request_that_cannot_be_read_is_answered_with_its_id() {
    let setup = setup(Credentials::Own(None));
    let mut pipe = Pipe::open(&setup, Era::Legacy("2025-11-25")).await;
    for (message, code) in UNREADABLE {
        pipe.send_raw(message).await;
        let reply = pipe.line().await.unwrap();
        assert_eq!(
            (reply["id"].as_str(), reply["error"]["code"].as_i64()),
            (Some("ID"), Some(code)),
            "{message}\n{reply}"
        );
    }
    pipe.send_raw(r#"{"jsonrpc":"2.0","id":1.5,"method":"ping"}"#)
        .await;
    assert_eq!(pipe.line().await.unwrap()["id"], 1.5);
    pipe.send_raw(r#"{"jsonrpc":"2.0","id":2,"method":"server/discover"}"#)
        .await;
    assert_eq!(pipe.line().await.unwrap()["error"]["code"], -32602);
    pipe.send_raw("5").await;
    assert_eq!(pipe.line().await.unwrap()["error"]["code"], -32600);
    // Neither line is a request, so neither gets a response. If two peers sent each other errors about lines that are
    // not JSON, they would never stop.
    pipe.send_raw("no json\n\n{\"jsonrpc\":\"2.0\",\"method\":\"$/progress\",\"params\":1}")
        .await;
    assert_eq!(pipe.call("list_threads", json!({})).await["isError"], false);
    pipe.close().await.unwrap();
}

#[tokio::test]
async fn nothing_more_is_read_from_a_client_that_leaves_its_replies_unread_and_nothing_is_lost() {
    const REQUESTS: usize = 5000;
    let setup = setup(Credentials::Own(None));
    let mut pipe = Pipe::open(&setup, Era::Legacy("2025-11-25")).await;
    let mut sent = 0;
    while sent < REQUESTS {
        // Requests are padded, so that the pipe of 1 MiB holds only about 250.
        let request = pipe.start(
            "tools/list",
            json!({"_meta": {"padding": "x".repeat(4000)}}),
        );
        // The gateway reads no more, however long the client waits. Three seconds are enough on any machine.
        if tokio::time::timeout(std::time::Duration::from_secs(3), request)
            .await
            .is_err()
        {
            break;
        }
        sent += 1;
    }
    assert!(sent < REQUESTS, "replies of {REQUESTS} requests are held");
    for _ in 0..sent {
        assert!(pipe.line().await.unwrap()["result"]["tools"].is_array());
    }
}

/// The lines that the gateway writes for this input after `initialize`, when the client then closes stdin. A message
/// may have at most 1024 bytes.
async fn written_for(input: &str) -> Vec<Value> {
    let setup = setup(Credentials::Own(None));
    let (client, server) = tokio::io::duplex(1024 * 1024);
    let (reader, writer) = tokio::io::split(server);
    let start = concat!(
        r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}"#,
        "\n",
        r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
        "\n",
    );
    let (mut output, mut client) = tokio::io::split(client);
    tokio::io::AsyncWriteExt::write_all(&mut client, format!("{start}{input}").as_bytes())
        .await
        .unwrap();
    tokio::io::AsyncWriteExt::shutdown(&mut client)
        .await
        .unwrap();
    let stop = tokio_util::sync::CancellationToken::new();
    context_gateway::stdio::serve_on(setup.gateway.clone(), reader, writer, 1024, budget(), stop)
        .await
        .unwrap();
    let mut text = String::new();
    tokio::io::AsyncReadExt::read_to_string(&mut output, &mut text)
        .await
        .unwrap();
    let mut lines = text
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    assert_eq!(lines.next().unwrap()["id"], 1);
    lines.collect()
}

#[tokio::test]
async fn the_answer_to_a_last_bad_line_is_written_before_the_end() {
    let bad = r#"{"jsonrpc":"2.0","id":"last","method":"tools/call","params":5}"#;
    for end in ["\n", ""] {
        let written = written_for(&format!("{bad}{end}")).await;
        assert_eq!(written.len(), 1, "{written:?}");
        assert_eq!(
            (&written[0]["id"], &written[0]["error"]["code"]),
            (&json!("last"), &json!(-32602))
        );
    }
}

#[tokio::test]
async fn a_last_line_without_a_line_break_is_a_message_and_half_a_message_is_none() {
    let call =
        r#"{"jsonrpc":"2.0","id":"last","method":"tools/call","params":{"name":"list_threads"}}"#;
    let written = written_for(call).await;
    let replies: Vec<&Value> = written
        .iter()
        .filter(|line| !line["id"].is_null())
        .collect();
    assert_eq!(replies.len(), 1, "{written:?}");
    assert_eq!(
        (&replies[0]["id"], &replies[0]["result"]["isError"]),
        (&json!("last"), &json!(false))
    );
    let written = written_for(&call[..call.len() - 1]).await;
    assert!(written.is_empty(), "{written:?}");
}

#[tokio::test]
async fn a_message_of_the_largest_size_is_read_and_a_larger_one_is_refused() {
    let ping = r#"{"jsonrpc":"2.0","id":"ping","method":"ping"}"#;
    for (bytes, code) in [(1024, None), (1025, Some(-32600))] {
        for end in ["\n", ""] {
            let written = written_for(&format!("{ping:bytes$}{end}")).await;
            assert_eq!(written.len(), 1, "{written:?}");
            let seen = (
                written[0]["id"].as_str(),
                written[0]["error"]["code"].as_i64(),
            );
            assert_eq!(seen, (Some("ping"), code), "{bytes} {end:?}");
        }
    }
    let long = format!(
        r#"{{"jsonrpc":"2.0","id":"long","method":"{}"#,
        "x".repeat(2000)
    );
    let written = written_for(&long).await;
    assert_eq!(written.len(), 1, "{written:?}");
    assert_eq!(
        (&written[0]["id"], &written[0]["error"]["code"]),
        (&json!("long"), &json!(-32600))
    );
}
