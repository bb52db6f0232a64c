//! The HTTP client for model providers, the model hub and token issuers.
//!
//! TLS is rustls with ring and the certificates that this system trusts. The client ignores the environment's proxies.
//! It follows redirects only if its user allows them, because a key must not be sent to another host.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use reqwest::redirect::Policy;
use reqwest::{ClientBuilder, Response};
use rustls::{ClientConfig, RootCertStore};

/// Timeout for connecting.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The certificates that this system trusts. They are read once for all clients.
static ROOTS: LazyLock<Arc<RootCertStore>> = LazyLock::new(|| {
    let mut roots = RootCertStore::empty();
    // Without any certificates, https fails with a clear error and http still works.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    Arc::new(roots)
});

/// The TLS settings of all clients.
static TLS: LazyLock<ClientConfig> = LazyLock::new(|| {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("ring has the cipher suites of TLS 1.2 and 1.3")
        .with_root_certificates(ROOTS.clone())
        .with_no_client_auth()
});

/// Whether this system trusts any certificate. Without one, no https address can be reached.
#[must_use]
pub fn trusts_certificates() -> bool {
    !ROOTS.is_empty()
}

/// A client builder. The caller adds its timeouts.
pub fn builder() -> ClientBuilder {
    ClientBuilder::new()
        .tls_backend_preconfigured(TLS.clone())
        .no_proxy()
        .redirect(Policy::none())
        .connect_timeout(CONNECT_TIMEOUT)
}

/// Reads the body of a response as it arrives. Returns `None` as soon as it is longer than `max_bytes`.
///
/// # Errors
/// The connection broke, or the client's timeout passed.
pub async fn body(mut response: Response, max_bytes: usize) -> reqwest::Result<Option<Vec<u8>>> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await? {
        if body.len() + chunk.len() > max_bytes {
            return Ok(None);
        }
        body.extend_from_slice(&chunk);
    }
    Ok(Some(body))
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;

    use super::*;

    /// The address of a server that sends this response to one request.
    fn server(response: &'static str) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("its address");
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a connection");
            assert!(stream.read(&mut [0; 4096]).is_ok_and(|read| read > 0));
            let _ = stream.write_all(response.as_bytes());
        });
        format!("http://{address}/")
    }

    async fn get(url: String) -> Response {
        let client = builder().build().expect("a client");
        client.get(url).send().await.expect("a response")
    }

    #[tokio::test]
    async fn a_redirect_is_not_followed() {
        let elsewhere = "HTTP/1.1 307 Temporary Redirect\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n";
        assert_eq!(get(server(elsewhere)).await.status(), 307);
    }

    #[tokio::test]
    async fn a_body_is_read_up_to_the_limit_whether_or_not_its_length_is_announced() {
        for response in [
            "HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n0123456789",
            "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n0123456789",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n6\r\n012345\r\n4\r\n6789\r\n0\r\n\r\n",
        ] {
            let read = body(get(server(response)).await, 10).await.expect("a body");
            assert_eq!(read.as_deref(), Some(&b"0123456789"[..]), "{response}");
            let read = body(get(server(response)).await, 9).await.expect("a body");
            assert_eq!(read, None, "{response}");
        }
    }
}
