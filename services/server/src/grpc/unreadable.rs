//! Messages that cannot be read.

use axum::body::Body;
use axum::extract::Request;
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use context_model::Error;
use tonic::{Code, Status};

use crate::wire;

/// Answers `INVALID_ARGUMENT` for a message that the codec could not read.
///
/// tonic calls that INTERNAL, as if the service were at fault, and monitoring would ring for a client's mistake. What
/// comes from an operation carries details; an INTERNAL without any comes from the codec, before the operation ran.
pub async fn blame_the_caller(request: Request, next: Next) -> Response {
    let response = next.run(request).await;
    match Status::from_header_map(response.headers()) {
        Some(status) if status.code() == Code::Internal && status.details().is_empty() => {
            let error = Error::invalid(
                "request",
                format!("the `request` cannot be read: {}", status.message()),
            );
            wire::status(&error).into_http::<Body>().into_response()
        }
        _ => response,
    }
}

#[cfg(test)]
mod tests {
    use axum::Router;
    use axum::middleware::from_fn;
    use axum::routing::post;
    use context_model::Reason;
    use tower::ServiceExt as _;

    use super::*;

    async fn through(status: fn() -> Status) -> Status {
        let router = Router::new()
            .route(
                "/",
                post(move || async move { status().into_http::<Body>() }),
            )
            .layer(from_fn(blame_the_caller));
        let response = router
            .oneshot(Request::post("/").body(Body::empty()).unwrap())
            .await
            .unwrap();
        Status::from_header_map(response.headers()).unwrap()
    }

    #[tokio::test]
    async fn what_the_codec_cannot_read_is_the_callers_fault() {
        let status =
            through(|| Status::internal("failed to decode Protobuf message: invalid varint")).await;
        assert_eq!(status.code(), Code::InvalidArgument);
        assert!(status.message().ends_with("invalid varint"), "{status}");
        assert_eq!(
            context_proto::error_from_status(&status).reason,
            Reason::InvalidArgument
        );
    }

    #[tokio::test]
    async fn a_defect_stays_a_defect() {
        let status =
            through(|| wire::status(&Error::new(Reason::Internal, "internal error"))).await;
        assert_eq!(status.code(), Code::Internal);
    }
}
