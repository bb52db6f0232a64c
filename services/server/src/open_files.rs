//! Fits the number of connections to the limit on open files; each connection is an open file.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::config::Load;
use crate::connections::ConnectionLimits;

/// Files besides the clients' connections: the database, the log, providers, pipes of threads.
const OTHER_FILES: u64 = 128;
/// Connections over the Unix socket for which files are reserved.
const SOCKET_CONNECTIONS: u64 = 64;

/// The connections for each of `listeners` TCP listeners, such that the Unix socket and the
/// database always find a free file. Raises the limit on open files as far as the system allows,
/// and logs if it is still too low.
pub fn connection_limits(load: &Load, listeners: usize) -> ConnectionLimits {
    let wanted = load.max_connections;
    let listeners = listeners.max(1) as u64;
    let needed = needed(wanted, listeners);
    let files = raise(needed);
    let per_listener = wanted.min(fitting(files, listeners));
    if per_listener < wanted {
        // At error level, because lower levels are hidden by default.
        tracing::error!(
            open_files = files,
            connections = per_listener,
            "The limit of {files} open files allows {per_listener} connections instead of \
             CONTEXT_MAX_CONNECTIONS={wanted}; raise the limit with `ulimit -n {needed}` or LimitNOFILE"
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

/// The files that are enough for this many connections of each listener and of the Unix socket.
fn needed(connections: u64, listeners: u64) -> u64 {
    connections
        .saturating_mul(listeners + 1)
        .saturating_add(OTHER_FILES + SOCKET_CONNECTIONS)
}

/// The connections of each listener for which this many files are enough, at least 1.
fn fitting(files: u64, listeners: u64) -> u64 {
    (files.saturating_sub(OTHER_FILES + SOCKET_CONNECTIONS) / listeners).max(1)
}

/// Raises the limit on open files to `needed`, or as far as possible; returns the new limit.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_that_the_log_names_is_enough() {
        for listeners in 1..=2 {
            for wanted in [1, 10, 40, 64, 1024, 100_000] {
                assert!(fitting(needed(wanted, listeners), listeners) >= wanted);
            }
        }
    }
}
