//! Errors of an evaluation.

/// Any error. An evaluation stops at the first one.
pub type Error = Box<dyn std::error::Error + Send + Sync>;
