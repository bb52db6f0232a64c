//! Makes replies short: an agent pays for each byte. gRPC and REST return them in full.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use context_model::warnings::is_about_service;
use context_model::{Error, Operation};
use serde_json::{Number, Value, json};

/// Maximum number of remembered warnings. Further ones are shown each time.
const MAX_SHOWN: usize = 100;

/// Rounds the fractional numbers of a reply to six significant digits, except in metadata. Removes the `next_cursor` of
/// a list of artifacts if it is null, because that key is not a documented one.
pub fn shorten(operation: Operation, reply: &mut Value) {
    round_numbers(reply);
    if operation == Operation::ListArtifacts
        && let Some(reply) = reply.as_object_mut()
        && reply.get("next_cursor").is_some_and(Value::is_null)
    {
        reply.remove("next_cursor");
    }
}

/// An error as JSON. The description of a violation is left out if the error's message contains it.
pub fn error(error: &Error) -> Value {
    let mut shown = json!({"error": error.message, "reason": error.reason.as_str()});
    let violation = |violation: &context_model::Violation| {
        if error.message.contains(&violation.description) {
            json!({"field": violation.field})
        } else {
            json!(violation)
        }
    };
    if !error.violations.is_empty() {
        shown["violations"] = error.violations.iter().map(violation).collect();
    }
    if let Some(after) = error.retry_after {
        shown["retry_after_seconds"] = json!(after.as_secs().max(1));
    }
    if let Some(cursor) = &error.oldest_cursor {
        shown["oldest_cursor"] = json!(cursor);
    }
    shown
}

fn round_numbers(value: &mut Value) {
    match value {
        Value::Object(members) => members
            .iter_mut()
            .filter(|(key, _)| *key != "metadata")
            .for_each(|(_, value)| round_numbers(value)),
        Value::Array(items) => items.iter_mut().for_each(round_numbers),
        Value::Number(number) if number.is_f64() => {
            let rounded = number.as_f64().and_then(rounded);
            *value = rounded.map_or(Value::Null, Value::Number);
        }
        _ => {}
    }
}

fn rounded(number: f64) -> Option<Number> {
    let digits = format!("{number:.5e}");
    Number::from_f64(digits.parse().unwrap_or(number))
}

/// The warnings about the service that a conversation has already shown.
#[derive(Debug, Default)]
pub struct ShownWarnings(Mutex<HashSet<String>>);

impl ShownWarnings {
    /// Removes the warnings about the service that an earlier reply showed. Warnings about the results of a query stay.
    pub fn remove_repeated(&self, reply: &mut Value) {
        let Some(warnings) = reply.get_mut("warnings").and_then(Value::as_array_mut) else {
            return;
        };
        warnings.retain(|warning| {
            warning
                .as_str()
                .is_none_or(|warning| self.should_show(warning))
        });
        if warnings.is_empty()
            && let Some(reply) = reply.as_object_mut()
        {
            reply.remove("warnings");
        }
    }

    fn should_show(&self, warning: &str) -> bool {
        if !is_about_service(warning) {
            return true;
        }
        let mut shown = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        !shown.contains(warning) && (shown.len() >= MAX_SHOWN || shown.insert(warning.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use context_model::warnings::{NOT_RERANKED, ONLY_FULL_TEXT_RAN};

    use super::*;

    #[test]
    fn numbers_have_six_significant_digits_and_metadata_stays() {
        let mut reply = json!({"results": [{"metadata": {"x": 0.123_456_789, "metadata": 1e-9}, "id": 1_234_567_890,
            "scores": {"rrf": 0.016_393_442_622_950_82, "fts_rank": 7_654_321, "fts_score": null, "tiny": 1.234_567_8e-9,
                "large": 123_456_789.5, "whole": 2.0}}]});
        shorten(Operation::HybridSearchContext, &mut reply);
        assert_eq!(
            reply.to_string(),
            json!({"results": [{"metadata": {"x": 0.123_456_789, "metadata": 1e-9}, "id": 1_234_567_890,
            "scores": {"rrf": 0.016_393_4, "fts_rank": 7_654_321, "fts_score": null, "tiny": 1.234_57e-9,
                "large": 123_457_000.0, "whole": 2.0}}]})
            .to_string()
        );
    }

    #[test]
    fn keys_without_a_value_are_absent_unless_they_are_documented() {
        let mut list = json!({"result": [], "next_cursor": null});
        shorten(Operation::ListArtifacts, &mut list);
        assert_eq!(list, json!({"result": []}));
        let mut statistics = json!({"connection_metrics": null});
        shorten(Operation::GetStatistics, &mut statistics);
        assert_eq!(statistics, json!({"connection_metrics": null}));
    }

    #[test]
    fn a_warning_about_the_service_is_told_once_and_one_about_the_results_each_time() {
        let shown = ShownWarnings::default();
        let service = format!("no model is installed; {ONLY_FULL_TEXT_RAN}");
        let results = "no entry is clearly relevant to the query; these are the nearest";
        let reply = |warnings: &[&str]| {
            let mut reply = json!({"count": 0, "warnings": warnings});
            shown.remove_repeated(&mut reply);
            reply["warnings"].clone()
        };
        assert_eq!(reply(&[&service, results]), json!([service, results]));
        assert_eq!(reply(&[&service, results]), json!([results]));
        assert_eq!(reply(&[&service]), Value::Null);
        let other = format!("{NOT_RERANKED}: it took more than 5 ms");
        assert_eq!(reply(&[&other, &service]), json!([other]));
    }
}
