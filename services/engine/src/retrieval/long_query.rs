//! Long queries: the terms that a full-text search uses when a query has more than [`MAX_TERMS`].

use context_model::Result;
use context_store::{DocumentKind, Read};
use context_text::{MAX_TERMS, Parsed, Query};

use super::Retrieval;
use crate::access::Caller;
use crate::error::store_error;

/// Each term's documents are counted up to the first limit. Terms that reach it are counted again up to the second one,
/// unless at least [`MAX_TERMS`] terms are rarer.
const COUNT_LIMITS: [u32; 2] = [1_000, 16_000];

impl Retrieval {
    /// The query with its terms that are rarest in these kinds of documents, and a line about it for `explain_query`. A
    /// query that is not too long is returned unchanged, without a line.
    ///
    /// # Errors
    /// The store's errors.
    pub(super) async fn with_rarest_terms(
        &self,
        caller: &Caller,
        kinds: &[DocumentKind],
        parsed: Parsed,
        read: Read,
    ) -> Result<(Parsed, Option<String>)> {
        let candidates = parsed.candidates.len();
        if candidates == 0 {
            return Ok((parsed, None));
        }
        let mut frequencies = vec![0; candidates];
        let mut counted: Vec<usize> = (0..candidates).collect();
        for max in COUNT_LIMITS {
            let queries: Vec<Query> = counted
                .iter()
                .map(|&at| parsed.candidates[at].clone())
                .collect();
            counted.iter().for_each(|&at| frequencies[at] = 0);
            for kind in kinds {
                let found = self
                    .store
                    .document_frequencies(&caller.owner, *kind, queries.clone(), max, read)
                    .await
                    .map_err(store_error)?;
                for (&at, frequency) in counted.iter().zip(found) {
                    frequencies[at] += frequency;
                }
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
