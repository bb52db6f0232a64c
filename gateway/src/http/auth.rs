//! Who may call over HTTP: 401 and 403 where HTTP clients look for them, and the metadata that tells them how to do better
//! (RFC 6750, RFC 9728). The service stays the judge: a caller's header goes on to it unchanged with each call.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use context_model::{Reason, Scope};
use context_proto::v1::GetCallerRequest;
use serde::Deserialize;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tokio::sync::Semaphore;
use tonic::metadata::AsciiMetadataValue;

use crate::call::tool_operation;
use crate::handler::Gateway;
use crate::memory::Caller;

/// The documented sentence.
const REQUIRED: &str = "Authentication required. Please provide a valid API key.";
/// For how long an answer of the service about a key counts.
const FRESH: Duration = Duration::from_millis(500);
/// How long the service may take to say who a caller is.
const PATIENCE: Duration = Duration::from_secs(5);
/// Answers that are remembered.
const MAX_KNOWN: usize = 10_000;
/// Questions to the service at once about callers that it named before.
const MAX_ASKING: usize = 256;
/// Concurrent authentication requests for unknown callers; known callers do not wait for them.
const MAX_ASKING_NEW: usize = 64;

/// The scopes that tools need.
const SCOPES: [Scope; 3] = [Scope::Read, Scope::Write, Scope::Delete];

/// Where the metadata is, at the root and with the path of what it is about (RFC 9728, section 3.1).
pub const METADATA_PATHS: [&str; 2] = [
    "/.well-known/oauth-protected-resource",
    "/.well-known/oauth-protected-resource/mcp",
];

/// What needs a key or token, as clients know it.
#[derive(Debug, Clone)]
pub struct Guarded {
    /// The URL of `/mcp`.
    pub resource: String,
    /// Who gives tokens; `None` when there are only keys.
    pub issuer: Option<String>,
    /// What the issuer's names of our scopes begin with.
    pub scope_prefix: String,
}

/// What a caller's scopes are, for whoever handles the request next.
#[derive(Debug, Clone)]
pub struct CallerScopes(Arc<Vec<Scope>>);

/// Asks the service who a caller is.
#[derive(Clone)]
pub struct Guard {
    gateway: Arc<Gateway>,
    guarded: Arc<Guarded>,
    known: Arc<Mutex<Known>>,
    asking: Arc<Semaphore>,
    asking_new: Arc<Semaphore>,
}

/// Callers by the SHA-256 of their header, and when the service was asked.
type Known = HashMap<[u8; 32], (Instant, CallerScopes)>;

/// What is known about a caller.
enum Verdict {
    Known(Caller, CallerScopes),
    Nobody,
    /// The service did not say; each call will.
    Unknown,
    /// Too many are being asked about.
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
            known: Arc::default(),
            asking: Arc::new(Semaphore::new(MAX_ASKING)),
            asking_new: Arc::new(Semaphore::new(MAX_ASKING_NEW)),
        }
    }

    /// RFC 9728 metadata. Without an issuer of tokens there is no authorization server: keys are handed out by hand.
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

    /// A scope as whoever gives credentials names it.
    fn name(&self, scope: Scope) -> String {
        format!("{}{}", self.guarded.scope_prefix, scope.as_str())
    }

    /// Where a client learns more.
    fn metadata_url(&self) -> String {
        let resource = &self.guarded.resource;
        let origin = resource.strip_suffix("/mcp").unwrap_or(resource);
        format!("{origin}{}", METADATA_PATHS[1])
    }

    async fn ask(&self, headers: &HeaderMap) -> Verdict {
        let mut values = headers.get_all(header::AUTHORIZATION).iter();
        let (Some(value), None) = (values.next(), values.next()) else {
            return Verdict::Nobody;
        };
        let fingerprint: [u8; 32] = Sha256::digest(value.as_bytes()).into();
        let remembered = self
            .known
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(&fingerprint)
            .cloned();
        let asking = if remembered.is_some() {
            &self.asking
        } else {
            &self.asking_new
        };
        if let Some((_, scopes)) = remembered.filter(|(at, _)| at.elapsed() < FRESH) {
            return Verdict::Known(Caller::Key(fingerprint), scopes);
        }
        let Ok(_place) = asking.try_acquire() else {
            return Verdict::Busy;
        };
        let Ok(mut credentials) = AsciiMetadataValue::try_from(value.as_bytes()) else {
            return Verdict::Nobody;
        };
        credentials.set_sensitive(true);
        let mut request = tonic::Request::new(GetCallerRequest {});
        request.metadata_mut().insert("authorization", credentials);
        request.set_timeout(PATIENCE);
        let answer =
            tokio::time::timeout(PATIENCE, self.gateway.backend().keys().get_caller(request)).await;
        match answer {
            Ok(Ok(reply)) => {
                let scopes = reply
                    .into_inner()
                    .scopes
                    .iter()
                    .filter_map(|scope| Scope::parse(scope))
                    .collect();
                let scopes = CallerScopes(Arc::new(scopes));
                let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
                if known.len() >= MAX_KNOWN {
                    known.clear();
                }
                known.insert(fingerprint, (Instant::now(), scopes.clone()));
                Verdict::Known(Caller::Key(fingerprint), scopes)
            }
            Ok(Err(status))
                if context_proto::error_from_status(&status).reason == Reason::Unauthenticated =>
            {
                Verdict::Nobody
            }
            Ok(Err(_)) | Err(_) => Verdict::Unknown,
        }
    }

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

/// Refuses whoever has no valid key or token, before a body is read.
pub async fn admit(State(guard): State<Guard>, mut request: Request, next: Next) -> Response {
    match guard.ask(request.headers()).await {
        Verdict::Known(caller, scopes) => {
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
        Verdict::Nobody => {
            let error = request
                .headers()
                .contains_key(header::AUTHORIZATION)
                .then_some("invalid_token");
            let scopes = SCOPES.map(|scope| guard.name(scope)).join(" ");
            guard.challenge(StatusCode::UNAUTHORIZED, error, &scopes, REQUIRED)
        }
    }
}

/// What a message calls, and nothing else of it.
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

/// The 403 for a tool that the caller's scopes do not allow.
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
    let operation =
        tool_operation(&message.params?.name?).filter(|_| message.method == "tools/call")?;
    let needed = operation.scope()?;
    if scopes.contains(&needed) {
        return None;
    }
    let sentence = format!(
        "this operation needs the scope `{}`, which the credentials do not carry",
        needed.as_str()
    );
    Some(guard.challenge(
        StatusCode::FORBIDDEN,
        Some("insufficient_scope"),
        &guard.name(needed),
        &sentence,
    ))
}
