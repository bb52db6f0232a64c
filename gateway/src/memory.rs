//! The memory budget for requests and replies, and each caller's fair share of it.
//!
//! Of a request only held memory counts: the bytes that were received and the values parsed from
//! them. The length that a client announces reserves nothing. A reply of the service counts as soon
//! as its length is known.

#![expect(
    clippy::disallowed_methods,
    reason = "measures how long ago a caller was refused"
)]

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use context_model::{Error, Reason};
use tokio::sync::Notify;

/// Memory per byte of a message, measured: it is read, copied, parsed and sent on.
pub const BYTES_PER_BYTE: usize = 3;
/// Memory per parsed value in bytes, measured.
pub const BYTES_PER_VALUE: usize = 260;
/// Memory per byte of the service's reply, estimated from its copies: as received, as JSON, as
/// text, and both serialized.
pub const BYTES_PER_REPLY_BYTE: usize = 7;

/// Concurrent requests over all callers.
const MAX_REQUESTS: usize = 512;
/// Concurrent requests of callers that are not authenticated yet, together.
const MAX_UNKNOWN_REQUESTS: usize = 32;
/// How long after a refusal the other callers are limited to half of the budget.
const CONTENTION: Duration = Duration::from_secs(5);

/// Minimum time between two warnings that a caller could trigger at will.
const WARN_AGAIN: Duration = Duration::from_secs(10);

/// The caller to whom memory is charged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Caller {
    /// All callers if authentication is off, and the client on stdio.
    Anyone,
    /// The holder of a key or token, by its SHA-256.
    Key([u8; 32]),
    /// All callers that are not authenticated yet, together.
    Unknown,
}

/// The memory budget of one process. Share it in an [`Arc`].
#[derive(Debug)]
pub struct Budget {
    total: usize,
    state: Mutex<State>,
    released: Notify,
}

#[derive(Debug, Default)]
struct State {
    used: usize,
    requests: usize,
    held: HashMap<Caller, Held>,
    /// The caller that was refused last, and when.
    refused: Option<(Caller, Instant)>,
    /// When a refusal of memory was last logged.
    warned: Option<Instant>,
}

/// What the requests of one caller hold.
#[derive(Debug, Default, Clone, Copy)]
struct Held {
    bytes: usize,
    requests: usize,
}

impl Budget {
    /// A budget of `bytes`.
    #[must_use]
    pub fn new(bytes: usize) -> Arc<Self> {
        Arc::new(Self {
            total: bytes,
            state: Mutex::default(),
            released: Notify::new(),
        })
    }

    /// Bytes that are held at present.
    #[must_use]
    pub fn used(&self) -> usize {
        self.state().used
    }

    /// The size of the budget in bytes.
    #[must_use]
    pub const fn total(&self) -> usize {
        self.total
    }

    /// The most that one request can hold, in bytes: fifteen sixteenths. The rest is reserved for
    /// callers that hold little.
    #[must_use]
    pub const fn largest_share(&self) -> usize {
        self.total / 16 * 15
    }

    /// An empty lease for one request.
    ///
    /// # Errors
    /// `OVERLOADED` if too many requests are running, in total or of this caller.
    pub fn enter(self: &Arc<Self>, caller: Caller) -> Result<Lease, Error> {
        let mut state = self.state();
        let own = state.held.get(&caller).map_or(0, |held| held.requests);
        let most = match caller {
            Caller::Anyone => MAX_REQUESTS,
            Caller::Key(_) => MAX_REQUESTS / 2,
            Caller::Unknown => MAX_UNKNOWN_REQUESTS,
        };
        if own >= most || state.requests >= MAX_REQUESTS {
            return Err(overloaded("requests"));
        }
        state.requests += 1;
        state.held.entry(caller).or_default().requests += 1;
        Ok(Lease {
            budget: self.clone(),
            caller,
            requests: AtomicUsize::new(1),
            bytes: Mutex::new(0),
            refusal: Mutex::new(None),
        })
    }

    /// Like [`enter`](Self::enter), but waits while there are too many requests.
    pub async fn enter_when_free(self: &Arc<Self>, caller: Caller) -> Lease {
        loop {
            let mut released = std::pin::pin!(self.released.notified());
            released.as_mut().enable();
            if let Ok(lease) = self.enter(caller) {
                return lease;
            }
            released.await;
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes `bytes` for a caller. A sixteenth of the budget is reserved for callers that hold
    /// little, so that new callers are served next to large requests. For [`CONTENTION`] after another
    /// caller was refused, a caller gets at most half. Returns `false`, and takes nothing, if the bytes
    /// do not fit.
    fn take(&self, caller: Caller, bytes: usize) -> bool {
        let mut state = self.state();
        let little = self.total / 16;
        let held = state
            .held
            .get(&caller)
            .map_or(0, |held| held.bytes)
            .saturating_add(bytes);
        let used = state.used.saturating_add(bytes);
        let fair = held <= little
            || (caller != Caller::Unknown
                && (held <= self.total / 2 || !state.another_waits(caller)));
        let fits = used
            <= if held <= little {
                self.total
            } else {
                self.total - little
            };
        if fair && fits {
            state.used = used;
            state.held.entry(caller).or_default().bytes = held;
        } else if fair {
            state.refused = Some((caller, Instant::now()));
            if state.warned.is_none_or(|at| at.elapsed() > WARN_AGAIN) {
                state.warned = Some(Instant::now());
                tracing::warn!(
                    held = state.used,
                    wanted = bytes,
                    "No memory for a request or a reply (GATEWAY_REQUEST_MEMORY_MB)"
                );
            }
        }
        fair && fits
    }

    /// Takes `bytes` for a lease that holds `own` bytes, even beyond the budget. Returns how many of them count: those
    /// beyond the budget do not, so that the sixteenth for callers that hold little stays free. Returns `None`, and takes
    /// nothing, if all other leases together hold more than a sixteenth of the budget, or if another caller was refused
    /// recently.
    fn take_alone(&self, caller: Caller, own: usize, bytes: usize) -> Option<usize> {
        let mut state = self.state();
        let little = self.total / 16;
        let others = state.used.saturating_sub(own);
        if caller == Caller::Unknown || others > little || state.another_waits(caller) {
            return None;
        }
        let counted = bytes.min((self.total - little).saturating_sub(state.used));
        state.used += counted;
        state.held.entry(caller).or_default().bytes += counted;
        Some(counted)
    }

    fn release(&self, caller: Caller, bytes: usize, requests: usize) {
        let mut state = self.state();
        state.used -= bytes;
        state.requests -= requests;
        if let Some(held) = state.held.get_mut(&caller) {
            held.bytes -= bytes;
            held.requests -= requests;
            if (held.bytes, held.requests) == (0, 0) {
                state.held.remove(&caller);
            }
        }
        drop(state);
        self.released.notify_waiters();
    }
}

impl State {
    /// Whether a caller other than this one was refused in the last [`CONTENTION`].
    fn another_waits(&self, caller: Caller) -> bool {
        self.refused
            .is_some_and(|(other, when)| other != caller && when.elapsed() < CONTENTION)
    }
}

/// One request's share of the budget. Dropping the lease returns it.
#[derive(Debug)]
pub struct Lease {
    budget: Arc<Budget>,
    caller: Caller,
    /// 1, or 0 after [`Lease::leave`].
    requests: AtomicUsize,
    bytes: Mutex<usize>,
    refusal: Mutex<Option<Error>>,
}

impl Lease {
    /// Ends the request for the limits of [`Budget::enter`]. Its memory counts until the lease is dropped.
    pub fn leave(&self) {
        let requests = self.requests.swap(0, Ordering::Relaxed);
        self.budget.release(self.caller, 0, requests);
    }

    /// Adds `bytes` to the share.
    ///
    /// # Errors
    /// `OVERLOADED` if the budget, or the caller's part of it, is used up; `REQUEST_TOO_LARGE` if
    /// it could never suffice.
    pub fn grow(&self, bytes: usize) -> Result<(), Error> {
        let mut held = self.bytes();
        if self.budget.take(self.caller, bytes) {
            *held += bytes;
            return Ok(());
        }
        let could_never_fit = held.saturating_add(bytes) > self.budget.largest_share()
            && self.caller != Caller::Unknown;
        Err(if could_never_fit {
            too_large()
        } else {
            overloaded("requests")
        })
    }

    /// Grows the share to `bytes` and waits until there is memory. For transports with a single
    /// client, which sends nothing more while it waits.
    ///
    /// # Errors
    /// `REQUEST_TOO_LARGE` if the budget could never suffice.
    pub async fn grow_to(&self, bytes: usize) -> Result<(), Error> {
        loop {
            let mut released = std::pin::pin!(self.budget.released.notified());
            released.as_mut().enable();
            let missing = bytes.saturating_sub(*self.bytes());
            match if missing == 0 {
                Ok(())
            } else {
                self.grow(missing)
            } {
                Err(error) if error.reason == Reason::Overloaded => released.await,
                ended => return ended,
            }
        }
    }

    /// Sets the share to exactly `bytes`, the memory that the request still uses. It never fails,
    /// even beyond the budget, because that memory is already in use.
    pub fn settle(&self, bytes: usize) {
        let mut held = self.bytes();
        if bytes <= *held {
            self.budget.release(self.caller, *held - bytes, 0);
        } else {
            let mut state = self.budget.state();
            state.used += bytes - *held;
            state.held.entry(self.caller).or_default().bytes += bytes - *held;
        }
        *held = bytes;
    }

    /// Reserves memory for a reply of the service before any of it is read. A reply that needs more than the budget is
    /// admitted while hardly anything else is held, because otherwise it could never be read.
    ///
    /// # Errors
    /// `OVERLOADED` if there is no memory at present. The error is also stored for [`Lease::refusal`].
    pub fn admit_reply(&self, bytes: usize) -> Result<(), Error> {
        let bytes = bytes.saturating_mul(BYTES_PER_REPLY_BYTE);
        if self.grow_alone(bytes) {
            return Ok(());
        }
        self.grow(bytes).map_err(|mut refusal| {
            if refusal.reason == Reason::RequestTooLarge {
                refusal = overloaded("requests");
                let message = "the reply needs more memory than GATEWAY_REQUEST_MEMORY_MB, so it is read only while \
                               hardly any other request runs; retry in a second, request fewer entries, or set \
                               include_images=false";
                refusal.message = message.to_owned();
            }
            *self.refusal.lock().unwrap_or_else(PoisonError::into_inner) = Some(refusal.clone());
            refusal
        })
    }

    /// Adds `bytes` to the share, even beyond the budget, if hardly anything else is held. Returns whether it did.
    fn grow_alone(&self, bytes: usize) -> bool {
        let mut held = self.bytes();
        let counted = self.budget.take_alone(self.caller, *held, bytes);
        *held += counted.unwrap_or(0);
        counted.is_some()
    }

    /// The error of [`Lease::admit_reply`], if it failed.
    #[must_use]
    pub fn refusal(&self) -> Option<Error> {
        self.refusal
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn bytes(&self) -> MutexGuard<'_, usize> {
        self.bytes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let bytes = *self.bytes();
        let requests = *self.requests.get_mut();
        self.budget.release(self.caller, bytes, requests);
    }
}

fn too_large() -> Error {
    let sentence = "the request would take more memory than the gateway has (GATEWAY_REQUEST_MEMORY_MB); split it, or request less";
    Error::new(Reason::RequestTooLarge, sentence)
}

/// The error when there are too many of `what`, such as requests.
#[must_use]
pub fn overloaded(what: &str) -> Error {
    Error::new(
        Reason::Overloaded,
        format!("too many {what} at once; retry in a second"),
    )
    .with_retry_after(Duration::from_secs(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Caller = Caller::Key([1; 32]);
    const B: Caller = Caller::Key([2; 32]);

    fn budget() -> Arc<Budget> {
        Budget::new(1600)
    }

    #[test]
    fn what_is_held_counts_until_it_is_dropped() {
        let budget = budget();
        let lease = budget.enter(A).unwrap();
        lease.grow(1000).unwrap();
        assert_eq!(lease.grow(501).unwrap_err().reason, Reason::RequestTooLarge);
        lease.settle(10);
        assert_eq!(budget.used(), 10);
        lease.settle(20);
        assert_eq!(budget.used(), 20);
        drop(lease);
        assert_eq!((budget.used(), budget.state().held.len()), (0, 0));
    }

    #[test]
    fn a_newcomer_gets_a_little_and_then_no_caller_gets_more_than_half() {
        let budget = budget();
        let first = budget.enter(A).unwrap();
        first.grow(1500).unwrap();
        let newcomer = budget.enter(B).unwrap();
        newcomer.grow(100).unwrap();
        assert_eq!(newcomer.grow(1).unwrap_err().reason, Reason::Overloaded);
        first.settle(800);
        assert!(
            first.grow(1).is_err(),
            "the first has half, and another was refused"
        );
        newcomer.grow(500).unwrap();
        first.settle(700);
        first.grow(100).unwrap();
    }

    #[test]
    fn unknown_callers_share_a_sixteenth_and_block_no_other_caller() {
        let budget = budget();
        let unknown = budget.enter(Caller::Unknown).unwrap();
        unknown.grow(100).unwrap();
        let another = budget.enter(Caller::Unknown).unwrap();
        assert_eq!(another.grow(1).unwrap_err().reason, Reason::Overloaded);
        budget.enter(A).unwrap().grow(1400).unwrap();
        let _rest: Vec<_> = (2..MAX_UNKNOWN_REQUESTS)
            .map(|_| budget.enter(Caller::Unknown).unwrap())
            .collect();
        assert!(budget.enter(Caller::Unknown).is_err());
        assert!(budget.enter(A).is_ok());
    }

    #[test]
    fn one_key_has_half_of_the_requests() {
        let budget = budget();
        let own: Vec<_> = (0..MAX_REQUESTS / 2)
            .map(|_| budget.enter(A).unwrap())
            .collect();
        assert!(budget.enter(A).is_err());
        assert!(budget.enter(B).is_ok());
        drop(own);
        assert!(budget.enter(A).is_ok());
    }

    #[test]
    fn a_request_that_left_counts_with_its_memory_only() {
        let budget = budget();
        let left: Vec<_> = (0..=MAX_REQUESTS)
            .map(|_| {
                let lease = budget.enter(A).unwrap();
                lease.grow(1).unwrap();
                lease.leave();
                lease.leave();
                lease
            })
            .collect();
        assert_eq!((budget.used(), budget.state().requests), (left.len(), 0));
        drop(left);
        assert_eq!((budget.used(), budget.state().held.len()), (0, 0));
    }

    #[tokio::test]
    async fn a_single_client_waits_for_room() {
        let budget = budget();
        let first = budget.enter(Caller::Anyone).unwrap();
        first.grow(1500).unwrap();
        let second = budget.enter(Caller::Anyone).unwrap();
        let waiting = second.grow_to(500);
        let mut waiting = std::pin::pin!(waiting);
        assert!(futures::poll!(waiting.as_mut()).is_pending());
        drop(first);
        waiting.await.unwrap();
        assert_eq!(budget.used(), 500);
        let too_much = budget.largest_share() + 1;
        let error = second.grow_to(too_much).await.unwrap_err();
        assert_eq!(error.reason, Reason::RequestTooLarge);
    }

    #[test]
    fn a_reply_beyond_the_budget_is_admitted_while_others_hold_little() {
        let budget = Budget::new(8_000_000);
        let other = budget.enter(B).unwrap();
        other.grow(500_001).unwrap();
        let lease = budget.enter(A).unwrap();
        lease.grow(10).unwrap();
        let refused = lease.admit_reply(1_200_000).unwrap_err();
        assert_eq!(refused.reason, Reason::Overloaded);
        assert!(refused.message.contains("include_images=false"));
        assert!(refused.retry_after.is_some());
        assert_eq!(lease.refusal().unwrap().message, refused.message);

        other.settle(500_000);
        lease.admit_reply(1_200_000).unwrap();
        assert_eq!(budget.used(), 7_500_000);
        // The reply leaves the sixteenth for callers that hold little.
        let newcomer = budget.enter(Caller::Key([3; 32])).unwrap();
        newcomer.grow(500_000).unwrap();
        drop(newcomer);
        let second = budget.enter(A).unwrap();
        assert_eq!(
            second.admit_reply(1_200_000).unwrap_err().reason,
            Reason::Overloaded,
            "one at a time"
        );
        assert!(other.grow(1).is_err(), "no more memory is left");
        drop(lease);
        assert_eq!(
            second.admit_reply(1_200_000).unwrap_err().reason,
            Reason::Overloaded,
            "another caller waits"
        );
        other.grow(1).unwrap();
    }

    #[test]
    fn callers_that_are_not_authenticated_get_no_reply_beyond_the_budget() {
        let lease = budget().enter(Caller::Unknown).unwrap();
        assert!(lease.admit_reply(1_000).is_err());
    }
}
