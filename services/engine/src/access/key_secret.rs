//! The text of API keys.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest as _, Sha256};

/// The prefix of every key.
const PREFIX: &str = "sk_prod_";
/// Characters after the prefix: 24 random bytes in URL-safe base64.
const RANDOM_CHARS: usize = 32;
/// How many characters of the key are hashed for the lookup.
const LOOKUP_CHARS: usize = 16;

/// The secret text of a key. Its `Debug` output hides it.
#[derive(Clone, PartialEq, Eq)]
pub struct KeySecret(String);

impl KeySecret {
    /// A new random key.
    ///
    /// # Errors
    /// If the system has no random numbers.
    pub fn generate() -> Result<Self, getrandom::Error> {
        let mut bytes = [0; RANDOM_CHARS / 4 * 3];
        getrandom::fill(&mut bytes)?;
        Ok(Self(format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(bytes))))
    }

    /// Parses a text that has the form of a key; else `None`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let random = text.strip_prefix(PREFIX)?;
        let url_safe = random
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'));
        (random.len() == RANDOM_CHARS && url_safe).then(|| Self(text.to_owned()))
    }

    /// The text of the key, to be shown once.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// The hash of the key's first characters. The store finds by it the few keys that could match.
    #[must_use]
    pub fn lookup(&self) -> [u8; 32] {
        Sha256::digest(&self.0.as_bytes()[..LOOKUP_CHARS]).into()
    }

    /// The hash under which a verified key is cached. Comparing hashes reveals nothing about the
    /// key.
    #[must_use]
    pub fn fingerprint(&self) -> [u8; 32] {
        Sha256::digest(self.0.as_bytes()).into()
    }

    /// The fingerprint in hexadecimal, as it is stored.
    #[must_use]
    pub fn digest(&self) -> String {
        self.fingerprint()
            .iter()
            .fold(String::with_capacity(64), |text, byte| {
                text + &format!("{byte:02x}")
            })
    }
}

impl fmt::Debug for KeySecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeySecret(***)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_their_form_and_never_repeat() {
        let keys: Vec<KeySecret> = (0..100).map(|_| KeySecret::generate().unwrap()).collect();
        for (i, key) in keys.iter().enumerate() {
            assert_eq!(key.reveal().len(), 40);
            assert_eq!(KeySecret::parse(key.reveal()).as_ref(), Some(key));
            assert!(
                keys[..i]
                    .iter()
                    .all(|other| other.fingerprint() != key.fingerprint())
            );
        }
        assert_eq!(format!("{:?}", keys[0]), "KeySecret(***)");
    }

    #[test]
    fn what_has_not_the_form_of_a_key_is_none() {
        let good = KeySecret::generate().unwrap();
        let good = good.reveal();
        for bad in [
            "",
            "sk_prod_",
            &good[..39],
            &format!("{good}x"),
            &good.replace("sk_prod_", "sk_test_"),
            &format!("{}ä", &good[..38]),
            &format!("{} ", &good[..39]),
        ] {
            assert_eq!(KeySecret::parse(bad), None, "{bad}");
        }
    }
}
