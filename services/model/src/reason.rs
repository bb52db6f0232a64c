use serde::{Deserialize, Serialize};

/// Why an operation was refused or failed: the stable, machine-readable half of an [`Error`](crate::Error).
///
/// The gRPC code and the HTTP status of each reason are decided in one place, in the server crate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Reason {
    /// A parameter is missing, malformed or outside its range; `violations` name each one.
    InvalidArgument,
    /// No entry with this id exists for the caller.
    ContextNotFound,
    /// No artifact with this id exists for the caller.
    ArtifactNotFound,
    /// The artifact has no version with this number.
    ArtifactVersionNotFound,
    /// The owner has no API key with this id.
    ApiKeyNotFound,
    /// `expected_version` (REST: `If-Match`) is not the version the entry has now.
    VersionMismatch,
    /// The idempotency key was used before with a different request.
    IdempotencyKeyReused,
    /// The feature behind the operation is switched off or cannot work in this installation.
    FeatureUnavailable,
    /// The reply would be larger than the service sends.
    ResultTooLarge,
    /// The request is larger than the service accepts.
    RequestTooLarge,
    /// The disk that holds the database is full.
    StorageFull,
    /// The database can be read but not written.
    StorageReadOnly,
    /// The database reports damage; nothing is served from it.
    StorageCorrupt,
    /// The database cannot be reached right now.
    StoreUnavailable,
    /// Too many requests wait already; come back after `retry_after`.
    Overloaded,
    /// The service is stopping and takes no new work.
    ShuttingDown,
    /// The deadline passed before the operation was done.
    DeadlineExceeded,
    /// The caller gave up before the operation was done.
    Cancelled,
    /// No valid credentials came with the request.
    Unauthenticated,
    /// Whether a token is valid cannot be told right now, because its issuer cannot be reached.
    IssuerUnavailable,
    /// The credentials do not carry the scope that the operation needs.
    ScopeMissing,
    /// A page of another site made a browser send the request.
    CrossSite,
    /// The key has used up its request rate.
    RateLimited,
    /// The owner has as much as it may have.
    QuotaExceeded,
    /// There is no such route or method.
    NotFound,
    /// The route exists, but not with this HTTP method.
    MethodNotAllowed,
    /// The request body is not of a media type the route reads.
    UnsupportedMediaType,
    /// A defect of the service; the log has the cause under the request id.
    Internal,
}

impl Reason {
    /// Every reason, in the order of the documentation.
    pub const ALL: [Self; 28] = [
        Self::InvalidArgument,
        Self::ContextNotFound,
        Self::ArtifactNotFound,
        Self::ArtifactVersionNotFound,
        Self::ApiKeyNotFound,
        Self::VersionMismatch,
        Self::IdempotencyKeyReused,
        Self::FeatureUnavailable,
        Self::ResultTooLarge,
        Self::RequestTooLarge,
        Self::StorageFull,
        Self::StorageReadOnly,
        Self::StorageCorrupt,
        Self::StoreUnavailable,
        Self::Overloaded,
        Self::ShuttingDown,
        Self::DeadlineExceeded,
        Self::Cancelled,
        Self::Unauthenticated,
        Self::IssuerUnavailable,
        Self::ScopeMissing,
        Self::CrossSite,
        Self::RateLimited,
        Self::QuotaExceeded,
        Self::NotFound,
        Self::MethodNotAllowed,
        Self::UnsupportedMediaType,
        Self::Internal,
    ];

    /// The name on the wire, for example `CONTEXT_NOT_FOUND`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::InvalidArgument => "INVALID_ARGUMENT",
            Self::ContextNotFound => "CONTEXT_NOT_FOUND",
            Self::ArtifactNotFound => "ARTIFACT_NOT_FOUND",
            Self::ArtifactVersionNotFound => "ARTIFACT_VERSION_NOT_FOUND",
            Self::ApiKeyNotFound => "API_KEY_NOT_FOUND",
            Self::VersionMismatch => "VERSION_MISMATCH",
            Self::IdempotencyKeyReused => "IDEMPOTENCY_KEY_REUSED",
            Self::FeatureUnavailable => "FEATURE_UNAVAILABLE",
            Self::ResultTooLarge => "RESULT_TOO_LARGE",
            Self::RequestTooLarge => "REQUEST_TOO_LARGE",
            Self::StorageFull => "STORAGE_FULL",
            Self::StorageReadOnly => "STORAGE_READ_ONLY",
            Self::StorageCorrupt => "STORAGE_CORRUPT",
            Self::StoreUnavailable => "STORE_UNAVAILABLE",
            Self::Overloaded => "OVERLOADED",
            Self::ShuttingDown => "SHUTTING_DOWN",
            Self::DeadlineExceeded => "DEADLINE_EXCEEDED",
            Self::Cancelled => "CANCELLED",
            Self::Unauthenticated => "UNAUTHENTICATED",
            Self::IssuerUnavailable => "ISSUER_UNAVAILABLE",
            Self::ScopeMissing => "SCOPE_MISSING",
            Self::CrossSite => "CROSS_SITE",
            Self::RateLimited => "RATE_LIMITED",
            Self::QuotaExceeded => "QUOTA_EXCEEDED",
            Self::NotFound => "NOT_FOUND",
            Self::MethodNotAllowed => "METHOD_NOT_ALLOWED",
            Self::UnsupportedMediaType => "UNSUPPORTED_MEDIA_TYPE",
            Self::Internal => "INTERNAL",
        }
    }

    /// The reason with this wire name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.as_str() == name)
    }
}
