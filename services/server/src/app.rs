//! State shared by all request handlers, and the function through which every operation is called.

#![expect(
    clippy::disallowed_methods,
    reason = "measures how long an operation takes"
)]

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use context_engine::{Authenticator, Engine, Tokens};
use context_model::{Error, Limits, Operation, Reason, Result};
use context_oidc::Issuer;
use context_store::call::Turn;
use futures::FutureExt as _;
use tokio_util::sync::CancellationToken;

use crate::admission::{Admission, Holder, Slot};
use crate::config::{Auth, Config};
use crate::memory::Budget;
use crate::metrics::Metrics;
use crate::request_context::RequestContext;
use crate::request_log::RequestLog;
use crate::rights::Rights;
use crate::transport::Transport;

/// Concurrent requests without credentials: health checks, metrics, documentation, the page and sign-in. One network
/// may use half of them.
const PUBLIC_REQUESTS: usize = 64;
/// Concurrent streams without credentials: gRPC's `Health/Watch` and reflection. One network may use half of them. Each
/// client behind a proxy may have one for as long as it runs.
const PUBLIC_STREAMS: usize = 1024;

/// State shared by all handlers.
pub struct App {
    /// The operations.
    pub engine: Arc<Engine>,
    /// Limits on request sizes.
    pub limits: Limits,
    /// Metrics for Prometheus.
    pub metrics: Metrics,
    /// The log of requests.
    pub request_log: Arc<RequestLog>,
    /// The memory budget of requests and replies.
    pub budget: Arc<Budget>,
    /// Slots for requests without credentials.
    pub public: Arc<Admission>,
    /// Slots for streams without credentials. They are apart, because a stream keeps its slot.
    pub public_streams: Arc<Admission>,
    /// Authenticates callers; `None` if authentication is off.
    pub authenticator: Option<Arc<Authenticator>>,
    /// Slots for streams of changes.
    pub streams: Arc<Admission>,
    /// Checks the rights of callers with streams.
    pub rights: Arc<Rights>,
    /// Cancelled when the service begins to stop.
    pub drain: CancellationToken,
    admission: Arc<Admission>,
    request_timeout: Duration,
}

impl App {
    /// Creates the shared state from the settings.
    ///
    /// # Errors
    /// If the settings of the token issuer cannot be used.
    pub fn new(engine: Arc<Engine>, config: &Config) -> Result<Self> {
        let limits = config.limits.limits();
        let load = &config.load;
        let count = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
        let authenticator = match config.network.auth {
            Auth::Off => None,
            Auth::Keys => Some(engine.access.authenticator(config.load.rate())),
            Auth::Oidc => {
                let invalid = |sentence| Error::invalid("OIDC_ISSUER", sentence);
                let issuer =
                    Issuer::new(config.oidc.settings().map_err(invalid)?).map_err(invalid)?;
                Some(
                    engine
                        .access
                        .authenticator(config.load.rate())
                        .with_tokens(Tokens::new(issuer, config.oidc.rules())),
                )
            }
        };
        let authenticator = authenticator.map(Arc::new);
        let drain = CancellationToken::new();
        // Without authentication there is only one owner, who may use everything.
        let shared = authenticator.is_some();
        let memory = count(load.request_memory_mb).saturating_mul(1024 * 1024);
        Ok(Self {
            rights: Rights::new(authenticator.clone(), drain.clone()),
            authenticator,
            engine,
            limits,
            metrics: Metrics::default(),
            request_log: Arc::default(),
            budget: Arc::new(Budget::new(memory, limits.max_message_bytes(), shared)),
            public: Admission::new(PUBLIC_REQUESTS, 0, true),
            public_streams: Admission::new(PUBLIC_STREAMS, 0, true),
            streams: Admission::new(count(load.watch_max_streams), 0, shared),
            drain,
            admission: Admission::new(
                count(load.max_concurrent_requests),
                count(load.request_queue),
                shared,
            ),
            request_timeout: config.request_timeout(),
        })
    }

    /// Runs an operation within its deadline and the admission limits, and records it in the
    /// metrics. A write is not started if its caller leaves while it waits; once started, it runs
    /// to its end in the store.
    ///
    /// # Errors
    /// The operation's own errors; `OVERLOADED`; `DEADLINE_EXCEEDED`; `INTERNAL` if it panics.
    pub async fn call<T>(
        &self,
        ctx: &RequestContext,
        operation: Operation,
        transport: Transport,
        deadline: Option<Duration>,
        work: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let mut call = Call {
            app: self,
            operation,
            transport,
            outcome: Some(Reason::Cancelled),
            started: Instant::now(),
        };
        self.metrics.in_flight.inc();
        let limit = deadline
            .unwrap_or(self.request_timeout)
            .min(self.request_timeout);
        let admitted = async {
            let turn = Arc::new(OperationSlot::new(
                self.admission.clone(),
                Holder::Owner(ctx.caller().owner.clone()),
            ));
            if !turn.take_free() {
                turn.take().await?;
            }
            let work = context_store::call::within(
                limit.saturating_sub(call.started.elapsed()),
                Some(turn.clone()),
                work,
            );
            AssertUnwindSafe(work)
                .catch_unwind()
                .await
                .unwrap_or_else(|panic| Err(defect(panic.as_ref())))
        };
        let result = if limit.is_zero() {
            Err(deadline_exceeded())
        } else {
            // The timer rounds up to whole milliseconds, so work may exceed the limit by less than one.
            tokio::time::timeout(limit, admitted)
                .await
                .unwrap_or_else(|_| Err(deadline_exceeded()))
        };
        call.outcome = result.as_ref().err().map(|error| error.reason);
        self.note_refusal(ctx, operation, call.outcome);
        result
    }

    /// Records an operation that was refused before it started.
    pub fn refused(
        &self,
        ctx: &RequestContext,
        operation: Operation,
        transport: Transport,
        reason: Reason,
        took: Duration,
    ) {
        self.metrics
            .record(operation, transport, Some(reason), took);
        self.note_refusal(ctx, operation, Some(reason));
    }

    /// Writes a refusal for a missing scope to the audit log.
    fn note_refusal(&self, ctx: &RequestContext, operation: Operation, outcome: Option<Reason>) {
        if let (Some(authenticator), Some(holder), Some(Reason::ScopeMissing)) =
            (&self.authenticator, &ctx.holder, outcome)
        {
            authenticator.denied(holder, operation.as_str(), Reason::ScopeMissing);
        }
    }
}

/// The slot of an operation. The operation releases it while it waits for a standby or a copy.
struct OperationSlot {
    admission: Arc<Admission>,
    holder: Holder,
    slot: Mutex<Option<Slot>>,
}

impl OperationSlot {
    fn new(admission: Arc<Admission>, holder: Holder) -> Self {
        Self {
            admission,
            holder,
            slot: Mutex::default(),
        }
    }

    /// Takes a free slot without waiting; returns whether there was one.
    fn take_free(&self) -> bool {
        let slot = self.admission.try_enter(self.holder.clone()).ok();
        let is_taken = slot.is_some();
        self.hold(slot);
        is_taken
    }

    fn hold(&self, slot: Option<Slot>) {
        *self.slot.lock().unwrap_or_else(PoisonError::into_inner) = slot;
    }
}

#[async_trait]
impl Turn for OperationSlot {
    fn leave(&self) {
        self.hold(None);
    }

    async fn take(&self) -> Result<()> {
        self.hold(Some(self.admission.enter(self.holder.clone()).await?));
        Ok(())
    }
}

/// Records the end of an operation; a dropped future counts as cancelled.
struct Call<'a> {
    app: &'a App,
    operation: Operation,
    transport: Transport,
    outcome: Option<Reason>,
    started: Instant,
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        self.app.metrics.in_flight.dec();
        self.app.metrics.record(
            self.operation,
            self.transport,
            self.outcome,
            self.started.elapsed(),
        );
    }
}

fn deadline_exceeded() -> Error {
    Error::new(
        Reason::DeadlineExceeded,
        "the deadline passed before the operation was done; a write may have taken effect, so retry it with the same idempotency key",
    )
}

#[derive(Debug, thiserror::Error)]
#[error("panic: {0}")]
struct Panic(String);

/// The error for a panic. The panic's message goes only to the log.
pub(crate) fn defect(panic: &(dyn std::any::Any + Send)) -> Error {
    let text = panic.downcast_ref::<&str>().map(ToString::to_string);
    Error::internal(Panic(
        text.or_else(|| panic.downcast_ref::<String>().cloned())
            .unwrap_or_default(),
    ))
}
