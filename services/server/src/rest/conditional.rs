//! Conditional requests: `If-Match` and `If-None-Match`.

use std::fmt::Write as _;

use context_model::{Error, Reason, Result};
use http::{HeaderMap, HeaderValue, header};

/// The `ETag` of a version: its number in quotes.
#[must_use]
pub fn etag(version: i64) -> HeaderValue {
    etag_beside(version, "")
}

/// The `ETag` of what a GET returns: the version's number and, after a hyphen, a digest of what can change without a new
/// version. If that is empty, the number alone.
#[must_use]
pub fn etag_beside(version: i64, unversioned: &str) -> HeaderValue {
    let mut tag = format!("\"{version}");
    if !unversioned.is_empty() {
        let digest = ring::digest::digest(&ring::digest::SHA256, unversioned.as_bytes());
        tag.push('-');
        for byte in &digest.as_ref()[..8] {
            // Writing to a string cannot fail.
            let _ = write!(tag, "{byte:02x}");
        }
    }
    tag.push('"');
    // Digits, a hyphen and quotes are always a valid header value.
    HeaderValue::from_str(&tag).unwrap_or(HeaderValue::from_static("\"0\""))
}

/// What `If-Match` requires.
#[derive(Debug, PartialEq, Eq)]
pub enum IfMatch {
    /// Nothing, because the header is absent.
    Absent,
    /// `*`: any version, if the entry exists.
    Any,
    /// This version.
    Version(i64),
    /// A weak tag, or one that is no `ETag` of a version. The condition never holds.
    NoVersion,
}

/// Reads `If-Match` (RFC 9110, section 13.1.1).
///
/// # Errors
/// `INVALID_ARGUMENT` if it is malformed or names several tags.
pub fn if_match(headers: &HeaderMap) -> Result<IfMatch> {
    let malformed = || {
        Error::invalid(
            "If-Match",
            "`If-Match` must be one version in quotes, as in the `ETag`, such as \"3\", or *",
        )
    };
    let mut values = headers.get_all(header::IF_MATCH).iter();
    let Some(value) = values.next() else {
        return Ok(IfMatch::Absent);
    };
    if values.next().is_some() {
        return Err(malformed());
    }
    let text = value.to_str().map_err(|_| malformed())?.trim();
    if text == "*" {
        return Ok(IfMatch::Any);
    }
    // If-Match uses strong comparison: a weak tag never matches.
    let (weak, tag) = text
        .strip_prefix("W/")
        .map_or((false, text), |tag| (true, tag));
    let tag = opaque(tag).ok_or_else(malformed)?;
    Ok(version(tag)
        .filter(|_| !weak)
        .map_or(IfMatch::NoVersion, IfMatch::Version))
}

/// The version a change is based on, from `If-Match` or from the body. If both name one, they must
/// agree.
///
/// # Errors
/// `INVALID_ARGUMENT` if the header is malformed or contradicts the body; `VERSION_MISMATCH` if it can match no
/// version.
pub fn expected_version(headers: &HeaderMap, given: Option<i64>) -> Result<Option<i64>> {
    match if_match(headers)? {
        IfMatch::Absent | IfMatch::Any => Ok(given),
        IfMatch::Version(version) if given.is_none_or(|given| given == version) => {
            Ok(Some(version))
        }
        IfMatch::Version(_) => Err(Error::invalid(
            "expected_version",
            "`expected_version` and `If-Match` name different versions",
        )),
        IfMatch::NoVersion => {
            let sentence = "`If-Match` matches no version; use the `ETag` of a GET, or *";
            Err(Error::new(Reason::VersionMismatch, sentence))
        }
    }
}

/// Whether `If-None-Match` names this `ETag` (RFC 9110, section 13.1.2), so that the caller
/// already has the reply. A malformed header names none, because the full reply is never wrong.
#[must_use]
pub fn none_match_names(headers: &HeaderMap, current: &HeaderValue) -> bool {
    headers
        .get_all(header::IF_NONE_MATCH)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .any(|tag| {
            let tag = tag.trim();
            tag == "*" || *current == *tag.strip_prefix("W/").unwrap_or(tag)
        })
}

/// The part of a tag between its quotes; `None` if it is malformed.
fn opaque(tag: &str) -> Option<&str> {
    tag.strip_prefix('"')?
        .strip_suffix('"')
        .filter(|tag| !tag.contains('"'))
}

/// The version in a tag, in the spelling that [`etag_beside`] writes. A change depends on no more than the version.
fn version(tag: &str) -> Option<i64> {
    let digits = tag.split_once('-').map_or(tag, |(digits, _)| digits);
    let version: i64 = digits.parse().ok()?;
    (version >= 1 && version.to_string() == digits).then_some(version)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(name: &'static str, value: &str) -> HeaderMap {
        HeaderMap::from_iter([(
            http::HeaderName::from_static(name),
            HeaderValue::from_str(value).unwrap(),
        )])
    }

    #[test]
    fn if_match_compares_strongly() {
        let read = |value| if_match(&headers("if-match", value));
        assert_eq!(read("\"3\"").unwrap(), IfMatch::Version(3));
        let with_digest = etag_beside(3, "a summary");
        let with_digest = read(with_digest.to_str().unwrap()).unwrap();
        assert_eq!(with_digest, IfMatch::Version(3));
        assert_eq!(read("*").unwrap(), IfMatch::Any);
        assert_eq!(read("W/\"3\"").unwrap(), IfMatch::NoVersion);
        assert_eq!(read("\"03\"").unwrap(), IfMatch::NoVersion);
        for malformed in ["3", "\"3", "\"3\", \"4\"", ""] {
            assert!(read(malformed).is_err(), "{malformed}");
        }
    }

    #[test]
    fn if_none_match_compares_weakly() {
        for naming in ["\"3\"", "W/\"3\"", "\"1\", \"3\"", "*"] {
            assert!(
                none_match_names(&headers("if-none-match", naming), &etag(3)),
                "{naming}"
            );
        }
        for other in ["\"2\"", "3", ""] {
            assert!(
                !none_match_names(&headers("if-none-match", other), &etag(3)),
                "{other}"
            );
        }
        let (first, second) = (etag_beside(3, "one summary"), etag_beside(3, "another"));
        let if_none_match = headers("if-none-match", first.to_str().unwrap());
        assert!(none_match_names(&if_none_match, &first));
        assert!(!none_match_names(&if_none_match, &second));
        assert!(!none_match_names(&if_none_match, &etag(3)));
    }
}
