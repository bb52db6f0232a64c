//! Keys through the gateway: 401 and 403 for HTTP clients, and the documented sentences on stdio. No transport reveals
//! content of another owner.

use std::time::Duration;

use context_model::Operation;
use context_parity::keys::{Gateway, KeyedService};
use context_parity::{Answer, Storage};
use context_test_support::{from_now, until};
use prost::Message as _;
use prost_types::FileDescriptorSet;
use serde_json::{Value, json};

const REQUIRED: &str = "Authentication required. Please provide a valid API key.";

/// The scope that a tool needs, by the start of its name.
fn scope(tool: &str) -> &'static str {
    match tool.split('_').next().unwrap_or_default() {
        "delete" => "delete",
        "store" | "create" | "update" | "restore" | "move" => "write",
        _ => "read",
    }
}

/// All operations on content, read from the gRPC descriptor, so that the tests include each new one.
fn operations() -> Vec<String> {
    let descriptors =
        FileDescriptorSet::decode(context_proto::FILE_DESCRIPTOR_SET).expect("descriptors");
    let services = descriptors
        .file
        .iter()
        .flat_map(|file| &file.service)
        .filter(|service| service.name() != "ApiKeyService");
    let methods = services
        .flat_map(|service| &service.method)
        .filter(|method| !method.server_streaming());
    methods
        .map(|method| {
            let operation = Operation::ALL
                .iter()
                .find(|operation| operation.method() == method.name());
            operation
                .unwrap_or_else(|| panic!("{} is no operation", method.name()))
                .as_str()
                .to_owned()
        })
        .collect()
}

fn is_tool(operation: &str) -> bool {
    Operation::parse(operation).is_some_and(Operation::is_tool)
}

/// An expiry that is imminent, but later than the key's creation, which starts a program.
fn soon() -> String {
    from_now(Duration::from_secs(20)).to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_tool_is_guarded_over_http() {
    check_that_tools_are_guarded(Storage::Sqlite).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_tool_is_guarded_over_http_on_postgresql() {
    if context_test_postgres::server().is_some() {
        check_that_tools_are_guarded(Storage::Postgres).await;
    }
}

async fn check_that_tools_are_guarded(storage: Storage) {
    let service = KeyedService::start_on(storage, &[]).await;
    let gateway = Gateway::http(&service).await;
    let mut tools = gateway.tools(&service.key("lists", &["read"]).await).await;
    tools.sort_unstable();
    let mut operations = operations();
    operations.retain(|operation| is_tool(operation));
    operations.sort_unstable();
    assert_eq!(tools, operations);
    let expired = format!(
        "Bearer {}",
        service.key_with("expired", &["--expires", &soon()]).await
    );
    let before = gateway.call("list_threads", Some(&expired)).await;
    assert_eq!(before.status, 200, "it has not expired: {}", before.body);
    let artifacts = service
        .key_with("artifacts", &["--only", "artifacts"])
        .await;
    let threads = service.key_with("threads", &["--threads", "one"]).await;
    until("the key has expired", async || {
        gateway.call("list_threads", Some(&expired)).await.status == 401
    })
    .await;

    let revoked = service.key("revoked", &["read", "write", "delete"]).await;
    service.revoke("revoked").await;
    let unknown = format!("sk_prod_{}", "x".repeat(32));
    let all = service.key("all", &["read", "write", "delete"]).await;
    let other = service
        .key_of("other-owner", "all", &["read", "write", "delete"])
        .await;
    let mut scoped = Vec::new();
    for scope in ["read", "write", "delete", "manage"] {
        scoped.push((scope, service.key(scope, &[scope]).await));
    }
    let metadata = format!(
        "resource_metadata=\"http://{}/.well-known/oauth-protected-resource/mcp\"",
        gateway.address
    );
    for tool in &tools {
        for authorization in [
            None,
            Some("Bearer nonsense".to_owned()),
            Some(format!("Bearer {unknown}")),
            Some(format!("Bearer {revoked}")),
            Some(expired.clone()),
        ] {
            let reply = gateway.call(tool, authorization.as_deref()).await;
            assert_eq!(
                (reply.status, &reply.body),
                (401, &json!({ "error": REQUIRED })),
                "{tool} with {authorization:?}"
            );
            assert!(reply.challenge.contains(&metadata), "{}", reply.challenge);
            assert_eq!(
                reply.challenge.contains("error=\"invalid_token\""),
                authorization.is_some(),
                "{}",
                reply.challenge
            );
        }
        for (scope_held, key) in &scoped {
            let reply = gateway.call(tool, Some(&format!("Bearer {key}"))).await;
            if *scope_held == scope(tool) {
                assert_eq!(reply.status, 200, "{tool} with {scope_held}");
                assert!(
                    !reply.text().contains("which the credentials do not carry"),
                    "{tool}: {}",
                    reply.text()
                );
            } else {
                assert_eq!(reply.status, 403, "{tool} with {scope_held}");
                let expected = format!("error=\"insufficient_scope\", scope=\"{}\"", scope(tool));
                assert!(reply.challenge.contains(&expected), "{}", reply.challenge);
            }
        }
        for (only, key) in [("artifacts", &artifacts), ("contexts", &threads)] {
            let reply = gateway.call(tool, Some(&format!("Bearer {key}"))).await;
            let sentence =
                format!("the credentials are narrowed to {only} and do not reach this operation");
            let about = if tool.contains("artifact") {
                "artifacts"
            } else {
                "contexts"
            };
            assert_eq!(
                (reply.status, reply.text().contains(&sentence)),
                // A list of changes has the changes that the key reaches.
                (200, about != only && tool != "changes_since"),
                "{tool}: {}",
                reply.text()
            );
        }
        for key in [&all, &other] {
            // The documentation describes clients that send the key alone.
            for authorization in [format!("Bearer {key}"), key.clone()] {
                let reply = gateway.call(tool, Some(&authorization)).await;
                assert!(
                    reply.status == 200 && !reply.text().contains(REQUIRED),
                    "{tool}: {}",
                    reply.text()
                );
            }
        }
    }
}

/// A request that might reveal content of another owner. It names that content's id if the operation takes an id.
fn probe(operation: &str, context_id: i64, artifact_id: &str) -> Value {
    match operation {
        "store_context" => json!({"thread_id": "t", "source": "user", "text": "canary"}),
        "store_context_batch" => {
            json!({"entries": [{"thread_id": "t", "source": "user", "text": "canary"}]})
        }
        "get_context_by_ids" | "delete_context" | "delete_context_batch" => {
            json!({"context_ids": [context_id]})
        }
        "update_context" => json!({"context_id": context_id, "text": "changed"}),
        "update_context_batch" => {
            json!({"updates": [{"context_id": context_id, "text": "changed"}]})
        }
        "get_thread" => json!({"thread_id": "t"}),
        "list_metadata_values" => json!({"key": "project"}),
        "search_context" | "list_threads" | "list_tags" | "list_metadata_keys" | "list_days"
        | "get_statistics" | "list_artifacts" | "changes_since" => json!({}),
        "fts_search_context"
        | "semantic_search_context"
        | "hybrid_search_context"
        | "search_artifacts" => json!({"query": "canary"}),
        "create_artifact" => {
            json!({"title": "Canary", "content": "canary", "path": "/canary"})
        }
        "get_artifact" | "delete_artifact" | "list_artifact_versions" => {
            json!({"artifact_id": artifact_id})
        }
        "move_artifacts" => json!({"path": "/canary", "to": "/moved"}),
        "delete_artifacts" => json!({"path": "/canary"}),
        "update_artifact" => json!({"artifact_id": artifact_id, "content": "changed"}),
        "get_artifact_version" | "restore_artifact_version" => {
            json!({"artifact_id": artifact_id, "version_number": 1})
        }
        "diff_artifact_versions" => {
            json!({"artifact_id": artifact_id, "from_version": 1, "to_version": 1})
        }
        other => panic!("add a request of {other} for content of another owner"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn content_of_another_owner_changes_no_reply() {
    other_owners_are_invisible(Storage::Sqlite).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn content_of_another_owner_changes_no_reply_on_postgresql() {
    if context_test_postgres::server().is_some() {
        other_owners_are_invisible(Storage::Postgres).await;
    }
}

/// Calls a service where another owner has content, and one without any content. The results must be the same.
async fn other_owners_are_invisible(storage: Storage) {
    const RIGHTS: [&str; 3] = ["read", "write", "delete"];
    let (crowded, empty) = (
        KeyedService::start_on(storage, &[]).await,
        KeyedService::start_on(storage, &[]).await,
    );
    let (crowded_gateway, empty_gateway) =
        (Gateway::http(&crowded).await, Gateway::http(&empty).await);
    let mine = crowded.key("mine", &RIGHTS).await;
    let (_, mut me) = crowded
        .clients(&crowded_gateway, &mine)
        .await
        .swap_remove(0);
    let entry = json!({"thread_id": "t", "source": "user", "text": "canary", "tags": ["canary"], "metadata": {"canary": "canary"}});
    // The last id is one that an owner with few entries does not have.
    let mut context_id = 0;
    for n in 0..20 {
        let mut entry = entry.clone();
        entry["text"] = json!(format!("canary {n}"));
        let Answer::Ok(stored) = me.call("store_context", &entry).await else {
            panic!("the owner may store")
        };
        context_id = stored["context_id"].as_i64().expect("an id");
    }
    let Answer::Ok(made) = me
        .call(
            "create_artifact",
            &json!({"title": "Canary", "content": "canary", "path": "/canary"}),
        )
        .await
    else {
        panic!("the owner may create")
    };
    let artifact_id = made["id"].as_str().expect("an id").to_owned();

    for name in ["gRPC", "REST", "MCP over HTTP", "MCP over stdio"] {
        let mut clients = Vec::new();
        for (service, gateway) in [(&crowded, &crowded_gateway), (&empty, &empty_gateway)] {
            let key = service
                .key_of(&format!("other by {name}"), name, &RIGHTS)
                .await;
            let all = service.clients(gateway, &key).await;
            clients.push(
                all.into_iter()
                    .find(|(client, _)| *client == name)
                    .expect("a client")
                    .1,
            );
        }
        for operation in operations() {
            if name.starts_with("MCP") && !is_tool(&operation) {
                continue;
            }
            let probe = probe(&operation, context_id, &artifact_id);
            let mut answers = Vec::new();
            for client in &mut clients {
                let mut answer = client.call(&operation, &probe).await;
                // Each new artifact has a new id.
                hide_ids_of_artifacts(answer.body(), &artifact_id);
                answers.push(answer);
            }
            assert_eq!(answers[0], answers[1], "{operation} over {name}");
            // Equal refusals would show nothing.
            if operation == "store_context" || operation == "search_context" {
                assert!(matches!(answers[0], Answer::Ok(_)), "{name}: {answers:?}");
            }
        }
    }
    for (id, text) in [(1, "canary 0"), (context_id, "canary 19")] {
        let Answer::Ok(found) = me
            .call("get_context_by_ids", &json!({"context_ids": [id]}))
            .await
        else {
            panic!("the owner may read")
        };
        assert_eq!(found["result"][0]["text_content"], text, "{found}");
    }
    let Answer::Ok(found) = me
        .call("get_artifact", &json!({"artifact_id": artifact_id}))
        .await
    else {
        panic!("the owner may read")
    };
    assert_eq!(
        (&found["content"], &found["path"]),
        (&json!("canary"), &json!("/canary"))
    );
}

/// Replaces every artifact id except the one in the request, and cursors, which name the owner's feed.
fn hide_ids_of_artifacts(value: &mut Value, requested: &str) {
    match value {
        Value::String(text)
            if text.len() == 36 && text.matches('-').count() == 4 && text != requested =>
        {
            *value = json!("<id>")
        }
        Value::Array(items) => items
            .iter_mut()
            .for_each(|item| hide_ids_of_artifacts(item, requested)),
        Value::Object(fields) => {
            for (key, field) in fields {
                match field {
                    Value::String(cursor) if key == "next_cursor" => {
                        *cursor = "<cursor>".to_owned()
                    }
                    field => hide_ids_of_artifacts(field, requested),
                }
            }
        }
        _ => {}
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn metadata_is_public_and_points_to_the_resource() {
    let service = KeyedService::start().await;
    let gateway = Gateway::http(&service).await;
    for path in [
        "/.well-known/oauth-protected-resource",
        "/.well-known/oauth-protected-resource/mcp",
    ] {
        let metadata = gateway.get(path).await;
        assert_eq!(
            metadata["resource"],
            format!("http://{}/mcp", gateway.address)
        );
        assert_eq!(
            (
                &metadata["scopes_supported"],
                &metadata["bearer_methods_supported"]
            ),
            (&json!(["read", "write", "delete"]), &json!(["header"]))
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn stdio_takes_its_key_from_the_environment_or_a_file_and_says_when_it_has_none() {
    let service = KeyedService::start().await;
    let key = service.key("stdio", &["read", "write"]).await;
    let file = service.file("key", &format!("{key}\n"));
    for (environment, works) in [
        (vec![("CONTEXT_API_KEY", key.clone())], true),
        (vec![("CONTEXT_API_KEY_FILE", file)], true),
        (vec![], false),
        (vec![("CONTEXT_API_KEY", "nonsense".to_owned())], false),
    ] {
        let mut gateway = Gateway::stdio(&service, &environment).await;
        let entry = gateway.call("list_threads", &json!({})).await;
        let artifact = gateway.call("list_artifacts", &json!({})).await;
        assert_eq!(
            (entry["isError"] == true, artifact["isError"] == true),
            (!works, !works),
            "{environment:?} {entry}"
        );
        if !works {
            let text = artifact["content"][0]["text"].as_str().unwrap_or_default();
            assert_eq!(text, json!([{ "error": REQUIRED }]).to_string());
            let text = entry["content"][0]["text"].as_str().unwrap_or_default();
            assert!(
                text.contains(REQUIRED) && text.contains("UNAUTHENTICATED"),
                "{text}"
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_needs_what_each_of_its_calls_needs_and_runs_whole_or_not_at_all() {
    let service = KeyedService::start().await;
    let gateway = Gateway::http(&service).await;
    let key = service.key("writer", &["read", "write"]).await;
    let writer = format!("Bearer {key}");
    let store = (
        "store_context",
        json!({"thread_id": "t", "source": "user", "text": "an entry"}),
    );
    let beyond = [
        store.clone(),
        ("delete_context", json!({"context_ids": [1]})),
    ];
    let refused = gateway.batch(&beyond, Some(&writer)).await;
    assert_eq!(refused.status, 403, "{}", refused.body);
    let expected = "error=\"insufficient_scope\", scope=\"delete\"";
    assert!(
        refused.challenge.contains(expected),
        "{}",
        refused.challenge
    );
    assert_eq!(gateway.batch(&beyond, None).await.status, 401);
    let threads = async || service.rest(Some(&writer)).await.body["total_threads"].clone();
    assert_eq!(threads().await, 0, "nothing of the batch ran");

    let allowed = gateway
        .batch(&[store, ("list_threads", json!({}))], Some(&writer))
        .await;
    assert_eq!(allowed.status, 200, "{}", allowed.body);
    let failed: Vec<_> = allowed
        .body
        .as_array()
        .expect("an array")
        .iter()
        .map(|one| &one["result"]["isError"])
        .collect();
    assert_eq!(failed, [false, false]);
    assert_eq!(threads().await, 1);
}
