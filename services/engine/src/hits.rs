//! Entries as search results show them.

use context_model::{Scores, SearchHit};
use context_store::StoredEntry;

use crate::{Engine, truncate};

impl Engine {
    /// Characters of a text that a result needs: one more than shown tells that there is more.
    pub(crate) fn shown_chars(&self) -> Option<u32> {
        u32::try_from(self.config.search_truncation_length + 1).ok()
    }

    pub(crate) fn hit(&self, entry: StoredEntry, scores: Option<Scores>, highlighted: Option<String>) -> SearchHit {
        let StoredEntry { id, thread_id, source, content_type, text, summary, metadata, tags, created_at, updated_at, version, images } =
            entry;
        let (text_content, is_text_content_truncated) = truncate(text, self.config.search_truncation_length);
        SearchHit {
            id,
            thread_id,
            source,
            content_type,
            text_content,
            summary,
            is_text_content_truncated,
            metadata,
            tags,
            created_at,
            updated_at,
            version,
            images,
            scores,
            highlighted,
        }
    }
}
