//! Sealing (adding checksums to rows that have none), and whether the structure of a database is sound.

use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;

use crate::{Result, ScanCursor, StoreError};

/// The result of sealing one page of rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SealedPage {
    /// Number of rows that were sealed.
    pub sealed: u64,
    /// Where to continue. `None` when all rows were checked.
    pub next: Option<ScanCursor>,
}

/// A database whose rows have checksums ([`crate::seal`]).
#[async_trait]
pub trait SealStore: Send + Sync {
    /// Adds checksums to some rows that have none, or only those of an earlier version. It changes no version, time or
    /// revision, and may run in several services at the same time.
    ///
    /// # Errors
    /// [`StoreError`]. Rows that were already sealed stay sealed.
    async fn seal(&self, after: Option<&ScanCursor>) -> Result<SealedPage>;
}

/// Whether a database has reported structural damage since it was opened. After that all writes are rejected, because
/// they could spread the damage, until an operator has repaired the database and opens it again. Reads that succeed
/// continue.
#[derive(Debug, Default)]
pub struct Soundness(AtomicBool);

impl Soundness {
    /// Records that the database reported damage. Returns true the first time.
    pub fn lost(&self) -> bool {
        !self.0.swap(true, Ordering::Relaxed)
    }

    /// Succeeds as long as no damage was reported.
    ///
    /// # Errors
    /// [`StoreError::Unsound`].
    pub fn check(&self) -> Result<()> {
        if self.0.load(Ordering::Relaxed) {
            Err(StoreError::Unsound)
        } else {
            Ok(())
        }
    }
}
