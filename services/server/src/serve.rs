//! Starts the service, and stops it without losing data.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use context_edge::host::AllowedHosts;
use context_engine::{Engine, SystemClock};
use context_model::{Error, Reason};
use context_store::Store;
use http::{HeaderName, HeaderValue, Method, StatusCode, header};
use tokio::net::{TcpListener, UnixListener};
use tokio_util::sync::CancellationToken;
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::compression::predicate::{NotForContentType, Predicate as _, SizeAbove};
use tower_http::compression::{CompressionLayer, CompressionLevel};
use tower_http::cors::CorsLayer;

use crate::admin::{ADMIN_ROUTE, administer};
use crate::app::{App, defect};
use crate::banner::{Database, LISTED_KEYS, StartReport, key_line};
use crate::check_settings::check_settings;
use crate::compare_settings::{
    SETTINGS_ROUTE, STOP_UNUSED_ROUTE, Served, report_settings, stop_unused,
};
use crate::config::Config;
use crate::connections::Connections;
use crate::cross_site::CrossSite;
use crate::edge::{Edge, edge, is_grpc};
use crate::grpc;
use crate::metrics::CopyMetrics;
use crate::models;
use crate::open::{DRAIN_ROUTE, Opened, open};
use crate::open_files;
use crate::origin::Origin;
use crate::page_port::{OPEN_PAGE_ROUTE, PagePort, open_page};
use crate::page_session::PageSessions;
use crate::problem::Problem;
use crate::reembed::{ModelSwitch, REEMBED_ROUTE, reembed};
use crate::rerankers;
use crate::rest;
use crate::socket::Socket;
use crate::start_error::StartError;
use crate::summaries;

/// Smaller replies are not compressed, because compression would save nothing.
const MIN_COMPRESSED_BYTES: u16 = 1024;

/// The outcome of a start.
#[expect(
    clippy::large_enum_variant,
    reason = "there is one of them in a process"
)]
pub enum Started {
    /// The service is running.
    Running(Running),
    /// Another service already serves this database, so a gateway's start has nothing to do.
    ServedByAnother,
}

/// A running service.
pub struct Running {
    report: StartReport,
    engine: Arc<Engine>,
    /// Background work, such as late embeddings, compaction and connecting to providers.
    in_background: Background,
    health: tonic_health::server::HealthReporter,
    connections: Connections,
    socket: Socket,
    stop: CancellationToken,
    drain_timeout: Duration,
    idle_exit: Option<Duration>,
}

/// Tasks that are aborted when this is dropped.
#[derive(Default)]
struct Background(Vec<tokio::task::AbortHandle>);

impl Drop for Background {
    fn drop(&mut self) {
        self.0.iter().for_each(tokio::task::AbortHandle::abort);
    }
}

/// Starts the service with these settings.
///
/// # Errors
/// [`StartError`]. In that case nothing listens, and the database is closed.
pub async fn start(config: &Config) -> Result<Started, StartError> {
    let (tcp, grpc_tcp) = listen(config).await?;
    let store = match open(config).await? {
        Opened::Store(store) => store,
        Opened::ServedByAnother => return Ok(Started::ServedByAnother),
    };
    match start_on(Arc::clone(&store), config, (tcp, grpc_tcp), None).await {
        Ok(running) => Ok(Started::Running(running)),
        Err(error) => {
            // A process that embeds the service continues and may start it again.
            store.close().await;
            Err(error)
        }
    }
}

/// Starts the service of a copy, whose database is open already, on these listeners.
///
/// # Errors
/// [`StartError`]. In that case nothing listens.
pub async fn start_copy(
    store: Arc<dyn Store>,
    config: &Config,
    listeners: Listeners,
    copy: &CopyMetrics,
) -> Result<Running, StartError> {
    start_on(store, config, listeners, Some(copy)).await
}

/// The listeners of CONTEXT_LISTEN and CONTEXT_GRPC_LISTEN.
pub type Listeners = (Option<TcpListener>, Option<TcpListener>);

/// Checks the settings and binds the addresses: if one is taken, the database is not taken over from the service that
/// uses it.
///
/// # Errors
/// [`StartError`].
pub async fn listen(config: &Config) -> Result<Listeners, StartError> {
    check_settings(config).map_err(StartError::Settings)?;
    tracing::debug!(?config, "Read the settings");
    let (by_hand, network) = (!config.auto_started, &config.network);
    let tcp = bind("CONTEXT_LISTEN", by_hand.then_some(network.listen)).await?;
    let grpc_address = network.grpc_listen.0.filter(|_| by_hand);
    let grpc_tcp = bind("CONTEXT_GRPC_LISTEN", grpc_address).await?;
    Ok((tcp, grpc_tcp))
}

async fn start_on(
    store: Arc<dyn Store>,
    config: &Config,
    (tcp, grpc_tcp): Listeners,
    copy: Option<&CopyMetrics>,
) -> Result<Running, StartError> {
    let engine = Engine::new(store, config.engine(), Arc::new(SystemClock))
        .map_err(|e| StartError::Settings(e.to_string()))?;
    let engine = Arc::new(engine);
    let mut in_background = Background::default();
    // The reranker first: it decides whether the model stores token vectors.
    rerankers::install(&engine, config)
        .await
        .map_err(StartError::Settings)?;
    in_background.0.extend(
        models::install(&engine, config)
            .await
            .map_err(StartError::Settings)?,
    );
    in_background
        .0
        .extend(summaries::install(&engine, config).map_err(StartError::Settings)?);
    let background_engine = Arc::clone(&engine);
    let (changes, audit_days) = (config.limits.changes(), config.limits.audit_days());
    in_background.0.push(
        tokio::spawn(async move {
            let background = &background_engine.background;
            tokio::join!(
                background.backfill(),
                background.seal(),
                background.compact(changes, &SystemClock),
                background.shorten_audit_logs(audit_days, &SystemClock)
            )
        })
        .abort_handle(),
    );
    let (socket, unix) = Socket::bind(&config.socket()).await?;
    let mut app =
        App::new(engine.clone(), config).map_err(|e| StartError::Settings(e.to_string()))?;
    if let Some(copy) = copy {
        app.metrics.show_copy(copy);
    }
    let app = Arc::new(app);
    let first_key = match app.authenticator {
        // The output of a service that a gateway started is not shown to a user, and a key must not
        // be in a log.
        Some(_) if config.auto_started => {
            if matches!(engine.access.ever_had_keys().await, Ok(false)) {
                tracing::warn!(
                    "AUTH is on, but there is no API key; create one with: context-service keys create NAME"
                );
            }
            None
        }
        Some(_) => engine
            .access
            .first_key()
            .await
            .map_err(|e| StartError::Settings(e.to_string()))?,
        None => None,
    };
    let valid_keys = match app.authenticator {
        Some(_) => engine
            .access
            .valid_keys(LISTED_KEYS)
            .await
            .map_err(|e| StartError::Settings(e.to_string()))?,
        None => Default::default(),
    };
    valid_keys
        .0
        .iter()
        .for_each(|key| tracing::info!("Valid API key: {}", key_line(key)));
    let stop = CancellationToken::new();
    let (grpc, health) = grpc::router(app.clone()).await?;
    let listeners = usize::from(tcp.is_some()) + usize::from(grpc_tcp.is_some());
    let connections = Connections::new(
        app.clone(),
        open_files::connection_limits(&config.load, listeners),
    );
    let report = StartReport {
        address: tcp.as_ref().and_then(|listener| listener.local_addr().ok()),
        grpc_address: grpc_tcp
            .as_ref()
            .and_then(|listener| listener.local_addr().ok()),
        socket: socket.path().to_owned(),
        database: Database::of(config),
        keyed: app.authenticator.is_some(),
        first_key,
        valid_keys,
    };
    let drain = Drain {
        stop: stop.clone(),
        gives_way: config.auto_started,
    };
    serve(
        &connections,
        config,
        &app,
        (&report, drain),
        grpc,
        (tcp, grpc_tcp, unix),
    );
    Ok(Running {
        report,
        engine,
        in_background,
        health,
        connections,
        socket,
        stop,
        drain_timeout: config.drain_timeout(),
        idle_exit: config
            .auto_started
            .then(|| Duration::from_secs(config.load.idle_exit_seconds)),
    })
}

async fn bind(
    setting: &'static str,
    address: Option<SocketAddr>,
) -> Result<Option<TcpListener>, StartError> {
    let Some(address) = address else {
        return Ok(None);
    };
    TcpListener::bind(address)
        .await
        .map(Some)
        .map_err(|source| StartError::Address {
            setting,
            address,
            source,
        })
}

fn serve(
    connections: &Connections,
    config: &Config,
    app: &Arc<App>,
    (report, drain): (&StartReport, Drain),
    grpc: Router,
    (tcp, grpc_tcp, unix): (Option<TcpListener>, Option<TcpListener>, UnixListener),
) {
    let hosts = config
        .checks_host()
        .then(|| AllowedHosts::new(&config.network.allowed_hosts.0));
    let cross_site = app
        .authenticator
        .is_none()
        .then(|| CrossSite::new(&config.network.cors_origins.0));
    let served = Arc::new(Served {
        settings: config.settings.clone(),
        auto_started: config.auto_started,
        connections: connections.clone(),
        stop: drain.stop.clone(),
    });
    let finish = |router, hosts: &Option<AllowedHosts>, sessions| {
        let edge = Edge {
            app: app.clone(),
            hosts: hosts.clone(),
            cross_site: cross_site.clone(),
            sessions,
        };
        finish(router, config, edge)
    };
    let catch_panic = CatchPanicLayer::custom(|panic: Box<dyn std::any::Any + Send>| {
        Problem::from(defect(panic.as_ref())).into_response()
    });
    let rest = rest::router().with_state(app.clone());
    let sessions = Arc::new(PageSessions::new(report));
    let page = sessions.routes(rest.clone()).layer(catch_panic);
    // With authentication the page asks for a key.
    let required = app.authenticator.is_none().then(|| sessions.clone());
    let page = finish(page, &Some(AllowedHosts::new(&[])), required);
    let page_port = PagePort::new(connections, report.address, sessions, page);
    let rest = rest
        .route(OPEN_PAGE_ROUTE, post(open_page).with_state(page_port))
        .route(ADMIN_ROUTE, post(administer).with_state(app.clone()))
        .route(
            REEMBED_ROUTE,
            post(reembed).with_state(ModelSwitch::new(app.clone())),
        )
        .route(
            SETTINGS_ROUTE,
            post(report_settings).with_state(served.clone()),
        )
        .route(STOP_UNUSED_ROUTE, post(stop_unused).with_state(served))
        .route(DRAIN_ROUTE, post(give_way).with_state(drain))
        .layer(catch_panic);
    if let Some(listener) = grpc_tcp {
        connections.serve(listener, finish(grpc.clone(), &hosts, None));
    }
    let both = finish(rest.merge(grpc), &hosts, None);
    if let Some(listener) = tcp {
        connections.serve(listener, both.clone());
    }
    connections.serve(unix, both);
}

/// Adds the layers that every request goes through, the outermost last.
fn finish(router: Router, config: &Config, edge_state: Edge) -> Router {
    let compressible = SizeAbove::new(MIN_COMPRESSED_BYTES)
        .and(NotForContentType::GRPC)
        .and(NotForContentType::IMAGES)
        // A compressor would delay frames.
        .and(NotForContentType::SSE);
    router
        .fallback(unknown)
        .layer(axum::middleware::from_fn_with_state(
            Arc::new(edge_state),
            edge,
        ))
        .layer(
            CompressionLayer::new()
                .gzip(true)
                .quality(CompressionLevel::Fastest)
                .compress_when(compressible),
        )
        .layer(cors(&config.network.cors_origins.0))
}

/// Without origins no headers are added, and browsers block other pages.
fn cors(origins: &[String]) -> tower::util::Either<CorsLayer, tower::layer::util::Identity> {
    if origins.is_empty() {
        return tower::util::Either::Right(tower::layer::util::Identity::new());
    }
    let name = HeaderName::from_static;
    tower::util::Either::Left(
        CorsLayer::new()
            .allow_origin(
                origins
                    .iter()
                    .filter_map(|origin| HeaderValue::from_str(origin).ok())
                    .collect::<Vec<_>>(),
            )
            .allow_methods([Method::GET, Method::POST, Method::PATCH, Method::DELETE])
            .allow_headers([
                header::CONTENT_TYPE,
                header::AUTHORIZATION,
                header::IF_MATCH,
                header::IF_NONE_MATCH,
                name("idempotency-key"),
                name("last-event-id"),
                name("x-request-id"),
                name("x-grpc-web"),
                name("x-user-agent"),
                name("grpc-timeout"),
            ])
            .expose_headers([
                header::ETAG,
                header::LOCATION,
                header::RETRY_AFTER,
                name("x-request-id"),
                name("grpc-status"),
                name("grpc-message"),
                name("grpc-status-details-bin"),
            ])
            .max_age(Duration::from_secs(3600)),
    )
}

async fn unknown(request: Request) -> Response {
    if is_grpc(request.headers()) {
        grpc::unknown_method()
    } else {
        rest::not_found(request).await.into_response()
    }
}

/// Stops a service that gives way to one started by hand.
#[derive(Clone)]
struct Drain {
    stop: CancellationToken,
    gives_way: bool,
}

async fn give_way(State(drain): State<Drain>, request: Request) -> Response {
    // A user with access to the socket could send a signal as well.
    if !Origin::is_unix(&request) {
        return rest::not_found(request).await.into_response();
    }
    if !drain.gives_way {
        let error = Error::new(
            Reason::FeatureUnavailable,
            "this service was started by hand; stop it with SIGTERM",
        );
        return Problem::from(error).into_response();
    }
    drain.stop.cancel();
    StatusCode::ACCEPTED.into_response()
}

impl Running {
    /// What the start reports: addresses, database and keys.
    #[must_use]
    pub const fn start_report(&self) -> &StartReport {
        &self.report
    }

    /// The address of gRPC and REST, if it listens on TCP.
    #[must_use]
    pub const fn address(&self) -> Option<SocketAddr> {
        self.report.address
    }

    /// The path of the Unix socket.
    #[must_use]
    pub fn socket(&self) -> &Path {
        self.socket.path()
    }

    /// The engine, for processes that embed the service.
    #[must_use]
    pub const fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// A token that stops the service when cancelled.
    #[must_use]
    pub fn stop(&self) -> CancellationToken {
        self.stop.clone()
    }

    /// Serves until it is stopped or has been idle for long enough; then finishes requests in
    /// flight and closes the database.
    pub async fn run(self) {
        let idle = async {
            match self.idle_exit {
                Some(limit) => self.connections.idle(limit).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = self.stop.cancelled() => tracing::info!("Stopping"),
            () = idle => tracing::info!("Stopping: no client has been connected for the idle time"),
        }
        grpc::set_not_serving(&self.health).await;
        self.connections.drain.cancel();
        self.connections.closed(self.drain_timeout).await;
        // The socket file is removed while the database is still locked. Once the lock is released,
        // the file of this name may belong to another service.
        drop(self.socket);
        drop(self.in_background);
        self.engine.close().await;
        tracing::info!("Stopped");
    }
}
