//! How single values are read: each parser gives the value or the rest of a sentence that begins with the setting's
//! name.

use std::net::{SocketAddr, ToSocketAddrs as _};
use std::path::PathBuf;

use context_engine::Switch;

/// Replaces `${VAR}` and `${VAR:-default}`, which some MCP clients pass on unexpanded. `lookup` gives the value of a
/// variable; an unset or empty one takes the default, or nothing.
#[must_use]
pub fn expand(value: &str, lookup: &dyn Fn(&str) -> Option<String>) -> String {
    let mut out = String::with_capacity(value.len());
    let mut rest = value;
    while let Some(start) = rest.find("${") {
        let Some(length) = rest[start..].find('}') else {
            break;
        };
        let inner = &rest[start + 2..start + length];
        let (name, default) = inner.split_once(":-").unwrap_or((inner, ""));
        // A variable that still holds a placeholder was never set: the client copied it literally.
        let found = lookup(name).filter(|found| !found.is_empty() && !found.contains("${"));
        out.push_str(&rest[..start]);
        out.push_str(found.as_deref().unwrap_or(default));
        rest = &rest[start + length + 1..];
    }
    out.push_str(rest);
    out
}

/// A value that must not be shown: prints as `***`.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// The value itself.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("***")
    }
}

/// An address that may hold a user and a password: it prints without them.
#[derive(Clone, PartialEq, Eq)]
pub struct Url(String);

impl Url {
    /// The address itself.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Debug for Url {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&context_model::shown_url(&self.0))
    }
}

impl std::str::FromStr for Url {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(Self(text.to_owned()))
    }
}

impl std::str::FromStr for Secret {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(Self(text.to_owned()))
    }
}

pub(super) fn switch(text: &str) -> Result<Switch, String> {
    match text.trim().to_ascii_lowercase().as_str() {
        "auto" => Ok(Switch::Auto),
        other => match boolean(other) {
            Ok(true) => Ok(Switch::True),
            Ok(false) => Ok(Switch::False),
            Err(_) => Err("it must be true, false or auto".into()),
        },
    }
}

pub(super) fn boolean(text: &str) -> Result<bool, String> {
    match text.trim().to_ascii_lowercase().as_str() {
        "true" | "1" | "yes" | "on" => Ok(true),
        "false" | "0" | "no" | "off" => Ok(false),
        _ => Err("it must be true or false".into()),
    }
}

/// A whole number within a range, both ends included.
pub(super) fn number(
    min: u64,
    max: u64,
) -> impl Fn(&str) -> Result<u64, String> + Clone + Send + Sync + 'static {
    move |text| match text.trim().parse() {
        Ok(number) if (min..=max).contains(&number) => Ok(number),
        _ => Err(format!("it must be a whole number from {min} to {max}")),
    }
}

/// A number from 0 to 1.
pub(super) fn fraction(text: &str) -> Result<f64, String> {
    match text.trim().parse() {
        Ok(number) if (0.0..=1.0).contains(&number) => Ok(number),
        _ => Err("it must be a number from 0 to 1".into()),
    }
}

pub(super) fn address(text: &str) -> Result<SocketAddr, String> {
    text.trim()
        .to_socket_addrs()
        .ok()
        .and_then(|mut addresses| addresses.next())
        .ok_or_else(|| "it must be an address and a port, such as 127.0.0.1:7420".into())
}

/// An address, or `off`.
pub(super) fn optional_address(text: &str) -> Result<Listen, String> {
    if text.trim().eq_ignore_ascii_case("off") {
        Ok(Listen(None))
    } else {
        address(text).map(|at| Listen(Some(at)))
    }
}

/// Where to listen, if at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Listen(pub Option<SocketAddr>);

/// A path; a leading `~` is the home directory.
pub(super) fn path(text: &str) -> Result<PathBuf, String> {
    if text.trim().is_empty() {
        return Err("it must be a path".into());
    }
    if text.contains('\0') {
        return Err("it must not contain the character U+0000".into());
    }
    Ok(context_model::local::expand_home(text.trim()))
}

/// An absolute path.
pub(super) fn absolute_path(text: &str) -> Result<PathBuf, String> {
    path(text).and_then(|path| {
        if path.is_absolute() {
            Ok(path)
        } else {
            Err("it must be an absolute path".into())
        }
    })
}

/// Items between commas; blanks are dropped.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct List(pub Vec<String>);

impl std::str::FromStr for List {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(Self(
            text.split(',')
                .map(str::trim)
                .filter(|item| !item.is_empty())
                .map(str::to_owned)
                .collect(),
        ))
    }
}

/// Browser origins: scheme, host and perhaps a port, as browsers send them in `Origin`.
pub(super) fn origins(text: &str) -> Result<List, String> {
    let Ok(list) = text.parse::<List>();
    for origin in &list.0 {
        let uri = origin.parse::<http::Uri>();
        let plain = uri.is_ok_and(|uri| {
            matches!(uri.scheme_str(), Some("http" | "https"))
                && uri.host().is_some()
                && uri.path() == "/"
                && uri.query().is_none()
                && !origin.contains('@')
        });
        if !plain || origin.ends_with('/') {
            let origin = context_model::shown_url(origin);
            return Err(format!(
                "`{origin}` is not an origin; write it as https://app.example or http://localhost:5173"
            ));
        }
    }
    Ok(list)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_are_expanded_and_unset_ones_take_their_default() {
        let lookup = |name: &str| match name {
            "SET" => Some("value".to_owned()),
            "LITERAL" => Some("${LITERAL}".to_owned()),
            _ => None,
        };
        for (given, expected) in [
            ("plain", "plain"),
            ("${SET}", "value"),
            ("a${SET}b${UNSET:-c}", "avaluebc"),
            ("${UNSET}", ""),
            ("${LITERAL:-x}", "x"),
            ("${open", "${open"),
        ] {
            assert_eq!(expand(given, &lookup), expected, "{given}");
        }
    }

    #[test]
    fn secrets_are_not_shown() {
        assert_eq!(format!("{:?}", "hunter2".parse::<Secret>().unwrap()), "***");
    }

    #[test]
    fn an_origin_has_no_path_and_no_wildcard() {
        assert!(origins("https://app.example, http://localhost:5173").is_ok());
        for bad in [
            "*",
            "app.example",
            "https://app.example/",
            "https://app.example/x",
            "file:///x",
        ] {
            assert!(origins(bad).is_err(), "{bad}");
        }
    }
}
