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

/// What one attempt of a read has taken. It is given back when the attempt fails, because a read may run more than
/// once.
#[derive(Debug, Default)]
pub struct Taken {
    memory: Memory,
    bytes: u64,
}

impl Taken {
    /// Nothing yet.
    #[must_use]
    pub const fn new(memory: Memory) -> Self {
        Self { memory, bytes: 0 }
    }

    /// As [`Memory::take`].
    ///
    /// # Errors
    /// `OVERLOADED` when there is no room for these bytes.
    pub fn take(&mut self, bytes: u64) -> Result<(), Error> {
        self.memory.take(bytes)?;
        self.bytes = self.bytes.saturating_add(bytes);
        Ok(())
    }

    /// Leaves the bytes to the request, because the read has succeeded.
    pub fn keep(mut self) {
        self.bytes = 0;
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.memory.give_back(self.bytes);
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    #[derive(Default)]
    struct Counter(AtomicU64);

    impl Meter for Counter {
        fn take(&self, bytes: u64) -> Result<(), Error> {
            self.0.fetch_add(bytes, Ordering::Relaxed);
            Ok(())
        }

        fn give_back(&self, bytes: u64) {
            self.0.fetch_sub(bytes, Ordering::Relaxed);
        }
    }

    #[test]
    fn an_attempt_that_fails_holds_nothing() {
        let counter = Arc::new(Counter::default());
        let memory = Memory::counted_by(counter.clone());
        let mut failed = Taken::new(memory.clone());
        failed.take(5).unwrap();
        failed.take(2).unwrap();
        assert_eq!(counter.0.load(Ordering::Relaxed), 7);
        drop(failed);
        assert_eq!(counter.0.load(Ordering::Relaxed), 0);
        let mut succeeded = Taken::new(memory);
        succeeded.take(3).unwrap();
        succeeded.keep();
        assert_eq!(counter.0.load(Ordering::Relaxed), 3);
    }
}
