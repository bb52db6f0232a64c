use std::fmt;
use std::sync::Arc;

use context_model::Error;

/// Counts the bytes that a request holds.
pub trait Meter: Send + Sync {
    /// Counts this many bytes more, for as long as the request lasts.
    ///
    /// # Errors
    /// `OVERLOADED` when there is no room for them; they must not be held then.
    fn take(&self, bytes: u64) -> Result<(), Error>;
}

/// Where a read counts what it loads, before it holds it.
#[derive(Clone, Default)]
pub struct Memory(Option<Arc<dyn Meter>>);

impl Memory {
    /// Counts nothing: for what the service does by itself.
    pub const UNCOUNTED: Self = Self(None);

    /// Counts by this meter.
    #[must_use]
    pub fn counted_by(meter: Arc<dyn Meter>) -> Self {
        Self(Some(meter))
    }

    /// Counts bytes that are about to be held.
    ///
    /// # Errors
    /// `OVERLOADED` when there is no room for them.
    pub fn take(&self, bytes: u64) -> Result<(), Error> {
        self.0.as_ref().map_or(Ok(()), |meter| meter.take(bytes))
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
