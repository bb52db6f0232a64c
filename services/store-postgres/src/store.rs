use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use context_model::{ConnectionMetrics, EntryUpdate, Error, Filter, MetadataPath, NewEntry, ThreadSet};
use context_store::{
    ArtifactStore, DeleteCriteria, FtsPage, FtsSearch, KeyStore, Neighbourhood, OwnerId, Page, Read, Result, RowSelection, SearchPage,
    Store, StoreError, StoreStatistics, StoredBatch, SummaryStore, ThreadsPage, Usage, VectorStore, WriteOptions, Written,
};
use diesel_async::SimpleAsyncConnection as _;
use tokio::sync::watch;

use crate::config::Config;
use crate::connection::AsyncPgConnection;
use crate::delete_entries::DeleteEntries;
use crate::failure::Failure;
use crate::fts::{self, Language};
use crate::idempotency;
use crate::open::{self, OpenError, SCHEMA_VERSION};
use crate::owners::Ids;
use crate::pool::{Lease, Pool};
use crate::read::Reading;
use crate::read_entries::{Get, Ranked, Search};
use crate::statistics::{CountUsage, Statistics, StatisticsWithin};
use crate::store_entry::StoreEntries;
use crate::threads::List;
use crate::transaction::{Transaction, Writing};
use crate::update_entry::UpdateEntries;
use crate::vectors::Vectors;

/// Bytes of text that are analyzed on the spot; more goes to a thread of its own.
const SMALL_TEXT_BYTES: usize = 32 * 1024;
/// How long a read that waits for a revision sleeps between looks, at first and at most. Writes of this process wake it
/// up; those of another one are seen at the next look.
const FIRST_LOOK: Duration = Duration::from_millis(2);
const LAST_LOOK: Duration = Duration::from_millis(100);
/// How long closing waits for writes that run.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(30);
/// What a write may take beyond one statement: it has several.
const STATEMENTS_OF_A_WRITE: u32 = 4;

/// A PostgreSQL database, shared by any number of services.
pub struct PostgresStore {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub pool: Pool,
    ids: Ids,
    pub vectors: Vectors,
    pub language: Arc<Language>,
    neighbourhood: Neighbourhood,
    /// Whether owners are spread over servers.
    spread: bool,
    pub indexed: Arc<[MetadataPath]>,
    pub statement_timeout: Duration,
    retries: u32,
    /// Ticks with each commit of this process.
    commits: watch::Sender<u64>,
    committed: AtomicI64,
    running: watch::Sender<usize>,
    shown: String,
}

impl std::fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PostgresStore").field("database", &self.inner.shown).finish_non_exhaustive()
    }
}

impl PostgresStore {
    /// Opens the database: makes or updates its schema and its indexes, while other services may do the same.
    ///
    /// # Errors
    /// [`OpenError`], a sentence for whoever starts the service.
    pub async fn open(config: Config) -> std::result::Result<Self, OpenError> {
        let opened = open::open(&config).await?;
        let shown = config.target.shown();
        let schema = |source: context_store::BoxError| OpenError::Schema { shown: shown.clone(), source };
        let pool = Pool::new(&config, &opened.tls).map_err(schema)?;
        let inner = Inner {
            pool,
            ids: Ids::default(),
            vectors: Vectors::new(opened.has_vectors),
            language: Arc::new(opened.language),
            neighbourhood: config.neighbourhood,
            spread: opened.spread,
            indexed: opened.indexed.into(),
            statement_timeout: config.statement_timeout,
            retries: config.retries,
            commits: watch::Sender::new(0),
            committed: AtomicI64::new(0),
            running: watch::Sender::new(0),
            shown: shown.clone(),
        };
        let mut lease = inner.pool.get().await.map_err(|failure| schema(StoreError::from(failure).into()))?;
        open::refuse_half_moved(lease.conn(), &shown).await?;
        fts::rebuild(lease.conn(), &inner.language, inner.neighbourhood).await.map_err(|error| schema(error.into()))?;
        lease.give_back();
        Ok(Self { inner: Arc::new(inner) })
    }

    pub(crate) async fn write<W: Writing>(&self, owner: &OwnerId, options: WriteOptions, work: W) -> Result<Written<W::Outcome>> {
        // Whoever gives up waiting for a connection has written nothing. From then on the write runs to its end, whether
        // or not somebody still waits for it.
        let lease = self.inner.pool.get().await;
        self.inner.pool.observe(&lease);
        let (lease, inner, owner) = (lease?, Arc::clone(&self.inner), owner.clone());
        let running = Running::new(&inner);
        let writing = tokio::spawn(async move {
            let written = inner.write(lease, &owner, &options, &work).await;
            drop(running);
            written
        });
        match writing.await {
            Ok(written) => Ok(written?),
            Err(error) => Err(StoreError::Internal(error.into())),
        }
    }

    /// Reads at or after the revision that `read` asks for.
    pub(crate) async fn read<R: Reading>(&self, owner: &OwnerId, read: Read, work: R) -> Result<R::Outcome> {
        let started = Instant::now();
        let mut commits = self.inner.commits.subscribe();
        let mut pause = FIRST_LOOK;
        loop {
            commits.borrow_and_update();
            let (revision, outcome) = self.inner.read(owner, &work).await?.unwrap_or_else(|| (0, work.empty()));
            if read.min_revision.is_none_or(|wanted| revision >= wanted) {
                return Ok(outcome);
            }
            let left = read.wait.saturating_sub(started.elapsed());
            if left.is_zero() {
                return Err(StoreError::Rejected(Error::invalid(
                    "min_revision",
                    "`min_revision` is beyond every revision of this database, and no write reached it in the time a read waits",
                )));
            }
            let _ = tokio::time::timeout(pause.min(left), commits.changed()).await;
            pause = (pause * 2).min(LAST_LOOK);
        }
    }

    /// Runs what takes time linear in texts where it blocks nobody.
    async fn prepare<T: Send + 'static>(bytes: usize, work: impl FnOnce() -> T + Send + 'static) -> Result<T> {
        if bytes <= SMALL_TEXT_BYTES {
            return Ok(work());
        }
        tokio::task::spawn_blocking(work).await.map_err(|error| StoreError::Internal(error.into()))
    }

    /// How long one statement may take.
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

impl Inner {
    async fn read<R: Reading>(&self, owner: &OwnerId, work: &R) -> std::result::Result<Option<(i64, R::Outcome)>, Failure> {
        let limit = self.statement_timeout + Duration::from_secs(1);
        let mut attempt = 0;
        loop {
            let lease = self.pool.get().await;
            self.pool.observe(&lease);
            let mut lease = lease?;
            let read = tokio::time::timeout(limit, work.read(lease.conn(), owner)).await.unwrap_or(Err(Failure::TooSlow));
            self.pool.observe(&read);
            match read {
                Ok(read) => {
                    lease.give_back();
                    return Ok(read);
                }
                Err(failure) => {
                    if failure.is_unavailability() {
                        lease.discard();
                    }
                    if attempt >= self.retries || !failure.is_retryable() {
                        return Err(failure);
                    }
                }
            }
            attempt += 1;
            tokio::time::sleep(backoff(attempt)).await;
        }
    }

    async fn write<W: Writing>(
        &self,
        mut lease: Lease,
        owner: &OwnerId,
        options: &WriteOptions,
        work: &W,
    ) -> std::result::Result<Written<W::Outcome>, Failure> {
        let mut attempt = 0;
        loop {
            let written = self.attempt(lease.conn(), owner, options, work).await;
            self.pool.observe(&written);
            let failure = match written {
                Ok(written) => {
                    lease.give_back();
                    self.committed.fetch_add(1, Ordering::Relaxed);
                    self.commits.send_modify(|ticks| *ticks = ticks.wrapping_add(1));
                    return Ok(written);
                }
                Err(failure) => failure,
            };
            match &failure {
                Failure::Rejected(_) => {
                    if lease.conn().batch_execute("ROLLBACK").await.is_ok() {
                        lease.give_back();
                    } else {
                        lease.discard();
                    }
                    return Err(failure);
                }
                Failure::TooSlow => drop(lease),
                _ => lease.discard(),
            }
            // With a key a second attempt finds out what became of the first.
            let settled_by_key = matches!(failure, Failure::CommitUnknown(_)) && options.idempotency.is_some();
            if attempt >= self.retries || !(failure.is_retryable() || settled_by_key) {
                return Err(failure);
            }
            attempt += 1;
            tracing::debug!(?failure, attempt, "Trying a write again");
            tokio::time::sleep(backoff(attempt)).await;
            let next = self.pool.get().await;
            self.pool.observe(&next);
            lease = match next {
                Ok(lease) => lease,
                // What matters to the caller is whether the first attempt may have been committed.
                Err(_) if settled_by_key => return Err(failure),
                Err(unreachable) => return Err(unreachable),
            };
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
        let limit = self.statement_timeout * STATEMENTS_OF_A_WRITE;
        let taken = match work.new_ids() {
            0 => Vec::new(),
            count => tokio::time::timeout(limit, self.ids.take(conn, owner, count)).await.unwrap_or(Err(Failure::TooSlow))?,
        };
        let mut ids = taken.clone().into_iter();
        let running = async {
            let mut begin = "BEGIN ISOLATION LEVEL READ COMMITTED".to_owned();
            if !conn.has_session() {
                let _ = write!(begin, "; SET LOCAL statement_timeout = {}", self.statement_timeout.as_millis());
            }
            conn.send_batch(begin).await;
            if let Some(key) = &options.idempotency
                && let Some(first) = idempotency::claim(conn, owner, key, options.now).await?
            {
                conn.batch_execute("ROLLBACK").await?;
                return Ok(first);
            }
            let mut transaction = Transaction::new(conn, owner, options, &mut ids, self.vectors.are_there(), self.spread);
            let outcome = work.run(&mut transaction).await?;
            transaction.commit(outcome, options, &committing).await
        };
        let result = match tokio::time::timeout(limit, running).await {
            Ok(result) => result,
            Err(_) if committing.load(Ordering::Relaxed) => {
                Err(Failure::CommitUnknown(diesel::result::Error::QueryBuilderError("the commit was not answered in time".into())))
            }
            Err(_) => Err(Failure::TooSlow),
        };
        match &result {
            Ok(_) => self.ids.give_back(owner, ids.as_slice()),
            Err(Failure::CommitUnknown(_)) => {}
            Err(_) => self.ids.give_back(owner, &taken),
        }
        result
    }
}

/// 5 ms, 20 ms, 80 ms, …, at most a second, and up to as much again, so that those who collided do not meet again.
fn backoff(attempt: u32) -> Duration {
    let base = Duration::from_millis(5 * 4_u64.saturating_pow(attempt.saturating_sub(1).min(4))).min(Duration::from_secs(1));
    let nanos = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.subsec_nanos());
    base + base.mul_f64(f64::from(nanos % 1000) / 1000.0)
}

/// Counts a write that runs, for closing.
struct Running(Arc<Inner>);

impl Running {
    fn new(inner: &Arc<Inner>) -> Self {
        inner.running.send_modify(|running| *running += 1);
        Self(Arc::clone(inner))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.running.send_modify(|running| *running = running.saturating_sub(1));
    }
}

#[async_trait]
impl Store for PostgresStore {
    fn backend(&self) -> &'static str {
        "postgresql"
    }

    async fn check(&self) -> Result<()> {
        let mut lease = self.inner.pool.get().await;
        self.inner.pool.observe(&lease);
        let found = match &mut lease {
            Ok(lease) => open::version(lease.conn()).await.map_err(Failure::Database),
            Err(_) => Ok(0),
        };
        self.inner.pool.observe(&found);
        let (lease, found) = (lease?, found?);
        lease.give_back();
        // A newer one is fine: steps are made so that the version before still works.
        if found >= SCHEMA_VERSION { Ok(()) } else { Err(StoreError::Unavailable("another program changed the schema".into())) }
    }

    async fn store_contexts(
        &self,
        owner: &OwnerId,
        entries: Vec<NewEntry>,
        atomic: bool,
        options: WriteOptions,
    ) -> Result<Written<StoredBatch>> {
        let bytes = entries.iter().map(|entry| entry.text.len()).sum();
        let (language, neighbourhood) = (Arc::clone(&self.inner.language), self.inner.neighbourhood);
        let work = Self::prepare(bytes, move || StoreEntries::new(entries, atomic, &language, neighbourhood)).await?;
        self.write(owner, options, work).await
    }

    async fn update_contexts(
        &self,
        owner: &OwnerId,
        updates: Vec<EntryUpdate>,
        atomic: bool,
        options: WriteOptions,
    ) -> Result<Written<StoredBatch>> {
        let bytes = updates.iter().filter_map(|update| update.text.as_ref()).map(String::len).sum();
        let (language, neighbourhood) = (Arc::clone(&self.inner.language), self.inner.neighbourhood);
        let work = Self::prepare(bytes, move || UpdateEntries::new(updates, atomic, &language, neighbourhood)).await?;
        self.write(owner, options, work).await
    }

    async fn delete_contexts(&self, owner: &OwnerId, criteria: DeleteCriteria, options: WriteOptions) -> Result<Written<u64>> {
        self.write(owner, options, DeleteEntries { criteria, neighbourhood: self.inner.neighbourhood }).await
    }

    async fn get_contexts(&self, owner: &OwnerId, ids: Vec<i64>, selection: RowSelection, read: Read) -> Result<SearchPage> {
        self.read(owner, read, Get { ids, selection, statement_timeout: self.inner.statement_timeout }).await
    }

    async fn search_contexts(
        &self,
        owner: &OwnerId,
        filter: Filter,
        page: Page,
        selection: RowSelection,
        read: Read,
    ) -> Result<SearchPage> {
        let (indexed, statement_timeout) = (Arc::clone(&self.inner.indexed), self.inner.statement_timeout);
        self.read(owner, read, Search { filter, page, selection, indexed, statement_timeout }).await
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
        let (indexed, language) = (Arc::clone(&self.inner.indexed), Arc::clone(&self.inner.language));
        let statement_timeout = self.inner.statement_timeout;
        self.read(owner, read, Ranked { search, filter, page, selection, indexed, language, statement_timeout }).await
    }

    async fn list_threads(&self, owner: &OwnerId, page: Page, read: Read) -> Result<ThreadsPage> {
        self.read(owner, read, List { within: None, page }).await
    }

    async fn list_threads_within(&self, owner: &OwnerId, threads: ThreadSet, page: Page, read: Read) -> Result<ThreadsPage> {
        self.read(owner, read, List { within: Some(threads), page }).await
    }

    async fn statistics(&self, owner: &OwnerId, read: Read) -> Result<StoreStatistics> {
        self.read(owner, read, Statistics { connections: self.connections() }).await
    }

    async fn statistics_within(&self, owner: &OwnerId, threads: ThreadSet, read: Read) -> Result<StoreStatistics> {
        self.read(owner, read, StatisticsWithin { threads, connections: self.connections() }).await
    }

    async fn usage(&self, owner: &OwnerId) -> Result<Usage> {
        self.read(owner, Read::default(), CountUsage).await
    }

    fn vectors(&self) -> Option<&dyn VectorStore> {
        Some(self)
    }

    fn summaries(&self) -> Option<&dyn SummaryStore> {
        Some(self)
    }

    fn artifacts(&self) -> Option<&dyn ArtifactStore> {
        Some(self)
    }

    fn keys(&self) -> Option<&dyn KeyStore> {
        Some(self)
    }

    async fn close(&self) {
        self.inner.pool.close();
        let mut running = self.inner.running.subscribe();
        let _ = tokio::time::timeout(CLOSE_TIMEOUT, running.wait_for(|running| *running == 0)).await;
    }
}
