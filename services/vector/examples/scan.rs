//! Measures the speed and recall of the index against an exact scan of all vectors in the same run.
//!
//! ```sh
//! cargo run --release --example scan -- 100000 384 [VECTORS]
//! ```
//!
//! VECTORS is a file of 32-bit floats, little-endian, one vector after the other. When it has too few vectors, the rest
//! are perturbed copies of the real ones. Without it the vectors are random directions.
#![expect(clippy::print_stdout, reason = "it prints what it measured")]
#![expect(clippy::disallowed_methods, reason = "it measures time")]

use std::time::{Duration, Instant};

use context_vector::{
    Allowed, Change, Index, Item, Near, Precision, Query, decode, distance, normalise,
};

/// Number of queries in a run.
const QUERIES: usize = 100;
/// Numbers of results per query: those of a page, and the candidates of a hybrid search.
const WANTED: [usize; 2] = [10, 200];
/// Numbers of vectors that are compared exactly after a search with sign bits alone.
const RESCORED: [usize; 4] = [200, 800, 3200, 12_800];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let count: usize = arguments
        .next()
        .map_or(Ok(100_000), |count| count.parse())?;
    let dimensions: usize = arguments
        .next()
        .map_or(Ok(384), |dimensions| dimensions.parse())?;
    let real = match arguments.next() {
        Some(path) => read(&path, dimensions)?,
        None => Vec::new(),
    };
    let mut random = Random(7);
    let (vectors, queries) = vectors(&real, count, dimensions, &mut random);
    println!(
        "{count} vectors of {dimensions} dimensions, {} of them real; {QUERIES} queries",
        real.len().saturating_sub(QUERIES).min(count)
    );

    let fill = |precision: Precision| {
        let index = Index::new(dimensions, precision);
        let started = Instant::now();
        let item = |place: usize| Item {
            chunk: place as i64 + 1,
            entry: place as i64 + 1,
            code: index.code(&vectors[place]),
        };
        index.apply((0..count).map(|place| Change::Add {
            owner: 1,
            item: item(place),
        }));
        let ms = started.elapsed().as_secs_f64() * 1e3;
        println!("{precision:?} filled in {ms:.0} ms");
        index
    };
    let (codes, signs) = (fill(Precision::FourBits), fill(Precision::SignBits));

    let everything: Vec<i64> = (1..=count as i64).collect();
    let scattered = |share: f64| {
        let mut random = Random(11);
        everything
            .iter()
            .copied()
            .filter(|_| (random.below(1 << 20) as f64) < share * f64::from(1 << 20))
            .collect()
    };
    let some = [
        ("50 %", 0.5),
        ("10 %", 0.1),
        ("1 %", 0.01),
        ("0.1 %", 0.001),
    ]
    .map(|(name, share)| (name, scattered(share)));
    // Like a thread: consecutive entries.
    let thread = (
        "1 % in one place",
        everything[count / 2..][..count / 100].to_vec(),
    );
    for (name, entries) in [("all", everything.clone())]
        .into_iter()
        .chain(some)
        .chain([thread])
    {
        let allowed: Option<Allowed> =
            (entries.len() < count).then(|| entries.iter().copied().collect());
        for wanted in WANTED {
            let (exact, times) = run(&queries, |query| {
                nearest(query, &vectors, entries.iter().copied(), wanted)
            });
            println!(
                "{name:>16}, nearest {wanted:>3}: exact scan                       {}",
                shown(&times, 1.0)
            );
            let near = |index: &Index, query: &[f32], depth| {
                let query: Query = index.query(query);
                index.snapshot(1).nearest(&query, depth, allowed.as_ref())
            };
            let (found, times) = run(&queries, |query| {
                let near = near(&codes, query, wanted);
                near.iter().map(|near| near.entry).take(wanted).collect()
            });
            println!(
                "{name:>16}, nearest {wanted:>3}: 4 bits, by the estimates         {}",
                shown(&times, recall(&found, &exact))
            );
            let mut rescored = 0;
            let (found, times) = run(&queries, |query| {
                let near = near(&codes, query, wanted);
                let near = worth_rescoring(query, &vectors, &near, wanted);
                rescored += near.len();
                nearest(query, &vectors, near.iter().map(|near| near.entry), wanted)
            });
            println!(
                "{name:>16}, nearest {wanted:>3}: 4 bits, {:>6} rescored          {}",
                rescored / QUERIES,
                shown(&times, recall(&found, &exact))
            );
            for depth in RESCORED {
                let (found, times) = run(&queries, |query| {
                    let near = near(&signs, query, depth);
                    nearest(query, &vectors, near.iter().map(|near| near.entry), wanted)
                });
                println!(
                    "{name:>16}, nearest {wanted:>3}: sign bits, {depth:>6} rescored       {}",
                    shown(&times, recall(&found, &exact))
                );
            }
        }
    }
    Ok(())
}

/// The chunks to compare exactly: the `wanted` nearest by estimate, and every other chunk that may be nearer than the
/// farthest of these.
fn worth_rescoring<'n>(
    query: &[f32],
    vectors: &[Vec<f32>],
    near: &'n [Near],
    wanted: usize,
) -> Vec<&'n Near> {
    let (first, rest) = near.split_at(wanted.min(near.len()));
    let last = first
        .iter()
        .map(|near| distance(query, &vectors[near.entry as usize - 1]))
        .fold(0.0, f32::max);
    let floor = 1.0 - last * last / 2.0;
    first
        .iter()
        .chain(rest.iter().filter(|near| near.greatest() >= floor))
        .collect()
}

/// The vectors of a file. It must have more vectors than there are queries, because queries are not stored.
fn read(path: &str, dimensions: usize) -> Result<Vec<Vec<f32>>, Box<dyn std::error::Error>> {
    let read = |bytes: &[u8]| {
        let mut vector = vec![0.0; dimensions];
        (decode(bytes, &mut vector) && normalise(&mut vector)).then_some(vector)
    };
    let all: Vec<Vec<f32>> = std::fs::read(path)?
        .chunks_exact(dimensions * 4)
        .filter_map(read)
        .collect();
    if all.len() <= QUERIES {
        let sentence = format!(
            "{path} has {} vectors of {dimensions} 32-bit floats; at least {} are needed",
            all.len(),
            QUERIES + 1
        );
        return Err(sentence.into());
    }
    Ok(all)
}

/// The stored vectors and the queries. No query is stored.
fn vectors(
    real: &[Vec<f32>],
    count: usize,
    dimensions: usize,
    random: &mut Random,
) -> (Vec<Vec<f32>>, Vec<Vec<f32>>) {
    let mut base: Vec<Vec<f32>> = real.to_vec();
    if base.is_empty() {
        base = (0..count + QUERIES)
            .map(|_| random.direction(dimensions))
            .collect();
    }
    // Every `step`-th vector is a query, until there are `QUERIES`.
    let step = (base.len() / QUERIES).max(1);
    let (mut queries, mut stored) = (Vec::new(), Vec::new());
    for (place, vector) in base.iter().enumerate() {
        if place % step == 0 && queries.len() < QUERIES {
            queries.push(vector.clone())
        } else {
            stored.push(vector.clone())
        }
    }
    let originals = stored.len();
    while stored.len() < count {
        let mut vector = stored[random.below(originals)].clone();
        let noise = random.direction(dimensions);
        vector
            .iter_mut()
            .zip(noise)
            .for_each(|(value, noise)| *value += 0.5 * noise);
        let _ = normalise(&mut vector);
        stored.push(vector);
    }
    stored.truncate(count);
    (stored, queries)
}

/// The nearest entries by exact distance.
fn nearest(
    query: &[f32],
    vectors: &[Vec<f32>],
    entries: impl Iterator<Item = i64>,
    wanted: usize,
) -> Vec<i64> {
    let mut found: Vec<(f32, i64)> = entries
        .map(|entry| (distance(query, &vectors[entry as usize - 1]), entry))
        .collect();
    let wanted = wanted.min(found.len());
    if wanted > 0 {
        found.select_nth_unstable_by(wanted - 1, |a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    }
    found.truncate(wanted);
    found.into_iter().map(|(_, entry)| entry).collect()
}

fn run(
    queries: &[Vec<f32>],
    mut search: impl FnMut(&[f32]) -> Vec<i64>,
) -> (Vec<Vec<i64>>, Vec<Duration>) {
    queries
        .iter()
        .map(|query| {
            let started = Instant::now();
            (search(query), started.elapsed())
        })
        .unzip()
}

fn recall(found: &[Vec<i64>], exact: &[Vec<i64>]) -> f64 {
    let hits: usize = found
        .iter()
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
        let mut vector: Vec<f32> = (0..dimensions)
            .map(|_| uniform() + uniform() + uniform() + uniform())
            .collect();
        let _ = normalise(&mut vector);
        vector
    }
}
