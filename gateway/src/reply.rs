//! Turns the service's reply into the result that a client reads.

use context_model::Error;
use rmcp::model::{CallToolResult, ContentBlock};
use serde_json::{Value, json};

use crate::brief;

/// A successful reply: a JSON object, and the key of the part that becomes the text.
#[derive(Debug)]
pub struct Reply {
    /// The value of `structuredContent`; always an object.
    pub structured: Value,
    /// The key whose value becomes the text, for a tool that is documented to return a bare list.
    /// `None`: the whole object.
    pub text_field: Option<&'static str>,
}

impl Reply {
    /// The tool result, with the JSON as structured content and also as text, for clients that read
    /// only text.
    #[must_use]
    pub fn into_result(self) -> CallToolResult {
        let text = match self.text_field {
            Some(key) => self.structured[key].to_string(),
            None => self.structured.to_string(),
        };
        let mut result = CallToolResult::success(vec![ContentBlock::text(text)]);
        result.structured_content = Some(self.structured);
        result
    }
}

/// The result for an error of an artifact tool, as documented: `{"error": sentence}` and nothing
/// else, in a list if the tool returns a list.
#[must_use]
pub fn documented_failure(error: &Error, in_list: bool) -> CallToolResult {
    let text = json!({ "error": error.message });
    let text = if in_list { json!([text]) } else { text };
    CallToolResult::error(vec![ContentBlock::text(text.to_string())])
}

/// The result for an error. The text is complete, because clients show nothing else of a failed
/// call.
#[must_use]
pub fn failure(error: &Error) -> CallToolResult {
    CallToolResult::error(vec![ContentBlock::text(brief::error(error).to_string())])
}

#[cfg(test)]
mod tests {
    use context_model::Reason;

    use super::*;

    fn text(result: &CallToolResult) -> Value {
        serde_json::from_str(&result.content[0].as_text().unwrap().text).unwrap()
    }

    #[test]
    fn an_error_is_text_alone_names_every_violation_and_says_nothing_twice() {
        let result = failure(&Error::invalid(
            "limit",
            "`limit` is 500; the allowed range is 1 to 100",
        ));
        assert_eq!(result.is_error, Some(true));
        assert_eq!(result.structured_content, None);
        assert_eq!(
            text(&result),
            json!({"error": "`limit` is 500; the allowed range is 1 to 100", "reason": "INVALID_ARGUMENT",
                "violations": [{"field": "limit"}]})
        );
        let mut error = Error::new(Reason::ContextNotFound, "context 7 not found");
        assert_eq!(
            text(&failure(&error)),
            json!({"error": "context 7 not found", "reason": "CONTEXT_NOT_FOUND"})
        );
        error.violations = Error::invalid("a", "something else").violations;
        assert_eq!(
            text(&failure(&error))["violations"],
            json!([{"field": "a", "description": "something else"}])
        );
    }

    #[test]
    fn an_error_of_an_artifact_tool_is_its_sentence_alone() {
        let error = Error::invalid("query", "Search query cannot be empty");
        assert_eq!(
            text(&documented_failure(&error, false)),
            json!({"error": "Search query cannot be empty"})
        );
        let listed = documented_failure(&error, true);
        assert_eq!(
            (text(&listed), listed.is_error),
            (
                json!([{"error": "Search query cannot be empty"}]),
                Some(true)
            )
        );
    }

    #[test]
    fn a_documented_list_is_the_text_and_sits_under_result_in_the_structure() {
        let result = Reply {
            structured: json!({"result": [{"id": 1}], "revision": 4}),
            text_field: Some("result"),
        }
        .into_result();
        assert_eq!(text(&result), json!([{"id": 1}]));
        assert_eq!(
            result.structured_content,
            Some(json!({"result": [{"id": 1}], "revision": 4}))
        );
    }
}
