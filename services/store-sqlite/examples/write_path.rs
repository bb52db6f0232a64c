//! Measures how many durable writes per second the store accepts from concurrent callers, and what one write costs:
//! `cargo run --release --example write_path -- <callers> <seconds> [directory]`.

#![expect(clippy::disallowed_methods, reason = "it measures time")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use context_model::{Metadata, NewEntry, Source, Tags, ThreadId, Timestamp};
use context_store::{OwnerId, Read, Store, WriteOptions};
use context_store_sqlite::{Config, SqliteStore};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let callers: u64 = arguments.next().map_or(Ok(32), |a| a.parse())?;
    let seconds: u64 = arguments.next().map_or(Ok(5), |a| a.parse())?;
    let directory = arguments.next().map_or_else(std::env::temp_dir, Into::into);
    let path = directory.join(format!("write-path-{}.db", std::process::id()));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    runtime.block_on(measure(&path, callers, Duration::from_secs(seconds)))?;
    for end in ["", "-wal", "-shm", ".lock"] {
        let _ = std::fs::remove_file(format!("{}{end}", path.display()));
    }
    Ok(())
}

async fn measure(
    path: &std::path::Path,
    callers: u64,
    time: Duration,
) -> Result<(), Box<dyn std::error::Error>> {
    let store = Arc::new(SqliteStore::open(Config::new(path))?);
    let counter = Arc::new(AtomicU64::new(0));
    let (started, cpu_before) = (Instant::now(), cpu());
    let tasks: Vec<_> = (0..callers)
        .map(|_| {
            let (store, counter) = (Arc::clone(&store), Arc::clone(&counter));
            tokio::spawn(async move {
                let mut latencies = Vec::new();
                while started.elapsed() < time {
                    let n = counter.fetch_add(1, Ordering::Relaxed);
                    let options = WriteOptions {
                        now: Timestamp(1_700_000_000_000_000 + n as i64),
                        idempotency: None,
                        key_id: None,
                        embeddings: Vec::new(),
                    };
                    let entry = entry(n);
                    let begun = Instant::now();
                    store
                        .store_contexts(&OwnerId::default(), vec![entry], true, options)
                        .await?;
                    latencies.push(begun.elapsed());
                }
                Ok::<_, context_store::StoreError>(latencies)
            })
        })
        .collect();
    let mut latencies = Vec::new();
    for task in tasks {
        latencies.extend(task.await??);
    }
    let (elapsed, cpu_used) = (started.elapsed(), cpu() - cpu_before);
    latencies.sort_unstable();
    let connections = store
        .statistics(&OwnerId::default(), None, Read::default())
        .await?
        .connections;
    eprintln!(
        "{callers} callers: {:.0}/s, p50 {:?}, p99 {:?}, {:.0} µs CPU each, {:.1} in a transaction",
        latencies.len() as f64 / elapsed.as_secs_f64(),
        latencies[latencies.len() / 2],
        latencies[latencies.len() * 99 / 100],
        cpu_used / latencies.len() as f64,
        connections.writes as f64 / connections.commits as f64,
    );
    store.close().await;
    Ok(())
}

/// An entry with a text of about 600 characters, two tags and some metadata. Every 1 000 entries have ten threads of
/// their own.
fn entry(n: u64) -> NewEntry {
    let mut state = n.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut next = |bound: f64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        // Approximately Zipf's law.
        bound.powf((state >> 11) as f64 / (1u64 << 53) as f64) as u64
    };
    let mut text = String::new();
    while text.len() < 600 {
        text.push_str(&format!("w{}k ", next(50_000.0)));
    }
    let metadata = serde_json::json!({"status": "active", "agent_name": format!("agent-{}", n % 20), "priority": n % 10,
        "review": {"round": n % 5, "by": {"name": "reviewer"}}});
    let serde_json::Value::Object(metadata) = metadata else {
        unreachable!("an object")
    };
    NewEntry {
        thread_id: ThreadId::from_stored(format!("thread-{}", n / 1000 * 10 + n % 10)),
        source: if n.is_multiple_of(2) {
            Source::User
        } else {
            Source::Agent
        },
        text,
        images: None,
        metadata: Some(Metadata::from_stored(metadata)),
        tags: Some(Tags::from_normalised(vec![
            format!("tag-{}", n % 97),
            format!("tag-{}", 100 + n % 89),
        ])),
    }
}

/// CPU time of this process so far, in microseconds.
fn cpu() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = stat
        .rsplit(')')
        .next()
        .unwrap_or_default()
        .split_whitespace()
        .collect();
    let ticks = |at: usize| {
        fields
            .get(at)
            .and_then(|field| field.parse::<f64>().ok())
            .unwrap_or(0.0)
    };
    (ticks(11) + ticks(12)) * 10_000.0
}
