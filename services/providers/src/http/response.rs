//! Reading responses that are lists with one item for each text of the request.

use serde_json::Value;

use crate::ProviderError;

/// The error for a response that cannot be used.
pub(super) fn malformed(what: &str) -> ProviderError {
    ProviderError::Malformed(what.to_owned())
}

/// The list at this JSON pointer of a response. The items are moved out, not copied.
pub(super) fn list(mut response: Value, pointer: &str) -> Result<Vec<Value>, ProviderError> {
    match response.pointer_mut(pointer).map(Value::take) {
        Some(Value::Array(items)) => Ok(items),
        _ => Err(malformed("it contains no list of results")),
    }
}

/// The results in the order of the texts, from pairs of a text's index and its result. A response that leaves a text
/// out, or names one twice, is rejected: its results might belong to other texts.
pub(super) fn in_order<T>(
    found: impl Iterator<Item = (Option<u64>, T)>,
    texts: usize,
) -> Result<Vec<T>, ProviderError> {
    let mut ordered: Vec<Option<T>> = std::iter::repeat_with(|| None).take(texts).collect();
    for (index, value) in found {
        let index = index.and_then(|index| usize::try_from(index).ok());
        let slot = index
            .and_then(|index| ordered.get_mut(index))
            .ok_or_else(|| malformed("it contains a result for a text that was not sent"))?;
        if slot.replace(value).is_some() {
            return Err(malformed("it contains two results for one text"));
        }
    }
    ordered
        .into_iter()
        .collect::<Option<_>>()
        .ok_or_else(|| malformed("it contains no result for one of the texts"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_list_is_found_where_it_is_and_nothing_else_is_one() {
        assert_eq!(list(json!({"a": {"b": [1]}}), "/a/b").unwrap(), [json!(1)]);
        assert_eq!(list(json!([1]), "").unwrap(), [json!(1)]);
        for response in [json!({"a": 1}), json!([1]), json!(null), json!("a")] {
            assert!(list(response, "/a").is_err());
        }
    }

    #[test]
    fn every_text_has_exactly_one_result() {
        assert_eq!(
            in_order([(Some(1), 'b'), (Some(0), 'a')].into_iter(), 2).unwrap(),
            ['a', 'b']
        );
        for found in [
            &[(Some(0), 'a')][..],
            &[(Some(0), 'a'), (Some(0), 'a')],
            &[(Some(0), 'a'), (Some(2), 'b')],
            &[(None, 'a')],
        ] {
            assert!(
                matches!(
                    in_order(found.iter().copied(), 2),
                    Err(ProviderError::Malformed(_))
                ),
                "{found:?}"
            );
        }
    }
}
