//! Where a request comes from.

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::Request;

use crate::connection::Connection;

/// How a connection came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Peer {
    /// Over TCP.
    Tcp,
    /// Over the Unix socket, from a process of the same user.
    Unix,
}

/// Where a request comes from: an extension of each that came over a connection.
#[derive(Debug)]
pub struct Origin {
    /// How its connection came.
    pub peer: Peer,
    /// The address of a peer that came over TCP.
    pub address: Option<IpAddr>,
    /// Its connection.
    pub connection: Arc<Connection>,
}

impl Origin {
    /// Where this request comes from.
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
