use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

/// Steps, run in order.
#[derive(Debug, Deserialize)]
pub struct Scenario {
    /// The steps.
    pub steps: Vec<Step>,
}

/// One call, and what its result must contain.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// What the step shows.
    pub shows: String,
    /// The operation, by its tool name.
    pub call: String,
    /// Its arguments.
    #[serde(default)]
    pub with: Value,
    /// What the reply must contain. Objects must have the given keys, and lists the given number of items. Their values
    /// are compared in the same way. All other values must be equal.
    #[serde(default)]
    pub gives: Option<Value>,
    /// What the error must contain: any of `error`, `reason` and `violations`.
    #[serde(default)]
    pub fails: Option<Value>,
    /// Strings of the reply that the service of each client generates: a name, which later steps use as `$name`, and
    /// the reply's key.
    #[serde(default)]
    pub saves: BTreeMap<String, String>,
    /// The request has a value of the wrong type or an unknown parameter. gRPC cannot express it, so its client skips
    /// the step.
    #[serde(default)]
    pub json_only: bool,
    /// The step uses a parameter that the MCP tool does not have, so the MCP clients skip it.
    #[serde(default)]
    pub no_tool: bool,
}

/// Replaces `{"repeat": "x", "times": 3}` by `"xxx"`, so that a scenario can hold long texts. Other values than strings
/// become a list: `{"repeat": 7, "times": 3}` becomes `[7, 7, 7]`.
#[must_use]
pub fn substitute(value: &Value) -> Value {
    match value {
        Value::Object(object) => match (object.get("repeat"), object.get("times"), object.len()) {
            (Some(Value::String(text)), Some(times), 2) => {
                let times = usize::try_from(times.as_u64().unwrap_or_default()).unwrap_or_default();
                Value::String(text.repeat(times))
            }
            (Some(item), Some(times), 2) => {
                Value::Array(vec![
                    substitute(item);
                    usize::try_from(times.as_u64().unwrap_or_default())
                        .unwrap_or_default()
                ])
            }
            _ => Value::Object(
                object
                    .iter()
                    .map(|(key, value)| (key.clone(), substitute(value)))
                    .collect(),
            ),
        },
        Value::Array(items) => Value::Array(items.iter().map(substitute).collect()),
        other => other.clone(),
    }
}
