//! A client that keeps its connections and gives up after a while.

use std::time::Duration;

use reqwest::Client;

/// A client that ignores the proxy settings of the environment.
///
/// # Panics
/// When this machine has no sockets.
#[must_use]
pub fn client(timeout: Duration) -> Client {
    context_http::builder()
        .timeout(timeout)
        .build()
        .expect("a client")
}
