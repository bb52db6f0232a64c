//! Errors in REST: `application/problem+json`, RFC 9457.

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use context_model::{Error, Reason, ReasonOrLater, Violation};
use http::{HeaderValue, header};
use serde::Serialize;

use crate::error_codes;

/// The media type of a problem.
pub const MEDIA_TYPE: &str = "application/problem+json";

/// A failed request. The edge renders its body, because only the edge has the request id.
#[derive(Debug)]
pub struct Problem(Error);

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        Self(error)
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut response = error_codes::codes(self.0.reason).1.into_response();
        if let Some(after) = self.0.retry_after {
            let seconds = after.as_secs() + u64::from(after.subsec_nanos() > 0);
            response
                .headers_mut()
                .insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if self.0.reason == Reason::Unauthenticated {
            response
                .headers_mut()
                .insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response.extensions_mut().insert(Failure(self.0));
        response
    }
}

#[derive(Clone)]
struct Failure(Error);

impl Problem {
    /// Logs the error and renders its body. Other responses are returned unchanged.
    pub fn render(mut response: Response, request_id: &HeaderValue) -> Response {
        let Some(Failure(error)) = response.extensions_mut().remove() else {
            return response;
        };
        error_codes::log(&error);
        let (mut parts, _) = response.into_parts();
        let body = ProblemBody::new(&error, request_id.to_str().unwrap_or_default());
        let body = serde_json::to_vec(&body).unwrap_or_default();
        parts
            .headers
            .insert(header::CONTENT_TYPE, HeaderValue::from_static(MEDIA_TYPE));
        parts
            .headers
            .insert(header::CONTENT_LENGTH, HeaderValue::from(body.len()));
        Response::from_parts(parts, Body::from(body))
    }
}

/// An error (RFC 9457).
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[schema(as = Problem)]
pub struct ProblemBody {
    /// The kind of problem: `urn:context-service:` and the reason in kebab case.
    #[serde(rename = "type")]
    #[schema(format = "uri", example = "urn:context-service:invalid-argument")]
    kind: String,
    /// A short title of the kind, the same for each occurrence.
    #[schema(example = "A parameter is missing, malformed or out of range")]
    title: &'static str,
    /// The HTTP status.
    #[schema(example = 400, minimum = 400, maximum = 599)]
    status: u16,
    /// A sentence that says what is wrong in this case and what to do.
    #[schema(example = "`limit` is 500; the allowed range is 1 to 100")]
    detail: String,
    /// The id of this request, as in the `x-request-id` header and in the log.
    #[schema(example = "019aa3f0c2b07d5e8a4b6c1d2e3f4a5b")]
    instance: String,
    /// The stable, machine-readable reason.
    #[schema(value_type = ReasonOrLater)]
    reason: &'static str,
    /// The invalid fields; empty if the error is not about fields.
    violations: Vec<Violation>,
    /// The cursor before the oldest retained change; only with the reason `CURSOR_COMPACTED`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    oldest_cursor: Option<Box<str>>,
}

impl ProblemBody {
    fn new(error: &Error, request_id: &str) -> Self {
        Self {
            kind: format!(
                "urn:context-service:{}",
                error.reason.as_str().to_ascii_lowercase().replace('_', "-")
            ),
            title: error_codes::title(error.reason),
            status: error_codes::codes(error.reason).1.as_u16(),
            detail: error.message.clone(),
            instance: request_id.to_owned(),
            reason: error.reason.as_str(),
            violations: error.violations.clone(),
            oldest_cursor: error.oldest_cursor.clone(),
        }
    }
}
