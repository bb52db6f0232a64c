//! Removes secrets from a text before it leaves the process.
//!
//! It searches for private keys, tokens whose prefix is well known, assignments to names such as `password`, and
//! strings that look random beside such words. Each one is replaced by a marker with its kind. It errs on the side of
//! removing: a lost identifier costs less than a stored key.

use std::ops::Range;

/// A text without its secrets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Redacted {
    /// The text, with a marker for each secret.
    pub text: String,
    /// How many secrets were removed.
    pub removed: usize,
}

/// Replaces the secrets of a text by markers such as `[removed: password]`.
#[must_use]
pub fn redact(text: &str) -> Redacted {
    let mut found = private_keys(text);
    found.extend(tokens(text));
    found.extend(credentials_of_urls(text));
    found.extend(assignments(text));
    found.extend(beside_words(text));
    found.extend(password_lines(text));
    found.extend(after_chinese_words(text));
    found.sort_by_key(|secret| (secret.range.start, std::cmp::Reverse(secret.range.end)));
    let mut redacted = String::with_capacity(text.len());
    let (mut copied, mut removed) = (0, 0);
    for Secret { range, kind } in found {
        if range.end <= copied {
            continue;
        }
        if range.start >= copied {
            redacted.push_str(&text[copied..range.start]);
            redacted.push_str("[removed: ");
            redacted.push_str(kind);
            redacted.push(']');
            removed += 1;
        }
        // Two secrets that overlap share one marker.
        copied = range.end;
    }
    redacted.push_str(&text[copied..]);
    Redacted {
        text: redacted,
        removed,
    }
}

#[derive(Debug)]
struct Secret {
    range: Range<usize>,
    kind: &'static str,
}

/// PEM and PGP private keys. A key without its end line was cut, so the rest of the text is removed.
fn private_keys(text: &str) -> Vec<Secret> {
    let mut found = Vec::new();
    let mut from = 0;
    while let Some(at) = text[from..].find("-----BEGIN ") {
        let start = from + at;
        let label_start = start + "-----BEGIN ".len();
        let Some(label_length) = text[label_start..].find("-----") else {
            break;
        };
        let label_end = label_start + label_length;
        from = label_end;
        let label = &text[label_start..label_end];
        if label.len() > 60 || !label.contains("PRIVATE KEY") {
            continue;
        }
        let end = text[label_end..]
            .find("-----END ")
            .map(|at| label_end + at + "-----END ".len())
            .and_then(|at| Some(at + text[at..].find("-----")? + "-----".len()));
        let end = end.unwrap_or(text.len());
        found.push(Secret {
            range: start..end,
            kind: "private key",
        });
        from = end;
    }
    found
}

/// Characters that follow a prefix.
#[derive(Debug, Clone, Copy)]
enum Alphabet {
    /// Letters and digits.
    Alnum,
    /// Letters, digits, `_` and `-`.
    Url,
    /// Letters, digits, `_`, `-` and `.`.
    Dotted,
    /// Capital letters and digits.
    Upper,
    /// Hexadecimal digits.
    Hex,
    /// Base64, and the characters of a path.
    Path,
}

impl Alphabet {
    const fn has(self, byte: u8) -> bool {
        match self {
            Self::Alnum => byte.is_ascii_alphanumeric(),
            Self::Url => byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'),
            Self::Dotted => byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.'),
            Self::Upper => byte.is_ascii_uppercase() || byte.is_ascii_digit(),
            Self::Hex => byte.is_ascii_hexdigit(),
            Self::Path => {
                byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'/' | b'+' | b'=')
            }
        }
    }
}

/// Prefixes of tokens as their issuers document them. Each has the alphabet of the rest of the token, the rest's least
/// length, and the kind in the marker.
const PREFIXES: &[(&str, Alphabet, usize, &str)] = &[
    ("ghp_", Alphabet::Alnum, 20, "GitHub token"),
    ("gho_", Alphabet::Alnum, 20, "GitHub token"),
    ("ghu_", Alphabet::Alnum, 20, "GitHub token"),
    ("ghs_", Alphabet::Alnum, 20, "GitHub token"),
    ("ghr_", Alphabet::Alnum, 20, "GitHub token"),
    ("github_pat_", Alphabet::Url, 20, "GitHub token"),
    ("glpat-", Alphabet::Url, 16, "GitLab token"),
    ("glptt-", Alphabet::Url, 16, "GitLab token"),
    ("gldt-", Alphabet::Url, 16, "GitLab token"),
    ("AKIA", Alphabet::Upper, 16, "AWS key"),
    ("ASIA", Alphabet::Upper, 16, "AWS key"),
    ("xoxb-", Alphabet::Url, 10, "Slack token"),
    ("xoxp-", Alphabet::Url, 10, "Slack token"),
    ("xoxa-", Alphabet::Url, 10, "Slack token"),
    ("xoxr-", Alphabet::Url, 10, "Slack token"),
    ("xoxs-", Alphabet::Url, 10, "Slack token"),
    ("xoxe-", Alphabet::Url, 10, "Slack token"),
    ("xapp-", Alphabet::Url, 10, "Slack token"),
    ("hooks.slack.com/services/", Alphabet::Path, 20, "webhook"),
    ("discord.com/api/webhooks/", Alphabet::Path, 20, "webhook"),
    ("sk_live_", Alphabet::Alnum, 16, "Stripe key"),
    ("sk_test_", Alphabet::Alnum, 16, "Stripe key"),
    ("rk_live_", Alphabet::Alnum, 16, "Stripe key"),
    ("rk_test_", Alphabet::Alnum, 16, "Stripe key"),
    ("whsec_", Alphabet::Path, 16, "webhook secret"),
    ("sk_prod_", Alphabet::Url, 16, "API key"),
    ("AIza", Alphabet::Url, 30, "Google key"),
    ("ya29.", Alphabet::Dotted, 20, "Google token"),
    ("GOCSPX-", Alphabet::Url, 20, "Google secret"),
    ("sk-ant-", Alphabet::Url, 20, "API key"),
    ("sk-proj-", Alphabet::Url, 20, "API key"),
    ("sk-", Alphabet::Alnum, 20, "API key"),
    ("gsk_", Alphabet::Alnum, 20, "API key"),
    ("xai-", Alphabet::Alnum, 20, "API key"),
    ("npm_", Alphabet::Alnum, 30, "npm token"),
    ("pypi-", Alphabet::Url, 30, "PyPI token"),
    ("hf_", Alphabet::Alnum, 20, "Hugging Face token"),
    ("SG.", Alphabet::Dotted, 30, "SendGrid key"),
    ("SK", Alphabet::Hex, 32, "Twilio key"),
    ("key-", Alphabet::Hex, 32, "Mailgun key"),
    ("dop_v1_", Alphabet::Hex, 32, "DigitalOcean token"),
    ("doo_v1_", Alphabet::Hex, 32, "DigitalOcean token"),
    ("shpat_", Alphabet::Hex, 24, "Shopify token"),
    ("shpss_", Alphabet::Hex, 24, "Shopify token"),
    ("dapi", Alphabet::Hex, 32, "Databricks token"),
    ("hvs.", Alphabet::Url, 20, "Vault token"),
    ("hvb.", Alphabet::Url, 20, "Vault token"),
    ("lin_api_", Alphabet::Alnum, 20, "Linear key"),
    ("ntn_", Alphabet::Alnum, 30, "Notion token"),
    ("secret_", Alphabet::Alnum, 40, "Notion token"),
    ("sntrys_", Alphabet::Path, 30, "Sentry token"),
    ("glsa_", Alphabet::Url, 30, "Grafana token"),
    ("pul-", Alphabet::Hex, 30, "Pulumi token"),
    ("dckr_pat_", Alphabet::Url, 20, "Docker token"),
    ("tskey-", Alphabet::Url, 20, "Tailscale key"),
    ("fly_", Alphabet::Path, 30, "Fly token"),
    ("AGE-SECRET-KEY-1", Alphabet::Upper, 40, "private key"),
];

/// Tokens with a well-known prefix or form.
fn tokens(text: &str) -> Vec<Secret> {
    let bytes = text.as_bytes();
    let mut found = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        // A prefix begins a word. To check only there also keeps the scan linear.
        if at > 0 && bytes[at - 1].is_ascii_alphanumeric() || !bytes[at].is_ascii_alphanumeric() {
            at += 1;
            continue;
        }
        match token_at(bytes, at) {
            Some((end, kind)) => {
                found.push(Secret {
                    range: at..end,
                    kind,
                });
                at = end;
            }
            None => at += 1,
        }
    }
    found
}

fn token_at(bytes: &[u8], at: usize) -> Option<(usize, &'static str)> {
    let rest = &bytes[at..];
    let run = |from: usize, alphabet: Alphabet| {
        let body = rest.get(from..).unwrap_or_default();
        from + body.iter().take_while(|byte| alphabet.has(**byte)).count()
    };
    for (prefix, alphabet, least, kind) in PREFIXES {
        if rest.starts_with(prefix.as_bytes()) {
            let end = run(prefix.len(), *alphabet);
            let body = &rest[prefix.len()..end];
            // `sk-learn-…` and other names have no digits.
            let is_random = body.iter().any(u8::is_ascii_digit) || body.len() >= 40;
            // A letter or digit outside the alphabet shows that this is another word.
            let is_whole = !matches!(alphabet, Alphabet::Upper | Alphabet::Hex)
                || !rest.get(end).is_some_and(u8::is_ascii_alphanumeric);
            if body.len() >= *least && is_random && is_whole {
                return Some((at + end, kind));
            }
        }
    }
    if rest.starts_with(b"eyJ") {
        // Three base64url parts, or five when encrypted (RFC 7515, RFC 7516). An unsigned one may come without its
        // third.
        let end = run(0, Alphabet::Dotted);
        let token = &rest[..end];
        let parts = token.split(|byte| *byte == b'.').count();
        if (2..=5).contains(&parts) && token.len() >= 40 {
            return Some((at + end, "JSON Web Token"));
        }
    }
    // Telegram: the bot's number, a colon, and at least 32 characters that begin with `AA`. In URLs `bot` stands before it.
    let skipped = if rest.starts_with(b"bot") { 3 } else { 0 };
    let number = rest[skipped..]
        .iter()
        .take_while(|byte| byte.is_ascii_digit());
    let digits = number.count();
    let colon = skipped + digits;
    if (8..=10).contains(&digits) && rest[colon..].starts_with(b":AA") {
        let end = run(colon + 1, Alphabet::Url);
        if end - colon >= 33 {
            return Some((at + end, "Telegram token"));
        }
    }
    None
}

/// The password in `scheme://user:password@host`.
fn credentials_of_urls(text: &str) -> Vec<Secret> {
    let mut found = Vec::new();
    for (at, _) in text.match_indices("://") {
        let start = at + 3;
        let authority = &text[start..];
        let end = authority
            .find(|c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '`' | '<' | '>'))
            .unwrap_or(authority.len());
        // The last `@` counts, because a password may contain `/` although it should not.
        let Some(last) = authority[..end].rfind('@') else {
            continue;
        };
        let userinfo = &authority[..last];
        let path = userinfo.find('/');
        let Some(colon) = userinfo.find(':') else {
            // A token alone: `https://TOKEN@host`.
            if path.is_none() && userinfo.len() >= 16 {
                found.push(Secret {
                    range: start..start + last,
                    kind: "credentials",
                });
            }
            continue;
        };
        // `http://host:80/a@b` has a port and a path.
        let is_port = path.is_some_and(|path| {
            path < colon
                || userinfo[colon + 1..path]
                    .bytes()
                    .all(|b| b.is_ascii_digit())
        });
        if !is_port && colon + 1 < last && !is_placeholder(&userinfo[colon + 1..]) {
            found.push(Secret {
                range: start + colon + 1..start + last,
                kind: "password",
            });
        }
    }
    found
}

/// What the name of a setting or variable says about its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Name {
    /// Its value is a password.
    Password,
    /// Its value is a key or token.
    Key,
}

/// Names of passwords. They match at the end of an identifier, such as `DB_PASSWORD`.
const PASSWORDS: &[&str] = &[
    "password",
    "passwd",
    "passphrase",
    "pwd",
    "passwort",
    "kennwort",
    "pgpassword",
    "passcode",
    "pw",
    "pass",
];
/// Names of keys and tokens, compared without `_` and `-`.
const KEYS: &[&str] = &[
    "secret",
    "token",
    "apikey",
    "accesskey",
    "accesskeyid",
    "secretkey",
    "secretaccesskey",
    "secretkeybase",
    "privatekey",
    "presharedkey",
    "primarykey",
    "signingkey",
    "encryptionkey",
    "accountkey",
    "sharedaccesskey",
    "clientsecret",
    "authkey",
    "authtoken",
    "accesstoken",
    "refreshtoken",
    "credential",
    "credentials",
    "sessionid",
    "sessionkey",
    "masterkey",
    "deploykey",
    "licensekey",
    "connectionstring",
    "webhooksecret",
    "secrettoken",
    "signature",
    "sig",
    "auth",
];

fn name_of(identifier: &str) -> Option<Name> {
    let folded: String = identifier
        .chars()
        .filter(|c| !matches!(c, '_' | '-' | '.'))
        .map(|c| c.to_ascii_lowercase())
        .collect();
    // Short names match only a whole part of an identifier: `DB_PW`, not `raw_spw`.
    let last = identifier
        .rsplit(['_', '-', '.'])
        .next()
        .unwrap_or_default()
        .to_ascii_lowercase();
    let is_short = |name: &str| matches!(name, "pw" | "pass" | "sig" | "auth" | "pwd");
    if PASSWORDS.iter().any(|name| {
        if is_short(name) {
            last == *name
        } else {
            folded.ends_with(name)
        }
    }) {
        return Some(Name::Password);
    }
    KEYS.iter()
        .any(|name| {
            if is_short(name) {
                last == *name
            } else {
                folded.ends_with(name)
            }
        })
        .then_some(Name::Key)
}

const fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.')
}

/// Values of `name = value`, `name: value`, `"name": "value"`, `--name value` and `Authorization: Bearer value`.
fn assignments(text: &str) -> Vec<Secret> {
    let bytes = text.as_bytes();
    let mut found = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        if !is_name_byte(bytes[at]) {
            at += 1;
            continue;
        }
        let start = at;
        while at < bytes.len() && is_name_byte(bytes[at]) {
            at += 1;
        }
        let identifier = text[start..at].trim_start_matches('-');
        if let Some(value) = authorization(text, identifier, at) {
            at = at.max(value.end);
            found.push(Secret {
                range: value,
                kind: "authorization",
            });
            continue;
        }
        if let Some(value) = argument(text, start, at) {
            at = at.max(value.end);
            found.push(Secret {
                range: value,
                kind: "password",
            });
            continue;
        }
        // `curl -u user:password`
        if &text[start..at] == "-u" || &text[start..at] == "--user" {
            let value = word_after(text, at);
            if let Some(colon) = text[value.clone()].find(':')
                && !is_placeholder(&text[value.start + colon + 1..value.end])
            {
                found.push(Secret {
                    range: value.start + colon + 1..value.end,
                    kind: "password",
                });
                at = value.end;
            }
            continue;
        }
        let Some(name) = name_of(identifier) else {
            continue;
        };
        let is_flag = text[start..at].starts_with("--");
        let is_in_query = start > 0 && matches!(bytes[start - 1], b'?' | b'&');
        if let Some(value) = assigned(text, at, name, is_flag, is_in_query) {
            at = at.max(value.end);
            let kind = match name {
                Name::Password => "password",
                Name::Key => "secret",
            };
            found.push(Secret { range: value, kind });
        }
    }
    found
}

fn word_after(text: &str, at: usize) -> Range<usize> {
    let rest = &text[at..];
    let start = at + (rest.len() - rest.trim_start_matches([' ', '\t', '\'', '"']).len());
    let rest = &text[start..];
    let end = rest
        .find(|c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '`'))
        .unwrap_or(rest.len());
    start..start + end
}

/// The password in an argument of a command that has no name for it: `sshpass -p X`, `redis-cli -a X`, `mysql -pX`,
/// `htpasswd -b FILE USER X`. The flag stands from `start` to `at`.
fn argument(text: &str, start: usize, at: usize) -> Option<Range<usize>> {
    let flag = &text[start..at];
    if !flag.starts_with('-') {
        return None;
    }
    let line = text[..start].rsplit('\n').next().unwrap_or_default();
    let called = |name: &str| line.split_whitespace().any(|word| word.ends_with(name));
    let value = if flag == "-p" && line.trim_end().ends_with("sshpass")
        || flag == "-a" && called("redis-cli")
    {
        word_after(text, at)
    } else if flag.starts_with("-p")
        && ["mysql", "mysqldump", "mysqladmin", "mariadb"]
            .iter()
            .any(|name| called(name))
    {
        let value = word_after(text, start + 2);
        // `-p` alone asks for the password.
        if value.start != start + 2 || !has_mixture(&text[value.clone()]) {
            return None;
        }
        value
    } else if flag == "-b" && line.trim_end().ends_with("htpasswd") {
        let user = word_after(text, word_after(text, at).end);
        word_after(text, user.end)
    } else {
        return None;
    };
    (!value.is_empty() && !is_placeholder(&text[value.clone()])).then_some(value)
}

/// Passwords in lines of `.pgpass`: `host:port:database:user:password`.
fn password_lines(text: &str) -> Vec<Secret> {
    let mut found = Vec::new();
    for (start, word) in text.lines().flat_map(|line| {
        let offset = line.as_ptr() as usize - text.as_ptr() as usize;
        words(line).map(move |(start, word)| (offset + start, word))
    }) {
        let fields: Vec<&str> = word.splitn(5, ':').collect();
        let [host, port, database, user, password] = fields[..] else {
            continue;
        };
        let is_name = |name: &str| {
            name == "*"
                || name.starts_with(|c: char| c.is_ascii_alphabetic())
                    && name.bytes().all(is_name_byte)
        };
        let is_port = port == "*"
            || (2..=5).contains(&port.len()) && port.bytes().all(|b| b.is_ascii_digit());
        if !host.is_empty()
            && is_port
            && is_name(database)
            && is_name(user)
            && has_mixture(password)
            && !is_placeholder(password)
        {
            let end = start + word.len();
            found.push(Secret {
                range: end - password.len()..end,
                kind: "password",
            });
        }
    }
    found
}

/// What follows the Chinese words for a password. They stand in a text without spaces.
fn after_chinese_words(text: &str) -> Vec<Secret> {
    let mut found = Vec::new();
    for name in ["密码", "密碼", "口令"] {
        for (at, _) in text.match_indices(name) {
            let after = &text[at + name.len()..];
            let value = after.trim_start_matches([
                '是', '为', '為', '：', ':', '=', ' ', '"', '\'', '“', '「', '‘', '`',
            ]);
            let start = text.len() - value.len();
            let end = value
                .find(|c: char| !c.is_ascii_graphic() || matches!(c, '"' | '\'' | '`' | ',' | ';'))
                .unwrap_or(value.len());
            let value = value[..end].trim_end_matches('.');
            if value.len() >= 4 && has_mixture(value) && !is_placeholder(value) {
                found.push(Secret {
                    range: start..start + value.len(),
                    kind: "password",
                });
            }
        }
    }
    found
}

/// The credentials after `Bearer` or `Basic`.
fn authorization(text: &str, identifier: &str, at: usize) -> Option<Range<usize>> {
    let is = |name: &str| identifier.eq_ignore_ascii_case(name);
    if !is("bearer") && !is("basic") {
        return None;
    }
    if !text[at..].starts_with(' ') {
        return None;
    }
    let value = word_after(text, at);
    let given = &text[value.clone()];
    let is_secret = given.len() >= 8
        && !is_placeholder(given)
        && given.bytes().all(|b| b.is_ascii_graphic())
        && (given.bytes().any(|b| b.is_ascii_digit())
            && given.bytes().any(|b| b.is_ascii_alphabetic())
            || given.ends_with('='));
    is_secret.then_some(value)
}

/// The value that follows a name, if it may be a secret.
fn assigned(
    text: &str,
    at: usize,
    name: Name,
    is_flag: bool,
    is_in_query: bool,
) -> Option<Range<usize>> {
    let bytes = text.as_bytes();
    let mut next = at;
    let is_quoted_name = matches!(bytes.get(next), Some(b'"' | b'\'' | b'`'));
    if is_quoted_name {
        next += 1;
    }
    // JSON inside JSON: \"password\": \"…\"
    if bytes.get(next) == Some(&b'\\') && bytes.get(next + 1) == Some(&b'"') {
        next += 2;
    }
    let skip_spaces = |mut next: usize| {
        while matches!(bytes.get(next), Some(b' ' | b'\t')) {
            next += 1;
        }
        next
    };
    let after_spaces = skip_spaces(next);
    let is_equals;
    // `key="password" value="…"` in XML, and `define('PASSWORD', '…')` in PHP.
    let is_defined = || {
        let before = text[..at].trim_end_matches(|c: char| c.is_ascii() && is_name_byte(c as u8));
        before.trim_end_matches(['"', '\'']).ends_with("define(")
    };
    if is_quoted_name && bytes[after_spaces..].starts_with(b"value=") {
        is_equals = true;
        next = after_spaces + "value=".len();
    } else if is_quoted_name && bytes[after_spaces..].starts_with(b",") && is_defined() {
        is_equals = true;
        next = after_spaces + 1;
    } else if bytes[after_spaces..].starts_with(b":=") || bytes[after_spaces..].starts_with(b"=>") {
        is_equals = true;
        next = after_spaces + 2;
    } else if bytes.get(after_spaces) == Some(&b'=') && bytes.get(after_spaces + 1) != Some(&b'=') {
        is_equals = true;
        next = after_spaces + 1;
    } else if bytes.get(after_spaces) == Some(&b':') && bytes.get(after_spaces + 1) != Some(&b':') {
        is_equals = false;
        next = after_spaces + 1;
    } else if is_flag && after_spaces > next {
        is_equals = true;
        next = after_spaces;
    } else {
        return None;
    }
    next = skip_spaces(next);
    if bytes.get(next) == Some(&b'\\') && matches!(bytes.get(next + 1), Some(b'"' | b'\'')) {
        next += 1;
    }
    let rest = &text[next..];
    let quote = rest
        .chars()
        .next()
        .filter(|c| matches!(c, '"' | '\'' | '`'));
    if let Some(quote) = quote {
        let start = next + 1;
        let line = text[start..].lines().next().unwrap_or_default();
        let end = line.find(quote)?;
        let value = line[..end].trim_end_matches('\\');
        let is_secret = match name {
            Name::Password => value.len() >= 4 && !is_sentence(value),
            Name::Key => value.len() >= 8 && !value.contains(' ') && looks_like_key(value),
        };
        return (is_secret && !is_placeholder(value)).then_some(start..start + value.len());
    }
    let end = rest
        .find(|c: char| {
            c.is_whitespace()
                || matches!(c, '"' | '\'' | '`' | ',' | ';' | '<' | '>')
                || c == '&' && is_in_query
        })
        .unwrap_or(rest.len());
    let value = rest[..end].trim_end_matches([')', '.', ']', '}', '\\']);
    if is_placeholder(value) || is_code(value) {
        return None;
    }
    let ends_line = rest[end..]
        .lines()
        .next()
        .unwrap_or_default()
        .trim()
        .is_empty();
    let is_secret = match name {
        Name::Password => {
            value.len() >= 4
                && (has_mixture(value)
                    || (is_equals && next == after_spaces + 1 && value.len() >= 6 && ends_line))
        }
        Name::Key => value.len() >= 8 && looks_like_key(value) && (is_equals || has_mixture(value)),
    };
    is_secret.then_some(next..next + value.len())
}

/// Whether a value is a message and not a passphrase: it has more than five words, or several words with punctuation or
/// a capital at the beginning.
fn is_sentence(value: &str) -> bool {
    let words = value.split_whitespace().count();
    words > 5
        || words > 1
            && (value.contains(['{', '%', ',', ':', '.', '('])
                || value.starts_with(char::is_uppercase))
}

/// Whether a value mixes letters with digits, or with special characters that code does not have there.
fn has_mixture(value: &str) -> bool {
    let letters = value.bytes().filter(u8::is_ascii_alphabetic).count();
    let digits = value.bytes().filter(u8::is_ascii_digit).count();
    let special = value
        .bytes()
        .filter(|b| {
            matches!(
                b,
                b'!' | b'@' | b'#' | b'$' | b'%' | b'^' | b'*' | b'?' | b'+' | b'~'
            )
        })
        .count();
    letters > 0 && (digits > 0 || special > 0) && letters + digits + special >= 4
}

/// Whether a value looks random enough for a key, and is not a path or URL.
fn looks_like_key(value: &str) -> bool {
    let letters = value.bytes().any(|b| b.is_ascii_alphabetic());
    let digits = value.bytes().filter(u8::is_ascii_digit).count();
    let is_path =
        value.starts_with(['/', '.', '~']) || value.contains("://") || value.contains('\\');
    let is_mixed = value.bytes().any(|b| b.is_ascii_uppercase())
        && value.bytes().any(|b| b.is_ascii_lowercase());
    !is_path
        && letters
        && (digits >= 2
            || is_random(value)
            || is_base32(value)
            || value.len() >= 32 && is_mixed && digits > 0)
}

/// Whether a value may be the seed of one-time passwords (RFC 4648, RFC 6238).
fn is_base32(value: &str) -> bool {
    value.len() >= 16
        && value
            .bytes()
            .all(|b| b.is_ascii_uppercase() || matches!(b, b'2'..=b'7'))
}

/// Whether a value is only a stand-in for a secret, as examples and configurations have it.
fn is_placeholder(value: &str) -> bool {
    let folded = value.to_ascii_lowercase();
    let trimmed = folded.trim_matches(['"', '\'', '[', ']', '(', ')']);
    // `$NAME`, `${name}`, `$(command)`, `%s`, `%NAME%`, `{name}`, `<name>`. A password may begin with such a character.
    let is_variable = trimmed.strip_prefix('$').is_some_and(|name| {
        name.starts_with(['{', '(']) || name.bytes().all(|b| b.is_ascii_alphabetic() || b == b'_')
    }) || trimmed
        .strip_prefix('%')
        .is_some_and(|name| name.len() == 1 || name.ends_with('%'))
        || trimmed.starts_with('{') && trimmed.ends_with('}')
        || trimmed.starts_with('<') && trimmed.ends_with('>');
    trimmed.is_empty()
        || is_variable
        || trimmed.starts_with('…')
        || trimmed.contains("...")
        || trimmed.contains("${")
        || trimmed.contains("{{")
        || trimmed.starts_with("removed:")
        || trimmed
            .bytes()
            .all(|b| matches!(b, b'x' | b'*' | b'.' | b'-' | b'_' | b'0'))
        || matches!(
            trimmed,
            "null"
                | "none"
                | "nil"
                | "true"
                | "false"
                | "undefined"
                | "string"
                | "str"
                | "text"
                | "password"
                | "secret"
                | "token"
                | "required"
                | "optional"
                | "changeme"
                | "redacted"
                | "example"
                | "empty"
        )
        || [
            "your",
            "example",
            "placeholder",
            "my-",
            "process.env",
            "os.environ",
            "env.",
        ]
        .iter()
        .any(|start| trimmed.starts_with(start))
}

/// Whether a value is an expression or a type, and not a literal.
fn is_code(value: &str) -> bool {
    value.contains(['(', '[', '{', '|'])
        || value.contains("::")
        || value.contains("->")
        || value.starts_with(['&', '/', '-', '@'])
        || (value.contains('.')
            && value.split('.').all(|part| {
                !part.is_empty() && part.bytes().all(|b| b.is_ascii_lowercase() || b == b'_')
            }))
}

/// Whether the characters change class as often as in random text. Words in camelCase and snake_case change less.
fn is_random(value: &str) -> bool {
    let class = |byte: u8| match byte {
        b'a'..=b'z' => 0,
        b'A'..=b'Z' => 1,
        b'0'..=b'9' => 2,
        _ => 3,
    };
    let bytes = value.as_bytes();
    if bytes.len() < 16 {
        return false;
    }
    let changes = bytes
        .windows(2)
        .filter(|pair| {
            let (a, b) = (class(pair[0]), class(pair[1]));
            a != b && a != 3 && b != 3 && (a, b) != (1, 0)
        })
        .count();
    changes * 4 >= bytes.len()
}

/// Words near which a random or quoted string counts as a secret.
const WORDS: &[&str] = &[
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
    "secret",
    "token",
    "credential",
    "credentials",
    "apikey",
    "bearer",
    "pin",
];
/// Those of them that do not name a password.
const NO_PASSWORDS: &[&str] = &[
    "secret",
    "token",
    "credential",
    "credentials",
    "apikey",
    "bearer",
    "key",
];
/// Words before `key` that make it such a word: "API key".
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
];
/// The string must be among this many words after such a word.
const BESIDE: usize = 7;

/// Random strings in the same line after a word such as `password`, and what follows "password is".
fn beside_words(text: &str) -> Vec<Secret> {
    let mut found = Vec::new();
    for line in text.split_inclusive('\n') {
        let offset = line.as_ptr() as usize - text.as_ptr() as usize;
        let mut near: usize = 0;
        let mut is_password = false;
        let mut before = String::new();
        let mut copula = false;
        let mut earlier: Vec<(usize, &str)> = Vec::new();
        for (start, raw) in words(line) {
            let inner = raw.trim_matches(|c: char| {
                !c.is_alphanumeric() && !matches!(c, '!' | '#' | '$' | '+' | '/' | '=')
            });
            let inner_start = start + (inner.as_ptr() as usize - raw.as_ptr() as usize);
            let folded = inner.to_ascii_lowercase();
            let is_passe = folded == "passe" && before == "de";
            let is_key_word = WORDS.contains(&folded.as_str())
                || folded == "key" && BEFORE_KEY.contains(&before.as_str())
                || is_passe;
            if is_key_word {
                near = BESIDE;
                is_password = is_passe || !NO_PASSWORDS.contains(&folded.as_str());
                // A long random string before the word: `echo X # the private key`.
                let hidden = |(place, word): &(usize, &str)| {
                    let is_hash = word.bytes().all(|b| b.is_ascii_hexdigit());
                    let is_secret = word.len() >= 32 && (is_random(word) || is_base32(word));
                    (is_secret && !is_hash && !is_placeholder(word)).then_some(Secret {
                        range: *place..place + word.len(),
                        kind: "secret",
                    })
                };
                found.extend(earlier.iter().rev().take(BESIDE).filter_map(hidden));
                copula = false;
            } else if near > 0 {
                near -= 1;
                let is_quoted = raw.starts_with(['"', '\'', '`'])
                    && raw
                        .trim_end_matches(['.', ',', ';', ')'])
                        .ends_with(['"', '\'', '`']);
                let is_next = near + 1 == BESIDE;
                let (letters, digits) = (
                    inner.bytes().any(|b| b.is_ascii_alphabetic()),
                    inner.bytes().filter(u8::is_ascii_digit).count(),
                );
                let is_secret = inner.len() >= 16 && (is_random(inner) || is_base32(inner))
                    // `password s0mePass`, as in .netrc.
                    || is_next && is_password && inner.len() >= 6 && letters && digits > 0 && !is_code(inner)
                    || copula && is_password && digits >= 4 && digits == inner.len()
                    || copula && is_password && inner.len() >= 4 && has_mixture(inner) && !is_code(inner) && !inner.contains("://")
                    || copula && is_password && is_quoted && inner.len() >= 5
                    || copula && is_quoted && inner.len() >= 8 && looks_like_key(inner);
                if is_secret && !is_placeholder(inner) {
                    let start = offset + inner_start;
                    found.push(Secret {
                        range: start..start + inner.len(),
                        kind: if is_password { "password" } else { "secret" },
                    });
                    copula = false;
                }
                if matches!(
                    folded.as_str(),
                    "is" | "was"
                        | "to"
                        | "="
                        | "now"
                        | "ist"
                        | "lautet"
                        | "war"
                        | "est"
                        | "es"
                        | "è"
                ) || raw.ends_with(':')
                    || matches!(raw, "=" | ":" | "->")
                {
                    copula = true;
                }
            }
            before = folded;
            earlier.push((offset + inner_start, inner));
        }
    }
    found
}

/// The words of a line with their positions.
fn words(line: &str) -> impl Iterator<Item = (usize, &str)> {
    line.split_whitespace()
        .map(|word| (word.as_ptr() as usize - line.as_ptr() as usize, word))
}
