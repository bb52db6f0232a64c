//! Signing people in: every person who comes is signed in at once.

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
    /// The access token. Many issuers give one that only they can read.
    pub access_token: String,
    /// The ID token for this nonce.
    pub id_token: Box<dyn Fn(&str) -> String + Send>,
}

/// What the issuer remembers of a code: the hash of the verifier, and the nonce.
pub(crate) type Codes = HashMap<String, (String, String)>;

/// Who is signed in, if anyone.
pub(crate) type People = Arc<Mutex<Option<(SignIn, Codes)>>>;

pub(crate) async fn authorize(State(people): State<People>, RawQuery(query): RawQuery) -> Response {
    let asked = pairs(&query.unwrap_or_default());
    let mut sign_in = people.lock().unwrap_or_else(PoisonError::into_inner);
    let Some((sign_in, codes)) = sign_in.as_mut() else {
        return StatusCode::NOT_FOUND.into_response();
    };
    let is = |name: &str, value: &str| asked.get(name).is_some_and(|given| given == value);
    let is_good = is("response_type", "code")
        && is("client_id", &sign_in.client)
        && is("redirect_uri", &sign_in.redirect)
        && is("code_challenge_method", "S256")
        && asked["scope"].split(' ').any(|scope| scope == "openid");
    let (Some(state), Some(challenge), Some(nonce), true) = (
        asked.get("state"),
        asked.get("code_challenge"),
        asked.get("nonce"),
        is_good,
    ) else {
        return (StatusCode::BAD_REQUEST, format!("{asked:?}")).into_response();
    };
    let code = format!("code-{}", codes.len());
    codes.insert(code.clone(), (challenge.clone(), nonce.clone()));
    // State and challenge are base64 for URLs, so nothing in them needs an escape.
    let target = format!("{}?code={code}&state={state}", sign_in.redirect);
    (StatusCode::FOUND, [(header::LOCATION, target)]).into_response()
}

pub(crate) async fn token(
    State(people): State<People>,
    headers: HeaderMap,
    form: String,
) -> Response {
    let given = pairs(&form);
    let mut sign_in = people.lock().unwrap_or_else(PoisonError::into_inner);
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
    // A code is good once.
    let known = given.get("code").and_then(|code| codes.remove(code));
    let is_good = user == expected
        && is("grant_type", "authorization_code")
        && is("client_id", &sign_in.client)
        && is("redirect_uri", &sign_in.redirect);
    match known {
        Some((known_challenge, nonce)) if is_good && known_challenge == challenge => Json(json!({
            "token_type": "Bearer",
            "expires_in": 3600,
            "access_token": sign_in.access_token,
            "id_token": (sign_in.id_token)(&nonce),
        }))
        .into_response(),
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
