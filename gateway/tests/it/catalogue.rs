//! The tools in `tools/list`: the documented parameters, a schema that every client accepts, and a small size.

use context_gateway::call::tool_operation;
use context_gateway::catalogue::{Catalogue, ToolSet};
use context_model::Operation;
use serde_json::{Map, Value, json};

/// A documented parameter: tool, name, type, required, default, minimum, maximum, values.
type Parameter = (
    &'static str,
    &'static str,
    &'static str,
    bool,
    Value,
    Option<i64>,
    Option<i64>,
    &'static [&'static str],
);

/// The parameter has no default.
const NO: Value = Value::Null;
const SOURCES: &[&str] = &["user", "agent"];
const TYPES: &[&str] = &["text", "multimodal"];
const OPERATORS: [&str; 16] = [
    "eq",
    "ne",
    "gt",
    "gte",
    "lt",
    "lte",
    "in",
    "not_in",
    "exists",
    "not_exists",
    "contains",
    "starts_with",
    "ends_with",
    "is_null",
    "is_not_null",
    "array_contains",
];

/// The filters, paging and options that the four searches share.
fn search(tool: &'static str, limit: i64) -> Vec<Parameter> {
    vec![
        (tool, "thread_id", "string", false, NO, None, None, &[]),
        (tool, "source", "string", false, NO, None, None, SOURCES),
        (tool, "tags", "array", false, NO, None, None, &[]),
        (tool, "content_type", "string", false, NO, None, None, TYPES),
        (tool, "metadata", "object", false, NO, None, None, &[]),
        (
            tool,
            "metadata_filters",
            "array",
            false,
            NO,
            None,
            None,
            &[],
        ),
        (tool, "start_date", "string", false, NO, None, None, &[]),
        (tool, "end_date", "string", false, NO, None, None, &[]),
        (
            tool,
            "limit",
            "integer",
            false,
            json!(limit),
            Some(1),
            Some(100),
            &[],
        ),
        (
            tool,
            "offset",
            "integer",
            false,
            json!(0),
            Some(0),
            None,
            &[],
        ),
        (
            tool,
            "include_images",
            "boolean",
            false,
            json!(false),
            None,
            None,
            &[],
        ),
        (
            tool,
            "explain_query",
            "boolean",
            false,
            json!(false),
            None,
            None,
            &[],
        ),
    ]
}

/// Every documented parameter: those transcribed from the API reference, then the additions of this service, then those
/// that the four searches share.
fn documented() -> Vec<Parameter> {
    let mut all: Vec<Parameter> = vec![
        (
            "store_context",
            "thread_id",
            "string",
            true,
            NO,
            None,
            None,
            &[],
        ),
        (
            "store_context",
            "source",
            "string",
            true,
            NO,
            None,
            None,
            SOURCES,
        ),
        ("store_context", "text", "string", true, NO, None, None, &[]),
        (
            "store_context",
            "images",
            "array",
            false,
            NO,
            None,
            None,
            &[],
        ),
        (
            "store_context",
            "metadata",
            "object",
            false,
            NO,
            None,
            None,
            &[],
        ),
        ("store_context", "tags", "array", false, NO, None, None, &[]),
        (
            "get_context_by_ids",
            "context_ids",
            "array",
            true,
            NO,
            None,
            None,
            &[],
        ),
        (
            "get_context_by_ids",
            "include_images",
            "boolean",
            false,
            json!(true),
            None,
            None,
            &[],
        ),
        (
            "delete_context",
            "context_ids",
            "array",
            false,
            NO,
            None,
            None,
            &[],
        ),
        (
            "delete_context",
            "thread_id",
            "string",
            false,
            NO,
            None,
            None,
            &[],
        ),
        (
            "update_context",
            "context_id",
            "integer",
            true,
            NO,
            Some(1),
            None,
            &[],
        ),
        (
            "update_context",
            "text",
            "string",
            false,
            NO,
            None,
            None,
            &[],
        ),
        (
            "update_context",
            "metadata",
            "object",
            false,
            NO,
            None,
            None,
            &[],
        ),
        (
            "update_context",
            "metadata_patch",
            "object",
            false,
            NO,
            None,
            None,
            &[],
        ),
        (
            "update_context",
            "tags",
            "array",
            false,
            NO,
            None,
            None,
            &[],
        ),
        (
            "update_context",
            "images",
            "array",
            false,
            NO,
            None,
            None,
            &[],
        ),
        (
            "semantic_search_context",
            "query",
            "string",
            true,
            NO,
            None,
            None,
            &[],
        ),
        (
            "fts_search_context",
            "query",
            "string",
            true,
            NO,
            None,
            None,
            &[],
        ),
        (
            "fts_search_context",
            "mode",
            "string",
            false,
            json!("match"),
            None,
            None,
            &["match", "prefix", "phrase", "boolean"],
        ),
        (
            "fts_search_context",
            "highlight",
            "boolean",
            false,
            json!(false),
            None,
            None,
            &[],
        ),
        (
            "hybrid_search_context",
            "query",
            "string",
            true,
            NO,
            None,
            None,
            &[],
        ),
        (
            "hybrid_search_context",
            "highlight",
            "boolean",
            false,
            json!(false),
            None,
            None,
            &[],
        ),
        (
            "hybrid_search_context",
            "fusion_method",
            "string",
            false,
            json!("rrf"),
            None,
            None,
            &["rrf"],
        ),
        (
            "hybrid_search_context",
            "rrf_k",
            "integer",
            false,
            NO,
            Some(1),
            Some(1000),
            &[],
        ),
        (
            "store_context_batch",
            "entries",
            "array",
            true,
            NO,
            None,
            None,
            &[],
        ),
        (
            "store_context_batch",
            "atomic",
            "boolean",
            false,
            json!(true),
            None,
            None,
            &[],
        ),
        (
            "update_context_batch",
            "updates",
            "array",
            true,
            NO,
            None,
            None,
            &[],
        ),
        (
            "update_context_batch",
            "atomic",
            "boolean",
            false,
            json!(true),
            None,
            None,
            &[],
        ),
        (
            "delete_context_batch",
            "context_ids",
            "array",
            false,
            NO,
            None,
            None,
            &[],
        ),
        (
            "delete_context_batch",
            "thread_ids",
            "array",
            false,
            NO,
            None,
            None,
            &[],
        ),
        (
            "delete_context_batch",
            "source",
            "string",
            false,
            NO,
            None,
            None,
            SOURCES,
        ),
        (
            "delete_context_batch",
            "older_than_days",
            "integer",
            false,
            NO,
            Some(1),
            Some(36500),
            &[],
        ),
        (
            "create_artifact",
            "content",
            "string",
            true,
            NO,
            None,
            None,
            &[],
        ),
        (
            "create_artifact",
            "title",
            "string",
            false,
            NO,
            None,
            None,
            &[],
        ),
        (
            "create_artifact",
            "metadata",
            "object",
            false,
            NO,
            None,
            None,
            &[],
        ),
        (
            "list_artifacts",
            "limit",
            "integer",
            false,
            json!(10),
            Some(1),
            Some(50),
            &[],
        ),
        (
            "list_artifacts",
            "offset",
            "integer",
            false,
            json!(0),
            Some(0),
            None,
            &[],
        ),
        (
            "search_artifacts",
            "query",
            "string",
            true,
            NO,
            None,
            None,
            &[],
        ),
        (
            "search_artifacts",
            "limit",
            "integer",
            false,
            json!(10),
            Some(1),
            Some(50),
            &[],
        ),
        (
            "get_artifact",
            "artifact_id",
            "string",
            true,
            NO,
            None,
            None,
            &[],
        ),
        (
            "update_artifact",
            "artifact_id",
            "string",
            true,
            NO,
            None,
            None,
            &[],
        ),
        (
            "update_artifact",
            "title",
            "string",
            false,
            NO,
            None,
            None,
            &[],
        ),
        (
            "update_artifact",
            "content",
            "string",
            false,
            NO,
            None,
            None,
            &[],
        ),
        (
            "update_artifact",
            "metadata",
            "object",
            false,
            NO,
            None,
            None,
            &[],
        ),
        (
            "delete_artifact",
            "artifact_id",
            "string",
            true,
            NO,
            None,
            None,
            &[],
        ),
        (
            "list_artifact_versions",
            "artifact_id",
            "string",
            true,
            NO,
            None,
            None,
            &[],
        ),
        (
            "get_artifact_version",
            "artifact_id",
            "string",
            true,
            NO,
            None,
            None,
            &[],
        ),
        (
            "get_artifact_version",
            "version_number",
            "integer",
            true,
            NO,
            Some(1),
            None,
            &[],
        ),
        (
            "restore_artifact_version",
            "artifact_id",
            "string",
            true,
            NO,
            None,
            None,
            &[],
        ),
        (
            "restore_artifact_version",
            "version_number",
            "integer",
            true,
            NO,
            Some(1),
            None,
            &[],
        ),
        // Additions of this service.
        (
            "semantic_search_context",
            "min_relevance",
            "number",
            false,
            NO,
            Some(0),
            Some(1),
            &[],
        ),
        (
            "hybrid_search_context",
            "min_relevance",
            "number",
            false,
            NO,
            Some(0),
            Some(1),
            &[],
        ),
        (
            "list_artifacts",
            "cursor",
            "string",
            false,
            NO,
            None,
            None,
            &[],
        ),
        (
            "update_artifact",
            "edits",
            "array",
            false,
            NO,
            None,
            None,
            &[],
        ),
        (
            "update_artifact",
            "expected_version",
            "integer",
            false,
            NO,
            Some(1),
            None,
            &[],
        ),
        (
            "update_artifact",
            "return_content",
            "boolean",
            false,
            json!(true),
            None,
            None,
            &[],
        ),
        (
            "changes_since",
            "cursor",
            "string",
            false,
            NO,
            None,
            None,
            &[],
        ),
        (
            "changes_since",
            "limit",
            "integer",
            false,
            json!(100),
            Some(1),
            Some(1000),
            &[],
        ),
        (
            "changes_since",
            "wait_ms",
            "integer",
            false,
            json!(0),
            Some(0),
            Some(25_000),
            &[],
        ),
        (
            "changes_since",
            "thread_id",
            "string",
            false,
            NO,
            None,
            None,
            &[],
        ),
        (
            "changes_since",
            "source",
            "string",
            false,
            NO,
            None,
            None,
            SOURCES,
        ),
        ("changes_since", "tags", "array", false, NO, None, None, &[]),
        (
            "changes_since",
            "entity",
            "string",
            false,
            NO,
            None,
            None,
            &["context", "artifact"],
        ),
        (
            "changes_since",
            "preview_chars",
            "integer",
            false,
            json!(120),
            Some(0),
            Some(1000),
            &[],
        ),
        (
            "diff_artifact_versions",
            "artifact_id",
            "string",
            true,
            NO,
            None,
            None,
            &[],
        ),
        (
            "diff_artifact_versions",
            "from_version",
            "integer",
            true,
            NO,
            Some(1),
            None,
            &[],
        ),
        (
            "diff_artifact_versions",
            "to_version",
            "integer",
            false,
            NO,
            Some(1),
            None,
            &[],
        ),
        (
            "update_context",
            "expected_version",
            "integer",
            false,
            NO,
            Some(1),
            None,
            &[],
        ),
        (
            "hybrid_search_context",
            "search_modes",
            "array",
            false,
            NO,
            None,
            None,
            &[],
        ),
        (
            "hybrid_search_context",
            "include",
            "array",
            false,
            NO,
            None,
            None,
            &[],
        ),
        (
            "list_artifacts",
            "metadata_filters",
            "array",
            false,
            NO,
            None,
            None,
            &[],
        ),
        (
            "search_artifacts",
            "metadata_filters",
            "array",
            false,
            NO,
            None,
            None,
            &[],
        ),
        (
            "create_artifact",
            "path",
            "string",
            false,
            NO,
            None,
            None,
            &[],
        ),
        (
            "update_artifact",
            "path",
            "string",
            false,
            NO,
            None,
            None,
            &[],
        ),
        (
            "list_artifacts",
            "path_prefix",
            "string",
            false,
            NO,
            None,
            None,
            &[],
        ),
        (
            "search_artifacts",
            "mode",
            "string",
            false,
            json!("substring"),
            None,
            None,
            &["substring", "ranked"],
        ),
        (
            "list_threads",
            "limit",
            "integer",
            false,
            json!(50),
            Some(1),
            Some(1000),
            &[],
        ),
        (
            "list_threads",
            "offset",
            "integer",
            false,
            json!(0),
            Some(0),
            None,
            &[],
        ),
    ];
    for (tool, limit) in [
        ("search_context", 30),
        ("semantic_search_context", 5),
        ("fts_search_context", 5),
        ("hybrid_search_context", 5),
    ] {
        all.extend(search(tool, limit));
    }
    all
}

#[test]
fn every_documented_parameter_is_there_as_documented_and_no_other() {
    let documented = documented();
    for (tool, name, kind, required, default, minimum, maximum, values) in &documented {
        let schema = &Catalogue::get()
            .find(tool)
            .unwrap_or_else(|| panic!("no tool {tool}"))
            .input_schema;
        let property = &schema["properties"][name];
        assert_eq!(property["type"], *kind, "{tool}.{name}");
        let is_required = schema
            .get("required")
            .and_then(Value::as_array)
            .is_some_and(|names| names.contains(&json!(name)));
        assert_eq!(is_required, *required, "{tool}.{name} required");
        assert_eq!(
            property.get("default").cloned().unwrap_or(NO),
            *default,
            "{tool}.{name} default"
        );
        assert_eq!(
            property.get("minimum").and_then(Value::as_i64),
            *minimum,
            "{tool}.{name} minimum"
        );
        assert_eq!(
            property.get("maximum").and_then(Value::as_i64),
            *maximum,
            "{tool}.{name} maximum"
        );
        let listed: Vec<&str> = property
            .get("enum")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        assert_eq!(listed, *values, "{tool}.{name} values");
    }
    for tool in Catalogue::get().tools() {
        for name in tool.input_schema["properties"].as_object().unwrap().keys() {
            assert!(
                documented
                    .iter()
                    .any(|(t, n, ..)| *t == tool.name && n == name),
                "{}.{name} is not documented",
                tool.name
            );
        }
    }
}

#[test]
fn nested_parameters_are_as_documented() {
    let parameter = |tool: &str, name: &str| {
        Catalogue::get().find(tool).unwrap().input_schema["properties"][name].clone()
    };
    for tool in [
        "search_context",
        "semantic_search_context",
        "fts_search_context",
        "hybrid_search_context",
    ] {
        let filter = &parameter(tool, "metadata_filters")["items"];
        assert_eq!(filter["properties"]["operator"]["enum"], json!(OPERATORS));
        assert_eq!(filter["properties"]["operator"]["default"], "eq");
        assert_eq!(filter["properties"]["case_sensitive"]["default"], false);
        assert_eq!(filter["required"], json!(["key"]));
    }
    // A batch item has the parameters of the single call, with the same schemas. To save tokens, their descriptions and
    // the limits of their lists are left out; the service checks the limits.
    for (batch, list, single) in [
        ("store_context_batch", "entries", "store_context"),
        ("update_context_batch", "updates", "update_context"),
    ] {
        let nested = &parameter(batch, list)["items"];
        let alone = &Catalogue::get().find(single).unwrap().input_schema;
        let schemas = |properties: &Value| -> Value {
            let mut properties = properties.clone();
            for schema in properties.as_object_mut().unwrap().values_mut() {
                let schema = schema.as_object_mut().unwrap();
                schema.remove("description");
                schema.remove("maxItems");
            }
            properties
        };
        assert_eq!(
            schemas(&nested["properties"]),
            schemas(&alone["properties"])
        );
        assert!(nested["required"].is_array());
        assert_eq!(nested["required"], alone["required"]);
        assert_eq!(
            (
                &parameter(batch, list)["minItems"],
                &parameter(batch, list)["maxItems"]
            ),
            (&json!(1), &json!(100))
        );
    }
    assert_eq!(
        parameter("get_context_by_ids", "context_ids")["maxItems"],
        100
    );
    assert_eq!(parameter("delete_context", "context_ids")["maxItems"], 1000);
}

/// Checks that a schema uses only the part of JSON Schema that every known client accepts.
fn lint(schema: &Value, path: &str, problems: &mut Vec<String>) {
    const ALLOWED: [&str; 15] = [
        "type",
        "properties",
        "required",
        "additionalProperties",
        "items",
        "enum",
        "anyOf",
        "default",
        "description",
        "minimum",
        "maximum",
        "minItems",
        "maxItems",
        "minLength",
        "maxLength",
    ];
    let Some(members) = schema.as_object() else {
        return problems.push(format!("{path} is no object"));
    };
    for key in members
        .keys()
        .filter(|key| !ALLOWED.contains(&key.as_str()))
    {
        problems.push(format!("{path} uses {key}"));
    }
    if let Some(alternatives) = schema.get("anyOf").and_then(Value::as_array) {
        if schema.get("type").is_some() {
            problems.push(format!("{path} has a type beside anyOf"));
        }
        alternatives
            .iter()
            .for_each(|alternative| lint(alternative, &format!("{path}|"), problems));
        return;
    }
    match schema["type"].as_str() {
        Some("object") => {
            match schema.get("properties") {
                Some(Value::Object(properties)) => properties
                    .iter()
                    .for_each(|(name, schema)| lint(schema, &format!("{path}.{name}"), problems)),
                Some(_) => problems.push(format!("{path} has odd properties")),
                None => {}
            }
            for name in schema
                .get("required")
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
            {
                if schema["properties"]
                    .get(name.as_str().unwrap_or_default())
                    .is_none()
                {
                    problems.push(format!("{path} requires {name}, which it does not declare"));
                }
            }
        }
        Some("array") => match schema.get("items") {
            Some(items) => lint(items, &format!("{path}[]"), problems),
            None => problems.push(format!("{path} has no items")),
        },
        Some("string" | "integer" | "number" | "boolean" | "null") => {}
        other => problems.push(format!("{path} has type {other:?}")),
    }
}

#[test]
fn schemas_stay_within_what_every_client_accepts() {
    let mut problems = Vec::new();
    for tool in Catalogue::get().tools() {
        for (which, schema) in [
            ("input", Some(&tool.input_schema)),
            ("output", tool.output_schema.as_ref()),
        ] {
            let schema = Value::Object((**schema.expect("both schemas")).clone());
            let path = format!("{} {which}", tool.name);
            lint(&schema, &path, &mut problems);
            assert_eq!(schema["type"], "object", "{path}");
            assert!(schema["properties"].is_object(), "{path}");
            if which == "input" {
                assert_eq!(schema["additionalProperties"], false, "{path}");
            }
            assert!(jsonschema::meta::is_valid(&schema), "{path}");
        }
        for (name, property) in tool.input_schema["properties"].as_object().unwrap() {
            assert!(
                property["description"]
                    .as_str()
                    .is_some_and(|text| !text.is_empty()),
                "{}.{name} has no description",
                tool.name
            );
        }
        assert!(
            tool.name.len() <= 30
                && tool
                    .name
                    .bytes()
                    .all(|byte| byte.is_ascii_lowercase() || byte == b'_')
        );
        assert!(
            tool.title.is_some()
                && tool
                    .description
                    .as_ref()
                    .is_some_and(|text| text.len() <= 1024)
        );
    }
    assert!(problems.is_empty(), "{problems:#?}");
}

#[test]
fn the_tools_cost_few_tokens() {
    let compact = |schema: &Map<String, Value>| serde_json::to_string(schema).unwrap().len();
    let (mut input, mut output) = (0, 0);
    for tool in Catalogue::get().tools() {
        input += tool.name.len()
            + tool.description.as_ref().map_or(0, |text| text.len())
            + compact(&tool.input_schema);
        output += compact(tool.output_schema.as_ref().unwrap());
    }
    // A token has about four bytes.
    assert!(
        input / 4 <= 5_000,
        "names, descriptions and input schemas take {} tokens",
        input / 4
    );
    assert!(
        output / 4 <= 4_000,
        "output schemas take {} tokens",
        output / 4
    );
}

#[test]
fn hints_say_what_a_tool_does_to_the_store() {
    for tool in Catalogue::get().tools() {
        let hints = tool.annotations.as_ref().unwrap();
        let reads = tool.name.contains("search")
            || tool.name.starts_with("get")
            || tool.name.starts_with("list")
            || tool.name.starts_with("changes")
            || tool.name.starts_with("diff");
        let adds = tool.name.starts_with("store") || tool.name.starts_with("create");
        assert_eq!(hints.read_only_hint, Some(reads), "{}", tool.name);
        assert_eq!(
            hints.destructive_hint,
            Some(!reads && !adds),
            "{}",
            tool.name
        );
        // Each restore creates one more version, and an edit with `insert_line` inserts its text once more.
        let repeats = adds || tool.name.starts_with("restore") || tool.name == "update_artifact";
        assert_eq!(hints.idempotent_hint, Some(!repeats), "{}", tool.name);
        assert_eq!(hints.open_world_hint, Some(false), "{}", tool.name);
    }
}

#[test]
fn the_tools_that_agents_need_first_are_always_loaded() {
    let pinned: Vec<&str> = Catalogue::get()
        .tools()
        .iter()
        .filter(|tool| {
            tool.meta
                .as_ref()
                .is_some_and(|meta| meta.0.get("anthropic/alwaysLoad") == Some(&json!(true)))
        })
        .map(|tool| &*tool.name)
        .collect();
    assert_eq!(
        pinned,
        [
            "store_context",
            "get_context_by_ids",
            "hybrid_search_context"
        ]
    );
}

#[test]
fn the_default_set_is_what_the_documents_name() {
    let names = |set| {
        Catalogue::get()
            .listed(set)
            .iter()
            .map(|tool| tool.name.to_string())
            .collect::<Vec<_>>()
    };
    let (default, full) = (names(ToolSet::Default), names(ToolSet::Full));
    assert_eq!(full[..default.len()], default);
    assert_eq!(full.len(), Catalogue::get().tools().len());
    let left_out = full[default.len()..].join("`, `");
    let setting = format!("`default` (all but `{left_out}`)");
    assert!(
        include_str!("../../../docs/gateway.md").contains(&setting),
        "docs/gateway.md does not say: {setting}"
    );
    let reference = include_str!("../../../docs/api.md");
    let sentence = format!("The gateway offers `{left_out}` only with `--tools full`.");
    assert!(
        reference.contains(&sentence),
        "docs/api.md does not say: {sentence}"
    );
    // The tables of operations. Their first column names the tools, except those rows that have more words there.
    let mut named: Vec<&str> = reference
        .split("\n\n")
        .filter(|block| block.starts_with("| operation (= MCP tool) |"))
        .flat_map(|table| table.lines().skip(2))
        .filter_map(|row| row.split('|').nth(1))
        .map(str::trim)
        .filter(|cell| *cell != "–" && !cell.contains(' '))
        .collect();
    named.sort_unstable();
    let mut expected = full.clone();
    expected.sort_unstable();
    assert_eq!(named, expected);
}

#[test]
fn the_reference_names_the_parameters_that_the_tools_leave_out() {
    let (_, table) = include_str!("../../../docs/api.md")
        .split_once("| MCP tool | parameters that only gRPC and REST have |\n")
        .unwrap();
    let (table, _) = table.split_once("\n\n").unwrap();
    let api: Value = serde_json::from_str(include_str!("../../../openapi/openapi.json")).unwrap();
    let paths = api["paths"].as_object().unwrap();
    for tool in Catalogue::get().tools() {
        let start = format!("| {} |", tool.name);
        let row = table.lines().find_map(|row| row.strip_prefix(&start));
        let named: Vec<&str> = row
            .into_iter()
            .flat_map(|row| row.split('`').skip(1).step_by(2))
            .collect();
        let declared = tool.input_schema["properties"].as_object().unwrap();
        for name in &named {
            assert!(!declared.contains_key(*name), "{}: {name}", tool.name);
        }
        let parameters = paths
            .values()
            .flat_map(|path| path.as_object().unwrap().values())
            .filter(|operation| operation["operationId"] == *tool.name)
            .flat_map(|operation| operation["parameters"].as_array().into_iter().flatten())
            .filter(|parameter| parameter["in"] == "query")
            .filter_map(|parameter| parameter["name"].as_str())
            // REST writes these lists as `ids=1,2` and `tag=a&tag=b`. The row of every tool names `min_revision`.
            .filter(|name| !["ids", "tag", "min_revision"].contains(name));
        for name in parameters.filter(|name| !declared.contains_key(*name)) {
            assert!(named.contains(&name), "{}: {name}", tool.name);
        }
    }
}

#[test]
fn every_tool_is_an_operation_and_every_operation_a_tool() {
    let tools = Catalogue::get().tools();
    let with_tools = Operation::ALL
        .iter()
        .filter(|operation| operation.is_tool());
    assert_eq!(tools.len(), with_tools.count());
    for tool in tools {
        assert_eq!(tool_operation(&tool.name).unwrap().as_str(), tool.name);
    }
    assert_eq!(tool_operation("create_api_key"), None);
}
