//! The stored outcomes of requests with an idempotency key, in the form that both databases use.

use context_model::{Error, Reason, Timestamp, Violation};
use serde::{Deserialize, Serialize};

use crate::write::{ErrorByMessage, Idempotency, ItemOutcome, StoredBatch};

/// How long an outcome is stored.
const RETENTION_MICROS: i64 = 24 * 60 * 60 * 1_000_000;

/// The stored outcome of a write.
#[derive(Debug, Serialize, Deserialize)]
pub enum Record {
    /// The outcome of a batch.
    Batch(Vec<RecordedItem>),
    /// Number of deleted entries.
    Deleted(u64),
    /// An artifact, without its content, so that no content survives the artifact.
    Artifact {
        /// The artifact's id.
        id: String,
        /// The version after the write.
        version: i64,
    },
    /// The outcome of an operation without an idempotency key. It is never stored and matches no outcome.
    Once,
}

/// The stored outcome of one item of a batch.
#[derive(Debug, Serialize, Deserialize)]
pub enum RecordedItem {
    /// It was applied.
    Applied(ItemOutcome),
    /// It was rejected.
    Failed {
        /// The reason.
        reason: Reason,
        /// The message.
        message: String,
        /// The invalid fields.
        violations: Vec<Violation>,
    },
}

impl RecordedItem {
    fn failed(error: &ErrorByMessage) -> Self {
        let Error {
            reason,
            message,
            violations,
            ..
        } = error.0.clone();
        Self::Failed {
            reason,
            message,
            violations,
        }
    }
}

/// An outcome that can be stored and returned again.
pub trait Recorded: Sized {
    /// The stored form.
    fn to_record(&self) -> Record;
    /// Restores the outcome. `None` when the record belongs to another operation.
    fn from_record(record: Record) -> Option<Self>;
}

impl Recorded for StoredBatch {
    fn to_record(&self) -> Record {
        Record::Batch(
            self.items
                .iter()
                .map(|item| match item {
                    Ok(outcome) => RecordedItem::Applied(outcome.clone()),
                    Err(error) => RecordedItem::failed(error),
                })
                .collect(),
        )
    }

    fn from_record(record: Record) -> Option<Self> {
        let Record::Batch(items) = record else {
            return None;
        };
        let items = items.into_iter().map(|item| match item {
            RecordedItem::Applied(outcome) => Ok(outcome),
            RecordedItem::Failed {
                reason,
                message,
                violations,
            } => {
                let mut error = Error::new(reason, message);
                error.violations = violations;
                Err(Box::new(ErrorByMessage(error)))
            }
        });
        Some(Self {
            items: items.collect(),
        })
    }
}

impl Recorded for u64 {
    fn to_record(&self) -> Record {
        Record::Deleted(*self)
    }

    fn from_record(record: Record) -> Option<Self> {
        match record {
            Record::Deleted(count) => Some(count),
            Record::Batch(_) | Record::Artifact { .. } | Record::Once => None,
        }
    }
}

/// The outcome of an operation without an idempotency key, which cannot be requested again.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Once<T>(pub T);

impl<T> Recorded for Once<T> {
    fn to_record(&self) -> Record {
        Record::Once
    }

    fn from_record(_: Record) -> Option<Self> {
        None
    }
}

impl Idempotency {
    /// Bytes that a stored outcome takes in addition to its text and its key: the hash, the numbers, the row and the
    /// index entries.
    pub const OVERHEAD_BYTES: i64 = 128;

    /// Approximate number of bytes that the outcome of a request with this many items takes.
    #[must_use]
    pub fn expected_bytes(&self, items: usize) -> u64 {
        (self.key.len() + items.saturating_mul(64)) as u64 + Self::OVERHEAD_BYTES.unsigned_abs()
    }

    /// The stored form of the whole request's outcome.
    #[must_use]
    pub fn record(&self, outcome: &impl Recorded) -> Record {
        let mut record = outcome.to_record();
        if let Record::Batch(items) = &mut record {
            for (index, error) in &self.rejected {
                let index = items.len().min(*index);
                items.insert(index, RecordedItem::failed(error));
            }
        }
        record
    }

    /// The time (microseconds) up to which outcomes have expired.
    #[must_use]
    pub const fn forgotten_up_to(now: Timestamp) -> i64 {
        now.micros().saturating_sub(RETENTION_MICROS)
    }

    /// Checks that the stored request hash is this request's hash.
    ///
    /// # Errors
    /// `IDEMPOTENCY_KEY_REUSED` when the hashes differ.
    pub fn check(&self, first_hash: &[u8]) -> Result<(), Error> {
        if first_hash == self.request_hash {
            Ok(())
        } else {
            Err(Self::reused())
        }
    }

    /// The error for an idempotency key that belongs to another request.
    #[must_use]
    pub fn reused() -> Error {
        Error::new(
            Reason::IdempotencyKeyReused,
            "this idempotency key was used for another request within 24 hours; use a new key for a new request",
        )
    }
}
