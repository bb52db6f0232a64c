//! The host names under which a server accepts requests.
//!
//! Without authentication, only the browsers' same-origin policy stops a web page from reading the data. A
//! page whose domain name is pointed at 127.0.0.1 (DNS rebinding) circumvents it, but its requests
//! still carry its own name as the host.

use axum::extract::Request;
use http::header;

/// Loopback names, IP addresses and the configured names.
#[derive(Debug, Clone)]
pub struct AllowedHosts(Vec<String>);

impl AllowedHosts {
    /// Allows these names in addition to loopback names and IP addresses. A name with a port is allowed only with this
    /// port, a name without one with every port.
    #[must_use]
    pub fn new(names: &[String]) -> Self {
        Self(names.iter().map(|name| name.to_ascii_lowercase()).collect())
    }

    /// Whether the request names an allowed host.
    #[must_use]
    pub fn allow(&self, request: &Request) -> bool {
        // In HTTP/2 the host is in `:authority`, which becomes the URI's authority.
        let authority = request
            .uri()
            .authority()
            .map(|authority| authority.as_str());
        let mut headers = request.headers().get_all(header::HOST).iter();
        let host = headers.next();
        if headers.next().is_some() {
            return false;
        }
        match (authority, host.map(|host| host.to_str())) {
            (_, Some(Err(_))) => false,
            (Some(authority), Some(Ok(host))) => {
                self.allows_name(authority) && self.allows_name(host)
            }
            (Some(name), None) | (None, Some(Ok(name))) => self.allows_name(name),
            // Only HTTP/1.0 allows a request without a host, and no browser uses HTTP/1.0.
            (None, None) => true,
        }
    }

    fn allows_name(&self, host: &str) -> bool {
        let host = host.to_ascii_lowercase();
        let name = without_port(&host);
        // DNS rebinding needs a domain name, so a request for an IP address is not from such a page.
        let is_address = name
            .trim_start_matches('[')
            .trim_end_matches(']')
            .parse::<std::net::IpAddr>()
            .is_ok();
        is_address
            || name == "localhost"
            || name.ends_with(".localhost")
            || self
                .0
                .iter()
                .any(|allowed| *allowed == host || allowed == name)
    }
}

fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port))
            if port.bytes().all(|b| b.is_ascii_digit())
                && (!name.contains(':') || name.ends_with(']')) =>
        {
            name
        }
        _ => host,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_names_addresses_and_configured_names_are_known() {
        let hosts = AllowedHosts::new(&[
            "Context.example".to_owned(),
            "other.example:8080".to_owned(),
        ]);
        for allowed in [
            "localhost",
            "LOCALHOST:7420",
            "app.localhost:1",
            "127.0.0.1:7420",
            "[::1]:7420",
            "[::1]",
            "::1",
            "192.168.1.5:7420",
            "context.example:7420",
            "other.example:8080",
        ] {
            assert!(hosts.allows_name(allowed), "{allowed}");
        }
        for refused in [
            "evil.example",
            "localhost.evil.example:7420",
            "other.example:8081",
            "127.0.0.1.evil.example",
            "",
            "notlocalhost",
        ] {
            assert!(!hosts.allows_name(refused), "{refused}");
        }
    }
}
