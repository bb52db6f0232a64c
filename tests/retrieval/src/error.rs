//! What fails in an evaluation.

/// Any failure; an evaluation ends at the first.
pub type Error = Box<dyn std::error::Error + Send + Sync>;
