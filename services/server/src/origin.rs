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
    /// Over the Unix socket, from a process of the same user or of root.
    Unix,
}

/// The origin of a request. The server puts it into the extensions of each request that it reads from a connection.
#[derive(Debug)]
pub struct Origin {
    /// Whether the connection is TCP or the Unix socket.
    pub peer: Peer,
    /// The peer's IP address, in IPv6 its [`network`](crate::connection::network); `None` on the Unix socket.
    pub network: Option<IpAddr>,
    /// The connection that the request came over.
    pub connection: Arc<Connection>,
}

impl Origin {
    /// The origin of this request; `None` if it came over no connection, as in a unit test.
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
