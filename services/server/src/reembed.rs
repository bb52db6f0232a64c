//! `context-service reembed`: switches to another embedding model. If a service listens on the configured socket, it
//! does the work and uses the new model from then on. Otherwise this process does the work.

#![expect(
    clippy::disallowed_methods,
    reason = "measures how long the command waits for a database in use"
)]

use std::io::{IsTerminal as _, Write as _};
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::extract::{Request, State};
use axum::response::{IntoResponse as _, Response};
use context_engine::{Engine, Reembedded, Reembedding, SystemClock};
use context_model::{Error, Reason};
use context_providers::Embedder;
use context_store_sqlite::OpenError;
use futures::FutureExt as _;
use http::StatusCode;
use serde::{Deserialize, Serialize};
use tokio::net::UnixStream;
use tokio::time::Instant;

use crate::admin::{self, post_json};
use crate::app::{App, defect};
use crate::cli::Cli;
use crate::config::{self, Config};
use crate::error_codes;
use crate::json_body::read_json;
use crate::models::{self, Choice};
use crate::origin::Origin;
use crate::problem::Problem;
use crate::rerankers;
use crate::rest;
use crate::start_error::StartError;
use crate::stderr::announce;

/// The route of the command. Only the Unix socket serves it, to which only the user of the
/// service and root can connect.
pub const REEMBED_ROUTE: &str = "/internal/reembed";

const MAX_REQUEST_BYTES: usize = 64 * 1024;

/// Interval at which a command asks the service for its progress.
const POLL: Duration = Duration::from_millis(250);

/// The width of the progress bar in characters.
const BAR: i64 = 40;

/// A command's request to a service.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ReembedRequest {
    /// Switch to the model of these flags, or continue a switch to it.
    Begin { flags: Vec<String> },
    /// Return the progress. The running service may be of an earlier version, in which this is called `look`.
    #[serde(rename = "look")]
    Progress,
}

/// The progress of a service.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
enum Status {
    /// No switch was started since the service started.
    Idle,
    /// Entries are being embedded.
    Running { embedded: i64, entries: i64 },
    /// The switch has ended; the sentence to print.
    Done { sentence: String },
    /// The switch has failed; the sentence to print.
    Failed { sentence: String },
}

/// The switch of a service to another model.
#[derive(Clone)]
pub struct ModelSwitch {
    app: Arc<App>,
    last: Arc<Mutex<Last>>,
}

/// The switch that was begun last.
struct Last {
    /// The flags of its model.
    flags: Vec<String>,
    status: Status,
}

impl ModelSwitch {
    /// No switch is running yet.
    pub fn new(app: Arc<App>) -> Self {
        Self {
            app,
            last: Arc::new(Mutex::new(Last {
                flags: Vec::new(),
                status: Status::Idle,
            })),
        }
    }

    fn last(&self) -> MutexGuard<'_, Last> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn status(&self) -> Status {
        self.last().status.clone()
    }

    fn set(&self, status: Status) {
        self.last().status = status;
    }

    /// Starts a switch, unless one with these flags is running.
    ///
    /// # Errors
    /// `FEATURE_UNAVAILABLE` while a switch with other flags is running; `INVALID_ARGUMENT` if the flags are malformed.
    fn begin(&self, flags: Vec<String>) -> Result<(), Error> {
        let arguments = std::iter::once("context-service")
            .chain(flags.iter().map(String::as_str))
            .map(Into::into);
        let read = config::read::<Cli>(arguments, &|_| None);
        let config = read
            .map_err(|refusal| Error::invalid("flags", refusal.text))?
            .config;
        let mut last = self.last();
        if matches!(last.status, Status::Running { .. }) {
            return if last.flags == flags {
                Ok(())
            } else {
                Err(Error::new(
                    Reason::FeatureUnavailable,
                    "the service is switching to a model with other settings; run the command again when that has ended",
                ))
            };
        }
        *last = Last {
            flags,
            status: Status::Running {
                embedded: 0,
                entries: 0,
            },
        };
        drop(last);
        let switch = self.clone();
        tokio::spawn(async move {
            let progress = |Reembedding { embedded, entries }| {
                switch.set(Status::Running { embedded, entries })
            };
            let run = run(&switch.app.engine, &config, progress);
            // A command would wait forever for a switch that has panicked.
            let outcome = AssertUnwindSafe(run).catch_unwind().await;
            switch.set(match outcome {
                Ok(Ok(sentence)) => Status::Done { sentence },
                Ok(Err(sentence)) => Status::Failed { sentence },
                Err(panic) => {
                    let error = defect(panic.as_ref());
                    error_codes::log(&error);
                    Status::Failed {
                        sentence: error.message,
                    }
                }
            });
        });
        Ok(())
    }
}

/// Handles a command's request and responds with the progress.
pub async fn reembed(State(switch): State<ModelSwitch>, request: Request) -> Response {
    if !Origin::is_unix(&request) {
        return rest::not_found(request).await.into_response();
    }
    let run = async {
        match read_json::<ReembedRequest>(request, MAX_REQUEST_BYTES).await? {
            ReembedRequest::Begin { flags } => switch.begin(flags)?,
            ReembedRequest::Progress => {}
        }
        Ok::<Status, Error>(switch.status())
    };
    match run.await {
        Ok(status) => (StatusCode::OK, axum::Json(status)).into_response(),
        Err(error) => Problem::from(error).into_response(),
    }
}

/// Loads the configured model and switches to it.
async fn run(
    engine: &Engine,
    config: &Config,
    progress: impl Fn(Reembedding) + Send,
) -> Result<String, String> {
    let embedder: Arc<dyn Embedder> = models::load(models::choose(config)?, config).await??;
    let name = embedder.model().name.clone();
    let outcome = engine
        .background
        .reembed(embedder, progress)
        .await
        .map_err(|error| error.message)?;
    Ok(match outcome {
        Reembedded::Before => format!("the vectors of {name} are already in use"),
        Reembedded::Now { refused: 0 } => format!(
            "semantic search now uses {name}; start every service with these settings from now on"
        ),
        Reembedded::Now { refused } => {
            format!(
                "semantic search now uses {name}; {refused} entries could not be embedded, and the log names them at LOG_LEVEL=WARNING; start every service with these settings from now on"
            )
        }
    })
}

/// Switches the configured database to the configured embedding model, with a progress bar on a
/// terminal. Returns the final sentence to print.
///
/// # Errors
/// A sentence that says what is wrong. Entries that were embedded stay embedded.
pub async fn command(config: &Config) -> Result<String, String> {
    let choice = models::choose(config)?;
    if let Choice::Off(reason) = &choice {
        return Err(format!(
            "there is no embedding model to switch to: {reason}"
        ));
    }
    let deadline = Instant::now() + admin::BUSY_TIMEOUT;
    let bar = Bar::default();
    let store = loop {
        if let Ok(stream) = UnixStream::connect(config.socket()).await {
            return through_service(config, stream, models::flags(config, &choice), &bar).await;
        }
        match admin::open(config).await {
            Ok(store) => break store,
            // While a service starts or stops, it holds the database lock and has no socket.
            Err(StartError::Database(OpenError::Held { .. })) if Instant::now() < deadline => {
                tokio::time::sleep(admin::POLL).await
            }
            Err(error) => return Err(error.to_string()),
        }
    };
    let engine = Engine::new(store, config.engine(), Arc::new(SystemClock))
        .map_err(|error| error.to_string())?;
    let outcome = async {
        // The reranker first: it decides whether the model stores token vectors.
        rerankers::install(&engine, config).await?;
        run(&engine, config, |Reembedding { embedded, entries }| {
            bar.show(embedded, entries)
        })
        .await
    }
    .await;
    bar.end();
    engine.close().await;
    outcome
}

/// Asks a running service to do the switch, and shows its progress.
async fn through_service(
    config: &Config,
    stream: UnixStream,
    flags: Vec<String>,
    bar: &Bar,
) -> Result<String, String> {
    let mut stream = stream;
    let mut request = ReembedRequest::Begin { flags };
    loop {
        let body = serde_json::to_string(&request).map_err(|error| error.to_string())?;
        let reply = post_json(stream, REEMBED_ROUTE, &body)
            .await
            .inspect_err(|_| bar.end())?;
        match serde_json::from_str(&reply)
            .map_err(|error| format!("the service's response cannot be read: {error}"))?
        {
            Status::Running { embedded, entries } => bar.show(embedded, entries),
            Status::Done { sentence } => {
                bar.end();
                return Ok(sentence);
            }
            Status::Failed { sentence } => {
                bar.end();
                return Err(format!(
                    "{sentence}; entries that were embedded stay embedded, and the same command continues"
                ));
            }
            Status::Idle => {
                bar.end();
                return Err(
                    "the service was restarted; the same command continues where it stopped"
                        .to_owned(),
                );
            }
        }
        request = ReembedRequest::Progress;
        tokio::time::sleep(POLL).await;
        stream = UnixStream::connect(config.socket()).await.map_err(|error| {
            bar.end();
            format!("the connection to the service was lost ({error}); when it is running again, the same command continues where it stopped")
        })?;
    }
}

/// A progress bar, if stderr is a terminal.
#[derive(Default)]
struct Bar {
    shown: Mutex<Option<(i64, i64)>>,
}

impl Bar {
    fn show(&self, embedded: i64, entries: i64) {
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        if !std::io::stderr().is_terminal() || *shown == Some((embedded, entries)) {
            return;
        }
        let filled = embedded.min(entries) * BAR / entries.max(1);
        let bar = "#".repeat(usize::try_from(filled).unwrap_or(0));
        // If stderr is closed, progress cannot be shown, and the work continues.
        let _ = write!(
            std::io::stderr(),
            "\r[{bar:<40}] {embedded} of {entries} entries"
        );
        *shown = Some((embedded, entries));
    }

    fn end(&self) {
        if self
            .shown
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
            .is_some()
        {
            announce("\n");
        }
    }
}
