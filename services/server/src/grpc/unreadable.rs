//! Corrects the status for messages that cannot be decoded.

use axum::body::Body;
use axum::response::{IntoResponse as _, Response};
use context_model::Error;
use tonic::{Code, Status};

use crate::error_codes;

/// Replaces the status for a message that the codec could not read with `INVALID_ARGUMENT`.
///
/// tonic reports INTERNAL in this case, which would trigger alerts for a client's mistake. Errors
/// from operations carry details; an INTERNAL without details comes from the codec, before the
/// operation ran.
pub fn as_invalid_argument(response: Response) -> Response {
    match Status::from_header_map(response.headers()) {
        Some(status) if status.code() == Code::Internal && status.details().is_empty() => {
            let error = Error::invalid(
                "request",
                format!("the `request` cannot be read: {}", status.message()),
            );
            error_codes::status(&error)
                .into_http::<Body>()
                .into_response()
        }
        _ => response,
    }
}

#[cfg(test)]
mod tests {
    use context_model::Reason;

    use super::*;

    fn through(status: Status) -> Status {
        let response = as_invalid_argument(status.into_http::<Body>().into_response());
        Status::from_header_map(response.headers()).unwrap()
    }

    #[test]
    fn what_the_codec_cannot_read_is_the_callers_fault() {
        let status = through(Status::internal(
            "failed to decode Protobuf message: invalid varint",
        ));
        assert_eq!(status.code(), Code::InvalidArgument);
        assert!(status.message().ends_with("invalid varint"), "{status}");
        assert_eq!(
            context_proto::error_from_status(&status).reason,
            Reason::InvalidArgument
        );
    }

    #[test]
    fn a_defect_stays_a_defect() {
        let status = through(error_codes::status(&Error::new(
            Reason::Internal,
            "internal error",
        )));
        assert_eq!(status.code(), Code::Internal);
    }
}
