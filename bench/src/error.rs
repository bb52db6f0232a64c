//! Errors of a measurement.

/// Any error. A benchmark stops at the first one.
pub type Error = Box<dyn std::error::Error + Send + Sync>;
/// The result type of most functions here.
pub type Result<T, E = Error> = std::result::Result<T, E>;
