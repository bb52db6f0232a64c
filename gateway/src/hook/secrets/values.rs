//! Whether a value looks like a secret: random, mixed or grouped characters, and not a placeholder, code or a sentence.

use super::names::name_of;

/// Whether a value is a message and not a passphrase: it has more than eight words, or several words with punctuation
/// or a capital at the beginning. Passphrases of dice have six words, rarely more.
pub(super) fn is_sentence(value: &str) -> bool {
    let words = value.split_whitespace().count();
    words > 8
        || words > 1
            && (value.contains(['{', '%', ',', ':', '.', '('])
                || value.starts_with(char::is_uppercase))
}

/// Whether a value has letters together with digits or with special characters that are rare in code, at least four of
/// these characters in all.
pub(super) fn has_mixture(value: &str) -> bool {
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
pub(super) fn looks_like_key(value: &str) -> bool {
    let letters = value.bytes().any(|b| b.is_ascii_alphabetic());
    let digits = value.bytes().filter(u8::is_ascii_digit).count();
    let is_path =
        value.starts_with(['/', '.', '~']) || value.contains("://") || value.contains('\\');
    let is_mixed = value.bytes().any(|b| b.is_ascii_uppercase())
        && value.bytes().any(|b| b.is_ascii_lowercase());
    is_strong(value)
        || !is_path
            && letters
            && (digits >= 2
                || is_random(value)
                || is_unlike_words(value)
                || is_base32(value)
                || value.len() >= 32 && is_mixed && digits > 0)
}

/// For each letter from `a` to `z` the letters that follow it in words, by the words of many programs and manuals.
const FOLLOWING: [&str; 26] = [
    "bcdfgiklmnprstuvwxy",
    "aceijlorstuy",
    "acdefhiklmorstuy",
    "adeilorsuvwy",
    "abcdefghilmnopqrstuvwxy",
    "adefgilorstuy",
    "aeghilnorsu",
    "aeimortu",
    "abcdefgklmnoprstvxz",
    "aeos",
    "aeis",
    "acdefilopstuvy",
    "abeimopsu",
    "acdefgiklmnoprstuvwy",
    "abcdefgiklmnoprstuvwx",
    "acehiloprstuy",
    "lu",
    "abcdefgiklmnoprstuvwy",
    "acefhiklmnopqstuwy",
    "acdefhilmoprstuwy",
    "abcdefgilmnoprst",
    "aeio",
    "aehinors",
    "aceipt",
    "eimnopst",
    "aei",
];

/// Whether a value of at least eight letters and digits mixes lower case with capitals or letters with digits, and
/// differs from words in camelCase, snake_case or with a number: it has letters that rarely follow each other, a part
/// of two consonants, a digit before a letter in lower case, or the `=` at the end of base64.
pub(super) fn is_unlike_words(value: &str) -> bool {
    let bytes = value.as_bytes();
    let has = |of: fn(&u8) -> bool| bytes.iter().any(of);
    let is_mixed = has(u8::is_ascii_lowercase) && has(u8::is_ascii_uppercase)
        || has(u8::is_ascii_digit) && has(u8::is_ascii_alphabetic);
    let follows = |first: u8, second: u8| {
        let letter = char::from(second.to_ascii_lowercase());
        FOLLOWING
            .get(usize::from(first.to_ascii_lowercase().wrapping_sub(b'a')))
            .is_some_and(|letters| letters.contains(letter))
    };
    let is_odd = |at: usize| {
        let (first, second) = (bytes[at], bytes[at + 1]);
        match (first, second) {
            (b'A'..=b'Z', b'A'..=b'Z') => false,
            // A part of two letters that is no word: `XkB`, but not `InB`.
            (b'a'..=b'z', b'A'..=b'Z') => {
                at > 0
                    && !bytes[at - 1].is_ascii_lowercase()
                    && !bytes[at - 1..=at]
                        .iter()
                        .any(|b| b"aeiouyAEIOUY".contains(b))
            }
            (b'0'..=b'9', b'a'..=b'z') => true,
            _ if first.is_ascii_alphabetic() && second.is_ascii_alphabetic() => {
                !follows(first, second)
            }
            _ => false,
        }
    };
    bytes.len() >= 8
        && is_mixed
        // `dbPasswd` is the name of a variable.
        && name_of(value).is_none()
        && bytes
            .iter()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'+' | b'/' | b'='))
        && (bytes.ends_with(b"=") && bytes.len().is_multiple_of(4) || (0..bytes.len() - 1).any(is_odd))
}

/// Whether a value may be the seed of one-time passwords (RFC 4648, RFC 6238).
pub(super) fn is_base32(value: &str) -> bool {
    value.len() >= 16
        && value
            .bytes()
            .all(|b| b.is_ascii_uppercase() || matches!(b, b'2'..=b'7'))
}

/// Whether a value is only a stand-in for a secret, as examples and configurations have it.
pub(super) fn is_placeholder(value: &str) -> bool {
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
pub(super) fn is_code(value: &str) -> bool {
    value.contains(['(', '[', '{', '|'])
        || value.starts_with('?')
        || value.contains("::")
        || value.contains("->")
        || value.starts_with(['&', '/', '-', '@'])
        || (value.contains('.')
            && value.split('.').all(|part| {
                !part.is_empty() && part.bytes().all(|b| b.is_ascii_lowercase() || b == b'_')
            }))
}

/// Whether the characters change class as often as in random text. Words in camelCase and snake_case change less.
pub(super) fn is_random(value: &str) -> bool {
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

/// Whether a value looks random even where its name says little: long, with letters of both cases and digits.
pub(super) fn is_strong(value: &str) -> bool {
    let value = value.strip_prefix("base64:").unwrap_or(value);
    let has = |of: fn(&u8) -> bool| value.bytes().any(|b| of(&b));
    value.len() >= 20
        && has(u8::is_ascii_uppercase)
        && has(u8::is_ascii_lowercase)
        && has(u8::is_ascii_digit)
        && is_random(value)
        && value
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'+' | b'/' | b'='))
}

/// Whether a value describes a password instead of being one ("the password is wrong"), names the variable that holds
/// it (`DB_PASSWORD`), or has characters that words joined to a password do not have, as paths and URLs do.
pub(super) fn is_description(value: &str) -> bool {
    const WORDS: &[&str] = &[
        "wrong",
        "correct",
        "incorrect",
        "right",
        "missing",
        "empty",
        "invalid",
        "valid",
        "weak",
        "strong",
        "secret",
        "short",
        "long",
        "fine",
        "okay",
        "unknown",
        "unset",
        "different",
        "stale",
        "plain",
        "plaintext",
        "public",
        "private",
        "optional",
        "mandatory",
        "secure",
        "insecure",
        "unsafe",
        "unique",
        "broken",
        "blank",
        "string",
        "there",
        "because",
        "prompt",
        "always",
        "never",
        "field",
        "hidden",
        "nothing",
        "something",
        "varchar",
        "boolean",
        "object",
        "number",
        "falsch",
        "richtig",
        "leer",
        "minimum",
        "maximum",
        "length",
        "policy",
        "input",
    ];
    let folded = value.to_ascii_lowercase();
    // Letters without case are those of scripts that have no spaces, or of sentences about the password.
    let is_of_words = value.chars().all(|c| {
        c.is_lowercase() || c.is_uppercase() || c.is_ascii_digit() || matches!(c, '-' | '_')
    });
    let is_variable = value.contains('_') && name_of(value).is_some();
    !is_of_words
        || is_variable
        || WORDS.contains(&folded.as_str())
        || ["ed", "ing", "ble", "ly", "ty", "less"]
            .iter()
            .any(|end| folded.ends_with(end))
}

/// Whether a value has groups of four to six capitals and digits, or of five hexadecimal digits, as product keys and
/// recovery codes have.
pub(super) fn is_grouped(value: &str) -> bool {
    let groups: Vec<&str> = value.split('-').collect();
    let of_size = |group: &&str| {
        (4..=6).contains(&group.len())
            && group
                .bytes()
                .all(|b| b.is_ascii_uppercase() || b.is_ascii_digit())
            || group.len() == 5 && group.bytes().all(|b| b.is_ascii_hexdigit())
    };
    let digits = value.bytes().filter(u8::is_ascii_digit).count();
    let letters = value.bytes().any(|b| b.is_ascii_alphabetic());
    groups.len() >= 2 && groups.iter().all(of_size) && digits >= 2 && letters
}
