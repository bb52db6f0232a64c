use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use context_model::{
    ConnectionMetrics, EntryUpdate, Filter, MetadataPath, NewEntry, TagPrefix, ThreadNamePart,
    ThreadSet, Timestamp,
};
use context_store::{
    ArtifactStore, ChangeNotifier, ChangeStore, ContextWindow, DayCounts, DeleteCriteria,
    DocumentKind, Embedding, FtsPage, FtsSearch, Idempotency, KeyStore, MetadataSample, OwnerId,
    Page, Read, Recorded, Result, RowSelection, SealStore, SearchPage, Soundness, Store,
    StoreError, StoreStatistics, StoredBatch, SummaryStore, TagsPage, ThreadsPage, Touched, Usage,
    VectorStore, WriteOptions, Written,
};
use context_text::{Analyzer, Language, Query};
use diesel::sqlite::SqliteConnection;
use tokio::sync::{Semaphore, oneshot, watch};

use crate::artifacts::documents;
use crate::collection::Collection;
use crate::config::Config;
use crate::connection::{self, pragma_int};
use crate::context_window::ContextWindows;
use crate::failure::{Failure, store_error};
use crate::full_text::FullText;
use crate::indexable::Preparation;
use crate::inline::Inline;
use crate::open::{self, OpenError, SCHEMA_VERSION};
use crate::owners::{self, Owner, Owners};
use crate::queue::{Queue, Refused};
use crate::readers::{Lane, LaneHandle};
use crate::request::Request;
use crate::transaction::Transaction;
use crate::vectors::{self, Vectors};
use crate::weigh;
use crate::writer::{BoxJob, Counters, GroupWindow, Open, Writer};
use crate::{
    batch, copy_mark, delete_entries, filter, fts, idempotency, overview, read_entries, statistics,
    store_entry, tags, threads, tokenizer, update_entry,
};

/// Maximum number of payload bytes queued for writing. Further requests are rejected with `OVERLOADED`.
const QUEUED_BYTES: usize = 256 * 1024 * 1024;

/// Maximum number of reads that wait for a revision of a copy at the same time.
const MAX_WAITING: usize = 1000;

/// Maximum number of entries of a lookup that is certainly short.
const SHORT_LOOKUP: usize = 8;
/// Maximum number of bytes of such a lookup, unless it is a single entry. Reading and checking more takes too long for
/// a thread that serves other requests.
const SHORT_LOOKUP_BYTES: u64 = 256 * 1024;

/// A database in an SQLite file.
///
/// Reads and writes run on threads of their own. The returned futures only wait, analyze the beginning of texts to be
/// stored, or read a few pages that are expected to be in memory.
pub struct SqliteStore {
    path: PathBuf,
    pub(crate) indexed: Arc<[MetadataPath]>,
    writes: Arc<Queue<BoxJob>>,
    counters: Arc<Counters>,
    /// Announces commits.
    pub(crate) notifier: Arc<ChangeNotifier>,
    /// Records damage reported by the database. Writes are rejected after that.
    soundness: Arc<Soundness>,
    /// Connections for lookups that are certainly short.
    inline: Arc<Inline>,
    /// The lane for lookups.
    pub(crate) points: LaneHandle,
    /// The lane for searches.
    pub(crate) searches: LaneHandle,
    pub(crate) vectors: Arc<Vectors>,
    language: Language,
    /// Whether entries have a context window.
    has_context_window: bool,
    /// Whether the database is a copy of an owner of another service.
    pub(crate) is_copy: AtomicBool,
    /// Permits for reads that wait for a revision of a copy.
    pub(crate) waiting: Semaphore,
    reader_connections: i64,
    write_queue_limit: i64,
    running: Mutex<Option<Running>>,
    closed: watch::Sender<bool>,
}

/// The threads that `close` waits for.
struct Running {
    points: Lane,
    searches: Lane,
    writer: oneshot::Receiver<()>,
}

impl std::fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SqliteStore")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

impl SqliteStore {
    /// Opens the database and starts its threads. The database is created when the file is missing or empty.
    ///
    /// # Errors
    /// [`OpenError`], a sentence for the operator who starts the service.
    pub fn open(config: Config) -> std::result::Result<Self, OpenError> {
        tokenizer::register();
        let language = Language::parse(&config.language).unwrap_or(Language::Unstemmed);
        let (opened, mut conn) = open::open(&config)?;
        let path = opened.settings.path.clone();
        open::refuse_incomplete_migration(&mut conn, &path)?;
        if fts::rebuild(&mut conn, language, config.context_window)
            .map_err(|e| OpenError::from_store(&path, store_error(e)))?
        {
            tracing::info!(
                language = language.name(),
                context_window = config.context_window.entries,
                "Full-text index built"
            );
        }
        documents::complete(&mut conn, language)
            .map_err(|e| OpenError::from_store(&path, store_error(e)))?;
        let is_copy = copy_mark::is_set(&mut conn)
            .map_err(|e| OpenError::from_store(&path, store_error(e)))?;
        let open_vectors = vectors::load(&mut conn, config.vector_precision)
            .map_err(|e| OpenError::from_store(&path, store_error(e)))?;
        let shared_vectors = Arc::clone(&open_vectors.shared);
        let other = |error: std::io::Error| OpenError::Other {
            path: path.clone(),
            source: error.into(),
        };
        let readers = config.readers.max(1);
        let connect = |count: usize, busy_timeout: Duration| {
            (0..count)
                .map(|_| connection::reader(&path, busy_timeout))
                .collect::<std::result::Result<Vec<SqliteConnection>, _>>()
                .map_err(|e| OpenError::Other {
                    path: path.clone(),
                    source: e.into(),
                })
        };
        let (for_points, for_searches) = (
            connect(readers, config.busy_timeout)?,
            connect(readers.min(2), config.busy_timeout)?,
        );
        let for_inline = connect(readers.min(2), Duration::ZERO)?;
        let reader_connections = for_points.len() + for_searches.len() + for_inline.len();
        let inline = Arc::new(Inline::new(for_inline));
        let idle = Arc::clone(&inline);
        let soundness = Arc::new(Soundness::default());
        let points = Lane::start("sqlite-read", for_points, &soundness, move || {
            idle.release_memory()
        })
        .map_err(other)?;
        let searches =
            Lane::start("sqlite-search", for_searches, &soundness, || ()).map_err(other)?;

        let writes = Arc::new(Queue::new(config.write_queue, QUEUED_BYTES));
        let counters = Arc::new(Counters::default());
        let notifier = Arc::new(ChangeNotifier::default());
        let writer = Writer {
            conn: Some(conn),
            settings: opened.settings,
            queue: Arc::clone(&writes),
            open: Open {
                owners: Owners::default(),
                full_text: FullText { language },
                pending: Vec::new(),
                context_windows: ContextWindows::new(
                    config.context_window,
                    Analyzer::new(language),
                ),
                vectors: open_vectors,
            },
            counters: Arc::clone(&counters),
            notifier: Arc::clone(&notifier),
            soundness: Arc::clone(&soundness),
            lock: opened.lock,
            group_window: GroupWindow::default(),
        };
        let (stop, stopped) = oneshot::channel();
        std::thread::Builder::new()
            .name("sqlite-write".to_owned())
            .spawn(move || {
                writer.run();
                let _ = stop.send(());
            })
            .map_err(other)?;
        Ok(Self {
            path: path.clone(),
            indexed: opened.indexed.into(),
            writes,
            counters,
            notifier,
            soundness,
            inline,
            points: points.handle(),
            searches: searches.handle(),
            vectors: shared_vectors,
            language,
            has_context_window: config.context_window.entries > 0,
            is_copy: AtomicBool::new(is_copy),
            waiting: Semaphore::new(MAX_WAITING),
            reader_connections: i64::try_from(reader_connections).unwrap_or(i64::MAX),
            write_queue_limit: i64::try_from(config.write_queue).unwrap_or(i64::MAX),
            running: Mutex::new(Some(Running {
                points,
                searches,
                writer: stopped,
            })),
            closed: watch::Sender::new(false),
        })
    }

    /// Queues `work` and waits until it is committed.
    pub(crate) async fn write<T, W>(
        &self,
        owner: &OwnerId,
        options: WriteOptions,
        bytes: usize,
        work: W,
    ) -> Result<Written<T>>
    where
        T: Recorded + Send + 'static,
        W: FnMut(&mut Transaction<'_>) -> std::result::Result<T, Failure> + Send + 'static,
    {
        self.write_items(owner, options, bytes, true, work).await
    }

    /// Like [`Self::write`], for a write that must not create its owner, because the owner may have been erased in the
    /// meantime. Without the owner, the outcome is the default.
    pub(crate) async fn write_existing<T, W>(
        &self,
        owner: &OwnerId,
        options: WriteOptions,
        bytes: usize,
        work: W,
    ) -> Result<Written<T>>
    where
        T: Recorded + Default + Send + 'static,
        W: FnMut(&mut Transaction<'_>) -> std::result::Result<T, Failure> + Send + 'static,
    {
        self.submit(owner, options, bytes, true, Some(T::default), work)
            .await
    }

    /// Like [`Self::write`]. With `may_need_undo` false, `work` normally rejects a request before it writes anything.
    /// If it rejects one later, the requests in the same transaction are delayed.
    pub(crate) async fn write_items<T, W>(
        &self,
        owner: &OwnerId,
        options: WriteOptions,
        bytes: usize,
        may_need_undo: bool,
        work: W,
    ) -> Result<Written<T>>
    where
        T: Recorded + Send + 'static,
        W: FnMut(&mut Transaction<'_>) -> std::result::Result<T, Failure> + Send + 'static,
    {
        self.submit(owner, options, bytes, may_need_undo, None, work)
            .await
    }

    async fn submit<T, W>(
        &self,
        owner: &OwnerId,
        options: WriteOptions,
        bytes: usize,
        may_need_undo: bool,
        if_absent: Option<fn() -> T>,
        work: W,
    ) -> Result<Written<T>>
    where
        T: Recorded + Send + 'static,
        W: FnMut(&mut Transaction<'_>) -> std::result::Result<T, Failure> + Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        let request = Request {
            owner: owner.clone(),
            options,
            bytes,
            may_need_undo,
            if_absent,
            work,
            reply,
            outcome: None,
            erased: false,
            touched: Touched::NOTHING,
        };
        self.push(Box::new(request))?;
        answer.await.unwrap_or(Err(StoreError::Closed))
    }

    pub(crate) fn push(&self, job: BoxJob) -> Result<()> {
        self.soundness.check()?;
        self.writes.push(job).map_err(|refused| match refused {
            Refused::Full => StoreError::Overloaded,
            Refused::Closed => StoreError::Closed,
        })
    }

    /// Runs a short read on this thread. `None` if a reader thread must run it, or if the required revision is not
    /// reached.
    fn read_inline<T>(
        &self,
        owner: &OwnerId,
        read: Read,
        work: impl FnOnce(&mut SqliteConnection, Option<&Owner>) -> Result<Option<T>>,
    ) -> Option<T> {
        self.inline.try_read(|conn| {
            let owner = owners::find(conn, owner).map_err(store_error)?;
            if reaches(read, owner.as_ref()) {
                work(conn, owner.as_ref())
            } else {
                Ok(None)
            }
        })
    }

    /// Reads at or after the revision that `read` requires. A copy waits for it. Any other database rejects a later
    /// revision than its own: it cannot be one that a write returned, because one process owns the file.
    pub(crate) async fn read<T, W>(
        &self,
        lane: &LaneHandle,
        owner: &OwnerId,
        read: Read,
        work: W,
    ) -> Result<T>
    where
        T: Send + 'static,
        W: FnOnce(&mut SqliteConnection, Option<&Owner>) -> Result<T> + Send + 'static,
    {
        self.reach(owner, read).await?;
        let name = owner.clone();
        lane.read(Some(owner), move |conn| {
            let owner = owners::find(conn, &name).map_err(store_error)?;
            match read.min_revision {
                Some(wanted) if !reaches(read, owner.as_ref()) => Err(StoreError::beyond_revision(
                    wanted,
                    owner.map_or(0, |owner| owner.revision),
                )),
                _ => work(conn, owner.as_ref()),
            }
        })
        .await
    }

    /// Like [`Self::read`], with a filter. If the read is too slow, the error names the condition that no index serves.
    pub(crate) async fn filtered<T, W>(
        &self,
        lane: &LaneHandle,
        owner: &OwnerId,
        read: Read,
        filter: Filter,
        work: W,
    ) -> Result<T>
    where
        T: Send + 'static,
        W: FnOnce(&mut SqliteConnection, Option<&Owner>, &Filter, &[MetadataPath]) -> Result<T>
            + Send
            + 'static,
    {
        let filter = Arc::new(filter);
        let (its_filter, indexed) = (Arc::clone(&filter), Arc::clone(&self.indexed));
        let outcome = self
            .read(lane, owner, read, move |conn, owner| {
                work(conn, owner, &its_filter, &indexed)
            })
            .await;
        outcome.map_err(|error| {
            error.with_filter(&filter, |condition| {
                filter::is_served(condition, &self.indexed)
            })
        })
    }

    fn connections(&self) -> ConnectionMetrics {
        ConnectionMetrics {
            backend: "sqlite".to_owned(),
            reader_connections: self.reader_connections,
            writer_connections: 1,
            queued_writes: i64::try_from(self.writes.len()).unwrap_or(i64::MAX),
            write_queue_limit: self.write_queue_limit,
            commits: self.counters.commits.load(Ordering::Relaxed),
            writes: self.counters.writes.load(Ordering::Relaxed),
        }
    }
}

#[async_trait]
impl Store for SqliteStore {
    fn backend(&self) -> &'static str {
        "sqlite"
    }

    async fn check(&self) -> Result<()> {
        self.soundness.check()?;
        let version = self
            .points
            .read(None, |conn| {
                pragma_int(conn, "PRAGMA user_version").map_err(store_error)
            })
            .await?;
        if version == SCHEMA_VERSION {
            Ok(())
        } else {
            Err(StoreError::Unavailable(
                "another program changed the schema".into(),
            ))
        }
    }

    fn vectors(&self) -> &dyn VectorStore {
        self
    }

    async fn store_contexts(
        &self,
        owner: &OwnerId,
        entries: Vec<NewEntry>,
        atomic: bool,
        mut options: WriteOptions,
    ) -> Result<Written<StoredBatch>> {
        self.require_own()?;
        let embeddings = std::mem::take(&mut options.embeddings);
        let mut preparation = Preparation::new(self.language);
        let (analyzer, words) = (
            Analyzer::new(self.language),
            if self.has_context_window {
                ContextWindow::WORDS
            } else {
                0
            },
        );
        let prepare = |entry: NewEntry| {
            (
                preparation.next(&entry.text),
                context_text::context_keywords(&entry.text, &analyzer, words),
                entry,
            )
        };
        let entries: Vec<_> = entries.into_iter().map(prepare).collect();
        let weights = entries.iter().map(|(text, context_keywords, entry)| {
            text.as_str().len() + context_keywords.len() + weigh::entry(entry)
        });
        let bytes = weights.chain(embeddings.iter().map(weigh::embedding)).sum();
        let several = atomic && entries.len() > 1;
        self.write_items(owner, options, bytes, several, move |transaction| {
            batch::apply(
                transaction,
                &entries,
                atomic,
                |transaction, index, (text, context_keywords, entry)| {
                    store_entry::store(
                        transaction,
                        entry,
                        text,
                        context_keywords,
                        embeddings.get(index).unwrap_or(&Embedding::Later),
                    )
                },
            )
        })
        .await
    }

    async fn update_contexts(
        &self,
        owner: &OwnerId,
        updates: Vec<EntryUpdate>,
        atomic: bool,
        mut options: WriteOptions,
    ) -> Result<Written<StoredBatch>> {
        self.require_own()?;
        let embeddings = std::mem::take(&mut options.embeddings);
        let mut preparation = Preparation::new(self.language);
        let updates: Vec<_> = updates
            .into_iter()
            .map(|update| {
                (
                    update.text.as_deref().map(|text| preparation.next(text)),
                    update,
                )
            })
            .collect();
        let weights = updates.iter().map(|(text, update)| {
            text.as_ref().map_or(0, |text| text.as_str().len()) + weigh::update(update)
        });
        let bytes = weights.chain(embeddings.iter().map(weigh::embedding)).sum();
        let several = atomic && updates.len() > 1;
        self.write_items(owner, options, bytes, several, move |transaction| {
            batch::apply(
                transaction,
                &updates,
                atomic,
                |transaction, index, (text, update)| {
                    update_entry::update(
                        transaction,
                        update,
                        text.as_ref(),
                        embeddings.get(index).unwrap_or(&Embedding::Later),
                    )
                },
            )
        })
        .await
    }

    async fn delete_contexts(
        &self,
        owner: &OwnerId,
        criteria: DeleteCriteria,
        options: WriteOptions,
    ) -> Result<Written<u64>> {
        self.require_own()?;
        self.write_items(
            owner,
            options,
            weigh::criteria(&criteria),
            false,
            move |transaction| delete_entries::delete(transaction, &criteria),
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
        if ids.len() <= SHORT_LOOKUP {
            let short = RowSelection {
                max_bytes: selection.max_bytes.min(SHORT_LOOKUP_BYTES),
                ..selection.clone()
            };
            let found = self.read_inline(owner, read, |conn, owner| match owner {
                Some(owner) => {
                    read_entries::get_without_images(conn, owner, &ids, &short, read.as_of)
                }
                None => Ok(Some(no_entries())),
            });
            if let Some(page) = found {
                return Ok(page);
            }
        }
        self.read(&self.points, owner, read, move |conn, owner| match owner {
            Some(owner) => read_entries::get(conn, owner, &ids, &selection, read.as_of),
            None => Ok(no_entries()),
        })
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
        let lane = if filter::is_direct(&filter) && page.offset < 1000 {
            &self.points
        } else {
            &self.searches
        };
        self.filtered(
            lane,
            owner,
            read,
            filter,
            move |conn, owner, filter, indexed| match owner {
                Some(owner) => read_entries::search(conn, owner, filter, page, indexed, &selection),
                None => Ok(no_entries()),
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
        self.filtered(
            &self.searches,
            owner,
            read,
            filter,
            move |conn, owner, filter, indexed| match owner {
                Some(owner) => {
                    read_entries::ranked(conn, owner, &search, filter, page, indexed, &selection)
                }
                None => Ok(FtsPage {
                    entries: Vec::new(),
                    has_more: false,
                    used_fallback: false,
                    capped_at: None,
                    revision: 0,
                    plan: Vec::new(),
                }),
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
        self.read(
            &self.searches,
            owner,
            read,
            move |conn, owner| match owner {
                Some(owner)
                    if kind == DocumentKind::Context
                        || documents::has_any(conn, owner.owner).map_err(store_error)? =>
                {
                    let collection = Collection {
                        owner: owner.owner,
                        kind,
                    };
                    fts::frequencies(conn, collection, &queries, max).map_err(store_error)
                }
                Some(_) | None => Ok(vec![0; queries.len()]),
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
        // Counting the selected threads, or reading their names, takes a scan.
        let lane = match (&threads, &name) {
            (None, None) => &self.points,
            _ => &self.searches,
        };
        self.read(lane, owner, read, move |conn, owner| {
            match (owner, &threads, &name) {
                (Some(owner), None, None) => threads::list(conn, owner, page),
                (Some(owner), threads, name) => {
                    threads::list_selected(conn, owner, threads.as_ref(), name.as_ref(), page)
                }
                (None, _, _) => Ok(ThreadsPage {
                    threads: Vec::new(),
                    total: 0,
                    revision: 0,
                }),
            }
        })
        .await
    }

    async fn list_tags(
        &self,
        owner: &OwnerId,
        filter: Filter,
        prefix: Option<TagPrefix>,
        page: Page,
        read: Read,
    ) -> Result<TagsPage> {
        self.filtered(
            &self.searches,
            owner,
            read,
            filter,
            move |conn, owner, filter, _| match owner {
                Some(owner) => tags::list(conn, owner, filter, prefix.as_ref(), page),
                None => Ok(TagsPage::EMPTY),
            },
        )
        .await
    }

    async fn metadata_sample(
        &self,
        owner: &OwnerId,
        filter: Filter,
        limit: u32,
        max_bytes: u32,
        read: Read,
    ) -> Result<MetadataSample> {
        self.filtered(
            &self.searches,
            owner,
            read,
            filter,
            move |conn, owner, filter, _| match owner {
                Some(owner) => overview::metadata_sample(conn, owner, filter, limit, max_bytes),
                None => Ok(MetadataSample::default()),
            },
        )
        .await
    }

    async fn days(
        &self,
        owner: &OwnerId,
        filter: Filter,
        limit: u32,
        read: Read,
    ) -> Result<DayCounts> {
        self.filtered(
            &self.searches,
            owner,
            read,
            filter,
            move |conn, owner, filter, _| match owner {
                Some(owner) => overview::days(conn, owner, filter, limit),
                None => Ok(DayCounts::default()),
            },
        )
        .await
    }

    async fn statistics(
        &self,
        owner: &OwnerId,
        threads: Option<ThreadSet>,
        read: Read,
    ) -> Result<StoreStatistics> {
        if let Some(threads) = threads {
            let connections = self.connections();
            return self
                .read(&self.searches, owner, read, move |conn, owner| {
                    statistics::within(conn, owner, &threads, connections)
                })
                .await;
        }
        let found = self.read_inline(owner, read, |conn, owner| {
            statistics::read(conn, &self.path, owner, self.connections()).map(Some)
        });
        if let Some(statistics) = found {
            return Ok(statistics);
        }
        let (path, connections) = (self.path.clone(), self.connections());
        self.read(&self.points, owner, read, move |conn, owner| {
            statistics::read(conn, &path, owner, connections)
        })
        .await
    }

    async fn usage(&self, owner: &OwnerId) -> Result<Usage> {
        self.read(
            &self.searches,
            owner,
            Read::default(),
            |conn, owner| match owner {
                Some(owner) => statistics::usage(conn, owner),
                None => Ok(Usage::default()),
            },
        )
        .await
    }

    async fn is_recorded(
        &self,
        owner: &OwnerId,
        key: &Idempotency,
        now: Timestamp,
    ) -> Result<bool> {
        let found = self.read_inline(owner, Read::default(), |conn, owner| {
            owner
                .map_or(Ok(false), |owner| {
                    idempotency::is_recorded(conn, owner.owner, &key.key, now)
                })
                .map(Some)
                .map_err(store_error)
        });
        if let Some(found) = found {
            return Ok(found);
        }
        let key = key.key.clone();
        self.read(&self.points, owner, Read::default(), move |conn, owner| {
            owner
                .map_or(Ok(false), |owner| {
                    idempotency::is_recorded(conn, owner.owner, &key, now)
                })
                .map_err(store_error)
        })
        .await
    }

    async fn recorded_bytes(&self, owner: &OwnerId, now: Timestamp) -> Result<u64> {
        self.read(
            &self.searches,
            owner,
            Read::default(),
            move |conn, owner| {
                let bytes = owner
                    .map_or(Ok(0), |owner| idempotency::bytes(conn, owner.owner, now))
                    .map_err(store_error)?;
                Ok(u64::try_from(bytes).unwrap_or(0))
            },
        )
        .await
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
        let mut closed = self.closed.subscribe();
        let running = self
            .running
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        let Some(Running {
            points,
            searches,
            writer,
        }) = running
        else {
            // Another call is already closing it.
            let _ = closed.wait_for(|closed| *closed).await;
            return;
        };
        self.writes.close();
        self.inline.close();
        // Meanwhile the writer finishes its queue and truncates the log. For that it waits for running reads, at most for
        // `busy_timeout`.
        points.stop().await;
        searches.stop().await;
        let _ = writer.await;
        self.closed.send_replace(true);
    }
}

impl Drop for SqliteStore {
    fn drop(&mut self) {
        self.writes.close();
        self.points.close();
        self.searches.close();
    }
}

/// Whether the owner's revision is at least the one that `read` requires.
fn reaches(read: Read, owner: Option<&Owner>) -> bool {
    read.min_revision
        .is_none_or(|wanted| owner.map_or(0, |owner| owner.revision) >= wanted)
}

fn no_entries() -> SearchPage {
    SearchPage {
        entries: Vec::new(),
        has_more: false,
        revision: 0,
        plan: Vec::new(),
    }
}
