//! Giving checksums to rows from before there were any, and whether a database is sound at all.

use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;

use crate::{Place, Result, StoreError};

/// What sealing some rows gave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SealedPage {
    /// Rows that have checksums now.
    pub sealed: u64,
    /// Where to go on; `None` when all rows were seen.
    pub next: Option<Place>,
}

/// A database whose rows have checksums ([`crate::seal`]).
#[async_trait]
pub trait SealStore: Send + Sync {
    /// Gives checksums to some rows that have none, or those of an earlier version. It changes no version, no time and no
    /// revision, waits for no write, and may run in several services at once.
    ///
    /// # Errors
    /// [`StoreError`]; rows that were sealed stay so.
    async fn seal(&self, after: Option<&Place>) -> Result<SealedPage>;
}

/// Whether a database has reported damage to its structure since it was opened. From then on nothing is written, because
/// that could spread the damage, until an operator has acted and opens it again. Reads that succeed go on.
#[derive(Debug, Default)]
pub struct Soundness(AtomicBool);

impl Soundness {
    /// Notes that the database reported damage.
    pub fn lost(&self) -> bool {
        !self.0.swap(true, Ordering::Relaxed)
    }

    /// Passes while no damage was reported.
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
