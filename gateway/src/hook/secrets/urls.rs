//! Passwords and tokens in URLs.

use super::found::Secret;
use super::values::is_placeholder;

/// The password in `scheme://user:password@host`, and the token in `scheme://TOKEN@host`.
pub(super) fn find(text: &str) -> Vec<Secret> {
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
