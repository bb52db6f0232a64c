//! Callers with tokens of an OpenID Connect issuer: from the claims of a valid token to a caller.

#![expect(
    clippy::disallowed_methods,
    reason = "pauses between requests to the issuer"
)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use context_model::{Error, Reason, Result, Scope, Timestamp};
use context_oidc::{Issuer, Now, SignInError, TokenError, Verified};
use context_store::{Memory, OwnerId};
use sha2::{Digest as _, Sha256};

use super::caller::{Caller, Reach, unauthenticated};

/// Longest name in characters, the same as for owners that an operator creates.
const MAX_NAME_CHARS: usize = 128;

/// How long a client waits before it signs in again.
const RETRY_SIGN_IN: Duration = Duration::from_secs(5);

/// How claims of a token map to a caller.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TokenRules {
    /// Prefix of our scopes in the scope claim: with `context.`, `context.read` is `read`.
    pub scope_prefix: String,
    /// The scopes of a token without the scope claim.
    pub default_scopes: Vec<Scope>,
    /// Prefix of the owner names that are derived from tokens, at most 64 characters; `None`:
    /// [`issuer_prefix`].
    pub owner_prefix: Option<String>,
}

/// Authenticates callers by their tokens.
#[derive(Debug)]
pub struct Tokens {
    issuer: Arc<Issuer>,
    rules: TokenRules,
    prefix: String,
}

impl Tokens {
    /// Accepts tokens of this issuer.
    #[must_use]
    pub fn new(issuer: Issuer, rules: TokenRules) -> Self {
        let prefix = issuer_prefix(&issuer.settings().issuer);
        Self {
            issuer: Arc::new(issuer),
            rules,
            prefix,
        }
    }

    /// The caller of this token, if it is valid at `now`.
    ///
    /// # Errors
    /// `UNAUTHENTICATED`; `ISSUER_UNAVAILABLE`.
    pub(super) async fn caller(&self, token: &str, now: Timestamp) -> Result<Caller> {
        match self.issuer.verify(token, moment(now)).await {
            Ok(verified) => Ok(self.caller_of(&verified)),
            Err(TokenError::Invalid(why)) => {
                tracing::debug!(why, "Token refused");
                Err(unauthenticated())
            }
            Err(TokenError::Unavailable { retry_after }) => {
                let sentence = "the token issuer's keys are not available, so this token cannot be checked; retry later";
                Err(Error::new(Reason::IssuerUnavailable, sentence).with_retry_after(retry_after))
            }
        }
    }

    /// The address at which the issuer signs people in; `None` if they cannot sign in with a browser.
    ///
    /// # Errors
    /// `ISSUER_UNAVAILABLE`.
    pub(super) async fn sign_in_url(&self) -> Result<Option<String>> {
        match self.issuer.authorization_url(Instant::now()).await {
            Ok(url) => Ok(Some(url)),
            Err(SignInError::Off) => Ok(None),
            Err(error) => Err(not_signed_in(error)),
        }
    }

    /// Exchanges an authorization code of the issuer for a token.
    ///
    /// # Errors
    /// `UNAUTHENTICATED`; `FEATURE_UNAVAILABLE`; `RATE_LIMITED`; `ISSUER_UNAVAILABLE`.
    pub(super) async fn sign_in(
        &self,
        code: &str,
        verifier: &str,
        now: Timestamp,
    ) -> Result<String> {
        let token = self.issuer.exchange(code, verifier, moment(now)).await;
        token.map_err(not_signed_in)
    }

    fn caller_of(&self, verified: &Verified) -> Caller {
        let Verified {
            subject,
            owner,
            scopes,
        } = verified;
        let parse = |values: &Vec<String>| {
            let ours = values
                .iter()
                .filter_map(|value| Scope::parse(value.strip_prefix(&self.rules.scope_prefix)?));
            let mut scopes: Vec<Scope> = ours.collect();
            scopes.sort_unstable();
            scopes.dedup();
            scopes
        };
        Caller {
            owner: OwnerId::new(named(
                self.rules.owner_prefix.as_deref().unwrap_or(&self.prefix),
                owner,
            )),
            key_id: Some(named(&self.prefix, subject)),
            scopes: scopes
                .as_ref()
                .map_or_else(|| self.rules.default_scopes.clone(), parse),
            reach: Reach::All,
            operator: false,
            memory: Memory::UNCOUNTED,
            administers_keys: true,
        }
    }
}

/// The prefix of an issuer's names. It keeps them apart from names of other issuers and of
/// operators: `oidc:`, 12 hexadecimal digits of the issuer's SHA-256, and `:`.
#[must_use]
pub fn issuer_prefix(issuer: &str) -> String {
    let digest = Sha256::digest(issuer.as_bytes());
    digest[..6]
        .iter()
        .fold(String::from("oidc:"), |prefix, byte| {
            prefix + &format!("{byte:02x}")
        })
        + ":"
}

/// The name for a claim's value: the value itself or, if that is not a valid name, `~` and its
/// SHA-256. Different values have different names.
fn named(prefix: &str, value: &str) -> String {
    let whole = format!("{prefix}{value}");
    let plain = !value.starts_with('~')
        && value.trim() == value
        && whole.trim() == whole
        && !value.chars().any(char::is_control)
        && whole.chars().nth(MAX_NAME_CHARS).is_none();
    if plain {
        whole
    } else {
        format!(
            "{prefix}~{}",
            URL_SAFE_NO_PAD.encode(Sha256::digest(value.as_bytes()))
        )
    }
}

/// The same moment on both clocks of the issuer.
fn moment(now: Timestamp) -> Now {
    Now {
        unix_seconds: now.micros().div_euclid(1_000_000),
        instant: Instant::now(),
    }
}

/// The error of a sign-in, for the page.
fn not_signed_in(error: SignInError) -> Error {
    match error {
        SignInError::Off => Error::new(
            Reason::FeatureUnavailable,
            "signing in with the issuer is off: set OIDC_CLIENT_ID and OIDC_REDIRECT_URL",
        ),
        SignInError::Refused(why) => {
            tracing::info!(why, "Sign-in refused");
            Error::new(
                Reason::Unauthenticated,
                "the issuer's code or token is not accepted; sign in again",
            )
        }
        SignInError::TooMany => Error::new(
            Reason::RateLimited,
            "too many codes that the issuer refused were sent; retry in a few seconds",
        )
        .with_retry_after(RETRY_SIGN_IN),
        SignInError::Unavailable => Error::new(
            Reason::IssuerUnavailable,
            "the token issuer cannot be reached or its response cannot be used, so no one can sign in; retry later",
        )
        .with_retry_after(RETRY_SIGN_IN),
    }
}

#[cfg(test)]
mod tests {
    use context_oidc::Settings;

    use super::*;

    fn tokens(rules: TokenRules) -> Tokens {
        Tokens::new(
            Issuer::new(Settings::new(
                "https://accounts.example",
                vec!["a".to_owned()],
            ))
            .unwrap(),
            rules,
        )
    }

    fn verified(owner: &str, scopes: Option<&[&str]>) -> Verified {
        let scopes = scopes.map(|scopes| scopes.iter().map(ToString::to_string).collect());
        Verified {
            subject: "alice".to_owned(),
            owner: owner.to_owned(),
            scopes,
        }
    }

    #[test]
    fn names_of_different_values_differ() {
        let long = "x".repeat(300);
        let values = [
            "a",
            " a",
            "a ",
            "~a",
            "a\u{0}",
            "a\n",
            "~",
            "A",
            "ä",
            "a\u{308}",
            &long,
            &long[1..],
            "default",
            "~ypeBEsobvcr6wjGzmiPcTaeG7_gUfE5yuYB3ha_uSLs",
        ];
        for prefix in ["", "oidc:0123456789ab:", &"p".repeat(64)] {
            let names: Vec<String> = values.iter().map(|value| named(prefix, value)).collect();
            for (i, name) in names.iter().enumerate() {
                assert!(
                    names[..i].iter().all(|other| other != name),
                    "{:?}",
                    values[i]
                );
                assert!(
                    name.chars().count() <= MAX_NAME_CHARS
                        && name.trim() == name
                        && !name.chars().any(char::is_control)
                );
            }
        }
    }

    #[test]
    fn an_owner_is_bound_to_its_issuer() {
        let caller = tokens(TokenRules::default()).caller_of(&verified("default", None));
        assert_eq!(
            caller.owner.as_str(),
            format!("{}default", issuer_prefix("https://accounts.example"))
        );
        assert_ne!(
            issuer_prefix("https://accounts.example"),
            issuer_prefix("https://accounts.example/")
        );
        let plain = TokenRules {
            owner_prefix: Some(String::new()),
            ..TokenRules::default()
        };
        assert_eq!(
            tokens(plain)
                .caller_of(&verified("team-b", None))
                .owner
                .as_str(),
            "team-b"
        );
    }

    #[test]
    fn scopes_are_those_of_the_claim_and_only_without_one_the_default() {
        let rules = TokenRules {
            scope_prefix: "context.".to_owned(),
            default_scopes: vec![Scope::Read],
            owner_prefix: None,
        };
        let tokens = tokens(rules);
        let scopes = |scopes| tokens.caller_of(&verified("x", scopes)).scopes;
        assert_eq!(
            scopes(Some(&[
                "openid",
                "context.write",
                "context.read",
                "context.write",
                "delete"
            ])),
            [Scope::Read, Scope::Write]
        );
        assert_eq!(scopes(Some(&[])), []);
        assert_eq!(
            scopes(Some(&["context.READ", "context.", "context.root"])),
            []
        );
        assert_eq!(scopes(None), [Scope::Read]);
    }
}
