//! The browser origins that may call. CORS headers and the refusal of other origins use the same comparison.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};

/// An origin that may call: `https://app.example:443`, without a port for the port of the scheme, or with `:*` for any.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AllowedOrigin {
    scheme: String,
    host: String,
    /// `None`: any port.
    port: Option<u16>,
}

impl AllowedOrigin {
    /// Reads an origin. `None` if the text has another form.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let base = text.strip_suffix(":*");
        let uri: Uri = base.unwrap_or(text).parse().ok()?;
        let scheme = uri.scheme_str()?.to_ascii_lowercase();
        // A browser leaves out the port of the scheme (RFC 6454, section 6.1).
        let usual = match scheme.as_str() {
            "http" => 80,
            "https" => 443,
            _ => 0,
        };
        // `Uri` drops a fragment.
        let is_origin =
            matches!(uri.path(), "" | "/") && uri.query().is_none() && !text.contains('#');
        is_origin.then_some(Self {
            host: uri
                .host()
                .filter(|host| !host.is_empty())?
                .to_ascii_lowercase(),
            port: base.is_none().then(|| uri.port_u16().unwrap_or(usual)),
            scheme,
        })
    }

    fn allows(&self, origin: &Self) -> bool {
        self.scheme == origin.scheme
            && self.host == origin.host
            && (self.port.is_none() || self.port == origin.port)
    }
}

/// All origins that may call.
#[derive(Debug, Clone)]
pub struct Origins(Arc<[AllowedOrigin]>);

impl Origins {
    /// These origins. Those of another form are left out; the settings are checked before.
    #[must_use]
    pub fn new(origins: &[String]) -> Self {
        Self(
            origins
                .iter()
                .filter_map(|one| AllowedOrigin::parse(one))
                .collect(),
        )
    }

    /// Whether the `Origin` of a request may call.
    #[must_use]
    pub fn allow(&self, origin: &HeaderValue) -> bool {
        origin
            .to_str()
            .ok()
            .and_then(AllowedOrigin::parse)
            .is_some_and(|origin| {
                // A header has no `*`.
                origin.port.is_some() && self.0.iter().any(|allowed| allowed.allows(&origin))
            })
    }
}

/// Refuses requests of pages from other origins.
pub async fn admit(State(origins): State<Origins>, request: Request, next: Next) -> Response {
    match request.headers().get(header::ORIGIN) {
        Some(origin) if !origins.allow(origin) => (
            StatusCode::FORBIDDEN,
            "this origin may not call; GATEWAY_ALLOWED_ORIGINS names those that may\n",
        )
            .into_response(),
        _ => next.run(request).await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_port_of_the_scheme_may_be_left_out_and_no_other() {
        for (allowed, origin, expected) in [
            ("https://app.example:443", "https://app.example", true),
            ("https://app.example", "https://app.example:443", true),
            ("https://app.example/", "https://app.example", true),
            ("HTTPS://App.Example", "https://app.example", true),
            ("https://app.example", "https://app.example:8443", false),
            ("https://app.example", "http://app.example", false),
            ("https://app.example", "https://app.example.evil", false),
            ("http://localhost:*", "http://localhost:3000", true),
            ("http://localhost:*", "http://localhost", true),
            ("http://localhost:*", "http://localhost.evil:80", false),
            ("http://[::1]:7421", "http://[::1]:7421", true),
            ("https://app.example", "null", false),
            ("https://app.example:*", "https://app.example:*", false),
        ] {
            let origins = Origins::new(&[allowed.to_owned()]);
            let origin = HeaderValue::from_static(origin);
            assert_eq!(origins.allow(&origin), expected, "{allowed} {origin:?}");
        }
        for wrong in [
            "app.example",
            "https://app.example/path",
            "https://app.example#x",
            "",
        ] {
            assert_eq!(AllowedOrigin::parse(wrong), None, "{wrong}");
        }
    }
}
