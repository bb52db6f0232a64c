//! Signing people in: every person who comes is signed in at once.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError};

use axum::Json;
use axum::extract::{RawQuery, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use ring::digest::{SHA256, digest};
use serde_json::json;

use crate::server::Shared;

/// The client whose people the issuer signs in.
pub struct SignIn {
    /// The client's id.
    pub client: String,
    /// The client's secret, if it has one. It must come in the `Authorization` header.
    pub secret: Option<String>,
    /// The registered address of the page.
    pub redirect: String,
    /// What the issuer calls the token, `access_token` or `id_token`.
    pub name: &'static str,
    /// The token.
    pub token: String,
}

/// What the issuer remembers of a code: the hash of the verifier.
pub(crate) type Codes = HashMap<String, String>;

pub(crate) async fn authorize(
    State(shared): State<Arc<Shared>>,
    RawQuery(query): RawQuery,
) -> Response {
    let asked = pairs(&query.unwrap_or_default());
    let mut known = shared
        .sign_in
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    let Some((sign_in, codes)) = known.as_mut() else {
        return StatusCode::NOT_FOUND.into_response();
    };
    let is = |name: &str, value: &str| asked.get(name).is_some_and(|given| given == value);
    let is_good = is("response_type", "code")
        && is("client_id", &sign_in.client)
        && is("redirect_uri", &sign_in.redirect)
        && is("code_challenge_method", "S256")
        && asked["scope"].split(' ').any(|scope| scope == "openid");
    let (Some(state), Some(challenge), true) =
        (asked.get("state"), asked.get("code_challenge"), is_good)
    else {
        return (StatusCode::BAD_REQUEST, format!("{asked:?}")).into_response();
    };
    let code = format!("code-{}", codes.len());
    codes.insert(code.clone(), challenge.clone());
    // State and challenge are base64 for URLs, so nothing in them needs an escape.
    let target = format!("{}?code={code}&state={state}", sign_in.redirect);
    (StatusCode::FOUND, [(header::LOCATION, target)]).into_response()
}

pub(crate) async fn token(
    State(shared): State<Arc<Shared>>,
    headers: HeaderMap,
    form: String,
) -> Response {
    let given = pairs(&form);
    let mut known = shared
        .sign_in
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    let Some((sign_in, codes)) = known.as_mut() else {
        return StatusCode::NOT_FOUND.into_response();
    };
    let expected = sign_in.secret.as_ref().map(|secret| {
        let user = format!("{}:{secret}", sign_in.client);
        format!("Basic {}", STANDARD.encode(user))
    });
    let authorization = headers
        .get(header::AUTHORIZATION)
        .map(|value| value.to_str().unwrap_or_default().to_owned());
    let is = |name: &str, value: &str| given.get(name).is_some_and(|given| given == value);
    let verifier = given
        .get("code_verifier")
        .map(String::as_str)
        .unwrap_or_default();
    let challenge = URL_SAFE_NO_PAD.encode(digest(&SHA256, verifier.as_bytes()));
    // A code is good once.
    let known_challenge = given.get("code").and_then(|code| codes.remove(code));
    if authorization != expected
        || !is("grant_type", "authorization_code")
        || !is("client_id", &sign_in.client)
        || !is("redirect_uri", &sign_in.redirect)
        || known_challenge != Some(challenge)
    {
        return (
            StatusCode::BAD_REQUEST,
            Json(json!({"error": "invalid_grant"})),
        )
            .into_response();
    }
    // Many issuers give an access token that only they can read.
    let mut reply = json!({"token_type": "Bearer", "expires_in": 3600, "access_token": "opaque"});
    reply[sign_in.name] = json!(sign_in.token);
    Json(reply).into_response()
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
