use std::collections::BTreeMap;

use serde_json::Value;

/// What one door made up, such as ids, under the names that the scenario has for it.
#[derive(Debug, Default)]
pub struct Names(BTreeMap<String, String>);

impl Names {
    /// Remembers the strings at these keys of a reply: name → key.
    pub fn save(&mut self, saves: &BTreeMap<String, String>, reply: &Value) {
        for (name, key) in saves {
            if let Some(made_up) = reply[key].as_str() {
                self.0.insert(format!("${name}"), made_up.to_owned());
            }
        }
    }

    /// Puts what was made up where its name stands.
    #[must_use]
    pub fn resolve(&self, value: &Value) -> Value {
        self.0.iter().fold(value.clone(), |value, (name, made_up)| {
            replaced(value, name, made_up)
        })
    }

    /// Puts the name where what was made up stands.
    #[must_use]
    pub fn hide(&self, value: &Value) -> Value {
        // The longest first: one may be a part of another.
        let mut names: Vec<_> = self.0.iter().collect();
        names.sort_by_key(|(_, made_up)| std::cmp::Reverse(made_up.len()));
        names
            .into_iter()
            .fold(value.clone(), |value, (name, made_up)| {
                replaced(value, made_up, name)
            })
    }
}

fn replaced(value: Value, from: &str, to: &str) -> Value {
    match value {
        Value::String(text) => Value::String(text.replace(from, to)),
        Value::Array(items) => Value::Array(
            items
                .into_iter()
                .map(|item| replaced(item, from, to))
                .collect(),
        ),
        Value::Object(object) => Value::Object(
            object
                .into_iter()
                .map(|(key, value)| (key, replaced(value, from, to)))
                .collect(),
        ),
        other => other,
    }
}
