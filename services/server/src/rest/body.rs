//! JSON in and out.

use std::sync::Arc;

use axum::body::{Body, HttpBody as _};
use axum::extract::{FromRequest, Request};
use axum::response::{IntoResponse as _, Response};
use context_model::{Error, Reason, decode_slice};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::Problem;
use crate::app::App;
use crate::memory::{Lease, too_large};

/// A body of this size or more is parsed on a thread that may block.
const LARGE_BODY_BYTES: usize = 256 * 1024;

/// A JSON request body. Unlike axum's, its errors are the ones of every other wire.
pub struct JsonBody<T>(pub T);

impl<T: DeserializeOwned + Send + 'static> FromRequest<Arc<App>> for JsonBody<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &Arc<App>) -> Result<Self, Problem> {
        check_media_type(request.headers())?;
        let limit = app.limits.max_message_bytes();
        let lease = request.extensions().get::<Arc<Lease>>().cloned();
        let body = request.into_body();
        if body.size_hint().lower() > limit as u64 {
            return Err(too_large("body", limit).into());
        }
        let bytes = Limited::new(body, limit).collect().await.map_err(|error| body_error(error.as_ref(), limit))?.to_bytes();
        let value = if bytes.len() < LARGE_BODY_BYTES {
            decode_slice(&bytes)
        } else {
            let decode = move || {
                if let Some(lease) = lease {
                    lease.grow(value_bytes(&bytes))?;
                }
                decode_slice(&bytes)
            };
            tokio::task::spawn_blocking(decode).await.map_err(Error::internal)?
        };
        Ok(Self(value?))
    }
}

/// About what the values of a JSON text take beyond their strings: a list of one-digit numbers grows thirtyfold when it
/// is parsed, and only afterwards is it found to be too long for metadata.
fn value_bytes(json: &[u8]) -> usize {
    const BYTES_PER_VALUE: usize = 64;
    let (mut values, mut in_string, mut escaped) = (0_usize, false, false);
    for byte in json {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            b',' | b'[' | b'{' if !in_string => values += 1,
            _ => {}
        }
    }
    values.saturating_mul(BYTES_PER_VALUE)
}

fn check_media_type(headers: &HeaderMap) -> Result<(), Error> {
    if headers.get(header::CONTENT_ENCODING).is_some_and(|encoding| encoding != "identity") {
        return Err(Error::new(Reason::UnsupportedMediaType, "the body is compressed; send it without `Content-Encoding`"));
    }
    let given = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let essence = given.split(';').next().unwrap_or_default().trim();
    let json = essence.eq_ignore_ascii_case("application/json")
        || (essence.to_ascii_lowercase().starts_with("application/") && essence.to_ascii_lowercase().ends_with("+json"));
    if json {
        return Ok(());
    }
    // Browsers send other types across origins without asking first.
    Err(Error::new(Reason::UnsupportedMediaType, "the body must be JSON with `Content-Type: application/json`"))
}

fn body_error(error: &(dyn std::error::Error + 'static), limit: usize) -> Error {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if error.is::<LengthLimitError>() {
            return too_large("body", limit);
        }
        if let Some(error) = error.downcast_ref::<Error>() {
            return error.clone();
        }
        cause = error.source();
    }
    Error::invalid("body", "`body` ended before it was complete")
}

/// A JSON reply.
///
/// # Errors
/// `OVERLOADED` when there is no memory for it.
pub fn json<T: Serialize>(app: &App, status: StatusCode, value: &T) -> Result<Response, Problem> {
    let body = serde_json::to_vec(value).map_err(Error::internal)?;
    let lease = app.lease(body.len())?;
    let mut response = (status, Body::from(body)).into_response();
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if let Some(lease) = lease {
        response.extensions_mut().insert(lease);
    }
    Ok(response)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_counted_and_what_is_inside_strings_is_not() {
        assert_eq!(value_bytes(br#"{"a": [1, 2, {"b": null}]}"#), 5 * 64);
        assert_eq!(value_bytes(br#""[,\"[,{""#), 0);
    }
}
