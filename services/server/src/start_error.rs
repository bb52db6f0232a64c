//! Why the service did not start.

use std::net::SocketAddr;

use crate::socket::BindError;

/// Why the service did not start. Each message is a sentence for the user who started it.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Settings that contradict each other, or ask for what this version cannot do.
    #[error("{0}")]
    Settings(String),
    /// The database.
    #[error(transparent)]
    Database(#[from] context_store_sqlite::OpenError),
    /// The database server.
    #[error(transparent)]
    Postgres(#[from] context_store_postgres::OpenError),
    /// An address.
    #[error("{setting} is {address}, which cannot be listened on: {source}")]
    Address {
        /// The setting.
        setting: &'static str,
        /// The address.
        address: SocketAddr,
        /// What the system says.
        source: std::io::Error,
    },
    /// The Unix socket.
    #[error(transparent)]
    Socket(#[from] BindError),
    /// A defect of the build.
    #[error("the descriptors of the gRPC contract cannot be read: {0}")]
    Descriptors(#[from] tonic_reflection::server::Error),
}
