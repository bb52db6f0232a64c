//! BM25 constants used by both databases (Robertson and Zaragoza, "The Probabilistic Relevance Framework: BM25 and
//! Beyond", 2009).

/// Term frequency saturation, at its usual value.
pub const K1: f64 = 1.2;
/// Length normalisation, at its usual value.
pub const B: f64 = 0.75;
/// Number of words added to the length of every text. Conversation turns have about ten or forty words, and the longer
/// ones answer more questions. In long conversations the padding raises recall@10 by .03, or by .05 with context
/// keywords. It changes nothing for abstracts.
pub const PADDING: f64 = 60.0;
/// Maximum number of an entry's own words with which its context keywords have their full weight. Beyond it the weight
/// falls with the square of the length: a short turn lacks the words of the question before it, a long message does
/// not.
pub const CONTEXT_WORDS: f64 = 50.0;

/// The weight of the context keywords of an entry with this many words of its own.
#[must_use]
pub fn context_weight(weight: f64, words: f64) -> f64 {
    weight * (CONTEXT_WORDS / words.max(1.0)).min(1.0).powi(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn context_keywords_weigh_less_in_long_entries() {
        assert_eq!(context_weight(0.4, 0.0), 0.4);
        assert_eq!(context_weight(0.4, CONTEXT_WORDS), 0.4);
        assert_eq!(context_weight(0.4, 2.0 * CONTEXT_WORDS), 0.1);
    }
}
