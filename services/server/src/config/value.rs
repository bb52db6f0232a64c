//! Parses the values of single settings. Each function returns the value, or the rest of an error message that begins
//! with the setting's name.

use std::net::{SocketAddr, ToSocketAddrs as _};
use std::path::PathBuf;

use context_engine::Switch;
use context_providers::http::is_address;
use context_store_postgres::SslMode;

/// An address that may contain a user and a password. `Debug` prints it without them.
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

/// The address of a provider of models. It is kept as it was written.
pub(super) fn provider(text: &str) -> Result<Url, String> {
    url_if(is_address(&with_scheme(text)), text)
}

/// The address in OLLAMA_HOST, kept as it was written.
pub(super) fn ollama_host(text: &str) -> Result<Url, String> {
    url_if(is_address(&with_scheme(&ollama_address(text))), text)
}

fn url_if(is_address: bool, text: &str) -> Result<Url, String> {
    if is_address {
        Ok(Url(text.to_owned()))
    } else {
        Err(
            "it must be an address such as http://host:port or https://host, without a query"
                .into(),
        )
    }
}

/// The address with a scheme. As for Ollama's own tools, it is http if none is given.
#[must_use]
pub fn with_scheme(url: &str) -> String {
    let url = url.trim();
    if url.contains("://") {
        url.to_owned()
    } else {
        format!("http://{url}")
    }
}

/// The address in OLLAMA_HOST. As for Ollama's own tools, a host with neither scheme nor port has port 11434, and a
/// port without a host is on this machine.
#[must_use]
pub fn ollama_address(host: &str) -> String {
    let host = host.trim();
    let (authority, path) = host.split_at(host.find('/').unwrap_or(host.len()));
    // An IPv6 address in brackets and a password contain colons as well.
    let end = authority.rsplit(['@', ']']).next().unwrap_or_default();
    if authority.starts_with(':') {
        format!("localhost{host}")
    } else if host.contains("://") || authority.is_empty() || end.contains(':') {
        host.to_owned()
    } else {
        format!("{authority}:11434{path}")
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
        "true" | "1" | "yes" | "on" | "t" | "y" => Ok(true),
        "false" | "0" | "no" | "off" | "f" | "n" => Ok(false),
        _ => Err("it must be true or false".into()),
    }
}

/// An integer within a range, both ends included.
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

/// An address to listen on, or none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Listen(pub Option<SocketAddr>);

/// A path. A leading `~` is the home directory.
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

/// Comma-separated items, without blank ones.
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

/// The types that mcp-context-server has after the name of a metadata field. An index of this service serves every
/// type.
const FIELD_TYPES: [&str; 6] = ["string", "integer", "boolean", "float", "array", "object"];

/// Metadata fields, comma-separated. The type in `field:type` is dropped.
pub(super) fn fields(text: &str) -> Result<List, String> {
    let Ok(List(items)) = text.parse::<List>();
    let field = |item: String| match item.split_once(':') {
        None => Ok(item),
        Some((field, kind)) if FIELD_TYPES.contains(&kind.trim().to_ascii_lowercase().as_str()) => {
            Ok(field.trim().to_owned())
        }
        Some((_, kind)) => Err(format!(
            "`{}` is no type of a field; it must be one of {}",
            kind.trim(),
            FIELD_TYPES.join(", ")
        )),
    };
    items
        .into_iter()
        .map(field)
        .collect::<Result<_, _>>()
        .map(List)
}

pub(super) fn ssl_mode(text: &str) -> Result<SslMode, String> {
    SslMode::named(&text.trim().to_ascii_lowercase()).ok_or_else(|| {
        "it must be one of disable, allow, prefer, require, verify-ca, verify-full".into()
    })
}

/// Hosts, each with or without a port.
pub(super) fn hosts(text: &str) -> Result<List, String> {
    let Ok(list) = text.parse::<List>();
    for host in &list.0 {
        context_model::check_host(host)?;
    }
    Ok(list)
}

/// Browser origins: scheme, host and optional port, as browsers send them in `Origin`.
pub(super) fn origins(text: &str) -> Result<List, String> {
    let Ok(list) = text.parse::<List>();
    for origin in &list.0 {
        let uri = origin.parse::<http::Uri>();
        let plain = uri.is_ok_and(|uri| {
            matches!(uri.scheme_str(), Some("http" | "https"))
                && uri.host().is_some()
                && uri.path() == "/"
                && uri.query().is_none()
                // `Uri` drops a fragment.
                && !origin.contains(['@', '#'])
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
    fn the_type_of_a_metadata_field_is_dropped() {
        let List(found) =
            fields(" status , priority : Integer,references:object,a.b:ARRAY,").unwrap();
        assert_eq!(found, ["status", "priority", "references", "a.b"]);
        assert!(fields("priority:number").unwrap_err().contains("`number`"));
    }

    #[test]
    fn a_boolean_has_the_words_of_the_predecessor() {
        for (text, value) in [("t", true), ("Y", true), ("f", false), (" n ", false)] {
            assert_eq!(boolean(text), Ok(value), "{text}");
        }
        assert!(boolean("maybe").is_err());
    }

    #[test]
    fn an_address_of_a_provider_is_http_or_https_and_has_a_host() {
        for good in [
            "http://gpu:1",
            "https://api.example/v1",
            "gpu:1",
            " gpu ",
            "[::1]:1",
            "http://user:word@gpu",
        ] {
            assert!(
                provider(good).is_ok() && ollama_host(good).is_ok(),
                "{good}"
            );
        }
        assert!(ollama_host(":11434").is_ok() && provider(":11434").is_err());
        for bad in [
            "",
            "http://",
            "ftp://gpu",
            "http://gpu:port",
            "http://gpu:99999",
            "http://gpu?key=x",
            "http://gpu/#x",
            "two words",
            "[::1",
        ] {
            let refused = provider(bad).or(ollama_host(bad));
            assert!(
                refused.is_err_and(|why| why.contains("https://host")),
                "{bad}"
            );
        }
    }

    #[test]
    fn an_origin_has_no_path_and_no_wildcard() {
        assert!(origins("https://app.example, http://localhost:5173").is_ok());
        for bad in [
            "*",
            "app.example",
            "https://app.example/",
            "https://app.example/x",
            "https://app.example#x",
            "https://app.example#",
            "file:///x",
        ] {
            assert!(origins(bad).is_err(), "{bad}");
        }
    }
}
