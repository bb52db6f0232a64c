//! Streams of changes.
//!
//! A stream reads the next changes when its reader has taken the earlier ones, so it follows the reader's pace with
//! little memory. It holds no slot and no database connection while it waits: each of its reads is an operation of its
//! own. When a frame is queued for the connection, the check of the caller's rights is at most 250 ms old. While no frame
//! is due, [`rights`](crate::rights) checks them.

#![expect(
    clippy::disallowed_methods,
    reason = "measures when rights were checked and when bookmarks are due"
)]

use std::sync::Arc;
use std::time::Duration;

use context_engine::{Caller, Watch};
use context_model::{Error, Operation, Reason, Result, WatchEvent, WatchFrame, WatchRequest};
use context_store::{Memory, Subscription};
use futures::StreamExt as _;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::Instant;
use tokio_stream::wrappers::ReceiverStream;

use crate::admission::{Holder, Slot};
use crate::app::App;
use crate::authenticate::Credentials;
use crate::memory::{Lease, Payer};
use crate::request_context::RequestContext;
use crate::rights::RecheckSignal;
use crate::transport::Transport;

/// Number of frames that may wait for the connection.
const QUEUE: usize = 16;
/// Steps whose frames may wait for the connection: while the frames of one are taken, the next one is read. A step has
/// at most 1 MiB of texts, or one larger text.
const STEPS: usize = 2;
/// How old the check of the caller's rights may be when a frame is queued.
const RIGHTS_FRESH: Duration = Duration::from_millis(250);
/// A bookmark follows after this long without a frame.
const BOOKMARK_EVERY: Duration = Duration::from_secs(15);
/// A reader that makes no room for the next frame, or for the next step, within this time is too slow.
const SLOW_CONSUMER: Duration = Duration::from_secs(30);
/// How long a stream retries while the database is unavailable.
const RETRY_FOR: Duration = Duration::from_secs(10);
/// How long a stream waits for memory. The streams of slow readers end within this time and return theirs.
const WAIT_FOR_MEMORY: Duration = SLOW_CONSUMER.saturating_add(RETRY_FOR);
/// The pause between two attempts.
const RETRY_PAUSE: Duration = Duration::from_millis(250);

/// A frame, or the error that ends the stream, on its way to the connection.
struct Queued {
    event: Result<WatchEvent>,
    /// Held until the connection takes the frame.
    _step: Option<Arc<Step>>,
}

/// One read of changes, while its frames wait for the connection.
struct Step {
    /// The memory of the frames, counted as the owner's.
    _memory: Arc<Lease>,
    _turn: OwnedSemaphorePermit,
}

/// Opens a stream of changes. An error in the returned stream is its last item.
///
/// # Errors
/// `OVERLOADED` if there are too many streams; the errors of the operation.
pub async fn open(
    app: &Arc<App>,
    ctx: RequestContext,
    credentials: Credentials,
    transport: Transport,
    request: WatchRequest,
) -> Result<impl futures::Stream<Item = Result<WatchEvent>> + Send + use<>> {
    let owner = ctx.caller().owner.clone();
    let slot = app
        .streams
        .try_enter(Holder::Owner(owner.clone()))
        .map_err(|_| too_many())?;
    let subscription = app.engine.changes.subscribe_with(&owner, &request.filters);
    let opening = app.engine.changes.watch(ctx.caller(), request);
    let (watch, opened) = app
        .call(&ctx, Operation::Watch, transport, None, opening)
        .await?;
    let recheck = app.rights.watch(credentials.header());
    let (sender, frames) = mpsc::channel(QUEUE);
    let stream = Stream {
        app: app.clone(),
        caller: ctx.caller().clone(),
        ctx,
        credentials,
        transport,
        // They were checked when the request arrived, which may be a while ago.
        checked: None,
        recheck,
        last_frame: Instant::now(),
        owes_bookmark: false,
        watch,
        subscription,
        sender,
        steps: Arc::new(Semaphore::new(STEPS)),
        _slot: slot,
    };
    app.metrics.streams.inc();
    tokio::spawn(async move {
        let app = stream.app.clone();
        stream.run(opened).await;
        app.metrics.streams.dec();
    });
    Ok(ReceiverStream::new(frames).map(|queued: Queued| queued.event))
}

fn too_many() -> Error {
    Error::new(
        Reason::Overloaded,
        "there are as many streams of changes as WATCH_MAX_STREAMS allows, or half of them are this owner's; close one, \
         or use changes_since",
    )
    .with_retry_after(Duration::from_secs(5))
}

/// The next frames.
struct Read {
    events: Vec<WatchEvent>,
    has_more: bool,
    /// Counts the memory of the frames.
    memory: Arc<Lease>,
}

/// Why a stream ends.
enum Ended {
    /// With this last frame.
    With(WatchFrame),
    /// With this error.
    Failed(Error),
    /// The reader has left.
    Left,
}

struct Stream {
    app: Arc<App>,
    ctx: RequestContext,
    credentials: Credentials,
    transport: Transport,
    /// The caller with its rights at the time of the last check.
    caller: Caller,
    checked: Option<Instant>,
    /// Signals that the rights must be checked again at once.
    recheck: RecheckSignal,
    /// When the last frame was sent. Changes that the filter leaves out do not delay the next bookmark.
    last_frame: Instant,
    /// Whether a bookmark follows the next read.
    owes_bookmark: bool,
    watch: Watch,
    subscription: Subscription,
    sender: mpsc::Sender<Queued>,
    steps: Arc<Semaphore>,
    _slot: Slot,
}

impl Stream {
    async fn run(mut self, opened: WatchEvent) {
        // Reserves room in the queue for the last frame, in case the reader takes nothing more.
        let Ok(last) = self.sender.clone().reserve_owned().await else {
            return;
        };
        let ended = match self.follow(opened).await {
            Ok(never) => match never {},
            Err(ended) => ended,
        };
        match ended {
            Ended::With(frame) => {
                last.send(Queued {
                    event: Ok(WatchEvent {
                        frame,
                        cursor: None,
                    }),
                    _step: None,
                });
            }
            Ended::Failed(error) => {
                last.send(Queued {
                    event: Err(error),
                    _step: None,
                });
            }
            Ended::Left => {}
        }
    }

    /// Sends frames until the stream ends.
    async fn follow(&mut self, opened: WatchEvent) -> std::result::Result<Never, Ended> {
        self.send(opened, None).await?;
        loop {
            let turn = self
                .while_reader_keeps_up(self.steps.clone().acquire_owned())
                .await?;
            self.subscription.begin_read();
            let Read {
                events,
                has_more,
                memory,
            } = self.read().await?;
            let step = Arc::new(Step {
                _memory: memory,
                _turn: turn.map_err(|_| Ended::Left)?,
            });
            for event in events {
                self.send(event, Some(step.clone())).await?;
            }
            drop(step);
            if has_more {
                continue;
            }
            if std::mem::take(&mut self.owes_bookmark)
                && let Some(event) = self.watch.bookmark()
            {
                self.send(event, None).await?;
            }
            self.wait().await?;
        }
    }

    /// Reads the next frames. Retries for up to [`retry_for`] while the database is unavailable or overloaded.
    async fn read(&mut self) -> std::result::Result<Read, Ended> {
        let started = Instant::now();
        loop {
            self.check_rights().await?;
            let lease = Arc::new(Lease::new(
                &self.app.budget,
                &Payer::Owner(self.caller.owner.clone()),
            ));
            self.caller.memory = Memory::counted_by(lease.clone());
            let step = self
                .app
                .engine
                .changes
                .next_step(&self.caller, &mut self.watch);
            let step = self
                .app
                .call(&self.ctx, Operation::Watch, self.transport, None, step)
                .await;
            self.caller.memory = Memory::UNCOUNTED;
            let error = match step {
                Ok(context_engine::Step { events, has_more }) => {
                    // The lease also counted data that the read loaded and discarded.
                    let held = events.iter().map(|event| event.frame.held_bytes()).sum();
                    lease.shrink(lease.bytes().saturating_sub(held));
                    return Ok(Read {
                        events,
                        has_more,
                        memory: lease,
                    });
                }
                Err(error) => error,
            };
            match error.reason {
                Reason::Overloaded | Reason::StoreUnavailable | Reason::DeadlineExceeded
                    if started.elapsed() < retry_for(error.reason) =>
                {
                    // What the failed read has loaded is discarded.
                    drop(lease);
                    self.pause().await?;
                }
                _ => return Err(self.end_of(error).await),
            }
        }
    }

    /// Waits before a retry. Fails when the service stops or the client has disconnected, so that the stream keeps no
    /// slot for it.
    async fn pause(&self) -> std::result::Result<(), Ended> {
        tokio::select! {
            () = tokio::time::sleep(RETRY_PAUSE) => Ok(()),
            () = self.app.drain.cancelled() => Err(draining()),
            () = self.sender.closed() => Err(Ended::Left),
        }
    }

    /// How the stream ends after this error.
    async fn end_of(&self, error: Error) -> Ended {
        match error.reason {
            Reason::ResyncRequired => {
                let is_erased = self.app.engine.changes.is_erased(&self.caller, &self.watch);
                if is_erased.await.unwrap_or(false) {
                    return Ended::With(WatchFrame::End {
                        reason: "OWNER_ERASED",
                    });
                }
                Ended::With(WatchFrame::Resync {
                    reason: Reason::ResyncRequired.as_str(),
                    oldest_cursor: None,
                })
            }
            Reason::CursorCompacted => Ended::With(WatchFrame::Resync {
                reason: Reason::CursorCompacted.as_str(),
                oldest_cursor: error.oldest_cursor,
            }),
            Reason::Unauthenticated | Reason::ScopeMissing => revoked(),
            _ => Ended::Failed(error),
        }
    }

    /// Waits for the next change. Sends bookmarks meanwhile, and fails when the caller loses its rights.
    async fn wait(&mut self) -> std::result::Result<(), Ended> {
        loop {
            tokio::select! {
                () = self.subscription.changed() => return Ok(()),
                () = self.app.drain.cancelled() => return Err(draining()),
                () = self.sender.closed() => return Err(Ended::Left),
                () = self.recheck.received() => {
                    self.checked = None;
                    self.check_rights().await?;
                }
                () = tokio::time::sleep_until(self.last_frame + BOOKMARK_EVERY) => {
                    self.last_frame = Instant::now();
                    if self.subscription.is_of_thread() {
                        // Changes of other threads did not wake the subscription. The next read skips them, and the
                        // bookmark after it has a cursor beyond them.
                        self.owes_bookmark = true;
                        return Ok(());
                    }
                    if let Some(event) = self.watch.bookmark() {
                        self.send(event, None).await?;
                    }
                }
            }
        }
    }

    async fn send(
        &mut self,
        event: WatchEvent,
        step: Option<Arc<Step>>,
    ) -> std::result::Result<(), Ended> {
        let sender = self.sender.clone();
        let permit = self.while_reader_keeps_up(sender.reserve()).await?;
        let permit = permit.map_err(|_| Ended::Left)?;
        // Checked only now, because the rights may have ended during the wait for the reader.
        self.check_rights().await?;
        permit.send(Queued {
            event: Ok(event),
            _step: step,
        });
        self.last_frame = Instant::now();
        Ok(())
    }

    /// Waits for `room`, which becomes available when the reader takes frames. The stream ends if that takes longer
    /// than [`SLOW_CONSUMER`].
    async fn while_reader_keeps_up<T>(
        &self,
        room: impl Future<Output = T>,
    ) -> std::result::Result<T, Ended> {
        tokio::select! {
            room = tokio::time::timeout(SLOW_CONSUMER, room) => room.map_err(|_| {
                Ended::With(WatchFrame::Resync {
                    reason: "SLOW_CONSUMER",
                    oldest_cursor: None,
                })
            }),
            () = self.app.drain.cancelled() => Err(draining()),
            () = self.sender.closed() => Err(Ended::Left),
        }
    }

    /// Checks the caller's rights, unless they were checked within [`RIGHTS_FRESH`]. Retries for up to [`RETRY_FOR`] when
    /// the check is not possible.
    async fn check_rights(&mut self) -> std::result::Result<(), Ended> {
        let started = Instant::now();
        while self.checked.is_none_or(|at| at.elapsed() >= RIGHTS_FRESH) {
            let checked = self
                .credentials
                .caller(&self.app, &self.ctx, Operation::Watch)
                .await;
            match checked {
                Ok(caller) => {
                    self.caller = Caller {
                        memory: self.caller.memory.clone(),
                        ..caller
                    };
                    self.checked = Some(Instant::now());
                }
                Err(error) => match error.reason {
                    Reason::Unauthenticated | Reason::ScopeMissing => return Err(revoked()),
                    _ if started.elapsed() >= RETRY_FOR => return Err(Ended::Failed(error)),
                    _ => self.pause().await?,
                },
            }
        }
        Ok(())
    }
}

/// How long a read that failed for this reason is retried.
fn retry_for(reason: Reason) -> Duration {
    match reason {
        Reason::Overloaded => WAIT_FOR_MEMORY,
        _ => RETRY_FOR,
    }
}

/// The success of a function that runs until the stream ends. It cannot occur: each stream ends with an [`Ended`].
enum Never {}

fn revoked() -> Ended {
    Ended::With(WatchFrame::End {
        reason: "KEY_REVOKED",
    })
}

fn draining() -> Ended {
    Ended::With(WatchFrame::End { reason: "DRAINING" })
}
