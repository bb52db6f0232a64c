//! The connections, and who may use them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use context_store::StoreError;
use deadpool::managed::{Manager, Metrics, Object, Pool as Connections, PoolError, RecycleError, RecycleResult};

use crate::breaker::Breaker;
use crate::config::Config;
use crate::connection::{AsyncPgConnection, ConnectError, connect};
use crate::failure::Failure;
use crate::kept::SlowForms;
use crate::target::Target;
use crate::tls::Tls;

/// How long a server may take to be told that nobody waits for a statement any more.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(5);

/// Makes connections, and looks at those that come back.
struct Connector {
    target: Target,
    tls: Tls,
    timeout: Duration,
    statement_timeout: Duration,
    slow: Arc<SlowForms>,
}

impl Manager for Connector {
    type Type = AsyncPgConnection;
    type Error = ConnectError;

    async fn create(&self) -> Result<AsyncPgConnection, ConnectError> {
        let mut conn = connect(&self.target, &self.tls, self.timeout).await?;
        conn.start_session(self.statement_timeout, &self.slow).await;
        Ok(conn)
    }

    /// Asking the server each time whether it is there would double the round trips of a read. A connection that it
    /// ended is known; one that has died unnoticed fails at its first use, and the operation tries again.
    async fn recycle(&self, conn: &mut AsyncPgConnection, _: &Metrics) -> RecycleResult<ConnectError> {
        if conn.is_closed() { Err(RecycleError::message("the connection was closed")) } else { Ok(()) }
    }
}

/// A bounded set of connections to one database.
pub(crate) struct Pool {
    connections: Connections<Connector>,
    tls: Tls,
    breaker: Breaker,
    waiting: AtomicUsize,
    queue: usize,
    timeout: Duration,
}

impl Pool {
    pub fn new(config: &Config, tls: &Tls) -> Result<Self, context_store::BoxError> {
        let connector = Connector {
            target: config.target.clone(),
            tls: tls.clone(),
            timeout: config.connect_timeout,
            statement_timeout: config.statement_timeout,
            slow: Arc::default(),
        };
        Ok(Self {
            connections: Connections::builder(connector).max_size(config.pool_size.max(1)).build()?,
            tls: tls.clone(),
            breaker: Breaker::new(config.breaker_failures, config.breaker_recovery),
            waiting: AtomicUsize::new(0),
            queue: config.queue,
            timeout: config.pool_timeout,
        })
    }

    /// A connection that nobody else uses.
    ///
    /// # Errors
    /// `Overloaded` when too many wait or it takes too long; `Unreachable` when there is no server.
    pub async fn get(&self) -> Result<Lease, Failure> {
        if self.connections.is_closed() {
            return Err(Failure::Rejected(StoreError::Closed));
        }
        if !self.breaker.lets_through(Instant::now()) {
            return Err(Failure::NotAsked);
        }
        let _waiting = Waiting::one_more(&self.waiting, self.queue).ok_or(Failure::Rejected(StoreError::Overloaded))?;
        match tokio::time::timeout(self.timeout, self.connections.get()).await {
            Ok(Ok(conn)) => Ok(Lease { conn: Some(conn), tls: self.tls.clone() }),
            Ok(Err(PoolError::Closed)) => Err(Failure::Rejected(StoreError::Closed)),
            Ok(Err(error)) => Err(Failure::Unreachable(error.into())),
            Err(_) => Err(Failure::Rejected(StoreError::Overloaded)),
        }
    }

    /// Takes note of how an operation went.
    pub fn observe<T>(&self, result: &Result<T, Failure>) {
        match result {
            Ok(_) => self.breaker.reached(),
            Err(failure) if failure.is_of_the_server() => {
                if failure.is_unavailability() {
                    self.breaker.failed(Instant::now());
                }
                // When one connection is lost the others mostly are too.
                self.connections.retain(|_, _| false);
            }
            Err(_) => {}
        }
    }

    /// Connections there are, and operations that wait for one.
    pub fn state(&self) -> (usize, usize) {
        (self.connections.status().size, self.waiting.load(Ordering::Relaxed))
    }

    /// Operations that may wait.
    pub const fn queue(&self) -> usize {
        self.queue
    }

    pub fn close(&self) {
        self.connections.close();
    }
}

struct Waiting<'w>(&'w AtomicUsize);

impl<'w> Waiting<'w> {
    fn one_more(count: &'w AtomicUsize, most: usize) -> Option<Self> {
        let before = count.fetch_add(1, Ordering::Relaxed);
        let waiting = Self(count);
        (before < most).then_some(waiting)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A connection on loan. Unless it is given back it is closed: whoever stopped in the middle may have left a
/// transaction open or a statement running, and the server is told to stop that.
pub(crate) struct Lease {
    conn: Option<Object<Connector>>,
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

    /// Ends the loan: nothing runs and no transaction is open.
    pub fn give_back(mut self) {
        drop(self.conn.take());
    }

    /// Ends the loan of a connection that failed.
    pub fn discard(mut self) {
        drop(self.conn.take().map(Object::take));
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let Some(conn) = self.conn.take().map(Object::take) else { return };
        let (token, tls) = (conn.cancel_token(), self.tls.clone());
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                let _ = tokio::time::timeout(CANCEL_TIMEOUT, token.cancel_query(tls)).await;
                drop(conn);
            });
        }
    }
}
