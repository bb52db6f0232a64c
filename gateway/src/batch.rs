//! JSON-RPC batches: an array of messages, whose responses come in one array. Only the protocol revision 2025-03-26 has
//! them.

use serde_json::Value;
use serde_json::value::RawValue;

use crate::envelope::{self, Envelope};

/// The only protocol revision with batches.
pub const REVISION: &str = "2025-03-26";
/// Maximum number of messages in one batch.
pub const MAX_MESSAGES: usize = 100;

/// The methods that must not be in a batch.
const MUST_BE_ALONE: [&str; 2] = ["initialize", "subscriptions/listen"];
/// Why an array is refused in the other revisions.
const NO_BATCHES: &str =
    "Invalid Request: only the protocol revision 2025-03-26 has batches; send each message alone";

/// The messages of a batch, or why it must not be run. `None` if the text is not a JSON array. The messages are parts
/// of the text; nothing else is built from them.
#[must_use]
pub fn messages(text: &[u8]) -> Option<Result<Vec<&RawValue>, String>> {
    if !is_array(text) {
        return None;
    }
    let messages: Vec<&RawValue> = serde_json::from_slice(text).ok()?;
    Some(match messages.len() {
        0 => Err("Invalid Request: the batch is empty".to_owned()),
        1..=MAX_MESSAGES => Ok(messages),
        count => Err(format!(
            "Invalid Request: the batch has {count} messages; the maximum is {MAX_MESSAGES}"
        )),
    })
}

/// The error sentence for JSON that is not a message: `NO_BATCHES` for an array, else `otherwise`.
#[must_use]
pub fn not_a_message(text: &[u8], otherwise: &'static str) -> &'static str {
    if is_array(text) {
        NO_BATCHES
    } else {
        otherwise
    }
}

/// The error for a message that must not be in a batch, because it begins a session, its response does not end, or it is
/// a batch itself; `None` for all others.
#[must_use]
pub fn misplaced(message: &[u8]) -> Option<Value> {
    if is_array(message) {
        let sentence = "Invalid Request: a batch must not contain another batch";
        return Some(envelope::error(&Value::Null, -32600, sentence));
    }
    let Envelope { id, method, .. } = Envelope::read(message)?;
    let method = method.filter(|method| MUST_BE_ALONE.contains(&method.as_str()))?;
    Some(envelope::error(
        &id.unwrap_or_default(),
        -32600,
        &format!("Invalid Request: `{method}` must be sent alone, not in a batch"),
    ))
}

/// The array of these responses, each of which is JSON.
#[must_use]
pub fn array<R: AsRef<[u8]>>(responses: &[R]) -> Vec<u8> {
    let length: usize = responses
        .iter()
        .map(|response| response.as_ref().len() + 1)
        .sum();
    let mut array = Vec::with_capacity(length + 1);
    array.push(b'[');
    for (index, response) in responses.iter().enumerate() {
        if index > 0 {
            array.push(b',');
        }
        array.extend_from_slice(response.as_ref());
    }
    array.push(b']');
    array
}

fn is_array(text: &[u8]) -> bool {
    text.trim_ascii_start().first() == Some(&b'[')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(batch: &str) -> Option<Result<Vec<String>, String>> {
        let messages = messages(batch.as_bytes())?;
        Some(messages.map(|messages| messages.iter().map(|raw| raw.get().to_owned()).collect()))
    }

    #[test]
    fn an_array_of_up_to_a_hundred_values_is_a_batch_whatever_they_are() {
        assert_eq!(
            texts(" [ {\"id\":1} , [2],3 ] "),
            Some(Ok(vec!["{\"id\":1}".into(), "[2]".into(), "3".into()]))
        );
        for other in ["{\"id\":[1]}", "5", "", "[1", "[1]]", "no json"] {
            assert_eq!(texts(other), None, "{other}");
        }
    }

    #[test]
    fn an_empty_batch_and_one_of_more_messages_are_refused_with_their_number() {
        let of = |count: usize| texts(&format!("[{}]", vec!["{}"; count].join(","))).unwrap();
        assert!(of(0).unwrap_err().contains("empty"));
        assert_eq!(of(MAX_MESSAGES).unwrap().len(), MAX_MESSAGES);
        let refused = of(MAX_MESSAGES + 1).unwrap_err();
        assert!(
            refused.contains("101") && refused.contains("maximum is 100"),
            "{refused}"
        );
    }

    #[test]
    fn what_begins_a_session_or_has_no_end_must_be_sent_alone() {
        for method in MUST_BE_ALONE {
            let message = format!(r#"{{"id":7,"method":"{method}"}}"#);
            let error = misplaced(message.as_bytes()).unwrap();
            assert_eq!(
                (&error["id"], &error["error"]["code"]),
                (&7.into(), &(-32600).into())
            );
        }
        assert_eq!(misplaced(br#"{"id":7,"method":"ping"}"#), None);
        let nested = misplaced(br#" [{"id":7,"method":"ping"}]"#).unwrap();
        let said = nested["error"]["message"].as_str().unwrap();
        assert!(
            nested["id"].is_null() && said.contains("another batch"),
            "{nested}"
        );
    }

    #[test]
    fn responses_make_one_array() {
        assert_eq!(array(&["{\"id\":1}", "2"]), b"[{\"id\":1},2]");
        assert_eq!(array::<&str>(&[]), b"[]");
    }
}
