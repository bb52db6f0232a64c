//! The outcomes of requests with an idempotency key, as both databases keep them.

use context_model::{Error, Reason, Timestamp, Violation};
use serde::{Deserialize, Serialize};

use crate::write::{ErrorByMessage, Idempotency, ItemOutcome, StoredBatch};

/// How long an outcome is kept.
const KEPT_MICROS: i64 = 24 * 60 * 60 * 1_000_000;

/// The outcome of a write as it is kept.
#[derive(Debug, Serialize, Deserialize)]
pub enum Record {
    /// Of a batch.
    Batch(Vec<RecordedItem>),
    /// How many were deleted.
    Deleted(u64),
    /// Of an artifact, without any content, so that none survives the artifact.
    Artifact {
        /// Its id.
        id: String,
        /// The version that was made.
        version: i64,
    },
    /// Of an operation that takes no idempotency key; nothing is kept of it, and it is nobody's outcome.
    Once,
}

/// The outcome of one item of a batch as it is kept.
#[derive(Debug, Serialize, Deserialize)]
pub enum RecordedItem {
    /// It was applied.
    Applied(ItemOutcome),
    /// It was refused.
    Failed {
        /// The reason.
        reason: Reason,
        /// The sentence.
        message: String,
        /// The fields at fault.
        violations: Vec<Violation>,
    },
}

/// An outcome that can be kept and given again.
pub trait Recorded: Sized {
    /// What is kept of it.
    fn to_record(&self) -> Record;
    /// The outcome again; `None` when the record is of another operation's outcome.
    fn from_record(record: Record) -> Option<Self>;
}

impl Recorded for StoredBatch {
    fn to_record(&self) -> Record {
        Record::Batch(
            self.items
                .iter()
                .map(|item| match item {
                    Ok(outcome) => RecordedItem::Applied(outcome.clone()),
                    Err(error) => {
                        let Error {
                            reason,
                            message,
                            violations,
                            ..
                        } = error.0.clone();
                        RecordedItem::Failed {
                            reason,
                            message,
                            violations,
                        }
                    }
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

/// The outcome of an operation that takes no idempotency key, so that nobody can ask for it again.
#[derive(Debug, Clone, PartialEq, Eq)]
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
    /// Bytes that an outcome takes beside its own text and its key: the hash, the numbers, and the rows and indexes around
    /// them.
    pub const OVERHEAD_BYTES: i64 = 128;

    /// Bytes that the outcome of a request with so many items takes, about.
    #[must_use]
    pub fn expected_bytes(&self, items: usize) -> u64 {
        (self.key.len() + items.saturating_mul(64)) as u64 + Self::OVERHEAD_BYTES.unsigned_abs()
    }

    /// The time (microseconds) up to which outcomes are forgotten.
    #[must_use]
    pub const fn forgotten_up_to(now: Timestamp) -> i64 {
        now.micros().saturating_sub(KEPT_MICROS)
    }

    /// Refuses a request under the key of another one, which had this hash.
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

    /// The error of a key that belongs to another request.
    #[must_use]
    pub fn reused() -> Error {
        Error::new(
            Reason::IdempotencyKeyReused,
            "this idempotency key was used for another request within 24 hours; take a new key for a new request",
        )
    }
}
