//! A token issuer for tests. It has a discovery document, keys that a test can replace, and tokens with real signatures,
//! including invalid ones.

mod key;
mod server;
mod sign_in;

pub use key::{Key, hs256, unsigned};
pub use server::TestIssuer;
pub use sign_in::SignIn;

use serde_json::{Value, json};

/// The current time in seconds since 1970.
#[must_use]
pub fn now() -> i64 {
    context_test_support::now().micros() / 1_000_000
}

/// The claims of a valid token for `audience`: valid for an hour, with the scopes read, write and delete.
#[must_use]
pub fn claims(issuer: &str, audience: &str, subject: &str) -> Value {
    json!({"iss": issuer, "aud": audience, "sub": subject, "iat": now(), "exp": now() + 3600, "scope": "openid read write delete"})
}

/// Returns the claims with these changes. A null value removes a claim.
#[must_use]
pub fn with(mut claims: Value, changes: Value) -> Value {
    let (Some(members), Value::Object(changes)) = (claims.as_object_mut(), changes) else {
        return claims;
    };
    for (name, value) in changes {
        if value.is_null() {
            members.remove(&name);
        } else {
            members.insert(name, value);
        }
    }
    claims
}
