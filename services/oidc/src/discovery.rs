//! The issuer's discovery document (OpenID Connect Discovery 1.0, section 3).

use serde::Deserialize;

/// The parts of the document that are used.
#[derive(Debug, Deserialize)]
pub(crate) struct Discovery {
    pub issuer: String,
    pub jwks_uri: String,
    /// `None` if the issuer does not sign people in.
    #[serde(flatten)]
    pub endpoints: Option<Endpoints>,
}

/// The endpoints with which the issuer signs people in.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Endpoints {
    pub authorization_endpoint: String,
    pub token_endpoint: String,
    token_endpoint_auth_methods_supported: Option<Vec<String>>,
}

impl Endpoints {
    /// Whether the client's secret goes into the `Authorization` header. It goes into the form only if the issuer lists
    /// `client_secret_post` and not `client_secret_basic`.
    pub fn takes_secret_in_header(&self) -> bool {
        self.token_endpoint_auth_methods_supported
            .as_deref()
            .is_none_or(|methods| {
                let takes = |wanted: &str| methods.iter().any(|method| method == wanted);
                takes("client_secret_basic") || !takes("client_secret_post")
            })
    }
}
