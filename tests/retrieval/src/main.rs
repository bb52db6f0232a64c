//! `retrieval-eval` measures how many of the relevant entries each search finds.
//!
//! It reads entries and questions with their relevant entries (`data/README.md` describes the format), stores the
//! entries in a new database, runs every question with every search, and prints a table. Searches run in this process,
//! or over gRPC or MCP on services that it starts on that database, one for each combination of settings in the table.
//! The entries are always stored in this process, because only its clock can be set.

#![expect(
    clippy::disallowed_methods,
    reason = "it measures how long searches take"
)]
#![expect(clippy::print_stdout, reason = "it prints what it measured")]

mod backend;
mod clock;
mod error;
mod measure;
mod method;
mod relevance;
mod set;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Parser;
use context_engine::{
    Caller, Engine, EngineConfig, RerankConfig, SearchConfig, Switch, WriteContext,
};
use context_model::{StoreContextBatchRequest, StoreContextRequest};
use context_providers::Embedder;
use context_providers::local::{ChunkWish, LocalEmbedder, ModelDirectory};
use context_store::{ContextWindow, OwnerId, Read, Store};
use context_store_postgres::{Config as PostgresConfig, PostgresStore, Target};
use context_store_sqlite::{Config, SqliteStore};

use crate::backend::{Backend, Entries, Local, Setup, Transport};
use crate::clock::SetClock;
use crate::error::Error;
use crate::measure::Scores;
use crate::method::Method;
use crate::set::{Half, Set};

/// Maximum number of entries stored together.
const BATCH: usize = 100;

/// Measures how many of the relevant entries each search finds.
#[derive(Debug, Parser)]
#[command(version, max_term_width = 100)]
struct Cli {
    /// The entries and questions, as JSON lines; a directory stands for the sets in it, and several sets give a summary
    #[arg(value_name = "SET", default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/data/long-chats.jsonl"))]
    sets: Vec<PathBuf>,
    /// Use one half of each set's questions: tune defaults on one, and check them once on the other
    #[arg(long, value_enum, default_value = "all")]
    half: Half,
    /// Print the summary also for one set
    #[arg(long)]
    summary: bool,
    /// Measure relevance instead: whether it tells answerable questions from questions about other topics
    #[arg(long)]
    relevance: bool,
    /// The directory of the embedding model
    #[arg(long, env = "EMBEDDING_MODEL_PATH")]
    model: Option<PathBuf>,
    /// Where to run the searches; the results are the same everywhere
    #[arg(long, value_enum, default_value = "in-process")]
    over: Transport,
    /// Skip searches with reranking, which take the longest
    #[arg(long)]
    without_reranking: bool,
    /// Run only the searches with this text in their name; may be given several times
    #[arg(long, value_name = "TEXT")]
    only: Vec<String>,
    /// Same as the service's setting RERANK_BUDGET_MS, but high enough by default that every candidate is encoded
    #[arg(long, default_value_t = 60_000)]
    rerank_budget_ms: u32,
    /// Same as the service's setting RERANK_STORE_TOKENS
    #[arg(long)]
    store_tokens: bool,
    /// An empty PostgreSQL database to use instead of an SQLite file; the entries stay in it
    #[arg(long, value_name = "URL")]
    postgres: Option<String>,
    /// Search all threads, even when a question names one
    #[arg(long)]
    all_threads: bool,
    /// Same as the service's setting
    #[arg(long, env = "HYBRID_RRF_K")]
    hybrid_rrf_k: Option<u32>,
    /// Same as the service's setting
    #[arg(long, env = "HYBRID_RANK_WINDOW")]
    hybrid_rank_window: Option<u32>,
    /// Same as the service's setting
    #[arg(long, env = "HYBRID_CONTEXT_WEIGHT")]
    hybrid_context_weight: Option<f64>,
    /// Same as the service's setting
    #[arg(long, env = "RERANK_CONTEXT_WEIGHT")]
    rerank_context_weight: Option<f64>,
    /// Same as the service's setting
    #[arg(long, env = "CONTEXT_NEIGHBOURS")]
    context_neighbours: Option<u32>,
    /// Same as the service's setting
    #[arg(long, env = "CONTEXT_GAP_MINUTES")]
    context_gap_minutes: Option<u64>,
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let cli = Cli::parse();
    let paths = set::files(&cli.sets)?;
    let embedder = load(cli.model.clone()).await?;
    if cli.relevance {
        let embedder = embedder.ok_or("relevance needs a model (--model)")?;
        return relevance::report(&cli, &paths, &embedder).await;
    }
    if paths.len() == 1 && !cli.summary {
        let set = Set::read(&paths[0])?.of(cli.half);
        return rows(&cli, &set, embedder.as_ref()).await;
    }
    summary(&cli, &paths, embedder.as_ref()).await
}

/// Prints a row for each search.
async fn rows(cli: &Cli, set: &Set, embedder: Option<&Arc<dyn Embedder>>) -> Result<(), Error> {
    let opened = Opened::fill(cli, set, embedder).await?;
    let defaults = &opened.config;
    println!(
        "{} entries, {} questions; stored in {:.1} s",
        set.entries.len(),
        set.questions.len(),
        opened.seconds
    );
    let weight = opened.context_weight;
    let (k, window) = (
        defaults.search.hybrid_rrf_k,
        defaults.search.hybrid_rank_window,
    );
    let rerank_context = defaults.rerank.context_weight;
    println!(
        "HYBRID_RRF_K={k} HYBRID_RANK_WINDOW={window} HYBRID_CONTEXT_WEIGHT={weight} RERANK_CONTEXT_WEIGHT={rerank_context}"
    );
    println!(
        "{:<26} {:>7} {:>7} {:>8} {:>7} {:>8}",
        "", "R@5", "R@10", "nDCG@10", "MRR", "p50 ms"
    );
    let setup = |reranking, context_weight| Setup {
        reranking,
        context_weight,
    };
    let (plain, reranking, no_context) = (
        setup(Switch::False, weight),
        setup(Switch::Auto, weight),
        setup(Switch::False, 0.0),
    );
    let mut open: Option<(Setup, Backend)> = None;
    for (name, method, setup) in [
        ("fts", Method::Fts, plain),
        ("fts, reranked", Method::Fts, reranking),
        ("hybrid by words alone", Method::HybridWords, plain),
        ("semantic", Method::Semantic, plain),
        ("semantic, reranked", Method::Semantic, reranking),
        ("hybrid rrf, no context", Method::Hybrid, no_context),
        ("hybrid rrf", Method::Hybrid, plain),
        ("hybrid rrf, reranked", Method::Hybrid, reranking),
        (
            "hybrid convex, no context",
            Method::HybridConvex,
            no_context,
        ),
        ("hybrid convex", Method::HybridConvex, plain),
        ("hybrid convex, reranked", Method::HybridConvex, reranking),
    ] {
        if cli.without_reranking && name.ends_with("reranked")
            || !cli.only.is_empty() && !cli.only.iter().any(|part| name.contains(part))
        {
            continue;
        }
        let needs_model = method.needs_model() || name.ends_with("reranked");
        if needs_model && cli.model.is_none() {
            println!("{name:<26} needs a model (--model)");
            continue;
        }
        let mut backend = match open.take() {
            Some((same, backend)) if same == setup => backend,
            other => {
                if let Some((_, backend)) = other {
                    backend.close().await;
                }
                opened.entries.open(setup).await?
            }
        };
        let (scores, median) = opened
            .evaluate(&mut backend, method, set, cli.all_threads)
            .await?;
        open = Some((setup, backend));
        println!("{name:<26} {scores} {median:>8.1}");
    }
    if let Some((_, backend)) = open {
        backend.close().await;
    }
    opened.close().await;
    Ok(())
}

/// Prints a line for each set: R@10 and nDCG@10 of each retriever, of hybrid search, and of hybrid search reranked.
async fn summary(
    cli: &Cli,
    paths: &[PathBuf],
    embedder: Option<&Arc<dyn Embedder>>,
) -> Result<(), Error> {
    if embedder.is_none() {
        return Err("several sets need a model (--model)".into());
    }
    println!("| set | entries | questions | fts | semantic | hybrid | hybrid reranked |");
    println!("|---|---|---|---|---|---|---|");
    for path in paths {
        let set = Set::read(path)?.of(cli.half);
        let opened = Opened::fill(cli, &set, embedder).await?;
        let setup = |reranking| Setup {
            reranking,
            context_weight: opened.context_weight,
        };
        let mut cells = Vec::new();
        for (method, reranking) in [
            (Method::Fts, Switch::False),
            (Method::Semantic, Switch::False),
            (Method::Hybrid, Switch::False),
            (Method::Hybrid, Switch::Auto),
        ] {
            let mut backend = opened.entries.open(setup(reranking)).await?;
            let (scores, _) = opened
                .evaluate(&mut backend, method, &set, cli.all_threads)
                .await?;
            backend.close().await;
            cells.push(scores.recall_and_ndcg());
        }
        opened.close().await;
        println!(
            "| {} | {} | {} | {} |",
            name(path),
            set.entries.len(),
            set.questions.len(),
            cells.join(" | ")
        );
    }
    Ok(())
}

/// The name of a set's file without its extension.
fn name(path: &Path) -> String {
    path.file_stem()
        .map_or_else(String::new, |stem| stem.to_string_lossy().into_owned())
}

/// Loads the embedding model.
async fn load(path: Option<PathBuf>) -> Result<Option<Arc<dyn Embedder>>, Error> {
    let Some(path) = path else { return Ok(None) };
    let model = ModelDirectory::new(path, None);
    let loaded = tokio::task::spawn_blocking(move || {
        LocalEmbedder::load(&model, model.prefixes()?, ChunkWish::default())
    })
    .await?;
    Ok(Some(Arc::new(loaded?)))
}

/// A database with the entries of a set.
struct Opened {
    entries: Entries,
    /// The key of each entry, by its id.
    keys: Vec<String>,
    config: EngineConfig,
    context_weight: f64,
    /// How long storing the entries took.
    seconds: f64,
    /// Contains the database.
    _directory: tempfile::TempDir,
}

impl Opened {
    /// Stores the entries of a set in a new database.
    async fn fill(
        cli: &Cli,
        set: &Set,
        embedder: Option<&Arc<dyn Embedder>>,
    ) -> Result<Self, Error> {
        let directory = tempfile::tempdir()?;
        let database = directory.path().join("contexts.db");
        let defaults = ContextWindow::default();
        let context_window = ContextWindow {
            entries: cli.context_neighbours.unwrap_or(defaults.entries),
            gap: cli.context_gap_minutes.map_or(defaults.gap, |minutes| {
                Duration::from_secs(minutes.saturating_mul(60))
            }),
        };
        let store: Arc<dyn Store> = match &cli.postgres {
            None => Arc::new(SqliteStore::open(Config {
                context_window,
                ..Config::new(&database)
            })?),
            Some(url) => {
                empty(
                    PostgresStore::open(PostgresConfig {
                        context_window,
                        ..PostgresConfig::new(Target::parse(url)?)
                    })
                    .await?,
                )
                .await?
            }
        };
        let config = engine_config(cli, &context_window);
        let context_weight = cli
            .hybrid_context_weight
            .unwrap_or(config.search.hybrid_context_weight);
        let local = Local {
            store,
            clock: Arc::new(SetClock::default()),
            embedder: embedder.cloned(),
            config: config.clone(),
        };
        let started = Instant::now();
        let setup = Setup {
            reranking: Switch::Auto,
            context_weight,
        };
        let keys = fill(&local.engine(setup).await?, &local.clock, set).await?;
        let seconds = started.elapsed().as_secs_f64();
        let entries = match cli.over.remote() {
            None => Entries::Local(local),
            Some(remote) => {
                local.store.close().await;
                // No other process or store may have the database open.
                drop(local);
                Entries::InDatabase(remote, settings(cli, &database, &context_window, &config)?)
            }
        };
        Ok(Self {
            entries,
            keys,
            config,
            context_weight,
            seconds,
            _directory: directory,
        })
    }

    /// The scores of a search over all questions, and its median time in milliseconds.
    async fn evaluate(
        &self,
        backend: &mut Backend,
        method: Method,
        set: &Set,
        all_threads: bool,
    ) -> Result<(Scores, f64), Error> {
        let (mut scores, mut times) = (Scores::default(), Vec::new());
        for question in &set.questions {
            let thread = question.thread_id.clone().filter(|_| !all_threads);
            let request = method.request(&question.text, thread);
            let started = Instant::now();
            let found = backend.search(request).await?;
            times.push(started.elapsed());
            let found: Vec<&str> = found
                .iter()
                .filter_map(|hit| self.keys.get(usize::try_from(hit.id).ok()?))
                .map(String::as_str)
                .collect();
            scores.add(&found, &question.relevant);
        }
        times.sort_unstable();
        let median = times
            .get(times.len() / 2)
            .map_or(0.0, |time| time.as_secs_f64() * 1e3);
        Ok((scores, median))
    }

    async fn close(self) {
        self.entries.close().await;
    }
}

/// The settings of the engine, except for those that differ between the rows.
fn engine_config(cli: &Cli, context_window: &ContextWindow) -> EngineConfig {
    let defaults = EngineConfig::default();
    let (search, rerank) = (&defaults.search, &defaults.rerank);
    EngineConfig {
        search: SearchConfig {
            hybrid_rrf_k: cli.hybrid_rrf_k.unwrap_or(search.hybrid_rrf_k),
            hybrid_rank_window: cli.hybrid_rank_window.unwrap_or(search.hybrid_rank_window),
            ..search.clone()
        },
        rerank: RerankConfig {
            context_weight: cli.rerank_context_weight.unwrap_or(rerank.context_weight),
            context_gap: context_window.gap,
            store_tokens: cli.store_tokens,
            budget_ms: cli.rerank_budget_ms,
            ..*rerank
        },
        ..defaults
    }
}

/// The settings of the services on the database, except for those that differ between the rows.
fn settings(
    cli: &Cli,
    database: &Path,
    context_window: &ContextWindow,
    config: &EngineConfig,
) -> Result<Vec<(&'static str, String)>, Error> {
    let mut settings = vec![
        ("HYBRID_RRF_K", config.search.hybrid_rrf_k.to_string()),
        (
            "HYBRID_RANK_WINDOW",
            config.search.hybrid_rank_window.to_string(),
        ),
        (
            "RERANK_CONTEXT_WEIGHT",
            config.rerank.context_weight.to_string(),
        ),
        ("CONTEXT_NEIGHBOURS", context_window.entries.to_string()),
        (
            "CONTEXT_GAP_MINUTES",
            (context_window.gap.as_secs() / 60).to_string(),
        ),
        ("RERANK_STORE_TOKENS", cli.store_tokens.to_string()),
        ("RERANK_BUDGET_MS", cli.rerank_budget_ms.to_string()),
    ];
    match &cli.postgres {
        None => settings.push(("DB_PATH", database.display().to_string())),
        Some(url) => settings.extend([
            ("STORAGE_BACKEND", "postgresql".to_owned()),
            ("POSTGRESQL_CONNECTION_STRING", url.clone()),
        ]),
    }
    if let Some(model) = &cli.model {
        let path = std::path::absolute(model)?;
        settings.extend([
            ("EMBEDDING_PROVIDER", "local".to_owned()),
            ("EMBEDDING_MODEL_PATH", path.display().to_string()),
        ]);
    }
    Ok(settings)
}

/// The store, if it has no entries yet.
async fn empty(store: PostgresStore) -> Result<Arc<dyn Store>, Error> {
    let statistics = store
        .statistics(&OwnerId::default(), None, Read::default())
        .await?;
    if statistics.total_entries > 0 {
        return Err(format!(
            "the database has {} entries; name an empty one",
            statistics.total_entries
        )
        .into());
    }
    Ok(Arc::new(store))
}

/// Stores the entries. Returns the key of each entry by its id.
async fn fill(engine: &Engine, clock: &SetClock, set: &Set) -> Result<Vec<String>, Error> {
    let mut keys = vec![String::new()];
    let mut rest = set.entries.as_slice();
    while let Some(first) = rest.first() {
        clock.pass(first.pause_minutes);
        // All entries of a batch have the same time.
        let together = rest[1..]
            .iter()
            .take(BATCH - 1)
            .take_while(|entry| entry.pause_minutes == 0)
            .count()
            + 1;
        let (batch, later) = rest.split_at(together);
        rest = later;
        let entries = batch.iter().map(|entry| StoreContextRequest {
            thread_id: entry.thread_id.clone(),
            source: entry.source.clone(),
            text: entry.text.clone(),
            ..StoreContextRequest::default()
        });
        let request = StoreContextBatchRequest {
            entries: entries.collect(),
            atomic: None,
        };
        let reply = engine
            .contexts
            .store_context_batch(&Caller::local(), request, WriteContext::default())
            .await
            .map_err(|error| error.message)?;
        for (result, entry) in reply.results.iter().zip(batch) {
            let id = result
                .context_id
                .and_then(|id| usize::try_from(id).ok())
                .ok_or("an entry got no id")?;
            keys.resize(keys.len().max(id + 1), String::new());
            keys[id].clone_from(&entry.key);
        }
    }
    Ok(keys)
}
