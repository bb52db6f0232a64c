//! The retransmit rule: an entry that repeats its thread's newest entry is not stored again.
//!
//! [`ThreadState::may_be_repeated_by`](super::thread::ThreadState::may_be_repeated_by) decides from the thread's row
//! alone whether the entries must be compared.

use context_model::{ImageInput, JsonObject, Metadata, NewEntry, NewImage};

/// The newest entry as stored, without its images.
#[derive(Debug, Clone, Copy)]
pub struct Stored<'a> {
    /// The text.
    pub text: &'a str,
    /// The tags, sorted.
    pub tags: &'a [String],
    /// The metadata, as JSON.
    pub metadata: &'a str,
}

/// Whether the text is the same and everything else that is given, except images, equals the stored values. Metadata
/// that cannot be parsed never matches.
#[must_use]
pub fn repeats(entry: &NewEntry, stored: &Stored<'_>) -> bool {
    let NewEntry {
        thread_id: _,
        source: _,
        text,
        images: _,
        metadata,
        tags,
    } = entry;
    let same_metadata = |given: &Metadata| {
        serde_json::from_str::<JsonObject>(stored.metadata)
            .is_ok_and(|metadata| metadata == *given.as_object())
    };
    text == stored.text
        && tags
            .as_ref()
            .is_none_or(|tags| tags.as_slice() == stored.tags)
        && metadata.as_ref().is_none_or(same_metadata)
}

/// Whether the stored images equal the given ones, in the same order.
#[must_use]
pub fn repeats_images(given: &[NewImage], stored: &[ImageInput]) -> bool {
    stored.len() == given.len()
        && stored.iter().zip(given).all(|(stored, given)| {
            let ImageInput {
                data,
                mime_type,
                metadata,
            } = stored;
            let NewImage {
                data: given_data,
                mime_type: given_type,
                metadata: given_metadata,
            } = given;
            data.0 == *given_data
                && mime_type.as_deref() == Some(given_type.as_str())
                && metadata.as_ref() == given_metadata.as_ref().map(Metadata::as_object)
        })
}
