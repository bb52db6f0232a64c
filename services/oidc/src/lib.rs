//! Validates tokens of an OpenID Connect issuer: whether a JSON Web Token comes from the issuer, is
//! meant for this service, and is valid now.
//!
//! The issuer's keys are found by discovery or at a configured URL, and cached. They are fetched again if they are
//! old, if a token names an unknown key, or if a token names no key and none verifies it. This crate does not decide
//! about callers, scopes or owners: [`Verified`] holds the token's claims.
//!
//! It accepts the small part of JOSE (RFC 7515 to 7519) that issuers use: three parts and one
//! signature by one of the asymmetric algorithms of [`Algorithm`]. The algorithm must fit the
//! issuer's key, so a token can choose neither `none` nor an HMAC with a public key as the secret
//! (RFC 8725, section 3.1). Keys and URLs in a token's header are ignored.
//!
//! ```
//! let settings = context_oidc::Settings::new("https://accounts.example", vec!["my-service".to_owned()]);
//! let issuer = context_oidc::Issuer::new(settings).expect("the settings can be used");
//! assert_eq!(issuer.settings().issuer, "https://accounts.example");
//! ```

mod algorithm;
mod allowance;
mod claims;
mod discovery;
mod http;
mod issuer;
mod jwks;
mod settings;
mod sign_in;
mod token;

pub use algorithm::Algorithm;
pub use claims::Verified;
pub use issuer::{Issuer, Now, TokenError};
pub use settings::{Client, Settings};
pub use sign_in::SignInError;
