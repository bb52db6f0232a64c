//! Fetching entries by id.

use context_model::{
    Entry, GetContextByIdsReply, GetContextByIdsRequest, Limits, Operation, Result, Violations,
};
use context_store::{RowSelection, StoredEntry, seal};

use super::Contexts;
use crate::access::Caller;
use crate::error::store_error;
use crate::{read, validate};

impl Contexts {
    /// Returns whole entries, newest first. Unknown ids are skipped.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT`; `STORAGE_CORRUPT` naming the damaged entries, so that the caller can request the others
    /// without them; `RESULT_TOO_LARGE`; `SCOPE_MISSING` without `read`; the store's errors.
    pub async fn get_context_by_ids(
        &self,
        caller: &Caller,
        request: GetContextByIdsRequest,
    ) -> Result<GetContextByIdsReply> {
        caller.require(Operation::GetContextByIds)?;
        let GetContextByIdsRequest {
            context_ids,
            include_images,
            min_revision,
        } = request;
        let mut violations = Violations::default();
        let ids = validate::ids(context_ids, Limits::MAX_GET, "context_ids", &mut violations);
        let min_revision = validate::min_revision(min_revision, &mut violations);
        violations.finish(())?;
        let read = read::at(min_revision);
        let ids = self.reached(caller, &ids, read).await?.accessible(ids);
        let selection = RowSelection {
            images: include_images.unwrap_or(true),
            text_chars: None,
            explain: false,
            max_bytes: read::max_reply_bytes(&self.limits),
            memory: caller.memory.clone(),
        };
        let page = self
            .store
            .get_contexts(&caller.owner, ids, selection, read)
            .await
            .map_err(store_error)?;
        refuse_damaged(&page.entries)?;
        Ok(GetContextByIdsReply {
            result: page.entries.into_iter().map(full_entry).collect(),
            revision: page.revision,
        })
    }
}

/// Returns an error if an entry is damaged. A reply without the entry would imply that it does not exist.
fn refuse_damaged(entries: &[StoredEntry]) -> Result<()> {
    let mut damaged = entries.iter().filter_map(|entry| {
        entry
            .damage
            .map(|part| seal::refuse_context(entry.id, part))
    });
    let Some(mut error) = damaged.next() else {
        return Ok(());
    };
    for further in damaged {
        error.message.push_str(". Likewise, ");
        error.message.push_str(&further.message);
    }
    Err(error)
}

/// Converts an entry to the form of replies.
pub(crate) fn full_entry(entry: StoredEntry) -> Entry {
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
    Entry {
        id,
        thread_id,
        source,
        content_type,
        text_content: text,
        summary,
        metadata,
        tags,
        created_at,
        updated_at,
        version,
        images,
    }
}
