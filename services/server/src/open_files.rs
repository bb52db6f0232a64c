//! How many connections the system lets the service hold: each is an open file.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::config::Load;
use crate::connections::ConnectionLimits;

/// Files that the service holds besides its clients' connections: the database, the log, providers, threads' pipes.
const OTHER_FILES: u64 = 128;
/// Connections through the Unix socket that always find a file.
const SOCKET_CONNECTIONS: u64 = 64;

/// The connections that each of so many TCP listeners may hold, so that the Unix socket and the database always find a
/// file. Raises the limit of open files as far as the system allows, and says when it is still too low.
pub fn connection_limits(load: &Load, listeners: usize) -> ConnectionLimits {
    let wanted = load.max_connections;
    let listeners = listeners.max(1) as u64;
    let needed = wanted
        .saturating_mul(listeners + 1)
        .saturating_add(OTHER_FILES);
    let files = raise(needed);
    let fits = files.saturating_sub(OTHER_FILES + SOCKET_CONNECTIONS) / listeners;
    let per_listener = wanted.min(fits.max(1));
    if per_listener < wanted {
        // An error, because by default nothing less is shown.
        tracing::error!(
            open_files = files,
            connections = per_listener,
            "The system allows {files} open files, so that {per_listener} connections are accepted and not \
             CONTEXT_MAX_CONNECTIONS={wanted}; raise it with `ulimit -n {needed}` or LimitNOFILE"
        );
    }
    let per_peer = match load.max_connections_per_address {
        0 => per_listener.div_ceil(2),
        given => given.min(per_listener),
    };
    let count = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
    ConnectionLimits {
        per_listener: count(per_listener),
        per_peer: count(per_peer),
    }
}

/// Raises the limit of open files to `needed`, or as far as it goes, and gives what it is then.
fn raise(needed: u64) -> u64 {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let current = current.unwrap_or(u64::MAX);
    if current >= needed {
        return current;
    }
    let raised = maximum.map_or(needed, |maximum| maximum.min(needed));
    match setrlimit(
        Resource::Nofile,
        Rlimit {
            current: Some(raised),
            maximum,
        },
    ) {
        Ok(()) => raised,
        Err(_) => current,
    }
}
