//! Listing tags.

use context_model::{
    FilterInput, ListTagsReply, ListTagsRequest, Operation, Result, TagPrefix, Violations,
};

use super::Contexts;
use crate::access::Caller;
use crate::error::store_error;
use crate::{read, validate};

/// Default number of tags in one reply.
const DEFAULT_TAGS: i64 = 100;
/// Maximum number of tags in one reply.
const MAX_TAGS: i64 = 1000;

impl Contexts {
    /// Lists the tags of entries with their counts, most frequent first, then by name.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT`; `SCOPE_MISSING` without `read`; the store's errors.
    pub async fn list_tags(
        &self,
        caller: &Caller,
        request: ListTagsRequest,
    ) -> Result<ListTagsReply> {
        caller.require(Operation::ListTags)?;
        let ListTagsRequest {
            thread_id,
            prefix,
            limit,
            offset,
            min_revision,
        } = request;
        let mut violations = Violations::default();
        let of_thread = FilterInput {
            thread_id,
            ..FilterInput::default()
        };
        let (filter, _) = caller.filter(of_thread, &mut violations);
        let prefix = prefix.and_then(|prefix| TagPrefix::parse(&prefix, "prefix", &mut violations));
        let page = validate::page(
            limit,
            offset,
            DEFAULT_TAGS,
            MAX_TAGS,
            i64::from(u32::MAX),
            &mut violations,
        );
        let min_revision = validate::min_revision(min_revision, &mut violations);
        violations.finish(())?;
        let found = self
            .store
            .list_tags(&caller.owner, filter, prefix, page, read::at(min_revision))
            .await
            .map_err(store_error)?;
        let shown = page.offset.saturating_add(found.tags.len() as u64);
        Ok(ListTagsReply {
            has_more: !found.tags.is_empty() && shown < found.total.unsigned_abs(),
            tags: found.tags,
            total: found.total,
            revision: found.revision,
        })
    }
}
