//! An HTTP client with a timeout for each request. It reuses its connections.

use std::time::Duration;

use reqwest::Client;

/// A client that ignores the proxy settings of the environment.
///
/// # Panics
/// When TLS cannot be initialised.
#[must_use]
pub fn client(timeout: Duration) -> Client {
    context_http::builder()
        .timeout(timeout)
        .build()
        .expect("a client")
}
