//! Authentication over HTTP: 401 and 403 in the form HTTP clients expect (RFC 6750), and the metadata with which they
//! get credentials (RFC 9728). The service decides: each call forwards the caller's header to it unchanged.

#![expect(
    clippy::disallowed_methods,
    reason = "measures the age of a cached authentication result"
)]

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use context_model::{Error, Reason, Scope};
use context_proto::v1::GetCallerRequest;
use serde::Deserialize;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tokio::sync::Semaphore;
use tonic::metadata::AsciiMetadataValue;

use crate::call::tool_operation;
use crate::handler::Gateway;
use crate::memory::Caller;

/// The message of a 401 response, the same as the service's.
const REQUIRED: &str = "Authentication required. Please provide a valid API key.";
/// How long an authentication result is cached.
const CACHE_TTL: Duration = Duration::from_millis(500);
/// Timeout of one authentication request to the service.
const AUTHENTICATION_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum number of cached authentication results.
const MAX_CACHED: usize = 10_000;
/// Maximum number of concurrent authentication requests for callers that were authenticated before.
const MAX_REAUTHENTICATIONS: usize = 256;
/// Maximum number of concurrent authentication requests for new callers. It is separate, so that new callers do not
/// delay the others.
const MAX_FIRST_AUTHENTICATIONS: usize = 64;

/// The scopes that tools need.
const SCOPES: [Scope; 3] = [Scope::Read, Scope::Write, Scope::Delete];

/// Paths of the metadata: at the root, and with the path of the resource (RFC 9728, section 3.1).
pub const METADATA_PATHS: [&str; 2] = [
    "/.well-known/oauth-protected-resource",
    "/.well-known/oauth-protected-resource/mcp",
];

/// The resource that needs a key or token, as clients see it.
#[derive(Debug, Clone)]
pub struct Guarded {
    /// The URL of `/mcp`.
    pub resource: String,
    /// The issuer of tokens; `None` if only API keys are accepted.
    pub issuer: Option<String>,
    /// The prefix of the issuer's names for our scopes.
    pub scope_prefix: String,
}

/// The scopes of the authenticated caller, passed on to the inner handlers.
#[derive(Debug, Clone)]
pub struct CallerScopes(Arc<Vec<Scope>>);

/// Authenticates callers by a request to the service, and caches the result for [`CACHE_TTL`].
#[derive(Clone)]
pub struct Guard {
    gateway: Arc<Gateway>,
    guarded: Arc<Guarded>,
    cache: Arc<Mutex<Cache>>,
    reauthentications: Arc<Semaphore>,
    first_authentications: Arc<Semaphore>,
}

/// Authenticated callers by the SHA-256 of their header, with the time of the authentication. A result older than
/// [`CACHE_TTL`] only shows that the caller is not new.
type Cache = HashMap<[u8; 32], (Instant, CallerScopes)>;

/// The outcome of authenticating a caller.
enum Verdict {
    Authenticated(Caller, CallerScopes),
    Unauthenticated,
    /// The service did not respond, or its error does not say that the caller is unauthenticated. The request may go on,
    /// because the service authenticates the caller again at each call.
    Unknown,
    /// Too many authentication requests are in flight.
    Busy,
}

impl Guard {
    /// A guard of this gateway.
    #[must_use]
    pub fn new(gateway: Arc<Gateway>, guarded: Guarded) -> Self {
        let resource = guarded.resource.trim_end_matches('/').to_owned();
        Self {
            gateway,
            guarded: Arc::new(Guarded {
                resource,
                ..guarded
            }),
            cache: Arc::default(),
            reauthentications: Arc::new(Semaphore::new(MAX_REAUTHENTICATIONS)),
            first_authentications: Arc::new(Semaphore::new(MAX_FIRST_AUTHENTICATIONS)),
        }
    }

    /// RFC 9728 metadata. Without an issuer it names no authorization server, because the operator hands out API keys.
    #[must_use]
    pub fn metadata(&self) -> Value {
        let mut metadata = json!({
            "resource": self.guarded.resource,
            "resource_name": "Context service",
            "scopes_supported": SCOPES.map(|scope| self.name(scope)),
            "bearer_methods_supported": ["header"],
        });
        if let Some(issuer) = &self.guarded.issuer {
            metadata["authorization_servers"] = json!([issuer]);
        }
        metadata
    }

    /// A scope as the issuer names it.
    fn name(&self, scope: Scope) -> String {
        format!("{}{}", self.guarded.scope_prefix, scope.as_str())
    }

    /// The URL of the metadata.
    fn metadata_url(&self) -> String {
        let resource = &self.guarded.resource;
        let origin = resource.strip_suffix("/mcp").unwrap_or(resource);
        format!("{origin}{}", METADATA_PATHS[1])
    }

    /// Authenticates the caller of a request from the cache, or by a request to the service.
    async fn authenticate(&self, headers: &HeaderMap) -> Verdict {
        let mut values = headers.get_all(header::AUTHORIZATION).iter();
        let (Some(value), None) = (values.next(), values.next()) else {
            return Verdict::Unauthenticated;
        };
        let fingerprint: [u8; 32] = Sha256::digest(value.as_bytes()).into();
        let cached = self
            .cache
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(&fingerprint)
            .cloned();
        let permits = if cached.is_some() {
            &self.reauthentications
        } else {
            &self.first_authentications
        };
        if let Some((_, scopes)) = cached.filter(|(at, _)| at.elapsed() < CACHE_TTL) {
            return Verdict::Authenticated(Caller::Key(fingerprint), scopes);
        }
        let Ok(_permit) = permits.try_acquire() else {
            return Verdict::Busy;
        };
        let Ok(mut credentials) = AsciiMetadataValue::try_from(value.as_bytes()) else {
            return Verdict::Unauthenticated;
        };
        credentials.set_sensitive(true);
        let mut request = tonic::Request::new(GetCallerRequest {});
        request.metadata_mut().insert("authorization", credentials);
        request.set_timeout(AUTHENTICATION_TIMEOUT);
        let response = tokio::time::timeout(
            AUTHENTICATION_TIMEOUT,
            self.gateway.backend().keys().get_caller(request),
        )
        .await;
        match response {
            Ok(Ok(reply)) => {
                let scopes = reply
                    .into_inner()
                    .scopes
                    .iter()
                    .filter_map(|scope| Scope::parse(scope))
                    .collect();
                let scopes = CallerScopes(Arc::new(scopes));
                let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
                if cache.len() >= MAX_CACHED {
                    cache.clear();
                }
                cache.insert(fingerprint, (Instant::now(), scopes.clone()));
                Verdict::Authenticated(Caller::Key(fingerprint), scopes)
            }
            Ok(Err(status))
                if context_proto::error_from_status(&status).reason == Reason::Unauthenticated =>
            {
                Verdict::Unauthenticated
            }
            Ok(Err(_)) | Err(_) => Verdict::Unknown,
        }
    }

    /// A response with this status and a `WWW-Authenticate` header (RFC 6750).
    fn challenge(
        &self,
        status: StatusCode,
        error: Option<&str>,
        scope: &str,
        sentence: &str,
    ) -> Response {
        let error = error
            .map(|error| format!("error=\"{error}\", "))
            .unwrap_or_default();
        let challenge = format!(
            "Bearer {error}scope=\"{scope}\", resource_metadata=\"{}\"",
            self.metadata_url()
        );
        let mut response = (status, axum::Json(json!({ "error": sentence }))).into_response();
        if let Ok(challenge) = HeaderValue::from_str(&challenge) {
            response
                .headers_mut()
                .insert(header::WWW_AUTHENTICATE, challenge);
        }
        response
    }
}

/// Refuses requests without a valid key or token before their body is read.
pub async fn admit(State(guard): State<Guard>, mut request: Request, next: Next) -> Response {
    match guard.authenticate(request.headers()).await {
        Verdict::Authenticated(caller, scopes) => {
            request.extensions_mut().insert(caller);
            request.extensions_mut().insert(scopes);
            request.extensions_mut().insert(guard);
            next.run(request).await
        }
        Verdict::Unknown => {
            request.extensions_mut().insert(Caller::Unknown);
            next.run(request).await
        }
        Verdict::Busy => (
            StatusCode::SERVICE_UNAVAILABLE,
            [(header::RETRY_AFTER, "1")],
            "too many callers at once; try again in a moment\n",
        )
            .into_response(),
        Verdict::Unauthenticated => {
            let error = request
                .headers()
                .contains_key(header::AUTHORIZATION)
                .then_some("invalid_token");
            let scopes = SCOPES.map(|scope| guard.name(scope)).join(" ");
            guard.challenge(StatusCode::UNAUTHORIZED, error, &scopes, REQUIRED)
        }
    }
}

/// The method and tool name of a message, and nothing else.
#[derive(Deserialize)]
struct Message<'m> {
    #[serde(borrow)]
    method: std::borrow::Cow<'m, str>,
    #[serde(borrow)]
    params: Option<Params<'m>>,
}

#[derive(Deserialize)]
struct Params<'m> {
    #[serde(borrow)]
    name: Option<std::borrow::Cow<'m, str>>,
}

/// The 403 response if the caller's scopes do not allow the tool; else `None`.
#[must_use]
pub fn refusal(extensions: &axum::http::Extensions, body: &[u8]) -> Option<Response> {
    let (guard, CallerScopes(scopes)) = (
        extensions.get::<Guard>()?,
        extensions.get::<CallerScopes>()?,
    );
    if SCOPES.iter().all(|scope| scopes.contains(scope)) {
        return None;
    }
    let message: Message<'_> = serde_json::from_slice(body).ok()?;
    if message.method != "tools/call" {
        return None;
    }
    let name = message.params?.name?;
    // The error for an unknown tool is the same for every caller, so it is left to the MCP server.
    guard.gateway.tools().find(&name)?;
    let needed = tool_operation(&name)?.scope()?;
    if scopes.contains(&needed) {
        return None;
    }
    Some(guard.challenge(
        StatusCode::FORBIDDEN,
        Some("insufficient_scope"),
        &guard.name(needed),
        &Error::scope_missing(needed).message,
    ))
}
