//! `context-bench` measures the service and the gateway, each operation together with its floor.
//!
//! Everything that is compared runs alternately in one run of several rounds, and the medians are reported. Real
//! processes are measured: `context-service` and `context-gateway` from the directory of this program, on databases in
//! a temporary directory. See `docs/benchmarks.md`.

#![expect(clippy::disallowed_methods, reason = "benchmarks measure time")]

mod baseline;
mod cases;
mod corpus;
mod error;
mod floor;
mod measure;
mod process;
mod progress;
mod provider;
mod report;
mod service;
mod sqlite;
mod transport;
mod usage;
mod vectors;

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand, ValueEnum};

use crate::baseline::Baseline;
use crate::cases::{Bench, Loaded, Scale};
use crate::corpus::{Corpus, DESCRIPTION};
use crate::error::{Error, Result};
use crate::progress::Progress;
use crate::report::Report;
use crate::service::Service;
use crate::vectors::Vectors;

/// The service's allocator, so that both sides of a comparison use the same.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Measures the context service and its gateway, each operation together with its floor.
#[derive(Debug, Parser)]
#[command(version, max_term_width = 100, args_conflicts_with_subcommands = true)]
struct Cli {
    #[command(subcommand)]
    floor: Option<Floor>,
    /// Run everything once in a few seconds and check all results; the figures are meaningless
    #[arg(long, conflicts_with = "million")]
    quick: bool,
    /// Also measure reads, and searches with --vectors, with a million entries; loading them takes a while
    #[arg(long)]
    million: bool,
    /// Measure only these parts
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Part::Store, Part::Postgres, Part::Read, Part::Get, Part::Start, Part::Semantic, Part::Hybrid, Part::Watch])]
    only: Vec<Part>,
    /// Also measure the store and the streams of changes on this PostgreSQL server, in databases that are dropped again
    #[arg(long, value_name = "URL")]
    postgres: Option<String>,
    /// Number of rounds of each comparison
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000))]
    rounds: Option<u16>,
    /// Numbers of entries in the databases that are read and searched
    #[arg(long, value_delimiter = ',', value_name = "N", conflicts_with = "million", value_parser = clap::value_parser!(u64).range(100..))]
    sizes: Option<Vec<u64>>,
    /// Measure semantic and hybrid search also with these vectors of a model: 384 32-bit floats each, little-endian
    #[arg(long, value_name = "FILE")]
    vectors: Option<PathBuf>,
    /// With the part semantic or hybrid, also measure how many texts a second this model embeds
    #[arg(long, value_name = "DIR")]
    model: Option<PathBuf>,
    /// Print JSON instead of the table
    #[arg(long)]
    json: bool,
    /// Compare the ratios with those in this file
    #[arg(long, value_name = "FILE")]
    baseline: Option<PathBuf>,
    /// Write the ratios to this file
    #[arg(long, value_name = "FILE")]
    write_baseline: Option<PathBuf>,
    /// Directory for the databases, which are removed at the end; it determines which disk is measured
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Durable stores
    Store,
    /// The store on PostgreSQL, with --postgres
    Postgres,
    /// Searches, threads and statistics at each size
    Read,
    /// Gets by id
    Get,
    /// Starts, memory and program sizes
    Start,
    /// Semantic search, with vectors of a provider that responds at once
    Semantic,
    /// Hybrid search, with the same vectors
    Hybrid,
    /// Streams of changes
    Watch,
}

/// The floors that run as separate processes.
#[derive(Debug, Subcommand)]
enum Floor {
    #[command(name = "floor-echo", hide = true)]
    Echo {
        socket: PathBuf,
        address: SocketAddr,
    },
    #[command(name = "floor-stdio", hide = true)]
    Stdio { socket: PathBuf },
    #[command(name = "floor-http", hide = true)]
    Http {
        socket: PathBuf,
        address: SocketAddr,
    },
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let outcome = match cli.floor {
        Some(floor) => serve(floor),
        None => runtime(tokio::runtime::Builder::new_current_thread())
            .and_then(|runtime| runtime.block_on(run(&cli))),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "context-bench: {error}");
            ExitCode::FAILURE
        }
    }
}

fn runtime(mut builder: tokio::runtime::Builder) -> Result<tokio::runtime::Runtime> {
    Ok(builder.enable_all().build()?)
}

/// Each floor uses the kind of runtime that suits it best, like the gateway: one thread for stdio.
fn serve(floor: Floor) -> Result<()> {
    use tokio::runtime::Builder;
    match floor {
        Floor::Echo { socket, address } => {
            runtime(Builder::new_multi_thread())?.block_on(floor::echo::serve(&socket, address))
        }
        Floor::Stdio { socket } => {
            runtime(Builder::new_current_thread())?.block_on(floor::hop::serve_stdio(&socket))
        }
        Floor::Http { socket, address } => {
            runtime(Builder::new_multi_thread())?.block_on(floor::hop::serve_http(&socket, address))
        }
    }
}

fn scale(cli: &Cli) -> Scale {
    let clients = vec![1, 8, 32];
    let mut scale = if cli.quick {
        Scale {
            sizes: vec![300],
            vector_sizes: vec![300],
            store_base: 300,
            clients,
            stores: vec![8, 16, 64],
            image_stores: 4,
            gets: 10,
            image_gets: 4,
            searches: 4,
            postgres_stores: 16,
            postgres_gets: 16,
            postgres_searches: 16,
            streams: 20,
            active_streams: 5,
            streamed_stores: 10,
            rounds: 1,
            starts: 1,
        }
    } else {
        let sizes = vec![1_000, 10_000, 100_000];
        Scale {
            sizes,
            vector_sizes: vec![10_000, 100_000],
            store_base: 10_000,
            clients,
            stores: vec![300, 1600, 4800],
            image_stores: 60,
            gets: 1000,
            image_gets: 200,
            searches: 60,
            postgres_stores: 3_200,
            postgres_gets: 8_000,
            postgres_searches: 2_000,
            streams: 1000,
            active_streams: 100,
            streamed_stores: 500,
            rounds: 7,
            starts: 7,
        }
    };
    if cli.million {
        scale.sizes.push(1_000_000);
        scale.vector_sizes.push(1_000_000);
    }
    if let Some(sizes) = &cli.sizes {
        scale.sizes.clone_from(sizes);
        // The databases grow from size to size.
        scale.sizes.sort_unstable();
        scale.sizes.dedup();
        scale.vector_sizes.clone_from(&scale.sizes);
    }
    scale.rounds = cli.rounds.map_or(scale.rounds, usize::from);
    scale
}

async fn run(cli: &Cli) -> Result<()> {
    let baseline = cli.baseline.as_deref().map(Baseline::read).transpose()?;
    context_store_sqlite::register_tokenizer();
    let dir = match &cli.dir {
        Some(dir) => tempfile::Builder::new()
            .prefix("context-bench-")
            .tempdir_in(dir)?,
        None => tempfile::Builder::new()
            .prefix("context-bench-")
            .tempdir()?,
    };
    let bench = Bench {
        corpus: Corpus::new(),
        scale: scale(cli),
        dir: dir.path().to_owned(),
        progress: Progress::new(),
    };
    let mut report = Report::default();
    describe(&bench, &mut report);
    if cli.only.contains(&Part::Store) {
        cases::store::run(&bench, &mut report).await?;
    }
    if let Some(url) = cli
        .postgres
        .as_deref()
        .filter(|_| cli.only.contains(&Part::Postgres))
    {
        cases::postgres::run(&bench, &mut report, url).await?;
    }
    if cli
        .only
        .iter()
        .any(|part| matches!(part, Part::Read | Part::Get | Part::Start))
    {
        read(cli, &bench, &mut report).await?;
    }
    let searches = cases::vectors::Searches {
        semantic: cli.only.contains(&Part::Semantic),
        hybrid: cli.only.contains(&Part::Hybrid),
    };
    if searches.semantic || searches.hybrid {
        cases::vectors::run(&bench, &mut report, &Vectors::Random, searches).await?;
        if let Some(path) = &cli.vectors {
            cases::vectors::run(&bench, &mut report, &Vectors::read(path)?, searches).await?;
        }
        if let Some(model) = &cli.model {
            cases::vectors::embed(&bench, &mut report, model).await?;
        }
    }
    if cli.only.contains(&Part::Watch) {
        cases::watch::run(&bench, &mut report).await?;
        if let Some(server) = &cli.postgres {
            cases::watch::across(&bench, &mut report, server).await?;
        }
    }
    bench.progress.done();
    if cli.quick {
        report.forget_goals();
    }

    let mut out = std::io::stdout().lock();
    if cli.json {
        writeln!(out, "{}", serde_json::to_string_pretty(&report.json())?)?;
    } else {
        write!(out, "{}", report.table())?;
    }
    if let Some(baseline) = baseline {
        let mut to: Box<dyn std::io::Write> = if cli.json {
            Box::new(std::io::stderr())
        } else {
            Box::new(out)
        };
        write!(to, "\nBaseline\n{}", baseline.compare(&report))?;
    }
    if let Some(path) = &cli.write_baseline {
        Baseline::of(&report).write(path)?;
    }
    Ok(())
}

/// All reads: one database that grows from size to size.
async fn read(cli: &Cli, bench: &Bench, report: &mut Report) -> Result<()> {
    let database = bench.dir.join("read.db");
    let service = Service::start(&database)?;
    let mut loaded = Loaded::default();
    let last = bench.scale.sizes.last().copied().unwrap_or(0);
    for &size in &bench.scale.sizes {
        let rate = loaded.up_to(size, bench, &service).await?;
        report.fact(
            &format!("loaded up to {size} entries"),
            format!("{rate:.0} entries/s"),
        );
        if cli.only.contains(&Part::Read) {
            cases::read::run(bench, report, &service, &loaded).await?;
        }
        if cli.only.contains(&Part::Get) {
            cases::get::run(bench, report, &service, &loaded).await?;
        }
    }
    if cli.only.contains(&Part::Get) {
        let service = Service::start(&bench.dir.join("images.db"))?;
        let mut loaded = Loaded {
            images: true,
            ..Loaded::default()
        };
        loaded
            .up_to(bench.scale.image_gets as u64, bench, &service)
            .await?;
        cases::get::run(bench, report, &service, &loaded).await?;
        service.stop()?;
    }
    report.fact(
        "service, resident after the load",
        cases::start::mib(usage::Memory::of(service.id())),
    );
    service.stop()?;
    if cli.only.contains(&Part::Start) {
        cases::start::run(bench, report, &database, last).await?;
    }
    Ok(())
}

fn describe(bench: &Bench, report: &mut Report) {
    let processors = std::thread::available_parallelism().map_or(0, usize::from);
    let build = if cfg!(debug_assertions) {
        ", DEBUG BUILD: the figures mean nothing"
    } else {
        ""
    };
    report.fact("corpus", DESCRIPTION.to_owned());
    report.fact(
        "machine",
        format!(
            "{processors} processors, databases in {}{build}",
            bench.dir.display()
        ),
    );
    let Scale {
        clients,
        stores,
        gets,
        searches,
        rounds,
        ..
    } = &bench.scale;
    report.fact(
        "rounds",
        format!("medians of {rounds} alternating rounds; {stores:?} stores for {clients:?} clients, {gets} gets, {searches} searches each"),
    );
}
