//! `retrieval-eval`: how much of what answers a question each search finds.
//!
//! Reads entries and questions with their relevant entries (`data/README.md` has the format), stores the entries in a
//! fresh database, asks every question of every search, in process, and prints a table.

#![expect(clippy::print_stdout, reason = "it prints what it measured")]

mod measure;
mod set;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use clap::Parser;
use context_engine::{Caller, Engine, EngineConfig, Switch, SystemClock, WriteContext};
use context_model::{
    FtsSearchContextRequest, HybridSearchContextRequest, SearchHit, SemanticSearchContextRequest, StoreContextBatchRequest,
    StoreContextRequest,
};
use context_providers::Embedder;
use context_providers::local::{ChunkWish, LocalEmbedder, ModelDirectory, Prefixes};
use context_store::Store;
use context_store_sqlite::{Config, SqliteStore};

use crate::measure::Scores;
use crate::set::{Question, Set};

/// Any failure; an evaluation ends at the first.
type Error = Box<dyn std::error::Error + Send + Sync>;

/// Results that are looked at.
const LIMIT: i64 = 20;
/// Entries stored together, at most.
const BATCH: usize = 100;

/// Measures how much of what answers a question each search finds.
#[derive(Debug, Parser)]
#[command(version, max_term_width = 100)]
struct Cli {
    /// The entries and questions, as JSON lines
    #[arg(default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/data/team-chat.jsonl"))]
    set: PathBuf,
    /// The directory of the embedding model
    #[arg(long, env = "EMBEDDING_MODEL_PATH")]
    model: Option<PathBuf>,
}

/// A way of searching.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Fts,
    Semantic,
    Hybrid,
    Convex,
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let cli = Cli::parse();
    let set = Set::read(&cli.set)?;
    let directory = tempfile::tempdir()?;
    let store: Arc<dyn Store> = Arc::new(SqliteStore::open(Config::new(directory.path().join("contexts.db")))?);
    let engine = |reranking| {
        let config = EngineConfig { reranking, rerank_timeout_ms: 60_000, ..EngineConfig::default() };
        Engine::new(Arc::clone(&store), config, Arc::new(SystemClock))
    };
    let (plain, reranking) = (engine(Switch::False)?, engine(Switch::Auto)?);
    if let Some(path) = cli.model {
        let model = ModelDirectory::new(path, None);
        let loaded = tokio::task::spawn_blocking(move || LocalEmbedder::load(&model, Prefixes::default(), ChunkWish::default())).await?;
        let embedder: Arc<dyn Embedder> = Arc::new(loaded?);
        plain.use_embedder(Arc::clone(&embedder)).await.map_err(|error| error.message)?;
        reranking.use_embedder(embedder).await.map_err(|error| error.message)?;
    }
    let started = Instant::now();
    let keys = fill(&plain, &set).await?;
    println!("{} entries, {} questions; stored in {:.1} s", set.entries.len(), set.questions.len(), started.elapsed().as_secs_f64());
    println!("{:<22} {:>7} {:>7} {:>8} {:>7} {:>8}", "", "R@5", "R@10", "nDCG@10", "MRR", "p50 ms");
    let with_model = plain.why_no_meaning().is_none();
    for (name, way, engine) in [
        ("fts", Way::Fts, &plain),
        ("semantic", Way::Semantic, &plain),
        ("semantic, reranked", Way::Semantic, &reranking),
        ("hybrid rrf", Way::Hybrid, &plain),
        ("hybrid rrf, reranked", Way::Hybrid, &reranking),
        ("hybrid convex", Way::Convex, &plain),
        ("hybrid convex, reranked", Way::Convex, &reranking),
    ] {
        if way != Way::Fts && !with_model {
            println!("{name:<22} needs a model (--model)");
            continue;
        }
        let (mut scores, mut times) = (Scores::default(), Vec::new());
        for question in &set.questions {
            let started = Instant::now();
            let found = ask(engine, way, question).await?;
            times.push(started.elapsed());
            let found: Vec<&str> = found.iter().filter_map(|hit| keys.get(usize::try_from(hit.id).ok()?)).map(String::as_str).collect();
            scores.add(&found, &question.relevant);
        }
        times.sort_unstable();
        let median = times.get(times.len() / 2).map_or(0.0, |time| time.as_secs_f64() * 1e3);
        println!("{name:<22} {scores} {median:>8.1}");
    }
    store.close().await;
    Ok(())
}

/// Stores the entries and gives the key of each id.
async fn fill(engine: &Engine, set: &Set) -> Result<Vec<String>, Error> {
    let mut keys = vec![String::new()];
    for batch in set.entries.chunks(BATCH) {
        let entries = batch.iter().map(|entry| StoreContextRequest {
            thread_id: entry.thread_id.clone(),
            source: entry.source.clone(),
            text: entry.text.clone(),
            ..StoreContextRequest::default()
        });
        let request = StoreContextBatchRequest { entries: entries.collect(), atomic: None };
        let reply = engine.store_context_batch(&Caller::local(), request, WriteContext::default()).await.map_err(|error| error.message)?;
        for (result, entry) in reply.results.iter().zip(batch) {
            let id = result.context_id.and_then(|id| usize::try_from(id).ok()).ok_or("an entry got no id")?;
            keys.resize(keys.len().max(id + 1), String::new());
            keys[id].clone_from(&entry.key);
        }
    }
    Ok(keys)
}

async fn ask(engine: &Engine, way: Way, question: &Question) -> Result<Vec<SearchHit>, Error> {
    let (caller, query, thread_id, limit) = (Caller::local(), question.text.clone(), question.thread_id.clone(), Some(LIMIT));
    let found = match way {
        Way::Fts => {
            let request = FtsSearchContextRequest { query, thread_id, limit, ..FtsSearchContextRequest::default() };
            engine.fts_search_context(&caller, request).await.map(|reply| reply.results)
        }
        Way::Semantic => {
            let request = SemanticSearchContextRequest { query, thread_id, limit, ..SemanticSearchContextRequest::default() };
            engine.semantic_search_context(&caller, request).await.map(|reply| reply.results)
        }
        Way::Hybrid | Way::Convex => {
            let fusion_method = (way == Way::Convex).then(|| "convex".to_owned());
            let request = HybridSearchContextRequest { query, thread_id, limit, fusion_method, ..HybridSearchContextRequest::default() };
            engine.hybrid_search_context(&caller, request).await.map(|reply| reply.results)
        }
    };
    found.map_err(|error| error.message.into())
}
