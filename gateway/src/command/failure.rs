//! Why a command failed, and the exit code that says so.

use std::io;
use std::process::ExitCode;

use context_model::{Error, Reason};

use super::inert::one_line;
use crate::stderr::announce;

/// Why a command failed.
#[derive(Debug)]
pub enum Failure {
    /// The command line or the input cannot be used. Exit code 2.
    Usage(String),
    /// The service refused the request (exit code 1) or did not respond (exit code 3).
    Service(Error),
    /// The command did not do everything that was requested: an id was not found, or the person declined. Exit code 1.
    Incomplete(String),
    /// The reply cannot be written. Exit code 1.
    Output(io::Error),
    /// The reader of stdout, such as `head`, wants no more. Exit code 0.
    Closed,
}

impl Failure {
    /// Whether the service did not respond, or was not ready to.
    #[must_use]
    pub fn is_no_response(&self) -> bool {
        match self {
            Self::Service(error) => matches!(
                error.reason,
                Reason::StoreUnavailable | Reason::ShuttingDown | Reason::DeadlineExceeded
            ),
            Self::Usage(_) | Self::Incomplete(_) | Self::Output(_) | Self::Closed => false,
        }
    }

    /// Whether the same request may succeed later.
    #[must_use]
    pub fn is_temporary(&self) -> bool {
        self.is_no_response() || matches!(self, Self::Service(error) if error.retry_after.is_some())
    }

    /// The exit code of the process.
    #[must_use]
    pub fn exit_code(&self) -> ExitCode {
        match self {
            Self::Closed => ExitCode::SUCCESS,
            Self::Usage(_) => ExitCode::from(2),
            Self::Service(_) if self.is_no_response() => ExitCode::from(3),
            Self::Service(_) | Self::Incomplete(_) | Self::Output(_) => ExitCode::FAILURE,
        }
    }

    /// Writes the failure to stderr as one line. `Closed` writes nothing.
    pub fn report(&self) {
        match self {
            Self::Usage(sentence) | Self::Incomplete(sentence) => note(sentence),
            Self::Service(error) => note(&error.message),
            Self::Output(error) => note(&format!("stdout cannot be written: {error}")),
            Self::Closed => {}
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Service(error)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            Self::Closed
        } else {
            Self::Output(error)
        }
    }
}

/// Writes a line to stderr. A failed write is ignored, because there is no other place to report it.
pub fn note(sentence: &str) {
    announce(&format!("context-gateway: {}", one_line(sentence)));
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_service_that_is_busy_or_away_is_a_temporary_failure_and_a_refusal_is_not() {
        let busy = Error::new(Reason::Overloaded, "busy").with_retry_after(Duration::from_secs(1));
        let busy = Failure::from(busy);
        assert!(busy.is_temporary() && !busy.is_no_response());
        assert!(Failure::from(Error::new(Reason::ShuttingDown, "stopping")).is_temporary());
        assert!(!Failure::from(Error::new(Reason::CursorCompacted, "too old")).is_temporary());
        assert!(!Failure::Closed.is_temporary());
    }
}
