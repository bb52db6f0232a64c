use reqwest::{Client, Method};
use serde_json::{Value, json};

use crate::Answer;
use crate::process::Service;

/// The REST door.
pub struct Rest {
    client: Client,
    service: Service,
}

impl Rest {
    pub(crate) async fn start() -> Self {
        Self { client: Client::new(), service: Service::start().await }
    }

    pub(crate) async fn call(&mut self, tool: &str, arguments: &Value) -> Answer {
        let (method, path, body) = route(tool, arguments);
        let mut request = self.client.request(method, format!("http://{}{path}", self.service.address));
        if let Some(body) = body {
            request = request.json(&body);
        }
        let response = request.send().await.expect("an HTTP response");
        let status = response.status();
        let content_type = response.headers().get("content-type").map(|v| v.to_str().unwrap_or_default().to_owned()).unwrap_or_default();
        let body: Value = response.json().await.expect("a JSON body");
        if status.is_success() {
            return Answer::ok(body);
        }
        assert_eq!(content_type, "application/problem+json", "{tool}: {body}");
        let text = |key: &str| body[key].as_str().unwrap_or_default().to_owned();
        Answer::err(&text("detail"), &text("reason"), body["violations"].clone())
    }
}

fn route(tool: &str, arguments: &Value) -> (Method, String, Option<Value>) {
    let body = Some(arguments.clone());
    let post = |path: &str| (Method::POST, path.to_owned(), body.clone());
    match tool {
        "store_context" => post("/v1/contexts"),
        "store_context_batch" => post("/v1/contexts/batch"),
        "get_context_by_ids" => {
            let ids = arguments["context_ids"].as_array().map(|ids| ids.iter().map(text).collect::<Vec<_>>().join(",")).unwrap_or_default();
            let images =
                arguments.get("include_images").filter(|v| !v.is_null()).map(|v| format!("&include_images={v}")).unwrap_or_default();
            (Method::GET, format!("/v1/contexts?ids={ids}{images}"), None)
        }
        "update_context" => {
            let mut body = arguments.clone();
            let id = body.as_object_mut().and_then(|b| b.remove("context_id")).unwrap_or(json!(0));
            (Method::PATCH, format!("/v1/contexts/{}", text(&id)), Some(body))
        }
        "update_context_batch" => (Method::PATCH, "/v1/contexts/batch".to_owned(), body),
        "delete_context" => post("/v1/contexts/delete"),
        "delete_context_batch" => post("/v1/contexts/batch-delete"),
        "search_context" => post("/v1/contexts/search"),
        "fts_search_context" => post("/v1/contexts/search/fts"),
        "semantic_search_context" => post("/v1/contexts/search/semantic"),
        "hybrid_search_context" => post("/v1/contexts/search/hybrid"),
        "list_threads" => {
            let query: Vec<String> = arguments.as_object().into_iter().flatten().map(|(k, v)| format!("{k}={}", text(v))).collect();
            (Method::GET, format!("/v1/threads?{}", query.join("&")), None)
        }
        "get_statistics" => (Method::GET, "/v1/statistics".to_owned(), None),
        other => panic!("no such operation: {other}"),
    }
}

fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}
