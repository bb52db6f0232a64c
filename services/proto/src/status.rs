//! Conversion between errors and gRPC statuses: google.rpc.ErrorInfo (reason), BadRequest (violations) and RetryInfo.

use std::collections::HashMap;

use context_model::{Error, Reason, Violation};
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt as _};

const DOMAIN: &str = "context-service";
/// The key of the oldest cursor in the metadata of ErrorInfo.
const OLDEST_CURSOR: &str = "oldest_cursor";

/// The status of an error. The server decides which code a reason has.
#[must_use]
pub fn status_from_error(error: &Error, code: Code) -> Status {
    let mut details = ErrorDetails::new();
    let metadata: HashMap<String, String> = error
        .oldest_cursor
        .iter()
        .map(|cursor| (OLDEST_CURSOR.to_owned(), cursor.to_string()))
        .collect();
    details.set_error_info(error.reason.as_str(), DOMAIN, metadata);
    for violation in &error.violations {
        details.add_bad_request_violation(&violation.field, &violation.description);
    }
    if let Some(after) = error.retry_after {
        details.set_retry_info(Some(after));
    }
    Status::with_error_details(code, &error.message, details)
}

/// The error in a status. A status that the service did not send (for a broken connection or a passed deadline) gets
/// the reason that is nearest to its code.
#[must_use]
pub fn error_from_status(status: &Status) -> Error {
    let details = status.get_error_details();
    let reason = details
        .error_info()
        .filter(|info| info.domain == DOMAIN)
        .and_then(|info| Reason::parse(&info.reason));
    let reason = reason.unwrap_or_else(|| match status.code() {
        Code::InvalidArgument | Code::OutOfRange => Reason::InvalidArgument,
        Code::NotFound => Reason::NotFound,
        Code::Unimplemented | Code::FailedPrecondition => Reason::FeatureUnavailable,
        Code::Aborted | Code::AlreadyExists => Reason::VersionMismatch,
        Code::Unauthenticated => Reason::Unauthenticated,
        Code::PermissionDenied => Reason::ScopeMissing,
        Code::ResourceExhausted => Reason::RequestTooLarge,
        Code::DeadlineExceeded => Reason::DeadlineExceeded,
        Code::Cancelled => Reason::Cancelled,
        Code::Unavailable => Reason::StoreUnavailable,
        Code::Ok | Code::Unknown | Code::Internal | Code::DataLoss => Reason::Internal,
    });
    let mut error = Error::new(reason, status.message());
    if let Some(bad_request) = details.bad_request() {
        error.violations = bad_request
            .field_violations
            .iter()
            .map(|v| Violation {
                field: v.field.clone(),
                description: v.description.clone(),
            })
            .collect();
    }
    error.oldest_cursor = details
        .error_info()
        .and_then(|info| info.metadata.get(OLDEST_CURSOR))
        .map(|cursor| cursor.as_str().into());
    error.retry_after = details.retry_info().and_then(|info| info.retry_delay);
    error
}

/// Whether the service sent this status. The status of a proxy or of a broken connection has no reason of the service.
#[must_use]
pub fn is_from_service(status: &Status) -> bool {
    let details = status.get_error_details();
    details
        .error_info()
        .is_some_and(|info| info.domain == DOMAIN)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn an_error_survives_the_wire() {
        let mut error = Error::invalid("limit", "`limit` is 500; the allowed range is 1 to 100")
            .with_retry_after(Duration::from_secs(2));
        error.reason = Reason::RateLimited;
        error.oldest_cursor = Some("abc".into());
        let back = error_from_status(&status_from_error(&error, Code::ResourceExhausted));
        assert_eq!(
            (
                back.reason,
                &back.message,
                &back.violations,
                back.retry_after,
                back.oldest_cursor
            ),
            (
                error.reason,
                &error.message,
                &error.violations,
                error.retry_after,
                error.oldest_cursor
            )
        );
    }

    #[test]
    fn the_largest_error_fits_into_trailers() {
        for letter in ["x", "`", "字", "🦀"] {
            let violations = (0..100)
                .map(|i| Violation {
                    field: format!("metadata{i:02}{}", letter.repeat(70)),
                    description: letter.repeat(240),
                })
                .collect();
            let error = Error::from_violations(violations).in_item("entries[99]");
            assert!(error.message.ends_with(" more"), "{error}");
            let reply = status_from_error(&error, Code::InvalidArgument).into_http::<()>();
            // HTTP/2 counts 32 bytes more for each header (RFC 9113, section 6.5.2).
            let bytes: usize = reply
                .headers()
                .iter()
                .map(|(name, value)| name.as_str().len() + value.len() + 32)
                .sum();
            assert!(bytes < 8 * 1024, "{letter}: {bytes}");
        }
    }
}
