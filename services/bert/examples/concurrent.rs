//! Whether two threads that embed at once slow each other by more than their sum.
//!
//! ```sh
//! cargo run --release --example concurrent -- MODEL_DIRECTORY TEXTS
//! ```
//!
//! TEXTS has a text on each line. Each round embeds two loads one after the other and then at once, each on a thread; the
//! ratios are the time and the CPU time of the latter over those of the former. With two idle cores the first can be .5 for
//! short queries, which have one thread each, and about 1 for batches, which have all cores already; above 1 they are in
//! each other's way. The last pair has two pools of threads, as an embedder and a cross-encoder in one service do.

#![expect(clippy::print_stdout, reason = "it prints what it measured")]

use std::path::PathBuf;
use std::time::Instant;

use context_bert::{Encoded, Model, ModelError, Tokens};

const ROUNDS: usize = 15;
const BATCH: usize = 32;
/// Characters of a query.
const QUERY: usize = 60;

/// What one thread embeds, call after call.
type Load = Vec<Vec<Encoded>>;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let [directory, texts] = &arguments[..] else {
        return Err("give MODEL_DIRECTORY and TEXTS".into());
    };
    let (model, tokens) = (Model::load(directory)?, Tokens::load(directory)?);
    let texts = std::fs::read_to_string(texts)?;
    let texts: Vec<&str> = texts
        .lines()
        .filter(|line| !line.trim().is_empty())
        .take(2 * BATCH)
        .collect();
    let queries = |texts: &[&str]| -> Result<Load, ModelError> {
        let start = |text: &str| text.chars().take(QUERY).collect::<String>();
        texts
            .iter()
            .map(|text| Ok(vec![tokens.encode(&start(text))?]))
            .collect()
    };
    let batch = |texts: &[&str]| -> Result<Load, ModelError> {
        Ok(vec![
            texts
                .iter()
                .map(|text| tokens.encode(text))
                .collect::<Result<_, _>>()?,
        ])
    };
    let (here, there) = texts.split_at_checked(BATCH).ok_or("TEXTS is too short")?;
    let (one_pool, other_pool) = (
        rayon::ThreadPoolBuilder::new().build()?,
        rayon::ThreadPoolBuilder::new().build()?,
    );
    let pairs = [
        (
            "short queries and short queries",
            queries(here)?,
            queries(there)?,
            None,
        ),
        ("a batch and a batch", batch(here)?, batch(there)?, None),
        (
            "short queries and a batch",
            queries(here)?,
            batch(there)?,
            None,
        ),
        (
            "a batch and a batch in another pool",
            batch(here)?,
            batch(there)?,
            Some((&one_pool, &other_pool)),
        ),
    ];
    for (name, one, other, pools) in pairs {
        let first = || {
            pools.map_or_else(
                || embed(&model, &one),
                |(pool, _)| pool.install(|| embed(&model, &one)),
            )
        };
        let second = || {
            pools.map_or_else(
                || embed(&model, &other),
                |(_, pool)| pool.install(|| embed(&model, &other)),
            )
        };
        let (mut after, mut at_once) = (Vec::new(), Vec::new());
        for round in 0..=ROUNDS {
            let sum = times(|| first().and_then(|()| second()))?;
            let both = times(|| {
                std::thread::scope(|scope| {
                    let first = scope.spawn(first);
                    second().and(first.join().unwrap_or(Err(ModelError::Tokens)))
                })
            })?;
            // The first round warms up.
            if round > 0 {
                after.push(sum);
                at_once.push(both);
            }
        }
        let ratio = |of: fn(&Times) -> f64| {
            median(
                at_once
                    .iter()
                    .zip(&after)
                    .map(|(both, sum)| of(both) / of(sum))
                    .collect(),
            )
        };
        println!(
            "{name}: {:.1} ms one after the other, {:.1} at once, ratio {:.2}, of CPU time {:.2}",
            median(after.iter().map(|times| times.wall * 1e3).collect()),
            median(at_once.iter().map(|times| times.wall * 1e3).collect()),
            ratio(|times| times.wall),
            ratio(|times| times.cpu),
        );
    }
    Ok(())
}

/// Seconds.
struct Times {
    wall: f64,
    cpu: f64,
}

fn times(work: impl FnOnce() -> Result<(), ModelError>) -> Result<Times, ModelError> {
    let (started, cpu) = (Instant::now(), cpu_seconds());
    work()?;
    Ok(Times {
        wall: started.elapsed().as_secs_f64(),
        cpu: cpu_seconds() - cpu,
    })
}

/// The CPU time of this process so far, of all its threads.
fn cpu_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn embed(model: &Model, load: &Load) -> Result<(), ModelError> {
    load.iter()
        .try_for_each(|texts| model.embed(texts).map(drop))
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
