//! BM25 constants used by both databases (Robertson and Zaragoza, "The Probabilistic Relevance Framework: BM25 and
//! Beyond", 2009).

/// Term frequency saturation, at its usual value.
pub const K1: f64 = 1.2;
/// Length normalisation, at its usual value.
pub const B: f64 = 0.75;
/// Number of words added to the length of every text. Conversation turns have about ten or forty words, and the longer
/// ones answer more questions. In long conversations the padding increases the evidence found among the first ten
/// results by .03, or by .05 with context keywords. It changes nothing for abstracts (docs/benchmarks.md).
pub const PADDING: f64 = 60.0;
