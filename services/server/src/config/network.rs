//! Where the service listens, and which callers it accepts.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;

use super::value::{
    List, Listen, absolute_path, address, boolean, hosts, optional_address, origins,
};

/// How callers are authenticated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Auth {
    /// Not at all; only this machine may call
    Off,
    /// By API key
    Keys,
    /// By API key or by a token of an OpenID Connect issuer
    Oidc,
}

/// Settings of the network.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Network")]
pub struct Network {
    /// The address of gRPC and REST. Port 0 chooses a free port.
    #[arg(long = "listen", env = "CONTEXT_LISTEN", value_name = "ADDRESS", default_value = "127.0.0.1:7420", value_parser = address, global = true)]
    pub listen: SocketAddr,

    /// A second address, for gRPC only, or off.
    #[arg(long = "grpc-listen", env = "CONTEXT_GRPC_LISTEN", value_name = "ADDRESS", default_value = "off", value_parser = optional_address, global = true)]
    pub grpc_listen: Listen,

    /// The Unix socket for clients on this machine; always open.
    ///
    /// Default: named after the database, in $XDG_RUNTIME_DIR/context-service. Without that variable it is in
    /// context-service-UID in the directory $TMPDIR, or in /tmp.
    #[arg(long = "socket", env = "CONTEXT_SOCKET", value_name = "PATH", value_parser = absolute_path, global = true)]
    pub socket: Option<PathBuf>,

    /// How callers are authenticated: off, keys (API keys), or oidc (API keys and OpenID Connect tokens).
    #[arg(
        long,
        env = "AUTH",
        value_name = "HOW",
        default_value = "off",
        hide_possible_values = true,
        ignore_case = true,
        global = true
    )]
    pub auth: Auth,

    /// Listen on addresses other than loopback without authentication.
    ///
    /// Anyone who reaches the port can then read, change and delete everything.
    #[arg(
        long = "insecure",
        env = "CONTEXT_INSECURE",
        value_name = "BOOL",
        default_value = "false",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        value_parser = boolean,
        action = clap::ArgAction::Set,
        global = true
    )]
    pub insecure: bool,

    /// Host names of this service besides `localhost` and IP addresses, comma-separated.
    ///
    /// Requests for another host name are refused in three cases: without authentication, when CONTEXT_LISTEN is a
    /// loopback address, and when this setting has a value. This stops a web page from reaching the service under the
    /// page's own name. A name may have a port: context.example, or context.example:8443.
    #[arg(long = "allowed-hosts", env = "CONTEXT_ALLOWED_HOSTS", value_name = "HOSTS", default_value = "", hide_default_value = true, value_parser = hosts, global = true)]
    pub allowed_hosts: List,

    /// Browser origins that may call the service, comma-separated: https://app.example. Default: none. Wildcards are
    /// not supported.
    #[arg(long = "cors-origins", env = "CONTEXT_CORS_ORIGINS", value_name = "ORIGINS", default_value = "", hide_default_value = true, value_parser = origins, global = true)]
    pub cors_origins: List,
}
