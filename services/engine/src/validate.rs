//! Validation rules of requests. Violations are collected, so that an error names every invalid field.

use std::ops::RangeInclusive;

use context_model::{
    EntryUpdate, Error, Limits, Metadata, MetadataChange, NewEntry, NewImage, Result, Source,
    StoreContextRequest, Tags, ThreadId, UpdateContextRequest, Violations,
};
use context_store::Page;

/// Returns the value. If it is out of range, adds a violation that names the value and the range.
pub(crate) fn in_range(
    value: i64,
    range: &RangeInclusive<i64>,
    field: &str,
    violations: &mut Violations,
) -> i64 {
    if !range.contains(&value) {
        let allowed = allowed(range);
        violations.push(field, format!("`{field}` is {value}; {allowed}"));
    }
    value
}

/// Like [`in_range`], for a required number from 1. A missing one is 0, in JSON as in protobuf, so one violation reports
/// both.
pub(crate) fn required(
    value: i64,
    range: &RangeInclusive<i64>,
    field: &str,
    violations: &mut Violations,
) -> i64 {
    if value == 0 {
        let allowed = allowed(range);
        let sentence = format!("`{field}` is required, but is missing or 0; {allowed}");
        violations.push(field, sentence);
        return value;
    }
    in_range(value, range, field, violations)
}

fn allowed(range: &RangeInclusive<i64>) -> String {
    let (min, max) = (range.start(), range.end());
    if *max == i64::MAX {
        format!("the minimum is {min}")
    } else {
        format!("the allowed range is {min} to {max}")
    }
}

/// The validated `min_relevance` of a search.
pub(crate) fn min_relevance(given: Option<f64>, violations: &mut Violations) -> Option<f64> {
    if let Some(min) = given
        && !(0.0..=1.0).contains(&min)
    {
        violations.push(
            "min_relevance",
            format!("`min_relevance` is {min}; the allowed range is 0 to 1"),
        );
    }
    given
}

/// The validated limit and offset of a search or list.
pub(crate) fn page(
    limit: Option<i64>,
    offset: Option<i64>,
    default: i64,
    max_limit: i64,
    max_offset: i64,
    violations: &mut Violations,
) -> Page {
    let limit = in_range(
        limit.unwrap_or(default),
        &(1..=max_limit),
        "limit",
        violations,
    );
    let offset = in_range(offset.unwrap_or(0), &(0..=max_offset), "offset", violations);
    Page {
        limit: u32::try_from(limit).unwrap_or(0),
        offset: u64::try_from(offset).unwrap_or(0),
    }
}

pub(crate) fn min_revision(value: Option<i64>, violations: &mut Violations) -> Option<i64> {
    value.map(|v| in_range(v, &(0..=i64::MAX), "min_revision", violations))
}

/// Checks the number of items in a list. Returns whether it is allowed.
pub(crate) fn count(
    len: usize,
    max: usize,
    field: &str,
    what: &str,
    violations: &mut Violations,
) -> bool {
    let fits = (1..=max).contains(&len);
    if !fits {
        violations.push(
            field,
            format!("`{field}` has {len} {what}; the allowed range is 1 to {max}"),
        );
    }
    fits
}

/// Validates a list of context ids. Each must be positive and below 2^53. Duplicates are removed. The result is empty
/// if the number of ids is not allowed.
pub(crate) fn ids(
    mut ids: Vec<i64>,
    max: usize,
    field: &str,
    violations: &mut Violations,
) -> Vec<i64> {
    if !count(ids.len(), max, field, "ids", violations) {
        // Not sorted, because the list can be as long as a request.
        return Vec::new();
    }
    for (i, id) in ids.iter().enumerate() {
        in_range(
            *id,
            &(1..=Limits::MAX_ID),
            &format!("{field}[{i}]"),
            violations,
        );
    }
    ids.sort_unstable();
    ids.dedup();
    ids
}

pub(crate) fn idempotency_key(key: &str) -> Result<()> {
    let visible = key.bytes().all(|b| (0x21..=0x7e).contains(&b));
    if (1..=255).contains(&key.len()) && visible {
        return Ok(());
    }
    Err(Error::invalid(
        "idempotency_key",
        "`idempotency_key` must be 1 to 255 visible ASCII characters",
    ))
}

pub(crate) fn query(text: &str, violations: &mut Violations) {
    if text.trim().is_empty() {
        violations.push("query", "`query` is required and must not be blank");
    } else if text.contains('\0') {
        violations.push(
            "query",
            "`query` contains the character U+0000, which no stored text has",
        );
    } else if text.chars().nth(Limits::MAX_QUERY_CHARS).is_some() {
        violations.push(
            "query",
            format!(
                "`query` has {} characters; the maximum is {}",
                text.chars().count(),
                Limits::MAX_QUERY_CHARS
            ),
        );
    }
}

fn text(text: &str, limits: &Limits, violations: &mut Violations) {
    if text.trim().is_empty() {
        violations.push("text", "`text` is required and must not be blank");
    } else if text.contains('\0') {
        violations.push(
            "text",
            "`text` contains the character U+0000, which cannot be stored",
        );
    } else if text.len() > limits.max_text_chars {
        // Counting characters is slower than comparing bytes. A text with few enough bytes cannot have too many
        // characters.
        let chars = text.chars().count();
        if chars > limits.max_text_chars {
            violations.push(
                "text",
                format!(
                    "`text` has {chars} characters; the maximum is {} (MAX_TEXT_CHARS)",
                    limits.max_text_chars
                ),
            );
        }
    }
}

/// Validates an entry to store. Adds its image bytes to `total`, the sum of the whole request.
pub(crate) fn entry(
    request: StoreContextRequest,
    limits: &Limits,
    total: &mut u64,
) -> Result<NewEntry> {
    let StoreContextRequest {
        thread_id,
        source,
        text: content,
        images,
        metadata,
        tags,
    } = request;
    let mut violations = Violations::default();
    let thread_id = ThreadId::parse(&thread_id, "thread_id", &mut violations);
    let source = Source::parse(&source, "source", &mut violations);
    text(&content, limits, &mut violations);
    let images =
        images.map(|images| NewImage::parse_all(images, "images", limits, total, &mut violations));
    let metadata = metadata.map(|m| Metadata::parse(m, "metadata", &mut violations));
    let tags = tags.map(|tags| Tags::parse(tags, "tags", &mut violations));
    match (thread_id, source, violations.is_empty()) {
        (Some(thread_id), Some(source), true) => Ok(NewEntry {
            thread_id,
            source,
            text: content,
            images,
            metadata: metadata.flatten(),
            tags,
        }),
        _ => Err(refused(violations)),
    }
}

/// Validates an update of an entry. Adds its image bytes to `total`, the sum of the whole request.
pub(crate) fn update(
    request: UpdateContextRequest,
    limits: &Limits,
    total: &mut u64,
) -> Result<EntryUpdate> {
    let UpdateContextRequest {
        context_id,
        text: content,
        metadata,
        metadata_patch,
        tags,
        images,
        expected_version,
    } = request;
    let mut violations = Violations::default();
    let id = required(
        context_id,
        &(1..=Limits::MAX_ID),
        "context_id",
        &mut violations,
    );
    if content.is_none()
        && metadata.is_none()
        && metadata_patch.is_none()
        && tags.is_none()
        && images.is_none()
    {
        violations.push(
            "text",
            "at least one of `text`, `metadata`, `metadata_patch`, `tags` and `images` is required",
        );
    }
    if metadata.is_some() && metadata_patch.is_some() {
        violations.push(
            "metadata_patch",
            "`metadata` and `metadata_patch` exclude each other; give one of them",
        );
    }
    let content = content.and_then(|content| {
        let content = violations.unless_blank(content, "text", "to keep the text")?;
        text(&content, limits, &mut violations);
        Some(content)
    });
    let metadata = match (metadata, metadata_patch) {
        (Some(metadata), _) => {
            Metadata::parse(metadata, "metadata", &mut violations).map(MetadataChange::Replace)
        }
        (None, Some(patch)) => Metadata::parse_patch(patch, "metadata_patch", &mut violations)
            .map(MetadataChange::Patch),
        (None, None) => None,
    };
    let tags = tags.map(|tags| Tags::parse(tags, "tags", &mut violations));
    let images =
        images.map(|images| NewImage::parse_all(images, "images", limits, total, &mut violations));
    let expected_version =
        expected_version.map(|v| in_range(v, &(1..=i64::MAX), "expected_version", &mut violations));
    violations.finish(EntryUpdate {
        id,
        text: content,
        metadata,
        tags,
        images,
        expected_version,
    })
}

/// Converts a non-empty list of violations to an error.
fn refused(violations: Violations) -> Error {
    match violations.finish(()) {
        Err(error) => error,
        Ok(()) => Error::invalid("", "the request is incomplete"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_id_is_returned_once_and_none_of_a_list_that_is_too_long() {
        let mut violations = Violations::default();
        let sorted = ids(vec![3, 1, 3], 3, "context_ids", &mut violations);
        assert_eq!(sorted, [1, 3]);
        assert!(violations.is_empty());
        let refused = ids(vec![-1; 4], 3, "context_ids", &mut violations);
        assert!(refused.is_empty());
        assert_eq!(
            violations.finish(()).unwrap_err().message,
            "`context_ids` has 4 ids; the allowed range is 1 to 3"
        );
    }

    #[test]
    fn a_required_number_that_is_missing_is_named_as_required() {
        for (value, message) in [
            (
                0,
                "`context_id` is required, but is missing or 0; the allowed range is 1 to 9",
            ),
            (-1, "`context_id` is -1; the allowed range is 1 to 9"),
        ] {
            let mut violations = Violations::default();
            required(value, &(1..=9), "context_id", &mut violations);
            assert_eq!(violations.finish(()).unwrap_err().message, message);
        }
    }
}
