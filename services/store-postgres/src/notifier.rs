//! Exchanges notifications of commits with the other services, over one dedicated connection of the whole service.
//!
//! A service notifies after its commits, never inside a write's transaction: a commit with a NOTIFY holds a lock of the
//! whole server, which reduced 3 275 transactions a second to 648. One message stands for all commits since the last
//! message and has no content. Its receiver reads the revisions of the owners that have a subscription.
//!
//! Where the server cannot deliver notifications (a pooler in transaction mode, a standby), the revisions are read
//! every 100 ms. Otherwise they are read every second, because a service may stop between its commit and its message.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use context_store::{ChangeNotifier, OwnerId, Touched};
use diesel::prelude::*;
use diesel_async::{RunQueryDsl, SimpleAsyncConnection as _};
use tokio::sync::Notify;
use tokio::time::MissedTickBehavior;

use crate::pg::connection::{AsyncPgConnection, connect_to_listen};
use crate::pg::failure::{self, Kind};
use crate::pg::pool::Pool;
use crate::pg::target::Target;
use crate::pg::tls::Tls;
use crate::schema::owners;

/// Pause between reads of the revisions if the server delivers notifications.
const POLL_BESIDE_NOTIFICATIONS: Duration = Duration::from_secs(1);
/// Pause between reads of the revisions if it does not.
const POLL_ALONE: Duration = Duration::from_millis(100);
/// Sends a notification in one transaction. A crash of the server loses it even if the commit waits for the disk, so
/// the commit does not wait. The setting is local, because a pooler may give the session to a write.
const MESSAGE: &str = "SET LOCAL synchronous_commit = off; NOTIFY context_changes";
/// Minimum pause between two messages.
const MESSAGE_PAUSE: Duration = Duration::from_millis(10);
/// How long a new connection waits for a message that it sent to itself. If none arrives, the server delivers no
/// notifications.
const TRIAL_TIMEOUT: Duration = Duration::from_secs(1);
/// Timeout for a statement on the dedicated connection.
const STATEMENT_TIMEOUT: Duration = Duration::from_secs(5);
/// Pause before the dedicated connection is opened again.
const RECONNECT_PAUSE: Duration = Duration::from_secs(1);

/// Announces commits of this service and of others.
#[derive(Debug, Default)]
pub(crate) struct Commits {
    /// Wakes the subscriptions that wait for an owner's changes.
    pub notifier: Arc<ChangeNotifier>,
    /// Set by a commit of this service, until the message to the other services begins to be sent.
    message_due: Notify,
}

impl Commits {
    /// Announces a commit of this service.
    pub fn announce(&self, owner: &OwnerId, revision: i64) {
        // Another service may have committed in between, so the touched threads are not known.
        self.notifier.announce(owner, revision, &Touched::Anything);
        self.message_due.notify_one();
    }
}

/// Where the dedicated connection connects to.
#[derive(Clone)]
pub(crate) struct Server {
    pub target: Target,
    pub tls: Tls,
    pub timeout: Duration,
}

/// Notifies other services of this service's commits, and announces theirs here, as long as it is polled.
pub(crate) async fn exchange(commits: &Commits, server: &Server, pool: &Pool) {
    loop {
        // No connection is needed before the first subscription or commit.
        tokio::select! {
            () = commits.notifier.some_subscription() => {}
            () = commits.message_due.notified() => commits.message_due.notify_one(),
        }
        let lost = match Session::open(server).await {
            Ok(mut session) => session.run(commits).await,
            Err(error) => error,
        };
        tracing::debug!(error = %lost, "The connection for notifications failed; it is opened again");
        // Subscriptions do not wait for the new connection: their owners' revisions are read on one of the pool.
        if !commits.notifier.owners().is_empty()
            && let Ok(mut lease) = pool.get(None).await
            && read_revisions(lease.conn(), &commits.notifier)
                .await
                .is_ok()
        {
            lease.give_back();
        }
        tokio::time::sleep(RECONNECT_PAUSE).await;
    }
}

struct Session {
    conn: AsyncPgConnection,
    /// Set when a notification has arrived.
    notified: Arc<Notify>,
    /// Whether the server delivers notifications.
    listens: bool,
}

impl Session {
    async fn open(server: &Server) -> Result<Self, context_store::BoxError> {
        let notified = Arc::new(Notify::new());
        let conn = connect_to_listen(
            &server.target,
            &server.tls,
            server.timeout,
            Arc::clone(&notified),
        )
        .await?;
        let mut session = Self {
            conn,
            notified,
            listens: false,
        };
        session.listens = server.target.caches_statements && session.listen().await;
        if !session.listens {
            tracing::info!(
                "The server delivers no notifications here; the service checks for changes of other services every {} ms",
                POLL_ALONE.as_millis()
            );
        }
        Ok(session)
    }

    /// Whether the server delivers this connection's own message to it.
    async fn listen(&mut self) -> bool {
        let trial = async {
            self.conn.batch_execute("LISTEN context_changes").await?;
            self.conn.batch_execute(MESSAGE).await?;
            self.notified.notified().await;
            Ok::<_, diesel::result::Error>(())
        };
        tokio::time::timeout(TRIAL_TIMEOUT, trial)
            .await
            .is_ok_and(|arrived| arrived.is_ok())
    }

    /// Runs until the connection fails, and returns why.
    async fn run(&mut self, commits: &Commits) -> context_store::BoxError {
        let Self {
            conn,
            notified,
            listens,
        } = self;
        let mut polls = tokio::time::interval(if *listens {
            POLL_BESIDE_NOTIFICATIONS
        } else {
            POLL_ALONE
        });
        polls.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let next = async {
                commits.notifier.some_subscription().await;
                tokio::select! {
                    () = notified.notified() => {}
                    _ = polls.tick() => {}
                }
            };
            let done = tokio::select! {
                () = commits.message_due.notified() => notify_others(conn).await,
                () = next => read_revisions(conn, &commits.notifier).await,
            };
            if let Err(error) = done {
                return error;
            }
        }
    }
}

/// Notifies the other services that there were commits.
async fn notify_others(conn: &mut AsyncPgConnection) -> Result<(), context_store::BoxError> {
    match tokio::time::timeout(STATEMENT_TIMEOUT, conn.batch_execute(MESSAGE)).await? {
        // A standby sends no notifications, and has no commits to notify of.
        Err(error) if failure::kind(&error) == Kind::ReadOnly => {}
        sent => sent?,
    }
    tokio::time::sleep(MESSAGE_PAUSE).await;
    Ok(())
}

/// Announces the revisions of all owners with a subscription.
async fn read_revisions(
    conn: &mut AsyncPgConnection,
    notifier: &ChangeNotifier,
) -> Result<(), context_store::BoxError> {
    let subscribed = notifier.owners();
    let names: Vec<&str> = subscribed.iter().map(OwnerId::as_str).collect();
    let query = owners::table
        .filter(owners::owner_id.eq_any(names))
        .select((owners::owner_id, owners::revision));
    let found: Vec<(String, i64)> =
        tokio::time::timeout(STATEMENT_TIMEOUT, query.load(conn)).await??;
    let found: HashMap<String, i64> = found.into_iter().collect();
    for owner in &subscribed {
        // An owner that has never written, or was erased, has no row.
        let revision = found.get(owner.as_str()).copied().unwrap_or(0);
        notifier.announce(owner, revision, &Touched::Anything);
    }
    Ok(())
}
