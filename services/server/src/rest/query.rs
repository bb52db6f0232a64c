//! Strict parsing of query strings and path ids: unknown or malformed parameters are errors that
//! name them.

use std::borrow::Cow;
use std::convert::Infallible;
use std::num::IntErrorKind;

use axum::extract::rejection::RawPathParamsRejection;
use axum::extract::{FromRequestParts, RawPathParams};
use context_model::{
    Error, INTEGER_OF_64_BITS, Violations, decode_parameter, given_again, wrong_type,
};
use http::Uri;
use http::request::Parts;
use serde::de::DeserializeOwned;

use crate::problem::Problem;

/// The parameters of a query string. Handlers take them out one by one.
pub struct Query {
    pairs: Vec<(String, String)>,
    violations: Violations,
}

/// Maximum number of parameters in a query string. No route has that many.
const MAX_PAIRS: usize = 200;

impl<S: Sync> FromRequestParts<S> for Query {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(Self::of(&parts.uri))
    }
}

/// Refuses a query string, for a route without parameters.
///
/// # Errors
/// `INVALID_ARGUMENT` that names its parameters.
pub fn refuse_parameters(uri: &Uri) -> Result<(), Error> {
    Query::of(uri).finish()
}

impl Query {
    fn of(uri: &Uri) -> Self {
        let mut violations = Violations::default();
        let mut pairs = Vec::new();
        for pair in uri
            .query()
            .unwrap_or_default()
            .split('&')
            .filter(|pair| !pair.is_empty())
        {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            match (percent_decode(name), percent_decode(value)) {
                (Some(name), Some(value)) if pairs.len() < MAX_PAIRS => {
                    pairs.push((name.into_owned(), value.into_owned()))
                }
                (Some(_), Some(_)) => {
                    violations.push(
                        "query",
                        format!("`query` has more than {MAX_PAIRS} parameters"),
                    );
                    break;
                }
                _ => violations.push(
                    "query",
                    "`query` holds a percent sign without two hexadecimal digits, or is not UTF-8",
                ),
            }
        }
        Self { pairs, violations }
    }

    /// All values of a parameter, in order.
    pub fn all(&mut self, name: &str) -> Vec<String> {
        self.pairs
            .extract_if(.., |(n, _)| n == name)
            .map(|(_, value)| value)
            .collect()
    }

    /// The only value of a parameter.
    pub fn one(&mut self, name: &str) -> Option<String> {
        let mut values = self.all(name).into_iter();
        let first = values.next();
        if values.next().is_some() {
            self.violations.push(name, given_again(name));
        }
        first
    }

    /// An integer parameter.
    pub fn integer(&mut self, name: &str) -> Option<i64> {
        let error = match self.one(name)?.parse::<i64>() {
            Ok(number) => return Some(number),
            Err(error) => error,
        };
        let expected = match error.kind() {
            IntErrorKind::PosOverflow | IntErrorKind::NegOverflow => INTEGER_OF_64_BITS,
            _ => "an integer",
        };
        self.violations.push(name, wrong_type(name, expected));
        None
    }

    /// A boolean parameter: `true` or `false`.
    pub fn boolean(&mut self, name: &str) -> Option<bool> {
        match self.one(name)?.as_str() {
            "true" => Some(true),
            "false" => Some(false),
            _ => {
                self.violations
                    .push(name, wrong_type(name, "true or false"));
                None
            }
        }
    }

    /// A parameter in JSON.
    pub fn json<T: DeserializeOwned>(&mut self, name: &str) -> Option<T> {
        let text = self.one(name)?;
        decode_parameter(name, &text)
            .map_err(|error| self.violations.extend(error))
            .ok()
    }

    /// A list of integers: comma-separated, or in repeated parameters.
    pub fn integers(&mut self, name: &str) -> Vec<i64> {
        let mut numbers = Vec::new();
        for text in self
            .all(name)
            .iter()
            .flat_map(|list| list.split(','))
            .map(str::trim)
            .filter(|text| !text.is_empty())
        {
            match text.parse() {
                Ok(number) => numbers.push(number),
                Err(_) => self.violations.push(
                    name,
                    format!(
                        "`{name}` holds `{}`; it must be a list of integers, separated by commas",
                        start(text)
                    ),
                ),
            }
        }
        numbers
    }

    /// Refuses parameters that no handler has taken out.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` with everything that is wrong in the query string.
    pub fn finish(mut self) -> Result<(), Error> {
        for (name, _) in self.pairs {
            let name = start(&name);
            self.violations.push(
                name.clone(),
                format!("`{name}` is not a parameter of this route"),
            );
        }
        self.violations.finish(())
    }
}

/// The start of a value for an error message.
fn start(text: &str) -> String {
    text.chars().take(40).collect()
}

/// Decodes one part of application/x-www-form-urlencoded text; `None` if it is malformed.
fn percent_decode(text: &str) -> Option<Cow<'_, str>> {
    if !text.contains(['%', '+']) {
        return Some(text.into());
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        rest = tail;
        match first {
            b'+' => bytes.push(b' '),
            b'%' => {
                let digit = |i: usize| char::from(*tail.get(i)?).to_digit(16);
                bytes.push(u8::try_from(digit(0)? * 16 + digit(1)?).ok()?);
                rest = &tail[2..];
            }
            other => bytes.push(*other),
        }
    }
    String::from_utf8(bytes).ok().map(Cow::Owned)
}

/// The `{context_id}` in a path.
pub struct ContextId(pub i64);

impl<S: Send + Sync> FromRequestParts<S> for ContextId {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let malformed = |given: &str| {
            let given = start(given);
            Problem::from(Error::invalid(
                "context_id",
                format!("`context_id` is `{given}`; it must be a positive integer below 2^53"),
            ))
        };
        let params = RawPathParams::from_request_parts(parts, state)
            .await
            .map_err(|_| malformed("(not UTF-8)"))?;
        let text = params
            .iter()
            .find(|(name, _)| *name == "context_id")
            .map(|(_, value)| value)
            .unwrap_or_default();
        match text.parse() {
            Ok(id)
                if (1..=context_model::Limits::MAX_ID).contains(&id)
                    && text.bytes().all(|b| b.is_ascii_digit()) =>
            {
                Ok(Self(id))
            }
            _ => Err(malformed(text)),
        }
    }
}

/// The artifact id and version in a path. The operation validates the id, so that the error
/// sentence is the same on every transport.
pub struct ArtifactPath {
    /// `{artifact_id}`.
    pub artifact_id: String,
    /// `{version}`, if the path has one.
    version: Option<String>,
}

impl ArtifactPath {
    /// The version. The operation validates its range.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if it is not an integer in decimal digits or exceeds 64 bits.
    pub fn version(&self) -> Result<i64, Error> {
        let text = self.version.as_deref().unwrap_or_default();
        let malformed = || {
            Error::invalid(
                "version",
                format!(
                    "`version` is `{}`; it must be an integer from 1",
                    start(text)
                ),
            )
        };
        text.parse()
            .ok()
            .filter(|_| !text.starts_with('+'))
            .ok_or_else(malformed)
    }
}

impl<S: Send + Sync> FromRequestParts<S> for ArtifactPath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let refused = |rejection: RawPathParamsRejection| {
            let (field, message) = if rejection.body_text().contains("`version`") {
                ("version", "`version` is not UTF-8")
            } else {
                ("artifact_id", context_model::ArtifactId::FORMAT)
            };
            Problem::from(Error::invalid(field, message))
        };
        let params = RawPathParams::from_request_parts(parts, state)
            .await
            .map_err(refused)?;
        let part = |wanted: &str| {
            params
                .iter()
                .find(|(name, _)| *name == wanted)
                .map(|(_, value)| value.to_owned())
        };
        Ok(Self {
            artifact_id: part("artifact_id").unwrap_or_default(),
            version: part("version"),
        })
    }
}

/// The `{key_id}` in a path.
pub struct KeyPath(pub String);

impl<S: Send + Sync> FromRequestParts<S> for KeyPath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        path_text(parts, state, "key_id").await.map(Self)
    }
}

/// The `{thread_id}` in a path.
pub struct ThreadPath(pub String);

impl<S: Send + Sync> FromRequestParts<S> for ThreadPath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        path_text(parts, state, "thread_id").await.map(Self)
    }
}

/// The text of a path parameter, which the operation validates.
async fn path_text<S: Send + Sync>(
    parts: &mut Parts,
    state: &S,
    wanted: &'static str,
) -> Result<String, Problem> {
    let refused = |_| Problem::from(Error::invalid(wanted, format!("`{wanted}` is not UTF-8")));
    let params = RawPathParams::from_request_parts(parts, state)
        .await
        .map_err(refused)?;
    Ok(params
        .iter()
        .find(|(name, _)| *name == wanted)
        .map(|(_, value)| value.to_owned())
        .unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn query(text: &str) -> Query {
        let (mut parts, ()) = http::Request::get(format!("/?{text}"))
            .body(())
            .unwrap()
            .into_parts();
        let Ok(query) = Query::from_request_parts(&mut parts, &()).await;
        query
    }

    #[tokio::test]
    async fn ids_come_between_commas_or_repeated() {
        let mut query = query("ids=1,2&ids=%33").await;
        assert_eq!(query.integers("ids"), [1, 2, 3]);
        query.finish().unwrap();
    }

    #[tokio::test]
    async fn a_parameter_in_json_is_read_or_named() {
        let mut query = query("a=%5B1%2C2%5D&b=%7B&c=%5B1%2Ctrue%5D").await;
        assert_eq!(query.json::<Vec<i64>>("a"), Some(vec![1, 2]));
        assert_eq!(query.json::<Vec<i64>>("b"), None);
        assert_eq!(query.json::<Vec<i64>>("c"), None);
        let error = query.finish().unwrap_err();
        let fields: Vec<_> = error.violations.iter().map(|v| v.field.as_str()).collect();
        assert_eq!(fields, ["b", "c[1]"]);
        assert_eq!(
            error.message,
            "`b` must be a list; `c[1]` must be an integer"
        );
    }

    #[tokio::test]
    async fn what_is_allowed_is_said_in_plain_words() {
        let mut query = query("a=x&b=9223372036854775808&c=yes").await;
        query.integer("a");
        query.integer("b");
        query.boolean("c");
        assert_eq!(
            query.finish().unwrap_err().message,
            "`a` must be an integer; `b` must be an integer of at most 64 bits; `c` must be true or false"
        );
    }

    #[tokio::test]
    async fn everything_wrong_is_named_at_once() {
        let mut query = query("limit=x&limit=2&offset=1.5&unknown=%C3%A4&bad=%zz").await;
        query.integer("limit");
        query.integer("offset");
        let error = query.finish().unwrap_err();
        let fields: Vec<_> = error.violations.iter().map(|v| v.field.as_str()).collect();
        assert_eq!(fields, ["query", "limit", "limit", "offset", "unknown"]);
    }
}
