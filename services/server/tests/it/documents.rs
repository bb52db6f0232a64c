//! Files of the repository that the service generates, and what the OpenAPI document says.

use std::path::Path;

use clap::CommandFactory as _;
use context_service::cli::Cli;
use context_service::{config, document, errors_page};
use serde_json::json;

use crate::service::Service;

fn compare(file: &str, printed: &str, command: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(file);
    let committed = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        committed == printed,
        "{file} is out of date; run\n  cargo run --bin context-service -- {command} > {file}"
    );
}

#[test]
fn the_openapi_document_is_up_to_date() {
    compare("openapi/openapi.json", &document(), "openapi");
}

#[test]
fn the_list_of_settings_is_up_to_date() {
    compare(
        "docs/configuration.md",
        &config::configuration_page(&Cli::command()),
        "config-docs",
    );
}

#[test]
fn the_list_of_errors_is_up_to_date() {
    compare("docs/errors.md", &errors_page(), "error-docs");
}

#[test]
fn the_server_of_the_document_is_the_one_that_returned_it() {
    let document: serde_json::Value = serde_json::from_str(&document()).unwrap();
    assert_eq!(document["servers"][0]["url"], ".");
}

#[test]
fn each_schema_that_the_document_refers_to_is_in_it() {
    fn check(document: &serde_json::Value, value: &serde_json::Value) -> usize {
        let mut references = 0;
        if let Some(reference) = value["$ref"].as_str() {
            let target = document.pointer(reference.trim_start_matches('#'));
            assert!(target.is_some(), "{reference} is not in the document");
            references += 1;
        }
        let parts: Vec<&serde_json::Value> = match value {
            serde_json::Value::Array(items) => items.iter().collect(),
            serde_json::Value::Object(members) => members.values().collect(),
            _ => Vec::new(),
        };
        references
            + parts
                .iter()
                .map(|part| check(document, part))
                .sum::<usize>()
    }
    let document: serde_json::Value = serde_json::from_str(&document()).unwrap();
    assert!(check(&document, &document) > 100);
}

/// The alternatives of a property, or of the items of a list.
fn alternatives(document: &serde_json::Value, schema: &str, property: &str) -> Vec<String> {
    let schemas = &document["components"]["schemas"];
    let property = &schemas[schema]["properties"][property];
    assert!(property.is_object(), "{schema} has no such property");
    let schema = if property["items"].is_object() {
        &property["items"]
    } else {
        property
    };
    of_schema(schemas, schema)
}

fn of_schema(schemas: &serde_json::Value, schema: &serde_json::Value) -> Vec<String> {
    if let Some(list) = schema["oneOf"].as_array().or(schema["anyOf"].as_array()) {
        let each = list.iter().flat_map(|schema| of_schema(schemas, schema));
        return each.collect();
    }
    match schema["$ref"]
        .as_str()
        .and_then(|name| name.rsplit('/').next())
    {
        Some(name) if schemas[name]["enum"].is_array() => vec![name.to_owned()],
        Some(name) => of_schema(schemas, &schemas[name]),
        None => vec![schema["type"].as_str().unwrap_or_default().to_owned()],
    }
}

#[test]
fn closed_sets_are_enums_and_sets_of_replies_that_may_grow_accept_other_names() {
    let document: serde_json::Value = serde_json::from_str(&document()).unwrap();
    for (schema, property, expected) in [
        ("StoreContextRequest", "source", &["Source"][..]),
        ("SearchContextRequest", "source", &["Source", "null"]),
        (
            "SearchContextRequest",
            "content_type",
            &["ContentType", "null"],
        ),
        ("DeleteContextBatchRequest", "source", &["Source", "null"]),
        ("MetadataFilter", "operator", &["Operator", "null"]),
        ("FtsSearchContextRequest", "mode", &["FtsMode", "null"]),
        (
            "HybridSearchContextRequest",
            "fusion_method",
            &["FusionMethod", "null"],
        ),
        (
            "HybridSearchContextRequest",
            "search_modes",
            &["SearchMode"],
        ),
        ("CreateApiKeyRequest", "scopes", &["Scope"]),
        ("CreateApiKeyRequest", "only", &["Only", "null"]),
        ("UpdateApiKeyBody", "scopes", &["Scope"]),
        ("Entry", "source", &["Source"]),
        ("ApiKey", "scopes", &["Scope", "string"]),
        ("ApiKey", "only", &["Only", "string", "null"]),
        ("FtsSearchContextReply", "mode", &["FtsMode", "string"]),
        (
            "HybridSearchContextReply",
            "fusion_method",
            &["FusionMethod", "string"],
        ),
        (
            "HybridSearchContextReply",
            "search_modes_used",
            &["SearchMode", "string"],
        ),
        ("Problem", "reason", &["Reason", "string"]),
    ] {
        assert_eq!(
            alternatives(&document, schema, property),
            expected,
            "{schema}.{property}"
        );
        for name in expected
            .iter()
            .filter(|name| !["null", "string"].contains(name))
        {
            let names = &document["components"]["schemas"][name]["enum"];
            assert!(
                names.as_array().is_some_and(|names| names.len() > 1),
                "{name}"
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_field_that_the_document_requires_is_reported_when_it_is_missing() {
    let document: serde_json::Value = serde_json::from_str(&document()).unwrap();
    let required = |schema: &str| document["components"]["schemas"][schema]["required"].clone();
    assert_eq!(required("MetadataFilter"), json!(["key"]));
    assert_eq!(required("ImageInput"), json!(["data"]));
    assert_eq!(
        required("StoreContextRequest"),
        json!(["thread_id", "source", "text"])
    );
    assert_eq!(
        required("BatchResult"),
        json!(["index", "success", "context_id", "error"])
    );
    let service = Service::start().await;
    let entry = json!({"thread_id": "t", "source": "user", "text": "x", "images": [{}]});
    for (path, body, field) in [
        (
            "/v1/contexts/search",
            json!({"metadata_filters": [{"operator": "exists"}]}),
            "metadata_filters[0].key",
        ),
        ("/v1/contexts", entry, "images[0].data"),
        (
            "/v1/contexts",
            json!({"thread_id": "t", "text": "x"}),
            "source",
        ),
        (
            "/v1/contexts/search/fts",
            json!({"query": "x", "mode": "fuzzy"}),
            "mode",
        ),
    ] {
        let reply = service.post(path, body).send().await;
        assert_eq!(reply.reason(), "INVALID_ARGUMENT");
        assert_eq!(
            reply.json()["violations"][0]["field"],
            field,
            "{}",
            reply.body
        );
    }
}

#[test]
fn every_operation_is_described_and_can_fail() {
    let document: serde_json::Value = serde_json::from_str(&document()).unwrap();
    assert_eq!(document["openapi"], "3.1.0");
    let mut operations = 0;
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            operations += 1;
            for key in ["operationId", "summary", "description", "tags"] {
                let is_empty = match &operation[key] {
                    serde_json::Value::String(text) => text.trim().is_empty(),
                    serde_json::Value::Array(items) => items.is_empty(),
                    _ => true,
                };
                assert!(!is_empty, "{method} {path} has no {key}");
            }
            assert!(
                operation["responses"].get("default").is_some(),
                "{method} {path} cannot fail"
            );
            if let Some(body) = operation.get("requestBody") {
                assert!(
                    body["content"]["application/json"].get("example").is_some(),
                    "{method} {path} has no example"
                );
            }
        }
    }
    assert_eq!(operations, 43);
}
