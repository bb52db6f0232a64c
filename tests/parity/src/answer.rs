use serde_json::{Map, Value, json};

/// The result of an operation, in one form for all clients, so that results can be compared.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    /// The reply.
    Ok(Value),
    /// The error: `{"error", "reason", "violations"}`; no `violations` if there are none.
    Err(Value),
}

/// Keys whose values depend on the time or the machine.
const REDACTED: [&str; 9] = [
    "time",
    "created_at",
    "updated_at",
    "first_entry",
    "last_entry",
    "execution_time_ms",
    "database_size_mb",
    "connection_metrics",
    "query_plan",
];

impl Answer {
    /// A reply. Values that depend on the time or the machine are replaced by their type.
    #[must_use]
    pub fn ok(mut reply: Value) -> Self {
        redact(&mut reply);
        Self::Ok(reply)
    }

    /// An error.
    #[must_use]
    pub fn err(error: &str, reason: &str, violations: Value) -> Self {
        let mut fields = json!({"error": error, "reason": reason});
        if violations.as_array().is_some_and(|all| !all.is_empty()) {
            fields["violations"] = violations;
        }
        Self::Err(fields)
    }
}

impl Answer {
    /// The error in the form documented for the artifact tools: only its sentence.
    #[must_use]
    pub fn sentence_alone(self) -> Self {
        match self {
            Self::Ok(reply) => Self::Ok(reply),
            Self::Err(error) => Self::Err(json!({"error": error["error"]})),
        }
    }

    /// The reply or the error.
    #[must_use]
    pub fn body(&mut self) -> &mut Value {
        match self {
            Self::Ok(body) | Self::Err(body) => body,
        }
    }
}

fn redact(value: &mut Value) {
    match value {
        Value::Object(object) => redact_object(object),
        Value::Array(items) => items.iter_mut().for_each(redact),
        _ => {}
    }
}

/// The name of the value's type. An object keeps its keys.
fn type_of(value: &Value) -> Value {
    let name = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(text) if text.ends_with('Z') => "time",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(members) => {
            let types = members
                .iter()
                .map(|(key, value)| (key.clone(), type_of(value)));
            return types.collect();
        }
    };
    json!(format!("<{name}>"))
}

fn redact_object(object: &mut Map<String, Value>) {
    for (key, value) in object.iter_mut() {
        if REDACTED.contains(&key.as_str()) {
            *value = type_of(value);
        } else if key != "metadata" {
            redact(value);
        }
    }
}
