//! Settings of load and time: how much work the service accepts at once.

use clap::Args;
use context_engine::Rate;

use super::value::number;

/// Settings of load and time.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Load and time")]
pub struct Load {
    /// Maximum number of connections of one listening address or socket, 1 to 100 000.
    ///
    /// For one more, the connection that has been idle longest is closed. If none is idle, one whose requests have no
    /// valid credentials is closed. Otherwise new connections wait.
    #[arg(long = "max-connections", env = "CONTEXT_MAX_CONNECTIONS", value_name = "N", default_value = "1024", value_parser = number(1, 100_000), global = true)]
    pub max_connections: u64,

    /// Maximum number of connections of one client address, 0 to 100 000; 0 means half of CONTEXT_MAX_CONNECTIONS.
    ///
    /// In IPv6 the addresses of one /64 network count as one. Behind a proxy or a published container port all clients
    /// have the same address. In that case set it to CONTEXT_MAX_CONNECTIONS.
    #[arg(long = "max-connections-per-address", env = "CONTEXT_MAX_CONNECTIONS_PER_ADDRESS", value_name = "N", default_value = "0", value_parser = number(0, 100_000), global = true)]
    pub max_connections_per_address: u64,

    /// Maximum number of operations that run at once, 1 to 100 000.
    #[arg(long = "max-concurrent-requests", env = "CONTEXT_MAX_CONCURRENT_REQUESTS", value_name = "N", default_value = "256", value_parser = number(1, 100_000), global = true)]
    pub max_concurrent_requests: u64,

    /// Maximum number of operations that wait, 0 to 1 000 000. Further ones are refused.
    #[arg(long = "request-queue", env = "CONTEXT_REQUEST_QUEUE", value_name = "N", default_value = "4096", value_parser = number(0, 1_000_000), global = true)]
    pub request_queue: u64,

    /// Maximum memory for request and reply bodies in megabytes, 64 to 1 048 576.
    ///
    /// Requests beyond this limit are refused. The largest request always fits.
    #[arg(long = "request-memory-mb", env = "CONTEXT_REQUEST_MEMORY_MB", value_name = "MB", default_value = "512", value_parser = number(64, 1_048_576), global = true)]
    pub request_memory_mb: u64,

    /// Maximum duration of an operation in seconds, 1 to 3600. A gRPC deadline can shorten it.
    #[arg(long = "request-timeout-seconds", env = "CONTEXT_REQUEST_TIMEOUT_SECONDS", value_name = "S", default_value = "60", value_parser = number(1, 3600), global = true)]
    pub request_timeout_seconds: u64,

    /// Maximum number of requests per minute of each API key or holder of tokens, 0 to 1 000 000; 0 means no limit.
    ///
    /// After a pause, a sixth of them may arrive at once.
    #[arg(long = "rate-limit-per-minute", env = "CONTEXT_RATE_LIMIT_PER_MINUTE", value_name = "N", default_value = "0", value_parser = number(0, 1_000_000), global = true)]
    pub rate_limit_per_minute: u64,

    /// Maximum number of streams of changes, 1 to 100 000. With authentication on, one owner may have half of them.
    #[arg(long = "watch-max-streams", env = "WATCH_MAX_STREAMS", value_name = "N", default_value = "1000", value_parser = number(1, 100_000), global = true)]
    pub watch_max_streams: u64,

    /// Seconds that a stopping service waits for running requests, 0 to 3600.
    #[arg(long = "drain-timeout-seconds", env = "CONTEXT_DRAIN_TIMEOUT_SECONDS", value_name = "S", default_value = "10", value_parser = number(0, 3600), global = true)]
    pub drain_timeout_seconds: u64,

    /// Seconds without a connection after which a service that was started by a gateway stops, 1 to 604 800.
    #[arg(long = "idle-exit-seconds", env = "CONTEXT_IDLE_EXIT_SECONDS", value_name = "S", default_value = "900", value_parser = number(1, 604_800), global = true)]
    pub idle_exit_seconds: u64,
}

impl Load {
    /// The rate of each key; `None` without a limit.
    #[must_use]
    pub fn rate(&self) -> Option<Rate> {
        let per_minute = u32::try_from(self.rate_limit_per_minute).unwrap_or(u32::MAX);
        (per_minute > 0).then(|| Rate {
            per_minute,
            burst: per_minute.div_ceil(6),
        })
    }
}
