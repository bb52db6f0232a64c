//! Memory used by a queued write request, in bytes.

use context_model::{EntryUpdate, Metadata, MetadataChange, NewEntry, NewImage, Tags, held_bytes};
use context_store::{DeleteCriteria, Embedded, Embedding};

/// Memory used by every entry, update, deletion, artifact, chunk and image in addition to its payload.
const OVERHEAD: usize = 256;

pub(crate) fn entry(entry: &NewEntry) -> usize {
    let NewEntry {
        thread_id,
        source: _,
        text,
        images,
        metadata,
        tags,
    } = entry;
    OVERHEAD
        + thread_id.as_str().len()
        + text.len()
        + images.as_deref().map_or(0, image_bytes)
        + metadata.as_ref().map_or(0, metadata_bytes)
        + tags.as_ref().map_or(0, tag_bytes)
}

pub(crate) fn update(update: &EntryUpdate) -> usize {
    let EntryUpdate {
        id: _,
        text,
        metadata,
        tags,
        images,
        expected_version: _,
    } = update;
    let metadata = match metadata {
        None => 0,
        Some(MetadataChange::Replace(metadata)) => metadata_bytes(metadata),
        Some(MetadataChange::Patch(patch)) => held_bytes(patch),
    };
    OVERHEAD
        + text.as_ref().map_or(0, String::len)
        + images.as_deref().map_or(0, image_bytes)
        + metadata
        + tags.as_ref().map_or(0, tag_bytes)
}

pub(crate) fn embedding(embedding: &Embedding) -> usize {
    match embedding {
        Embedding::Later => 0,
        Embedding::Now(embedded) => self::embedded(embedded),
    }
}

pub(crate) fn embedded(embedded: &Embedded) -> usize {
    embedded
        .chunks
        .iter()
        .map(|chunk| {
            OVERHEAD + size_of_val(&*chunk.vector) + chunk.tokens.as_ref().map_or(0, Vec::len)
        })
        .sum()
}

pub(crate) fn criteria(criteria: &DeleteCriteria) -> usize {
    let DeleteCriteria {
        within: _,
        ids,
        threads,
        source: _,
        created_before: _,
    } = criteria;
    let threads: usize = threads
        .iter()
        .flatten()
        .map(|thread| thread.as_str().len())
        .sum();
    OVERHEAD + ids.as_ref().map_or(0, |ids| ids.len() * size_of::<i64>()) + threads
}

/// `content` is in bytes.
pub(crate) fn artifact(title: Option<&str>, content: usize, metadata: Option<&Metadata>) -> usize {
    OVERHEAD + title.map_or(0, str::len) + content + metadata.map_or(0, metadata_bytes)
}

fn image_bytes(images: &[NewImage]) -> usize {
    images
        .iter()
        .map(|image| {
            OVERHEAD + image.data.len() + image.metadata.as_ref().map_or(0, metadata_bytes)
        })
        .sum()
}

fn tag_bytes(tags: &Tags) -> usize {
    tags.as_slice().iter().map(String::len).sum()
}

fn metadata_bytes(metadata: &Metadata) -> usize {
    held_bytes(metadata.as_object())
}
