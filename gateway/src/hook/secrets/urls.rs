//! Passwords and tokens in URLs.

use super::found::{MAX_JUDGED, Secret, up_to};
use super::values::is_placeholder;

/// The password in `scheme://user:password@host`, and the token in `scheme://TOKEN@host` and `scheme://TOKEN:@host`.
pub(super) fn find(text: &str) -> Vec<Secret> {
    let mut found = Vec::new();
    // The end of the current run of characters that URLs have, its last `@`, and the end of the secret in it.
    let (mut end, mut at_sign, mut until) = (0, None, 0);
    for (at, _) in text.match_indices("://") {
        let start = at + 3;
        if start > end {
            let run = &text[start..];
            end = run
                .find(|c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '`' | '<' | '>'))
                .map_or(text.len(), |length| start + length);
            // The last `@` counts, because a password may contain `/` although it should not.
            at_sign = text[start..end].rfind('@').map(|at| start + at);
        }
        let Some(last) = at_sign.filter(|sign| *sign >= start && start >= until) else {
            continue;
        };
        let userinfo = &text[start..last];
        let path = userinfo.find('/');
        let Some(colon) = userinfo.find(':') else {
            // A token alone: `https://TOKEN@host`.
            if path.is_none() && userinfo.len() >= 16 {
                until = last;
                found.push(Secret {
                    range: start..last,
                    kind: "credentials",
                });
            }
            continue;
        };
        // `http://host:80/a@b` and `http://host/a:b@c` have a host and a path there, and no password.
        let is_host = path.is_some_and(|path| {
            path < colon
                || userinfo[colon + 1..path]
                    .bytes()
                    .all(|b| b.is_ascii_digit())
        });
        let (user, password) = (&userinfo[..colon], &userinfo[colon + 1..]);
        // A token may be in the place of the user, as `https://TOKEN:x-oauth-basic@github.com` has it.
        let is_token = user.len() >= 16 && matches!(password, "" | "x-oauth-basic");
        let (secret, range, kind) = if is_token {
            (user, start..start + colon, "credentials")
        } else {
            (password, start + colon + 1..last, "password")
        };
        if !is_host && !secret.is_empty() && !is_placeholder(up_to(secret, MAX_JUDGED)) {
            until = last;
            found.push(Secret { range, kind });
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::redact;

    #[test]
    fn a_token_is_removed_with_and_without_a_password_after_it() {
        let token = "c0ffee5a1adf00dc0ffee5a1adf00dc0ffee5a1a";
        for end in [
            "@h.example/r",
            ":@h.example/r",
            ":x-oauth-basic@h.example/r",
        ] {
            let text = redact(&format!("git clone https://{token}{end}"));
            assert_eq!(
                text.text,
                format!("git clone https://[removed: credentials]{end}")
            );
        }
        for text in [
            "https://a-long-host-name.example:/path/me@example.org",
            "ftp://anonymous:@h.example/",
        ] {
            assert_eq!(redact(text).removed, 0, "{text}");
        }
    }
}
