//! The memory budget of requests and replies, and the share of each caller.
//!
//! Held memory is counted: bytes that were received, unpacked, decoded, loaded from the database
//! and sent. An announced length counts nothing. Each request has one [`Lease`], which grows with
//! the request and is returned when the reply was sent or dropped.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use context_model::{Error, Reason};
use context_store::{Meter, OwnerId};

use crate::admission::overloaded;

/// Memory for requests without credentials, and as much for streams without credentials.
pub const PUBLIC_BYTES: usize = 8 * MIB;
/// Minimum and maximum of the reserve for the Unix socket without credentials and for key administration; it is a
/// sixteenth of the budget.
const RESERVE: (usize, usize) = (4 * MIB, 32 * MIB);
/// Maximum number of accounts without a request that stay in memory.
const MAX_IDLE_ACCOUNTS: usize = 10_000;

const MIB: usize = 1024 * 1024;

/// The account that a request's memory is charged to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Payer {
    /// A request without credentials.
    Public,
    /// A stream without credentials.
    PublicStream,
    /// A request of this owner.
    Owner(OwnerId),
    /// The owner's key administration, which may use the reserve.
    KeysOf(OwnerId),
    /// The operator, over the Unix socket.
    Operator,
}

/// The memory budget of all requests in flight.
#[derive(Debug)]
pub struct Budget {
    total: usize,
    reserve: usize,
    /// The limit of one owner, in bytes.
    share: usize,
    used: AtomicUsize,
    public: Arc<Account>,
    public_streams: Arc<Account>,
    operator: Arc<Account>,
    owners: Mutex<HashMap<OwnerId, Arc<Account>>>,
}

/// The memory of one payer.
#[derive(Debug)]
struct Account {
    limit: usize,
    used: AtomicUsize,
}

impl Account {
    fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self {
            limit,
            used: AtomicUsize::new(0),
        })
    }
}

/// Adds to a counter, unless it would exceed the limit.
fn add(used: &AtomicUsize, bytes: usize, limit: usize) -> bool {
    let fits = |used: usize| used.checked_add(bytes).filter(|sum| *sum <= limit);
    used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits)
        .is_ok()
}

impl Budget {
    /// A budget of `total` bytes. The largest request has `largest` bytes, and is held twice: as it
    /// was received, and decoded. The budget is raised if that does not fit beside the reserve. With
    /// `shared`, one owner may hold at most half of the budget, or one largest request held twice,
    /// whichever is more, but never the reserve.
    #[must_use]
    pub fn new(total: usize, largest: usize, shared: bool) -> Self {
        let reserve = (total / 16).clamp(RESERVE.0, RESERVE.1);
        let total = total.max(largest.saturating_mul(2).saturating_add(reserve));
        let open = total - reserve;
        let share = if shared {
            (total / 2).max(largest.saturating_mul(2)).min(open)
        } else {
            open
        };
        Self {
            total,
            reserve,
            share,
            used: AtomicUsize::new(0),
            public: Account::new(PUBLIC_BYTES),
            public_streams: Account::new(PUBLIC_BYTES),
            operator: Account::new(total),
            owners: Mutex::default(),
        }
    }

    /// Bytes in use.
    #[must_use]
    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    fn account(&self, payer: &Payer) -> Arc<Account> {
        let owner = match payer {
            Payer::Public => return self.public.clone(),
            Payer::PublicStream => return self.public_streams.clone(),
            Payer::Operator => return self.operator.clone(),
            Payer::Owner(owner) | Payer::KeysOf(owner) => owner,
        };
        let mut owners = self.owners.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(account) = owners.get(owner) {
            return account.clone();
        }
        if owners.len() >= MAX_IDLE_ACCOUNTS {
            owners.retain(|_, account| Arc::strong_count(account) > 1);
        }
        let account = Account::new(self.share);
        owners.insert(owner.clone(), account.clone());
        account
    }
}

/// The memory of one request. Dropping the lease returns it.
#[derive(Debug)]
pub struct Lease {
    budget: Arc<Budget>,
    account: Arc<Account>,
    /// How much of the budget this request may use.
    limit: usize,
    bytes: AtomicUsize,
}

impl Lease {
    /// An empty lease.
    #[must_use]
    pub fn new(budget: &Arc<Budget>, payer: &Payer) -> Self {
        let limit = match payer {
            Payer::Public | Payer::PublicStream | Payer::Owner(_) => budget.total - budget.reserve,
            Payer::KeysOf(_) | Payer::Operator => budget.total,
        };
        Self {
            account: budget.account(payer),
            budget: budget.clone(),
            limit,
            bytes: AtomicUsize::new(0),
        }
    }

    /// Reserves memory.
    ///
    /// # Errors
    /// `OVERLOADED` if there is no memory at present; `REQUEST_TOO_LARGE` if `bytes` alone exceed the limit.
    pub fn grow(&self, bytes: usize) -> Result<(), Error> {
        if bytes > self.account.limit.min(self.limit) {
            return Err(Error::new(
                Reason::RequestTooLarge,
                "the request would take more memory than its caller may use; split it",
            ));
        }
        if !add(&self.account.used, bytes, self.account.limit) {
            return Err(overloaded());
        }
        if !add(&self.budget.used, bytes, self.limit) {
            self.account.used.fetch_sub(bytes, Ordering::Relaxed);
            return Err(overloaded());
        }
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        Ok(())
    }

    /// Counts memory even beyond the limits: for the reply of a write that has taken effect.
    pub fn exceed(&self, bytes: usize) {
        self.account.used.fetch_add(bytes, Ordering::Relaxed);
        self.budget.used.fetch_add(bytes, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Returns memory that is no longer held.
    pub fn shrink(&self, bytes: usize) {
        let left = |held: usize| Some(held.saturating_sub(bytes));
        // The closure always returns a value.
        let held = self
            .bytes
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, left)
            .unwrap_or_default();
        self.give_back(held.min(bytes));
    }

    /// Bytes held by this lease.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    fn give_back(&self, bytes: usize) {
        self.account.used.fetch_sub(bytes, Ordering::Relaxed);
        self.budget.used.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl Meter for Lease {
    fn take(&self, bytes: u64) -> Result<(), Error> {
        self.grow(usize::try_from(bytes).unwrap_or(usize::MAX))
    }

    fn give_back(&self, bytes: u64) {
        self.shrink(usize::try_from(bytes).unwrap_or(usize::MAX));
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let bytes = *self.bytes.get_mut();
        self.give_back(bytes);
    }
}

/// The error for a request beyond the size limit. `what` is the body or the message.
#[must_use]
pub fn too_large(what: &str, limit: usize) -> Error {
    Error::new(
        Reason::RequestTooLarge,
        format!(
            "the {what} has more than {limit} bytes, the most that is accepted; split the batch"
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(name: &str) -> Payer {
        Payer::Owner(OwnerId::new(name))
    }

    #[test]
    fn an_owner_holds_half_and_another_one_finds_room() {
        let budget = Arc::new(Budget::new(256 * MIB, 16 * MIB, true));
        let greedy = Lease::new(&budget, &owner("greedy"));
        greedy.grow(128 * MIB).unwrap();
        assert_eq!(greedy.grow(1).unwrap_err().reason, Reason::Overloaded);
        let again = Lease::new(&budget, &owner("greedy"));
        assert_eq!(
            again.grow(1).unwrap_err().reason,
            Reason::Overloaded,
            "a second request has the same share"
        );
        let other = Lease::new(&budget, &owner("other"));
        other.grow(100 * MIB).unwrap();
        drop(greedy);
        again.grow(128 * MIB).unwrap();
        drop((again, other));
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn the_operator_and_key_administration_find_room_when_owners_took_all_they_may() {
        let budget = Arc::new(Budget::new(128 * MIB, 16 * MIB, true));
        let leases: Vec<_> = ["one", "two"]
            .map(|name| Lease::new(&budget, &owner(name)))
            .into();
        leases[0].grow(64 * MIB).unwrap();
        leases[1].grow(56 * MIB).unwrap();
        assert_eq!(leases[1].grow(1).unwrap_err().reason, Reason::Overloaded);
        Lease::new(&budget, &Payer::Operator).grow(4 * MIB).unwrap();
        Lease::new(&budget, &Payer::KeysOf(OwnerId::new("three")))
            .grow(4 * MIB)
            .unwrap();
    }

    #[test]
    fn requests_without_credentials_share_a_small_part() {
        let budget = Arc::new(Budget::new(1024 * MIB, 16 * MIB, true));
        let first = Lease::new(&budget, &Payer::Public);
        first.grow(PUBLIC_BYTES).unwrap();
        assert_eq!(
            Lease::new(&budget, &Payer::Public)
                .grow(1)
                .unwrap_err()
                .reason,
            Reason::Overloaded
        );
        let stream = Lease::new(&budget, &Payer::PublicStream);
        stream.grow(PUBLIC_BYTES).unwrap();
    }

    #[test]
    fn the_largest_request_fits_received_and_decoded_whatever_the_setting() {
        for (total, shared) in [(64, true), (64, false), (512, true)] {
            let budget = Arc::new(Budget::new(total * MIB, 156 * MIB, shared));
            Lease::new(&budget, &owner("o")).grow(312 * MIB).unwrap();
        }
    }

    #[test]
    fn the_reply_of_a_write_is_counted_beyond_the_share_and_others_wait_for_it() {
        let budget = Arc::new(Budget::new(64 * MIB, MIB, false));
        let lease = Lease::new(&budget, &owner("o"));
        lease.grow(60 * MIB).unwrap();
        lease.exceed(MIB);
        assert_eq!(
            Lease::new(&budget, &owner("o")).grow(1).unwrap_err().reason,
            Reason::Overloaded
        );
        drop(lease);
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn what_is_given_back_is_there_for_others() {
        let budget = Arc::new(Budget::new(64 * MIB, MIB, false));
        let lease = Lease::new(&budget, &owner("o"));
        lease.grow(60 * MIB).unwrap();
        lease.shrink(10 * MIB);
        lease.grow(10 * MIB).unwrap();
        lease.shrink(usize::MAX);
        assert_eq!(budget.used(), 0);
    }
}
