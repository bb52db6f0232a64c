//! Reads the small JSON bodies of routes outside the API.

use axum::extract::Request;
use context_model::Error;
use http_body_util::{BodyExt as _, Limited};
use serde::de::DeserializeOwned;

/// Reads the JSON body of a request; at most `max_bytes`.
///
/// # Errors
/// `INVALID_ARGUMENT` if the body is larger, ends early, or is not a `T`.
pub async fn read_json<T: DeserializeOwned>(
    request: Request,
    max_bytes: usize,
) -> Result<T, Error> {
    let body = Limited::new(request.into_body(), max_bytes).collect().await;
    let body = body
        .map_err(|_| Error::invalid("body", "`body` is too large or ended early"))?
        .to_bytes();
    context_model::decode_slice(&body)
}
