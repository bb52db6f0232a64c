//! Entries as search results show them.

use context_model::{Scores, SearchHit};
use context_store::{StoredEntry, seal};

use crate::{Engine, truncate};

/// Parts what is as it was stored from what is not, which is counted, logged and left out, with a warning for each.
pub(crate) fn sound(entries: Vec<StoredEntry>) -> (Vec<StoredEntry>, Vec<String>) {
    let mut warnings = Vec::new();
    let mut keep = |entry: &StoredEntry| {
        let Some(part) = entry.damage else {
            return true;
        };
        let error = seal::refuse_context(entry.id, part);
        tracing::error!("An entry was left out of a search: {}", error.message);
        warnings.push(format!(
            "context {} is left out: {}",
            entry.id, error.message
        ));
        false
    };
    let entries = entries.into_iter().filter(&mut keep).collect();
    (entries, warnings)
}

impl Engine {
    /// Characters of a text that a result needs: one more than shown tells that there is more.
    pub(crate) fn shown_chars(&self) -> Option<u32> {
        u32::try_from(self.config.search_truncation_length + 1).ok()
    }

    pub(crate) fn hit(
        &self,
        entry: StoredEntry,
        scores: Option<Scores>,
        highlighted: Option<String>,
    ) -> SearchHit {
        let StoredEntry {
            id,
            thread_id,
            source,
            content_type,
            text,
            summary,
            metadata,
            tags,
            created_at,
            updated_at,
            version,
            images,
            damage: _,
        } = entry;
        let (text_content, is_text_content_truncated) =
            truncate(text, self.config.search_truncation_length);
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
