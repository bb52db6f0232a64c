//! The context service as the gateway reaches it.
//!
//! Connections are made on first use and made again after they are lost. So the gateway can
//! start before the service, keep running when it restarts, and list its tools while it is down.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use context_model::{Error, Reason, shown_url};
use context_proto::v1::api_key_service_client::ApiKeyServiceClient;
use context_proto::v1::artifact_service_client::ArtifactServiceClient;
use context_proto::v1::change_service_client::ChangeServiceClient;
use context_proto::v1::context_service_client::ContextServiceClient;
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tonic::transport::{Channel, ClientTlsConfig, Endpoint};
use tower::service_fn;

use crate::channel::Connections;
use crate::local::LocalService;
use crate::service_program::{How, Notice, ServiceProgram};
use crate::start_failure::is_lasting;

/// Where the context service is.
#[derive(Clone)]
pub enum Target {
    /// A host and port: `http://host:port`, or `https://host:port` for a proxy with TLS.
    Tcp(String),
    /// A Unix socket. The gateway does not start the service behind it.
    Unix(PathBuf),
    /// The service of a database on this machine. The gateway starts it if it is not running.
    Local(Arc<LocalService>),
}

impl Target {
    /// Reads `http://host:port`, `https://host`, `https://host:port`, `unix:/path` or `host:port`.
    ///
    /// # Errors
    /// A sentence that lists the accepted forms.
    pub fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim();
        if let Some(path) = text.strip_prefix("unix:") {
            let path = path.strip_prefix("//").unwrap_or(path);
            return if path.starts_with('/') {
                Ok(Self::Unix(PathBuf::from(path)))
            } else {
                Err(format!(
                    "`{text}` must name an absolute path, as in unix:/run/context.sock"
                ))
            };
        }
        let url = if text.contains("://") {
            text.to_owned()
        } else {
            format!("http://{text}")
        };
        let is_address = |uri: http::Uri| {
            let has_port = uri.port().is_some();
            let is_complete = match uri.scheme_str() {
                Some("http") => has_port,
                Some("https") => has_port || uri.host().is_some(),
                _ => false,
            };
            is_complete && uri.path() == "/" && uri.query().is_none()
        };
        if url.parse().is_ok_and(is_address) {
            return Ok(Self::Tcp(url.trim_end_matches('/').to_owned()));
        }
        Err(format!(
            "`{}` is not an address of the context service; accepted are http://host:port, https://host:port, \
             host:port and unix:/path",
            shown_url(text)
        ))
    }
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(url) => f.write_str(&shown_url(url)),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Local(service) => write!(f, "unix:{}", service.socket().display()),
        }
    }
}

/// The connections to the service. It makes the clients that the tools and commands call.
#[derive(Debug, Clone)]
pub struct Backend {
    target: Target,
    connections: Connections,
    max_message_bytes: usize,
    notice: Arc<Notice>,
}

impl Backend {
    /// A backend that connects on first use.
    ///
    /// # Errors
    /// When the target is not a valid URI, or is an https address and this system trusts no certificate.
    pub fn new(target: Target, max_message_bytes: usize) -> Result<Self, String> {
        let endpoint = match &target {
            Target::Tcp(url) => over_tcp(url)?,
            Target::Unix(_) | Target::Local(_) => Endpoint::from_static("http://context.local"),
        }
        // With keep-alive, a peer that vanished without a FIN is noticed within half a minute and
        // not only at the next call's deadline.
        .http2_keep_alive_interval(Duration::from_secs(20))
        .keep_alive_timeout(Duration::from_secs(10))
        .keep_alive_while_idle(true)
        .initial_stream_window_size(1024 * 1024)
        .initial_connection_window_size(4 * 1024 * 1024)
        .user_agent(concat!("context-gateway/", env!("CARGO_PKG_VERSION")))
        .expect("the version is a header value");
        let connect: Box<dyn Fn() -> Channel + Send + Sync> = match &target {
            Target::Tcp(_) => Box::new(move || endpoint.connect_lazy()),
            Target::Unix(path) => {
                let path = path.clone();
                Box::new(move || {
                    let path = path.clone();
                    endpoint.connect_with_connector_lazy(service_fn(move |_| {
                        let path = path.clone();
                        async move { UnixStream::connect(path).await.map(TokioIo::new) }
                    }))
                })
            }
            Target::Local(service) => {
                let service = service.clone();
                Box::new(move || {
                    let service = service.clone();
                    endpoint.connect_with_connector_lazy(service_fn(move |_| {
                        let service = service.clone();
                        async move { service.connect().await.map(TokioIo::new) }
                    }))
                })
            }
        };
        let notice = match &target {
            Target::Local(service) => service.notice().clone(),
            Target::Tcp(_) | Target::Unix(_) => Arc::default(),
        };
        Ok(Self {
            target,
            connections: Connections::new(connect, max_message_bytes),
            max_message_bytes,
            notice,
        })
    }

    /// If the service runs on this machine, checks the settings of this process and compares them with those of the
    /// service. Differences are reported on stderr and in [`notice`](Self::notice). `program` compares them if the
    /// gateway does not start the service.
    ///
    /// # Errors
    /// The service's message about a setting that cannot be read.
    pub async fn check_settings(&self, program: ServiceProgram) -> Result<(), String> {
        match &self.target {
            // A service on another machine does not disclose its settings.
            Target::Tcp(_) => Ok(()),
            Target::Unix(socket) => {
                let program = program.with([("CONTEXT_SOCKET", socket.as_os_str())]);
                if let Some(comparison) = program.compare(How::Explicit).await? {
                    self.notice.report(&comparison);
                }
                Ok(())
            }
            Target::Local(service) => service.check_settings().await,
        }
    }

    /// The warning for the agent about settings that differ.
    #[must_use]
    pub fn notice(&self) -> &Notice {
        &self.notice
    }

    /// A client for the context operations. Cheap, because it shares the connections.
    #[must_use]
    pub fn contexts(&self) -> ContextServiceClient<Connections> {
        ContextServiceClient::new(self.connections.clone())
            .max_decoding_message_size(self.max_message_bytes)
            .max_encoding_message_size(self.max_message_bytes)
    }

    /// A client for the artifact operations. Cheap, because it shares the connections.
    #[must_use]
    pub fn artifacts(&self) -> ArtifactServiceClient<Connections> {
        ArtifactServiceClient::new(self.connections.clone())
            .max_decoding_message_size(self.max_message_bytes)
            .max_encoding_message_size(self.max_message_bytes)
    }

    /// A client for the changes. Cheap, because it shares the connections.
    #[must_use]
    pub fn changes(&self) -> ChangeServiceClient<Connections> {
        ChangeServiceClient::new(self.connections.clone())
            .max_decoding_message_size(self.max_message_bytes)
            .max_encoding_message_size(self.max_message_bytes)
    }

    /// A client for the API key operations. Cheap, because it shares the connections.
    #[must_use]
    pub fn keys(&self) -> ApiKeyServiceClient<Connections> {
        ApiKeyServiceClient::new(self.connections.clone())
    }

    /// The file that remembers the service's features between sessions: next to the local service's
    /// socket. `None` for other targets.
    #[must_use]
    pub fn features_file(&self) -> Option<PathBuf> {
        match &self.target {
            Target::Local(service) => Some(service.socket().with_extension("features")),
            Target::Tcp(_) | Target::Unix(_) => None,
        }
    }

    /// Whether the service responds to its health check with SERVING within `timeout`.
    pub async fn is_ready(&self, timeout: Duration) -> bool {
        use tonic_health::pb::health_check_response::ServingStatus;
        use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};

        let mut client = HealthClient::new(self.connections.clone());
        let check = client.check(HealthCheckRequest {
            service: String::new(),
        });
        match tokio::time::timeout(timeout, check).await {
            Ok(Ok(reply)) => reply.into_inner().status() == ServingStatus::Serving,
            _ => false,
        }
    }

    /// Turns a gRPC status into the error of a call: the service's own error, or why there was no
    /// response. If the connection of a write (`is_write`) broke, the error says that the change may or
    /// may not have been made.
    #[must_use]
    pub fn error(&self, status: &tonic::Status, is_write: bool) -> Error {
        let unavailable = |message| {
            Error::new(Reason::StoreUnavailable, message).with_retry_after(Duration::from_secs(2))
        };
        match connection_failure(status) {
            Some(failure) => {
                let cause = innermost_cause(status);
                tracing::warn!(target = %self.target, %cause, "No response from the context service");
                if failure == ConnectionFailure::Broken && is_write {
                    // Without a time for a retry, which could make the change twice.
                    return Error::new(
                        Reason::StoreUnavailable,
                        format!(
                            "the connection to the context service broke before it responded: {OUTCOME_UNKNOWN}"
                        ),
                    );
                }
                let cause = if cause.is_empty() {
                    cause
                } else {
                    format!(" ({cause})")
                };
                let message = format!(
                    "the context service at {} cannot be reached{cause}",
                    self.target
                );
                if failure == ConnectionFailure::Lasting {
                    return Error::new(
                        Reason::StoreUnavailable,
                        format!("{message}; correct the cause, then call again"),
                    );
                }
                unavailable(format!("{message}; try again in a moment"))
            }
            // tonic's error about a reply that it does not decode. For a request that it does not encode it has the same
            // code. An error of the service has details.
            None if status.code() == tonic::Code::OutOfRange
                && status.details().is_empty()
                && status.message().contains("decoded message length") =>
            {
                let max = self.max_message_bytes;
                Error::new(
                    Reason::ResultTooLarge,
                    format!(
                        "the reply has more than {max} bytes, the most that the gateway accepts (MAX_TOTAL_SIZE_MB); \
                         request fewer entries, or set include_images=false"
                    ),
                )
            }
            None => {
                let mut error = context_proto::error_from_status(status);
                if error.message.is_empty() {
                    error.message = format!(
                        "the context service responded {:?} without a message",
                        status.code()
                    );
                }
                error
            }
        }
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.target.fmt(f)
    }
}

/// The endpoint of an `http://` or `https://` address. With https, the connection is verified against the certificates
/// that this system trusts, or those of the file SSL_CERT_FILE.
fn over_tcp(url: &str) -> Result<Endpoint, String> {
    let endpoint = Endpoint::from_shared(url.to_owned())
        .map_err(|error| format!("{} cannot be called: {error}", shown_url(url)))?
        .connect_timeout(Duration::from_secs(2));
    if endpoint.uri().scheme_str() != Some("https") {
        return Ok(endpoint);
    }
    let tls = ClientTlsConfig::new()
        .with_native_roots()
        .timeout(Duration::from_secs(5));
    endpoint.tls_config(tls).map_err(|error| {
        let cause = std::error::Error::source(&error).map_or_else(String::new, ToString::to_string);
        format!(
            "{} cannot be called: {cause}; if no certificates were found, install the package ca-certificates, or \
             set SSL_CERT_FILE",
            shown_url(url)
        )
    })
}

/// What an error says about a write that got no response.
pub const OUTCOME_UNKNOWN: &str =
    "the change may or may not have been made; check the stored data before you repeat it";

/// How the connection of a call failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectionFailure {
    /// There was no connection: the service never saw the request.
    Unreachable,
    /// As `Unreachable`, and a retry fails too until the user corrects the cause.
    Lasting,
    /// The connection broke, or a proxy lost it: the service may have received the request.
    Broken,
}

/// How the connection of a call failed. `None` if the service responded or was too slow, or a proxy refused the
/// request. A status that this process created has a source. One from the service has none, and carries details.
#[must_use]
pub fn connection_failure(status: &tonic::Status) -> Option<ConnectionFailure> {
    let chain = || sources(status);
    if chain().any(|error| error.is::<tonic::ConnectError>()) {
        let is_lasting = chain()
            .filter_map(|error| error.downcast_ref())
            .any(is_lasting);
        Some(if is_lasting {
            ConnectionFailure::Lasting
        } else {
            ConnectionFailure::Unreachable
        })
    } else if timed_out(status) {
        None
    } else {
        // Without a source and details the status is of a proxy, which may have passed the request on before. tonic
        // makes such a status of an HTTP status, whose number ends the message, and of a reply that was cut off. A
        // proxy that responds with an HTTP status below 500 has refused the request. Other messages can end with a
        // number too, such as that of a system's error.
        let is_proxys = || {
            let http = status.message().rsplit_once("HTTP status code ");
            let http = http.and_then(|(_, http)| http.parse::<u16>().ok());
            status.details().is_empty()
                && matches!(
                    status.code(),
                    tonic::Code::Unavailable | tonic::Code::Unknown
                )
                && http.is_none_or(|http| http >= 500)
        };
        (chain().next().is_some() || is_proxys()).then_some(ConnectionFailure::Broken)
    }
}

/// Whether the call reached the deadline that this process set for it.
#[must_use]
pub fn timed_out(status: &tonic::Status) -> bool {
    sources(status).any(|error| error.is::<tonic::TimeoutExpired>())
}

/// The causes of a status, outermost first.
fn sources(status: &tonic::Status) -> impl Iterator<Item = &(dyn std::error::Error + 'static)> {
    std::iter::successors(std::error::Error::source(status), |error| error.source())
}

/// The innermost cause, which is the most specific: `Connection refused` rather than `transport error`.
fn innermost_cause(status: &tonic::Status) -> String {
    sources(status)
        .last()
        .map(ToString::to_string)
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_documented_forms_of_an_address_are_accepted() {
        for (text, shown) in [
            ("http://127.0.0.1:7420", "http://127.0.0.1:7420"),
            ("http://[::1]:7420/", "http://[::1]:7420"),
            ("backend:7420", "http://backend:7420"),
            ("https://context.example", "https://context.example"),
            (
                "https://context.example:8443/",
                "https://context.example:8443",
            ),
            (
                "http://user:hunter2@backend:7420",
                "http://***@backend:7420",
            ),
            ("unix:/run/context.sock", "unix:/run/context.sock"),
            ("unix:///run/context.sock", "unix:/run/context.sock"),
        ] {
            assert_eq!(Target::parse(text).unwrap().to_string(), shown);
        }
    }

    #[tokio::test]
    async fn a_write_that_a_proxy_lost_may_have_been_made() {
        let target = Target::Unix("/nonexistent.sock".into());
        let backend = Backend::new(target, 1024).unwrap();
        let mapped = "grpc-status header missing, mapped from HTTP status code";
        for status in [
            tonic::Status::unavailable(format!("{mapped} 502")),
            tonic::Status::unknown(format!("{mapped} 524")),
            tonic::Status::unknown("protocol error: missing grpc-status trailer"),
            // Envoy's, with the number of ECONNREFUSED.
            tonic::Status::unavailable("delayed connect error: 111"),
        ] {
            assert_eq!(connection_failure(&status), Some(ConnectionFailure::Broken));
            let write = backend.error(&status, true);
            assert!(write.message.ends_with(OUTCOME_UNKNOWN), "{write}");
            assert_eq!(write.retry_after, None);
            let read = backend.error(&status, false);
            assert!(read.message.contains("cannot be reached"), "{read}");
            assert!(read.retry_after.is_some());
        }
        for refused in [
            tonic::Status::unavailable(format!("{mapped} 429")),
            tonic::Status::unknown(format!("{mapped} 413")),
        ] {
            assert_eq!(connection_failure(&refused), None);
        }
    }

    #[test]
    fn anything_else_is_refused_with_the_forms() {
        for text in [
            "",
            "http://host",
            "ftp://host:1",
            "unix:relative",
            "http://host:1/path",
            "http://host:1/?query",
            "https://host:1/path",
            "https://",
        ] {
            assert!(Target::parse(text).is_err(), "{text}");
        }
    }
}
