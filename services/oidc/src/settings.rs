//! Which issuer's tokens are accepted.

use std::time::Duration;

use context_model::{Secret, shown_url};
use reqwest::Url;

/// The client as which this service is registered with the issuer.
#[derive(Debug, Clone)]
pub struct Client {
    /// The client id of this service at the issuer.
    pub id: String,
    /// The client secret; `None` for a public client.
    pub secret: Option<Secret>,
    /// The address of the page, to which the issuer sends the browser back.
    pub redirect_url: String,
    /// The requested scopes, separated by spaces; `openid` is one of them.
    pub scopes: String,
}

/// Which issuer's tokens are accepted, and which of their claims are used.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The issuer, exactly as in `iss`.
    pub issuer: String,
    /// Accepted audiences; `aud` must contain one of them.
    pub audiences: Vec<String>,
    /// URL of the keys; `None`: the one in the issuer's discovery document.
    pub jwks_url: Option<String>,
    /// The claim that decides the owner.
    pub owner_claim: String,
    /// The claim with the scopes.
    pub scope_claim: String,
    /// Tolerated difference between the clocks of the issuer and of this machine.
    pub clock_skew: Duration,
    /// How long cached keys are used while no newer ones can be fetched.
    pub keys_max_age: Duration,
    /// The client for signing in with a browser; `None` if signing in is off.
    pub client: Option<Client>,
}

impl Client {
    /// Checks the address and the scopes.
    ///
    /// # Errors
    /// A sentence that says what is wrong.
    pub fn check(&self) -> Result<(), String> {
        // The code comes back to this address, so it has the same rules as the issuer's.
        let redirect = checked(&self.redirect_url, true)?;
        if redirect.query().is_some() {
            return Err(format!(
                "`{}` has a query; the address of the page has none",
                shown_url(&self.redirect_url)
            ));
        }
        if !self.scopes.split(' ').any(|scope| scope == "openid") {
            return Err("the scopes of the client must name `openid`, without which the issuer gives no ID token".to_owned());
        }
        Ok(())
    }
}

impl Settings {
    /// Tokens of this issuer for one of these audiences; all other settings have their defaults.
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
            client: None,
        }
    }

    /// URL of the discovery document (OpenID Connect Discovery 1.0, section 4).
    pub(crate) fn discovery_url(&self) -> String {
        format!(
            "{}/.well-known/openid-configuration",
            self.issuer.trim_end_matches('/')
        )
    }

    /// Whether the issuer runs on this machine, where http is accepted.
    pub(crate) fn is_local(&self) -> bool {
        checked(&self.issuer, true).is_ok_and(|url| url.scheme() == "http")
    }

    /// Checks the settings.
    ///
    /// # Errors
    /// A sentence that says what is wrong.
    pub fn check(&self) -> Result<(), String> {
        let issuer = checked(&self.issuer, true)?;
        if issuer.query().is_some() {
            return Err(format!(
                "`{}` has a query; an issuer has none",
                shown_url(&self.issuer)
            ));
        }
        if self.audiences.is_empty() {
            return Err(
                "there is no audience, without which tokens for other services would be accepted"
                    .to_owned(),
            );
        }
        if self.audiences.iter().any(String::is_empty) {
            return Err("one of the audiences is empty".to_owned());
        }
        if let Some(client) = &self.client {
            client.check()?;
            if self.jwks_url.is_some() {
                return Err(
                    "people sign in at the endpoints of the discovery document, which is not read when there is a URL of the keys"
                        .to_owned(),
                );
            }
        }
        self.jwks_url
            .as_deref()
            .map_or(Ok(()), |url| checked(url, self.is_local()).map(drop))
    }
}

/// Parses a URL from which keys may be fetched: https or, with `local`, also http on this machine.
///
/// # Errors
/// A sentence that says what is wrong.
pub(crate) fn checked(text: &str, local: bool) -> Result<Url, String> {
    let shown = shown_url(text);
    let not_an_address = |_| format!("`{shown}` is not an address");
    let url = Url::parse(text).map_err(not_an_address)?;
    // The parser silently drops white space, which no address contains.
    let is_plain = text.bytes().all(|byte| byte.is_ascii_graphic())
        && url.fragment().is_none()
        && url.username().is_empty()
        && url.password().is_none();
    let is_allowed = match url.scheme() {
        "https" => true,
        "http" => local && is_loopback(&url),
        _ => false,
    };
    if is_plain && is_allowed {
        Ok(url)
    } else {
        let or_http = if local {
            " (or http on this machine)"
        } else {
            ""
        };
        Err(format!(
            "`{shown}` must be an https address{or_http}, without a user, a fragment or white space"
        ))
    }
}

fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    let address = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost"
        || address
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
        for audiences in [&[][..], &[""], &["a", ""]] {
            let given = audiences.iter().map(|&audience: &&str| audience.to_owned());
            let settings = Settings::new("https://accounts.example", given.collect());
            assert!(settings.check().is_err(), "{audiences:?}");
        }
    }

    #[test]
    fn people_sign_in_on_a_page_with_https_or_on_this_machine() {
        let check = |redirect_url: &str, scopes: &str, jwks_url: Option<&str>| {
            let client = Client {
                id: "page".to_owned(),
                secret: None,
                redirect_url: redirect_url.to_owned(),
                scopes: scopes.to_owned(),
            };
            Settings {
                client: Some(client),
                jwks_url: jwks_url.map(str::to_owned),
                ..Settings::new("https://accounts.example", vec!["a".to_owned()])
            }
            .check()
        };
        let good = "https://context.example/memory/";
        for redirect in [good, "http://127.0.0.1:7420/", "http://localhost:7420/"] {
            assert_eq!(check(redirect, "read openid", None), Ok(()), "{redirect}");
        }
        for redirect in [
            "http://context.example/",
            "https://context.example/?to=x",
            "https://context.example/#x",
            "javascript:alert(1)",
            "/",
        ] {
            assert!(check(redirect, "openid", None).is_err(), "{redirect}");
        }
        assert!(check(good, "openid-connect read", None).is_err());
        assert!(check(good, "openid", Some("https://accounts.example/keys")).is_err());
    }

    #[test]
    fn keys_of_a_distant_issuer_come_over_https_alone() {
        let keys = |issuer: &str, url: &str| Settings {
            jwks_url: Some(url.to_owned()),
            ..Settings::new(issuer, vec!["a".to_owned()])
        };
        let refusal = keys("https://accounts.example", "http://127.0.0.1/keys").check();
        assert!(refusal.is_err_and(|why| !why.contains("or http")));
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
