//! The settings of the HTTP transport.

use std::net::SocketAddr;

use clap::Args;

use crate::connection::{BackendArgs, expanded, items, number, or, switch_or};
use crate::http::{AllowedOrigin, ConnectionLimits, Guarded};

/// Settings of the HTTP transport. The gateway passes each caller's Authorization header on
/// unchanged.
#[derive(Debug, Clone, Args)]
pub struct HttpArgs {
    /// Where the service is.
    #[command(flatten)]
    pub backend: BackendArgs,
    /// Address to listen on
    #[arg(long, env = "GATEWAY_LISTEN", default_value = "127.0.0.1:7421", value_parser = socket_address)]
    pub listen: SocketAddr,
    /// Host names besides loopback names and IP addresses by which clients reach this server;
    /// comma-separated, host or host:port
    #[arg(long, env = "GATEWAY_ALLOWED_HOSTS", hide_env_values = true, value_parser = expanded)]
    pub allowed_hosts: Vec<String>,
    /// Browser origins that may call, comma-separated: https://app.example:443, or :* for any port
    #[arg(long, env = "GATEWAY_ALLOWED_ORIGINS", hide_env_values = true, value_parser = expanded)]
    pub allowed_origins: Vec<String>,
    /// Maximum number of connections, 1 to 100000. Beyond it, the connection that has been idle
    /// longest is closed
    #[arg(long, env = "GATEWAY_MAX_CONNECTIONS", value_name = "N", default_value = "1024", value_parser = connections)]
    pub max_connections: usize,
    /// Maximum number of connections from one address. If empty, half of the total. Raise it if a
    /// proxy makes all clients share one address
    #[arg(long, env = "GATEWAY_MAX_CONNECTIONS_PER_ADDRESS", value_name = "N", value_parser = connections_per_address, default_value = "", hide_default_value = true)]
    pub max_connections_per_address: PerAddress,
    /// URL of /mcp as clients see it, for the metadata that a 401 refers to. If empty,
    /// http://ADDRESS/mcp
    #[arg(long, env = "GATEWAY_PUBLIC_URL", default_value = "", hide_default_value = true, hide_env_values = true, value_parser = expanded)]
    pub public_url: String,
    /// How the service authenticates callers: off, keys or oidc. With off, the gateway listens only
    /// on loopback addresses, unless --insecure is given
    #[arg(long, env = "AUTH", default_value = "off", value_parser = authentication)]
    pub auth: String,
    /// Token issuer for AUTH=oidc; clients without a token are sent to it
    #[arg(long, env = "OIDC_ISSUER", default_value = "", hide_default_value = true, hide_env_values = true, value_parser = expanded)]
    pub oidc_issuer: String,
    /// Prefix of the issuer's scope names for the service, as configured at the issuer
    #[arg(long, env = "OIDC_SCOPE_PREFIX", default_value = "", hide_default_value = true, value_parser = expanded)]
    pub oidc_scope_prefix: String,
    /// Listen on addresses other than loopback without authentication
    #[arg(long, env = "CONTEXT_INSECURE", default_value = "false", value_parser = switch, num_args = 0..=1, default_missing_value = "true", action = clap::ArgAction::Set)]
    pub insecure: bool,
}

/// The limit for one address. `None` means half of the total.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PerAddress(Option<usize>);

impl HttpArgs {
    /// The limits on connections.
    #[must_use]
    pub fn connection_limits(&self) -> ConnectionLimits {
        let per_address = self
            .max_connections_per_address
            .0
            .unwrap_or(self.max_connections.div_ceil(2));
        ConnectionLimits {
            connections: self.max_connections,
            per_address,
            ..ConnectionLimits::default()
        }
    }

    /// The resource that needs authentication and the issuer of its tokens; `None` if
    /// authentication is off.
    #[must_use]
    pub fn guarded(&self, listen: SocketAddr) -> Option<Guarded> {
        let resource = if self.public_url.is_empty() {
            format!("http://{listen}/mcp")
        } else {
            self.public_url.clone()
        };
        let issuer = (self.auth == "oidc").then(|| self.oidc_issuer.clone());
        (self.auth != "off").then(|| Guarded {
            resource,
            issuer,
            scope_prefix: self.oidc_scope_prefix.clone(),
        })
    }

    /// Checks the settings that depend on each other, and the form of the public URL, of hosts and of origins. The
    /// server must not be open to unauthenticated callers by mistake.
    ///
    /// # Errors
    /// A sentence if the address can be reached from other machines without authentication, the issuer is missing, or
    /// the public URL, a host or an origin is malformed.
    pub fn check(&self) -> Result<(), String> {
        if self.auth == "off" && !self.listen.ip().is_loopback() && !self.insecure {
            return Err(format!(
                "{} can be reached from other machines and AUTH is off; set AUTH=keys, listen on 127.0.0.1, or pass --insecure",
                self.listen
            ));
        }
        if self.auth == "oidc" && self.oidc_issuer.is_empty() {
            return Err(
                "AUTH is oidc, which needs OIDC_ISSUER: clients learn from it where to get a token"
                    .to_owned(),
            );
        }
        if !self.public_url.is_empty() {
            let url = self.public_url.parse::<http::Uri>();
            if !url.is_ok_and(|url| {
                matches!(url.scheme_str(), Some("http" | "https")) && url.host().is_some()
            }) {
                let shown = context_model::shown_url(&self.public_url);
                return Err(format!(
                    "GATEWAY_PUBLIC_URL is `{shown}`; write it as https://context.example/mcp"
                ));
            }
        }
        for host in items(&self.allowed_hosts) {
            context_model::check_host(&host)
                .map_err(|sentence| format!("GATEWAY_ALLOWED_HOSTS: {sentence}"))?;
        }
        for origin in items(&self.allowed_origins) {
            if AllowedOrigin::parse(&origin).is_none() {
                let origin = context_model::shown_url(&origin);
                return Err(format!(
                    "`{origin}` is not an origin; write it as https://app.example:443 or http://localhost:*"
                ));
            }
        }
        Ok(())
    }
}

fn connections(value: &str) -> Result<usize, String> {
    number(value, "1024", 1, 100_000)
}

fn connections_per_address(value: &str) -> Result<PerAddress, String> {
    let value = expanded(value)?;
    if value.trim().is_empty() {
        Ok(PerAddress(None))
    } else {
        number(&value, "", 1, 100_000).map(Some).map(PerAddress)
    }
}

fn socket_address(value: &str) -> Result<SocketAddr, String> {
    use std::net::ToSocketAddrs as _;
    let value = expanded(value)?;
    or(&value, "127.0.0.1:7421")
        .to_socket_addrs()
        .ok()
        .and_then(|mut addresses| addresses.next())
        .ok_or_else(|| "must be an address and a port, such as 127.0.0.1:7421".into())
}

fn switch(value: &str) -> Result<bool, String> {
    switch_or(value, "false")
}

fn authentication(value: &str) -> Result<String, String> {
    match or(&expanded(value)?, "off").to_ascii_lowercase().as_str() {
        known @ ("off" | "keys" | "oidc") => Ok(known.to_owned()),
        _ => Err("must be off, keys or oidc".into()),
    }
}
