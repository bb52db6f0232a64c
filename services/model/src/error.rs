use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{Reason, Scope};

/// The result of a fallible domain operation.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// One invalid field of a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Violation {
    /// Path of the field from the request's root: `entries[3].metadata`.
    #[schema(example = "limit")]
    pub field: String,
    /// A sentence that names the field, what is wrong, and what is allowed.
    #[schema(example = "`limit` is 500; the allowed range is 1 to 100")]
    pub description: String,
}

/// Why an operation failed, in a form that every transport can show to the caller.
///
/// `Display` prints only the message. The private cause is available through
/// [`source`](std::error::Error::source), for the log.
#[derive(Clone)]
pub struct Error {
    /// The stable reason.
    pub reason: Reason,
    /// A sentence that says what is wrong and what to do.
    pub message: String,
    /// The invalid fields, if the request was invalid.
    pub violations: Vec<Violation>,
    /// How long to wait before a retry, if a retry can help.
    pub retry_after: Option<Duration>,
    /// The cursor before the oldest retained change, if the given cursor is older.
    pub oldest_cursor: Option<Box<str>>,
    source: Option<Arc<dyn std::error::Error + Send + Sync>>,
}

impl Error {
    /// An error with this reason and message.
    pub fn new(reason: Reason, message: impl Into<String>) -> Self {
        Self {
            reason,
            message: message.into(),
            violations: Vec::new(),
            retry_after: None,
            oldest_cursor: None,
            source: None,
        }
    }

    /// An `INVALID_ARGUMENT` error about one field. `description` must name the field.
    pub fn invalid(field: impl Into<String>, description: impl Into<String>) -> Self {
        let mut violations = Violations::default();
        violations.push(field, description);
        Self::from_violations(violations.kept)
    }

    /// Maximum number of invalid fields that one error names.
    pub const MAX_VIOLATIONS: usize = 8;
    /// Maximum number of bytes of the named fields in gRPC trailers. Clients refuse trailers of more than 8 KiB
    /// (grpcio), and the rest of the error needs less than 1 KiB.
    const MAX_TRAILER_BYTES: usize = 7 * 1024;

    /// An `INVALID_ARGUMENT` error about several fields; the message consists of their descriptions. Those beyond
    /// [`MAX_VIOLATIONS`](Self::MAX_VIOLATIONS), or beyond the size of gRPC trailers, are counted, not named.
    #[must_use]
    pub fn from_violations(violations: Vec<Violation>) -> Self {
        Self::naming(violations, 0)
    }

    /// As [`from_violations`](Self::from_violations), with this many more violations that are only counted.
    fn naming(mut violations: Vec<Violation>, others: usize) -> Self {
        let mut bytes = 0;
        let fits = |violation: &&Violation| {
            bytes += trailer_bytes(violation);
            bytes <= Self::MAX_TRAILER_BYTES
        };
        let fitting = violations
            .iter()
            .take(Self::MAX_VIOLATIONS)
            .take_while(fits)
            .count();
        let named = fitting.max(1);
        let more = violations.len().saturating_sub(named) + others;
        violations.truncate(named);
        let mut message = violations
            .iter()
            .map(|v| v.description.as_str())
            .collect::<Vec<_>>()
            .join("; ");
        if more > 0 {
            message.push_str(&format!("; and {more} more"));
        }
        Self {
            violations,
            ..Self::new(Reason::InvalidArgument, message)
        }
    }

    /// `SCOPE_MISSING` for this scope.
    #[must_use]
    pub fn scope_missing(scope: Scope) -> Self {
        let scope = scope.as_str();
        Self::new(
            Reason::ScopeMissing,
            format!("this operation needs the scope `{scope}`, which the credentials do not carry"),
        )
    }

    /// `CONTEXT_NOT_FOUND` for this id.
    #[must_use]
    pub fn context_not_found(id: i64) -> Self {
        Self::new(Reason::ContextNotFound, format!("context {id} not found"))
    }

    /// `CONTEXT_NOT_FOUND` for this thread. A thread exists as long as it has entries.
    #[must_use]
    pub fn thread_not_found(thread_id: &str) -> Self {
        Self::new(
            Reason::ContextNotFound,
            format!("thread `{thread_id}` not found: it has no entries"),
        )
    }

    /// `VERSION_MISMATCH`: the entry is not at the version that the caller expected.
    #[must_use]
    pub fn version_mismatch(id: i64, expected: i64, actual: i64) -> Self {
        Self::new(
            Reason::VersionMismatch,
            format!(
                "context {id} is at version {actual}, not {expected}: it changed since you read it; fetch it and retry with the new version"
            ),
        )
    }

    /// An `INTERNAL` error: a bug. The cause is for the log.
    pub fn internal(source: impl std::error::Error + Send + Sync + 'static) -> Self {
        Self::new(
            Reason::Internal,
            "internal error; the service's log has the cause",
        )
        .with_source(source)
    }

    /// Attaches a cause to the error.
    #[must_use]
    pub fn with_source(mut self, source: impl std::error::Error + Send + Sync + 'static) -> Self {
        self.source = Some(Arc::new(source));
        self
    }

    /// Attaches a retry delay to the error.
    #[must_use]
    pub fn with_retry_after(mut self, after: Duration) -> Self {
        self.retry_after = Some(after);
        self
    }

    /// Rewords the error as one about an item of a batch: fields and message get the prefix, such
    /// as `entries[3]`.
    #[must_use]
    pub fn in_item(mut self, prefix: &str) -> Self {
        for violation in &mut self.violations {
            violation.field = format!("{prefix}.{}", violation.field);
        }
        self.message = format!("{prefix}: {}", self.message);
        self
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Error")
            .field("reason", &self.reason)
            .field("message", &self.message)
            .field("violations", &self.violations)
            .field("source", &self.source.as_ref().map(ToString::to_string))
            .finish()
    }
}

/// Lets code treat conversions that cannot fail like those that can.
impl From<Infallible> for Error {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source
            .as_ref()
            .map(|source| &**source as &(dyn std::error::Error + 'static))
    }
}

/// Number of bytes that a violation takes in the trailers of a gRPC reply. The details have the field and, twice, the
/// description, all in base64. The message has the description percent-encoded.
fn trailer_bytes(violation: &Violation) -> usize {
    let Violation { field, description } = violation;
    let percent_encoded = |byte: u8| -> usize { if byte.is_ascii_alphanumeric() { 1 } else { 3 } };
    let in_message: usize = description.bytes().map(percent_encoded).sum();
    (field.len() + 2 * description.len()).div_ceil(3) * 4 + in_message
}

/// Cuts a text to `max_chars` characters. Violations repeat values of the request, and a long value must not make the
/// error too long to send.
fn cut(mut text: String, max_chars: usize) -> String {
    if let Some((end, _)) = text.char_indices().nth(max_chars) {
        text.truncate(end);
        text.push('…');
    }
    text
}

/// Collects the invalid fields of one request, so that all are reported at once. It keeps only as many as an error
/// names, because a request can have millions.
#[derive(Debug, Default)]
pub struct Violations {
    kept: Vec<Violation>,
    /// Number of violations that were not kept.
    others: usize,
}

impl Violations {
    /// Adds a violation. `description` is a sentence that names the field.
    pub fn push(&mut self, field: impl Into<String>, description: impl Into<String>) {
        self.add(Violation {
            field: cut(field.into(), 80),
            description: cut(description.into(), 240),
        });
    }

    fn add(&mut self, violation: Violation) {
        if self.kept.len() < Error::MAX_VIOLATIONS {
            self.kept.push(violation);
        } else {
            self.others += 1;
        }
    }

    /// Adds the violations of an error about a part of the request.
    pub fn extend(&mut self, error: Error) {
        if error.violations.is_empty() {
            self.push("", error.message);
        } else {
            for violation in error.violations {
                self.add(violation);
            }
        }
    }

    /// The text of an optional field. If it is blank, adds a violation that says what leaving it out means, such as
    /// `for all threads`, and returns `None`.
    pub fn unless_blank(&mut self, text: String, field: &str, without: &str) -> Option<String> {
        if text.trim().is_empty() {
            self.push(
                field,
                format!("`{field}` must not be blank; leave it out {without}"),
            );
            return None;
        }
        Some(text)
    }

    /// Whether no violation was added.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    /// `Ok` with the value if there is no violation.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT`, as from [`Error::from_violations`].
    pub fn finish<T>(self, value: T) -> Result<T> {
        if self.kept.is_empty() {
            Ok(value)
        } else {
            Err(Error::naming(self.kept, self.others))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn violations_that_an_error_does_not_name_are_counted_and_not_kept() {
        let mut violations = Violations::default();
        for i in 0..1_000 {
            violations.push(format!("tags[{i}]"), format!("`tags[{i}]` is wrong"));
        }
        violations.extend(Error::invalid("limit", "`limit` is wrong"));
        assert_eq!(violations.kept.len(), Error::MAX_VIOLATIONS);
        let error = violations.finish(()).unwrap_err();
        assert_eq!(error.violations.len(), Error::MAX_VIOLATIONS);
        assert!(
            error.message.ends_with("`tags[7]` is wrong; and 993 more"),
            "{}",
            error.message
        );
    }
}
