//! Signing in with a browser: the authorization code flow (RFC 6749, section 4.1) with PKCE (RFC 7636) and an ID token
//! (OpenID Connect Core 1.0, section 3.1).

use std::sync::Arc;
use std::time::Instant;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use form_urlencoded::{Serializer, byte_serialize};
use ring::digest::{SHA256, digest};
use serde::Deserialize;
use serde_json::Value;

use crate::claims::check_standard_claims;
use crate::discovery::Endpoints;
use crate::http::FetchError;
use crate::issuer::{Issuer, Now, TokenError};
use crate::settings::Client;
use crate::token::Token;

/// The longest code; RFC 6749 sets no limit.
const MAX_CODE_BYTES: usize = 4096;

/// Why signing in failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SignInError {
    /// No client is configured.
    #[error("signing in with the issuer is off")]
    Off,
    /// The issuer does not accept the code, or gave no token that this service accepts. The reason is for the log.
    #[error("{0}")]
    Refused(String),
    /// Too many codes were sent.
    #[error("too many codes were sent")]
    TooMany,
    /// The issuer cannot be reached, or its response cannot be used.
    #[error("the issuer of tokens cannot be reached, or its response cannot be used")]
    Unavailable,
}

#[derive(Deserialize)]
struct Tokens {
    access_token: Option<String>,
    id_token: String,
}

impl SignInError {
    fn refused(why: impl std::fmt::Display) -> Self {
        Self::Refused(format!("the issuer's token is not accepted: {why}"))
    }
}

impl From<TokenError> for SignInError {
    fn from(error: TokenError) -> Self {
        match error {
            TokenError::Invalid(why) => Self::refused(why),
            TokenError::Unavailable { .. } => Self::Unavailable,
        }
    }
}

impl From<FetchError> for SignInError {
    fn from(error: FetchError) -> Self {
        if let FetchError::Refused(status) = error {
            return Self::Refused(format!("the issuer refused the code with status {status}"));
        }
        tracing::error!(%error, "Could not sign in with the issuer");
        Self::Unavailable
    }
}

impl Issuer {
    /// The address at which the issuer signs a person in. The page adds `state`, `code_challenge` and `nonce`.
    ///
    /// # Errors
    /// [`SignInError`].
    pub async fn authorization_url(self: &Arc<Self>, now: Instant) -> Result<String, SignInError> {
        let (client, endpoints) = self.client(now).await?;
        let mut url = self.address(&endpoints.authorization_endpoint)?;
        url.query_pairs_mut().extend_pairs([
            ("response_type", "code"),
            ("client_id", &client.id),
            ("redirect_uri", &client.redirect_url),
            ("scope", &client.scopes),
            ("code_challenge_method", "S256"),
        ]);
        Ok(url.into())
    }

    /// Exchanges a code for a token that this service accepts: the access token or, if that is not one, the ID token.
    ///
    /// # Errors
    /// [`SignInError`].
    pub async fn exchange(
        self: &Arc<Self>,
        code: &str,
        verifier: &str,
        now: Now,
    ) -> Result<String, SignInError> {
        // RFC 7636, section 4.1.
        if !(43..=128).contains(&verifier.len()) || code.len() > MAX_CODE_BYTES {
            return Err(SignInError::Refused(
                "the verifier or the code has a wrong length".to_owned(),
            ));
        }
        let (client, endpoints) = self.client(now.instant).await?;
        if !self.exchanges().take(now.instant) {
            return Err(SignInError::TooMany);
        }
        let url = self.address(&endpoints.token_endpoint)?;
        let (form, user) = form(client, &endpoints, code, verifier);
        let reply = self.http().post(url, form, user).await?;
        let Tokens {
            access_token,
            id_token,
        } = serde_json::from_slice(&reply)
            .map_err(|_| SignInError::refused("there is no ID token"))?;
        self.check_id_token(&id_token, client, verifier, now)
            .await?;
        // A successful sign-in does not count towards the limit, which protects the issuer from forged codes.
        self.exchanges().give_back();
        if let Some(token) = access_token {
            match self.verify(&token, now).await {
                Ok(_) => return Ok(token),
                // Many issuers give access tokens that only they can read.
                Err(TokenError::Invalid(why)) => tracing::debug!(why, "Access token not used"),
                Err(error @ TokenError::Unavailable { .. }) => return Err(error.into()),
            }
        }
        self.verify(&id_token, now).await?;
        Ok(id_token)
    }

    /// Accepts an ID token of this sign-in (OpenID Connect Core 1.0, section 3.1.3.7).
    ///
    /// Its nonce must be the hash of the verifier, which only the browser tab that began the sign-in knows. So the page
    /// stores nothing else, and a token of another sign-in is refused even if the issuer does not check the verifier.
    async fn check_id_token(
        self: &Arc<Self>,
        id_token: &str,
        client: &Client,
        verifier: &str,
        now: Now,
    ) -> Result<(), SignInError> {
        let token = Token::parse(id_token).map_err(SignInError::refused)?;
        let claims = &token.claims;
        let audience = std::slice::from_ref(&client.id);
        check_standard_claims(claims, self.settings(), audience, now.unix_seconds)
            .map_err(SignInError::refused)?;
        let is = |claim: &Value, value: &str| claim.as_str() == Some(value);
        if claims.get("azp").is_some_and(|azp| !is(azp, &client.id)) {
            return Err(SignInError::refused("it was given to another client"));
        }
        let nonce = URL_SAFE_NO_PAD.encode(digest(&SHA256, verifier.as_bytes()));
        if !claims.get("nonce").is_some_and(|given| is(given, &nonce)) {
            return Err(SignInError::refused("it belongs to another sign-in"));
        }
        Ok(self.check_signature(&token, now.instant).await?)
    }

    async fn client(self: &Arc<Self>, now: Instant) -> Result<(&Client, Endpoints), SignInError> {
        let client = self.settings().client.as_ref().ok_or(SignInError::Off)?;
        let fetched = self
            .current(now)
            .await
            .map_err(|_| SignInError::Unavailable)?;
        let endpoints = fetched.endpoints.clone().ok_or(SignInError::Unavailable)?;
        Ok((client, endpoints))
    }
}

/// The form that redeems a code, and the sender's name and password if the secret is not in the form.
fn form(
    client: &Client,
    endpoints: &Endpoints,
    code: &str,
    verifier: &str,
) -> (String, Option<(String, String)>) {
    let mut form = Serializer::new(String::new());
    form.extend_pairs([
        ("grant_type", "authorization_code"),
        ("code", code),
        ("redirect_uri", &client.redirect_url),
        ("client_id", &client.id),
        ("code_verifier", verifier),
    ]);
    let mut user = None;
    if let Some(secret) = &client.secret {
        if endpoints.takes_secret_in_header() {
            // Both parts are form-encoded first (RFC 6749, section 2.3.1).
            let encoded = |text: &str| byte_serialize(text.as_bytes()).collect();
            user = Some((encoded(&client.id), encoded(secret.reveal())));
        } else {
            form.append_pair("client_secret", secret.reveal());
        }
    }
    (form.finish(), user)
}

#[cfg(test)]
mod tests {
    use context_model::Secret;
    use serde_json::json;

    use super::*;

    fn sent(secret: Option<&str>, methods: Value) -> (String, Option<(String, String)>) {
        let client = Client {
            id: "the page".to_owned(),
            secret: secret.map(|secret| Secret::new(secret.to_owned())),
            redirect_url: "https://context.example/".to_owned(),
            scopes: "openid".to_owned(),
        };
        let endpoints = json!({"authorization_endpoint": "", "token_endpoint": "", "token_endpoint_auth_methods_supported": methods});
        let endpoints = serde_json::from_value(endpoints).expect("endpoints");
        form(&client, &endpoints, "c&code_verifier=x", "verifier")
    }

    #[test]
    fn the_secret_is_where_the_issuer_takes_it_and_nothing_is_sent_unescaped() {
        let form = "grant_type=authorization_code&code=c%26code_verifier%3Dx&redirect_uri=https%3A%2F%2Fcontext.example%2F\
                    &client_id=the+page&code_verifier=verifier";
        let user = Some(("the+page".to_owned(), "s%3A%2B".to_owned()));
        for methods in [
            json!(null),
            json!(["client_secret_post", "client_secret_basic"]),
            json!(["private_key_jwt"]),
        ] {
            let expected = (form.to_owned(), user.clone());
            assert_eq!(sent(Some("s:+"), methods.clone()), expected, "{methods}");
        }
        assert_eq!(
            sent(Some("s:+"), json!(["client_secret_post"])),
            (format!("{form}&client_secret=s%3A%2B"), None)
        );
        assert_eq!(sent(None, json!(["none"])), (form.to_owned(), None));
    }
}
