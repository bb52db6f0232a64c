//! Logging to stderr.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::sync::Arc;

use context_engine::Caller;
use context_model::Reason;
use http::HeaderValue;
use tracing::{Event, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::format::{self, JsonFields, Writer};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use crate::config::{Format, Level, Log};

tokio::task_local! {
    /// The request that the current task handles. A span could hold this too, but would format its
    /// fields for each request.
    static REQUEST: LoggedRequest;
}

/// The request that the current task handles, as the log shows it.
struct LoggedRequest {
    id: HeaderValue,
    caller: RefCell<Option<Arc<Caller>>>,
    is_authenticated: Cell<bool>,
    reason: Cell<Option<Reason>>,
}

/// What the layers below the edge recorded about a request.
#[derive(Debug, Default)]
pub struct RequestFacts {
    /// Whether the request passed authentication. With authentication off, every request for an operation does.
    pub is_authenticated: bool,
    /// The id of the caller's key, or the name of the holder of its token; `None` if the caller was not authenticated.
    pub key_id: Option<String>,
    /// Why the request failed.
    pub reason: Option<Reason>,
}

/// Handles a request so that each of its log lines ends with the request's id.
pub async fn of_request<T>(id: HeaderValue, handling: impl Future<Output = T>) -> T {
    let request = LoggedRequest {
        id,
        caller: RefCell::default(),
        is_authenticated: Cell::new(false),
        reason: Cell::new(None),
    };
    REQUEST.scope(request, handling).await
}

/// Records that the request of the current task passed authentication, and its caller; `None` if authentication is off.
pub fn note_caller(caller: Option<&Arc<Caller>>) {
    let _ = REQUEST.try_with(|request| {
        request.is_authenticated.set(true);
        request.caller.replace(caller.cloned());
    });
}

/// Records why the request that the current task handles failed.
pub fn note_reason(reason: Reason) {
    let _ = REQUEST.try_with(|request| request.reason.set(Some(reason)));
}

/// What was recorded about the request that the current task handles.
#[must_use]
pub fn request_facts() -> RequestFacts {
    let read = |request: &LoggedRequest| RequestFacts {
        is_authenticated: request.is_authenticated.get(),
        key_id: request
            .caller
            .borrow()
            .as_ref()
            .and_then(|caller| caller.key_id.clone()),
        reason: request.reason.get(),
    };
    REQUEST.try_with(read).unwrap_or_default()
}

/// Starts logging. A second call in the same process changes nothing.
pub fn start(log: &Log) {
    let level = match log.log_level {
        Level::Debug => LevelFilter::DEBUG,
        Level::Info => LevelFilter::INFO,
        Level::Warning => LevelFilter::WARN,
        Level::Error | Level::Critical => LevelFilter::ERROR,
    };
    // At `debug`, the HTTP libraries log raw bytes, which can contain data of callers.
    let filter = ["h2", "hyper", "hyper_util", "tonic", "tower"]
        .into_iter()
        .filter_map(|name| format!("{name}=warn").parse().ok())
        .fold(
            EnvFilter::default().add_directive(level.into()),
            |filter, directive| {
                if level >= LevelFilter::INFO {
                    filter.add_directive(directive)
                } else {
                    filter
                }
            },
        );
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        // Otherwise a line that cannot be written, because the disk is full or the reader of a pipe has gone, is
        // reported with `eprintln!`, which panics for the same reason.
        .log_internal_errors(false);
    let ansi = std::io::IsTerminal::is_terminal(&std::io::stderr());
    let line = format::format().with_target(false);
    let _ = match log.log_format {
        Format::Text => builder
            .with_ansi(ansi)
            .event_format(WithRequestId {
                line: line.with_ansi(ansi),
                json: false,
            })
            .try_init(),
        Format::Json => builder
            .fmt_fields(JsonFields::new())
            .event_format(WithRequestId {
                line: line.json().flatten_event(true),
                json: true,
            })
            .try_init(),
    };
}

/// Appends the request id to each line of the inner format.
struct WithRequestId<F> {
    line: F,
    json: bool,
}

impl<S, N, F> FormatEvent<S, N> for WithRequestId<F>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'w> FormatFields<'w> + 'static,
    F: FormatEvent<S, N>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let Ok(id) = REQUEST.try_with(|request| request.id.clone()) else {
            return self.line.format_event(context, writer, event);
        };
        let mut line = String::new();
        self.line
            .format_event(context, Writer::new(&mut line), event)?;
        // The edge accepts only letters, digits and a few symbols in an id, so it needs no quoting.
        let id = id.to_str().unwrap_or_default();
        match line.trim_end().strip_suffix('}').filter(|_| self.json) {
            Some(fields) => writeln!(writer, "{fields},\"request_id\":\"{id}\"}}"),
            None => writeln!(writer, "{} request_id={id}", line.trim_end()),
        }
    }
}
