//! The origin of a request: its connection and peer.

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::Request;

use crate::connection::Connection;

/// The kind of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Peer {
    /// Over TCP.
    Tcp,
    /// Over the Unix socket, from a process of the same user.
    Unix,
}

/// The origin of a request. An extension of each request that came over a connection.
#[derive(Debug)]
pub struct Origin {
    /// The kind of its connection.
    pub peer: Peer,
    /// The peer's address, if it came over TCP.
    pub address: Option<IpAddr>,
    /// Its connection.
    pub connection: Arc<Connection>,
}

impl Origin {
    /// The origin of this request.
    #[must_use]
    pub fn of(request: &Request) -> Option<&Arc<Self>> {
        request.extensions().get()
    }

    /// Whether this request came over the Unix socket.
    #[must_use]
    pub fn is_unix(request: &Request) -> bool {
        Self::of(request).is_some_and(|origin| origin.peer == Peer::Unix)
    }
}
