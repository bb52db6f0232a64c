//! An address without a server.

use std::net::SocketAddr;

use tokio::net::{TcpListener, TcpSocket};

/// An address that refuses connections until the test listens on it. No other process can take it meanwhile.
#[derive(Debug)]
pub struct Reserved(TcpSocket);

impl Default for Reserved {
    fn default() -> Self {
        Self::new()
    }
}

impl Reserved {
    /// Reserves a loopback address whose port the system chooses. Must be called inside a Tokio runtime.
    ///
    /// # Panics
    /// When no port is free.
    #[must_use]
    pub fn new() -> Self {
        let socket = TcpSocket::new_v4().expect("a socket");
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        socket.bind(any).expect("a free port");
        Self(socket)
    }

    /// The address.
    ///
    /// # Panics
    /// Never: the socket is bound.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.0.local_addr().expect("an address")
    }

    /// Accepts connections from now on.
    ///
    /// # Panics
    /// When the system call fails.
    #[must_use]
    pub fn listen(self) -> TcpListener {
        self.0.listen(1024).expect("it listens")
    }
}
