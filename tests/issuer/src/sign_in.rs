//! Signing people in. Every valid request to sign in succeeds at once, without a password.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use axum::Json;
use axum::extract::{RawQuery, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use ring::digest::{SHA256, digest};
use serde_json::json;

/// The client whose people the issuer signs in.
pub struct SignIn {
    /// The client's id.
    pub client: String,
    /// The client's secret, if it has one. It must come in the `Authorization` header.
    pub secret: Option<String>,
    /// The registered address of the page.
    pub redirect: String,
    /// The access token. It may be opaque: many issuers give tokens that only they can read.
    pub access_token: String,
    /// The ID token for this nonce.
    pub id_token: Box<dyn Fn(&str) -> String + Send>,
}

/// The issued codes. Each has the hash of its verifier, and its nonce.
pub(crate) type Codes = HashMap<String, (String, String)>;

/// The client whose people are signed in, with its codes. `None` until [`TestIssuer::sign_in`] is called.
///
/// [`TestIssuer::sign_in`]: crate::TestIssuer::sign_in
pub(crate) type SignInState = Arc<Mutex<Option<(SignIn, Codes)>>>;

pub(crate) async fn authorize(
    State(state): State<SignInState>,
    RawQuery(query): RawQuery,
) -> Response {
    let parameters = pairs(&query.unwrap_or_default());
    let mut sign_in = state.lock().unwrap_or_else(PoisonError::into_inner);
    let Some((sign_in, codes)) = sign_in.as_mut() else {
        return StatusCode::NOT_FOUND.into_response();
    };
    let is = |name: &str, value: &str| parameters.get(name).is_some_and(|given| given == value);
    let is_good = is("response_type", "code")
        && is("client_id", &sign_in.client)
        && is("redirect_uri", &sign_in.redirect)
        && is("code_challenge_method", "S256")
        && parameters
            .get("scope")
            .is_some_and(|scopes| scopes.split(' ').any(|scope| scope == "openid"));
    let (Some(client_state), Some(challenge), Some(nonce), true) = (
        parameters.get("state"),
        parameters.get("code_challenge"),
        parameters.get("nonce"),
        is_good,
    ) else {
        return (StatusCode::BAD_REQUEST, format!("{parameters:?}")).into_response();
    };
    let code = format!("code-{}", codes.len());
    codes.insert(code.clone(), (challenge.clone(), nonce.clone()));
    // The page's state is base64 for URLs, so nothing in it needs an escape.
    let target = format!("{}?code={code}&state={client_state}", sign_in.redirect);
    (StatusCode::FOUND, [(header::LOCATION, target)]).into_response()
}

pub(crate) async fn token(
    State(state): State<SignInState>,
    headers: HeaderMap,
    form: String,
) -> Response {
    let given = pairs(&form);
    let mut sign_in = state.lock().unwrap_or_else(PoisonError::into_inner);
    let Some((sign_in, codes)) = sign_in.as_mut() else {
        return StatusCode::NOT_FOUND.into_response();
    };
    let user = headers.get(header::AUTHORIZATION).and_then(user);
    let expected = sign_in
        .secret
        .as_ref()
        .map(|secret| (sign_in.client.clone(), secret.clone()));
    let is = |name: &str, value: &str| given.get(name).is_some_and(|given| given == value);
    let verifier = given
        .get("code_verifier")
        .map(String::as_str)
        .unwrap_or_default();
    let challenge = URL_SAFE_NO_PAD.encode(digest(&SHA256, verifier.as_bytes()));
    // A code can be used once.
    let issued = given.get("code").and_then(|code| codes.remove(code));
    let is_good = user == expected
        && is("grant_type", "authorization_code")
        && is("client_id", &sign_in.client)
        && is("redirect_uri", &sign_in.redirect);
    match issued {
        Some((issued_challenge, nonce)) if is_good && issued_challenge == challenge => {
            Json(json!({
                "token_type": "Bearer",
                "expires_in": 3600,
                "access_token": sign_in.access_token,
                "id_token": (sign_in.id_token)(&nonce),
            }))
            .into_response()
        }
        _ => (
            StatusCode::BAD_REQUEST,
            Json(json!({"error": "invalid_grant"})),
        )
            .into_response(),
    }
}

/// The name and the password of the sender. Both are form-encoded (RFC 6749, section 2.3.1).
fn user(authorization: &HeaderValue) -> Option<(String, String)> {
    let encoded = authorization.to_str().ok()?.strip_prefix("Basic ")?;
    let user = String::from_utf8(STANDARD.decode(encoded).ok()?).ok()?;
    let (name, password) = user.split_once(':')?;
    Some((decoded(name), decoded(password)))
}

/// The pairs of a query or a form.
fn pairs(text: &str) -> HashMap<String, String> {
    text.split('&')
        .filter_map(|pair| pair.split_once('='))
        .map(|(name, value)| (decoded(name), decoded(value)))
        .collect()
}

fn decoded(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::new();
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        let escaped = (*byte == b'%')
            .then(|| u8::from_str_radix(text.get(at + 1..at + 3)?, 16).ok())
            .flatten();
        match escaped {
            Some(escaped) => {
                out.push(escaped);
                at += 3;
            }
            None => {
                out.push(if *byte == b'+' { b' ' } else { *byte });
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}
