//! The issuer's public keys (RFC 7517).

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::signature::{RsaPublicKeyComponents, UnparsedPublicKey};
use serde::Deserialize;
use serde_json::Value;

use crate::algorithm::{Algorithm, KeyKind};
use crate::token::Token;

/// Maximum number of keys in a set. Issuers usually have two to ten.
const MAX_KEYS: usize = 64;
/// Maximum number of keys that are tried for one token.
const MAX_TRIES: usize = 8;

/// A public key.
struct Key {
    id: Option<String>,
    /// The only algorithm it may be used with, if it names one.
    algorithm: Option<Algorithm>,
    material: Material,
}

enum Material {
    Rsa { n: Vec<u8>, e: Vec<u8> },
    Curve(KeyKind, Vec<u8>),
}

/// A set of keys.
#[derive(Default)]
pub(crate) struct KeySet(Vec<Key>);

/// The outcome of checking a token's signature.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    Good,
    Bad,
    /// The set has no key with the token's key id or, if the token names none, no key that verifies it.
    UnknownKey,
}

#[derive(Deserialize)]
struct Document {
    keys: Vec<Value>,
}

#[derive(Deserialize)]
struct Jwk {
    kty: String,
    kid: Option<String>,
    alg: Option<String>,
    #[serde(rename = "use")]
    usage: Option<String>,
    key_ops: Option<Vec<String>>,
    crv: Option<String>,
    n: Option<String>,
    e: Option<String>,
    x: Option<String>,
    y: Option<String>,
}

fn decoded(text: Option<&String>) -> Option<Vec<u8>> {
    // Some issuers add padding.
    URL_SAFE_NO_PAD.decode(text?.trim_end_matches('=')).ok()
}

impl Key {
    /// Parses a key; `None` if it cannot verify tokens: another key type, another use, or
    /// malformed.
    fn parse(value: &Value) -> Option<Self> {
        let Jwk {
            kty,
            kid,
            alg,
            usage,
            key_ops,
            crv,
            n,
            e,
            x,
            y,
        } = Jwk::deserialize(value).ok()?;
        if usage.is_some_and(|usage| usage != "sig")
            || key_ops.is_some_and(|ops| !ops.iter().any(|op| op == "verify"))
        {
            return None;
        }
        let algorithm = match alg {
            Some(name) => Some(Algorithm::parse(&name)?),
            None => None,
        };
        let point = |length: usize| {
            let (x, y) = (decoded(x.as_ref())?, decoded(y.as_ref())?);
            // Uncompressed SEC 1 form. Coordinates of any other length are malformed (RFC 7518,
            // section 6.2.1).
            (x.len() == length && y.len() == length).then(|| [&[4], &x[..], &y[..]].concat())
        };
        let material = match (kty.as_str(), crv.as_deref()) {
            ("RSA", _) => {
                let n = unsigned(decoded(n.as_ref())?);
                // 2048 to 8192 bits; `ring` rejects other sizes anyway.
                Material::Rsa {
                    n: Some(n).filter(|n| (256..=1024).contains(&n.len()))?,
                    e: unsigned(decoded(e.as_ref())?),
                }
            }
            ("EC", Some("P-256")) => Material::Curve(KeyKind::P256, point(32)?),
            ("EC", Some("P-384")) => Material::Curve(KeyKind::P384, point(48)?),
            ("OKP", Some("Ed25519")) => Material::Curve(
                KeyKind::Ed25519,
                decoded(x.as_ref()).filter(|x| x.len() == 32)?,
            ),
            _ => return None,
        };
        let key = Self {
            id: kid,
            algorithm,
            material,
        };
        algorithm
            .is_none_or(|algorithm| algorithm.kind() == key.kind())
            .then_some(key)
    }

    const fn kind(&self) -> KeyKind {
        match &self.material {
            Material::Rsa { .. } => KeyKind::Rsa,
            Material::Curve(kind, _) => *kind,
        }
    }

    fn fits(&self, algorithm: Algorithm) -> bool {
        self.kind() == algorithm.kind() && self.algorithm.is_none_or(|own| own == algorithm)
    }

    fn verifies(&self, token: &Token<'_>) -> bool {
        let (message, signature) = (token.signed.as_bytes(), token.signature.as_slice());
        match &self.material {
            Material::Rsa { n, e } => match token.algorithm.rsa() {
                Some(parameters) => RsaPublicKeyComponents { n, e }
                    .verify(parameters, message, signature)
                    .is_ok(),
                None => false,
            },
            Material::Curve(_, point) => match token.algorithm.curve() {
                Some(algorithm) => UnparsedPublicKey::new(algorithm, point)
                    .verify(message, signature)
                    .is_ok(),
                None => false,
            },
        }
    }
}

/// The number without the leading zero bytes that some issuers add.
fn unsigned(mut bytes: Vec<u8>) -> Vec<u8> {
    let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
    bytes.drain(..zeros);
    bytes
}

impl KeySet {
    /// Parses a key set and leaves out unusable keys.
    ///
    /// # Errors
    /// A sentence if it is not a key set, has too many keys, or has no usable key.
    pub fn parse(document: &[u8]) -> Result<Self, String> {
        let Document { keys } = serde_json::from_slice(document)
            .map_err(|_| "it is not a JSON Web Key Set".to_owned())?;
        if keys.len() > MAX_KEYS {
            return Err(format!("it has {} keys, more than {MAX_KEYS}", keys.len()));
        }
        let keys: Vec<Key> = keys.iter().filter_map(Key::parse).collect();
        if keys.is_empty() {
            Err("it has no key that can verify tokens".to_owned())
        } else {
            Ok(Self(keys))
        }
    }

    /// The number of usable keys.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Checks the token's signature with the keys of the set.
    pub fn verify(&self, token: &Token<'_>) -> Verdict {
        let named = |key: &&Key| token.key_id.is_none() || key.id == token.key_id;
        if !self.0.iter().any(|key| named(&key)) {
            return Verdict::UnknownKey;
        }
        let mut candidates = self
            .0
            .iter()
            .filter(named)
            .filter(|key| key.fits(token.algorithm))
            .take(MAX_TRIES);
        if candidates.any(|key| key.verifies(token)) {
            Verdict::Good
        } else if token.key_id.is_none() {
            // The token may be signed with a newer key.
            Verdict::UnknownKey
        } else {
            Verdict::Bad
        }
    }
}
