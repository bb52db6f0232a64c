use std::collections::BTreeMap;

use serde_json::Value;

/// Values that differ from client to client, such as generated ids, because each client has a service of its own. The
/// scenario refers to them by name.
#[derive(Debug, Default)]
pub struct Names(BTreeMap<String, String>);

impl Names {
    /// Stores the strings at these keys of a reply: name → key.
    pub fn save(&mut self, saves: &BTreeMap<String, String>, reply: &Value) {
        for (name, key) in saves {
            if let Some(generated) = reply[key].as_str() {
                self.0.insert(format!("${name}"), generated.to_owned());
            }
        }
    }

    /// Replaces names by their generated values.
    #[must_use]
    pub fn resolve(&self, value: &Value) -> Value {
        // In reverse order, `$cursor2` comes before `$cursor`, which it begins with.
        self.0
            .iter()
            .rev()
            .fold(value.clone(), |value, (name, generated)| {
                replaced(value, name, generated)
            })
    }

    /// Replaces generated values by their names.
    #[must_use]
    pub fn hide(&self, value: &Value) -> Value {
        // The longest values first, because one may be a part of another.
        let mut names: Vec<_> = self.0.iter().collect();
        names.sort_by_key(|(_, generated)| std::cmp::Reverse(generated.len()));
        names
            .into_iter()
            .fold(value.clone(), |value, (name, generated)| {
                replaced(value, generated, name)
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
