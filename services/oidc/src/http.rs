//! Fetching a small document from the issuer.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Request, StatusCode, Uri, header};
use http_body_util::{BodyExt as _, Empty, LengthLimitError, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;

/// The longest document that is read.
const MAX_BYTES: usize = 256 * 1024;
/// How long one document may take, from the connection to its last byte.
const PATIENCE: Duration = Duration::from_secs(3);

/// Why a document was not had.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FetchError {
    /// The issuer does not answer; it may, later.
    #[error("{0}")]
    Unreachable(String),
    /// What it answers cannot be used.
    #[error("{0}")]
    Malformed(String),
}

pub(crate) struct Http(Client<HttpsConnector<HttpConnector>, Empty<Bytes>>);

impl Http {
    /// With the certificates that this system trusts; `local` allows http.
    ///
    /// # Errors
    /// A sentence.
    pub fn new(local: bool) -> Result<Self, String> {
        let mut roots = rustls::RootCertStore::empty();
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        let tls = rustls::ClientConfig::builder_with_provider(Arc::new(
            rustls::crypto::ring::default_provider(),
        ))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots)
        .with_no_client_auth();
        let mut connector = HttpConnector::new();
        connector.enforce_http(false);
        let builder = HttpsConnectorBuilder::new().with_tls_config(tls);
        let builder = if local {
            builder.https_or_http()
        } else {
            builder.https_only()
        };
        let connector = builder.enable_http1().wrap_connector(connector);
        // Minutes pass between two questions. Redirects are not followed: the issuer's address is what is trusted.
        Ok(Self(
            Client::builder(TokioExecutor::new())
                .pool_max_idle_per_host(0)
                .build(connector),
        ))
    }

    /// The bytes of a document.
    ///
    /// # Errors
    /// [`FetchError`].
    pub async fn get(&self, uri: Uri) -> Result<Bytes, FetchError> {
        let late = |_| {
            FetchError::Unreachable(format!("it did not answer within {} s", PATIENCE.as_secs()))
        };
        tokio::time::timeout(PATIENCE, self.attempt(uri))
            .await
            .map_err(late)?
    }

    async fn attempt(&self, uri: Uri) -> Result<Bytes, FetchError> {
        let mut request = Request::new(Empty::new());
        *request.uri_mut() = uri;
        request
            .headers_mut()
            .insert(header::ACCEPT, HeaderValue::from_static("application/json"));
        let gone = |_| FetchError::Unreachable("it cannot be reached".to_owned());
        let response = self.0.request(request).await.map_err(gone)?;
        if response.status() != StatusCode::OK {
            return Err(FetchError::Unreachable(format!(
                "it answered with status {}",
                response.status().as_u16()
            )));
        }
        match Limited::new(response.into_body(), MAX_BYTES)
            .collect()
            .await
        {
            Ok(body) => Ok(body.to_bytes()),
            Err(error) if error.is::<LengthLimitError>() => Err(FetchError::Malformed(format!(
                "it is longer than {MAX_BYTES} bytes"
            ))),
            Err(_) => Err(FetchError::Unreachable("its answer broke off".to_owned())),
        }
    }
}
