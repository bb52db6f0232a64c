//! The tasks that measure the tool descriptions (`gateway/tests/tasks`): their keys fit the current schemas.

use std::collections::BTreeSet;

use context_gateway::catalogue::Catalogue;
use serde_json::{Value, json};

const TASKS: &str = include_str!("../tasks/tasks.json");
const HOLD_OUT: &str = include_str!("../tasks/holdout.json");

/// The tasks of a file.
fn tasks(file: &str) -> Vec<Value> {
    serde_json::from_str(file).unwrap()
}

/// A value of the type that a key wants; for a pattern, some text that need not match it. `None` if the key wants the
/// parameter to be absent.
fn example(wanted: &Value) -> Option<Value> {
    match wanted {
        Value::Object(fields) => {
            if let Some((name, value)) = fields
                .iter()
                .next()
                .filter(|(name, _)| name.starts_with('$'))
            {
                return match name.as_str() {
                    "$has" => Some(value.clone()),
                    "$any" => value.as_array()?.iter().find_map(example),
                    "$set" => Some(value.as_array()?.iter().filter_map(example).collect()),
                    "$between" => value.get(0).cloned(),
                    "$matches" | "$case" | "$all" => Some(json!("a text with this pattern")),
                    "$absent" => None,
                    unknown => panic!("{unknown} is no matcher of grade.py"),
                };
            }
            let given = |(name, wanted): (&String, &Value)| Some((name.clone(), example(wanted)?));
            Some(fields.iter().filter_map(given).collect())
        }
        Value::Array(items) => Some(items.iter().filter_map(example).collect()),
        other => Some(other.clone()),
    }
}

#[test]
fn every_key_is_a_call_that_the_current_schemas_accept() {
    let mut ids = BTreeSet::new();
    for task in tasks(TASKS).into_iter().chain(tasks(HOLD_OUT)) {
        assert!(
            ids.insert(task["id"].to_string()),
            "{task} has an id of its own"
        );
        let keys = task["accept"].as_array().unwrap();
        assert!(!keys.is_empty(), "{}", task["id"]);
        for key in keys {
            let name = key["tool"].as_str().unwrap();
            let tool = Catalogue::get()
                .find(name)
                .unwrap_or_else(|| panic!("{}: there is no tool {name}", task["id"]));
            let schema = Value::Object((*tool.input_schema).clone());
            for parameter in key["arguments"].as_object().unwrap().keys() {
                assert!(
                    schema["properties"].get(parameter).is_some(),
                    "{}: {name} has no parameter {parameter}",
                    task["id"]
                );
            }
            let arguments = example(&key["arguments"]).unwrap();
            let validator = jsonschema::validator_for(&schema).unwrap();
            let errors: Vec<String> = validator
                .iter_errors(&arguments)
                .map(|error| error.to_string())
                .collect();
            assert!(errors.is_empty(), "{}: {arguments}: {errors:?}", task["id"]);
        }
    }
    assert_eq!(ids.len(), 30);
}

#[test]
fn the_tasks_cover_most_tools() {
    let wanted: BTreeSet<String> = tasks(TASKS)
        .into_iter()
        .chain(tasks(HOLD_OUT))
        .flat_map(|task| task["accept"].as_array().unwrap().clone())
        .map(|key| key["tool"].as_str().unwrap().to_owned())
        .collect();
    let missing: Vec<&str> = Catalogue::get()
        .tools()
        .iter()
        .map(|tool| &*tool.name)
        .filter(|name| !wanted.contains(*name))
        .collect();
    // No task needs these tools, because models do not confuse them with others.
    let unneeded = [
        "update_context_batch",
        "get_artifact",
        "delete_artifact",
        "list_artifact_versions",
    ];
    assert_eq!(missing, unneeded);
}
