//! Search by filters only.

#![expect(
    clippy::disallowed_methods,
    reason = "measures how long a search takes"
)]

use std::time::Instant;

use context_model::{Operation, Result, SearchContextReply, SearchContextRequest, Violations};

use super::Retrieval;
use super::hits::{Extracts, undamaged};
use crate::access::Caller;
use crate::error::store_error;
use crate::{read, validate};

/// Number of results if the request does not say.
const DEFAULT_LIMIT: i64 = 30;
/// Maximum number of results.
const MAX_LIMIT: i64 = 100;

impl Retrieval {
    /// Returns the entries that match the filters, newest first.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` naming each bad field; `RESULT_TOO_LARGE`; `SCOPE_MISSING` without `read`; the store's
    /// errors.
    pub async fn search_context(
        &self,
        caller: &Caller,
        request: SearchContextRequest,
    ) -> Result<SearchContextReply> {
        caller.require(Operation::SearchContext)?;
        let started = Instant::now();
        let mut violations = Violations::default();
        let page = validate::page(
            request.limit,
            request.offset,
            DEFAULT_LIMIT,
            MAX_LIMIT,
            i64::from(u32::MAX),
            &mut violations,
        );
        let min_revision = validate::min_revision(request.min_revision, &mut violations);
        let (filter, filters) = caller.filter(request.filters, &mut violations);
        violations.finish(())?;
        let explain = request.explain_query.unwrap_or(false);
        let selection = self.selection(
            caller,
            request.include_images,
            explain,
            self.text_chars_to_read(false),
        );
        let found = self
            .store
            .search_contexts(
                &caller.owner,
                filter,
                page,
                selection,
                read::at(min_revision),
            )
            .await
            .map_err(store_error)?;
        // The reply has no field for warnings. Damage is logged.
        let (entries, _) = undamaged(found.entries);
        let results: Vec<_> = entries
            .into_iter()
            .map(|entry| self.hit(entry, None, Extracts::default()))
            .collect();
        let stats = explain.then(|| self.stats(started, filters, results.len(), found.plan, None));
        Ok(SearchContextReply {
            count: results.len() as i64,
            has_more: found.has_more,
            results,
            stats,
            revision: found.revision,
        })
    }
}
