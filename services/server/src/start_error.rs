//! Why the service did not start.

use std::net::SocketAddr;

use crate::socket::BindError;

/// Why the service did not start. Each message is a sentence for the user who started it.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The settings cannot be used: they contradict each other, or require something that is missing.
    #[error("{0}")]
    Settings(String),
    /// The SQLite database could not be opened.
    #[error(transparent)]
    Database(#[from] context_store_sqlite::OpenError),
    /// The PostgreSQL database could not be opened.
    #[error(transparent)]
    Postgres(#[from] context_store_postgres::OpenError),
    /// An address could not be bound.
    #[error("cannot listen on {address} ({setting}): {source}")]
    Address {
        /// The setting.
        setting: &'static str,
        /// The address.
        address: SocketAddr,
        /// The system's error.
        source: std::io::Error,
    },
    /// The Unix socket could not be bound.
    #[error(transparent)]
    Socket(#[from] BindError),
    /// The compiled-in gRPC descriptors cannot be read: a build error.
    #[error("the descriptors of the gRPC contract cannot be read: {0}")]
    Descriptors(#[from] tonic_reflection::server::Error),
}
