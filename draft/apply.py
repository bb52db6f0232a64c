import os
os.chdir('/work/wt/feed')
def sub(path, *pairs):
    s=open(path).read()
    for a,b in pairs:
        assert a in s, (path,a)
        s=s.replace(a,b,1)
    open(path,'w').write(s)
for d,v in (('sqlite','2026-11-23-000010_audited_changes'),('postgres','2026-11-23-000011_audited_changes')):
    os.makedirs(f'migrations/{d}/{v}',exist_ok=True)
open('migrations/sqlite/2026-11-23-000010_audited_changes/up.sql','w').write('''-- Changes that are no longer in the feed. The audit log keeps them.

PRAGMA user_version = 10;

CREATE TABLE audited_changes (
    owner     INTEGER NOT NULL,
    revision  INTEGER NOT NULL,
    at        INTEGER NOT NULL,
    operation TEXT    NOT NULL,
    entity    TEXT    NOT NULL,
    entity_id TEXT    NOT NULL,
    thread_id TEXT,
    version   INTEGER,
    key_id    TEXT,
    PRIMARY KEY (owner, revision)
) STRICT, WITHOUT ROWID;
''')
open('migrations/postgres/2026-11-23-000011_audited_changes/up.sql','w').write('''-- Changes that are no longer in the feed. The audit log keeps them.
CREATE TABLE context.audited_changes (
    owner_id  text   NOT NULL,
    revision  bigint NOT NULL,
    at        bigint NOT NULL,
    operation text   NOT NULL,
    entity    text   NOT NULL,
    entity_id text   NOT NULL,
    thread_id text,
    version   bigint,
    key_id    text,
    PRIMARY KEY (owner_id, revision)
);
''')
q='services/store-sqlite/src/'; p='services/store-postgres/src/'
open(q+'compaction.rs','w').write(open('/work/wt/feed-compaction-draft/sqlite.rs').read())
s=open('/work/wt/feed-compaction-draft/postgres.rs').read()
s=s.replace('''WHERE c.owner_id = ? AND c.revision < ? AND (c.at < ? OR c.revision <= ?) \\
''','''WHERE c.owner_id = ? AND c.revision <= \\
                     (SELECT max(f.revision) FROM context.changes AS f WHERE f.owner_id = c.owner_id AND f.revision < ? \\
                     AND (f.at < ? OR f.revision <= ?)) \\
''')
open(p+'compaction.rs','w').write(s)
sub(q+'open.rs',("SCHEMA_VERSION: i64 = 9;","SCHEMA_VERSION: i64 = 10;"))
sub(q+'lib.rs',("mod columns;\n","mod columns;\nmod compaction;\n"))
sub(p+'lib.rs',("mod columns;\n","mod columns;\nmod compaction;\n"))
i='    include_str!("../../../migrations/postgres/2026-11-23-000010_feed/up.sql"),\n'
sub(p+'open.rs',(i,i+i.replace("000010_feed","000011_audited_changes")))
t='services/store-postgres/tests/it/arrange.rs'
i='    include_str!("../../../../migrations/postgres/2026-11-23-000010_feed/up.sql"),\n'
sub(t,(i,i+i.replace("000010_feed","000011_audited_changes")),("[&str; 12]","[&str; 13]"))
st='services/store/src/'
sub(st+'changes.rs',("""    /// Tells when an owner has new changes.""","""    /// Removes a batch of old changes of one owner from the feed. The audit log keeps them. The newest change of an
    /// owner always stays. Returns 0 when no owner has more than it should keep.
    ///
    /// # Errors
    /// [`StoreError`](crate::StoreError). Nothing is removed then.
    async fn compact(&self, retention: Retention) -> Result<u64>;

    /// Tells when an owner has new changes."""),
 ("""/// A database that keeps the changes""","""/// Which changes stay in the feed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// Changes made before this time are removed.
    pub before: Timestamp,
    /// Maximum number of changes of each owner, at least 1.
    pub max_rows: i64,
}

/// A database that keeps the changes"""))
sub(st+'lib.rs',("pub use changes::{Change, ChangeKind, ChangeRow, ChangeStore, Changed, Feed};","pub use changes::{\n    Change, ChangeKind, ChangeRow, ChangeStore, Changed, Feed, Retention,\n};"))
for f in (q+'compaction.rs',p+'compaction.rs'):
    s=open(f).read()
    s=s.replace("use context_store::{Compacted, Retention};","use context_store::Retention;").replace("Result<Compacted, Failure>","Result<u64, Failure>").replace("Ok(Compacted { moved: 0 })","Ok(0)").replace("""Ok(Compacted {
        moved: moved as u64,
    })""","Ok(moved as u64)")
    open(f,'w').write(s)
sub(q+'feed.rs',("""    fn news(&self)""","""    async fn compact(&self, retention: Retention) -> Result<u64> {
        self.write_without_owner(move |conn, _| compaction::compact(conn, &retention))
            .await
    }

    fn news(&self)"""),("Feed, News, OwnerId, Read, Result};","Feed, News, OwnerId, Read, Result, Retention};"),("use crate::failure::store_error;","use crate::compaction;\nuse crate::failure::store_error;"))
sub(p+'feed.rs',("""    fn news(&self)""","""    async fn compact(&self, retention: Retention) -> Result<u64> {
        self.inner.soundness.check()?;
        let mut lease = self.inner.pool.get(None).await?;
        let moved = compaction::compact(lease.conn(), &retention).await?;
        lease.give_back();
        Ok(moved)
    }

    fn news(&self)"""),("Feed, News, OwnerId, Read, Result};","Feed, News, OwnerId, Read, Result, Retention};"),("use crate::pg::connection::AsyncPgConnection;","use crate::compaction;\nuse crate::pg::connection::AsyncPgConnection;"))
sub(q+'keys/audit.rs',("""    select.push(" UNION ALL SELECT at, key_id, operation, NULL, NULL, NULL, reason""","""    select.push(" UNION ALL SELECT at, key_id, operation, entity, entity_id, revision, 'OK', 1 FROM audited_changes WHERE owner = ");
    select
        .bind(Bind::Int(owner))
        .push(" AND at >= ")
        .bind(Bind::Int(from.micros()));
    select.push(" UNION ALL SELECT at, key_id, operation, NULL, NULL, NULL, reason"""))
old="""FROM context.changes WHERE owner_id = ? AND at >= ? UNION ALL \\
                      SELECT at, key_id, operation, NULL"""
sub(p+'keys/audit.rs',(old,"""FROM context.changes WHERE owner_id = ? AND at >= ? UNION ALL \\
                      SELECT at, key_id, operation, entity, entity_id, revision, 'OK', 1 FROM context.audited_changes \\
                      WHERE owner_id = ? AND at >= ? UNION ALL \\
                      SELECT at, key_id, operation, NULL"""),("(0..3)","(0..4)"))
sub('services/store/src/transfer/table.rs',("""    Table {
        name: "denials",""","""    Table {
        name: "audited_changes",
        key: 1,
        columns: &[
            column("revision", Kind::Int),
            column("at", Kind::Int),
            column("operation", Kind::Text),
            column("entity", Kind::Text),
            column("entity_id", Kind::Text),
            column("thread_id", Kind::OptionalText),
            column("version", Kind::OptionalInt),
            column("key_id", Kind::OptionalText),
        ],
    },
    Table {
        name: "denials","""))
b='services/engine/src/'
open(b+'background/compaction.rs','w').write('''//! Removes old changes from the feed.

use std::time::Duration;

use context_model::Timestamp;
use context_store::Retention;

use super::Background;
use crate::clock::Clock;

/// Pause between batches, so that this uses a small part of the database's capacity.
const PAUSE: Duration = Duration::from_millis(20);
/// Pause when nothing is left to remove, and after a failure.
const INTERVAL: Duration = Duration::from_secs(60);
const MICROS_OF_A_DAY: i64 = 24 * 3600 * 1_000_000;

/// How long changes stay in the feed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChangesConfig {
    /// Changes that are older than this many days are removed.
    pub retention_days: i64,
    /// Maximum number of changes of each owner.
    pub max_rows: i64,
}

impl Default for ChangesConfig {
    fn default() -> Self {
        Self {
            retention_days: 30,
            max_rows: 10_000_000,
        }
    }
}

impl Background {
    /// Removes old changes from the feed, for as long as the future is polled. The audit log keeps them.
    pub async fn compact(&self, config: ChangesConfig, clock: &dyn Clock) {
        let mut removed = 0;
        loop {
            let age = config.retention_days.saturating_mul(MICROS_OF_A_DAY);
            let retention = Retention {
                before: Timestamp(clock.now().micros().saturating_sub(age)),
                max_rows: config.max_rows,
            };
            let pause = match self.store.changes().compact(retention).await {
                Ok(0) => INTERVAL,
                Ok(moved) => {
                    removed += moved;
                    PAUSE
                }
                Err(error) => {
                    tracing::debug!(error = %error, "Could not remove old changes from the feed; will retry");
                    INTERVAL
                }
            };
            if pause == INTERVAL && removed > 0 {
                tracing::info!(changes = removed, "Removed old changes from the feed");
                removed = 0;
            }
            tokio::time::sleep(pause).await;
        }
    }
}
''')
sub(b+'background/mod.rs',("mod backfill;\n","mod backfill;\nmod compaction;\n"),("pub use reembed::","pub use compaction::ChangesConfig;\npub use reembed::"))
sub(b+'lib.rs',("pub use background::{Background, ","pub use background::{Background, ChangesConfig, "))
c='services/server/src/'
sub(c+'config/storage.rs',) if False else None
sub(c+'config/limits.rs',("""    /// Maximum size of each owner's stored request outcomes""","""    /// Days that a change stays in the feed of changes, 1 to 36 500. The audit log keeps it.
    #[arg(long, env = "CHANGES_RETENTION_DAYS", value_name = "DAYS", default_value = "30", value_parser = number(1, 36_500), global = true)]
    pub changes_retention_days: u64,

    /// Maximum number of changes of each owner in the feed of changes, 1000 to 1 000 000 000 000. The audit log keeps the
    /// others.
    #[arg(long, env = "CHANGES_MAX_ROWS", value_name = "N", default_value = "10000000", value_parser = number(1000, 1_000_000_000_000), global = true)]
    pub changes_max_rows: u64,

    /// Maximum size of each owner's stored request outcomes"""),
 ("""    /// The limits of a request.
    #[must_use]""","""    /// How long changes stay in the feed.
    #[must_use]
    pub fn changes(&self) -> ChangesConfig {
        let number = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
        ChangesConfig {
            retention_days: number(self.changes_retention_days),
            max_rows: number(self.changes_max_rows),
        }
    }

    /// The limits of a request.
    #[must_use]"""),
 ("use context_engine::Quotas;","use context_engine::{ChangesConfig, Quotas};"))
sub(c+'serve.rs',("""    let background_engine = Arc::clone(&engine);
""","""    let background_engine = Arc::clone(&engine);
    let changes = config.limits.changes();
"""),("tokio::join!(background.backfill(), background.seal())","""tokio::join!(
                background.backfill(),
                background.seal(),
                background.compact(changes, &SystemClock)
            )"""))
sub('docker-compose.yml',("  CONTEXT_IDEMPOTENCY_MB:\n","  CHANGES_RETENTION_DAYS:\n  CHANGES_MAX_ROWS:\n  CONTEXT_IDEMPOTENCY_MB:\n"))
f='tests/store-conformance/src/feed.rs'
sub(f,("Read, Store, Subscription,","Read, Retention, Store, Subscription,"))
open(f,'a').write('''
/// Removes everything that is not kept.
async fn compact(store: &dyn Store, retention: Retention) -> u64 {
    let mut removed = 0;
    loop {
        match store.changes().compact(retention).await.expect("compacted") {
            0 => return removed,
            moved => removed += moved,
        }
    }
}

/// By age and by number. The audit log is the same before and after.
async fn old_changes_leave_the_feed_and_stay_in_the_audit_log(store: &dyn Store) {
    let owner = OwnerId::new("compacted");
    for seconds in 0..20 {
        entry(&seconds.to_string())
            .store_for(store, &owner, seconds)
            .await;
    }
    let audit = async || {
        let lines = store.keys().audit_log(&owner, at(0), 100).await;
        lines.expect("the audit log")
    };
    let before = audit().await;
    assert_eq!(before.len(), 20);
    let many = Retention {
        before: at(5),
        max_rows: 1_000_000,
    };
    assert_eq!(compact(store, many).await, 5);
    let found = feed(store, &owner, 1, 100).await;
    assert_eq!((found.oldest, found.revision), (6, 20));
    assert_eq!(found.changes.len(), 15);
    assert_eq!(audit().await, before);
    let few = Retention {
        before: at(0),
        max_rows: 4,
    };
    assert_eq!(compact(store, few).await, 11);
    assert_eq!(feed(store, &owner, 1, 100).await.oldest, 17);
    assert_eq!(compact(store, few).await, 0);
    // The newest change stays, so that a cursor at the end stays valid.
    let none = Retention {
        before: at(1000),
        max_rows: 1,
    };
    assert_eq!(compact(store, none).await, 3);
    let found = feed(store, &owner, 1, 100).await;
    assert_eq!((found.oldest, found.changes.len()), (20, 1));
    assert_eq!(audit().await, before);
    entry("more").store_for(store, &owner, 30).await;
    assert_eq!(audit().await.len(), 21);
}
behaviour!(old_changes_leave_the_feed_and_stay_in_the_audit_log(store));
''')
