//! One line in the log for each request, at INFO. It contains no text, no query and no secret: it names the template of
//! the path, and of a key only the id.

#![expect(
    clippy::disallowed_methods,
    reason = "measures how long a request takes"
)]

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::extract::{MatchedPath, Request};
use axum::response::Response;
use context_model::{Operation, Reason};
use http::{Method, StatusCode};
use tracing::Level;

use crate::error_codes::codes;
use crate::logging;
use crate::transport::Transport;

/// Maximum number of lines in each [`PERIOD`] about unauthenticated requests. Anyone who reaches the service can send
/// such requests. Without a limit they could fill the disk that holds the log.
const MAX_UNAUTHENTICATED_LINES: u32 = 100;
const PERIOD: Duration = Duration::from_secs(1);

/// gRPC's header for the status of a call. It is absent from the head of the reply of a call that succeeded.
const GRPC_STATUS: &str = "grpc-status";

/// The request log of one service.
#[derive(Debug, Default)]
pub struct RequestLog {
    unauthenticated: Mutex<Window>,
}

impl RequestLog {
    /// Starts the line of a request that arrived now; `None` if INFO lines are not logged.
    pub fn begin(
        self: &Arc<Self>,
        request: &Request,
        operation: Option<Operation>,
        transport: Transport,
    ) -> Option<Line> {
        tracing::enabled!(Level::INFO).then(|| Line {
            log: self.clone(),
            method: method_name(request.method()),
            route: Route::of(request, operation),
            transport,
            status: status_of(Reason::Cancelled, transport),
            started: Instant::now(),
        })
    }
}

/// The line of a request in flight. When it is dropped before the response is ready, the client has left.
#[derive(Debug)]
pub struct Line {
    log: Arc<RequestLog>,
    method: &'static str,
    route: Route,
    transport: Transport,
    status: u16,
    started: Instant,
}

impl Line {
    /// Writes the line with the status of this response.
    pub fn end(mut self, response: &Response) {
        let grpc_status = response.headers().get(GRPC_STATUS);
        let grpc_status = grpc_status.and_then(|status| status.to_str().ok()?.parse().ok());
        let status = response.status();
        self.status = match (self.transport, grpc_status) {
            (Transport::Grpc, Some(status)) => status,
            (Transport::Grpc, None) if status == StatusCode::OK => 0,
            (Transport::Grpc, None) | (Transport::Rest, _) => status.as_u16(),
        };
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        let request = logging::request_facts();
        if !request.is_authenticated {
            let mut window = self
                .log
                .unauthenticated
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            let counted = window.count(Instant::now());
            drop(window);
            if counted.left_out_before > 0 {
                tracing::info!(
                    requests = counted.left_out_before,
                    "Left out the lines of unauthenticated requests: there were more than {MAX_UNAUTHENTICATED_LINES} in a second"
                );
            }
            if !counted.is_logged {
                return;
            }
        }
        let Self {
            log: _,
            method,
            route,
            transport,
            status,
            started,
        } = self;
        let micros = u32::try_from(started.elapsed().as_micros()).unwrap_or(u32::MAX);
        tracing::info!(
            method = %method,
            route = %route.as_str(),
            transport = %transport.as_str(),
            status,
            reason = request.reason.map(Reason::as_str),
            duration_ms = f64::from(micros) / 1000.0,
            key_id = request.key_id,
            "Request"
        );
    }
}

/// The status of a request that failed for this reason.
fn status_of(reason: Reason, transport: Transport) -> u16 {
    let (grpc, http) = codes(reason);
    match transport {
        Transport::Grpc => u16::try_from(grpc as i32).unwrap_or_default(),
        Transport::Rest => http.as_u16(),
    }
}

/// The name of a standard method. All others share one name, because theirs could have any length.
fn method_name(method: &Method) -> &'static str {
    let standard = [
        (&Method::GET, "GET"),
        (&Method::HEAD, "HEAD"),
        (&Method::POST, "POST"),
        (&Method::PUT, "PUT"),
        (&Method::PATCH, "PATCH"),
        (&Method::DELETE, "DELETE"),
        (&Method::OPTIONS, "OPTIONS"),
        (&Method::TRACE, "TRACE"),
        (&Method::CONNECT, "CONNECT"),
    ];
    let found = standard.into_iter().find(|(one, _)| *one == method);
    found.map_or("other", |(_, name)| name)
}

/// The route of a request, without the ids in its path.
#[derive(Debug)]
enum Route {
    /// The path of a gRPC method of this API.
    Grpc(String),
    /// The template that the path matched.
    Template(MatchedPath),
    /// The path matched no route. It is not logged, because it can hold anything.
    Unknown,
}

impl Route {
    fn of(request: &Request, operation: Option<Operation>) -> Self {
        let path = request.uri().path();
        if operation.is_some() && Operation::of_grpc_path(path) == operation {
            return Self::Grpc(path.to_owned());
        }
        let template = request.extensions().get::<MatchedPath>();
        template.map_or(Self::Unknown, |template| Self::Template(template.clone()))
    }

    fn as_str(&self) -> &str {
        match self {
            Self::Grpc(path) => path,
            Self::Template(template) => template.as_str(),
            Self::Unknown => "unknown",
        }
    }
}

/// Counts the lines of a [`PERIOD`].
#[derive(Debug, Default)]
struct Window {
    began: Option<Instant>,
    lines: u32,
    left_out: u64,
}

#[derive(Debug, PartialEq, Eq)]
struct Counted {
    is_logged: bool,
    /// How many lines were left out in the period that ended with this line.
    left_out_before: u64,
}

impl Window {
    fn count(&mut self, now: Instant) -> Counted {
        let mut left_out_before = 0;
        if self
            .began
            .is_none_or(|began| now.saturating_duration_since(began) >= PERIOD)
        {
            left_out_before = self.left_out;
            *self = Self {
                began: Some(now),
                ..Self::default()
            };
        }
        let is_logged = self.lines < MAX_UNAUTHENTICATED_LINES;
        if is_logged {
            self.lines += 1;
        } else {
            self.left_out += 1;
        }
        Counted {
            is_logged,
            left_out_before,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_without_a_known_caller_gets_a_bounded_number_of_lines_and_their_count() {
        let mut window = Window::default();
        let start = Instant::now();
        let flood = 3 * u64::from(MAX_UNAUTHENTICATED_LINES);
        let logged = (0..flood).filter(|_| window.count(start).is_logged).count();
        assert_eq!(logged, MAX_UNAUTHENTICATED_LINES as usize);
        assert_eq!(
            window.count(start + PERIOD),
            Counted {
                is_logged: true,
                left_out_before: flood - u64::from(MAX_UNAUTHENTICATED_LINES),
            }
        );
        assert_eq!(window.count(start + PERIOD * 2).left_out_before, 0);
    }

    #[test]
    fn methods_that_are_not_standard_share_a_name() {
        assert_eq!(method_name(&Method::PATCH), "PATCH");
        let long = "X".repeat(9_000);
        let odd = Method::from_bytes(long.as_bytes()).unwrap();
        assert_eq!(method_name(&odd), "other");
    }
}
