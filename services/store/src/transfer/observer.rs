//! Progress of a migration or an examination.

/// What is in progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Rows are being copied.
    Copy,
    /// Both databases are read and compared.
    Verify,
    /// Rows are compared with their checksums. This is not part of a migration.
    Examine,
}

/// Receives the progress of a migration or an examination.
pub trait Observer: Send {
    /// `done` of `total` rows are finished.
    fn progress(&mut self, phase: Phase, table: &'static str, done: u64, total: u64);

    /// A message for the operator.
    fn note(&mut self, sentence: &str);
}
