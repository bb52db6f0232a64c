//! Signing keys.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use ring::hmac;
use ring::rand::SystemRandom;
use ring::rsa::PublicKeyComponents;
use ring::signature::{self, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _, RsaKeyPair};
use serde_json::{Value, json};

/// A key of an issuer.
pub struct Key {
    id: String,
    pair: Pair,
}

enum Pair {
    Rsa(Box<RsaKeyPair>),
    Ec(Box<EcdsaKeyPair>),
    Ed(Box<Ed25519KeyPair>),
}

fn encoded(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

fn rsa(pem: &str) -> Pair {
    let text: String = pem
        .lines()
        .filter(|line| !line.starts_with("-----"))
        .collect();
    let der = STANDARD.decode(text).expect("the key is base64");
    Pair::Rsa(Box::new(RsaKeyPair::from_pkcs8(&der).expect("a valid key")))
}

impl Key {
    /// An RSA key of 2048 bits. Always the same.
    #[must_use]
    pub fn rsa(id: &str) -> Self {
        Self {
            id: id.to_owned(),
            pair: rsa(include_str!("../keys/rsa-one.pem")),
        }
    }

    /// Another RSA key. Always the same.
    #[must_use]
    pub fn other_rsa(id: &str) -> Self {
        Self {
            id: id.to_owned(),
            pair: rsa(include_str!("../keys/rsa-two.pem")),
        }
    }

    /// A new key on P-256.
    #[must_use]
    pub fn ec(id: &str) -> Self {
        let algorithm = &signature::ECDSA_P256_SHA256_FIXED_SIGNING;
        let random = SystemRandom::new();
        let document = EcdsaKeyPair::generate_pkcs8(algorithm, &random).expect("a key");
        let pair =
            EcdsaKeyPair::from_pkcs8(algorithm, document.as_ref(), &random).expect("a valid key");
        Self {
            id: id.to_owned(),
            pair: Pair::Ec(Box::new(pair)),
        }
    }

    /// A new Ed25519 key.
    #[must_use]
    pub fn ed(id: &str) -> Self {
        let document = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).expect("a key");
        let pair = Ed25519KeyPair::from_pkcs8(document.as_ref()).expect("a valid key");
        Self {
            id: id.to_owned(),
            pair: Pair::Ed(Box::new(pair)),
        }
    }

    /// The default algorithm of its tokens.
    #[must_use]
    pub fn algorithm(&self) -> &'static str {
        match self.pair {
            Pair::Rsa(_) => "RS256",
            Pair::Ec(_) => "ES256",
            Pair::Ed(_) => "EdDSA",
        }
    }

    /// The public half, in the form that an issuer publishes.
    #[must_use]
    pub fn public(&self) -> Value {
        let mut jwk = match &self.pair {
            Pair::Rsa(pair) => {
                let PublicKeyComponents { n, e } =
                    PublicKeyComponents::<Vec<u8>>::from(pair.public());
                json!({"kty": "RSA", "n": encoded(n), "e": encoded(e)})
            }
            Pair::Ec(pair) => {
                let point = pair.public_key().as_ref();
                json!({"kty": "EC", "crv": "P-256", "x": encoded(&point[1..33]), "y": encoded(&point[33..])})
            }
            Pair::Ed(pair) => {
                json!({"kty": "OKP", "crv": "Ed25519", "x": encoded(pair.public_key().as_ref())})
            }
        };
        jwk["kid"] = json!(self.id);
        jwk["use"] = json!("sig");
        jwk
    }

    /// A token with these claims.
    #[must_use]
    pub fn token(&self, claims: &Value) -> String {
        self.token_with(
            &json!({"alg": self.algorithm(), "kid": self.id, "typ": "JWT"}),
            claims,
        )
    }

    /// A token with this header. It is signed as the header says or, for an unsupported algorithm, with the default
    /// one.
    #[must_use]
    pub fn token_with(&self, header: &Value, claims: &Value) -> String {
        let signed = format!(
            "{}.{}",
            encoded(header.to_string()),
            encoded(claims.to_string())
        );
        let random = SystemRandom::new();
        let signature = match &self.pair {
            Pair::Rsa(pair) => {
                let padding: &dyn signature::RsaEncoding = match header["alg"].as_str() {
                    Some("PS256") => &signature::RSA_PSS_SHA256,
                    Some("RS512") => &signature::RSA_PKCS1_SHA512,
                    _ => &signature::RSA_PKCS1_SHA256,
                };
                let mut signature = vec![0; pair.public().modulus_len()];
                pair.sign(padding, &random, signed.as_bytes(), &mut signature)
                    .expect("a signature");
                signature
            }
            Pair::Ec(pair) => pair
                .sign(&random, signed.as_bytes())
                .expect("a signature")
                .as_ref()
                .to_vec(),
            Pair::Ed(pair) => pair.sign(signed.as_bytes()).as_ref().to_vec(),
        };
        format!("{signed}.{}", encoded(signature))
    }
}

/// A token that claims to need no signature (RFC 7515, appendix A.5).
#[must_use]
pub fn unsigned(algorithm: &str, claims: &Value) -> String {
    format!(
        "{}.{}.",
        encoded(json!({"alg": algorithm, "typ": "JWT"}).to_string()),
        encoded(claims.to_string())
    )
}

/// A token signed with a publicly known secret: the bytes of a public key.
#[must_use]
pub fn hs256(secret: &[u8], key_id: &str, claims: &Value) -> String {
    let header = json!({"alg": "HS256", "kid": key_id, "typ": "JWT"});
    let signed = format!(
        "{}.{}",
        encoded(header.to_string()),
        encoded(claims.to_string())
    );
    let tag = hmac::sign(
        &hmac::Key::new(hmac::HMAC_SHA256, secret),
        signed.as_bytes(),
    );
    format!("{signed}.{}", encoded(tag))
}
