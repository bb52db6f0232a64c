//! The issuer's discovery document (OpenID Connect Discovery 1.0, section 3).

use serde::Deserialize;

/// The parts of the document that are used.
#[derive(Debug, Deserialize)]
pub(crate) struct Discovery {
    pub issuer: String,
    pub jwks_uri: String,
    /// Issuers without browsers have none.
    #[serde(flatten)]
    pub endpoints: Option<Endpoints>,
}

/// Where the issuer signs people in.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Endpoints {
    pub authorization_endpoint: String,
    pub token_endpoint: String,
    token_endpoint_auth_methods_supported: Option<Vec<String>>,
}

impl Endpoints {
    /// Whether the client's secret may be in the `Authorization` header. Without a list it must be.
    pub fn takes_secret_in_header(&self) -> bool {
        self.token_endpoint_auth_methods_supported
            .as_deref()
            .is_none_or(|methods| {
                let takes = |wanted: &str| methods.iter().any(|method| method == wanted);
                takes("client_secret_basic") || !takes("client_secret_post")
            })
    }
}
