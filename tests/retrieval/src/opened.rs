//! A database that is filled with a set, and the engine's settings for it.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use context_engine::{
    Caller, Engine, EngineConfig, RerankConfig, SearchConfig, Switch, WriteContext,
};
use context_model::{StoreContextBatchRequest, StoreContextRequest};
use context_providers::Embedder;
use context_store::{ContextWindow, OwnerId, Read, Store};
use context_store_postgres::{Config as PostgresConfig, PostgresStore, Target};
use context_store_sqlite::{Config, SqliteStore};

use crate::backend::{Backend, Entries, Local, Setup};
use crate::cli::Cli;
use crate::clock::SetClock;
use crate::error::Error;
use crate::measure::Scores;
use crate::method::Method;
use crate::set::Set;

/// Maximum number of entries stored together.
const BATCH: usize = 100;

/// A database with the entries of a set.
pub struct Opened {
    pub entries: Entries,
    /// The key of each entry, by its id.
    pub keys: Vec<String>,
    pub config: EngineConfig,
    pub context_weight: f64,
    /// How long storing the entries took.
    pub seconds: f64,
    /// Contains the database.
    _directory: tempfile::TempDir,
}

impl Opened {
    /// Stores the entries of a set in a new database.
    pub async fn fill(
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
            None => Entries::Local(Box::new(local)),
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
    pub async fn evaluate(
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
                .hits
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

    pub async fn close(self) {
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
            cache_mb: cli.rerank_cache_mb,
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
        ("RERANK_CACHE_MB", cli.rerank_cache_mb.to_string()),
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
