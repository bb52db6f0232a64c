//! Who calls: decided before a body is read, and carried to the handlers.

use std::convert::Infallible;
use std::sync::{Arc, LazyLock};

use axum::body::Body;
use axum::extract::{FromRequestParts, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use context_engine::{AUTHENTICATION_REQUIRED, Authenticated, Caller};
use context_model::{Error, Reason, Result};
use http::request::Parts;
use http::{HeaderMap, header};

use crate::app::App;
use crate::edge::is_grpc;
use crate::rest::Problem;

/// The paths of operations. Everything else (health, metrics, documentation, reflection) shows nothing that is anybody's.
const GUARDED: [&str; 2] = ["/v1/", "/context.v1."];

/// Asks who the caller is.
const WHO_AM_I: &str = "/context.v1.ApiKeyService/GetCaller";

/// Who makes a request; as the middleware found it, or nobody.
#[derive(Clone)]
pub enum Who {
    /// Authentication is off: whoever can connect may do everything.
    Anybody,
    /// The holder of a key.
    Holder(Authenticated),
}

impl Who {
    /// The caller, for the engine.
    #[must_use]
    pub fn caller(&self) -> &Caller {
        static LOCAL: LazyLock<Caller> = LazyLock::new(Caller::local);
        match self {
            Self::Anybody => &LOCAL,
            Self::Holder(holder) => &holder.caller,
        }
    }

    /// The caller that the middleware put into a request's extensions.
    ///
    /// # Errors
    /// `UNAUTHENTICATED` when authentication is on and the middleware let nobody in: no route can forget it.
    pub fn of(app: &App, extensions: &http::Extensions) -> Result<Self> {
        if app.authenticator.is_none() {
            return Ok(Self::Anybody);
        }
        extensions.get::<Authenticated>().cloned().map(Self::Holder).ok_or_else(required)
    }
}

impl FromRequestParts<Arc<App>> for Who {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, Problem> {
        Ok(Self::of(app, &parts.extensions)?)
    }
}

fn required() -> Error {
    Error::new(Reason::Unauthenticated, AUTHENTICATION_REQUIRED)
}

/// Lets requests for operations through with their caller, and refuses those without a valid key.
pub async fn authenticate(State(app): State<Arc<App>>, mut request: Request, next: Next) -> Result<Response, Infallible> {
    let Some(authenticator) = &app.authenticator else { return Ok(next.run(request).await) };
    if !GUARDED.iter().any(|prefix| request.uri().path().starts_with(prefix)) {
        return Ok(next.run(request).await);
    }
    let outcome = match credentials(request.headers()) {
        Some(header) => authenticator.authenticate(header).await.and_then(|holder| {
            // The gateway asks before each call, which is to count once.
            if request.uri().path() != WHO_AM_I {
                authenticator.count(&holder)?;
            }
            Ok(holder)
        }),
        None => Err(required()),
    };
    match outcome {
        Ok(holder) => {
            request.extensions_mut().insert(holder);
            Ok(next.run(request).await)
        }
        Err(error) => {
            if error.reason == Reason::Unauthenticated {
                app.metrics.authentication_failures.inc();
            }
            Ok(if is_grpc(request.headers()) {
                crate::wire::status(&error).into_http::<Body>().into_response()
            } else {
                Problem::from(error).into_response()
            })
        }
    }
}

/// The one `Authorization` header; two of them are none.
fn credentials(headers: &HeaderMap) -> Option<&str> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let value = values.next()?.to_str().ok()?;
    values.next().is_none().then_some(value)
}
