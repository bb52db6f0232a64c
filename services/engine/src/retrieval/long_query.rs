//! Long queries: the terms that a full-text search uses when a query has more than fit.

use context_model::Result;
use context_store::Read;
use context_text::{MAX_TERMS, Parsed};

use super::Retrieval;
use crate::access::Caller;
use crate::error::store_error;

/// Up to how many entries with a term are counted. A term with as many is common. Such terms are counted again,
/// further, when fewer than [`MAX_TERMS`] are rarer.
const COUNTED: [u32; 2] = [1_000, 16_000];

impl Retrieval {
    /// The query with its rarest terms, and a line about it for `explain_query`. Returns a query that holds all its
    /// terms unchanged.
    ///
    /// # Errors
    /// The store's errors.
    pub(super) async fn with_rarest_terms(
        &self,
        caller: &Caller,
        parsed: Parsed,
        read: Read,
    ) -> Result<(Parsed, Option<String>)> {
        let candidates = parsed.candidates.len();
        if candidates == 0 {
            return Ok((parsed, None));
        }
        let mut frequencies = vec![0; candidates];
        let mut counted: Vec<usize> = (0..candidates).collect();
        for max in COUNTED {
            let queries = counted
                .iter()
                .map(|&at| parsed.candidates[at].clone())
                .collect();
            let found = self
                .store
                .document_frequencies(&caller.owner, queries, max, read)
                .await
                .map_err(store_error)?;
            for (&at, frequency) in counted.iter().zip(found) {
                frequencies[at] = frequency;
            }
            counted.retain(|&at| frequencies[at] >= u64::from(max));
            let found = frequencies.iter().filter(|&&frequency| frequency > 0);
            if counted.is_empty() || found.count() - counted.len() >= MAX_TERMS {
                break;
            }
        }
        let parsed = parsed.rarest(&frequencies);
        let line = format!(
            "query: the {} rarest of {candidates} terms",
            parsed.query.words()
        );
        Ok((parsed, Some(line)))
    }
}
