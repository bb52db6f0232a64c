//! The transports of the service.

/// The transport of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Transport {
    /// gRPC or gRPC-Web.
    Grpc,
    /// REST.
    Rest,
}

impl Transport {
    /// The name in metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Grpc => "grpc",
            Self::Rest => "rest",
        }
    }
}
