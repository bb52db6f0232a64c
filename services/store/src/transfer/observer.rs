//! How far a migration is.

/// What a migration does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Copies rows.
    Copy,
    /// Reads both ends and compares them.
    Verify,
    /// Compares rows with their checksums; no migration.
    Examine,
}

/// Is told how far a migration is.
pub trait Observer: Send {
    /// So many rows of all are done.
    fn progress(&mut self, phase: Phase, table: &'static str, done: u64, total: u64);

    /// Something to know.
    fn note(&mut self, sentence: &str);
}
