use std::net::SocketAddr;

use context_test_support::http::Request;
use serde_json::{Value, json};

use crate::Answer;
use crate::process::{Service, Storage};

/// A client that calls the operation of each MCP tool over REST.
pub struct Rest {
    address: SocketAddr,
    key: Option<String>,
    _service: Option<Service>,
}

impl Rest {
    pub(crate) async fn start(storage: Storage) -> Self {
        let service = Service::start(storage).await;
        Self {
            address: service.address(),
            key: None,
            _service: Some(service),
        }
    }

    /// Connects to a running service.
    pub(crate) fn connect(address: SocketAddr, key: &str) -> Self {
        Self {
            address,
            key: Some(key.to_owned()),
            _service: None,
        }
    }

    pub(crate) async fn call(&mut self, tool: &str, arguments: &Value) -> Answer {
        let (method, path, body) = route(tool, arguments);
        let mut request = Request::new(method, format!("http://{}{path}", self.address));
        if let Some(key) = &self.key {
            request = request.key(key);
        }
        if let Some(body) = body {
            request = request.json(&body);
        }
        let reply = request.send().await;
        let body = reply.json();
        if reply.status.is_success() {
            return Answer::ok(body);
        }
        let content_type = reply.header("content-type");
        assert_eq!(
            content_type,
            Some("application/problem+json"),
            "{tool}: {body}"
        );
        let text = |key: &str| body[key].as_str().unwrap_or_default().to_owned();
        Answer::err(&text("detail"), &text("reason"), body["violations"].clone())
    }
}

/// The method, the path with its query, and the body of the request that does what this tool does.
fn route(tool: &str, arguments: &Value) -> (&'static str, String, Option<Value>) {
    let body = Some(arguments.clone());
    let post = |path: &str| ("POST", path.to_owned(), body.clone());
    match tool {
        "store_context" => post("/v1/contexts"),
        "store_context_batch" => post("/v1/contexts/batch"),
        "get_context_by_ids" => {
            let ids = arguments["context_ids"]
                .as_array()
                .map(|ids| ids.iter().map(text).collect::<Vec<_>>().join(","))
                .unwrap_or_default();
            let path = query("/v1/contexts".to_owned(), arguments, &["context_ids"]);
            ("GET", format!("{path}&ids={ids}"), None)
        }
        "update_context" => {
            let mut body = arguments.clone();
            let id = body
                .as_object_mut()
                .and_then(|b| b.remove("context_id"))
                .unwrap_or(json!(0));
            ("PATCH", format!("/v1/contexts/{}", text(&id)), Some(body))
        }
        "update_context_batch" => ("PATCH", "/v1/contexts/batch".to_owned(), body),
        "delete_context" => post("/v1/contexts/delete"),
        "delete_context_batch" => post("/v1/contexts/batch-delete"),
        "search_context" => post("/v1/contexts/search"),
        "fts_search_context" => post("/v1/contexts/search/fts"),
        "semantic_search_context" => post("/v1/contexts/search/semantic"),
        "hybrid_search_context" => post("/v1/contexts/search/hybrid"),
        "list_threads" => ("GET", query("/v1/threads".to_owned(), arguments, &[]), None),
        "get_thread" => {
            let path = format!("/v1/threads/{}", encoded(&text(&arguments["thread_id"])));
            ("GET", query(path, arguments, &["thread_id"]), None)
        }
        "list_metadata_keys" => (
            "GET",
            query("/v1/metadata/keys".to_owned(), arguments, &[]),
            None,
        ),
        "list_metadata_values" => (
            "GET",
            query("/v1/metadata/values".to_owned(), arguments, &[]),
            None,
        ),
        "list_days" => ("GET", query("/v1/days".to_owned(), arguments, &[]), None),
        "list_tags" => ("GET", query("/v1/tags".to_owned(), arguments, &[]), None),
        "changes_since" => {
            let mut arguments = arguments.clone();
            let tags = arguments
                .as_object_mut()
                .and_then(|arguments| arguments.remove("tags"));
            let tags: String = tags
                .iter()
                .flat_map(|tags| tags.as_array().into_iter().flatten())
                .map(|tag| format!("&tag={}", text(tag)))
                .collect();
            let path = query("/v1/changes".to_owned(), &arguments, &[]);
            ("GET", format!("{path}{tags}"), None)
        }
        "get_statistics" => (
            "GET",
            query("/v1/statistics".to_owned(), arguments, &[]),
            None,
        ),
        "create_artifact" => post("/v1/artifacts"),
        "list_artifacts" => (
            "GET",
            query("/v1/artifacts".to_owned(), arguments, &[]),
            None,
        ),
        "search_artifacts" => (
            "GET",
            query("/v1/artifacts/search".to_owned(), arguments, &[]),
            None,
        ),
        "get_artifact" if arguments["artifact_id"].is_null() => (
            "GET",
            query("/v1/artifacts/by-path".to_owned(), arguments, &[]),
            None,
        ),
        "get_artifact" => (
            "GET",
            query(artifact(arguments), arguments, &["artifact_id"]),
            None,
        ),
        "update_artifact" => {
            let mut body = arguments.clone();
            body.as_object_mut()
                .expect("an object")
                .remove("artifact_id");
            ("PATCH", artifact(arguments), Some(body))
        }
        "move_artifacts" => (
            "POST",
            "/v1/artifacts/move".to_owned(),
            Some(arguments.clone()),
        ),
        "delete_artifacts" => (
            "POST",
            "/v1/artifacts/delete".to_owned(),
            Some(arguments.clone()),
        ),
        "delete_artifact" => {
            only(arguments, &["artifact_id"]);
            ("DELETE", artifact(arguments), None)
        }
        "list_artifact_versions" => {
            let path = format!("{}/versions", artifact(arguments));
            ("GET", query(path, arguments, &["artifact_id"]), None)
        }
        "get_artifact_version" => {
            let in_path = ["artifact_id", "version_number"];
            ("GET", query(version(arguments), arguments, &in_path), None)
        }
        "restore_artifact_version" => {
            only(arguments, &["artifact_id", "version_number"]);
            ("POST", format!("{}/restore", version(arguments)), None)
        }
        "diff_artifact_versions" => (
            "GET",
            query(
                format!("{}/diff", artifact(arguments)),
                arguments,
                &["artifact_id"],
            ),
            None,
        ),
        other => panic!("no such operation: {other}"),
    }
}

fn artifact(arguments: &Value) -> String {
    format!("/v1/artifacts/{}", text(&arguments["artifact_id"]))
}

fn version(arguments: &Value) -> String {
    format!(
        "{}/versions/{}",
        artifact(arguments),
        text(&arguments["version_number"])
    )
}

/// Panics if there are other arguments than these, because the request would not have them.
fn only(arguments: &Value, known: &[&str]) {
    for (key, _) in arguments.as_object().into_iter().flatten() {
        assert!(
            known.contains(&key.as_str()),
            "the REST client does not send `{key}`"
        );
    }
}

/// The arguments as a query string, except those that are in the path or null.
fn query(path: String, arguments: &Value, in_path: &[&str]) -> String {
    let pairs = arguments
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(key, value)| !in_path.contains(&key.as_str()) && !value.is_null());
    let pairs: Vec<String> = pairs
        .map(|(key, value)| format!("{key}={}", encoded(&text(value))))
        .collect();
    format!("{path}?{}", pairs.join("&"))
}

fn encoded(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02x}")).collect()
}

fn text(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned)
}
