//! How well an entry's words match: the constants of BM25 (Robertson and Zaragoza, "The Probabilistic Relevance Framework:
//! BM25 and Beyond", 2009) that every database scores with.

/// How soon further occurrences of a word stop counting: a usual value.
pub const K1: f64 = 1.2;
/// How much a text's length counts: a usual value.
pub const B: f64 = 0.75;
/// Words by which every text counts as longer than it is. Turns of a conversation have ten words or forty, and the longer
/// ones answer more questions: it finds .03 more of the evidence in long conversations among the first ten, .05 with the
/// neighbours' words, and changes nothing for abstracts (docs/benchmarks.md).
pub const PADDING: f64 = 60.0;
