//! Another database of the same server.

/// The URL with its database replaced.
///
/// ```
/// let url = context_test_postgres::with_database("postgres://u@h:1/old?sslmode=disable", "new");
/// assert_eq!(url, "postgres://u@h:1/new?sslmode=disable");
/// ```
#[must_use]
pub fn with_database(url: &str, database: &str) -> String {
    let (before, parameters) = url
        .split_once('?')
        .map_or((url, None), |(before, after)| (before, Some(after)));
    let authority = before.find("://").map_or(0, |at| at + 3);
    let end = before[authority..]
        .find('/')
        .map_or(before.len(), |at| authority + at);
    let mut replaced = format!("{}/{database}", &before[..end]);
    if let Some(parameters) = parameters {
        replaced.push('?');
        replaced.push_str(parameters);
    }
    replaced
}
