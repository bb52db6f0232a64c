//! What every request handler shares, and the one way an operation is called.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use context_engine::{Authenticator, Engine, Tokens};
use context_model::{Error, Limits, Reason, Result};
use context_oidc::Issuer;
use futures::FutureExt as _;

use crate::admission::Admission;
use crate::authenticate::Who;
use crate::config::{Auth, Config};
use crate::memory::{Budget, Lease, ReplyLease};
use crate::metrics::Metrics;
use crate::operation::{Operation, Wire};

/// Messages smaller than this are not counted against the budget: together they cannot matter.
const SMALL_BYTES: usize = 64 * 1024;

/// Shared by all handlers.
pub struct App {
    /// The operations.
    pub engine: Arc<Engine>,
    /// What a request may hold.
    pub limits: Limits,
    /// What Prometheus scrapes.
    pub metrics: Metrics,
    /// Memory of bodies.
    pub budget: Arc<Budget>,
    /// What tells callers by their keys; `None` while authentication is off.
    pub authenticator: Option<Authenticator>,
    admission: Admission,
    request_timeout: Duration,
}

impl App {
    /// The shared state for these settings.
    ///
    /// # Errors
    /// Authentication is on, and the database keeps no keys, or the issuer of tokens cannot be used.
    pub fn new(engine: Arc<Engine>, config: &Config) -> Result<Self> {
        let limits = config.limits.limits();
        let load = &config.load;
        let count = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
        let authenticator = match config.network.auth {
            Auth::Off => None,
            Auth::Keys => Some(engine.authenticator(config.load.rate())?),
            Auth::Oidc => {
                let invalid = |sentence| Error::invalid("OIDC_ISSUER", sentence);
                let issuer = Issuer::new(config.oidc.settings().map_err(invalid)?).map_err(invalid)?;
                Some(engine.authenticator(config.load.rate())?.with_tokens(Tokens::new(issuer, config.oidc.rules())))
            }
        };
        Ok(Self {
            authenticator,
            engine,
            limits,
            metrics: Metrics::default(),
            budget: Arc::new(Budget::new(count(load.request_memory_mb).saturating_mul(1024 * 1024).max(limits.max_message_bytes()))),
            admission: Admission::new(count(load.max_concurrent_requests), count(load.request_queue)),
            request_timeout: config.request_timeout(),
        })
    }

    /// Runs an operation within its deadline and the limits of load, and counts it. A write whose caller gives up while
    /// it waits is not made; one that has begun runs to its end in the store.
    ///
    /// # Errors
    /// The operation's own; `OVERLOADED`, `DEADLINE_EXCEEDED`; `INTERNAL` when it panics.
    pub async fn call<T>(
        &self,
        who: &Who,
        operation: Operation,
        wire: Wire,
        deadline: Option<Duration>,
        work: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let mut call = Call { app: self, operation, wire, outcome: Some(Reason::Cancelled), started: Instant::now() };
        self.metrics.in_flight.inc();
        let limit = deadline.unwrap_or(self.request_timeout).min(self.request_timeout);
        let admitted = async {
            let _turn = self.admission.enter().await?;
            AssertUnwindSafe(work).catch_unwind().await.unwrap_or_else(|panic| Err(defect(panic.as_ref())))
        };
        let result = tokio::time::timeout(limit, admitted).await.unwrap_or_else(|_| Err(deadline_exceeded()));
        call.outcome = result.as_ref().err().map(|error| error.reason);
        if let (Some(authenticator), Who::Holder(holder), Some(Reason::ScopeMissing)) = (&self.authenticator, who, call.outcome) {
            authenticator.denied(holder, operation.as_str(), Reason::ScopeMissing);
        }
        result
    }

    /// Counts a message's bytes against the memory of bodies; `None` for one too small to count.
    ///
    /// # Errors
    /// `OVERLOADED` when there is no room for it.
    pub fn lease(&self, bytes: usize) -> Result<Option<ReplyLease>> {
        if bytes < SMALL_BYTES {
            return Ok(None);
        }
        let lease = Lease::new(self.budget.clone());
        lease.grow(bytes)?;
        Ok(Some(ReplyLease(Arc::new(lease))))
    }
}

/// Records an operation however it ends; a dropped future counts as cancelled.
struct Call<'a> {
    app: &'a App,
    operation: Operation,
    wire: Wire,
    outcome: Option<Reason>,
    started: Instant,
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        self.app.metrics.in_flight.dec();
        self.app.metrics.record(self.operation, self.wire, self.outcome, self.started.elapsed());
    }
}

fn deadline_exceeded() -> Error {
    Error::new(
        Reason::DeadlineExceeded,
        "the deadline passed before the operation was done; a write may have happened, so retry it with its idempotency key",
    )
}

#[derive(Debug, thiserror::Error)]
#[error("panic: {0}")]
struct Panic(String);

/// The error of a panic. Its message is for the log.
pub(crate) fn defect(panic: &(dyn std::any::Any + Send)) -> Error {
    let text = panic.downcast_ref::<&str>().map(ToString::to_string);
    Error::internal(Panic(text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default()))
}
