//! Failures to start or reach the service that stay until the user corrects their cause.

use std::fmt;
use std::io;

/// A failure that a retry does not cure.
#[derive(Debug)]
struct Lasting(String);

impl fmt::Display for Lasting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Lasting {}

/// An error with this message that a retry does not cure.
#[must_use]
pub fn lasting(message: String) -> io::Error {
    io::Error::other(Lasting(message))
}

/// Whether the same attempt fails again until the user corrects something.
#[must_use]
pub fn is_lasting(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        // `InvalidData` comes from the TLS handshake: the certificate is not trusted, or the server speaks no TLS.
        io::ErrorKind::PermissionDenied | io::ErrorKind::InvalidData
    ) || error.get_ref().is_some_and(|inner| inner.is::<Lasting>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_users_socket_lasts_and_a_refused_connection_passes() {
        assert!(is_lasting(&lasting("a setting is malformed".to_owned())));
        assert!(is_lasting(&io::Error::new(
            io::ErrorKind::PermissionDenied,
            "the socket is served by another user"
        )));
        assert!(!is_lasting(&io::ErrorKind::ConnectionRefused.into()));
    }
}
