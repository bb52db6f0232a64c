//! The rule that collapses retransmits: an entry that repeats its thread's newest one is not stored again.
//!
//! [`ThreadState::may_be_repeated_by`](super::thread::ThreadState::may_be_repeated_by) says from the thread's row alone whether the
//! entry has to be compared.

use context_model::{ImageInput, JsonObject, Metadata, NewEntry, NewImage};

/// What is stored of the newest entry, without its images.
#[derive(Debug, Clone, Copy)]
pub struct Stored<'a> {
    /// Its text.
    pub text: &'a str,
    /// Its tags, sorted.
    pub tags: &'a [String],
    /// Its metadata, as JSON.
    pub metadata: &'a str,
}

/// Whether the text is the same and all else that is given, but images, equals what is stored. Metadata that cannot be read
/// equals none.
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

/// Whether an entry with the images `stored` has exactly the images `given`, in this order.
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
