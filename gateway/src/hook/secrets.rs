//! Removes secrets from a text before it leaves the process.
//!
//! It searches for private keys, tokens whose form is well known, values that are assigned to names such as `password`,
//! arguments of commands, and strings that look random beside such words. Each one is replaced by a marker with its
//! kind. It errs on the side of removing: a lost identifier costs less than a stored key.

mod assignments;
mod commands;
mod found;
mod names;
mod private_keys;
mod prose;
mod tokens;
mod urls;
mod values;

use found::Secret;

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
    let searches = [
        private_keys::find,
        tokens::find,
        urls::find,
        assignments::find,
        commands::find,
        prose::find,
    ];
    let mut found: Vec<Secret> = searches.iter().flat_map(|find| find(text)).collect();
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

#[cfg(test)]
mod tests {
    use super::redact;

    #[test]
    fn a_seed_phrase_is_removed_and_a_sentence_is_not() {
        let phrase = "legal winner thank year wave sausage worth useful legal winner thank yellow";
        for text in [
            format!("my seed phrase: {phrase}"),
            format!("Recovery phrase\n\n\"{phrase}\""),
            format!("{{\"mnemonic\":[\"{}\"]}}", phrase.replace(' ', "\",\"")),
            format!("MNEMONIC_WORDS={}", phrase.replace(' ', "-")),
        ] {
            let text = redact(&text).text;
            assert!(
                !text.contains("sausage") && !text.contains("yellow"),
                "{text}"
            );
        }
        let text = "A mnemonic helps people to remember long lists; this page should explain how.";
        assert_eq!(redact(text).removed, 0);
    }

    #[test]
    fn passwords_of_words_are_removed_in_every_notation_and_language() {
        for (text, secret) in [
            ("CONTRASEÑA=Geheim99", "Geheim99"),
            ("密码 pw=Geheim99", "Geheim99"),
            ("的pw=Geheim99", "Geheim99"),
            ("password：Geheim99", "Geheim99"),
            ("password: correcthorse", "correcthorse"),
            ("password: correct_horse", "correct_horse"),
            ("password: пароль", "пароль"),
            (
                "passphrase = \"apple tiger seven cloud river stone\"",
                "apple",
            ),
        ] {
            let text = redact(text).text;
            assert!(!text.contains(secret), "{text}");
        }
        for text in [
            "password: DB_PASSWORD",
            "password: vault/secrets/database",
            "password: 请输入新的密码",
            "password: \"is the one that the other user had before\"",
        ] {
            assert_eq!(redact(text).removed, 0, "{text}");
        }
    }

    #[test]
    fn short_random_values_are_removed_after_names_of_keys_and_words_are_not() {
        for (before, secret, after) in [
            ("api_key: ", "DNxril3R", ""),
            ("export API_TOKEN=", "IwmAmHdXrZ7r", ""),
            ("deploy --token ", "8xKXHTsyxEvM", " now"),
            ("{\"client_secret\": \"", "J7NScUyk", "\"}"),
            ("secret = ", "vl2tYaWZTLSI", ""),
            ("token: ", "Qm9vQmFyMTI=", ""),
            ("password: ", "aHVudGVyMg==", ""),
            ("Authorization: Bearer ", "krJkjeaDbZ", ""),
            ("-H 'Authorization: Token ", "plainword", "' h"),
            ("use ", "aB3dE6gH9jK2mN5pQ8sT1vW4", " as the password"),
            ("密码：\n", "plainword", "\n好"),
            ("密码是：\n\n  `", "Geheim99", "`"),
        ] {
            let kept = redact(&format!("{before}{secret}{after}")).text;
            assert!(
                kept.starts_with(&format!("{before}[removed: "))
                    && kept.ends_with(&format!("]{after}")),
                "{kept}"
            );
        }
        for text in [
            "token: TokenStream",
            "secret = databaseSecret",
            "credentials: InMemoryCredentialStore",
            "client_secret: ClientSecretCredential",
            "--token GITHUB_TOKEN",
            "Authorization: Bearer <token>",
            "Authorization: Bearer $TOKEN",
            "Authorization: Bearer YOUR_TOKEN",
            "Authorization: Bearer ACCESS_TOKEN",
            "Authorization: Bearer xxxxxxxx",
            "Authorization: Bearer token...",
            "Authorization: Bearer authentication is required",
            "MyLongClassNameForTokens2 is the token",
            "密码：\nREADME.md",
            "密码：\n请输入",
        ] {
            assert_eq!(redact(text).removed, 0, "{text}");
        }
    }

    /// With a search that reads the rest of a text at each of its words, this test would take many minutes.
    #[test]
    fn long_texts_without_spaces_are_searched_once() {
        for (part, is_secret) in [
            ("a-", false),
            ("a.", false),
            ("M.", false),
            ("eyJ.", true),
            ("$5$/!", false),
            ("$5$-", true),
            ("by/", false),
            ("token=", false),
            (r#"token=\\\"a "#, false),
            ("authorization:", false),
            ("cookie:", false),
            ("a://", false),
            ("-p ", false),
            ("mnemonic", false),
            ("Private-Lines:", true),
            ("pin x ", false),
            ("-px a ", false),
            ("htpasswd ", false),
            ("密码：", false),
            ("密码：\n", false),
        ] {
            let text = part.repeat(200_000 / part.len());
            assert_eq!(redact(&text).removed > 0, is_secret, "{part}");
        }
    }

    #[test]
    fn a_long_value_is_removed_as_a_whole() {
        let value = "s0meThing-".repeat(500);
        for text in [
            format!("PASSWORD={value}"),
            format!("Authorization: Bearer {value}"),
            format!("https://u:{value}@h.example"),
            format!(r#""{{\"password\": \"{value}\"}}""#),
        ] {
            let text = redact(&text).text;
            assert!(!text.contains("s0me"), "{text}");
        }
    }

    #[test]
    fn a_quote_inside_a_literal_does_not_end_the_value() {
        for (text, expected) in [
            (
                r#"password = "p@ss\"w0rd-123456";"#,
                r#"password = "[removed: password]";"#,
            ),
            (
                "ALTER ROLE app PASSWORD 'it''s4secret';",
                "ALTER ROLE app PASSWORD '[removed: password]';",
            ),
            (
                r"PASSWORD='it'\''s4secret' run",
                "PASSWORD='[removed: password]' run",
            ),
            (
                r#""{\"password\": \"p@ss\\\"w0rd\"}""#,
                r#""{\"password\": \"[removed: password]\"}""#,
            ),
            // The second `\` is not an escape.
            (
                r#"password = "p@ssw0rd\\", user = "ann""#,
                r#"password = "[removed: password]\\", user = "ann""#,
            ),
            // JSON inside a string.
            (
                r#""{\"password\": \"p@ssw0rd\", \"user\": \"ann\"}""#,
                r#""{\"password\": \"[removed: password]\", \"user\": \"ann\"}""#,
            ),
        ] {
            assert_eq!(redact(text).text, expected);
        }
    }

    #[test]
    fn arguments_of_commands_are_removed_with_their_spaces_and_without_a_space_before() {
        for (text, expected) in [
            (
                "sshpass -pGeheim99 ssh h",
                "sshpass -p[removed: password] ssh h",
            ),
            (
                "sshpass -p 'red fox 9' ssh h",
                "sshpass -p '[removed: password]' ssh h",
            ),
            (
                "run: 'sshpass -p ''red fox 9'' ssh h'",
                "run: 'sshpass -p ''[removed: password]'' ssh h'",
            ),
            (
                "curl -sSu ann:Geheim99 h",
                "curl -sSu ann:[removed: password] h",
            ),
            ("curl -uann:Geheim99 h", "curl -uann:[removed: password] h"),
            (
                "curl -u 'ann:two words' h",
                "curl -u 'ann:[removed: password]' h",
            ),
            (
                "curl -u ann:12345678 h",
                "curl -u ann:[removed: password] h",
            ),
            (
                "http -a ann:Geheim99 h",
                "http -a ann:[removed: password] h",
            ),
            ("docker run -u 1000:1000 h", "docker run -u 1000:1000 h"),
            (
                "chpasswd <<< 'ann:red fox'",
                "chpasswd <<< 'ann:[removed: password]'",
            ),
            (
                r"printf '%s\n' a:Geheim99 | docker login --password-stdin",
                r"printf '%s\n' [removed: password] | docker login --password-stdin",
            ),
            (
                "htpasswd -bB -C 12 f bob plainword",
                "htpasswd -bB -C 12 f bob [removed: password]",
            ),
            (
                "htpasswd -nbBC 12 bob 'red fox' | tee f",
                "htpasswd -nbBC 12 bob '[removed: password]' | tee f",
            ),
            ("htpasswd -nB bob | tee file", "htpasswd -nB bob | tee file"),
            (
                "curl -sU bob:Geheim99 h",
                "curl -sU bob:[removed: password] h",
            ),
            (
                "curl --proxy-user bob:plainword h",
                "curl --proxy-user bob:[removed: password] h",
            ),
            (
                "curl --oauth2-bearer plainword h",
                "curl --oauth2-bearer [removed: password] h",
            ),
            (
                "curl -d \"password=plainword\" h",
                "curl -d \"password=[removed: password]\" h",
            ),
            (
                "curl -d 'password=plainword&user=ann' h",
                "curl -d 'password=[removed: password]' h",
            ),
            (
                "curl -d 'user=ann&password=plainword&x' h",
                "curl -d 'user=ann&password=[removed: password]&x' h",
            ),
            (
                "sshpass -pplainword ssh -p2222 h",
                "sshpass -p[removed: password] ssh -p2222 h",
            ),
            (
                "x; /usr/bin/mysql -u root -pplainword app",
                "x; /usr/bin/mysql -u root -p[removed: password] app",
            ),
            (
                "docker run --name mysql -p3306:3306 i",
                "docker run --name mysql -p3306:3306 i",
            ),
            ("mysqldump a | ssh -pplain h", "mysqldump a | ssh -pplain h"),
            (
                "db.acme.io:5432:app:bob:plainword",
                "db.acme.io:5432:app:bob:[removed: password]",
            ),
            (
                "echo '[::1]:5432:d:u:Geheim99' >> ~/.pgpass",
                "echo '[::1]:5432:d:u:[removed: password]' >> ~/.pgpass",
            ),
            ("src/a.rs:12:fn:main:word", "src/a.rs:12:fn:main:word"),
            ("ssh-keygen -N \"\" -f key", "ssh-keygen -N \"\" -f key"),
            ("curl -Hurl:1 -o out.html h", "curl -Hurl:1 -o out.html h"),
        ] {
            let redacted = redact(text).text;
            assert_eq!(redacted, expected);
            assert_eq!(redact(&redacted).text, redacted);
        }
    }

    #[test]
    fn a_putty_key_keeps_only_its_public_lines() {
        let key = "PuTTY-User-Key-File-3: ssh-ed25519\nPublic-Lines: 1\nAAAA\nPrivate-Lines: 1\nc2VjcmV0\n\
                   Private-MAC: 00ff\nThat was it.";
        let text = redact(key).text;
        assert_eq!(text.lines().count(), 5, "{text}");
        assert!(
            !text.contains("c2VjcmV0") && text.ends_with("That was it."),
            "{text}"
        );
    }
}
