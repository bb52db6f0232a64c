//! Secrets in sentences.

use super::found::{Secret, lines, words};
use super::values::{
    has_mixture, is_base32, is_code, is_description, is_grouped, is_placeholder, is_random,
    is_strong, is_unlike_words, looks_like_key,
};

/// Words for a password. What follows them may be one, and a random string near them counts as a secret.
const PASSWORDS: &[&str] = &[
    "password",
    "passwords",
    "passphrase",
    "passwd",
    "pwd",
    "passcode",
    "passwort",
    "kennwort",
    "contraseña",
    "senha",
    "wachtwoord",
    "mdp",
    "clave",
    "пароль",
    "hasło",
    "heslo",
    "lösenord",
    "lösenordet",
    "passord",
    "adgangskode",
    "salasana",
    "jelszó",
    "şifre",
    "parola",
    "pw",
    "pin",
];
/// Words near which only a random or quoted string counts as a secret.
const KEYS: &[&str] = &[
    "secret",
    "token",
    "credential",
    "credentials",
    "apikey",
    "bearer",
    "login",
    "creds",
];
/// Words that make a following `key` count like [`KEYS`]: "API key".
const BEFORE_KEY: &[&str] = &[
    "api",
    "access",
    "secret",
    "private",
    "signing",
    "encryption",
    "deploy",
    "master",
    "license",
    "account",
    "service",
    "auth",
    "ssh",
    "recovery",
    "setup",
    "product",
    "activation",
];
/// A secret must be among this many words after such a word, or before it.
const MAX_DISTANCE: usize = 7;

/// Words after which the password itself stands: "the password is X".
const COPULAS: &[&str] = &[
    "is", "was", "to", "=", "now", "ist", "lautet", "war", "est", "es", "è", "é", "er", "är",
    "jest", "это",
];

/// Words that may stand between a copula and the password.
const FILLERS: &[&str] = &[
    "",
    "the",
    "set",
    "still",
    "just",
    "currently",
    "actually",
    "probably",
    "simply",
    "only",
    "jetzt",
    "noch",
    "maintenant",
];

pub(super) fn find(text: &str) -> Vec<Secret> {
    let mut found = beside_words(text);
    found.extend(after_unspaced_words(text));
    found
}

/// What an earlier word says about the words that follow it.
#[derive(Default)]
struct Near {
    /// How many further words are checked.
    words: usize,
    /// Whether the earlier word names a password, and not a key.
    is_password: bool,
    /// Whether a copula or a colon stands between the earlier word and the next one.
    copula: bool,
}

/// Finds random strings after a word such as `password`, in the same line or at the start of the next one if the line
/// ends with a colon; long ones before the word, in its line; and what follows "password is".
fn beside_words(text: &str) -> Vec<Secret> {
    let mut found = Vec::new();
    let mut near = Near::default();
    for (offset, line) in lines(text).filter(|(_, line)| !line.trim().is_empty()) {
        let line_end = line.trim_end().len();
        let mut before = String::new();
        let mut earlier: Vec<(usize, &str)> = Vec::new();
        for (start, raw) in words(line) {
            let inner = raw.trim_matches(|c: char| {
                !c.is_alphanumeric() && !matches!(c, '!' | '#' | '$' | '+' | '/' | '=')
            });
            let place = offset + start + (inner.as_ptr() as usize - raw.as_ptr() as usize);
            let folded = inner.to_lowercase();
            let is_passe = folded == "passe" && before == "de";
            // In a marker the word names what was removed.
            let in_marker = line[..start].trim_end().ends_with("[removed:");
            let has =
                |names: &[&str]| !in_marker && folded.split('/').any(|word| names.contains(&word));
            let is_recovery_code =
                folded == "code" && matches!(before.as_str(), "recovery" | "backup" | "scratch");
            let is_password = has(PASSWORDS) || is_passe || is_recovery_code;
            if is_password || has(KEYS) || folded == "key" && BEFORE_KEY.contains(&before.as_str())
            {
                near = Near {
                    words: MAX_DISTANCE,
                    is_password,
                    copula: raw.ends_with(':'),
                };
                // A long random string before the word: `echo X # the private key`.
                let secret_before = |(place, word): &(usize, &str)| {
                    let is_hash = word.bytes().all(|b| b.is_ascii_hexdigit());
                    let is_long = word.len() >= 32 && (is_random(word) || is_base32(word));
                    let is_secret = is_long || is_strong(word) && is_unlike_words(word);
                    (is_secret && !is_hash && !is_placeholder(word)).then_some(Secret {
                        range: *place..place + word.len(),
                        kind: "secret",
                    })
                };
                found.extend(
                    earlier
                        .iter()
                        .rev()
                        .take(MAX_DISTANCE)
                        .filter_map(secret_before),
                );
            } else if near.words > 0 {
                near.words -= 1;
                let ends_sentence = start + raw.len() == line_end || raw.ends_with(['.', ',', ';']);
                let ends_statement =
                    ends_sentence && !raw.ends_with('?') && !before.is_empty() && before != "to";
                if (near.is_secret(raw, inner) || near.is_word_as_password(inner, ends_statement))
                    && !is_placeholder(inner)
                {
                    found.push(Secret {
                        range: place..place + inner.len(),
                        kind: if near.is_password {
                            "password"
                        } else {
                            "secret"
                        },
                    });
                    near.copula = false;
                }
                let is_copula = COPULAS.contains(&folded.as_str())
                    || raw.ends_with(':')
                    || matches!(raw, "=" | "->");
                near.copula = is_copula || near.copula && FILLERS.contains(&folded.as_str());
            }
            before = folded;
            earlier.push((place, inner));
        }
        near = match line.trim_end().ends_with([':', '：']) && near.words > 0 {
            // The secret may begin the next line.
            true => Near {
                words: 1,
                copula: true,
                ..near
            },
            false => Near::default(),
        };
    }
    found
}

impl Near {
    /// Whether the next word is a secret. `raw` is the word with quotes and punctuation, `inner` without.
    fn is_secret(&self, raw: &str, inner: &str) -> bool {
        let is_quoted = raw.starts_with(['"', '\'', '`'])
            && raw
                .trim_end_matches(['.', ',', ';', ')'])
                .ends_with(['"', '\'', '`']);
        let digits = inner.bytes().filter(u8::is_ascii_digit).count();
        let letters = inner.bytes().any(|b| b.is_ascii_alphabetic());
        if inner.len() >= 16 && (is_random(inner) || is_base32(inner)) || is_grouped(inner) {
            return true;
        }
        // The word directly after: `password s0mePass`.
        if self.is_password
            && self.words + 1 == MAX_DISTANCE
            && inner.len() >= 6
            && letters
            && digits > 0
            && !is_code(inner)
        {
            return true;
        }
        let is_password = digits >= 4 && digits == inner.len()
            || inner.len() >= 4 && has_mixture(inner) && !is_code(inner) && !inner.contains("://")
            || is_quoted && inner.len() >= 5;
        let is_key = is_quoted && inner.len() >= 8 && looks_like_key(inner);
        self.copula && (self.is_password && is_password || is_key)
    }

    /// Whether the next word is a password of letters, digits, `-` and `_`: "the password is swordfish". A date is not
    /// one.
    fn is_word_as_password(&self, word: &str, ends_statement: bool) -> bool {
        self.is_password
            && self.copula
            && ends_statement
            && word.len() >= 6
            && word.is_ascii()
            && word.contains(|c: char| c.is_ascii_alphabetic())
            && !is_description(word)
    }
}

/// What follows the words for a password in Chinese, Japanese and Korean. Often no space is before or after them.
fn after_unspaced_words(text: &str) -> Vec<Secret> {
    let mut found = Vec::new();
    for name in [
        "密码",
        "密碼",
        "口令",
        "パスワード",
        "暗証番号",
        "비밀번호",
        "암호",
    ] {
        for (at, _) in text.match_indices(name) {
            let after = &text[at + name.len()..];
            let value = after.trim_start_matches([
                '是', '为', '為', 'は', '는', '은', '：', ':', '=', ' ', '"', '\'', '“', '「', '‘',
                '`',
            ]);
            let is_described = value.len() < after.len();
            let line = next_line(value).filter(|_| is_described);
            let is_alone = line.is_some();
            let value = line.unwrap_or(value);
            let start = value.as_ptr() as usize - text.as_ptr() as usize;
            let end = value
                .find(|c: char| !c.is_ascii_graphic() || matches!(c, '"' | '\'' | '`' | ',' | ';'))
                .unwrap_or(value.len());
            let value = value[..end].trim_end_matches('.');
            let is_word = is_alone && value.len() >= 6 && !is_description(value);
            let is_secret = value.len() >= 4 && has_mixture(value) || is_word;
            if is_secret && !is_placeholder(value) {
                found.push(Secret {
                    range: start..start + value.len(),
                    kind: "password",
                });
            }
        }
    }
    found
}

/// If nothing else stands in the line in which the text begins, the next line that is not blank, if it is one word.
fn next_line(text: &str) -> Option<&str> {
    let rest = text
        .trim_start_matches([' ', '\t', '\r'])
        .strip_prefix('\n')?;
    let line = rest.trim_start().lines().next()?.trim();
    let is_word = !line.contains(char::is_whitespace);
    is_word.then(|| line.trim_matches(['"', '\'', '`']))
}
