//! The credentials of calls to the service.

use std::sync::Arc;

use http::request::Parts;
use tonic::metadata::{AsciiMetadataValue, MetadataMap};

use crate::key_file::{self, KeyFile};

/// The credentials of calls to the service.
#[derive(Debug, Clone)]
pub enum Credentials {
    /// The gateway's own key, or none: on stdio, where the client started the gateway.
    Own(Option<AsciiMetadataValue>),
    /// The gateway's own key, from a file that may change.
    File(Arc<KeyFile>),
    /// The caller's `Authorization` header: on HTTP, where each caller has its own.
    Callers,
}

impl Credentials {
    /// The gateway's own API key, as a bearer token.
    ///
    /// # Errors
    /// If the key holds characters that are not allowed in a header.
    pub fn own(key: Option<&str>) -> Result<Self, String> {
        Ok(Self::Own(key_file::bearer(key.unwrap_or_default())?))
    }

    /// The gRPC metadata, with the gateway's own key, of a request that a command or a hook sends.
    pub(crate) fn metadata(&self) -> MetadataMap {
        let mut metadata = MetadataMap::new();
        if let Some(key) = self.authorization(None) {
            metadata.insert("authorization", key);
        }
        metadata
    }

    /// The `authorization` of calls to the service. `parts` are those of the client's HTTP request, if it sent one.
    pub(crate) fn authorization(&self, parts: Option<&Parts>) -> Option<AsciiMetadataValue> {
        match self {
            Self::Own(key) => key.clone(),
            Self::File(file) => file.current(),
            Self::Callers => {
                let header = parts?.headers.get(http::header::AUTHORIZATION)?;
                let mut value = AsciiMetadataValue::try_from(header.as_bytes()).ok()?;
                value.set_sensitive(true);
                Some(value)
            }
        }
    }
}
