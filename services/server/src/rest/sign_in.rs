//! Sign-in to the page with the OpenID Connect issuer. The page sends the browser to the issuer and gets a code back.
//! The service exchanges the code for a token, so that the page itself sends requests to no other host.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use context_model::{Error, Reason, Result};
use serde::{Deserialize, Serialize};

use super::body::check_media_type;
use crate::app::App;
use crate::json_body::read_json;
use crate::problem::Problem;

/// Maximum size of the body that carries a code.
const MAX_REQUEST_BYTES: usize = 16 * 1024;

#[derive(Serialize)]
struct Offer {
    /// Where the issuer signs a person in; null if the page can only ask for a key.
    url: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Exchange {
    code: String,
    verifier: String,
}

#[derive(Serialize)]
struct Token {
    token: String,
}

/// `/ui/sign-in`.
pub fn routes() -> Router<Arc<App>> {
    Router::new().route("/ui/sign-in", get(offer).post(exchange))
}

/// Tells the page where a person can sign in.
async fn offer(State(app): State<Arc<App>>) -> Response {
    let url = match &app.authenticator {
        Some(authenticator) => authenticator.sign_in_url().await,
        None => Ok(None),
    };
    reply(url.map(|url| Offer { url }))
}

/// Exchanges a code for a token that the page can send as a bearer token.
async fn exchange(State(app): State<Arc<App>>, request: Request) -> Response {
    reply(exchanged(&app, request).await)
}

async fn exchanged(app: &App, request: Request) -> Result<Token> {
    let authenticator = app.authenticator.as_ref().ok_or_else(|| {
        Error::new(
            Reason::FeatureUnavailable,
            "signing in is off, because AUTH is off",
        )
    })?;
    // Without this check a page of another site could make browsers send wrong codes, until no one can sign in.
    check_media_type(request.headers())?;
    let Exchange { code, verifier } = read_json(request, MAX_REQUEST_BYTES).await?;
    let token = authenticator.sign_in(&code, &verifier).await;
    let token = token.inspect_err(|error| {
        if error.reason == Reason::Unauthenticated {
            app.metrics.authentication_failures.inc();
            authenticator.refused_unknown();
        }
    })?;
    Ok(Token { token })
}

fn reply(outcome: Result<impl Serialize>) -> Response {
    match outcome {
        Ok(body) => axum::Json(body).into_response(),
        Err(error) => Problem::from(error).into_response(),
    }
}
