//! `retrieval-eval` measures how many of the relevant entries each search finds.
//!
//! It reads entries and questions with their relevant entries (`data/README.md` describes the format), stores the
//! entries in a new database, runs every question with every search, and prints a table. Searches run in this process,
//! or over gRPC or MCP on a service on that database. It starts a new service when the settings change from one row of
//! the table to the next. The entries are always stored in this process, because only its clock can be set.

#![expect(
    clippy::disallowed_methods,
    reason = "it measures how long searches take"
)]
#![expect(clippy::print_stdout, reason = "it prints what it measured")]

mod backend;
mod cli;
mod clock;
mod error;
mod evidence;
mod measure;
mod method;
mod opened;
mod relevance;
mod set;

use std::path::PathBuf;
use std::sync::Arc;

use clap::Parser as _;
use context_engine::Switch;
use context_providers::Embedder;
use context_providers::local::{ChunkSettings, LocalEmbedder, ModelDirectory};

use crate::backend::{Backend, Setup};
use crate::cli::Cli;
use crate::error::Error;
use crate::method::Method;
use crate::opened::Opened;
use crate::set::{Set, name};

#[tokio::main]
async fn main() -> Result<(), Error> {
    let cli = Cli::parse();
    let paths = set::files(&cli.sets)?;
    let embedder = load(cli.model.clone()).await?;
    if cli.relevance {
        let embedder = embedder.ok_or("relevance needs a model (--model)")?;
        return relevance::report(&cli, &paths, &embedder).await;
    }
    if cli.evidence {
        return evidence::report(&cli, &paths, embedder.as_ref()).await;
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
            // With reranking each row begins with an empty cache of token vectors.
            Some((same, backend)) if same == setup && setup.reranking == Switch::False => backend,
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

/// Loads the embedding model.
async fn load(path: Option<PathBuf>) -> Result<Option<Arc<dyn Embedder>>, Error> {
    let Some(path) = path else { return Ok(None) };
    let model = ModelDirectory::new(path, None);
    let loaded = tokio::task::spawn_blocking(move || {
        LocalEmbedder::load(&model, model.prefixes()?, ChunkSettings::default())
    })
    .await?;
    Ok(Some(Arc::new(loaded?)))
}
