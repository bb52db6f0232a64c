//! Tokens of an OpenID Connect issuer: whether a JSON Web Token is the issuer's, meant for this service, and valid now.
//!
//! The issuer's keys are found by discovery, kept, and fetched again when they grow old or a token names one that is not
//! known. Nothing here knows callers, scopes or owners: [`Verified`] says what the token says.
//!
//! What is accepted is the small part of JOSE (RFC 7515 to 7519) that issuers use: three parts, one signature, made by one
//! of the asymmetric algorithms of [`Algorithm`]. The algorithm must fit the issuer's key: a token chooses neither `none`
//! nor a secret made of a public key (RFC 8725, section 3.1). Keys and addresses inside a token's header are not looked at.
//!
//! ```
//! let settings = context_oidc::Settings::new("https://accounts.example", vec!["my-service".to_owned()]);
//! let issuer = context_oidc::Issuer::new(settings).expect("the settings can be used");
//! assert_eq!(issuer.settings().issuer, "https://accounts.example");
//! ```

mod algorithm;
mod allowance;
mod claims;
mod http;
mod issuer;
mod jwks;
mod settings;
mod token;

pub use algorithm::Algorithm;
pub use claims::Verified;
pub use issuer::{Issuer, Now, TokenError};
pub use settings::Settings;
