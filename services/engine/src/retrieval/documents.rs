//! Artifacts in searches.
//!
//! Between the ranking and the reply, an artifact is an entry with the negative id of its document. Its thread is the
//! artifact's id, so it has no preceding turns. Its text is what is indexed: the title, an empty line and the content.
//! Its summary is the title, and its one tag the path, if it has one.

use context_model::{ArtifactSearchHit, ContentType, Error, HybridHit, Reason, SearchHit, Source};
use context_store::rules::artifact::document_text;
use context_store::seal::Part;
use context_store::{ArtifactDocument, Read, RowSelection, StoreError, StoredEntry};

use super::Retrieval;
use super::truncate::shown_bytes;
use crate::access::Caller;

/// Number of documents that are read together. The store reads them whole, with up to 1.4 MB each.
const DOCUMENTS_AT_ONCE: usize = 10;

impl Retrieval {
    /// The entries and documents with these ids, in any order. Those that were deleted meanwhile are left out.
    ///
    /// # Errors
    /// `RESULT_TOO_LARGE` if several have more than `selection.max_bytes` bytes; `OVERLOADED`; the store's errors.
    pub(super) async fn read_ids(
        &self,
        caller: &Caller,
        ids: Vec<i64>,
        selection: RowSelection,
        read: Read,
    ) -> Result<Vec<StoredEntry>, StoreError> {
        let (documents, entries): (Vec<i64>, Vec<i64>) = ids.into_iter().partition(|id| *id < 0);
        let (text_chars, max_bytes) = (selection.text_chars, selection.max_bytes);
        let mut found = Vec::new();
        if !entries.is_empty() {
            let read = self
                .store
                .get_contexts(&caller.owner, entries, selection, read)
                .await?;
            found = read.entries;
        }
        let mut bytes: u64 = found.iter().map(bytes_of).sum();
        for documents in documents.chunks(DOCUMENTS_AT_ONCE) {
            let artifacts = self
                .store
                .artifacts()
                .artifact_documents(&caller.owner, documents.to_vec(), read)
                .await?;
            for document in artifacts {
                let entry = as_entry(document, text_chars);
                caller.memory.take(bytes_of(&entry))?;
                bytes += bytes_of(&entry);
                if bytes > max_bytes && !found.is_empty() {
                    let sentence =
                        format!("the result would exceed {max_bytes} bytes; ask for fewer results");
                    return Err(Error::new(Reason::ResultTooLarge, sentence).into());
                }
                found.push(entry);
            }
        }
        Ok(found)
    }
}

/// Bytes of an entry's text and metadata.
fn bytes_of(entry: &StoredEntry) -> u64 {
    (entry.text.len() + entry.metadata.as_str().len()) as u64
}

/// The document as an entry, with its title and at most this many characters of its content.
fn as_entry(document: ArtifactDocument, text_chars: Option<u32>) -> StoredEntry {
    let ArtifactDocument {
        document,
        id,
        title,
        path,
        content,
        metadata,
        created_at,
        updated_at,
        version,
        damaged,
    } = document;
    let mut text = document_text(&title, &content);
    if let Some(chars) = text_chars {
        let shown = document_text(&title, "").chars().count() + chars as usize;
        if let Some((end, _)) = text.char_indices().nth(shown) {
            text.truncate(end);
            // Only the bytes that are left are counted.
            text.shrink_to_fit();
        }
    }
    StoredEntry {
        id: document,
        thread_id: id.to_string(),
        source: Source::Agent,
        content_type: ContentType::Text,
        text,
        summary: title,
        metadata,
        tags: path.into_iter().collect(),
        created_at,
        updated_at,
        version,
        images: None,
        damage: damaged.then_some(Part::Checksum),
    }
}

/// Bytes of the entry's text before the part that a result shows: of a document the title and the empty line.
fn bytes_before_content(entry: &StoredEntry) -> usize {
    if entry.id < 0 {
        document_text(&entry.summary, "")
            .len()
            .min(entry.text.len())
    } else {
        0
    }
}

/// Takes the text out of the entry and returns the part that a result shows: of a document the content, of an entry all
/// of it.
pub(super) fn shown_text(entry: &mut StoredEntry) -> String {
    let before = bytes_before_content(entry);
    let mut text = std::mem::take(&mut entry.text);
    text.drain(..before);
    text
}

/// Number of bytes of the entry's text up to the end of what a result shows of it, if a result shows at most
/// `shown_chars` characters. `None` if the result shows all of it.
pub(super) fn end_of_shown(entry: &StoredEntry, shown_chars: usize) -> Option<usize> {
    let before = bytes_before_content(entry);
    let shown = shown_bytes(&entry.text[before..], shown_chars)?;
    Some(before + shown)
}

/// The result in the form of a reply.
pub(super) fn hybrid_hit(hit: SearchHit) -> HybridHit {
    if hit.id > 0 {
        return HybridHit::Context(hit);
    }
    let SearchHit {
        id: _,
        thread_id,
        source: _,
        content_type: _,
        text_content,
        summary,
        is_text_content_truncated,
        metadata,
        tags,
        created_at,
        updated_at,
        version,
        images: _,
        scores,
        relevance,
        highlighted,
        snippet,
    } = hit;
    HybridHit::Artifact(ArtifactSearchHit {
        artifact_id: thread_id,
        title: summary,
        path: tags.into_iter().next(),
        text_content,
        is_text_content_truncated,
        metadata,
        created_at,
        updated_at,
        version,
        scores,
        relevance,
        highlighted,
        snippet,
    })
}

#[cfg(test)]
mod tests {
    use context_model::{ObjectText, Timestamp};

    use super::*;

    #[test]
    fn the_title_of_a_document_takes_no_room_from_its_content() {
        let entry = |id, text: &str| StoredEntry {
            id,
            thread_id: String::new(),
            source: Source::Agent,
            content_type: ContentType::Text,
            text: text.to_owned(),
            summary: "Minutes".to_owned(),
            metadata: ObjectText::default(),
            tags: Vec::new(),
            created_at: Timestamp(0),
            updated_at: Timestamp(0),
            version: 1,
            images: None,
            damage: None,
        };
        let whole = document_text("Minutes", "0123456789");
        assert_eq!(end_of_shown(&entry(-1, &whole), 10), None);
        let cut = document_text("Minutes", "0123456789a");
        assert_eq!(end_of_shown(&entry(-1, &cut), 10), Some(cut.len() - 1));
        assert_eq!(end_of_shown(&entry(1, &whole), 10), Some(10));
        assert_eq!(shown_text(&mut entry(-1, &whole)), "0123456789");
        assert_eq!(shown_text(&mut entry(1, &whole)), whole);
    }
}
