//! An issuer of tokens for tests: a discovery document, keys that can be changed, and tokens that are really signed, also
//! in ways in which no issuer signs.

mod key;
mod server;

pub use key::{Key, hs256, unsigned};
pub use server::TestIssuer;

use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

/// Seconds since 1970.
#[must_use]
pub fn now() -> i64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .expect("a clock after 1970");
    i64::try_from(since.as_secs()).expect("a clock before the sun is cold")
}

/// What a good token for `audience` says: an hour of life, the scopes read, write and delete.
#[must_use]
pub fn claims(issuer: &str, audience: &str, subject: &str) -> Value {
    json!({"iss": issuer, "aud": audience, "sub": subject, "iat": now(), "exp": now() + 3600, "scope": "openid read write delete"})
}

/// The same with some claims changed; null takes one away.
#[must_use]
pub fn with(mut claims: Value, changes: Value) -> Value {
    let (Some(claims_of), Value::Object(changes)) = (claims.as_object_mut(), changes) else {
        return claims;
    };
    for (name, value) in changes {
        if value.is_null() {
            claims_of.remove(&name);
        } else {
            claims_of.insert(name, value);
        }
    }
    claims
}
