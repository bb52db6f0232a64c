//! Names of settings and variables whose values are secrets.

/// What the name of a setting or variable says about its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Name {
    /// Its value is a password.
    Password,
    /// Its value is a key or token.
    Key,
    /// Its value may be a key: a name that ends with `key`.
    Other,
}

/// Names of passwords. They match at the end of an identifier, such as `DB_PASSWORD`.
const PASSWORDS: &[&str] = &[
    "password",
    "passwords",
    "passwd",
    "passphrase",
    "passwort",
    "kennwort",
    "pgpassword",
    "passcode",
    "contraseña",
    "contrasena",
    "senha",
    "wachtwoord",
    "motdepasse",
];
/// Names of keys and tokens, compared without `_` and `-`.
const KEYS: &[&str] = &[
    "secret",
    "secrets",
    "token",
    "tokens",
    "apikey",
    "apikeys",
    "accesskey",
    "accesskeyid",
    "secretkey",
    "secretid",
    "secretkeybase",
    "privatekey",
    "presharedkey",
    "primarykey",
    "secondarykey",
    "signingkey",
    "encryptionkey",
    "accountkey",
    "storagekey",
    "subscriptionkey",
    "sharedaccesskey",
    "sharedkey",
    "consumerkey",
    "clientkey",
    "adminkey",
    "rootkey",
    "hmackey",
    "enckey",
    "aeskey",
    "cryptkey",
    "cipherkey",
    "appkey",
    "authkey",
    "authcode",
    "credential",
    "credentials",
    "creds",
    "sessionid",
    "sessionkey",
    "masterkey",
    "deploykey",
    "licensekey",
    "connectionstring",
    "signature",
    "dockerconfigjson",
    "recoverycode",
    "backupcode",
];
/// Short names match only a whole part of an identifier: `DB_PW`, not `raw_spw`.
const SHORT_PASSWORDS: &[&str] = &["pw", "pwd", "pass", "psw", "mdp"];
const SHORT_KEYS: &[&str] = &[
    "sig", "auth", "jwt", "psk", "sid", "otp", "seed", "cookie", "totp",
];
/// Parts that stand after a name and do not change what it is: `SECRET_KEY_OLD`.
const QUALIFIERS: &[&str] = &[
    "old",
    "new",
    "prod",
    "production",
    "dev",
    "test",
    "staging",
    "stage",
    "live",
    "value",
    "plain",
    "raw",
    "base64",
    "b64",
    "default",
    "backup",
    "prev",
    "previous",
    "current",
    "main",
    "sandbox",
];
/// Words before `key` that make it something else.
const NO_SECRET_KEYS: &[&str] = &[
    "public",
    "foreign",
    "cache",
    "partition",
    "sort",
    "idempotency",
    "pub",
];

/// What an identifier says about its value; `None` if nothing.
pub(super) fn name_of(identifier: &str) -> Option<Name> {
    let parts = parts(identifier);
    let qualifiers = parts
        .iter()
        .skip(1)
        .rev()
        .take_while(|part| is_qualifier(part))
        .count();
    let parts = &parts[..parts.len() - qualifiers];
    let last = parts.last()?.trim_end_matches(|c: char| c.is_ascii_digit());
    let folded = parts.concat();
    let folded = folded.trim_end_matches(|c: char| c.is_ascii_digit());
    let ends = |names: &[&str]| names.iter().any(|name| folded.ends_with(name));
    if SHORT_PASSWORDS.contains(&last) || ends(PASSWORDS) {
        Some(Name::Password)
    } else if SHORT_KEYS.contains(&last) || ends(KEYS) {
        Some(Name::Key)
    } else if folded.ends_with("key") && !NO_SECRET_KEYS.iter().any(|no| folded.contains(no)) {
        Some(Name::Other)
    } else {
        None
    }
}

fn is_qualifier(part: &str) -> bool {
    let is_version = part
        .strip_prefix('v')
        .unwrap_or(part)
        .bytes()
        .all(|b| b.is_ascii_digit());
    is_version || QUALIFIERS.contains(&part)
}

/// The parts of `snake_case`, `kebab-case`, `dotted.names` and `camelCase`, in lower case.
fn parts(identifier: &str) -> Vec<String> {
    let mut parts = Vec::new();
    for word in identifier.split(['_', '-', '.']) {
        let mut part = String::new();
        let mut was_lower = false;
        for c in word.chars() {
            if c.is_uppercase() && was_lower && !part.is_empty() {
                parts.push(std::mem::take(&mut part));
            }
            was_lower = c.is_lowercase() || c.is_ascii_digit();
            part.extend(c.to_lowercase());
        }
        if !part.is_empty() {
            parts.push(part);
        }
    }
    parts
}

/// Whether a character may be part of an identifier. Only Latin letters may: Chinese has no space before a name.
pub(super) const fn is_name_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | 'À'..='Ö' | 'Ø'..='ö' | 'ø'..='ɏ')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_secrets_are_recognised_by_their_end() {
        for name in [
            "DB_PASSWORD",
            "dbPass",
            "smtp.pw",
            "PASSWORD_OLD",
            "password2",
            "userPasswordV2",
            "CONTRASEÑA",
        ] {
            assert_eq!(name_of(name), Some(Name::Password), "{name}");
        }
        for name in [
            "apiKey",
            "SECRET_KEY_BASE",
            "AWS_SECRET_ACCESS_KEY_PROD",
            "jwt",
            "refreshToken",
            "x-api-key",
        ] {
            assert_eq!(name_of(name), Some(Name::Key), "{name}");
        }
        assert_eq!(name_of("WRITE_KEY"), Some(Name::Other));
        for name in [
            "compass",
            "bypass_rate",
            "token_count",
            "public_key",
            "monkeys",
            "cache_key",
            "password_field",
        ] {
            assert_eq!(name_of(name), None, "{name}");
        }
    }
}
