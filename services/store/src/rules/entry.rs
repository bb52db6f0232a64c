//! Merging an update into a stored entry.

use context_model::{EntryUpdate, Error, JsonObject, Metadata, MetadataChange, Timestamp};

use super::counts::EntryCounts;
use crate::seal::{self, Checked, EntrySeal, Part, StoredContent};

/// The parts of the entry that an update needs.
#[derive(Debug)]
pub struct Stored<'a> {
    /// The entry's id, version, text, metadata and checksums.
    pub content: StoredContent<'a>,
    /// When it was last updated, in microseconds.
    pub updated_at: i64,
    /// Number of images.
    pub image_count: i64,
}

/// The changed parts of the entry after the update.
#[derive(Debug)]
pub struct Merged {
    /// The next version.
    pub version: i64,
    /// The time of the update, in microseconds.
    pub updated_at: i64,
    /// Number of images.
    pub image_count: i64,
    /// The metadata, parsed and as JSON, if it changes.
    pub metadata: Option<(Metadata, String)>,
    /// The checksums.
    pub seal: [u8; seal::ENTRY_BYTES],
    /// The change of the counts of its owner and thread.
    pub counts: EntryCounts,
}

/// Applies an update to a stored entry.
///
/// # Errors
/// `VERSION_MISMATCH` when another version is expected, an error of the patch, or `STORAGE_CORRUPT` when the metadata
/// to be patched is damaged.
pub fn merge(update: &EntryUpdate, stored: &Stored<'_>, now: Timestamp) -> Result<Merged, Error> {
    let EntryUpdate {
        id,
        text,
        metadata,
        tags: _,
        images,
        expected_version,
    } = update;
    let Stored {
        content,
        updated_at,
        image_count: images_before,
    } = stored;
    if let Some(expected) = *expected_version
        && expected != content.version
    {
        return Err(Error::version_mismatch(*id, expected, content.version));
    }
    let metadata = match metadata {
        None => None,
        Some(MetadataChange::Replace(metadata)) => Some(metadata.clone()),
        Some(MetadataChange::Patch(patch)) => {
            Some(Metadata::from_stored(sound_metadata(content)?).patched(patch)?)
        }
    };
    let metadata = metadata.map(|metadata| {
        let json = metadata.to_json();
        (metadata, json)
    });
    let image_count = match images {
        None => *images_before,
        Some(images) => i64::try_from(images.len()).unwrap_or(i64::MAX),
    };
    let json = metadata.as_ref().map(|(_, json)| json.as_str());
    Ok(Merged {
        version: content.version + 1,
        // The time must increase even if the clock stands still or steps back. Otherwise a client that compares
        // `updated_at` would miss the update.
        updated_at: now.micros().max(updated_at + 1),
        image_count,
        seal: EntrySeal::next(content, text.as_deref(), json).to_bytes(*id),
        metadata,
        counts: EntryCounts::of_images(*images_before, image_count),
    })
}

fn sound_metadata(content: &StoredContent<'_>) -> Result<JsonObject, Error> {
    let damaged = |part| seal::refuse_context(content.id, part);
    if let Checked::Damaged(part @ (Part::Metadata | Part::Checksum)) =
        seal::check_entry(content, false)
    {
        return Err(damaged(part));
    }
    serde_json::from_str(content.metadata).map_err(|_| damaged(Part::Metadata))
}

/// The removed and the added tags when the tags `before` are replaced by `after`. `before` and `after` must be sorted.
#[must_use]
pub fn tag_changes<'t>(
    before: &'t [String],
    after: &'t [String],
) -> (Vec<&'t String>, Vec<&'t String>) {
    let missing_in =
        |other: &'t [String]| move |tag: &&'t String| other.binary_search(tag).is_err();
    (
        before.iter().filter(missing_in(after)).collect(),
        after.iter().filter(missing_in(before)).collect(),
    )
}
