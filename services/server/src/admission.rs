//! How many operations run at once, and how many may wait.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use context_model::{Error, Reason};
use tokio::sync::{Semaphore, SemaphorePermit};

/// The door to the engine: some run, some wait, the rest is refused at once.
#[derive(Debug)]
pub struct Admission {
    running: Semaphore,
    waiting: AtomicUsize,
    max_waiting: usize,
}

impl Admission {
    /// A door for `max_running` operations, with a queue of `max_waiting` before it.
    #[must_use]
    pub fn new(max_running: usize, max_waiting: usize) -> Self {
        Self { running: Semaphore::new(max_running.min(Semaphore::MAX_PERMITS)), waiting: AtomicUsize::new(0), max_waiting }
    }

    /// Waits for a turn; it lasts until the permit is dropped.
    ///
    /// # Errors
    /// `OVERLOADED` when the queue is full.
    pub async fn enter(&self) -> Result<SemaphorePermit<'_>, Error> {
        if let Ok(permit) = self.running.try_acquire() {
            return Ok(permit);
        }
        let _place = Place::take(&self.waiting, self.max_waiting).ok_or_else(overloaded)?;
        self.running.acquire().await.map_err(|_| overloaded())
    }
}

/// A place in the queue, given back however the wait ends.
struct Place<'a>(&'a AtomicUsize);

impl<'a> Place<'a> {
    fn take(waiting: &'a AtomicUsize, max: usize) -> Option<Self> {
        let place = Self(waiting);
        // Dropping the place takes the increment back.
        (waiting.fetch_add(1, Ordering::Relaxed) < max).then_some(()).map(|()| place)
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The error of a full queue.
#[must_use]
pub fn overloaded() -> Error {
    Error::new(Reason::Overloaded, "too many requests at once; retry in a second").with_retry_after(Duration::from_secs(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt as _;

    #[tokio::test]
    async fn one_runs_one_waits_and_the_third_is_refused() {
        let door = Admission::new(1, 1);
        let first = door.enter().await.unwrap();
        let mut second = Box::pin(door.enter());
        assert!(second.as_mut().now_or_never().is_none(), "the second waits");
        assert_eq!(door.enter().await.unwrap_err().reason, Reason::Overloaded);
        drop(first);
        let second = second.await.unwrap();
        drop(second);
        drop(door.enter().await.unwrap());
    }

    #[tokio::test]
    async fn whoever_gives_up_waiting_leaves_a_free_place() {
        let door = Admission::new(1, 1);
        let first = door.enter().await.unwrap();
        assert!(door.enter().now_or_never().is_none());
        assert!(door.enter().now_or_never().is_none(), "the place was given back");
        drop(first);
    }
}
