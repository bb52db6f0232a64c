#![expect(clippy::disallowed_methods, reason = "the deadlines of reads")]

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use backon::{BackoffBuilder as _, ExponentialBackoff, ExponentialBuilder};
use context_model::{
    ConnectionMetrics, EntryUpdate, Error, Filter, MetadataPath, NewEntry, TagPrefix,
    ThreadNamePart, ThreadSet, Timestamp,
};
use context_store::{
    ArtifactStore, ChangeStore, ContextWindow, DayCounts, DeleteCriteria, DocumentKind, FtsPage,
    FtsSearch, Idempotency, KeyStore, MetadataSample, OwnerId, Page, Read, Result, RowSelection,
    SealStore, SearchPage, Soundness, Store, StoreError, StoreStatistics, StoredBatch,
    SummaryStore, TagsPage, ThreadsPage, Usage, VectorStore, WriteOptions, Written, call,
};
use context_text::Query;
use diesel_async::SimpleAsyncConnection as _;
use tokio::sync::{Semaphore, watch};

use crate::artifacts::documents;
use crate::config::Config;
use crate::delete_entries::DeleteEntries;
use crate::fts::{self, Language};
use crate::idempotency::{CountBytes, IsRecorded};
use crate::notifier::{self, Commits, Server};
use crate::open::{self, OpenError, SCHEMA_VERSION};
use crate::owners::Ids;
use crate::pg::connection::AsyncPgConnection;
use crate::pg::failure::Failure;
use crate::pg::pool::{Lease, Pool};
use crate::read::{Reading, RevisionAlone, is_standby};
use crate::read_entries::{Frequencies, Get, Ranked, Search};
use crate::statistics::{CountUsage, Statistics, StatisticsWithin};
use crate::store_entry::StoreEntries;
use crate::transaction::{Transaction, Writing};
use crate::update_entry::UpdateEntries;
use crate::vectors::VectorState;
use crate::{filter, idempotency, overview, tags, threads};

/// Maximum bytes of text that are analyzed on the async thread. Longer texts go to a blocking thread.
const SMALL_TEXT_BYTES: usize = 32 * 1024;
/// Maximum number of reads that wait on a standby for a revision at the same time.
const MAX_WAITING_READS: usize = 1000;
/// First pause between checks of a read that waits for a revision. Each further pause is twice as long.
const MIN_POLL: Duration = Duration::from_millis(2);
/// Longest pause between two of these checks.
const MAX_POLL: Duration = Duration::from_millis(100);
/// Pauses after a conflict or a lost connection: 5 ms, 20 ms, 80 ms, …, at most 1 s. Jitter makes a pause up to twice
/// as long, so that colliding requests do not collide again.
const PAUSES: ExponentialBuilder = ExponentialBuilder::new()
    .with_min_delay(Duration::from_millis(5))
    .with_factor(4.0)
    .with_max_delay(Duration::from_secs(1))
    .with_jitter();
/// How long closing waits for running writes.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(30);
/// Timeout of a write as a multiple of the statement timeout, because a write has several statements.
const STATEMENTS_OF_A_WRITE: u32 = 4;

/// A PostgreSQL database, shared by any number of services.
pub struct PostgresStore {
    pub(crate) inner: Arc<Inner>,
    /// The task that exchanges notifications of commits with other services.
    exchanging: tokio::task::AbortHandle,
}

pub(crate) struct Inner {
    pub pool: Pool,
    pub commits: Commits,
    ids: Ids,
    pub vectors: VectorState,
    /// Records damage reported by the server. Writes are rejected from then on.
    pub soundness: Soundness,
    pub language: Arc<Language>,
    context_window: ContextWindow,
    /// Whether Citus distributes owners over servers.
    is_distributed: bool,
    pub indexed: Arc<[MetadataPath]>,
    pub statement_timeout: Duration,
    retries: u32,
    /// Limits the reads that wait for a revision.
    waiting: Semaphore,
    /// Number of writes since the start that succeeded. A repeated one, with its idempotency key, counts again.
    committed: AtomicI64,
    /// Number of running writes.
    running: watch::Sender<usize>,
    /// Host, port and database.
    shown: String,
}

impl std::fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PostgresStore")
            .field("database", &self.inner.shown)
            .finish_non_exhaustive()
    }
}

impl PostgresStore {
    /// Opens the database: creates or updates its schema and indexes, while other services may do the same.
    ///
    /// # Errors
    /// [`OpenError`], whose message is a sentence for the operator.
    pub async fn open(config: Config) -> std::result::Result<Self, OpenError> {
        let opened = open::open(&config).await?;
        let shown = config.target.shown();
        let schema = |source: context_store::BoxError| OpenError::Schema {
            shown: shown.clone(),
            source,
        };
        let pool = Pool::new(&config, &opened).map_err(schema)?;
        let server = Server {
            target: config.target.clone(),
            tls: opened.tls.clone(),
            timeout: config.connect_timeout,
        };
        let inner = Inner {
            pool,
            commits: Commits::default(),
            ids: Ids::default(),
            vectors: VectorState::new(opened.has_vectors, config.ef_search),
            soundness: Soundness::default(),
            language: Arc::new(opened.language),
            context_window: config.context_window,
            is_distributed: opened.is_distributed,
            indexed: opened.indexed.into(),
            statement_timeout: config.statement_timeout,
            retries: config.retries,
            waiting: Semaphore::new(MAX_WAITING_READS),
            committed: AtomicI64::new(0),
            running: watch::Sender::new(0),
            shown: shown.clone(),
        };
        let mut lease = inner
            .pool
            .get(None)
            .await
            .map_err(|failure| schema(StoreError::from(failure).into()))?;
        open::refuse_incomplete_migration(lease.conn(), &shown).await?;
        if config.builds_indexes {
            fts::rebuild(lease.conn(), &inner.language, inner.context_window)
                .await
                .map_err(|error| schema(error.into()))?;
            documents::complete(lease.conn(), &inner.language)
                .await
                .map_err(|failure| schema(StoreError::from(failure).into()))?;
        }
        lease.give_back();
        let inner = Arc::new(inner);
        let of_task = Arc::clone(&inner);
        let exchanging = tokio::spawn(async move {
            notifier::exchange(&of_task.commits, &server, &of_task.pool).await;
        });
        Ok(Self {
            inner,
            exchanging: exchanging.abort_handle(),
        })
    }

    pub(crate) async fn write<W: Writing>(
        &self,
        owner: &OwnerId,
        options: WriteOptions,
        work: W,
    ) -> Result<Written<W::Outcome>> {
        self.inner.soundness.check()?;
        // A caller that stops waiting for a connection has written nothing. Once the write has a connection, it runs to
        // its end, whether or not its caller still waits.
        let lease = self.inner.pool.get(Some(owner)).await?;
        let (inner, owner) = (Arc::clone(&self.inner), owner.clone());
        let running = Running::new(&inner);
        let writing = tokio::spawn(async move {
            let written = inner.write(lease, &owner, &options, &work).await;
            if let Ok(written) = &written {
                inner.commits.announce(&owner, written.revision);
            }
            drop(running);
            written
        });
        match writing.await {
            Ok(written) => written.map_err(|failure| match failure.is_too_slow() {
                true => StoreError::WriteTooSlow,
                false => failure.into(),
            }),
            Err(error) => Err(StoreError::Internal(error.into())),
        }
    }

    /// Reads at the revision that `read` requires, or a later one. On a standby, it may wait for that revision.
    pub(crate) async fn read<R: Reading>(
        &self,
        owner: &OwnerId,
        read: Read,
        work: R,
    ) -> Result<R::Outcome> {
        let described = |failure: Failure| match (failure.is_too_slow(), work.filter()) {
            (true, Some((filter, indexed))) => StoreError::TooSlow { unindexed: None }
                .with_filter(filter, |condition| filter::is_served(condition, indexed)),
            (true, None) => StoreError::TooSlow { unindexed: None },
            (false, _) => failure.into(),
        };
        if let Seen::Reached(outcome) = self
            .inner
            .read(owner, read.min_revision, &work)
            .await
            .map_err(described)?
        {
            return Ok(outcome);
        }
        // Boxed, because only a standby gets here, and the futures would double the size of every read's.
        let until = Instant::now() + read.wait;
        Box::pin(self.inner.wait_for(owner, read, until)).await?;
        let mut pauses = polls();
        loop {
            let again = Box::pin(self.inner.read(owner, read.min_revision, &work));
            match again.await.map_err(described)? {
                Seen::Reached(outcome) => return Ok(outcome),
                Seen::Behind(revision) if Instant::now() >= until => {
                    return Err(behind(read, revision));
                }
                // Connections can lead to several standbys, and this one is behind the one that has the revision.
                Seen::Behind(_) => tokio::time::sleep(pauses.next().unwrap_or(MAX_POLL)).await,
            }
        }
    }

    /// Runs work whose duration grows with `bytes` of text. Above [`SMALL_TEXT_BYTES`] it runs on a blocking thread.
    async fn prepare<T: Send + 'static>(
        bytes: usize,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T> {
        if bytes <= SMALL_TEXT_BYTES {
            return Ok(work());
        }
        tokio::task::spawn_blocking(work)
            .await
            .map_err(|error| StoreError::Internal(error.into()))
    }

    /// The timeout of one statement.
    pub(crate) fn statement_timeout(&self) -> Duration {
        self.inner.statement_timeout
    }

    fn connections(&self) -> ConnectionMetrics {
        let (size, waiting) = self.inner.pool.state();
        let number = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
        let commits = self.inner.committed.load(Ordering::Relaxed);
        ConnectionMetrics {
            backend: "postgresql".to_owned(),
            reader_connections: number(size),
            writer_connections: number(size),
            queued_writes: number(waiting),
            write_queue_limit: number(self.inner.pool.queue()),
            commits,
            writes: commits,
        }
    }
}

/// The result of a read that requires a revision.
enum Seen<T> {
    /// The state has the revision.
    Reached(T),
    /// The standby has only reached this revision.
    Behind(i64),
}

/// The pauses between the reads that wait for a standby.
fn polls() -> ExponentialBackoff {
    ExponentialBuilder::new()
        .with_min_delay(MIN_POLL)
        .with_max_delay(MAX_POLL)
        .without_max_times()
        .build()
}

/// The error when a standby did not reach the revision in time.
fn behind(read: Read, revision: i64) -> StoreError {
    let wanted = read.min_revision.unwrap_or_default();
    StoreError::Rejected(Error::invalid(
        "min_revision",
        format!(
            "`min_revision` is {wanted}, but this standby has only reached revision {revision} after {:?}",
            read.wait
        ),
    ))
}

impl Inner {
    async fn read<R: Reading>(
        &self,
        owner: &OwnerId,
        min_revision: Option<i64>,
        work: &R,
    ) -> std::result::Result<Seen<R::Outcome>, Failure> {
        let mut pauses = self.pauses();
        loop {
            let mut lease = self.pool.get(Some(owner)).await?;
            let limit = self.statement_timeout + Duration::from_secs(1);
            let limit = call::deadline().map_or(limit, |deadline| {
                limit.min(deadline.saturating_duration_since(Instant::now()))
            });
            let reading = Self::read_once(lease.conn(), owner, min_revision, work);
            let read = tokio::time::timeout(limit, reading)
                .await
                .unwrap_or(Err(Failure::TooSlow));
            self.pool.observe(&read);
            let failure = match read {
                Ok(read) => {
                    lease.give_back();
                    return Ok(read);
                }
                Err(failure) => failure,
            };
            failure.note_damage(&self.soundness);
            match &failure {
                // Its statement may still be running.
                Failure::TooSlow => drop(lease),
                failure if failure.leaves_connection_sound() => lease.clean_up().await,
                // Its statements or types may be out of date.
                _ => lease.discard(),
            }
            match pauses.next() {
                Some(pause) if failure.is_retryable() => tokio::time::sleep(pause).await,
                _ => return Err(failure),
            }
        }
    }

    /// The pauses before the retries.
    fn pauses(&self) -> ExponentialBackoff {
        PAUSES.with_max_times(self.retries as usize).build()
    }

    /// Reads once. A state before the required revision is [`Seen::Behind`] on a standby. On a primary, which has every
    /// revision that was ever returned, it is an error.
    async fn read_once<R: Reading>(
        conn: &mut AsyncPgConnection,
        owner: &OwnerId,
        min_revision: Option<i64>,
        work: &R,
    ) -> std::result::Result<Seen<R::Outcome>, Failure> {
        let (revision, outcome) = work
            .read(conn, owner)
            .await?
            .unwrap_or_else(|| (0, work.empty()));
        match min_revision {
            Some(wanted) if revision < wanted && is_standby(conn).await? => {
                Ok(Seen::Behind(revision))
            }
            Some(wanted) if revision < wanted => Err(Failure::Rejected(
                StoreError::beyond_revision(wanted, revision),
            )),
            _ => Ok(Seen::Reached(outcome)),
        }
    }

    /// Waits until a standby has the revision. Meanwhile the call gives up its turn, so that other calls can run.
    async fn wait_for(&self, owner: &OwnerId, read: Read, until: Instant) -> Result<()> {
        let _waiting = self
            .waiting
            .try_acquire()
            .map_err(|_| StoreError::Overloaded)?;
        let waiting = async {
            let mut pauses = polls();
            loop {
                let pause = pauses.next().unwrap_or(MAX_POLL);
                tokio::time::sleep(pause.min(until.saturating_duration_since(Instant::now())))
                    .await;
                match self.read(owner, read.min_revision, &RevisionAlone).await? {
                    Seen::Reached(()) => return Ok(()),
                    Seen::Behind(revision) if Instant::now() >= until => {
                        return Err(behind(read, revision));
                    }
                    Seen::Behind(_) => {}
                }
            }
        };
        call::without_turn(waiting).await?
    }

    async fn write<W: Writing>(
        &self,
        mut lease: Lease,
        owner: &OwnerId,
        options: &WriteOptions,
        work: &W,
    ) -> std::result::Result<Written<W::Outcome>, Failure> {
        let mut pauses = self.pauses();
        // The first attempt that may have been committed. Unless a later one shows what became of it, the caller must
        // learn of this attempt and not of the later failure.
        let mut unknown = None;
        loop {
            let written = self.attempt(lease.conn(), owner, options, work).await;
            self.pool.observe(&written);
            let failure = match written {
                Ok(written) => {
                    lease.give_back();
                    self.committed.fetch_add(1, Ordering::Relaxed);
                    return Ok(written);
                }
                Err(failure) => failure,
            };
            failure.note_damage(&self.soundness);
            // On a standby, a retry would reach a read-only server again.
            let is_rejected = matches!(failure, Failure::Rejected(_));
            if is_rejected || failure.is_read_only() && !self.pool.may_reach_primary(&lease) {
                lease.clean_up().await;
                return Err(match unknown {
                    Some(unknown) if !is_rejected => unknown,
                    _ => failure,
                });
            }
            match &failure {
                Failure::TooSlow => drop(lease),
                _ => lease.discard(),
            }
            // With an idempotency key, a second attempt finds the outcome of the first.
            let settled_by_key =
                matches!(failure, Failure::CommitUnknown(_)) && options.idempotency.is_some();
            let pause = match pauses.next() {
                Some(pause) if failure.is_retryable() || settled_by_key => pause,
                _ => return Err(unknown.unwrap_or(failure)),
            };
            tracing::debug!(?failure, ?pause, "Trying a write again");
            tokio::time::sleep(pause).await;
            let is_id_taken = failure.is_id_taken();
            if settled_by_key && unknown.is_none() {
                unknown = Some(failure);
            }
            lease = match self.pool.get(Some(owner)).await {
                Ok(lease) => lease,
                Err(unreachable) => return Err(unknown.unwrap_or(unreachable)),
            };
            if is_id_taken && let Err(failure) = self.ids.skip_used_ids(lease.conn(), owner).await {
                return Err(unknown.unwrap_or(failure));
            }
        }
    }

    async fn attempt<W: Writing>(
        &self,
        conn: &mut AsyncPgConnection,
        owner: &OwnerId,
        options: &WriteOptions,
        work: &W,
    ) -> std::result::Result<Written<W::Outcome>, Failure> {
        let committing = AtomicBool::new(false);
        let limit = match work.has_time_limit() {
            true => self.statement_timeout * STATEMENTS_OF_A_WRITE,
            false => Duration::MAX,
        };
        let taken = match work.new_ids() {
            0 => Vec::new(),
            count => tokio::time::timeout(limit, self.ids.take(conn, owner, count))
                .await
                .unwrap_or(Err(Failure::TooSlow))?,
        };
        let mut ids = taken.clone().into_iter();
        let running = async {
            let mut begin = "BEGIN ISOLATION LEVEL READ COMMITTED".to_owned();
            if !conn.has_session() {
                let _ = write!(
                    begin,
                    "; SET LOCAL statement_timeout = {}",
                    self.statement_timeout.as_millis()
                );
            }
            conn.set_in_transaction(true);
            conn.send_batch(begin).await;
            if let Some(key) = &options.idempotency
                && let Some(first) = idempotency::claim(conn, owner, key, options.now).await?
            {
                conn.batch_execute("ROLLBACK").await?;
                return Ok(first);
            }
            let mut transaction = Transaction::new(
                conn,
                owner,
                options,
                &mut ids,
                self.vectors.has_tables(),
                self.is_distributed,
            );
            let outcome = work.run(&mut transaction).await?;
            transaction.commit(outcome, options, &committing).await
        };
        let result = match tokio::time::timeout(limit, running).await {
            Ok(result) => result,
            Err(_) if committing.load(Ordering::Relaxed) => Err(Failure::CommitUnknown(
                diesel::result::Error::QueryBuilderError(
                    "the server did not respond to the commit in time".into(),
                ),
            )),
            Err(_) => Err(Failure::TooSlow),
        };
        match &result {
            Ok(_) => {
                conn.set_in_transaction(false);
                self.ids.give_back(owner, ids.as_slice());
            }
            Err(Failure::CommitUnknown(_)) => {}
            Err(_) => self.ids.give_back(owner, &taken),
        }
        result
    }
}

/// Counts a running write. Closing waits until none runs.
struct Running(Arc<Inner>);

impl Running {
    fn new(inner: &Arc<Inner>) -> Self {
        inner.running.send_modify(|running| *running += 1);
        Self(Arc::clone(inner))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0
            .running
            .send_modify(|running| *running = running.saturating_sub(1));
    }
}

#[async_trait]
impl Store for PostgresStore {
    fn backend(&self) -> &'static str {
        "postgresql"
    }

    async fn check(&self) -> Result<()> {
        self.inner.soundness.check()?;
        let mut lease = self.inner.pool.get(None).await?;
        let found = open::version(lease.conn()).await.map_err(Failure::Database);
        self.inner.pool.observe(&found);
        let found = found?;
        lease.give_back();
        // A newer version is fine: each migration step keeps the previous program version working.
        if found >= SCHEMA_VERSION {
            Ok(())
        } else {
            Err(StoreError::Unavailable(
                "another program changed the schema".into(),
            ))
        }
    }

    async fn store_contexts(
        &self,
        owner: &OwnerId,
        entries: Vec<NewEntry>,
        atomic: bool,
        options: WriteOptions,
    ) -> Result<Written<StoredBatch>> {
        let bytes = entries.iter().map(|entry| entry.text.len()).sum();
        let (language, context_window) =
            (Arc::clone(&self.inner.language), self.inner.context_window);
        let work = Self::prepare(bytes, move || {
            StoreEntries::new(entries, atomic, &language, context_window)
        })
        .await?;
        self.write(owner, options, work).await
    }

    async fn update_contexts(
        &self,
        owner: &OwnerId,
        updates: Vec<EntryUpdate>,
        atomic: bool,
        options: WriteOptions,
    ) -> Result<Written<StoredBatch>> {
        let bytes = updates
            .iter()
            .filter_map(|update| update.text.as_ref())
            .map(String::len)
            .sum();
        let (language, context_window) =
            (Arc::clone(&self.inner.language), self.inner.context_window);
        let work = Self::prepare(bytes, move || {
            UpdateEntries::new(updates, atomic, &language, context_window)
        })
        .await?;
        self.write(owner, options, work).await
    }

    async fn delete_contexts(
        &self,
        owner: &OwnerId,
        criteria: DeleteCriteria,
        options: WriteOptions,
    ) -> Result<Written<u64>> {
        self.write(
            owner,
            options,
            DeleteEntries {
                criteria,
                context_window: self.inner.context_window,
            },
        )
        .await
    }

    async fn get_contexts(
        &self,
        owner: &OwnerId,
        ids: Vec<i64>,
        selection: RowSelection,
        read: Read,
    ) -> Result<SearchPage> {
        self.read(
            owner,
            read,
            Get {
                ids,
                selection,
                as_of: read.as_of,
                statement_timeout: self.inner.statement_timeout,
            },
        )
        .await
    }

    async fn search_contexts(
        &self,
        owner: &OwnerId,
        filter: Filter,
        page: Page,
        selection: RowSelection,
        read: Read,
    ) -> Result<SearchPage> {
        let (indexed, statement_timeout) = (
            Arc::clone(&self.inner.indexed),
            self.inner.statement_timeout,
        );
        self.read(
            owner,
            read,
            Search {
                filter,
                page,
                selection,
                indexed,
                statement_timeout,
            },
        )
        .await
    }

    async fn fts_search(
        &self,
        owner: &OwnerId,
        search: FtsSearch,
        filter: Filter,
        page: Page,
        selection: RowSelection,
        read: Read,
    ) -> Result<FtsPage> {
        let (indexed, language) = (
            Arc::clone(&self.inner.indexed),
            Arc::clone(&self.inner.language),
        );
        let statement_timeout = self.inner.statement_timeout;
        self.read(
            owner,
            read,
            Ranked {
                search,
                filter,
                page,
                selection,
                indexed,
                language,
                statement_timeout,
            },
        )
        .await
    }

    async fn document_frequencies(
        &self,
        owner: &OwnerId,
        kind: DocumentKind,
        queries: Vec<Query>,
        max: u32,
        read: Read,
    ) -> Result<Vec<u64>> {
        let language = Arc::clone(&self.inner.language);
        let statement_timeout = self.inner.statement_timeout;
        self.read(
            owner,
            read,
            Frequencies {
                kind,
                queries,
                max,
                language,
                statement_timeout,
            },
        )
        .await
    }

    async fn list_threads(
        &self,
        owner: &OwnerId,
        threads: Option<ThreadSet>,
        name: Option<ThreadNamePart>,
        page: Page,
        read: Read,
    ) -> Result<ThreadsPage> {
        let list = threads::List {
            within: threads,
            name,
            page,
        };
        self.read(owner, read, list).await
    }

    async fn list_tags(
        &self,
        owner: &OwnerId,
        filter: Filter,
        prefix: Option<TagPrefix>,
        page: Page,
        read: Read,
    ) -> Result<TagsPage> {
        let list = tags::List {
            filter,
            prefix,
            page,
            indexed: Arc::clone(&self.inner.indexed),
        };
        self.read(owner, read, list).await
    }

    async fn metadata_sample(
        &self,
        owner: &OwnerId,
        filter: Filter,
        limit: u32,
        max_bytes: u32,
        read: Read,
    ) -> Result<MetadataSample> {
        let sample = overview::Sample {
            filter,
            limit,
            max_bytes,
            indexed: Arc::clone(&self.inner.indexed),
        };
        self.read(owner, read, sample).await
    }

    async fn days(
        &self,
        owner: &OwnerId,
        filter: Filter,
        limit: u32,
        read: Read,
    ) -> Result<DayCounts> {
        let days = overview::Days {
            filter,
            limit,
            indexed: Arc::clone(&self.inner.indexed),
        };
        self.read(owner, read, days).await
    }

    async fn statistics(
        &self,
        owner: &OwnerId,
        threads: Option<ThreadSet>,
        read: Read,
    ) -> Result<StoreStatistics> {
        let connections = self.connections();
        match threads {
            Some(threads) => {
                let within = StatisticsWithin {
                    threads,
                    connections,
                };
                self.read(owner, read, within).await
            }
            None => self.read(owner, read, Statistics { connections }).await,
        }
    }

    async fn is_recorded(
        &self,
        owner: &OwnerId,
        key: &Idempotency,
        now: Timestamp,
    ) -> Result<bool> {
        self.read(
            owner,
            Read::default(),
            IsRecorded {
                key: key.key.clone(),
                now,
            },
        )
        .await
    }

    async fn recorded_bytes(&self, owner: &OwnerId, now: Timestamp) -> Result<u64> {
        self.read(owner, Read::default(), CountBytes { now }).await
    }

    async fn usage(&self, owner: &OwnerId) -> Result<Usage> {
        self.read(owner, Read::default(), CountUsage).await
    }

    fn vectors(&self) -> &dyn VectorStore {
        self
    }

    fn summaries(&self) -> &dyn SummaryStore {
        self
    }

    fn changes(&self) -> &dyn ChangeStore {
        self
    }

    fn seals(&self) -> &dyn SealStore {
        self
    }

    fn artifacts(&self) -> &dyn ArtifactStore {
        self
    }

    fn keys(&self) -> &dyn KeyStore {
        self
    }

    async fn close(&self) {
        self.exchanging.abort();
        self.inner.pool.close();
        let mut running = self.inner.running.subscribe();
        let _ =
            tokio::time::timeout(CLOSE_TIMEOUT, running.wait_for(|running| *running == 0)).await;
    }
}

impl Drop for PostgresStore {
    fn drop(&mut self) {
        self.exchanging.abort();
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn pauses_after_a_conflict_grow_and_differ_by_chance() {
        let backoff = |attempt: usize| PAUSES.with_max_times(9).build().nth(attempt - 1).unwrap();
        // The library multiplies with 32 bits, which loses some nanoseconds.
        let rounding = Duration::from_nanos(100);
        for (attempt, shortest) in [(1, 5), (2, 20), (3, 80), (4, 320), (5, 1000), (9, 1000)] {
            let shortest = Duration::from_millis(shortest) - rounding;
            let longest = (shortest + rounding) * 2 + rounding;
            let pauses: HashSet<Duration> = (0..100).map(|_| backoff(attempt)).collect();
            assert!(
                pauses
                    .iter()
                    .all(|pause| (shortest..=longest).contains(pause)),
                "{pauses:?}"
            );
            assert!(
                pauses.len() > 90,
                "{} different pauses of 100",
                pauses.len()
            );
        }
    }
}
