//! URLs in log lines and messages.

/// A URL for a log line or a message: without user, password and query, any of which may be secret.
/// The URL may be malformed; if its parts cannot be distinguished, more of it is left out.
#[must_use]
pub fn shown_url(url: &str) -> String {
    // Another `://` belongs to a password or a query.
    let is_scheme = |at: &usize| url[..*at].bytes().all(|byte| byte.is_ascii_alphanumeric());
    let scheme = url.find("://").filter(is_scheme);
    let (scheme, rest) = scheme.map_or(("", url), |at| url.split_at(at + 3));
    let (user, rest) = rest
        .rsplit_once('@')
        .map_or(("", rest), |(_, rest)| ("***@", rest));
    let end = rest.find(['?', '#']);
    // A query before the last `@`: either the `@` belongs to the query, or the `?` belongs to the
    // password.
    if url
        .find(['?', '#'])
        .is_some_and(|at| url.rfind('@').is_some_and(|last| at < last))
    {
        return format!("{scheme}***");
    }
    match end {
        Some(at) => format!("{scheme}{user}{}?***", &rest[..at]),
        None => format!("{scheme}{user}{rest}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neither_user_nor_password_nor_query_is_shown() {
        for (url, shown) in [
            ("http://127.0.0.1:11434", "http://127.0.0.1:11434"),
            ("https://host/path", "https://host/path"),
            ("host:80", "host:80"),
            ("host/?key=hunter2&to=http://other", "host/?***"),
            ("u:hunter2://@host", "***@host"),
            ("http://u:hunter2@host:80/path", "http://***@host:80/path"),
            ("u:hunter2@host:80", "***@host:80"),
            ("http://u:hunter2/@@host", "http://***@host"),
            ("http://u:p?hunter2@host/", "http://***"),
            ("http://u:p#hunter2@host/", "http://***"),
            ("http://host/?to=a@b&key=hunter2", "http://***"),
            ("http://host/?key=hunter2", "http://host/?***"),
            ("http://u:hunter2@host/?key=hunter2", "http://***@host/?***"),
            ("", ""),
        ] {
            assert_eq!(shown_url(url), shown, "{url}");
        }
    }
}
