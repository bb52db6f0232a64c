//! What ranked searches share: their pages, and reading the entries that a ranking names.

use std::time::Instant;

use context_model::{Limits, Result, Scores, SearchHit, Violations};
use context_store::{Page, Read, StoredEntry};

use super::Retrieval;
use crate::access::Caller;
use crate::error::store_error;
use crate::{read, validate};

/// How deep rankings go: so deep that a page and what is reranked lie well within.
const DEPTHS: [u32; 3] = [64, 1_000, 10_100];

/// How often entries are ranked at most, when those to be shown change between their ranking and the reading of them.
pub(super) const MOST_RANKINGS: u32 = 3;

/// The depth for this page; one of few, so that neighbouring pages come from the same ranking.
pub(super) fn depth(page: Page, at_least: u32) -> u32 {
    let wanted = page
        .offset
        .saturating_add(u64::from(page.limit))
        .max(u64::from(at_least));
    DEPTHS
        .into_iter()
        .find(|depth| u64::from(*depth) >= wanted)
        .unwrap_or(DEPTHS[DEPTHS.len() - 1])
}

/// The page of a ranked search.
pub(super) fn ranked_page(
    limit: Option<i64>,
    offset: Option<i64>,
    violations: &mut Violations,
) -> Page {
    validate::page(limit, offset, 5, 100, Limits::MAX_RANKED_OFFSET, violations)
}

/// What is said when more entries matched than were ranked.
pub(super) fn cap_warning(cap: u32) -> String {
    format!("more than {cap} entries match; the newest {cap} of them were ranked")
}

impl Retrieval {
    /// The entries with these ids, in this order, as results show them. What was changed or deleted since the ranking is left
    /// out: it may no longer satisfy the filter, and it is not what the reply's revision shows.
    pub(super) async fn entries_in_order(
        &self,
        caller: &Caller,
        ids: Vec<i64>,
        include_images: Option<bool>,
        revision: i64,
    ) -> Result<Vec<StoredEntry>> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let selection = self.selection(caller, include_images, false, self.shown_chars());
        let read = Read {
            as_of: Some(revision),
            ..read::at(Some(revision))
        };
        let mut found = self
            .store
            .get_contexts(&caller.owner, ids.clone(), selection, read)
            .await
            .map_err(store_error)?
            .entries;
        found.sort_by_key(|entry| ids.iter().position(|id| *id == entry.id));
        Ok(found)
    }

    /// The entries as results show them, with their scores.
    pub(super) fn hits_in_order(
        &self,
        entries: Vec<StoredEntry>,
        scores: impl Fn(i64) -> Option<Scores>,
    ) -> Vec<SearchHit> {
        entries
            .into_iter()
            .map(|entry| (scores(entry.id), entry))
            .map(|(scores, entry)| self.hit(entry, scores, None))
            .collect()
    }
}

/// A page of a ranking.
pub(super) fn in_page<T>(ranking: &[T], page: Page) -> &[T] {
    let start = usize::try_from(page.offset)
        .unwrap_or(usize::MAX)
        .min(ranking.len());
    let end = start.saturating_add(page.limit as usize).min(ranking.len());
    &ranking[start..end]
}

/// The time since then.
pub(super) fn milliseconds(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e3
}
