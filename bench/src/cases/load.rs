use std::time::Instant;

use context_proto::v1 as pb;

use super::Bench;
use crate::Result;
use crate::service::Service;
use crate::transport::{Grpc, store};

/// Entries per batch: the maximum that the contract allows.
const BATCH: u64 = 100;

/// The entries of the corpus that are stored in a service.
#[derive(Debug, Default)]
pub struct Loaded {
    /// The id of each entry of the corpus, from the first one on.
    pub ids: Vec<i64>,
    /// Whether each entry has an image.
    pub images: bool,
}

impl Loaded {
    /// Stores the missing entries up to `entries`, in batches. Returns the number of entries stored per second.
    ///
    /// # Errors
    /// The service rejects an entry.
    pub async fn up_to(&mut self, entries: u64, bench: &Bench, service: &Service) -> Result<f64> {
        let mut client = Grpc::connect(service.address).await?;
        let started = Instant::now();
        let first = self.ids.len() as u64;
        bench
            .progress
            .step(&format!("Loading {} entries", entries - first));
        while (self.ids.len() as u64) < entries {
            let from = self.ids.len() as u64;
            bench.progress.part("Loading", from, entries);
            let to = entries.min(from + BATCH);
            let entry = |n| {
                if self.images {
                    bench.corpus.entry_with_image(n)
                } else {
                    bench.corpus.entry(n)
                }
            };
            let batch = (from..to).map(|n| store(&entry(n))).collect();
            let reply = client
                .0
                .store_context_batch(pb::StoreContextBatchRequest {
                    entries: batch,
                    atomic: None,
                })
                .await?
                .into_inner();
            if !reply.success || reply.results.len() as u64 != to - from {
                return Err(format!("a batch was not stored: {}", reply.message).into());
            }
            self.ids
                .extend(reply.results.iter().filter_map(|result| result.context_id));
            // The id of entry n is at n.
            if self.ids.len() as u64 != to {
                return Err("a stored entry of a batch has no id".into());
            }
        }
        Ok((entries - first) as f64 / started.elapsed().as_secs_f64())
    }
}
