//! Parses a token: a JSON Web Signature in compact form (RFC 7515).

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::algorithm::Algorithm;

/// Longer tokens are refused unread. Tokens that list a user's groups reach about a tenth of this.
const MAX_TOKEN_BYTES: usize = 32 * 1024;

/// A parsed token whose signature is not verified yet.
pub(crate) struct Token<'t> {
    /// The part that is signed.
    pub signed: &'t str,
    pub algorithm: Algorithm,
    pub key_id: Option<String>,
    pub claims: Map<String, Value>,
    pub signature: Vec<u8>,
}

#[derive(Deserialize)]
struct Header {
    alg: String,
    kid: Option<String>,
    typ: Option<String>,
    crit: Option<Value>,
    b64: Option<Value>,
}

impl<'t> Token<'t> {
    /// Parses a token.
    ///
    /// # Errors
    /// What is wrong with it, for the log.
    pub fn parse(text: &'t str) -> Result<Self, &'static str> {
        if text.len() > MAX_TOKEN_BYTES {
            return Err("it is too long");
        }
        let (signed, signature) = text.rsplit_once('.').ok_or("it does not have 3 parts")?;
        let (header, claims) = signed
            .split_once('.')
            .filter(|(_, claims)| !claims.contains('.'))
            .ok_or("it does not have 3 parts")?;
        let decoded = |part: &str| {
            URL_SAFE_NO_PAD
                .decode(part)
                .map_err(|_| "it is not URL-safe base64")
        };
        let json = |part: &str| {
            let json = decoded(part)?;
            let mut reserved = context_model::ReservedKey::default();
            reserved.read(&json);
            if reserved.is_found() {
                return Err("it has a reserved key");
            }
            Ok(json)
        };
        let header: Header =
            serde_json::from_slice(&json(header)?).map_err(|_| "its header cannot be read")?;
        let Header {
            alg,
            kid,
            typ,
            crit,
            b64,
        } = header;
        let algorithm = Algorithm::parse(&alg).ok_or("its algorithm is not accepted")?;
        if crit.is_some() || b64.is_some() {
            return Err("it requires extensions that are not supported");
        }
        // An issuer's other tokens (logout tokens, security events) are not credentials: RFC 8725,
        // section 3.11.
        let typ = typ.map(|typ| typ.to_ascii_lowercase());
        if !matches!(
            typ.as_deref(),
            None | Some("jwt" | "at+jwt" | "application/jwt" | "application/at+jwt")
        ) {
            return Err("it is another type of token");
        }
        let claims =
            serde_json::from_slice(&json(claims)?).map_err(|_| "its claims cannot be read")?;
        Ok(Self {
            signed,
            algorithm,
            key_id: kid,
            claims,
            signature: decoded(signature)?,
        })
    }
}
