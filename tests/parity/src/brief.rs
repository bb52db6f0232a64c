use std::collections::HashSet;

use context_model::warnings::is_about_service;
use serde_json::{Map, Value, json};

use crate::Answer;

/// How answers on MCP are shorter than on the other transports (docs/gateway.md).
#[derive(Debug, Default)]
pub struct Brief {
    /// The warnings about the service that a conversation on stdio has had. `None` over HTTP, which has no
    /// conversations.
    told: Option<HashSet<String>>,
}

impl Brief {
    pub(crate) fn on_stdio() -> Self {
        Self {
            told: Some(HashSet::new()),
        }
    }

    /// The next answer of this conversation, from the answer on another transport.
    #[must_use]
    pub fn answer(&self, full: &Answer) -> Answer {
        match full {
            Answer::Ok(reply) => Answer::Ok(self.value(reply)),
            Answer::Err(error) => Answer::Err(self.value(error)),
        }
    }

    /// A reply or an error, or a part of it.
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
        let kept = members.iter().filter_map(|(key, value)| {
            match (key.as_str(), value) {
                ("metadata", _) => Some(value.clone()),
                ("next_cursor", Value::Null) => None,
                // The sentence of the error contains each description.
                ("violations", Value::Array(all)) => {
                    let field = |violation: &Value| json!({"field": violation["field"]});
                    Some(all.iter().map(field).collect())
                }
                ("warnings", Value::Array(all)) => {
                    let news: Vec<Value> = all
                        .iter()
                        .filter(|warning| self.is_news(warning))
                        .cloned()
                        .collect();
                    (!news.is_empty()).then(|| news.into())
                }
                _ => Some(self.value(value)),
            }
            .map(|value| (key.clone(), value))
        });
        Value::Object(kept.collect())
    }

    fn is_news(&self, warning: &Value) -> bool {
        let (Some(told), Some(warning)) = (&self.told, warning.as_str()) else {
            return true;
        };
        !told.contains(warning)
    }

    /// Notes the warnings of an answer.
    pub fn heard(&mut self, full: &Answer) {
        if let (Some(told), Answer::Ok(reply)) = (&mut self.told, full) {
            let warnings = reply["warnings"].as_array().into_iter().flatten();
            let about_service = warnings
                .filter_map(Value::as_str)
                .filter(|warning| is_about_service(warning));
            told.extend(about_service.map(str::to_owned));
        }
    }
}
