//! Opens a port for the page if the service has no port.
//!
//! A gateway starts the service with a Unix socket alone, and a browser cannot connect to a socket. Any caller that can
//! reach the socket may request the page. The service then listens on a loopback port until no page has been visible
//! for 30 minutes.

#![expect(
    clippy::disallowed_methods,
    reason = "measures the time since the page was requested"
)]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::response::{IntoResponse as _, Response};
use context_model::{Error, Reason};
use serde::{Deserialize, Serialize};
use tokio::net::{TcpListener, UnixStream};
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::admin::post_json;
use crate::config::Config;
use crate::connections::Connections;
use crate::origin::Origin;
use crate::page_session::PageSessions;
use crate::problem::Problem;
use crate::rest;

/// The route that opens the page. Only the Unix socket serves it.
pub const OPEN_PAGE_ROUTE: &str = "/internal/open-page";

/// The port closes when it has had no connection for this long. A visible page has one.
const WITHOUT_PAGE: Duration = Duration::from_secs(30 * 60);

/// The page's port, open or closed.
pub struct PagePort {
    connections: Connections,
    /// The service's own port, which serves the page as well.
    own: Option<SocketAddr>,
    sessions: Arc<PageSessions>,
    router: Router,
    open: Mutex<Option<Open>>,
}

/// An open port.
struct Open {
    address: SocketAddr,
    /// When the page was last requested.
    requested: Instant,
}

/// The page's URL. Its fragment may contain a ticket.
#[derive(Serialize, Deserialize)]
struct Page {
    url: String,
}

impl PagePort {
    /// A closed port. Once opened, it serves `router`.
    pub fn new(
        connections: &Connections,
        own: Option<SocketAddr>,
        sessions: Arc<PageSessions>,
        router: Router,
    ) -> Arc<Self> {
        Arc::new(Self {
            connections: connections.clone(),
            own,
            sessions,
            router,
            open: Mutex::default(),
        })
    }

    /// The URL of the page. Opens the port if the service has none.
    async fn url(self: &Arc<Self>) -> Result<String, Error> {
        if let Some(own) = self.own {
            return Ok(format!("http://{}/", reachable(own)));
        }
        let mut open = self.open.lock().await;
        let address = match &mut *open {
            Some(open) => {
                open.requested = Instant::now();
                open.address
            }
            None => {
                let address = self.listen().await?;
                *open = Some(Open {
                    address,
                    requested: Instant::now(),
                });
                address
            }
        };
        Ok(format!(
            "http://{address}/#open={}",
            self.sessions.ticket()?
        ))
    }

    async fn listen(self: &Arc<Self>) -> Result<SocketAddr, Error> {
        let failed = |error| {
            let sentence = format!("the page's port on 127.0.0.1 cannot be opened: {error}");
            Error::new(Reason::FeatureUnavailable, sentence)
        };
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
            .await
            .map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let connections = self.connections.of_one_listener();
        connections.serve(listener, self.router.clone());
        tracing::info!(%address, "Opened a port for the page");
        let port = self.clone();
        tokio::spawn(async move {
            // A service that a gateway started stays while the port is open.
            let _in_use = port.connections.in_use();
            tokio::select! {
                () = port.close_when_idle(&connections) => {}
                () = connections.drain.cancelled() => {}
            }
        });
        Ok(address)
    }

    async fn close_when_idle(&self, connections: &Connections) {
        loop {
            connections.idle(WITHOUT_PAGE).await;
            let mut open = self.open.lock().await;
            // A browser that was just given the URL must find the page.
            let is_wanted = open
                .as_ref()
                .is_some_and(|open| open.requested.elapsed() < WITHOUT_PAGE);
            if is_wanted || connections.are_open() {
                continue;
            }
            connections.drain.cancel();
            self.sessions.clear();
            *open = None;
            tracing::info!("Closed the port of the page: no page has been visible for 30 minutes");
            return;
        }
    }
}

/// Opens the page of this service, for a process that has connected to the socket.
pub async fn open_page(State(port): State<Arc<PagePort>>, request: Request) -> Response {
    if !Origin::is_unix(&request) {
        return rest::not_found(request).await.into_response();
    }
    match port.url().await {
        Ok(url) => axum::Json(Page { url }).into_response(),
        Err(error) => Problem::from(error).into_response(),
    }
}

/// Asks the running service for its page and returns the page's URL.
///
/// # Errors
/// A sentence to print.
pub async fn command(config: &Config) -> Result<String, String> {
    let socket = config.socket();
    let stream = UnixStream::connect(&socket).await.map_err(|_| {
        format!(
            "no service responds on {}; start it with `context-service`, or use `context-gateway open`, which starts it",
            socket.display()
        )
    })?;
    let reply = post_json(stream, OPEN_PAGE_ROUTE, "{}").await?;
    serde_json::from_str(&reply)
        .map(|Page { url }| url)
        .map_err(|_| "the service that serves this database is too old to open its page".to_owned())
}

/// An address at which a browser on this machine reaches a listener.
fn reachable(listener: SocketAddr) -> SocketAddr {
    let ip = match listener.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, listener.port())
}

/// Opens a URL in the user's browser. Returns whether there is a browser: over SSH there is none.
#[must_use]
pub fn show(url: &str) -> bool {
    let has_display = cfg!(target_os = "macos")
        || ["DISPLAY", "WAYLAND_DISPLAY", "BROWSER"]
            .iter()
            .any(|name| std::env::var_os(name).is_some_and(|value| !value.is_empty()));
    has_display && open::that_detached(url).is_ok()
}
