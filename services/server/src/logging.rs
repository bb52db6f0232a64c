//! The log, on stderr.

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

use crate::config::{Format, Level, Log};

/// Starts logging. A second call in the same process changes nothing.
pub fn start(log: &Log) {
    let level = match log.log_level {
        Level::Debug => LevelFilter::DEBUG,
        Level::Info => LevelFilter::INFO,
        Level::Warning => LevelFilter::WARN,
        Level::Error | Level::Critical => LevelFilter::ERROR,
    };
    // What the HTTP libraries trace at `debug` is about bytes, and can hold parts of what callers sent.
    let filter = ["h2", "hyper", "hyper_util", "tonic", "tower"].into_iter().filter_map(|name| format!("{name}=warn").parse().ok()).fold(
        EnvFilter::default().add_directive(level.into()),
        |filter, directive| {
            if level >= LevelFilter::INFO { filter.add_directive(directive) } else { filter }
        },
    );
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_target(false);
    let ansi = std::io::IsTerminal::is_terminal(&std::io::stderr());
    let _ = match log.log_format {
        Format::Text => builder.with_ansi(ansi).try_init(),
        Format::Json => builder.json().flatten_event(true).try_init(),
    };
}
