//! The PostgreSQL store compared with tokio-postgres, with 16 clients each, on copies of the same database.

use std::cell::Cell;
use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use context_model::{
    Comparison, Condition, Filter, Metadata, MetadataPath, NewEntry, Scalar, Source, Tags,
    ThreadId, Timestamp, Violations,
};
use context_store::{FtsSearch, Memory, OwnerId, Page, Read, RowSelection, Store, WriteOptions};
use context_store_postgres::{Config, PostgresStore, Target};
use context_text::{Analyzer, Language, Mode, parse};
use tokio::runtime::Runtime;

use super::Bench;
use crate::Result;
use crate::corpus::{AGENTS, Entry, agent};
use crate::floor::postgres::{PAGE, RANKING_CAP, RawClient, Row, connect};
use crate::measure::{Contender, Round, alternate};
use crate::report::{Goal, Ratio, Report, Section};

const CLIENTS: usize = 16;
/// Goals: minimum ratios to the floor's throughput.
const GOAL_ENTRY: f64 = 0.85;
const GOAL_SEARCH: f64 = 0.90;
const FIELDS: [&str; 2] = ["agent_name", "status"];
const SELECTION: RowSelection = RowSelection {
    images: false,
    text_chars: None,
    explain: false,
    max_bytes: u64::MAX,
    memory: Memory::UNCOUNTED,
};

/// One operation of a client.
#[derive(Debug, Clone)]
enum Operation {
    Store(Box<Row>),
    Get(i64),
    Search(String),
    FullText(String),
}

/// Both sides of the comparison, the store and the tokio-postgres clients, and the runtime on which they run.
struct Sides {
    runtime: Threads,
    raw: Vec<Arc<RawClient>>,
    store: Arc<PostgresStore>,
    next_id: Rc<Cell<i64>>,
}

/// Measures stores, gets, metadata searches and full-text searches. Two databases are created on the server with this
/// `url`, and dropped at the end.
///
/// # Errors
/// The server rejects a statement, or the two sides return different results or none.
pub async fn run(bench: &Bench, report: &mut Report, url: &str) -> Result<()> {
    let server = connect(url).await?;
    let names = ["store", "raw"].map(|side| format!("context_bench_{}_{side}", std::process::id()));
    let urls = names.clone().map(|name| with_database(url, &name));
    server
        .batch_execute(&format!("CREATE DATABASE {}", names[0]))
        .await?;
    let measured = measure(bench, report, &server, &names, &urls).await;
    for name in &names {
        server
            .batch_execute(&format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)"))
            .await?;
    }
    measured
}

async fn measure(
    bench: &Bench,
    report: &mut Report,
    server: &tokio_postgres::Client,
    names: &[String; 2],
    urls: &[String; 2],
) -> Result<()> {
    let ids = load(bench, &urls[0]).await?;
    server
        .batch_execute(&format!(
            "CREATE DATABASE {} TEMPLATE {}",
            names[1], names[0]
        ))
        .await?;
    for url in urls {
        connect(url).await?.batch_execute("VACUUM ANALYZE").await?;
    }
    let settings = "SELECT version() || ', fsync ' || current_setting('fsync') || ', synchronous_commit ' || \
                    current_setting('synchronous_commit') || ', shared_buffers ' || current_setting('shared_buffers')";
    report.fact(
        "PostgreSQL",
        server.query_one(settings, &[]).await?.try_get(0)?,
    );

    let runtime = Threads::start()?;
    let (raw_url, store_url) = (urls[1].clone(), urls[0].clone());
    let (raw, store) = on(&runtime, async move {
        let mut raw = Vec::with_capacity(CLIENTS);
        for _ in 0..CLIENTS {
            raw.push(Arc::new(RawClient::connect(&raw_url).await?));
        }
        Ok((
            raw,
            Arc::new(PostgresStore::open(config(&store_url)?).await?),
        ))
    })
    .await?;
    let next_id = raw_next_id(&urls[1]).await?;
    let sides = Rc::new(Sides {
        runtime,
        raw,
        store,
        next_id: Rc::new(Cell::new(next_id)),
    });

    let scale = &bench.scale;
    let stored = Rc::new(Cell::new(0));
    let searches: Vec<Operation> = (0..AGENTS).map(|n| Operation::Search(agent(n))).collect();
    let word = |rank: usize| bench.corpus.word(rank).to_owned();
    let full_texts: Vec<Operation> = (0..20)
        .map(|n| Operation::FullText(format!("{} {}", word(40 + n), word(150 + 5 * n))))
        .collect();
    let gets: Vec<Operation> = ids
        .iter()
        .step_by(37)
        .map(|id| Operation::Get(*id))
        .collect();
    for (name, operations, count, goal) in [
        ("get by id", gets, scale.postgres_gets, GOAL_ENTRY),
        (
            "search by metadata",
            searches,
            scale.postgres_searches,
            GOAL_SEARCH,
        ),
        (
            "full text, two words",
            full_texts,
            scale.postgres_searches,
            GOAL_SEARCH,
        ),
    ] {
        let mut found = 0;
        for operation in operations.iter().take(20) {
            let (raw, store) = (
                run_raw(&sides, operation).await?,
                run_on_store(&sides, operation).await?,
            );
            if raw != store {
                return Err(format!(
                    "SQL returns {raw:?} for {operation:?}, the store returns {store:?}"
                )
                .into());
            }
            found += raw.len();
        }
        if found == 0 {
            return Err(format!("{name}: SQL and the store return nothing").into());
        }
        let cycled =
            move |_: &Bench, count: usize| operations.iter().cycle().take(count).cloned().collect();
        compare(bench, report, &sides, name, count, goal, Rc::new(cycled)).await?;
    }
    let row = new_row(bench, 0, &stored);
    run_raw(&sides, &Operation::Store(Box::new(row.clone()))).await?;
    run_on_store(&sides, &Operation::Store(Box::new(row))).await?;
    same_last_row(urls).await?;
    let fresh = {
        let stored = stored.clone();
        move |bench: &Bench, count: usize| {
            (0..count)
                .map(|at| Operation::Store(Box::new(new_row(bench, at, &stored))))
                .collect()
        }
    };
    compare(
        bench,
        report,
        &sides,
        "store",
        scale.postgres_stores,
        GOAL_ENTRY,
        Rc::new(fresh),
    )
    .await?;
    same_counts(urls).await?;
    let store = Arc::clone(&sides.store);
    on(&sides.runtime, async move {
        store.close().await;
        Ok(())
    })
    .await?;
    Ok(())
}

/// The runtime of both sides' clients. A runtime cannot be awaited inside another one.
struct Threads(Option<Runtime>);

impl Threads {
    fn start() -> Result<Self> {
        Ok(Self(Some(
            tokio::runtime::Builder::new_multi_thread()
                .worker_threads(2)
                .enable_all()
                .build()?,
        )))
    }

    fn spawn<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> tokio::task::JoinHandle<T> {
        match &self.0 {
            Some(runtime) => runtime.spawn(work),
            None => unreachable!("the threads end when this value is dropped"),
        }
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

type Operations = Rc<dyn Fn(&Bench, usize) -> Vec<Operation>>;

/// Runs both sides alternately and reports the ratio.
async fn compare(
    bench: &Bench,
    report: &mut Report,
    sides: &Rc<Sides>,
    name: &str,
    count: usize,
    goal: f64,
    operations: Operations,
) -> Result<()> {
    let title = format!("PostgreSQL, {name}, {CLIENTS} clients");
    bench.progress.step(&format!("Measuring {title}"));
    let contender = |name: &str, is_store: bool| {
        let (sides, operations) = (sides.clone(), operations.clone());
        Contender::new(name, move |count| {
            let (sides, operations) = (
                sides.clone(),
                operations(bench, count.next_multiple_of(CLIENTS)),
            );
            Box::pin(async move {
                if is_store {
                    store_round(&sides, operations).await
                } else {
                    raw_round(&sides, operations).await
                }
            })
        })
    };
    let series = alternate(
        vec![contender("tokio-postgres", false), contender("store", true)],
        count,
        bench.scale.rounds,
    )
    .await?;
    let mut section = Section::new(
        &title,
        &format!("{} entries to begin with", bench.scale.store_base),
    );
    section.add(&series[0], None);
    let ratio = series[1].throughput_ratio(&series[0]);
    section.add(&series[1], Some(Ratio::higher(ratio)));
    report.goal(Goal::at_least(
        format!("{title}: over raw SQL"),
        ratio,
        goal,
        "×",
    ));
    report.section(section);
    Ok(())
}

async fn raw_round(sides: &Sides, operations: Vec<Operation>) -> Result<Round> {
    let work = split(operations)
        .into_iter()
        .zip(&sides.raw)
        .map(|(operations, client)| {
            let client = Arc::clone(client);
            let first = sides
                .next_id
                .replace(sides.next_id.get() + i64::try_from(operations.len()).unwrap_or(i64::MAX));
            async move {
                let mut latencies = Vec::with_capacity(operations.len());
                for (id, operation) in (first..).zip(&operations) {
                    let started = Instant::now();
                    raw_operation(&client, id, operation).await?;
                    latencies.push(started.elapsed());
                }
                Ok(latencies)
            }
        });
    round(sides, work.collect()).await
}

async fn raw_operation(client: &RawClient, id: i64, operation: &Operation) -> Result<Vec<i64>> {
    match operation {
        Operation::Store(row) => client.store(id, row).await.map(|()| vec![id]),
        Operation::Get(id) => client.get(*id).await,
        Operation::Search(agent) => client.search(agent, "active").await,
        Operation::FullText(words) => client.full_text(words).await,
    }
}

async fn store_round(sides: &Sides, operations: Vec<Operation>) -> Result<Round> {
    let work = split(operations).into_iter().map(|operations| {
        let store = Arc::clone(&sides.store);
        let requests: Vec<Request> = operations.into_iter().map(Request::new).collect();
        async move {
            let mut latencies = Vec::with_capacity(requests.len());
            for request in requests {
                let started = Instant::now();
                request.run(&store).await?;
                latencies.push(started.elapsed());
            }
            Ok(latencies)
        }
    });
    round(sides, work.collect()).await
}

async fn round<W>(sides: &Sides, work: Vec<W>) -> Result<Round>
where
    W: Future<Output = Result<Vec<Duration>>> + Send + 'static,
{
    let started = Instant::now();
    let clients: Vec<_> = work
        .into_iter()
        .map(|work| sides.runtime.spawn(work))
        .collect();
    let mut latencies = Vec::new();
    for client in clients {
        latencies.extend(client.await??);
    }
    Ok(Round {
        elapsed: started.elapsed(),
        latencies,
        ..Round::default()
    })
}

fn split(operations: Vec<Operation>) -> Vec<Vec<Operation>> {
    let mut clients = vec![Vec::new(); CLIENTS];
    for (at, operation) in operations.into_iter().enumerate() {
        clients[at % CLIENTS].push(operation);
    }
    clients
}

/// A request in the form in which the engine passes it to the store.
enum Request {
    Store(NewEntry),
    Get(i64),
    Search(Filter),
    FullText(FtsSearch),
}

impl Request {
    fn new(operation: Operation) -> Self {
        let field = |name: &str, value: &str| Condition {
            path: MetadataPath::parse(name).unwrap_or_else(|| unreachable!("{name} is a path")),
            comparison: Comparison::Eq {
                value: Scalar::Text(value.to_owned()),
                case_sensitive: false,
            },
        };
        match operation {
            Operation::Store(row) => Self::Store(new_entry(row.entry)),
            Operation::Get(id) => Self::Get(id),
            Operation::Search(agent) => {
                let conditions = vec![field("agent_name", &agent), field("status", "active")];
                Self::Search(Filter {
                    conditions,
                    ..Filter::default()
                })
            }
            Operation::FullText(words) => {
                // All words are required. Match mode would fall back to any of them in a small corpus.
                let query = parse(Mode::Boolean, &words, &Analyzer::new(Language::English))
                    .ok()
                    .flatten();
                let query = query.unwrap_or_else(|| unreachable!("the corpus has words"));
                Self::FullText(FtsSearch {
                    query,
                    ranking_cap: u32::try_from(RANKING_CAP).unwrap_or(u32::MAX),
                    context_weight: 0.0,
                })
            }
        }
    }

    async fn run(self, store: &PostgresStore) -> Result<Vec<i64>> {
        let owner = OwnerId::default();
        let page = Page {
            limit: u32::try_from(PAGE)?,
            offset: 0,
        };
        let short = RowSelection {
            text_chars: Some(301),
            ..SELECTION
        };
        Ok(match self {
            Self::Store(entry) => {
                let stored = store
                    .store_contexts(&owner, vec![entry], true, options())
                    .await?;
                stored
                    .outcome
                    .items
                    .into_iter()
                    .filter_map(|item| item.ok().map(|item| item.id))
                    .collect()
            }
            Self::Get(id) => {
                let found = store
                    .get_contexts(&owner, vec![id], SELECTION, Read::default())
                    .await?;
                found.entries.into_iter().map(|entry| entry.id).collect()
            }
            Self::Search(filter) => {
                let found = store
                    .search_contexts(&owner, filter, page, short, Read::default())
                    .await?;
                found.entries.into_iter().map(|entry| entry.id).collect()
            }
            Self::FullText(search) => {
                let found = store
                    .fts_search(
                        &owner,
                        search,
                        Filter::default(),
                        page,
                        short,
                        Read::default(),
                    )
                    .await?;
                found.entries.into_iter().map(|hit| hit.entry.id).collect()
            }
        })
    }
}

async fn run_raw(sides: &Sides, operation: &Operation) -> Result<Vec<i64>> {
    let (client, operation, id) = (
        Arc::clone(&sides.raw[0]),
        operation.clone(),
        sides.next_id.replace(sides.next_id.get() + 1),
    );
    on(&sides.runtime, async move {
        raw_operation(&client, id, &operation).await
    })
    .await
}

async fn run_on_store(sides: &Sides, operation: &Operation) -> Result<Vec<i64>> {
    let (store, request) = (Arc::clone(&sides.store), Request::new(operation.clone()));
    on(&sides.runtime, async move { request.run(&store).await }).await
}

async fn on<T: Send + 'static>(
    runtime: &Threads,
    work: impl Future<Output = Result<T>> + Send + 'static,
) -> Result<T> {
    runtime.spawn(work).await?
}

fn config(url: &str) -> Result<Config> {
    let mut config = Config::new(Target::parse(url)?);
    config.pool_size = CLIENTS;
    config.indexed_fields = FIELDS.map(str::to_owned).to_vec();
    Ok(config)
}

fn options() -> WriteOptions {
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap_or_default();
    let now = Timestamp(i64::try_from(now.as_micros()).unwrap_or(i64::MAX));
    WriteOptions {
        now,
        idempotency: None,
        key_id: None,
        embeddings: Vec::new(),
    }
}

fn new_entry(entry: Entry) -> NewEntry {
    let Entry {
        thread_id,
        source,
        text,
        metadata,
        tags,
        image: _,
    } = entry;
    NewEntry {
        thread_id: ThreadId::from_stored(thread_id),
        source: if source == "user" {
            Source::User
        } else {
            Source::Agent
        },
        text,
        images: None,
        metadata: Some(Metadata::from_stored(metadata.into_iter().collect())),
        tags: Some(Tags::parse(tags, "tags", &mut Violations::default())),
    }
}

fn new_row(bench: &Bench, at: usize, stored: &Cell<u64>) -> Row {
    let n = stored.replace(stored.get() + 1);
    let mut entry = bench.corpus.entry(bench.scale.store_base + n);
    entry.thread_id = format!(
        "client-{:02}-{:04}",
        at % CLIENTS,
        n / (100 * CLIENTS as u64)
    );
    Row::new(entry)
}

/// Fills a database through the store, and closes it.
async fn load(bench: &Bench, url: &str) -> Result<Vec<i64>> {
    let store = PostgresStore::open(config(url)?).await?;
    let (mut ids, mut from) = (Vec::new(), 0);
    while from < bench.scale.store_base {
        bench
            .progress
            .part("Loading PostgreSQL", from, bench.scale.store_base);
        let to = bench.scale.store_base.min(from + 100);
        let entries = (from..to)
            .map(|n| new_entry(bench.corpus.entry(n)))
            .collect();
        let stored = store
            .store_contexts(&OwnerId::default(), entries, true, options())
            .await?;
        ids.extend(
            stored
                .outcome
                .items
                .into_iter()
                .filter_map(|item| item.ok().map(|item| item.id)),
        );
        from = to;
    }
    store.close().await;
    Ok(ids)
}

async fn raw_next_id(url: &str) -> Result<i64> {
    let row = connect(url)
        .await?
        .query_one(
            "SELECT next_id FROM context.owner_ids WHERE owner_id = 'default'",
            &[],
        )
        .await?;
    Ok(row.try_get(0)?)
}

/// Checks that both sides write the same row for the same entry, except for the checksum and the context keywords of
/// hybrid search: the floor writes no `seal`, sets no weights on words and writes no `context`, so the store does this
/// additional work.
async fn same_last_row(urls: &[String; 2]) -> Result<()> {
    let mut rows = Vec::new();
    for url in urls {
        let last = "SELECT thread_id || source || tags::text || metadata::text || metadata_folded::text || setweight(words, 'D')::text || text \
                    FROM context.entries ORDER BY created_at DESC, id DESC LIMIT 1";
        rows.push(
            connect(url)
                .await?
                .query_one(last, &[])
                .await?
                .try_get::<_, String>(0)?,
        );
    }
    if rows[0] == rows[1] {
        Ok(())
    } else {
        Err(format!("the store left {}, SQL left {}", rows[0], rows[1]).into())
    }
}

/// Checks that both sides stored the same number of entries and of related rows.
async fn same_counts(urls: &[String; 2]) -> Result<()> {
    let mut sums = Vec::new();
    for url in urls {
        let sum = "SELECT count(*) || ' ' || (SELECT revision || ' ' || entry_count FROM context.owners) || ' ' || \
                   (SELECT count(*) FROM context.changes) FROM context.entries";
        sums.push(
            connect(url)
                .await?
                .query_one(sum, &[])
                .await?
                .try_get::<_, String>(0)?,
        );
    }
    if sums[0] == sums[1] {
        Ok(())
    } else {
        Err(format!("the store left {}, SQL left {}", sums[0], sums[1]).into())
    }
}

/// Replaces the name of the database in a PostgreSQL URL. Its parameters stay.
pub(super) fn with_database(url: &str, database: &str) -> String {
    let (url, parameters) = url.split_at(url.find('?').unwrap_or(url.len()));
    let authority = url.find("://").map_or(0, |at| at + 3);
    let end = url[authority..]
        .find('/')
        .map_or(url.len(), |at| authority + at);
    format!("{}/{database}{parameters}", &url[..end])
}
