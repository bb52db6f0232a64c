//! Metrics for Prometheus: requests, durations, and the current state.

#![expect(
    clippy::disallowed_methods,
    reason = "measures how long the service runs"
)]

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue, LabelValueEncoder};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

use context_model::{ConnectionMetrics, Operation, Reason, Timestamp};

use crate::transport::Transport;

/// The media type of the exposition format.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Bucket bounds in seconds. The default deadline is 60 s.
const BUCKETS: [f64; 14] = [
    0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0,
];

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OperationLabels {
    operation: &'static str,
    transport: Transport,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabels {
    operation: &'static str,
    transport: Transport,
    outcome: Outcome,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Outcome(Option<Reason>);

impl EncodeLabelValue for Outcome {
    fn encode(&self, encoder: &mut LabelValueEncoder) -> Result<(), std::fmt::Error> {
        self.0.map_or("OK", Reason::as_str).encode(encoder)
    }
}

impl EncodeLabelValue for Transport {
    fn encode(&self, encoder: &mut LabelValueEncoder) -> Result<(), std::fmt::Error> {
        self.as_str().encode(encoder)
    }
}

/// The metrics of one service.
pub struct Metrics {
    registry: Registry,
    requests: Family<OutcomeLabels, Counter>,
    durations: Family<OperationLabels, Histogram, fn() -> Histogram>,
    /// The counter of successes and the histogram of durations for each operation and transport.
    /// They are found by index, so that no request has to hash labels.
    frequent: Vec<[OnceLock<(Counter, Histogram)>; 2]>,
    /// Operations that are running or waiting for a slot.
    pub in_flight: Gauge,
    /// Open streams of changes.
    pub streams: Gauge,
    /// Lists of changes that wait for the next change.
    pub waiting_lists: Gauge,
    /// Open connections.
    pub connections: Gauge,
    /// Connections that were refused because their address had reached its limit.
    pub refused_connections: Counter,
    /// Bytes held by requests and replies.
    pub body_bytes: Gauge,
    /// Requests without valid credentials.
    pub authentication_failures: Counter,
    /// How many times bcrypt verified a key. A cached key is not verified again.
    pub key_verifications: Gauge,
    queued_writes: Gauge,
    commits: Gauge,
    writes: Gauge,
    pending_embeddings: Gauge,
    pending_embeddings_seconds: Gauge<f64, AtomicU64>,
    damaged_rows: Gauge,
    resident_memory: Gauge<i64>,
    uptime: Gauge<f64, AtomicU64>,
    started: std::time::Instant,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("context");
        let requests = Family::default();
        registry.register(
            "requests",
            "Finished operations, by outcome",
            requests.clone(),
        );
        let durations: Family<OperationLabels, Histogram, fn() -> Histogram> =
            Family::new_with_constructor(|| Histogram::new(BUCKETS));
        registry.register_with_unit(
            "request_duration",
            "Time from the decoded request to the reply",
            Unit::Seconds,
            durations.clone(),
        );
        let authentication_failures = Counter::default();
        registry.register(
            "authentication_failures",
            "Requests for operations without valid credentials",
            authentication_failures.clone(),
        );
        let refused_connections = Counter::default();
        let help = "Connections refused because their address had reached its limit";
        registry.register("refused_connections", help, refused_connections.clone());
        let mut gauge = |name: &str, help: &str| {
            let gauge = Gauge::default();
            registry.register(name, help, gauge.clone());
            gauge
        };
        let in_flight = gauge(
            "requests_in_flight",
            "Operations that are running or waiting for a slot",
        );
        let streams = gauge("watch_streams", "Open streams of changes");
        let waiting_lists = gauge(
            "waiting_lists",
            "Lists of changes that wait for the next change",
        );
        let connections = gauge("connections", "Open connections");
        let body_bytes = gauge("body_bytes", "Bytes held by requests and replies");
        let key_verifications = gauge(
            "key_verifications",
            "API keys verified with bcrypt; a cached key is not verified again",
        );
        let queued_writes = gauge("store_queued_writes", "Writes waiting for the database");
        let commits = gauge("store_commits", "Transactions committed since the start");
        let writes = gauge(
            "store_writes",
            "Writes committed since the start; one transaction can hold several",
        );
        let pending_embeddings = gauge(
            "embeddings_pending",
            "Entries and artifacts of all owners that wait for an embedding",
        );
        let damaged_rows = gauge(
            "damaged_rows_refused",
            "Rows refused since the start because their checksum did not match",
        );
        let resident_memory = gauge("process_resident_memory_bytes", "Memory of the process");
        let pending_embeddings_seconds = Gauge::<f64, AtomicU64>::default();
        registry.register_with_unit(
            "embeddings_pending_time",
            "Estimated time until all waiting entries have an embedding; NaN if entries wait and none of them gets one",
            Unit::Seconds,
            pending_embeddings_seconds.clone(),
        );
        let uptime = Gauge::<f64, AtomicU64>::default();
        registry.register_with_unit(
            "uptime",
            "Time since the start",
            Unit::Seconds,
            uptime.clone(),
        );
        Self {
            registry,
            requests,
            durations,
            frequent: Operation::ALL.iter().map(|_| Default::default()).collect(),
            in_flight,
            streams,
            waiting_lists,
            connections,
            refused_connections,
            body_bytes,
            authentication_failures,
            key_verifications,
            queued_writes,
            commits,
            writes,
            pending_embeddings,
            pending_embeddings_seconds,
            damaged_rows,
            resident_memory,
            uptime,
            started: std::time::Instant::now(),
        }
    }
}

/// How far a copy is behind the service that it follows.
#[derive(Debug, Clone, Default)]
pub struct CopyMetrics {
    behind: Gauge,
    last_contact: Gauge<f64, AtomicU64>,
    copy_revision: Arc<AtomicI64>,
    source_revision: Arc<AtomicI64>,
}

impl CopyMetrics {
    /// Records that the copy has reached this revision.
    pub fn set_copy_revision(&self, revision: i64) {
        self.copy_revision.store(revision, Ordering::Relaxed);
        self.behind.set(self.behind());
    }

    /// Records that the source has reached this revision.
    pub fn set_source_revision(&self, revision: i64) {
        self.source_revision.store(revision, Ordering::Relaxed);
        self.behind.set(self.behind());
    }

    /// Records that the source sent something at this time.
    pub fn set_last_contact(&self, now: Timestamp) {
        self.last_contact.set(now.micros() as f64 / 1e6);
    }

    /// Number of changes that the copy lacks, as far as it knows.
    #[must_use]
    pub fn behind(&self) -> i64 {
        let (source, copy) = (
            self.source_revision.load(Ordering::Relaxed),
            self.copy_revision.load(Ordering::Relaxed),
        );
        (source - copy).max(0)
    }
}

impl Metrics {
    /// Adds the metrics of how far a copy is behind.
    pub fn show_copy(&mut self, copy: &CopyMetrics) {
        let help = "Changes of the followed service that this copy lacks, as far as it knows";
        self.registry
            .register("copy_behind_changes", help, copy.behind.clone());
        let help = "When the followed service sent something for the last time";
        let name = "copy_last_contact_timestamp";
        self.registry
            .register_with_unit(name, help, Unit::Seconds, copy.last_contact.clone());
    }

    /// Records an operation that has ended.
    pub fn record(
        &self,
        operation: Operation,
        transport: Transport,
        outcome: Option<Reason>,
        took: Duration,
    ) {
        let find = || {
            let labels = OperationLabels {
                operation: operation.as_str(),
                transport,
            };
            (
                self.requests(operation, transport, None),
                self.durations.get_or_create(&labels).clone(),
            )
        };
        let (successes, durations) =
            self.frequent[operation as usize][transport as usize].get_or_init(find);
        durations.observe(took.as_secs_f64());
        match outcome {
            None => successes.inc(),
            Some(_) => self.requests(operation, transport, outcome).inc(),
        };
    }

    fn requests(
        &self,
        operation: Operation,
        transport: Transport,
        outcome: Option<Reason>,
    ) -> Counter {
        self.requests
            .get_or_create(&OutcomeLabels {
                operation: operation.as_str(),
                transport,
                outcome: Outcome(outcome),
            })
            .clone()
    }

    /// Records how many entries wait for an embedding, and the estimated seconds until they have one.
    pub fn set_pending(&self, entries: i64, seconds: Option<i64>) {
        self.pending_embeddings.set(entries);
        self.pending_embeddings_seconds
            .set(seconds.map_or(f64::NAN, |seconds| seconds as f64));
    }

    /// The text for Prometheus. `store` are the database's own metrics, if it responded.
    #[must_use]
    pub fn render(&self, store: Option<&ConnectionMetrics>) -> String {
        if let Some(store) = store {
            self.queued_writes.set(store.queued_writes);
            self.commits.set(store.commits);
            self.writes.set(store.writes);
        }
        self.damaged_rows
            .set(i64::try_from(context_store::seal::refused_rows()).unwrap_or(i64::MAX));
        if let Some(bytes) = resident_bytes() {
            self.resident_memory.set(bytes);
        }
        self.uptime.set(self.started.elapsed().as_secs_f64());
        let mut text = String::new();
        // Writing to a String cannot fail.
        let _ = encode(&mut text, &self.registry);
        text
    }
}

/// The resident memory in bytes, from the second number (pages) of statm; see proc(5). `None` on
/// systems other than Linux.
fn resident_bytes() -> Option<i64> {
    let statm = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: i64 = statm.split_whitespace().nth(1)?.parse().ok()?;
    pages.checked_mul(i64::try_from(rustix::param::page_size()).ok()?)
}
