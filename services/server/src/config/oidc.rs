//! Tokens of an OpenID Connect issuer.

use std::time::Duration;

use clap::Args;
use context_engine::{Scope, TokenRules};
use context_oidc::Settings;

use super::value::{List, Url, number};

/// Settings of tokens; they count with AUTH=oidc.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "OpenID Connect")]
pub struct Oidc {
    /// The issuer whose tokens are accepted, exactly as it stands in their `iss`; its keys are found by
    /// /.well-known/openid-configuration. http only on this machine.
    #[arg(long, env = "OIDC_ISSUER", value_name = "URL", global = true)]
    pub oidc_issuer: Option<Url>,

    /// Whom tokens must be meant for: a token's `aud` names one of these, between commas.
    #[arg(
        long,
        env = "OIDC_AUDIENCE",
        value_name = "NAMES",
        default_value = "",
        hide_default_value = true,
        global = true
    )]
    pub oidc_audience: List,

    /// Where the issuer's keys are, for one that has no discovery document.
    #[arg(long, env = "OIDC_JWKS_URL", value_name = "URL", global = true)]
    pub oidc_jwks_url: Option<Url>,

    /// The claim with the scopes: words between spaces, or a list; /a/b for a claim inside of another.
    #[arg(
        long,
        env = "OIDC_SCOPE_CLAIM",
        value_name = "NAME",
        default_value = "scope",
        global = true
    )]
    pub oidc_scope_claim: String,

    /// What the values of that claim begin with when they are for this service: with `context.`, `context.read` is the
    /// scope read. Default: nothing.
    #[arg(
        long,
        env = "OIDC_SCOPE_PREFIX",
        value_name = "TEXT",
        default_value = "",
        hide_default_value = true,
        global = true
    )]
    pub oidc_scope_prefix: String,

    /// The scopes of a token that has no such claim, between commas. Default: none, so that it may do nothing.
    #[arg(long, env = "OIDC_DEFAULT_SCOPES", value_name = "SCOPES", default_value = "", hide_default_value = true, value_parser = scopes, global = true)]
    pub oidc_default_scopes: Scopes,

    /// The claim that decides the owner; /a/b for a claim inside of another. A token without it is refused.
    #[arg(
        long,
        env = "OIDC_OWNER_CLAIM",
        value_name = "NAME",
        default_value = "sub",
        global = true
    )]
    pub oidc_owner_claim: String,

    /// What the owners of tokens begin with, 64 characters at most. Default: `oidc:`, 12 digits of the issuer's SHA-256 and
    /// `:`. With `none` the claim names the owner as it is, also one that has API keys, also `default`.
    #[arg(long, env = "OIDC_OWNER_PREFIX", value_name = "TEXT", value_parser = owner_prefix, global = true)]
    pub oidc_owner_prefix: Option<String>,

    /// Seconds by which the clocks of the issuer and of this machine may differ, 0 to 300.
    #[arg(long, env = "OIDC_CLOCK_SKEW_SECONDS", value_name = "S", default_value = "60", value_parser = number(0, 300), global = true)]
    pub oidc_clock_skew_seconds: u64,

    /// Minutes for which the issuer's keys are used while it cannot be reached, 1 to 10 080.
    #[arg(long, env = "OIDC_KEYS_MAX_AGE_MINUTES", value_name = "MIN", default_value = "60", value_parser = number(1, 10_080), global = true)]
    pub oidc_keys_max_age_minutes: u64,
}

/// Scopes between commas.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Scopes(pub Vec<Scope>);

fn scopes(text: &str) -> Result<Scopes, String> {
    let Ok(List(names)) = text.parse::<List>();
    let scopes: Option<Vec<Scope>> = names.iter().map(|name| Scope::parse(name)).collect();
    scopes
        .map(Scopes)
        .ok_or_else(|| "it must be of read, write, delete and manage, between commas".to_owned())
}

fn owner_prefix(text: &str) -> Result<String, String> {
    let text = text.trim();
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
    /// Whose tokens are accepted.
    ///
    /// # Errors
    /// A sentence that names the setting which is missing.
    pub fn settings(&self) -> Result<Settings, String> {
        let issuer = self.oidc_issuer.as_ref().ok_or(
            "AUTH is `oidc`, which needs OIDC_ISSUER: the address of the issuer of tokens",
        )?;
        if self.oidc_audience.0.is_empty() {
            return Err("AUTH is `oidc`, which needs OIDC_AUDIENCE: without it tokens for other services would be accepted".to_owned());
        }
        Ok(Settings {
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

    /// How their claims become a caller.
    #[must_use]
    pub fn rules(&self) -> TokenRules {
        TokenRules {
            scope_prefix: self.oidc_scope_prefix.clone(),
            default_scopes: self.oidc_default_scopes.0.clone(),
            owner_prefix: self.oidc_owner_prefix.clone(),
        }
    }
}
