//! Refuses requests that a page of another site makes a browser send.
//!
//! Without authentication, anything that reaches the port may write, and a browser can reach it on
//! behalf of any page it shows. For a JSON body the browser first asks for permission (a CORS
//! preflight). It does not for a request without a body: a form on another site could restore an
//! artifact's version. Browsers state the origin of a request in headers that other clients do not
//! send, so curl and other clients are not affected.

use axum::extract::Request;
use context_model::{Error, Reason};
use http::uri::Authority;
use http::{HeaderMap, HeaderName, Method, Uri, header};

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Refuses requests from pages of other sites, except those of the allowed origins.
#[derive(Debug, Clone)]
pub struct CrossSite {
    allowed_origins: Vec<String>,
}

impl CrossSite {
    /// Allows these origins (`https://app.example`).
    #[must_use]
    pub fn new(allowed_origins: &[String]) -> Self {
        Self {
            allowed_origins: allowed_origins.to_vec(),
        }
    }

    /// Accepts a request if it uses a safe method, does not come from a browser, or comes from one
    /// of our own pages or an allowed origin.
    ///
    /// # Errors
    /// `CROSS_SITE`.
    pub fn check(&self, request: &Request) -> Result<(), Error> {
        // In HTTP/2 the host is in `:authority`, which becomes the URI's authority.
        let authority = request.uri().authority().map(Authority::as_str);
        if self.allows(request.method(), authority, request.headers()) {
            return Ok(());
        }
        let sentence = "a page of another site sent this request; add its origin to CONTEXT_CORS_ORIGINS if it is yours";
        Err(Error::new(Reason::CrossSite, sentence))
    }

    fn allows(&self, method: &Method, authority: Option<&str>, headers: &HeaderMap) -> bool {
        if method.is_safe() {
            return true;
        }
        let origin = headers
            .get(header::ORIGIN)
            .map(|origin| origin.to_str().unwrap_or_default());
        if origin.is_some_and(|origin| {
            self.allowed_origins
                .iter()
                .any(|allowed| allowed.eq_ignore_ascii_case(origin))
        }) {
            return true;
        }
        // `none`: started by the user and not by a page (https://www.w3.org/TR/fetch-metadata/).
        let mut sites = headers.get_all(SEC_FETCH_SITE).iter().peekable();
        if sites.peek().is_some() {
            return sites.all(|site| site == "same-origin" || site == "none");
        }
        // Some browsers send no Sec-Fetch-Site. The others send it only to HTTPS and loopback
        // addresses.
        let Some(origin) = origin else { return true };
        let host = authority.or_else(|| headers.get(header::HOST)?.to_str().ok());
        let origin = origin
            .parse::<Uri>()
            .ok()
            .and_then(|origin| origin.into_parts().authority);
        matches!((origin, host), (Some(origin), Some(host)) if origin.as_str().eq_ignore_ascii_case(host))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOST: (&str, &str) = ("host", "localhost:7420");

    /// Method, headers, and whether the request is accepted.
    type Row = (&'static str, &'static [(&'static str, &'static str)], bool);

    #[test]
    fn a_write_that_a_page_of_another_site_sends_is_refused_and_all_else_is_let_through() {
        let check = CrossSite::new(&["https://app.example".to_owned()]);
        let table: [Row; 22] = [
            // Requests that do not come from a browser.
            ("POST", &[HOST], true),
            ("POST", &[], true),
            ("DELETE", &[HOST], true),
            // Sec-Fetch-Site decides.
            ("POST", &[HOST, ("sec-fetch-site", "cross-site")], false),
            ("POST", &[HOST, ("sec-fetch-site", "same-site")], false),
            ("DELETE", &[HOST, ("sec-fetch-site", "cross-site")], false),
            ("PATCH", &[HOST, ("sec-fetch-site", "same-site")], false),
            (
                "POST",
                &[
                    HOST,
                    ("sec-fetch-site", "same-origin"),
                    ("origin", "http://localhost:7420"),
                ],
                true,
            ),
            ("POST", &[HOST, ("sec-fetch-site", "none")], true),
            (
                "POST",
                &[HOST, ("sec-fetch-site", "of-a-kind-to-come")],
                false,
            ),
            (
                "POST",
                &[
                    HOST,
                    ("sec-fetch-site", "same-origin"),
                    ("sec-fetch-site", "cross-site"),
                ],
                false,
            ),
            // Sec-Fetch-Site has precedence over the origin: a proxy in front of the service may
            // have another name.
            (
                "POST",
                &[
                    HOST,
                    ("sec-fetch-site", "same-origin"),
                    ("origin", "https://context.example"),
                ],
                true,
            ),
            (
                "POST",
                &[
                    HOST,
                    ("sec-fetch-site", "cross-site"),
                    ("origin", "http://localhost:7420"),
                ],
                false,
            ),
            // Without Sec-Fetch-Site the origin decides.
            ("POST", &[HOST, ("origin", "http://localhost:7420")], true),
            ("POST", &[HOST, ("origin", "http://LOCALHOST:7420")], true),
            ("POST", &[HOST, ("origin", "http://localhost:7421")], false),
            ("POST", &[HOST, ("origin", "https://evil.example")], false),
            ("POST", &[HOST, ("origin", "null")], false),
            ("POST", &[("origin", "https://evil.example")], false),
            // Allowed origins, and safe methods.
            (
                "POST",
                &[
                    HOST,
                    ("sec-fetch-site", "cross-site"),
                    ("origin", "https://app.example"),
                ],
                true,
            ),
            ("GET", &[HOST, ("sec-fetch-site", "cross-site")], true),
            (
                "OPTIONS",
                &[
                    HOST,
                    ("sec-fetch-site", "cross-site"),
                    ("origin", "https://evil.example"),
                ],
                true,
            ),
        ];
        for (method, given, expected) in table {
            let mut headers = HeaderMap::new();
            for (name, value) in given {
                headers.append(*name, value.parse().unwrap());
            }
            assert_eq!(
                check.allows(&method.parse().unwrap(), None, &headers),
                expected,
                "{method} {given:?}"
            );
        }
    }

    #[test]
    fn http_2_has_its_host_in_the_authority() {
        let check = CrossSite::new(&[]);
        let headers =
            HeaderMap::from_iter([(header::ORIGIN, "http://localhost:7420".parse().unwrap())]);
        assert!(check.allows(&Method::POST, Some("localhost:7420"), &headers));
        assert!(!check.allows(&Method::POST, Some("127.0.0.1:7420"), &headers));
    }
}
