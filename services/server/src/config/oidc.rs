//! Tokens of an OpenID Connect issuer.

use std::time::Duration;

use clap::Args;
use context_engine::{Scope, TokenRules};
use context_model::Secret;
use context_oidc::{Client, Settings};

use super::value::{List, Url, number};

/// Settings of tokens, used with AUTH=oidc.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "OpenID Connect")]
pub struct Oidc {
    /// The issuer whose tokens are accepted, exactly as in their `iss`. An http address must be on this machine.
    ///
    /// Its keys are found through /.well-known/openid-configuration.
    #[arg(long, env = "OIDC_ISSUER", value_name = "URL", global = true)]
    pub oidc_issuer: Option<Url>,

    /// The accepted audiences, comma-separated. A token's `aud` must name one of them.
    #[arg(
        long,
        env = "OIDC_AUDIENCE",
        value_name = "NAMES",
        default_value = "",
        hide_default_value = true,
        global = true
    )]
    pub oidc_audience: List,

    /// The address of the issuer's keys, if the issuer has no discovery document.
    #[arg(long, env = "OIDC_JWKS_URL", value_name = "URL", global = true)]
    pub oidc_jwks_url: Option<Url>,

    /// The claim with the scopes: words separated by spaces, or a list. /a/b names a claim inside another.
    #[arg(long, env = "OIDC_SCOPE_CLAIM", value_name = "NAME", default_value = "scope", value_parser = claim, global = true)]
    pub oidc_scope_claim: String,

    /// The prefix of scopes that are for this service. Default: none.
    ///
    /// With `context.`, the value `context.read` is the scope read.
    #[arg(
        long,
        env = "OIDC_SCOPE_PREFIX",
        value_name = "TEXT",
        default_value = "",
        hide_default_value = true,
        global = true
    )]
    pub oidc_scope_prefix: String,

    /// The scopes of a token without the scope claim, comma-separated. Default: none, so it may do nothing.
    #[arg(long, env = "OIDC_DEFAULT_SCOPES", value_name = "SCOPES", default_value = "", hide_default_value = true, value_parser = scopes, global = true)]
    pub oidc_default_scopes: Scopes,

    /// The claim that decides the owner. A token without it is refused. /a/b names a claim inside another.
    #[arg(long, env = "OIDC_OWNER_CLAIM", value_name = "NAME", default_value = "sub", value_parser = claim, global = true)]
    pub oidc_owner_claim: String,

    /// The prefix of the owners of tokens, at most 64 characters, or `none`.
    ///
    /// Default: `oidc:`, the first 12 hexadecimal digits of the issuer's SHA-256, and `:`. With `none` the value of the
    /// claim is the owner. A token can then name an owner that has API keys, or `default`.
    #[arg(long, env = "OIDC_OWNER_PREFIX", value_name = "TEXT", value_parser = owner_prefix, global = true)]
    pub oidc_owner_prefix: Option<String>,

    /// The client id of this service at the issuer. With it, people sign in to the page at / through the issuer.
    ///
    /// It needs OIDC_REDIRECT_URL and the issuer's discovery document, so OIDC_JWKS_URL must not be set.
    #[arg(long, env = "OIDC_CLIENT_ID", value_name = "ID", global = true)]
    pub oidc_client_id: Option<String>,

    /// The client secret, if the issuer gave one.
    #[arg(
        long,
        env = "OIDC_CLIENT_SECRET",
        value_name = "SECRET",
        hide_env_values = true,
        global = true
    )]
    pub oidc_client_secret: Option<Secret>,

    /// The address of the page at /, as it is registered with the issuer, such as https://context.example/.
    #[arg(long, env = "OIDC_REDIRECT_URL", value_name = "URL", global = true)]
    pub oidc_redirect_url: Option<Url>,

    /// The scopes that the page asks the issuer for, separated by spaces. `openid` must be one of them.
    #[arg(
        long,
        env = "OIDC_CLIENT_SCOPES",
        value_name = "SCOPES",
        default_value = "openid",
        global = true
    )]
    pub oidc_client_scopes: String,

    /// Seconds by which the clocks of the issuer and this machine may differ, 0 to 300.
    #[arg(long, env = "OIDC_CLOCK_SKEW_SECONDS", value_name = "S", default_value = "60", value_parser = number(0, 300), global = true)]
    pub oidc_clock_skew_seconds: u64,

    /// Minutes for which the issuer's keys stay in use while the issuer is unreachable or its response unusable, 1 to
    /// 10 080.
    #[arg(long, env = "OIDC_KEYS_MAX_AGE_MINUTES", value_name = "MIN", default_value = "60", value_parser = number(1, 10_080), global = true)]
    pub oidc_keys_max_age_minutes: u64,
}

/// Comma-separated scopes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Scopes(pub Vec<Scope>);

fn scopes(text: &str) -> Result<Scopes, String> {
    let Ok(List(names)) = text.parse::<List>();
    let scopes: Option<Vec<Scope>> = names.iter().map(|name| Scope::parse(name)).collect();
    scopes.map(Scopes).ok_or_else(|| {
        "it must be a comma-separated list of read, write, delete and manage".to_owned()
    })
}

/// The name of a claim, or the path of a claim inside another. No token has a claim whose path has an empty part.
fn claim(text: &str) -> Result<String, String> {
    let text = text.trim();
    let path = text.strip_prefix('/').map(|path| path.split('/'));
    if text.is_empty() || path.is_some_and(|mut parts| parts.any(str::is_empty)) {
        return Err(
            "it must be the name of a claim, or a path without empty parts, such as /realm_access/roles"
                .to_owned(),
        );
    }
    Ok(text.to_owned())
}

fn owner_prefix(text: &str) -> Result<String, String> {
    let text = text.trim();
    if text.is_empty() {
        return Err("it must not be blank; `none` means no prefix".to_owned());
    }
    if text.chars().nth(64).is_some() || text.chars().any(char::is_control) {
        return Err(
            "it must have at most 64 characters, none of them a control character".to_owned(),
        );
    }
    Ok(if text.eq_ignore_ascii_case("none") {
        String::new()
    } else {
        text.to_owned()
    })
}

impl Oidc {
    /// The accepted issuer and the rules for its tokens.
    ///
    /// # Errors
    /// A message that names the setting that is missing, invalid or excluded by another one.
    pub fn settings(&self) -> Result<Settings, String> {
        let issuer = self.oidc_issuer.as_ref().ok_or(
            "AUTH is `oidc`, which needs OIDC_ISSUER: the address of the issuer of tokens",
        )?;
        if self.oidc_audience.0.is_empty() {
            return Err("AUTH is `oidc`, which needs OIDC_AUDIENCE: without it tokens for other services would be accepted".to_owned());
        }
        Ok(Settings {
            client: self.client()?,
            jwks_url: self
                .oidc_jwks_url
                .as_ref()
                .map(|url| url.as_str().to_owned()),
            owner_claim: self.oidc_owner_claim.clone(),
            scope_claim: self.oidc_scope_claim.clone(),
            clock_skew: Duration::from_secs(self.oidc_clock_skew_seconds),
            keys_max_age: Duration::from_secs(self.oidc_keys_max_age_minutes * 60),
            ..Settings::new(issuer.as_str().trim(), self.oidc_audience.0.clone())
        })
    }

    /// The client for signing in to the page; `None` without OIDC_CLIENT_ID.
    fn client(&self) -> Result<Option<Client>, String> {
        let Some(id) = self
            .oidc_client_id
            .as_deref()
            .filter(|id| !id.trim().is_empty())
        else {
            return Ok(None);
        };
        let redirect = self.oidc_redirect_url.as_ref().ok_or(
            "OIDC_CLIENT_ID is set, which needs OIDC_REDIRECT_URL: the address of the page, as the issuer knows it",
        )?;
        if self.oidc_jwks_url.is_some() {
            return Err("OIDC_CLIENT_ID is set, which needs the issuer's discovery document, so OIDC_JWKS_URL must not be set".to_owned());
        }
        let client = Client {
            id: id.trim().to_owned(),
            secret: self.oidc_client_secret.clone(),
            redirect_url: redirect.as_str().trim().to_owned(),
            scopes: self.oidc_client_scopes.clone(),
        };
        client.check().map_err(|sentence| {
            format!("OIDC_REDIRECT_URL and OIDC_CLIENT_SCOPES cannot be used: {sentence}")
        })?;
        Ok(Some(client))
    }

    /// The rules by which a token's claims become a caller.
    #[must_use]
    pub fn rules(&self) -> TokenRules {
        TokenRules {
            scope_prefix: self.oidc_scope_prefix.clone(),
            default_scopes: self.oidc_default_scopes.0.clone(),
            owner_prefix: self.oidc_owner_prefix.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_of_claims_has_no_empty_part() {
        for good in [
            "scp",
            "/realm_access/roles",
            "/a",
            "https://a.example//roles",
        ] {
            assert_eq!(claim(good), Ok(good.to_owned()));
        }
        for bad in ["", " ", "/", "//", "/a/", "//a", "/a//b"] {
            assert!(
                claim(bad).is_err_and(|why| why.contains("/realm_access/roles")),
                "{bad}"
            );
        }
    }

    #[test]
    fn only_none_switches_the_prefix_of_owners_off() {
        assert_eq!(owner_prefix(" None "), Ok(String::new()));
        assert_eq!(owner_prefix("team-"), Ok("team-".to_owned()));
        assert!(owner_prefix("").is_err() && owner_prefix(" ").is_err());
    }
}
