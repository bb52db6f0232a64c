//! The notification streams that are open, and each caller's fair share of them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use context_model::Error;

use crate::http::held::Keep;
use crate::memory::{Caller, overloaded};

/// Maximum number of streams. Further ones are refused and may retry.
const MAX_STREAMS: usize = 256;
/// Maximum number of streams of callers that are not authenticated yet, together.
const MAX_UNKNOWN_STREAMS: usize = 32;

/// The number of streams of each caller that has any.
#[derive(Debug, Default)]
pub struct Streams(Mutex<HashMap<Caller, usize>>);

/// One stream. It counts until it is dropped.
#[derive(Debug)]
pub struct Stream {
    streams: Arc<Streams>,
    caller: Caller,
}

impl Streams {
    /// Counts one more stream of this caller.
    ///
    /// # Errors
    /// `OVERLOADED` if there are too many streams, in total or of this caller.
    pub fn open(self: &Arc<Self>, caller: Caller) -> Result<Stream, Error> {
        let most = match caller {
            Caller::Anyone => MAX_STREAMS,
            Caller::Key(_) => MAX_STREAMS / 2,
            Caller::Unknown => MAX_UNKNOWN_STREAMS,
        };
        let mut counts = self.counts();
        let own = counts.get(&caller).copied().unwrap_or_default();
        if own >= most || counts.values().sum::<usize>() >= MAX_STREAMS {
            return Err(overloaded("streams"));
        }
        counts.insert(caller, own + 1);
        drop(counts);
        Ok(Stream {
            streams: self.clone(),
            caller,
        })
    }

    fn counts(&self) -> MutexGuard<'_, HashMap<Caller, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let mut counts = self.streams.counts();
        if let Some(own) = counts.get_mut(&self.caller) {
            *own -= 1;
            if *own == 0 {
                counts.remove(&self.caller);
            }
        }
    }
}

impl Keep for Stream {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_key_has_half_of_the_streams() {
        let streams = Arc::new(Streams::default());
        let (a, b) = (Caller::Key([1; 32]), Caller::Key([2; 32]));
        let own: Vec<_> = (0..MAX_STREAMS / 2)
            .map(|_| streams.open(a).unwrap())
            .collect();
        assert!(streams.open(a).is_err());
        let others: Vec<_> = (0..MAX_STREAMS / 2)
            .map(|_| streams.open(b).unwrap())
            .collect();
        assert!(streams.open(Caller::Anyone).is_err());
        drop((own, others));
        assert!(streams.counts().is_empty());
        assert!(streams.open(a).is_ok());
    }
}
