//! Whose tokens are accepted.

use std::time::Duration;

use context_model::shown_url;
use http::Uri;

/// Whose tokens are accepted, and what they are read for.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The issuer, exactly as it stands in `iss`.
    pub issuer: String,
    /// Of these, `aud` must name one.
    pub audiences: Vec<String>,
    /// Where the keys are; `None`: where the issuer's discovery document says.
    pub jwks_url: Option<String>,
    /// The claim that decides the owner.
    pub owner_claim: String,
    /// The claim with the scopes.
    pub scope_claim: String,
    /// By how much the clocks of the issuer and of this machine may differ.
    pub clock_skew: Duration,
    /// For how long keys are used while the issuer cannot be reached.
    pub keys_max_age: Duration,
}

impl Settings {
    /// This issuer's tokens for one of these audiences, with the other settings as they are by default.
    #[must_use]
    pub fn new(issuer: impl Into<String>, audiences: Vec<String>) -> Self {
        Self {
            issuer: issuer.into(),
            audiences,
            jwks_url: None,
            owner_claim: "sub".to_owned(),
            scope_claim: "scope".to_owned(),
            clock_skew: Duration::from_secs(60),
            keys_max_age: Duration::from_secs(3600),
        }
    }

    /// Where the discovery document is (OpenID Connect Discovery 1.0, section 4).
    pub(crate) fn discovery_url(&self) -> String {
        format!(
            "{}/.well-known/openid-configuration",
            self.issuer.trim_end_matches('/')
        )
    }

    /// Whether the issuer is on this machine, where http is safe enough.
    pub(crate) fn is_local(&self) -> bool {
        checked(&self.issuer, true).is_ok_and(|uri| uri.scheme_str() == Some("http"))
    }

    /// Checks that they can be used.
    ///
    /// # Errors
    /// A sentence.
    pub fn check(&self) -> Result<(), String> {
        let issuer = checked(&self.issuer, true)?;
        if issuer.query().is_some() {
            return Err(format!(
                "`{}` has a query, which an issuer has not",
                shown_url(&self.issuer)
            ));
        }
        if self.audiences.iter().all(String::is_empty) {
            return Err(
                "there is no audience, without which tokens for other services would be accepted"
                    .to_owned(),
            );
        }
        self.jwks_url
            .as_deref()
            .map_or(Ok(()), |url| checked(url, self.is_local()).map(drop))
    }
}

/// An address that keys may come from: https, or with `local` also http on this machine.
///
/// # Errors
/// A sentence.
pub(crate) fn checked(url: &str, local: bool) -> Result<Uri, String> {
    let uri: Uri = url
        .parse()
        .map_err(|_| format!("`{}` is not an address", shown_url(url)))?;
    let plain = !url.contains('#')
        && uri
            .authority()
            .is_some_and(|authority| !authority.as_str().contains('@'));
    let allowed = match uri.scheme_str() {
        Some("https") => true,
        Some("http") => local && uri.host().is_some_and(is_loopback),
        _ => false,
    };
    if plain && allowed {
        Ok(uri)
    } else {
        Err(format!(
            "`{}` must be an https address (or http on this machine), without a user",
            shown_url(url)
        ))
    }
}

fn is_loopback(host: &str) -> bool {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost"
        || host
            .parse::<std::net::IpAddr>()
            .is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(issuer: &str) -> Result<(), String> {
        Settings::new(issuer, vec!["a".to_owned()]).check()
    }

    #[test]
    fn an_issuer_is_an_https_address_or_on_this_machine() {
        for good in [
            "https://accounts.example",
            "https://login.example/tenant/v2.0",
            "http://127.0.0.1:80/x",
            "http://[::1]:1",
            "http://localhost",
        ] {
            assert_eq!(check(good), Ok(()), "{good}");
        }
        for bad in [
            "",
            "accounts.example",
            "http://accounts.example",
            "http://127.0.0.1.evil.example",
            "http://localhost@evil.example",
            "https://user@accounts.example",
            "https://accounts.example?tenant=x",
            "https://accounts.example/#x",
            "file:///etc/passwd",
        ] {
            assert!(check(bad).is_err(), "{bad}");
        }
        assert!(
            Settings::new("https://accounts.example", Vec::new())
                .check()
                .is_err(),
            "no audience"
        );
    }

    #[test]
    fn keys_of_a_distant_issuer_come_over_https_alone() {
        let keys = |issuer: &str, url: &str| Settings {
            jwks_url: Some(url.to_owned()),
            ..Settings::new(issuer, vec!["a".to_owned()])
        };
        assert!(
            keys("https://accounts.example", "http://127.0.0.1/keys")
                .check()
                .is_err()
        );
        assert!(
            keys("http://127.0.0.1", "http://127.0.0.1/keys")
                .check()
                .is_ok()
        );
        assert!(
            keys("http://127.0.0.1", "http://other.example/keys")
                .check()
                .is_err()
        );
    }
}
