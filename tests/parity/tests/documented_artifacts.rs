//! Calls the documented examples of the artifact tools over MCP. Results must have all keys of the examples, with
//! values of the same types. Error sentences must be equal byte for byte.

use context_parity::{Answer, Client};
use serde_json::{Value, json};

const UNKNOWN: &str = "123e4567-e89b-12d3-a456-426614174000";

/// Checks that `actual` has every key of the documented example with a value of the same type. Lists are compared by
/// their first item, so a list must have one where the example's has one. The keys in `metadata` are not compared.
fn same_shape(actual: &Value, example: &Value, path: &str) {
    match (actual, example) {
        (Value::Object(actual), Value::Object(example)) if !path.ends_with(".metadata") => {
            for (key, value) in example {
                let found = actual
                    .get(key)
                    .unwrap_or_else(|| panic!("{path} has no {key}"));
                same_shape(found, value, &format!("{path}.{key}"));
            }
        }
        (Value::Array(actual), Value::Array(example)) => {
            if let Some(example) = example.first() {
                let actual = actual
                    .first()
                    .unwrap_or_else(|| panic!("{path} is an empty list"));
                same_shape(actual, example, &format!("{path}[0]"));
            }
        }
        _ => assert_eq!(
            std::mem::discriminant(actual),
            std::mem::discriminant(example),
            "{path}: {actual} and {example} differ in type"
        ),
    }
}

struct Mcp(Client);

impl Mcp {
    async fn gives(&mut self, tool: &str, arguments: Value, example: &Value) -> Value {
        match self.0.call(tool, &arguments).await {
            Answer::Ok(reply) => {
                let shown = if example.is_array() {
                    reply["result"].clone()
                } else {
                    reply
                };
                same_shape(&shown, example, tool);
                shown
            }
            Answer::Err(error) => panic!("{tool}: {error}"),
        }
    }

    async fn fails(&mut self, tool: &str, arguments: Value, sentence: &str) {
        match self.0.call(tool, &arguments).await {
            Answer::Ok(reply) => panic!("{tool}: {reply}"),
            Answer::Err(error) => assert_eq!(error, json!({ "error": sentence }), "{tool}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_documented_examples_hold() {
    let mut mcp = Mcp(Client::open_mcp().await);

    // create_artifact
    let content = "# My Context\n\nThis is my artifact content...";
    let example = json!({"id": UNKNOWN, "title": "Generated Title", "content": content, "metadata": {"category": "personal"},
        "created_at": "2024-01-01T00:00:00Z", "message": "Created artifact: Generated Title"});
    let created = mcp
        .gives(
            "create_artifact",
            json!({"content": content, "metadata": {"category": "personal"}}),
            &example,
        )
        .await;
    assert_eq!(created["content"], content);
    assert_eq!(
        (&created["title"], &created["message"]),
        (&json!("My Context"), &json!("Created artifact: My Context"))
    );
    let id = created["id"].as_str().expect("an id").to_owned();
    let long = json!({"content": "x".repeat(100_001)});
    mcp.fails(
        "create_artifact",
        long,
        "Invalid input: Content exceeds maximum length of 100000 characters",
    )
    .await;

    // list_artifacts
    let example = json!([{"id": UNKNOWN, "title": "My Context Document", "content_preview": "# My Context…",
        "metadata": {"category": "project", "priority": "high"}, "created_at": "2024-01-01T00:00:00Z", "updated_at": "2024-01-01T00:00:00Z"}]);
    let listed = mcp.gives("list_artifacts", json!({}), &example).await;
    assert_eq!(listed.as_array().expect("a list").len(), 1);

    // search_artifacts
    let example = json!([{"id": UNKNOWN, "title": "API Documentation", "content_preview": "# API Documentation…",
        "metadata": {"category": "documentation", "team": "engineering"}, "relevance_context": "Matched query: 'API patterns'",
        "created_at": "2024-01-01T00:00:00Z"}]);
    let found = mcp
        .gives(
            "search_artifacts",
            json!({"query": "ARTIFACT content"}),
            &example,
        )
        .await;
    assert_eq!(
        found[0]["relevance_context"],
        "Matched query: 'ARTIFACT content'"
    );
    mcp.fails(
        "search_artifacts",
        json!({"query": ""}),
        "Search query cannot be empty",
    )
    .await;

    // get_artifact
    let example = json!({"id": UNKNOWN, "title": "Complete Context Document", "content": "# Complete Context Document…",
        "metadata": {"category": "project", "tags": ["setup", "configuration"], "importance": "high", "last_review": "2024-01-01"},
        "created_at": "2024-01-01T00:00:00Z", "updated_at": "2024-01-01T00:00:00Z", "version": 1});
    let got = mcp
        .gives("get_artifact", json!({ "artifact_id": id }), &example)
        .await;
    assert_eq!(got["version"], 1);
    mcp.fails(
        "get_artifact",
        json!({"artifact_id": "no-uuid"}),
        "Invalid artifact ID format. Must be a valid UUID.",
    )
    .await;
    let not_found = format!("Artifact {UNKNOWN} not found or access denied");
    mcp.fails(
        "get_artifact",
        json!({ "artifact_id": UNKNOWN }),
        &not_found,
    )
    .await;

    // update_artifact
    let content =
        "# Updated Context Document\n\nThis artifact has been updated with new information...";
    let metadata =
        json!({"category": "project", "tags": ["updated", "current"], "last_modified_by": "user"});
    let example = json!({"id": UNKNOWN, "title": "Updated Context Document", "content": content, "metadata": metadata,
        "created_at": "2024-01-01T00:00:00Z", "updated_at": "2024-01-01T10:30:00Z", "version": 1,
        "message": "Updated artifact: Updated Context Document"});
    let arguments = json!({"artifact_id": id, "content": content, "metadata": metadata});
    let updated = mcp.gives("update_artifact", arguments, &example).await;
    assert_eq!(
        updated["message"],
        "Updated artifact: Updated Context Document"
    );
    assert_eq!(
        (&updated["title"], &updated["metadata"]),
        (&example["title"], &metadata)
    );
    mcp.fails(
        "update_artifact",
        json!({"artifact_id": UNKNOWN, "title": "x"}),
        &not_found,
    )
    .await;
    for title in ["Third", "Previous Title", "Fifth"] {
        mcp.gives(
            "update_artifact",
            json!({"artifact_id": id, "title": title}),
            &example,
        )
        .await;
    }

    // list_artifact_versions
    let example = json!({"artifact_id": UNKNOWN, "current_version": 5, "total_edits": 4, "recent_versions": [
        {"version": 4, "title": "Previous Title", "updated_at": "2024-01-01T00:00:00Z", "changes": ["title", "content"]}]});
    let versions = mcp
        .gives(
            "list_artifact_versions",
            json!({ "artifact_id": id }),
            &example,
        )
        .await;
    assert_eq!(
        (&versions["current_version"], &versions["total_edits"]),
        (&json!(5), &json!(4))
    );
    assert_eq!(
        (
            &versions["recent_versions"][0]["version"],
            &versions["recent_versions"][0]["title"]
        ),
        (&json!(4), &json!("Previous Title"))
    );
    mcp.fails(
        "list_artifact_versions",
        json!({ "artifact_id": UNKNOWN }),
        &not_found,
    )
    .await;

    // get_artifact_version
    let example = json!({"version": 4, "title": "Previous Title", "content": "Full content of the previous version...",
        "metadata": {"key": "value"}, "updated_at": "2024-01-01T00:00:00Z"});
    let version = mcp
        .gives(
            "get_artifact_version",
            json!({"artifact_id": id, "version_number": 4}),
            &example,
        )
        .await;
    assert_eq!(
        (&version["version"], &version["title"]),
        (&json!(4), &json!("Previous Title"))
    );
    let arguments = json!({"artifact_id": id, "version_number": 44});
    mcp.fails(
        "get_artifact_version",
        arguments.clone(),
        &format!("Version 44 not found for artifact {id}"),
    )
    .await;

    // restore_artifact_version
    let example = json!({"success": true, "message": "Artifact restored to version 4", "current_version": 6, "title": "Restored Title"});
    let restored = mcp
        .gives(
            "restore_artifact_version",
            json!({"artifact_id": id, "version_number": 4}),
            &example,
        )
        .await;
    assert_eq!(
        (&restored["message"], &restored["current_version"]),
        (&example["message"], &json!(6))
    );
    mcp.fails(
        "restore_artifact_version",
        arguments,
        &format!("Cannot restore version 44 for artifact {id}"),
    )
    .await;

    // delete_artifact
    let example = json!({"message": "Successfully deleted artifact", "artifact_id": UNKNOWN});
    let deleted = mcp
        .gives("delete_artifact", json!({ "artifact_id": id }), &example)
        .await;
    assert_eq!(
        (&deleted["message"], &deleted["artifact_id"]),
        (&example["message"], &json!(id))
    );
    mcp.fails(
        "get_artifact",
        json!({ "artifact_id": id }),
        &format!("Artifact {id} not found or access denied"),
    )
    .await;
    mcp.fails(
        "delete_artifact",
        json!({ "artifact_id": UNKNOWN }),
        &not_found,
    )
    .await;
}
