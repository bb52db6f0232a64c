//! Names of hosts in settings.

use std::net::{IpAddr, Ipv6Addr};

use crate::shown_url;

/// Checks that the text is a host, or a host and a port, as the header `Host` has them.
///
/// # Errors
/// A sentence that shows what is allowed.
pub fn check_host(text: &str) -> Result<(), String> {
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        _ => (text, None),
    };
    let is_ipv6 = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'))
        .is_some_and(|host| host.parse::<Ipv6Addr>().is_ok());
    let is_name = !host.is_empty()
        && host
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte));
    let is_port = port.is_none_or(|port| port.parse::<u16>().is_ok());
    if text.parse::<IpAddr>().is_ok() || (is_name || is_ipv6) && is_port {
        Ok(())
    } else {
        Err(format!(
            "`{}` is not a host; write it as context.example or context.example:8443",
            shown_url(text)
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_has_neither_scheme_nor_path_nor_wildcard() {
        for good in [
            "context.example",
            "service-on_postgres:8443",
            "192.0.2.1:1",
            "[::1]",
            "[::1]:7421",
            "2001:db8::1",
        ] {
            assert_eq!(check_host(good), Ok(()), "{good}");
        }
        for bad in [
            "",
            ":8443",
            "https://context.example",
            "context.example/mcp",
            "context.example:",
            "context.example:port",
            "context.example:65536",
            "user@context.example",
            "*.context.example",
            "two words",
            "[::1",
            "[context.example]",
        ] {
            assert!(check_host(bad).is_err(), "{bad}");
        }
    }
}
