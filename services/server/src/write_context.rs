//! Reads the headers of a write request: HTTP headers in REST, metadata in gRPC.

use context_engine::WriteContext;
use context_model::{Error, Result};
use http::HeaderMap;

/// The header of the Internet-Draft draft-ietf-httpapi-idempotency-key-header.
const IDEMPOTENCY_KEY: &str = "idempotency-key";

/// Reads the headers of a write: the idempotency key, if there is one.
///
/// # Errors
/// `INVALID_ARGUMENT` for a malformed idempotency key.
pub fn write_context(headers: &HeaderMap) -> Result<WriteContext> {
    Ok(WriteContext {
        idempotency_key: idempotency_key(headers)?,
    })
}

/// Reads `Idempotency-Key`.
///
/// # Errors
/// `INVALID_ARGUMENT` unless it is 1 to 255 visible ASCII characters, once.
fn idempotency_key(headers: &HeaderMap) -> Result<Option<String>> {
    let mut values = headers.get_all(IDEMPOTENCY_KEY).iter();
    let Some(value) = values.next() else {
        return Ok(None);
    };
    let visible =
        (1..=255).contains(&value.len()) && value.as_bytes().iter().all(u8::is_ascii_graphic);
    match value.to_str() {
        Ok(key) if visible && values.next().is_none() => Ok(Some(key.to_owned())),
        _ => Err(Error::invalid(
            IDEMPOTENCY_KEY,
            "`idempotency-key` must be given once, with 1 to 255 visible ASCII characters",
        )),
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn headers(value: &str) -> HeaderMap {
        HeaderMap::from_iter([(
            http::HeaderName::from_static(IDEMPOTENCY_KEY),
            HeaderValue::from_str(value).unwrap(),
        )])
    }

    #[test]
    fn an_idempotency_key_is_short_and_visible() {
        assert_eq!(
            idempotency_key(&headers("a-1")).unwrap().as_deref(),
            Some("a-1")
        );
        assert_eq!(idempotency_key(&HeaderMap::new()).unwrap(), None);
        for bad in ["", "a b", &"x".repeat(256)] {
            assert!(idempotency_key(&headers(bad)).is_err(), "{bad}");
        }
    }
}
