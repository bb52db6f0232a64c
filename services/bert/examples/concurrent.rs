//! Measures whether embedding on two threads at the same time takes longer than embedding one after the other.
//!
//! ```sh
//! cargo run --release --example concurrent -- MODEL_DIRECTORY TEXTS
//! ```
//!
//! TEXTS has one text per line. Each round embeds two loads first one after the other and then at the same time, each
//! on its own thread. The ratios are the time and the CPU time of the concurrent run over those of the sequential run.
//! With two idle cores the time ratio can be .5 for short queries, which use one thread each, and about 1 for batches,
//! which already use all cores. Above 1, the loads slow each other down. The last pair uses two thread pools, as a
//! service with an embedder and a cross-encoder does.

#![expect(clippy::disallowed_methods, reason = "it measures time")]
#![expect(clippy::print_stdout, reason = "it prints what it measured")]

use std::path::PathBuf;
use std::time::Instant;

use context_bert::{Encoded, Model, ModelError, Tokens};

const ROUNDS: usize = 15;
const BATCH: usize = 32;
/// Length of a query in characters.
const QUERY: usize = 60;

/// The calls that one thread makes, in order.
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
    let (first_texts, second_texts) = texts
        .split_at_checked(BATCH)
        .filter(|(_, second)| second.len() == BATCH)
        .ok_or("TEXTS is too short")?;
    let (one_pool, other_pool) = (
        rayon::ThreadPoolBuilder::new().build()?,
        rayon::ThreadPoolBuilder::new().build()?,
    );
    let pairs = [
        (
            "short queries and short queries",
            queries(first_texts)?,
            queries(second_texts)?,
            None,
        ),
        (
            "a batch and a batch",
            batch(first_texts)?,
            batch(second_texts)?,
            None,
        ),
        (
            "short queries and a batch",
            queries(first_texts)?,
            batch(second_texts)?,
            None,
        ),
        (
            "a batch and a batch in another pool",
            batch(first_texts)?,
            batch(second_texts)?,
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

/// Wall-clock time and CPU time, in seconds.
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

/// CPU time of all threads of this process so far, in seconds.
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
