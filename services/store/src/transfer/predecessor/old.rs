//! The interface for reading an mcp-context-server's database.

use async_trait::async_trait;

use crate::transfer::endpoint::TransferError;

/// The id of an entry in an old database.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OldId {
    /// A number.
    Number(i64),
    /// A UUID's 128 bits.
    Uuid(u128),
}

impl OldId {
    /// Parses a UUID in hexadecimal, with or without hyphens.
    #[must_use]
    pub fn parse_uuid(text: &str) -> Option<Self> {
        let hex: String = text.trim().chars().filter(|c| *c != '-').collect();
        let is_hex = hex.len() == 32 && hex.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_hex
            .then(|| u128::from_str_radix(&hex, 16).ok())
            .flatten()
            .map(Self::Uuid)
    }
}

impl std::fmt::Display for OldId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Number(number) => write!(f, "{number}"),
            Self::Uuid(bits) => write!(f, "{bits:032x}"),
        }
    }
}

/// An entry in the list, with what is needed to plan the batches.
#[derive(Debug, Clone, Copy)]
pub struct Listed {
    /// The entry's id.
    pub id: OldId,
    /// Approximate size of its text and metadata in bytes.
    pub bytes: u32,
    /// Number of images.
    pub images: u32,
}

/// A time as the old server stored it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum OldTime {
    /// The old server stored no time.
    #[default]
    Missing,
    /// In microseconds since 1970-01-01T00:00:00Z.
    At(i64),
    /// A text that is not a time of the years 1 to 9999.
    Unreadable(String),
}

impl OldTime {
    /// The time in microseconds, if it is known.
    #[must_use]
    pub const fn known(&self) -> Option<i64> {
        match self {
            Self::At(micros) => Some(*micros),
            Self::Missing | Self::Unreadable(_) => None,
        }
    }
}

/// An entry as the old server stored it.
#[derive(Debug, Clone, Default)]
pub struct OldEntry {
    /// The thread.
    pub thread_id: String,
    /// `user`, `agent`, or another value of an early version.
    pub source: String,
    /// The text.
    pub text: String,
    /// The metadata, as JSON.
    pub metadata: Option<String>,
    /// The summary.
    pub summary: Option<String>,
    /// When it was created.
    pub created_at: OldTime,
    /// When it was last updated.
    pub updated_at: OldTime,
    /// Number of updates.
    pub changes: i64,
    /// The tags.
    pub tags: Vec<String>,
}

/// An image as the old server stored it.
#[derive(Debug, Clone, Default)]
pub struct OldImage {
    /// The bytes.
    pub data: Vec<u8>,
    /// The media type.
    pub mime_type: String,
    /// The metadata, as JSON.
    pub metadata: Option<String>,
}

/// Reads an old database. All reads see the same state.
#[async_trait]
pub trait OldDatabase: Send {
    /// The location, without a password.
    fn shown(&self) -> &str;

    /// All entries, ordered by id, or by creation time when the ids are UUIDs.
    ///
    /// # Errors
    /// [`TransferError`].
    async fn list(&mut self) -> Result<Vec<Listed>, TransferError>;

    /// The entries with these ids, in this order.
    ///
    /// # Errors
    /// [`TransferError`].
    async fn entries(&mut self, ids: &[OldId]) -> Result<Vec<OldEntry>, TransferError>;

    /// The images of an entry, in order.
    ///
    /// # Errors
    /// [`TransferError`].
    async fn images(&mut self, id: OldId) -> Result<Vec<OldImage>, TransferError>;
}
