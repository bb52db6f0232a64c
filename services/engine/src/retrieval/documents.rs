//! Artifacts in searches.
//!
//! Between the ranking and the reply, an artifact is an entry with the negative id of its document. Its thread is the
//! artifact's id, so it has no preceding turns. Its text is what is indexed: the title, an empty line and the content.
//! Its summary is the title, and its one tag the path, if it has one.

use context_model::{ArtifactSearchHit, ContentType, HybridHit, ObjectText, SearchHit, Source};
use context_store::rules::artifact::document_text;
use context_store::{
    ArtifactDocument, Read, RowSelection, StoreError, StoredArtifact, StoredEntry, seal,
};

use super::Retrieval;
use crate::access::Caller;

impl Retrieval {
    /// The entries and documents with these ids, in any order. Those that were deleted meanwhile are left out, and so
    /// are damaged artifacts, which are logged.
    pub(super) async fn read_ids(
        &self,
        caller: &Caller,
        ids: Vec<i64>,
        selection: RowSelection,
        read: Read,
    ) -> Result<Vec<StoredEntry>, StoreError> {
        let (documents, entries): (Vec<i64>, Vec<i64>) = ids.into_iter().partition(|id| *id < 0);
        let text_chars = selection.text_chars;
        let mut found = Vec::new();
        if !entries.is_empty() {
            let read = self
                .store
                .get_contexts(&caller.owner, entries, selection, read)
                .await?;
            found = read.entries;
        }
        if !documents.is_empty() {
            let artifacts = self
                .store
                .artifacts()
                .artifact_documents(&caller.owner, documents, read)
                .await?;
            for document in artifacts.into_iter().filter(is_sound) {
                let entry = as_entry(document, text_chars);
                let bytes = entry.text.len() + entry.metadata.as_str().len();
                caller.memory.take(bytes as u64)?;
                found.push(entry);
            }
        }
        Ok(found)
    }
}

/// Whether an artifact passes its checksum. A damaged one is logged and left out.
fn is_sound(document: &ArtifactDocument) -> bool {
    if document.damaged {
        let StoredArtifact { id, version, .. } = &document.artifact;
        tracing::error!(
            "An artifact was left out of a search: {}",
            seal::refuse_artifact(id, *version).message
        );
    }
    !document.damaged
}

/// The document as an entry, with its title and at most this many characters of its content.
fn as_entry(document: ArtifactDocument, text_chars: Option<u32>) -> StoredEntry {
    let ArtifactDocument {
        document,
        artifact:
            StoredArtifact {
                id,
                title,
                content,
                metadata,
                created_at,
                updated_at,
                version,
                path,
                title_given: _,
            },
        damaged: _,
    } = document;
    let mut text = document_text(&title, &content);
    if let Some(chars) = text_chars {
        let shown = document_text(&title, "").chars().count() + chars as usize;
        if let Some((end, _)) = text.char_indices().nth(shown) {
            text.truncate(end);
        }
    }
    StoredEntry {
        id: document,
        thread_id: id.to_string(),
        source: Source::Agent,
        content_type: ContentType::Text,
        text,
        summary: title,
        metadata: ObjectText::from(&metadata),
        tags: path.into_iter().collect(),
        created_at,
        updated_at,
        version,
        images: None,
        damage: None,
    }
}

/// Takes the text out of the entry and returns the part that a result shows: of a document the content, of an entry all
/// of it.
pub(super) fn shown_text(entry: &mut StoredEntry) -> String {
    let mut text = std::mem::take(&mut entry.text);
    if entry.id < 0 {
        let before = document_text(&entry.summary, "").len();
        text.drain(..before.min(text.len()));
    }
    text
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
