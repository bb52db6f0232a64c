use serde::{Deserialize, Serialize};

/// Why an operation was refused or failed: the stable, machine-readable part of an error.
// The server crate maps each reason to a gRPC code and an HTTP status, in one place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Reason {
    /// A parameter is missing, malformed or outside its range; `violations` name each one.
    InvalidArgument,
    /// No entry with this id, or no entry in this thread, exists for the caller.
    ContextNotFound,
    /// No artifact with this id or path exists for the caller.
    ArtifactNotFound,
    /// The artifact has no version with this number.
    ArtifactVersionNotFound,
    /// The owner has no API key with this id.
    ApiKeyNotFound,
    /// Another artifact of the owner has this path, or is in the way of a move to it.
    PathTaken,
    /// `expected_version` (REST: `If-Match`) is not the current version of the entry or artifact.
    VersionMismatch,
    /// The idempotency key was already used with a different request.
    IdempotencyKeyReused,
    /// The cursor is garbled or belongs to another owner.
    CursorInvalid,
    /// Changes after the cursor have been deleted.
    CursorCompacted,
    /// The cursor does not belong to the history of this database, for example after a restore or a failover.
    ResyncRequired,
    /// The feature is turned off or cannot work in this installation.
    FeatureUnavailable,
    /// The reply would be larger than the message limit.
    ResultTooLarge,
    /// The request is larger than the message limit.
    RequestTooLarge,
    /// The disk that holds the database is full.
    StorageFull,
    /// The database can be read but not written.
    StorageReadOnly,
    /// The database, or the requested row, is damaged.
    StorageCorrupt,
    /// The database is unreachable now.
    StoreUnavailable,
    /// The embedding provider does not respond now.
    ProviderUnavailable,
    /// Too many requests wait, too many streams are open, or too little memory is free; retry after `retry_after`.
    Overloaded,
    /// The service is stopping and accepts no new work.
    ShuttingDown,
    /// The deadline passed before the operation was done.
    DeadlineExceeded,
    /// The caller disconnected before the operation was done.
    Cancelled,
    /// The request has no valid credentials.
    Unauthenticated,
    /// The token cannot be checked now, because its issuer is unreachable.
    IssuerUnavailable,
    /// The page that `context-gateway open` opened has no session, or its session is over.
    PageClosed,
    /// The credentials do not carry the scope that the operation needs.
    ScopeMissing,
    /// A page of another site made a browser send the request.
    CrossSite,
    /// The key or token has used up its request rate, or too many sign-ins were refused.
    RateLimited,
    /// The owner has reached its quota.
    QuotaExceeded,
    /// There is no such route or method.
    NotFound,
    /// The route exists, but not with this HTTP method.
    MethodNotAllowed,
    /// The route does not accept the media type of the request body.
    UnsupportedMediaType,
    /// A defect of the service; the log has the cause under the request id.
    Internal,
}

impl Reason {
    /// Every reason, in the order of the documentation.
    pub const ALL: [Self; 34] = [
        Self::InvalidArgument,
        Self::ContextNotFound,
        Self::ArtifactNotFound,
        Self::ArtifactVersionNotFound,
        Self::ApiKeyNotFound,
        Self::PathTaken,
        Self::VersionMismatch,
        Self::IdempotencyKeyReused,
        Self::CursorInvalid,
        Self::CursorCompacted,
        Self::ResyncRequired,
        Self::FeatureUnavailable,
        Self::ResultTooLarge,
        Self::RequestTooLarge,
        Self::StorageFull,
        Self::StorageReadOnly,
        Self::StorageCorrupt,
        Self::StoreUnavailable,
        Self::ProviderUnavailable,
        Self::Overloaded,
        Self::ShuttingDown,
        Self::DeadlineExceeded,
        Self::Cancelled,
        Self::Unauthenticated,
        Self::IssuerUnavailable,
        Self::PageClosed,
        Self::ScopeMissing,
        Self::CrossSite,
        Self::RateLimited,
        Self::QuotaExceeded,
        Self::NotFound,
        Self::MethodNotAllowed,
        Self::UnsupportedMediaType,
        Self::Internal,
    ];

    /// The name in replies, for example `CONTEXT_NOT_FOUND`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::InvalidArgument => "INVALID_ARGUMENT",
            Self::ContextNotFound => "CONTEXT_NOT_FOUND",
            Self::ArtifactNotFound => "ARTIFACT_NOT_FOUND",
            Self::ArtifactVersionNotFound => "ARTIFACT_VERSION_NOT_FOUND",
            Self::ApiKeyNotFound => "API_KEY_NOT_FOUND",
            Self::PathTaken => "PATH_TAKEN",
            Self::VersionMismatch => "VERSION_MISMATCH",
            Self::IdempotencyKeyReused => "IDEMPOTENCY_KEY_REUSED",
            Self::CursorInvalid => "CURSOR_INVALID",
            Self::CursorCompacted => "CURSOR_COMPACTED",
            Self::ResyncRequired => "RESYNC_REQUIRED",
            Self::FeatureUnavailable => "FEATURE_UNAVAILABLE",
            Self::ResultTooLarge => "RESULT_TOO_LARGE",
            Self::RequestTooLarge => "REQUEST_TOO_LARGE",
            Self::StorageFull => "STORAGE_FULL",
            Self::StorageReadOnly => "STORAGE_READ_ONLY",
            Self::StorageCorrupt => "STORAGE_CORRUPT",
            Self::StoreUnavailable => "STORE_UNAVAILABLE",
            Self::ProviderUnavailable => "PROVIDER_UNAVAILABLE",
            Self::Overloaded => "OVERLOADED",
            Self::ShuttingDown => "SHUTTING_DOWN",
            Self::DeadlineExceeded => "DEADLINE_EXCEEDED",
            Self::Cancelled => "CANCELLED",
            Self::Unauthenticated => "UNAUTHENTICATED",
            Self::IssuerUnavailable => "ISSUER_UNAVAILABLE",
            Self::PageClosed => "PAGE_CLOSED",
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

    /// The reason with this name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.as_str() == name)
    }
}
