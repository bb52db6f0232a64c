//! Measures the time and recall of semantic search in PostgreSQL: without a filter for several values of `ef_search`,
//! and with filters for the default. Each search alternates with a similar SQL statement without the store.
//!
//! ```sh
//! cargo run --release --package context-store-postgres --example nearest -- 100000 384 [ORIGINALS [NOISE]]
//! ```
//!
//! CONTEXT_TEST_POSTGRES_URL names a server, on which a database is created for the run. ORIGINALS is a number of
//! random directions, more than 100 (default 1000), or a file of 32-bit little-endian floats, one vector after the
//! other. If there are fewer originals than vectors, the other vectors are copies of originals, perturbed by a vector
//! of length NOISE (default 0.5) and scaled to length 1 again. Queries are originals that are not stored, and new
//! copies of stored ones.
#![expect(clippy::print_stdout, reason = "it prints what it measured")]
#![expect(clippy::disallowed_methods, reason = "it measures time")]

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use context_model::{Filter, Tags, ThreadId};
use context_store::{
    EmbeddingModel, OwnerId, RankSearch, Read, SemanticSearch, Store as _, VectorStore as _,
};
use context_store_postgres::{Config, PostgresStore, Target};
use context_test_postgres::{Client, TestDatabase};
use tokio_postgres::{Row, Statement};

/// Number of queries in a run.
const QUERIES: usize = 100;
/// Number of results that are compared.
const WANTED: usize = 10;
/// Depth of the ranking that the engine requests for a page of ten results.
const DEPTH: u32 = 64;
/// Tags with a number n each. Every n-th entry has the tag.
const SHARES: [(&str, usize); 5] = [
    ("half", 2),
    ("tenth", 10),
    ("twentieth", 20),
    ("hundredth", 100),
    ("thousandth", 1000),
];

/// Values of `ef_search` that are compared.
const EF_SEARCH: [u32; 4] = [100, 200, 400, 800];
/// The name of the case without a filter.
const ALL: &str = "all";
/// The name of the case that filters by one of [`THREADS`] threads of equal size.
const THREAD: &str = "thread";
const THREADS: usize = 50;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let count: usize = arguments.next().map_or(Ok(20_000), |count| count.parse())?;
    let dimensions: usize = arguments
        .next()
        .map_or(Ok(384), |dimensions| dimensions.parse())?;
    let mut random = Random(7);
    let originals = arguments.next().unwrap_or_else(|| "1000".to_owned());
    let originals = match originals.parse::<usize>() {
        Ok(originals) => (0..originals)
            .map(|_| random.direction(dimensions))
            .collect(),
        Err(_) => read(&std::fs::read(originals)?, dimensions),
    };
    let noise: f32 = arguments.next().map_or(Ok(0.5), |noise| noise.parse())?;
    let Vectors {
        stored,
        originals,
        new,
        copies,
    } = vectors(originals, count, noise, &mut random);
    println!(
        "{count} vectors of {dimensions} dimensions: {originals} originals, the others copies with noise {noise}; {} queries, the nearest {WANTED}",
        new.len()
    );
    let database = TestDatabase::empty().await.ok_or("there is no server")?;
    let config = Config::new(Target::parse(database.url())?);
    let store = PostgresStore::open(config.clone()).await?;
    let model = EmbeddingModel {
        identity: "example".to_owned(),
        dimensions: u32::try_from(dimensions)?,
    };
    store.use_model(&model).await?;
    let client = database.connect().await;
    let started = Instant::now();
    fill(&client, &stored).await?;
    println!("filled in {:.1} s", started.elapsed().as_secs_f64());
    let started = Instant::now();
    store.maintain().await?;
    println!("index built in {:.1} s", started.elapsed().as_secs_f64());
    client
        .batch_execute("ANALYZE context.entries; ANALYZE context.chunks")
        .await?;
    for (kind, queries) in [("new", &new), ("copies", &copies)] {
        let exact = exact(queries, &stored, 1);
        for ef_search in EF_SEARCH {
            let mut config = config.clone();
            config.ef_search = ef_search;
            let store = PostgresStore::open(config).await?;
            println!("queries: {kind}, ef_search: {ef_search}");
            let case = Case {
                client: &client,
                model: &model,
                queries,
                exact: &exact,
                name: ALL,
                ef_search,
            };
            case.run(&store).await?;
            store.close().await;
        }
    }
    println!("queries: new, ef_search: {}", config.ef_search);
    for (name, every) in [(THREAD, THREADS)].into_iter().chain(SHARES) {
        let exact = exact(&new, &stored, every);
        let case = Case {
            client: &client,
            model: &model,
            queries: &new,
            exact: &exact,
            name,
            ef_search: config.ef_search,
        };
        case.run(&store).await?;
    }
    store.close().await;
    Ok(())
}

/// Queries with one filter or with none.
struct Case<'c> {
    client: &'c Client,
    model: &'c EmbeddingModel,
    queries: &'c [Vec<f32>],
    /// The ids of the nearest entries of each query.
    exact: &'c [Vec<i64>],
    name: &'static str,
    ef_search: u32,
}

impl Case<'_> {
    /// Runs the store and the bare statement alternately, and prints the times and the recall of both.
    async fn run(&self, store: &PostgresStore) -> Result<(), Box<dyn std::error::Error>> {
        let Self {
            client,
            model,
            queries,
            exact,
            name,
            ef_search,
        } = *self;
        let owner = OwnerId::default();
        let filter = match name {
            ALL => Filter::default(),
            THREAD => Filter {
                thread_id: Some(ThreadId::from_stored("t0".to_owned())),
                ..Filter::default()
            },
            _ => Filter {
                tags: Some(Tags::from_normalised(vec![name.to_owned()])),
                ..Filter::default()
            },
        };
        let search = |query: &Vec<f32>, explain| {
            let semantic = Some(SemanticSearch {
                model: model.clone(),
                vector: query.clone(),
            });
            let search = RankSearch {
                kind: context_store::DocumentKind::Context,
                fts: None,
                semantic,
                depth: DEPTH,
                exact: DEPTH,
                boundaries: &[],
                explain,
            };
            store.rank(&owner, search, filter.clone(), Read::default())
        };
        let plan = search(&queries[0], true).await?.plan;
        let way = if plan.iter().any(|line| line.contains("from the index")) {
            Way::Index
        } else {
            Way::Exact
        };
        let dimensions = usize::try_from(model.dimensions)?;
        let bare = Bare::new(client, dimensions, name, ef_search, way).await?;
        let (mut by_store, mut by_statement) = (Measured::default(), Measured::default());
        // The first round fills the server's cache. The two alternate, so that other load of the machine affects both.
        // They use different queries, so that neither finds in the cache what the other has just read.
        for place in 0..2 * queries.len() {
            let (query, other) = (
                place % queries.len(),
                (place + queries.len() / 2) % queries.len(),
            );
            let started = Instant::now();
            let ranking = search(&queries[query], false).await?;
            let (time, text) = (started.elapsed(), format!("{:?}", queries[other]));
            let started = Instant::now();
            let rows = bare.search(&text).await?;
            if place >= queries.len() {
                by_statement.add(other, started.elapsed(), rows.iter().map(|row| row.get(0)));
                by_store.add(query, time, ranking.semantic.iter().map(|hit| hit.id));
            }
        }
        println!("{name:>12}: store     {}", by_store.shown(exact));
        println!(
            "{name:>12}: statement {}  {}",
            by_statement.shown(exact),
            way.name()
        );
        Ok(())
    }
}

/// How a search finds the nearest vectors.
#[derive(Clone, Copy)]
enum Way {
    Index,
    Exact,
}

impl Way {
    const fn name(self) -> &'static str {
        match self {
            Self::Index => "through the index",
            Self::Exact => "comparing all",
        }
    }
}

/// The search as one prepared statement, in a transaction with the same settings. Only `hnsw.max_scan_tuples` is always
/// the largest value that the store sets.
struct Bare<'c> {
    client: &'c Client,
    statement: Statement,
    begin: String,
}

impl<'c> Bare<'c> {
    async fn new(
        client: &'c Client,
        dimensions: usize,
        name: &str,
        ef_search: u32,
        way: Way,
    ) -> Result<Self, Box<dyn std::error::Error>> {
        let filter = match name {
            ALL => String::new(),
            THREAD => "AND e.thread_id = 't0'".to_owned(),
            tag => {
                format!("AND e.tags && ARRAY['{tag}'] AND ARRAY[e.owner_id] @> ARRAY['default']")
            }
        };
        let join = if filter.is_empty() {
            ""
        } else {
            "JOIN context.entries AS e ON e.owner_id = c.owner_id AND e.id = c.id"
        };
        let order = match way {
            Way::Index => format!(
                "c.embedding::halfvec({dimensions}) <-> (SELECT $1::text::halfvec({dimensions}))"
            ),
            Way::Exact => "c.embedding <-> (SELECT $1::text::vector)".to_owned(),
        };
        let statement = client
            .prepare(&format!(
                "SELECT near.id, near.embedding <-> (SELECT $1::text::vector) AS distance FROM (SELECT c.id, c.embedding FROM context.chunks AS c {join} \
                 WHERE c.set_id = 1 AND c.owner_id = 'default' {filter} ORDER BY {order} LIMIT {}) AS near ORDER BY distance, near.id DESC",
                DEPTH + DEPTH / 2
            ))
            .await?;
        let settings = match way {
            Way::Index => format!(
                "max_parallel_workers_per_gather = 0; SET LOCAL hnsw.iterative_scan = relaxed_order; \
                 SET LOCAL hnsw.ef_search = {ef_search}; SET LOCAL hnsw.max_scan_tuples = 400000; \
                 SET LOCAL hnsw.scan_mem_multiplier = 8; SET LOCAL enable_sort = off"
            ),
            Way::Exact => "max_parallel_workers_per_gather = 0".to_owned(),
        };
        let begin = format!(
            "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SET LOCAL jit = off; SET LOCAL {settings}"
        );
        Ok(Self {
            client,
            statement,
            begin,
        })
    }

    async fn search(&self, query: &str) -> Result<Vec<Row>, Box<dyn std::error::Error>> {
        self.client.batch_execute(&self.begin).await?;
        let rows = self.client.query(&self.statement, &[&query]).await?;
        self.client.batch_execute("COMMIT").await?;
        Ok(rows)
    }
}

/// The results of each query, and the duration of each search.
#[derive(Default)]
struct Measured {
    found: BTreeMap<usize, Vec<i64>>,
    times: Vec<Duration>,
}

impl Measured {
    fn add(&mut self, query: usize, time: Duration, found: impl Iterator<Item = i64>) {
        self.times.push(time);
        self.found.insert(query, found.take(WANTED).collect());
    }

    fn shown(&self, exact: &[Vec<i64>]) -> String {
        shown(&self.times, recall(&self.found, exact))
    }
}

async fn fill(client: &Client, vectors: &[Vec<f32>]) -> Result<(), Box<dyn std::error::Error>> {
    let count = i64::try_from(vectors.len())?;
    client
        .execute(
            "INSERT INTO context.owners VALUES ('default', 1, $1, $1, 0, 0, 0, 1)",
            &[&count],
        )
        .await?;
    let tags: String = SHARES
        .iter()
        .map(|(tag, every)| {
            format!(" || CASE WHEN i % {every} = 0 THEN ARRAY['{tag}'] ELSE ARRAY[]::text[] END")
        })
        .collect();
    let entries = format!(
        "INSERT INTO context.entries SELECT 'default', i, 't' || i % {THREADS}, 'user', 0, 1, i, i, ARRAY[]::text[]{tags}, '', '{{}}', '{{}}', '', \
         false, 'text' FROM generate_series(1, $1::bigint) AS i"
    );
    client.execute(&entries, &[&count]).await?;
    for (part, first) in vectors.chunks(2_000).zip((0i64..).step_by(2_000)) {
        let texts: Vec<String> = part.iter().map(|vector| format!("{vector:?}")).collect();
        let chunks = "INSERT INTO context.chunks SELECT 'default', $1 + v.place, 1, 0, 0, 4, v.text::vector \
                      FROM unnest($2::text[]) WITH ORDINALITY AS v(text, place)";
        client.execute(chunks, &[&first, &texts]).await?;
    }
    Ok(())
}

fn read(bytes: &[u8], dimensions: usize) -> Vec<Vec<f32>> {
    let value = |bytes: &[u8]| f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    bytes
        .chunks_exact(dimensions * 4)
        .map(|bytes| normalised(bytes.chunks_exact(4).map(value).collect()))
        .collect()
}

fn normalised(mut vector: Vec<f32>) -> Vec<f32> {
    let length = vector.iter().map(|value| value * value).sum::<f32>().sqrt();
    vector.iter_mut().for_each(|value| *value /= length);
    vector
}

struct Vectors {
    stored: Vec<Vec<f32>>,
    /// How many of them are originals.
    originals: usize,
    /// Queries that are originals and not stored.
    new: Vec<Vec<f32>>,
    /// Queries that are copies of stored originals.
    copies: Vec<Vec<f32>>,
}

fn vectors(base: Vec<Vec<f32>>, count: usize, noise: f32, random: &mut Random) -> Vectors {
    let step = (base.len() / QUERIES).max(1);
    let (mut new, mut stored) = (Vec::new(), Vec::new());
    for (place, vector) in base.into_iter().enumerate() {
        if place % step == 0 && new.len() < QUERIES {
            new.push(vector)
        } else {
            stored.push(vector)
        }
    }
    stored.truncate(count);
    let originals = stored.len();
    let mut copy = |stored: &[Vec<f32>]| {
        let original = &stored[random.below(originals)];
        let perturbation = random.direction(original.len());
        normalised(
            original
                .iter()
                .zip(perturbation)
                .map(|(value, perturbation)| value + noise * perturbation)
                .collect(),
        )
    };
    while stored.len() < count {
        let copy = copy(&stored);
        stored.push(copy);
    }
    let copies = (0..new.len()).map(|_| copy(&stored)).collect();
    Vectors {
        stored,
        originals,
        new,
        copies,
    }
}

/// The nearest entries of each query among the entries whose id is a multiple of `every`.
fn exact(queries: &[Vec<f32>], vectors: &[Vec<f32>], every: usize) -> Vec<Vec<i64>> {
    let nearest = |query: &Vec<f32>| {
        let squared = |vector: &[f32]| {
            vector
                .iter()
                .zip(query)
                .map(|(a, b)| (a - b) * (a - b))
                .sum::<f32>()
        };
        let mut found: Vec<(f32, usize)> = (1..=vectors.len())
            .filter(|id| id % every == 0)
            .map(|id| (squared(&vectors[id - 1]), id))
            .collect();
        found.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
        let ids = found.into_iter().take(WANTED);
        ids.map(|(_, id)| i64::try_from(id).unwrap_or(0)).collect()
    };
    queries.iter().map(nearest).collect()
}

fn recall(found: &BTreeMap<usize, Vec<i64>>, exact: &[Vec<i64>]) -> f64 {
    let hits: usize = found
        .values()
        .zip(exact)
        .map(|(found, exact)| exact.iter().filter(|entry| found.contains(entry)).count())
        .sum();
    hits as f64 / exact.iter().map(Vec::len).sum::<usize>().max(1) as f64
}

fn shown(times: &[Duration], recall: f64) -> String {
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    let at = |share: f64| sorted[((sorted.len() - 1) as f64 * share) as usize].as_secs_f64() * 1e3;
    format!(
        "p50 {:8.3} ms  p99 {:8.3} ms  recall {recall:.4}",
        at(0.5),
        at(0.99)
    )
}

/// A small generator with a fixed seed, so that runs are comparable.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        // Vigna, xorshift64*.
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    /// A random direction. Sums of uniform numbers are close enough to normally distributed ones.
    fn direction(&mut self, dimensions: usize) -> Vec<f32> {
        let mut uniform = || (self.next() >> 40) as f32 / (1u32 << 24) as f32 - 0.5;
        normalised(
            (0..dimensions)
                .map(|_| uniform() + uniform() + uniform() + uniform())
                .collect(),
        )
    }
}
