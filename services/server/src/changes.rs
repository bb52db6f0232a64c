//! Long polling: lists of changes that wait for the next change.
//!
//! A list that waits holds no slot and no database connection: each of its reads is an operation of its own. So the
//! time limit of an operation does not end the wait.

#![expect(clippy::disallowed_methods, reason = "measures how long a list waits")]

use std::time::Duration;

use context_engine::MAX_WAIT;
use context_model::{ListChangesReply, ListChangesRequest, Operation, Reason, Result};
use prometheus_client::metrics::gauge::Gauge;
use tokio::time::Instant;

use crate::app::App;
use crate::authenticate::Credentials;
use crate::request_context::RequestContext;
use crate::transport::Transport;

/// The part of a caller's deadline that is left for sending the reply: a tenth of it, at most this long.
const REPLY_RESERVE: Duration = Duration::from_secs(1);
/// Pause before a list that was woken asks for a slot again.
const OVERLOAD_PAUSE: Duration = Duration::from_millis(50);

/// A request for changes that may wait.
pub struct LongPoll<'a> {
    /// The shared state.
    pub app: &'a App,
    /// The caller when the request arrived.
    pub ctx: &'a RequestContext,
    /// The caller's credentials, which are checked again before each further read and before a reply after a wait.
    pub credentials: Credentials,
    /// The transport of the request.
    pub transport: Transport,
    /// The time that the caller allows.
    pub deadline: Option<Duration>,
}

impl LongPoll<'_> {
    /// Lists changes. If there is none, waits for the next one that passes the filters, for `wait_ms` at most.
    ///
    /// # Errors
    /// The errors of the operation; `UNAUTHENTICATED` and `SCOPE_MISSING` when the caller lost its rights meanwhile.
    pub async fn list_changes(self, mut request: ListChangesRequest) -> Result<ListChangesReply> {
        let Self {
            app,
            ctx,
            credentials,
            transport,
            deadline,
        } = self;
        let started = Instant::now();
        let wait = request
            .wait_ms
            .and_then(|wait| u64::try_from(wait).ok())
            .map_or(Duration::ZERO, Duration::from_millis)
            .min(MAX_WAIT);
        let longest = deadline.map_or(wait, |deadline| {
            deadline - (deadline / 10).min(REPLY_RESERVE)
        });
        let until = started + wait.min(longest);
        let mut caller = ctx.caller().clone();
        let mut subscription =
            (!wait.is_zero()).then(|| app.engine.changes.subscribe(&caller.owner));
        let mut has_waited = false;
        let mut is_first = true;
        loop {
            if let Some(subscription) = &mut subscription {
                subscription.begin_read();
            }
            let left = deadline.map(|deadline| deadline.saturating_sub(started.elapsed()));
            let attempt = async {
                if !std::mem::take(&mut is_first) {
                    caller = credentials.caller(app, ctx, Operation::ListChanges).await?;
                }
                let work = app.engine.changes.list_changes(&caller, request.clone());
                app.call(ctx, Operation::ListChanges, transport, left, work)
                    .await
            };
            let reply = match attempt.await {
                // One change can wake more lists than there are places in the queue.
                Err(error)
                    if error.reason == Reason::Overloaded
                        && has_waited
                        && Instant::now() < until =>
                {
                    tokio::time::sleep(OVERLOAD_PAUSE).await;
                    continue;
                }
                reply => reply?,
            };
            let is_from_now = request.cursor.as_deref() == Some("now");
            let Some(subscription) = subscription
                .as_mut()
                .filter(|_| reply.changes.is_empty() && !is_from_now && Instant::now() < until)
            else {
                return Ok(reply);
            };
            let mut has_ended = false;
            if !reply.has_more {
                let _waits = WaitingGuard::new(&app.metrics.waiting_lists);
                tokio::select! {
                    () = subscription.changed() => has_waited = true,
                    () = tokio::time::sleep_until(until) => has_ended = true,
                    () = app.drain.cancelled() => has_ended = true,
                }
            }
            if has_ended {
                credentials.caller(app, ctx, Operation::ListChanges).await?;
                return Ok(reply);
            }
            request.cursor = Some(reply.next_cursor);
        }
    }
}

/// Counts a list while it waits.
struct WaitingGuard<'a>(&'a Gauge);

impl<'a> WaitingGuard<'a> {
    fn new(gauge: &'a Gauge) -> Self {
        gauge.inc();
        Self(gauge)
    }
}

impl Drop for WaitingGuard<'_> {
    fn drop(&mut self) {
        self.0.dec();
    }
}
