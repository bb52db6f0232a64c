//! What fails in a measurement.

/// Any failure; a benchmark ends at the first.
pub type Error = Box<dyn std::error::Error + Send + Sync>;
/// What most functions here give.
pub type Result<T, E = Error> = std::result::Result<T, E>;
