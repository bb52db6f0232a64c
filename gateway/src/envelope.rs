//! The outer members of a JSON-RPC message: enough to respond to a request that cannot be parsed
//! further.

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

/// Longest id that is repeated in an error, in bytes.
pub const MAX_ID: usize = 64 * 1024;
/// Longest method that is repeated in an error, in characters.
const MAX_METHOD: usize = 64;

/// The id and method of a message, and whether it is JSON-RPC 2.0.
#[derive(Debug, PartialEq)]
pub struct Envelope {
    /// Whether `jsonrpc` is "2.0".
    pub is_version_2: bool,
    /// The id, if it is a string or a number.
    pub id: Option<Value>,
    /// The method, if it is a string; cut if it is long.
    pub method: Option<String>,
}

#[derive(Deserialize)]
struct Members<'m> {
    #[serde(borrow)]
    jsonrpc: Option<&'m RawValue>,
    #[serde(borrow)]
    id: Option<&'m RawValue>,
    #[serde(borrow)]
    method: Option<&'m RawValue>,
}

impl Envelope {
    /// Reads version, id and method of one message; `None` if it is not a JSON object. Nothing else is built
    /// from the message, however large or deep it is.
    #[must_use]
    pub fn read(message: &[u8]) -> Option<Self> {
        // serde would read a list of two values, such as a batch of two messages, as an id and a method.
        if message.trim_ascii_start().first() != Some(&b'{') {
            return None;
        }
        let members: Members<'_> = serde_json::from_slice(message).ok()?;
        let parse = |raw: &RawValue| serde_json::from_str::<Value>(raw.get()).ok();
        let version = members
            .jsonrpc
            .filter(|version| version.get().starts_with('"'))
            .and_then(parse);
        let id = members
            .id
            .filter(|id| id.get().len() <= MAX_ID && !id.get().starts_with(['{', '[']))
            .and_then(parse);
        let method = members
            .method
            .filter(|method| method.get().starts_with('"'))
            .and_then(parse);
        Some(Self {
            is_version_2: version.is_some_and(|version| version == "2.0"),
            id: id.filter(|id| id.is_string() || id.is_number()),
            method: method
                .and_then(|method| Some(method.as_str()?.chars().take(MAX_METHOD).collect())),
        })
    }

    /// Whether it is a request: it has an id, so it expects a response.
    #[must_use]
    pub const fn is_request(&self) -> bool {
        self.id.is_some() && self.method.is_some()
    }

    /// Whether it is a notification: it expects no response.
    #[must_use]
    pub const fn is_notification(&self) -> bool {
        self.id.is_none() && self.method.is_some()
    }

    /// The JSON-RPC error for a message that could not be read. `cause` is the parser's message; empty
    /// if it is unknown.
    #[must_use]
    pub fn unreadable(&self, cause: &str) -> Value {
        let id = self.id.clone().unwrap_or_default();
        let Some(method) = &self.method else {
            return error(&id, -32600, "Invalid Request: the message has no method");
        };
        if !self.is_version_2 {
            return error(&id, -32600, "Invalid Request: `jsonrpc` must be \"2.0\"");
        }
        // What serde reports if the JSON is valid but its structure is not.
        let structure_errors = [
            "data did not match",
            "invalid type",
            "missing field",
            "unknown ",
            "duplicate field",
            "unrecognized ",
        ];
        if self
            .id
            .as_ref()
            .is_some_and(|id| !id.is_string() && !id.is_i64())
        {
            error(
                &id,
                -32600,
                "Invalid Request: an id is a string or an integer within 64 bits",
            )
        } else if cause.is_empty()
            || structure_errors
                .iter()
                .any(|words| cause.starts_with(words))
        {
            error(
                &id,
                -32602,
                &format!(
                    "Invalid params: the parameters of `{method}` do not have the form that MCP defines"
                ),
            )
        } else {
            let cause: String = cause.chars().take(200).collect();
            error(
                &id,
                -32600,
                &format!("Invalid Request: the parameters of `{method}` cannot be read: {cause}"),
            )
        }
    }
}

/// A JSON-RPC error message.
#[must_use]
pub fn error(id: &Value, code: i32, message: &str) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message}})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Option<(Option<Value>, Option<String>)> {
        Envelope::read(text.as_bytes()).map(|envelope| (envelope.id, envelope.method))
    }

    #[test]
    fn id_and_method_are_found_however_bad_the_rest_is() {
        let deep = "[".repeat(100_000) + &"]".repeat(100_000);
        for params in [
            "1e999",
            "\"\\ud800\"",
            "99999999999999999999999",
            &deep,
            "5",
        ] {
            let text = format!(r#"{{"jsonrpc":"2.0","method":"x","params":{params},"id":7}}"#);
            assert_eq!(
                read(&text),
                Some((Some(json!(7)), Some("x".to_owned()))),
                "{params:.40}"
            );
        }
    }

    #[test]
    fn an_id_is_a_string_or_a_number() {
        for (id, expected) in [
            ("\"a\"", Some(json!("a"))),
            ("1.5", Some(json!(1.5))),
            ("null", None),
            ("[1]", None),
            ("true", None),
        ] {
            assert_eq!(
                read(&format!(r#"{{"id":{id},"method":"x"}}"#)),
                Some((expected, Some("x".to_owned())))
            );
        }
        for list in ["[]", "[{},{}]", "[7,\"x\"]"] {
            assert_eq!(read(list), None, "{list}");
        }
        assert_eq!(read("{\"id\":"), None);
    }

    #[test]
    fn the_error_says_whether_the_form_or_the_text_is_wrong() {
        let envelope =
            Envelope::read(br#"{"jsonrpc":"2.0","id":1,"method":"tools/call"}"#).unwrap();
        assert_eq!(
            envelope.unreadable("data did not match any variant")["error"]["code"],
            -32602
        );
        let deep = envelope.unreadable("recursion limit exceeded at line 1 column 200");
        assert_eq!(
            (&deep["id"], &deep["error"]["code"]),
            (&json!(1), &json!(-32600))
        );
        assert!(
            deep["error"]["message"]
                .as_str()
                .unwrap()
                .contains("recursion limit")
        );
        let fraction = Envelope::read(br#"{"jsonrpc":"2.0","id":1.5,"method":"x"}"#)
            .unwrap()
            .unreadable("data did not match");
        assert_eq!(
            (&fraction["id"], &fraction["error"]["code"]),
            (&json!(1.5), &json!(-32600))
        );
    }
}
