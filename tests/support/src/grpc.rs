//! gRPC to a service.

use std::net::SocketAddr;
use std::path::Path;

use context_proto::v1::context_service_client::ContextServiceClient;
use tonic::metadata::AsciiMetadataValue;
use tonic::service::Interceptor;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status};

/// Maximum size of a message that tests send and receive.
pub const LARGEST: usize = 256 << 20;

/// A channel to a service's socket. It connects at its first use. Must be called inside a Tokio runtime.
///
/// # Panics
/// When the path is invalid.
#[must_use]
pub fn at_socket(socket: &Path) -> Channel {
    Endpoint::from_shared(format!("unix:{}", socket.display()))
        .expect("a path")
        .connect_lazy()
}

/// A channel to a service's port. It connects at its first use. Must be called inside a Tokio runtime.
///
/// # Panics
/// Never: every address is a valid URL.
#[must_use]
pub fn at(address: SocketAddr) -> Channel {
    Endpoint::from_shared(format!("http://{address}"))
        .expect("an address")
        .connect_lazy()
}

/// A client of the context operations that also accepts large messages.
#[must_use]
pub fn contexts(channel: Channel) -> ContextServiceClient<Channel> {
    ContextServiceClient::new(channel)
        .max_decoding_message_size(LARGEST)
        .max_encoding_message_size(LARGEST)
}

/// A channel that sends a key with each call.
pub type Keyed = InterceptedService<Channel, Key>;

/// The `authorization` header of each call.
#[derive(Debug, Clone)]
pub struct Key(Option<AsciiMetadataValue>);

impl Key {
    /// Sends this key, or none.
    ///
    /// # Panics
    /// When the key is not a valid header value.
    #[must_use]
    pub fn new(key: Option<&str>) -> Self {
        Self(key.map(|key| format!("Bearer {key}").parse().expect("a header")))
    }
}

impl Interceptor for Key {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Self(Some(value)) = self {
            request
                .metadata_mut()
                .insert("authorization", value.clone());
        }
        Ok(request)
    }
}
