//! Reads the small JSON bodies of routes outside the API.

use axum::extract::Request;
use context_model::{Error, Reason};
use serde::de::DeserializeOwned;

use crate::body::CountedBody;
use crate::request_context;

/// Reads the JSON body of a request; at most `max_bytes`.
///
/// # Errors
/// `INVALID_ARGUMENT` if the body is larger, ends early, or is not a `T`; `DEADLINE_EXCEEDED` if it arrives too slowly;
/// `OVERLOADED`.
pub async fn read_json<T: DeserializeOwned>(
    request: Request,
    max_bytes: usize,
) -> Result<T, Error> {
    let lease = request_context::lease(request.extensions())?;
    let body = CountedBody::new(request.into_body(), lease).whole(max_bytes);
    let body = body.await.map_err(|error| match error.reason {
        Reason::RequestTooLarge => Error::invalid("body", "`body` is too large"),
        _ => error,
    })?;
    context_model::decode_slice(&body)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use axum::body::Body;

    use super::*;
    use crate::memory::{Budget, Lease, Payer};

    #[tokio::test(start_paused = true)]
    async fn a_body_without_credentials_that_does_not_end_is_given_up() {
        let budget = Arc::new(Budget::new(64 * 1024 * 1024, 1024, false));
        let endless = futures::stream::pending::<Result<Vec<u8>, std::io::Error>>();
        let mut request = Request::new(Body::from_stream(endless));
        let lease = Arc::new(Lease::new(&budget, &Payer::Public));
        request.extensions_mut().insert(lease);
        let error = read_json::<String>(request, 1024).await.unwrap_err();
        assert_eq!(error.reason, Reason::DeadlineExceeded);
    }
}
