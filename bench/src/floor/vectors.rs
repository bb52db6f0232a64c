//! The floor of semantic search: an exact scan of all vectors in memory, in this process.

use std::time::Instant;

use context_vector::distance;

use crate::measure::Round;
use crate::usage::CpuTimes;
use crate::vectors::{DIMENSIONS, Vectors};

/// The vectors of all entries, one after the other.
#[derive(Debug)]
pub struct VectorFloor {
    vectors: Vec<f32>,
}

impl VectorFloor {
    /// The vectors of the first `entries` entries.
    pub fn new(vectors: &Vectors, entries: u64) -> Self {
        Self {
            vectors: (0..entries).flat_map(|n| vectors.of_entry(n)).collect(),
        }
    }

    /// The numbers of the nearest entries, nearest first, of those that `allowed` accepts.
    pub fn nearest(
        &self,
        query: &[f32],
        wanted: usize,
        allowed: impl Fn(usize) -> bool,
    ) -> Vec<usize> {
        let mut found: Vec<(f32, usize)> = self
            .vectors
            .chunks_exact(DIMENSIONS)
            .enumerate()
            .filter(|(entry, _)| allowed(*entry))
            .map(|(entry, vector)| (distance(query, vector), entry))
            .collect();
        let wanted = wanted.min(found.len());
        if wanted > 0 {
            found.select_nth_unstable_by(wanted - 1, |a, b| a.0.total_cmp(&b.0));
        }
        found.truncate(wanted);
        found.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
        found.into_iter().map(|(_, entry)| entry).collect()
    }

    /// Finds the nearest entries of these queries, one after the other.
    pub fn round(
        &self,
        queries: &[Vec<f32>],
        wanted: usize,
        allowed: impl Fn(usize) -> bool,
    ) -> Round {
        let pid = std::process::id();
        let before = CpuTimes::of(pid);
        let started = Instant::now();
        let mut latencies = Vec::with_capacity(queries.len());
        for query in queries {
            let started = Instant::now();
            std::hint::black_box(self.nearest(query, wanted, &allowed));
            latencies.push(started.elapsed());
        }
        Round {
            elapsed: started.elapsed(),
            latencies,
            service: CpuTimes::of(pid).since(&before),
            ..Round::default()
        }
    }
}
