//! The transaction of one write.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use context_model::{Source, Timestamp};
use context_store::rules::counts::EntryCounts;
use context_store::rules::thread::ThreadState;
use context_store::{
    ChangeKind, Changed, Embedding, OwnerId, Recorded, StoreError, WriteOptions, Written,
};
use diesel::prelude::*;
use diesel::sql_types::BigInt;

use crate::idempotency;
use crate::pg::connection::AsyncPgConnection;
use crate::pg::dsl::PipelineDsl as _;
use crate::pg::failure::Failure;
use crate::pg::sql::{self, Bind, Fragment};
use crate::read;
use crate::schema::owners;
use crate::threads;
use crate::vectors::ChunkChanges;

/// A commit must not reach the statement timeout. While it waits for a synchronous standby, PostgreSQL would stop
/// waiting and report success, and a failover would lose an acknowledged write.
const COMMIT: &str = "SET LOCAL statement_timeout = 0; COMMIT";

/// Maximum number of changes written with one statement.
const CHANGES_AT_ONCE: usize = 10_000;

/// Adds to the owner's revision and counts. Raw SQL, because [`Transaction::advance_and_log`] uses it in a CTE.
macro_rules! advance_owner {
    () => {
        "INSERT INTO context.owners AS o (owner_id, revision, entry_count, user_count, agent_count, \
         multimodal_count, image_count, thread_count) VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (owner_id) DO UPDATE SET \
         revision = o.revision + excluded.revision, entry_count = o.entry_count + excluded.entry_count, \
         user_count = o.user_count + excluded.user_count, agent_count = o.agent_count + excluded.agent_count, \
         multimodal_count = o.multimodal_count + excluded.multimodal_count, image_count = o.image_count + excluded.image_count, \
         thread_count = o.thread_count + excluded.thread_count"
    };
}

/// A write request. It may run more than once, each time in its own transaction.
pub(crate) trait Writing: Send + Sync + 'static {
    /// The result.
    type Outcome: Recorded + Send + Sync + 'static;

    /// Maximum number of new ids it needs.
    fn new_ids(&self) -> usize {
        0
    }

    /// Whether it is rolled back when it takes longer than a write may.
    fn has_time_limit(&self) -> bool {
        true
    }

    /// Does the work inside the open transaction.
    fn run(
        &self,
        transaction: &mut Transaction<'_>,
    ) -> impl Future<Output = Result<Self::Outcome, Failure>> + Send;
}

/// An open transaction of one owner: its locked rows, and the rows to write before the commit.
pub(crate) struct Transaction<'c> {
    pub conn: &'c mut AsyncPgConnection,
    pub owner: &'c OwnerId,
    /// The service clock's time of this transaction.
    pub now: Timestamp,
    /// Changes of the owner's entry counts.
    pub counts: EntryCounts,
    /// Change of the owner's thread count.
    thread_count: i64,
    /// The vectors of each item's text, in order.
    pub embeddings: &'c [Embedding],
    /// The pending changes of vectors. `None` in a database without vectors.
    pub vectors: Option<ChunkChanges<'c>>,
    key_id: Option<&'c str>,
    ids: &'c mut std::vec::IntoIter<i64>,
    /// Whether Citus distributes owners over servers.
    is_distributed: bool,
    threads: BTreeMap<String, LockedThread>,
    changes: Vec<Change>,
}

/// A locked thread's row, as it was read and as it will be written.
struct LockedThread {
    before: ThreadState,
    now: ThreadState,
}

/// A change that is not written yet.
struct Change {
    kind: ChangeKind,
    changed: Changed,
    version: i64,
}

impl Change {
    fn id(&self) -> Cow<'_, str> {
        match &self.changed {
            Changed::Context { id, .. } => id.to_string().into(),
            Changed::Artifact { id } => id.into(),
        }
    }

    fn thread_id(&self) -> Option<Cow<'_, str>> {
        match &self.changed {
            Changed::Context { thread_id, .. } => Some(thread_id.into()),
            Changed::Artifact { .. } => None,
        }
    }

    fn source(&self) -> Option<Cow<'_, str>> {
        match &self.changed {
            Changed::Context { source, .. } => source.map(|source| source.as_str().into()),
            Changed::Artifact { .. } => None,
        }
    }
}

#[derive(QueryableByName)]
struct Revision {
    #[diesel(sql_type = BigInt)]
    revision: i64,
}

impl<'c> Transaction<'c> {
    pub fn new(
        conn: &'c mut AsyncPgConnection,
        owner: &'c OwnerId,
        options: &'c WriteOptions,
        ids: &'c mut std::vec::IntoIter<i64>,
        has_vectors: bool,
        is_distributed: bool,
    ) -> Self {
        Self {
            conn,
            owner,
            now: options.now,
            counts: EntryCounts::default(),
            thread_count: 0,
            embeddings: &options.embeddings,
            vectors: has_vectors.then(ChunkChanges::default),
            key_id: options.key_id.as_deref(),
            ids,
            is_distributed,
            threads: BTreeMap::new(),
            changes: Vec::new(),
        }
    }

    /// Returns an id that no entry ever had.
    pub fn new_id(&mut self) -> Result<i64, Failure> {
        self.ids.next().ok_or_else(|| {
            Failure::Rejected(StoreError::Internal(
                "a write needs more ids than it reserved".into(),
            ))
        })
    }

    /// Locks these threads and creates the missing ones. A write that stores, updates or deletes entries first locks
    /// their threads, in the order of the threads' names, so that such writes cannot deadlock.
    pub async fn lock_or_create_threads(
        &mut self,
        mut thread_ids: Vec<String>,
    ) -> Result<(), Failure> {
        thread_ids.sort_unstable();
        thread_ids.dedup();
        let rows = threads::lock_or_create(self.conn, self.owner, &thread_ids).await?;
        self.add_locked(rows);
        Ok(())
    }

    /// Locks those of these threads that exist. The threads of a later call must sort after those of an earlier one.
    pub async fn lock_threads(&mut self, mut thread_ids: Vec<String>) -> Result<(), Failure> {
        thread_ids.sort_unstable();
        thread_ids.dedup();
        let rows = threads::lock(self.conn, self.owner, &thread_ids).await?;
        self.add_locked(rows);
        Ok(())
    }

    /// Locks the threads of these entries. An id without an entry is skipped.
    pub async fn lock_threads_of(&mut self, ids: Vec<i64>) -> Result<(), Failure> {
        let thread_ids = threads::of_entries(self.conn, self.owner, ids).await?;
        self.lock_threads(thread_ids).await
    }

    fn add_locked(&mut self, rows: Vec<ThreadState>) {
        self.threads.extend(rows.into_iter().map(|row| {
            (
                row.thread_id.clone(),
                LockedThread {
                    before: row.clone(),
                    now: row,
                },
            )
        }));
    }

    /// A locked thread's row, to read and to change.
    pub fn thread(&mut self, thread_id: &str) -> Option<&mut ThreadState> {
        self.threads
            .get_mut(thread_id)
            .map(|thread| &mut thread.now)
    }

    /// The names of the threads that are locked and not written yet.
    pub fn locked_threads(&self) -> Vec<String> {
        self.threads.keys().cloned().collect()
    }

    /// Finds the first and newest entries of threads that lost entries and still have some.
    pub async fn find_ends_of_threads(&mut self) -> Result<(), Failure> {
        let mut shrunk: Vec<&mut ThreadState> = self
            .threads
            .values_mut()
            .filter(|thread| {
                thread.now.entry_count > 0 && thread.now.entry_count < thread.before.entry_count
            })
            .map(|thread| &mut thread.now)
            .collect();
        if shrunk.is_empty() {
            return Ok(());
        }
        threads::find_ends(self.conn, self.owner, self.now, &mut shrunk).await
    }

    /// Writes the changed rows of threads and removes them from memory. Their locks stay.
    pub async fn write_threads(&mut self) -> Result<(), Failure> {
        let locked = std::mem::take(&mut self.threads);
        for LockedThread { before, now } in locked.values() {
            self.thread_count += i64::from(now.entry_count > 0) - i64::from(before.entry_count > 0);
        }
        let changed: Vec<&ThreadState> = locked
            .values()
            .filter(|thread| thread.now != thread.before || thread.now.entry_count == 0)
            .map(|thread| &thread.now)
            .collect();
        threads::write(self.conn, self.owner, &changed).await
    }

    /// Records one change of an entry. The commit counts and writes it.
    pub fn changed_entry(
        &mut self,
        kind: ChangeKind,
        id: i64,
        thread_id: &str,
        source: Source,
        version: i64,
    ) {
        self.changes.push(Change {
            kind,
            changed: Changed::Context {
                id,
                thread_id: thread_id.to_owned(),
                source: Some(source),
            },
            version,
        });
    }

    /// Records one change of an artifact.
    pub fn changed_artifact(&mut self, kind: ChangeKind, id: String, version: i64) {
        self.changes.push(Change {
            kind,
            changed: Changed::Artifact { id },
            version,
        });
    }

    /// Writes the remaining rows and commits. The owner's row is written late, because its lock makes the owner's other
    /// writes wait until the commit. `committing` becomes true before the server can receive the COMMIT.
    pub async fn commit<T: Recorded>(
        mut self,
        outcome: T,
        options: &WriteOptions,
        committing: &AtomicBool,
    ) -> Result<Written<T>, Failure> {
        if let Some(vectors) = &mut self.vectors {
            vectors.write(self.conn, self.owner).await?;
        }
        self.write_threads().await?;
        let mut changes = std::mem::take(&mut self.changes);
        if self.is_distributed && !changes.is_empty() {
            self.advance_then_log(&changes).await?;
            changes.clear();
        }
        let (first, later) = changes.split_at(changes.len().min(CHANGES_AT_ONCE));
        let statement = (!first.is_empty()).then(|| self.advance_and_log(first, changes.len()));
        if options.idempotency.is_none() && later.is_empty() {
            committing.store(true, Ordering::Relaxed);
            let revision = match statement {
                Some(statement) => sql::query_and_end::<Revision>(self.conn, statement, COMMIT)
                    .await?
                    .pop()
                    .map(|row| row.revision),
                None => self.read_revision_and_commit().await?,
            };
            let revision = revision.unwrap_or(0);
            return Ok(Written { outcome, revision });
        }
        let revision = match statement {
            Some(statement) => sql::query::<Revision>(self.conn, statement)
                .await?
                .pop()
                .map(|row| row.revision),
            None => read::revision(self.conn, self.owner).await?,
        };
        let revision = revision.unwrap_or(0);
        let written = Written { outcome, revision };
        self.log(later, revision).await?;
        if let Some(key) = &options.idempotency {
            idempotency::record(self.conn, self.owner, key, &written).await?;
        }
        committing.store(true, Ordering::Relaxed);
        self.read_revision_and_commit().await?;
        Ok(written)
    }

    async fn read_revision_and_commit(&mut self) -> Result<Option<i64>, Failure> {
        let revision = owners::table
            .find(self.owner.as_str())
            .select(owners::revision);
        Ok(revision.load_and_end(self.conn, COMMIT).await?.pop())
    }

    /// Advances the owner's revision and writes the changes, in two statements. In a single statement, Citus would send
    /// the rows that one CTE passes to the next to every server, so a write would need all servers.
    async fn advance_then_log(&mut self, changes: &[Change]) -> Result<(), Failure> {
        let count = Fragment::prepared(
            concat!(advance_owner!(), " RETURNING revision"),
            self.advance_owner_binds(changes.len()),
        );
        let rows: Vec<Revision> = sql::query(self.conn, count).await?;
        let revision = rows.first().map_or(0, |row| row.revision);
        self.log(changes, revision).await
    }

    /// The values to bind to the SQL of `advance_owner!`. `all` is the number of changes.
    fn advance_owner_binds<'v>(&self, all: usize) -> Vec<Bind<'v>>
    where
        'c: 'v,
    {
        let EntryCounts {
            entries,
            user,
            agent,
            multimodal,
            images,
        } = self.counts;
        let threads = self.thread_count;
        let all = i64::try_from(all).unwrap_or(i64::MAX);
        let counts = [all, entries, user, agent, multimodal, images, threads];
        std::iter::once(Bind::text(self.owner.as_str()))
            .chain(counts.map(Bind::Int))
            .collect()
    }

    /// Advances the owner's revision by `all`, the number of changes, and writes the `first` of them. Raw SQL for the
    /// CTEs and `unnest`: it is one statement, because from then on the owner's row is locked until the commit.
    fn advance_and_log<'v>(&self, first: &'v [Change], all: usize) -> Fragment<'v>
    where
        'c: 'v,
    {
        macro_rules! advance_and_log {
            ($changes:literal) => {
                concat!(
                    "WITH bumped AS (",
                    advance_owner!(),
                    " RETURNING owner_id, revision), logged AS (INSERT INTO context.changes (owner_id, revision, at, operation, entity, entity_id, thread_id, source, version, \
                     key_id, commit_end) SELECT b.owner_id, b.revision - ? + c.place, ?, c.operation, c.entity, c.id, c.thread_id, c.source, \
                     c.version, ?, c.place = ? FROM bumped AS b CROSS JOIN ",
                    $changes,
                    " AS c(operation, entity, id, thread_id, source, version, place)) SELECT revision FROM bumped"
                )
            };
        }
        let mut binds = self.advance_owner_binds(all);
        let all = i64::try_from(all).unwrap_or(i64::MAX);
        binds.extend([
            Bind::Int(all),
            Bind::Int(self.now.micros()),
            Bind::OptionalText(self.key_id.map(Into::into)),
            Bind::Int(all),
        ]);
        // Most commits have one change, which needs no `unnest`.
        if let [change] = first {
            binds.extend([
                Bind::text(change.kind.as_str()),
                Bind::text(change.changed.entity()),
                Bind::text(change.id()),
                Bind::OptionalText(change.thread_id()),
                Bind::OptionalText(change.source()),
                Bind::Int(change.version),
            ]);
            return Fragment::prepared(advance_and_log!("(VALUES (?, ?, ?, ?, ?, ?, 1))"), binds);
        }
        binds.extend(columns(first));
        Fragment::prepared(
            advance_and_log!("unnest(?, ?, ?, ?, ?, ?) WITH ORDINALITY"),
            binds,
        )
    }

    /// Writes these changes, the last ones of the commit. The last of them has this revision.
    async fn log(&mut self, changes: &[Change], revision: i64) -> Result<(), Failure> {
        let mut before = revision - i64::try_from(changes.len()).unwrap_or(i64::MAX);
        for chunk in changes.chunks(CHANGES_AT_ONCE) {
            // Raw SQL for `unnest`: one statement for any number of changes.
            let statement = Fragment::prepared(
                "INSERT INTO context.changes (owner_id, revision, at, operation, entity, entity_id, thread_id, source, version, key_id, \
                 commit_end) SELECT ?, ? + c.place, ?, c.operation, c.entity, c.id, c.thread_id, c.source, c.version, ?, \
                 ? + c.place = ? FROM unnest(?, ?, ?, ?, ?, ?) WITH ORDINALITY AS c(operation, entity, id, thread_id, source, version, place)",
                vec![
                    Bind::text(self.owner.as_str()),
                    Bind::Int(before),
                    Bind::Int(self.now.micros()),
                    Bind::OptionalText(self.key_id.map(Into::into)),
                    Bind::Int(before),
                    Bind::Int(revision),
                ]
                .into_iter()
                .chain(columns(chunk))
                .collect(),
            );
            sql::execute(self.conn, statement).await?;
            before += i64::try_from(chunk.len()).unwrap_or(i64::MAX);
        }
        Ok(())
    }
}

fn columns(changes: &[Change]) -> [Bind<'_>; 6] {
    let texts = |of: fn(&Change) -> Cow<'_, str>| Bind::Texts(changes.iter().map(of).collect());
    let optional = |of: fn(&Change) -> Option<Cow<'_, str>>| {
        Bind::OptionalTexts(changes.iter().map(of).collect())
    };
    [
        texts(|change| change.kind.as_str().into()),
        texts(|change| change.changed.entity().into()),
        texts(Change::id),
        optional(Change::thread_id),
        optional(Change::source),
        Bind::ints(changes.iter().map(|change| change.version)),
    ]
}
