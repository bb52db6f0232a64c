//! All arguments of a client arrive in the service, and all of the service's reply arrives at the client.

use context_gateway::catalogue::Catalogue;
use context_gateway::handler::Credentials;
use serde_json::{Value, json};

use crate::fake::{sample, setup};
use crate::session::{ERAS, Era, Pipe, exchange, post, router, text};

/// For each tool, arguments with every parameter and arguments with few. `update_context` has `metadata_patch` in the
/// first and `metadata` in the second, because the two exclude each other.
fn corpus() -> Vec<(&'static str, Value, Value)> {
    let image = json!({"data": "AAECAw==", "mime_type": "image/jpeg", "metadata": {"w": 640}});
    let metadata = json!({"n": 9_007_199_254_740_993_i64, "f": 1.0, "null": null, "list": [1, "a", {"x": false}], "string": "[1]"});
    let filters = json!({"thread_id": "t", "source": "user", "tags": ["a", "b"], "content_type": "text", "metadata": metadata,
        "metadata_filters": [{"key": "a.b", "operator": "in", "value": [1, "x", true, 2.5], "case_sensitive": true},
            {"key": "c", "operator": "exists"}, {"key": "d", "value": "[not a list]"}],
        "start_date": "2026-01-01", "end_date": "2026-12-31T23:59:59+02:00", "limit": 100, "offset": 7, "include_images": true,
        "explain_query": true});
    let with = |more: Value| {
        let mut all = filters.clone();
        all.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        all
    };
    let entry = json!({"thread_id": "t", "source": "agent", "text": "{\"a\": 1}", "images": [image], "metadata": metadata, "tags": ["x"]});
    let update = json!({"context_id": 9_007_199_254_740_991_i64, "text": "[]", "metadata_patch": {"gone": null}, "tags": [], "images": [],
        "expected_version": 3});
    let small_entry = json!({"thread_id": "t", "source": "user", "text": "x"});
    vec![
        ("store_context", entry.clone(), small_entry.clone()),
        (
            "store_context_batch",
            json!({"entries": [entry, small_entry], "atomic": false}),
            json!({"entries": [small_entry]}),
        ),
        (
            "get_context_by_ids",
            json!({"context_ids": [3, 1], "include_images": false}),
            json!({"context_ids": [1]}),
        ),
        (
            "update_context",
            update.clone(),
            json!({"context_id": 1, "metadata": {}}),
        ),
        (
            "update_context_batch",
            json!({"updates": [update], "atomic": true}),
            json!({"updates": [{"context_id": 1, "text": "x"}]}),
        ),
        (
            "delete_context",
            json!({"context_ids": [1, 2], "thread_id": "t"}),
            json!({"thread_id": "t"}),
        ),
        (
            "delete_context_batch",
            json!({"context_ids": [1], "thread_ids": ["t"], "source": "user", "older_than_days": 30}),
            json!({"older_than_days": 1}),
        ),
        ("search_context", filters.clone(), json!({})),
        (
            "semantic_search_context",
            with(json!({"query": "q", "min_relevance": 0.5})),
            json!({"query": "q"}),
        ),
        (
            "fts_search_context",
            with(json!({"query": "q", "mode": "boolean", "highlight": true})),
            json!({"query": "q"}),
        ),
        (
            "hybrid_search_context",
            with(
                json!({"query": "q", "search_modes": ["fts"], "include": ["contexts", "artifacts"], "fusion_method": "rrf", "rrf_k": 60, "min_relevance": 0.5, "highlight": true}),
            ),
            json!({"query": "q"}),
        ),
        (
            "list_threads",
            json!({"limit": 10, "offset": 20}),
            json!({}),
        ),
        ("get_statistics", json!({}), json!({})),
        (
            "create_artifact",
            json!({"content": "# T\n[1]", "title": "5", "metadata": metadata, "path": "/p"}),
            json!({"content": "x"}),
        ),
        (
            "list_artifacts",
            json!({"limit": 50, "offset": 3, "cursor": "c", "path_prefix": "/", "metadata_filters": [{"key": "a"}]}),
            json!({}),
        ),
        (
            "search_artifacts",
            json!({"query": "100%", "limit": 1, "mode": "ranked", "metadata_filters": [{"key": "a", "value": 1}]}),
            json!({"query": "q"}),
        ),
        (
            "get_artifact",
            json!({"artifact_id": "a"}),
            json!({"artifact_id": "a"}),
        ),
        (
            "update_artifact",
            json!({"artifact_id": "a", "title": "", "content": "c", "metadata": {}, "path": "", "expected_version": 2, "return_content": false,
                "edits": [{"old_str": "x", "new_str": ""}, {"insert_line": 0, "new_str": "y"}]}),
            json!({"artifact_id": "a", "title": "t"}),
        ),
        (
            "delete_artifact",
            json!({"artifact_id": "a"}),
            json!({"artifact_id": "a"}),
        ),
        (
            "list_artifact_versions",
            json!({"artifact_id": "a"}),
            json!({"artifact_id": "a"}),
        ),
        (
            "get_artifact_version",
            json!({"artifact_id": "a", "version_number": 2}),
            json!({"artifact_id": "a", "version_number": 1}),
        ),
        (
            "restore_artifact_version",
            json!({"artifact_id": "a", "version_number": 2}),
            json!({"artifact_id": "a", "version_number": 1}),
        ),
        (
            "changes_since",
            json!({"cursor": "c", "limit": 5, "wait_ms": 100, "thread_id": "t", "source": "user", "tags": ["a"],
                "entity": "context", "preview_chars": 0}),
            json!({}),
        ),
        (
            "diff_artifact_versions",
            json!({"artifact_id": "a", "from_version": 1, "to_version": 2}),
            json!({"artifact_id": "a", "from_version": 1}),
        ),
    ]
}

/// The request that the service should receive: the arguments, and MCP's own default where it differs from the
/// service's.
fn expected_request(tool: &str, arguments: &Value) -> Value {
    let mut expected = arguments.clone();
    if tool == "list_threads" && arguments.get("limit").is_none() {
        expected["limit"] = json!(50);
    }
    if tool == "changes_since" && arguments.get("preview_chars").is_none() {
        expected["preview_chars"] = json!(120);
    }
    expected
}

/// The recorded request without its null members.
fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(members) => {
            // Some request types serialize absent optional fields as null.
            Value::Object(
                members
                    .iter()
                    .filter(|(_, v)| !v.is_null())
                    .map(|(k, v)| (k.clone(), v.clone()))
                    .collect(),
            )
        }
        other => other.clone(),
    }
}

#[test]
fn the_fullest_arguments_use_every_parameter_of_every_tool() {
    let corpus = corpus();
    for tool in Catalogue::get().tools() {
        let (_, full, small) = corpus
            .iter()
            .find(|(name, _, _)| *name == tool.name)
            .unwrap();
        let exclusive = |name: &str| tool.name == "update_context" && name == "metadata";
        for name in tool.input_schema["properties"]
            .as_object()
            .unwrap()
            .keys()
            .filter(|name| !exclusive(name))
        {
            assert!(
                full.get(name).is_some(),
                "{} is called without {name}",
                tool.name
            );
        }
        for required in tool
            .input_schema
            .get("required")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
        {
            assert!(small.get(required.as_str().unwrap()).is_some());
        }
    }
}

#[tokio::test]
async fn each_call_is_one_request_that_carries_everything_over_every_revision_on_http() {
    for era in ERAS {
        let setup = setup(Credentials::Callers);
        let router = router(&setup);
        // After the first call the gateway requests statistics itself, to learn which features are off. It does not
        // when that call was `get_statistics`. Otherwise that request would be counted below.
        let statistics = era.request(
            1,
            "tools/call",
            json!({"name": "get_statistics", "arguments": {}}),
        );
        exchange(&router, post(era, &statistics)).await;
        let mut calls = 1;
        for (tool, full, small) in corpus() {
            for arguments in [full, small] {
                // HTTP has no sessions, so no `initialize` is needed.
                let message = era.request(
                    1,
                    "tools/call",
                    json!({"name": tool, "arguments": arguments}),
                );
                let (status, reply) = exchange(&router, post(era, &message)).await;
                assert_eq!(status, 200, "{era:?} {tool} {reply}");
                check(tool, &reply["result"]);
                calls += 1;
                let seen = setup.fake.seen();
                assert_eq!(seen.len(), calls, "{tool} made one request");
                assert_eq!(seen[calls - 1].operation, tool);
                assert_eq!(
                    without_nulls(&seen[calls - 1].request),
                    expected_request(tool, &arguments),
                    "{era:?}"
                );
            }
        }
    }
}

#[tokio::test]
async fn each_call_is_one_request_that_carries_everything_over_stdio() {
    for era in [Era::Legacy("2025-11-25"), Era::Modern] {
        let setup = setup(Credentials::Own(None));
        let mut pipe = Pipe::open(&setup, era).await;
        pipe.call("get_statistics", json!({})).await;
        let mut calls = setup.fake.seen().len();
        for (tool, full, small) in corpus() {
            for arguments in [full, small] {
                let result = pipe.call(tool, arguments.clone()).await;
                check(tool, &result);
                calls += 1;
                let seen = setup.fake.seen();
                assert_eq!(seen.len(), calls, "{era:?} {tool} made one request");
                assert_eq!(seen[calls - 1].operation, tool);
                assert_eq!(
                    without_nulls(&seen[calls - 1].request),
                    expected_request(tool, &arguments),
                    "{era:?} {tool}"
                );
            }
        }
        pipe.close().await.unwrap();
    }
}

/// Checks that the result is the service's reply, fits the tool's output schema, and has the same content as text. The
/// text of a tool that is documented to return a list is that list alone.
fn check(tool: &str, result: &Value) {
    assert_eq!(result["isError"], false, "{result}");
    let expected = without_absent(sample(tool));
    assert_eq!(result["structuredContent"], expected, "{tool}");
    let lists = ["get_context_by_ids", "list_artifacts", "search_artifacts"];
    let documented = if lists.contains(&tool) {
        expected["result"].clone()
    } else {
        expected
    };
    assert_eq!(text(result), documented, "{tool}");
    let schema = Catalogue::get()
        .find(tool)
        .unwrap()
        .output_schema
        .clone()
        .unwrap();
    let validator = jsonschema::validator_for(&Value::Object((*schema).clone())).unwrap();
    if let Err(error) = validator.validate(&result["structuredContent"]) {
        panic!("{tool}: {error} at {}", error.instance_path());
    }
    assert_eq!(
        result["_meta"]["io.modelcontextprotocol/serverInfo"]["name"],
        "context-gateway"
    );
}

/// Removes the null `updated_fields` of the sample batch results. The gateway leaves them out.
fn without_absent(mut reply: Value) -> Value {
    for result in reply
        .get_mut("results")
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
    {
        if result.get("updated_fields").is_some_and(Value::is_null) {
            result
                .as_object_mut()
                .unwrap()
                .shift_remove("updated_fields");
        }
    }
    reply
}

#[tokio::test]
async fn arguments_sent_as_strings_and_nulls_reach_the_service_typed() {
    let setup = setup(Credentials::Own(None));
    let mut pipe = Pipe::open(&setup, Era::Modern).await;
    let sent = json!({"thread_id": "t", "source": "user", "text": "x", "tags": "[\"a\"]", "metadata": "{\"n\": 1}", "images": null});
    pipe.call("store_context", sent).await;
    let expected = json!({"thread_id": "t", "source": "user", "text": "x", "metadata": {"n": 1}, "tags": ["a"]});
    assert_eq!(without_nulls(&setup.fake.seen()[0].request), expected);
}
