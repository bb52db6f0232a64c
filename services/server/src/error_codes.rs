//! The gRPC code and the HTTP status of every error reason. They are defined here and nowhere else.

use std::fmt::Write as _;

use context_model::{Error, Reason};
use http::StatusCode;
use tonic::{Code, Status};
use tracing::Level;

/// The gRPC code and the HTTP status of a reason.
#[must_use]
pub fn codes(reason: Reason) -> (Code, StatusCode) {
    match reason {
        Reason::InvalidArgument => (Code::InvalidArgument, StatusCode::BAD_REQUEST),
        Reason::ContextNotFound
        | Reason::ArtifactNotFound
        | Reason::ArtifactVersionNotFound
        | Reason::ApiKeyNotFound => (Code::NotFound, StatusCode::NOT_FOUND),
        Reason::PathTaken => (Code::AlreadyExists, StatusCode::CONFLICT),
        Reason::VersionMismatch => (Code::Aborted, StatusCode::PRECONDITION_FAILED),
        // 422: draft-ietf-httpapi-idempotency-key-header, section 2.7.
        Reason::IdempotencyKeyReused => (Code::InvalidArgument, StatusCode::UNPROCESSABLE_ENTITY),
        Reason::CursorInvalid => (Code::InvalidArgument, StatusCode::BAD_REQUEST),
        Reason::CursorCompacted => (Code::OutOfRange, StatusCode::GONE),
        Reason::ResyncRequired => (Code::FailedPrecondition, StatusCode::GONE),
        // Not 501: the feature is off by configuration, and a 5xx status would trigger alerts.
        Reason::FeatureUnavailable => (Code::FailedPrecondition, StatusCode::CONFLICT),
        // The request is valid, but its result is too large. 413 would blame the request body.
        Reason::ResultTooLarge => (Code::ResourceExhausted, StatusCode::UNPROCESSABLE_ENTITY),
        Reason::RequestTooLarge => (Code::ResourceExhausted, StatusCode::PAYLOAD_TOO_LARGE),
        Reason::StorageFull | Reason::StorageReadOnly | Reason::QuotaExceeded => {
            (Code::ResourceExhausted, StatusCode::INSUFFICIENT_STORAGE)
        }
        Reason::StorageCorrupt => (Code::DataLoss, StatusCode::INTERNAL_SERVER_ERROR),
        Reason::StoreUnavailable
        | Reason::ProviderUnavailable
        | Reason::IssuerUnavailable
        | Reason::Overloaded
        | Reason::ShuttingDown => (Code::Unavailable, StatusCode::SERVICE_UNAVAILABLE),
        Reason::DeadlineExceeded => (Code::DeadlineExceeded, StatusCode::GATEWAY_TIMEOUT),
        // The caller has disconnected and will not read it. Proxies log 499 in this case.
        Reason::Cancelled => (
            Code::Cancelled,
            StatusCode::from_u16(499).unwrap_or(StatusCode::REQUEST_TIMEOUT),
        ),
        Reason::Unauthenticated | Reason::PageClosed => {
            (Code::Unauthenticated, StatusCode::UNAUTHORIZED)
        }
        Reason::ScopeMissing | Reason::CrossSite => (Code::PermissionDenied, StatusCode::FORBIDDEN),
        Reason::RateLimited => (Code::ResourceExhausted, StatusCode::TOO_MANY_REQUESTS),
        Reason::NotFound => (Code::Unimplemented, StatusCode::NOT_FOUND),
        Reason::MethodNotAllowed => (Code::Unimplemented, StatusCode::METHOD_NOT_ALLOWED),
        Reason::UnsupportedMediaType => (Code::InvalidArgument, StatusCode::UNSUPPORTED_MEDIA_TYPE),
        Reason::Internal => (Code::Internal, StatusCode::INTERNAL_SERVER_ERROR),
    }
}

/// A short title for a reason, the same for each occurrence.
#[must_use]
pub const fn title(reason: Reason) -> &'static str {
    match reason {
        Reason::InvalidArgument => "A parameter is missing, malformed or out of range",
        Reason::ContextNotFound => "No such context entry or thread",
        Reason::ArtifactNotFound => "No such artifact",
        Reason::ArtifactVersionNotFound => "No such version",
        Reason::ApiKeyNotFound => "No such API key",
        Reason::PathTaken => "Another artifact has this path, or is in the way of a move to it",
        Reason::VersionMismatch => "The entry or artifact changed since it was read",
        Reason::IdempotencyKeyReused => "The idempotency key belongs to another request",
        Reason::CursorInvalid => "The cursor is malformed or belongs to another owner",
        Reason::CursorCompacted => "Changes after the cursor have been deleted",
        Reason::ResyncRequired => "The cursor does not belong to this history",
        Reason::FeatureUnavailable => "The feature is off or cannot work",
        Reason::ResultTooLarge => "The result is too large",
        Reason::RequestTooLarge => "The request is too large",
        Reason::StorageFull => "The disk is full",
        Reason::StorageReadOnly => "The database cannot be written",
        Reason::StorageCorrupt => "The database or the requested row is damaged",
        Reason::StoreUnavailable => "The database is not available",
        Reason::ProviderUnavailable => "The embedding provider is not available",
        Reason::Overloaded => "Too many requests",
        Reason::ShuttingDown => "The service is stopping",
        Reason::DeadlineExceeded => "The deadline passed",
        Reason::Cancelled => "The caller disconnected",
        Reason::Unauthenticated => "Credentials are missing or not valid",
        Reason::IssuerUnavailable => "The token issuer is not available",
        Reason::PageClosed => "The page has no session",
        Reason::ScopeMissing => "The credentials lack a scope",
        Reason::CrossSite => "The request comes from a page of another site",
        Reason::RateLimited => "The key exceeded its request rate, or too many sign-ins failed",
        Reason::QuotaExceeded => "The owner's quota is used up",
        Reason::NotFound => "No such route",
        Reason::MethodNotAllowed => "The route does not support this method",
        Reason::UnsupportedMediaType => "The media type of the body is not supported",
        Reason::Internal => "Internal error",
    }
}

/// What a caller can do about an error.
const fn advice(reason: Reason) -> &'static str {
    match reason {
        Reason::InvalidArgument => "Correct the fields that `violations` names.",
        Reason::ContextNotFound => {
            "Search for the entry, or list the threads; it may have been deleted."
        }
        Reason::ArtifactNotFound => "List or search artifacts; it may have been deleted.",
        Reason::ArtifactVersionNotFound => "List the versions of the artifact.",
        Reason::ApiKeyNotFound => "List the keys.",
        Reason::PathTaken => "Choose another path, or rename or delete the other artifact.",
        Reason::VersionMismatch => {
            "Fetch it, apply the change to its current state, and retry with its version."
        }
        Reason::IdempotencyKeyReused => {
            "Use a new key for a new request; a retry must repeat the request exactly."
        }
        Reason::CursorInvalid => "Use a cursor exactly as a reply gave it to this owner.",
        Reason::CursorCompacted => {
            "Read all entries again and continue with a new cursor; `oldest_cursor` lists the changes that remain."
        }
        Reason::ResyncRequired => "Read all entries again and continue with a new cursor.",
        Reason::FeatureUnavailable => {
            "Change the setting that the message names. Instead of a search that is off, use another one."
        }
        Reason::ResultTooLarge => "Request fewer entries, or set `include_images=false`.",
        Reason::RequestTooLarge => "Split the batch, or send smaller images.",
        Reason::StorageFull => "Free disk space; reads still work.",
        Reason::StorageReadOnly => {
            "Give the service write access to the file and its directory, or write to the service that this one copies; reads still work."
        }
        Reason::StorageCorrupt => {
            "`context-service verify` names what is damaged; restore it from a backup."
        }
        Reason::StoreUnavailable => {
            "Retry after a second. If the message says that a write may have happened, retry it with the same idempotency key."
        }
        Reason::ProviderUnavailable
        | Reason::IssuerUnavailable
        | Reason::Overloaded
        | Reason::ShuttingDown => "Retry after the given time.",
        Reason::DeadlineExceeded => {
            "Request less, or allow more time. A write may have taken effect, so retry it with the same idempotency key."
        }
        Reason::Cancelled => "Nothing; the caller has disconnected.",
        Reason::Unauthenticated => "Send a valid key or token.",
        Reason::PageClosed => "Open the page again: `context-gateway open`.",
        Reason::ScopeMissing => "Use a key with the scope that the message names.",
        Reason::CrossSite => "Add the page's origin to CONTEXT_CORS_ORIGINS, if it may call.",
        Reason::RateLimited => "Retry after the given time.",
        Reason::QuotaExceeded => "Delete what is not needed, or ask the operator for more.",
        Reason::NotFound => "Find the route in the OpenAPI document.",
        Reason::MethodNotAllowed => "Use one of the methods in `Allow`.",
        Reason::UnsupportedMediaType => {
            "Send uncompressed JSON with `Content-Type: application/json`; gRPC-Web as `application/grpc-web+proto`."
        }
        Reason::Internal => "Find the request id in the service's log, and report the error.",
    }
}

/// The gRPC status of an error. Logs the error, because this is where it becomes a reply.
#[must_use]
pub fn status(error: &Error) -> Status {
    log(error);
    context_proto::status_from_error(error, codes(error.reason).0)
}

/// Logs an error once, with its causes.
pub(crate) fn log(error: &Error) {
    crate::logging::note_reason(error.reason);
    let reason = error.reason.as_str();
    match level(error) {
        Level::ERROR => tracing::error!(reason, causes = causes(error), "Failed: {error}"),
        Level::WARN if error.reason == Reason::DeadlineExceeded => {
            tracing::warn!(reason, "Failed: {error}")
        }
        Level::WARN => tracing::warn!(reason, "Refused: {error}"),
        // Not logged in full, because the message may repeat data of the caller.
        _ => tracing::debug!(reason, "Rejected a request"),
    }
}

fn level(error: &Error) -> Level {
    match error.reason {
        // Warnings without causes: nothing is wrong with the service. Under load there are thousands of
        // them, and the metrics count them.
        Reason::QuotaExceeded
        | Reason::ProviderUnavailable
        | Reason::IssuerUnavailable
        | Reason::Overloaded
        | Reason::ShuttingDown => Level::WARN,
        // A client causes it at will, with a short deadline or a slow body.
        Reason::DeadlineExceeded => Level::WARN,
        // Without a cause, the database is a copy, which refuses every write.
        Reason::StorageReadOnly if std::error::Error::source(error).is_none() => Level::WARN,
        reason if codes(reason).1.is_server_error() => Level::ERROR,
        _ => Level::DEBUG,
    }
}

fn causes(error: &Error) -> String {
    let mut text = String::new();
    let mut cause = std::error::Error::source(error);
    while let Some(source) = cause {
        let separator = if text.is_empty() { "" } else { ": " };
        let _ = write!(text, "{separator}{source}");
        cause = source.source();
    }
    text
}

/// `docs/errors.md`: every reason with its codes.
#[must_use]
pub fn errors_page() -> String {
    let mut page = String::from(
        "# Errors\n\n\
         Generated by `context-service error-docs`; do not edit.\n\n\
         Every failed operation has a stable reason. The message is for people and may change; the reason does not change.\n\n\
         | transport | where the reason is |\n|---|---|\n\
         | gRPC | `google.rpc.ErrorInfo`, with `BadRequest` for invalid fields and `RetryInfo` when waiting helps |\n\
         | REST | an `application/problem+json` body (RFC 9457) |\n\
         | MCP | `reason` in the JSON text of the error; in `data` for a resource; artifact tools return only the message |\n\n\
         A gRPC call of an unknown method, or with an unsupported compression, has only the code UNIMPLEMENTED.\n\n\
         | reason | gRPC code | HTTP status | meaning | what to do |\n|---|---|---|---|---|\n",
    );
    for reason in Reason::ALL {
        let (code, status) = codes(reason);
        let (name, status) = (code_name(code), status.as_u16());
        let _ = writeln!(
            page,
            "| `{}` | {name} | {status} | {} | {} |",
            reason.as_str(),
            title(reason),
            advice(reason)
        );
    }
    page
}

/// `INVALID_ARGUMENT` for `InvalidArgument`.
fn code_name(code: Code) -> String {
    let mut name = String::new();
    for letter in format!("{code:?}").chars() {
        if letter.is_ascii_uppercase() && !name.is_empty() {
            name.push('_');
        }
        name.push(letter.to_ascii_uppercase());
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_clients_can_cause_at_will_is_no_error_in_the_log() {
        let at = |reason| level(&Error::new(reason, "a sentence"));
        assert_eq!(at(Reason::DeadlineExceeded), Level::WARN);
        assert_eq!(at(Reason::StorageReadOnly), Level::WARN, "of a copy");
        let cause = std::io::Error::from(std::io::ErrorKind::ReadOnlyFilesystem);
        let read_only = Error::new(Reason::StorageReadOnly, "a sentence").with_source(cause);
        assert_eq!(level(&read_only), Level::ERROR);
        assert_eq!(at(Reason::StoreUnavailable), Level::ERROR);
        assert_eq!(at(Reason::InvalidArgument), Level::DEBUG);
    }
}
