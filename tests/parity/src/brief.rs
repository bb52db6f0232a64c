use std::collections::HashSet;

use context_model::warnings::is_about_service;
use serde_json::{Map, Value, json};

use crate::Answer;

/// Shortens an answer of gRPC or REST to the answer that MCP must give (docs/gateway.md).
#[derive(Debug, Default)]
pub struct Brief {
    /// The warnings about the service that the gateway has already sent on this stdio connection. `None` over HTTP,
    /// where each reply has all warnings.
    sent_warnings: Option<HashSet<String>>,
}

impl Brief {
    pub(crate) fn on_stdio() -> Self {
        Self {
            sent_warnings: Some(HashSet::new()),
        }
    }

    /// The answer that MCP must give next, computed from the answer on another transport.
    #[must_use]
    pub fn answer(&self, full: &Answer) -> Answer {
        match full {
            Answer::Ok(reply) => Answer::Ok(self.value(reply)),
            Answer::Err(error) => Answer::Err(self.value(error)),
        }
    }

    /// Shortens a reply or an error, or a part of one.
    #[must_use]
    pub fn value(&self, full: &Value) -> Value {
        match full {
            Value::Object(members) => self.object(members),
            Value::Array(items) => items.iter().map(|item| self.value(item)).collect(),
            Value::Number(number) if number.is_f64() => {
                let digits = format!("{:.5e}", number.as_f64().unwrap_or_default());
                json!(digits.parse::<f64>().expect("a number"))
            }
            other => other.clone(),
        }
    }

    fn object(&self, members: &Map<String, Value>) -> Value {
        let shortened = members.iter().filter_map(|(key, value)| {
            match (key.as_str(), value) {
                ("metadata", _) => Some(value.clone()),
                ("next_cursor", Value::Null) => None,
                // The sentence of the error contains each description.
                ("violations", Value::Array(all)) => {
                    let field = |violation: &Value| json!({"field": violation["field"]});
                    Some(all.iter().map(field).collect())
                }
                ("warnings", Value::Array(all)) => {
                    let unsent: Vec<Value> = all
                        .iter()
                        .filter(|warning| !self.was_sent(warning))
                        .cloned()
                        .collect();
                    (!unsent.is_empty()).then(|| unsent.into())
                }
                _ => Some(self.value(value)),
            }
            .map(|value| (key.clone(), value))
        });
        Value::Object(shortened.collect())
    }

    fn was_sent(&self, warning: &Value) -> bool {
        let (Some(sent), Some(warning)) = (&self.sent_warnings, warning.as_str()) else {
            return false;
        };
        sent.contains(warning)
    }

    /// Records the warnings of an answer as sent, so that later answers leave them out.
    pub fn record_warnings(&mut self, full: &Answer) {
        if let (Some(sent), Answer::Ok(reply)) = (&mut self.sent_warnings, full) {
            let warnings = reply["warnings"].as_array().into_iter().flatten();
            let about_service = warnings
                .filter_map(Value::as_str)
                .filter(|warning| is_about_service(warning));
            sent.extend(about_service.map(str::to_owned));
        }
    }
}
