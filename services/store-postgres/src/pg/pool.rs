//! The connection pool, shared fairly between owners.

#![expect(
    clippy::disallowed_methods,
    reason = "the pauses of the circuit breaker"
)]

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use context_store::{OwnerId, Sharer, Shares, StoreError};
use deadpool::managed::{
    Manager, Metrics, Object, Pool as Connections, PoolError, RecycleError, RecycleResult,
};
use tokio::sync::oneshot;

use crate::config::Config;
use crate::open::Opened;
use crate::pg::breaker::Breaker;
use crate::pg::connection::{AsyncPgConnection, ConnectError, connect_within};
use crate::pg::failure::Failure;
use crate::pg::statement_cache::SlowSearches;
use crate::pg::target::Target;
use crate::pg::tls::Tls;

/// Timeout for ending what a failed operation left on its connection.
const CLEAN_UP_TIMEOUT: Duration = Duration::from_secs(1);
/// Minimum pause between two reconnections because the server is read-only.
const READ_ONLY_PAUSE: Duration = Duration::from_secs(5);
/// Timeout for asking the server to cancel a statement that no caller waits for.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(2);

/// Creates connections, and checks a pooled one before it is used again.
struct Connector {
    target: Target,
    tls: Tls,
    timeout: Duration,
    pool_timeout: Duration,
    /// The statement timeout of each session. `None` behind a pooler, where each transaction has its own.
    session_timeout: Option<Duration>,
    slow_searches: Arc<SlowSearches>,
}

impl Manager for Connector {
    type Type = AsyncPgConnection;
    type Error = ConnectError;

    async fn create(&self) -> Result<AsyncPgConnection, ConnectError> {
        // Boxed, because its future has several kilobytes, and every operation would move them without connecting.
        let connecting = Box::pin(connect_within(
            &self.target,
            &self.tls,
            self.timeout,
            self.pool_timeout,
        ));
        let mut conn = connecting.await?;
        conn.start_session(self.session_timeout, &self.slow_searches)
            .await;
        Ok(conn)
    }

    /// A check by query would double the round trips of a read. A connection that the server closed is recognised
    /// without one. A connection that died unnoticed fails at its first use, and the operation is retried.
    async fn recycle(
        &self,
        conn: &mut AsyncPgConnection,
        _: &Metrics,
    ) -> RecycleResult<ConnectError> {
        if conn.is_closed() {
            Err(RecycleError::message("the connection was closed"))
        } else {
            Ok(())
        }
    }
}

/// A bounded set of connections to one database. Owners that wait for a connection take turns.
pub(crate) struct Pool {
    connections: Connections<Connector>,
    tls: Tls,
    breaker: Breaker,
    slots: Slots,
    queue: usize,
    timeout: Duration,
    /// When the connections were last closed because the server was read-only.
    read_only_at: Mutex<Option<Instant>>,
}

impl Pool {
    pub fn new(config: &Config, opened: &Opened) -> Result<Self, context_store::BoxError> {
        let tls = &opened.tls;
        let connector = Connector {
            target: config.target.clone(),
            tls: tls.clone(),
            timeout: config.connect_timeout,
            pool_timeout: config.pool_timeout,
            session_timeout: opened.has_sessions.then_some(config.statement_timeout),
            slow_searches: Arc::default(),
        };
        Ok(Self {
            connections: Connections::builder(connector)
                .max_size(config.pool_size.max(1))
                .build()?,
            slots: Slots(Arc::new(Mutex::new(Shares::new(
                config.pool_size,
                config.queue,
            )))),
            tls: tls.clone(),
            breaker: Breaker::new(config.breaker_failures, config.breaker_recovery),
            queue: config.queue,
            timeout: config.pool_timeout,
            read_only_at: Mutex::new(None),
        })
    }

    /// Takes a connection, for an owner or for the service itself, and records whether there was one.
    ///
    /// # Errors
    /// `Overloaded` when too many operations wait or the wait takes too long. `Unreachable` when there is no server.
    /// `BreakerOpen` while the circuit breaker is open. `Closed` after [`close`](Self::close).
    pub async fn get(&self, owner: Option<&OwnerId>) -> Result<Lease, Failure> {
        let lease = self.take(owner).await;
        self.observe(&lease);
        lease
    }

    async fn take(&self, owner: Option<&OwnerId>) -> Result<Lease, Failure> {
        if self.connections.is_closed() {
            return Err(Failure::Rejected(StoreError::Closed));
        }
        if !self.breaker.lets_through(Instant::now()) {
            return Err(Failure::BreakerOpen);
        }
        let start = Instant::now();
        let overloaded = || Failure::Rejected(StoreError::Overloaded);
        let slot = tokio::time::timeout(self.timeout, self.slots.take(owner.cloned()))
            .await
            .map_err(|_| overloaded())??;
        let queued = start.elapsed();
        let left = self.timeout.saturating_sub(queued);
        match tokio::time::timeout(left, self.connections.get()).await {
            Ok(Ok(conn)) => Ok(Lease {
                conn: Some(conn),
                slot: Some(slot),
                tls: self.tls.clone(),
            }),
            Ok(Err(PoolError::Closed)) => Err(Failure::Rejected(StoreError::Closed)),
            Ok(Err(error)) => Err(Failure::Unreachable(error.into())),
            // A caller with a slot waits for no other caller, only for the server.
            Err(_) if left > queued => {
                Err(Failure::Unreachable(ConnectError::TimedOut(left).into()))
            }
            Err(_) => Err(overloaded()),
        }
    }

    /// Records the result of an operation for the circuit breaker and the pool.
    pub fn observe<T>(&self, result: &Result<T, Failure>) {
        match result {
            Ok(_) => self.breaker.reached(),
            Err(failure) if failure.is_unavailability() => {
                self.breaker.failed(Instant::now());
                // When one connection is lost, the others usually are too.
                self.connections.retain(|_, _| false);
            }
            Err(_) => {}
        }
    }

    /// Whether another connection may reach a server that accepts writes, after this one reached a read-only server.
    /// That server may have been the primary when it was connected to, so the idle connections are closed, at most once
    /// in [`READ_ONLY_PAUSE`]. If a connection that was opened since then is also read-only, the service runs on a
    /// standby.
    pub fn may_reach_primary(&self, read_only: &Lease) -> bool {
        let Some(conn) = &read_only.conn else {
            return true;
        };
        let (now, created) = (Instant::now(), Object::metrics(conn).created);
        let mut last = self
            .read_only_at
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        match *last {
            Some(last) if now < last + READ_ONLY_PAUSE => created < last,
            _ => {
                *last = Some(now);
                self.connections.retain(|_, _| false);
                true
            }
        }
    }

    /// Number of connections, and number of operations that wait for one.
    pub fn state(&self) -> (usize, usize) {
        (self.connections.status().size, self.slots.lock().queued())
    }

    /// Maximum number of operations that wait.
    pub const fn queue(&self) -> usize {
        self.queue
    }

    pub fn close(&self) {
        self.connections.close();
    }
}

/// The slots for connections: one for each connection that may exist.
#[derive(Clone)]
struct Slots(Arc<Mutex<Shares<oneshot::Sender<Slot>>>>);

impl Slots {
    async fn take(&self, sharer: Sharer) -> Result<Slot, Failure> {
        let granted = {
            let mut shares = self.lock();
            if shares.take(&sharer) {
                return Ok(Slot(Some((self.clone(), sharer))));
            }
            let (grant, granted) = oneshot::channel();
            shares
                .push(sharer, grant, |grant| !grant.is_closed())
                .map_err(|_| Failure::Rejected(StoreError::Overloaded))?;
            granted
        };
        granted
            .await
            .map_err(|_| Failure::Rejected(StoreError::Closed))
    }

    fn give_back(&self, sharer: &Sharer) {
        self.lock().give_back(sharer);
        loop {
            let Some((next, grant)) = self.lock().grant_next() else {
                return;
            };
            if let Err(mut refused) = grant.send(Slot(Some((self.clone(), next)))) {
                // The caller no longer waits. Dropping the slot would call this function again, recursively for each
                // such caller.
                if let Some((_, sharer)) = refused.0.take() {
                    self.lock().give_back(&sharer);
                }
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Shares<oneshot::Sender<Slot>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One slot. It is returned when dropped.
struct Slot(Option<(Slots, Sharer)>);

impl Drop for Slot {
    fn drop(&mut self) {
        if let Some((slots, sharer)) = self.0.take() {
            slots.give_back(&sharer);
        }
    }
}

/// A connection taken from the pool. If it is dropped without being given back or discarded, it is closed and the
/// server is asked to cancel its statement: a caller that stopped in the middle may have left a transaction open or a
/// statement running.
pub(crate) struct Lease {
    conn: Option<Object<Connector>>,
    /// Held until the cancel request was sent, so that callers that stop waiting do not use more connections of the
    /// server than others.
    slot: Option<Slot>,
    tls: Tls,
}

impl Lease {
    /// The connection.
    pub fn conn(&mut self) -> &mut AsyncPgConnection {
        match &mut self.conn {
            Some(conn) => conn,
            None => unreachable!("a lease has its connection until it ends"),
        }
    }

    /// Returns the connection. No statement may be running and no transaction open.
    pub fn give_back(mut self) {
        drop(self.conn.take());
    }

    /// Returns the connection after its operation failed with an error that does not concern the connection. Rolls back
    /// an open transaction and skips unread rows. If that takes long, the connection is closed.
    pub async fn clean_up(mut self) {
        let cleaning = self.conn().clean_up();
        let cleaned = tokio::time::timeout(CLEAN_UP_TIMEOUT, cleaning).await;
        if matches!(cleaned, Ok(Ok(()))) {
            self.give_back();
        }
    }

    /// Takes a failed connection out of the pool and closes it.
    pub fn discard(mut self) {
        drop(self.conn.take().map(Object::take));
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let Some(conn) = self.conn.take().map(Object::take) else {
            return;
        };
        let (token, tls, slot) = (conn.cancel_token(), self.tls.clone(), self.slot.take());
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                let _ = tokio::time::timeout(CANCEL_TIMEOUT, token.cancel_query(tls)).await;
                drop(conn);
                drop(slot);
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    fn slots(count: usize) -> Slots {
        Slots(Arc::new(Mutex::new(Shares::new(count, 100))))
    }

    fn owner(name: &str) -> Sharer {
        Some(OwnerId::new(name))
    }

    #[tokio::test]
    async fn a_slot_goes_to_the_owner_that_holds_fewer_and_never_to_a_caller_that_has_left() {
        let slots = slots(2);
        let first = slots.take(owner("a")).await.unwrap();
        let second = slots.take(owner("a")).await.unwrap();
        let mut leaving: Vec<_> = (0..10_000)
            .map(|_| Box::pin(slots.take(owner("gone"))))
            .collect();
        let full = leaving
            .iter_mut()
            .filter_map(|waiting| waiting.now_or_never())
            .collect::<Vec<_>>();
        assert!(
            full.len() == 9_900 && full.iter().all(Result::is_err),
            "the queue is bounded"
        );
        drop(leaving);
        let (mut third_of_a, mut of_b) = (
            Box::pin(slots.take(owner("a"))),
            Box::pin(slots.take(owner("b"))),
        );
        assert!(
            third_of_a.as_mut().now_or_never().is_none() && of_b.as_mut().now_or_never().is_none()
        );
        drop(first);
        let of_b = of_b.now_or_never().expect("b holds fewer").unwrap();
        assert!(third_of_a.as_mut().now_or_never().is_none());
        drop(of_b);
        drop(third_of_a.await.unwrap());
        drop(second);
        let (one, other) = (slots.take(owner("c")), slots.take(owner("d")));
        let both = (one.now_or_never(), other.now_or_never());
        assert!(
            matches!(both, (Some(Ok(_)), Some(Ok(_)))),
            "nothing is lost"
        );
    }

    #[tokio::test]
    async fn a_slot_that_was_granted_to_a_caller_who_leaves_goes_to_the_next_one() {
        let slots = slots(1);
        let first = slots.take(owner("a")).await.unwrap();
        let mut leaving = Box::pin(slots.take(owner("b")));
        assert!(leaving.as_mut().now_or_never().is_none());
        drop(first);
        drop(leaving);
        assert!(slots.take(owner("c")).now_or_never().unwrap().is_ok());
    }
}
