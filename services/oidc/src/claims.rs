//! The claims of a token.

use serde_json::{Map, Value};

use crate::settings::Settings;

/// Longer subjects and owners are refused. The specification allows subjects of 255 characters.
const MAX_NAME_BYTES: usize = 1024;

/// The relevant claims of a valid token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verified {
    /// The issuer's id for the token's holder (`sub`).
    pub subject: String,
    /// The value of the claim that decides the owner.
    pub owner: String,
    /// The values of the scope claim; `None` if the token has no such claim.
    pub scopes: Option<Vec<String>>,
}

impl Verified {
    /// Checks the claims of a token at `now`, in seconds since 1970.
    ///
    /// # Errors
    /// What is wrong with them, for the log.
    pub(crate) fn check(
        claims: &Map<String, Value>,
        settings: &Settings,
        now: i64,
    ) -> Result<Self, &'static str> {
        check_standard_claims(claims, settings, &settings.audiences, now)?;
        let name = |claim: &str| {
            let value = find(claims, claim).and_then(Value::as_str)?;
            (!value.is_empty() && value.len() <= MAX_NAME_BYTES).then(|| value.to_owned())
        };
        Ok(Self {
            subject: name("sub").ok_or("it has no subject")?,
            owner: name(&settings.owner_claim).ok_or("it has no claim that decides the owner")?,
            scopes: find(claims, &settings.scope_claim).map(words),
        })
    }
}

/// Checks that a token comes from the issuer, is meant for one of these audiences, and is valid at `now` (`iss`, `aud`,
/// `exp` and `nbf`).
///
/// # Errors
/// What is wrong with it, for the log.
pub(crate) fn check_standard_claims(
    claims: &Map<String, Value>,
    settings: &Settings,
    audiences: &[String],
    now: i64,
) -> Result<(), &'static str> {
    if claims.get("iss").and_then(Value::as_str) != Some(&settings.issuer) {
        return Err("it comes from another issuer");
    }
    let ours = |audience: &Value| {
        audience
            .as_str()
            .is_some_and(|audience| audiences.iter().any(|own| own == audience))
    };
    let is_for_us = match claims.get("aud") {
        Some(Value::Array(audiences)) => audiences.iter().any(ours),
        Some(audience) => ours(audience),
        None => false,
    };
    if !is_for_us {
        return Err("it is meant for another audience");
    }
    #[expect(
        clippy::cast_precision_loss,
        reason = "seconds since 1970 are exact in a double"
    )]
    let (now, skew) = (now as f64, settings.clock_skew.as_secs_f64());
    let expiry = claims
        .get("exp")
        .and_then(Value::as_f64)
        .ok_or("it has no expiry")?;
    if now >= expiry + skew {
        return Err("it has expired");
    }
    match claims.get("nbf") {
        None => {}
        Some(begin) if begin.as_f64().is_some_and(|begin| now >= begin - skew) => {}
        Some(_) => return Err("it is not valid yet"),
    }
    Ok(())
}

/// A claim by name, or a nested claim by path, such as `/realm_access/roles`.
fn find<'c>(claims: &'c Map<String, Value>, name: &str) -> Option<&'c Value> {
    let Some(path) = name.strip_prefix('/') else {
        return claims.get(name);
    };
    let mut parts = path.split('/');
    let first = claims.get(parts.next()?)?;
    parts.try_fold(first, |value, part| value.get(part))
}

/// The words of a space-separated string (RFC 8693, section 4.2) or of a list. Empty for any other
/// value.
fn words(value: &Value) -> Vec<String> {
    match value {
        Value::String(text) => text
            .split(' ')
            .filter(|word| !word.is_empty())
            .map(str::to_owned)
            .collect(),
        Value::Array(list) => list
            .iter()
            .filter_map(Value::as_str)
            .map(str::to_owned)
            .collect(),
        _ => Vec::new(),
    }
}
