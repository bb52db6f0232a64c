//! The hash of a request for idempotency. It is the same for equal requests on every transport and
//! does not depend on the order of keys.

use context_model::{Error, Result};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

pub(super) fn hash<T: serde::Serialize>(operation: &str, request: &T) -> Result<[u8; 32]> {
    let value = serde_json::to_value(request).map_err(Error::internal)?;
    let mut hasher = Sha256::new();
    hasher.update(operation.as_bytes());
    update(&mut hasher, &value);
    Ok(hasher.finalize().into())
}

/// The recursion is bounded, because each transport limits the depth of a request when it decodes it.
fn update(hasher: &mut Sha256, value: &Value) {
    match value {
        Value::Array(items) => {
            hasher.update([b'[']);
            hasher.update((items.len() as u64).to_le_bytes());
            items.iter().for_each(|item| update(hasher, item));
        }
        Value::Object(object) => {
            let mut members: Vec<_> = object.iter().collect();
            members.sort_unstable_by_key(|(key, _)| *key);
            hasher.update([b'{']);
            hasher.update((members.len() as u64).to_le_bytes());
            for (key, value) in members {
                hasher.update((key.len() as u64).to_le_bytes());
                hasher.update(key.as_bytes());
                update(hasher, value);
            }
        }
        Value::String(text) => {
            hasher.update([b'"']);
            hasher.update((text.len() as u64).to_le_bytes());
            hasher.update(text.as_bytes());
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {
            hasher.update(value.to_string().as_bytes());
            hasher.update([b',']);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn key_order_does_not_matter_and_everything_else_does() {
        let hash = |operation: &str, value: Value| hash(operation, &value).unwrap();
        assert_eq!(
            hash("a", json!({"x": 1, "y": [2]})),
            hash("a", json!({"y": [2], "x": 1}))
        );
        for other in [
            json!({"x": 1, "y": [2.0]}),
            json!({"x": 1, "y": ["2"]}),
            json!({"x": 1, "y": 2}),
            json!({"xy": 1}),
        ] {
            assert_ne!(hash("a", json!({"x": 1, "y": [2]})), hash("a", other));
        }
        assert_ne!(hash("a", json!({})), hash("b", json!({})));
    }
}
