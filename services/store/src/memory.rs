//! The memory budget of a request, from which a read takes the bytes that it loads.

use std::fmt;
use std::sync::Arc;

use context_model::Error;

/// Counts the bytes that a request holds.
pub trait Meter: Send + Sync {
    /// Adds these bytes to the bytes that the request holds until it ends.
    ///
    /// # Errors
    /// `OVERLOADED` when there is no room for them. The caller must not allocate or keep them then.
    fn take(&self, bytes: u64) -> Result<(), Error>;

    /// Removes taken bytes that the request no longer holds.
    fn give_back(&self, bytes: u64);
}

/// The memory budget of a read. The read takes bytes from it before it loads them or, if their number is not known
/// before, row by row.
#[derive(Clone, Default)]
pub struct Memory(Option<Arc<dyn Meter>>);

impl Memory {
    /// Counts nothing. For the service's own work.
    pub const UNCOUNTED: Self = Self(None);

    /// Counts with this meter.
    #[must_use]
    pub fn counted_by(meter: Arc<dyn Meter>) -> Self {
        Self(Some(meter))
    }

    /// Takes these bytes from the budget.
    ///
    /// # Errors
    /// `OVERLOADED` when there is no room for them.
    pub fn take(&self, bytes: u64) -> Result<(), Error> {
        self.0.as_ref().map_or(Ok(()), |meter| meter.take(bytes))
    }

    /// Returns bytes to the budget that were taken and are no longer held.
    pub fn give_back(&self, bytes: u64) {
        if let Some(meter) = &self.0 {
            meter.give_back(bytes);
        }
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() {
            "Memory(counted)"
        } else {
            "Memory(uncounted)"
        })
    }
}
