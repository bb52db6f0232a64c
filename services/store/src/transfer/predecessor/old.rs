//! An mcp-context-server's database as it is read.

use async_trait::async_trait;

use crate::transfer::place::TransferError;

/// How an old database names an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OldId {
    /// A number.
    Number(i64),
    /// A UUID's 128 bits.
    Uuid(u128),
}

impl OldId {
    /// A UUID in hexadecimal, with or without hyphens.
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

/// Where an entry stands in the order, and what reading it costs.
#[derive(Debug, Clone, Copy)]
pub struct Listed {
    /// Its name.
    pub id: OldId,
    /// Bytes of its text and metadata.
    pub bytes: u32,
    /// Its images.
    pub images: u32,
}

/// An entry as the old server stored it.
#[derive(Debug, Clone, Default)]
pub struct OldEntry {
    /// Its thread.
    pub thread_id: String,
    /// `user` or `agent`.
    pub source: String,
    /// Its text.
    pub text: String,
    /// Its metadata, as JSON.
    pub metadata: Option<String>,
    /// Its summary.
    pub summary: Option<String>,
    /// When it was created, in microseconds; `None` when that cannot be read.
    pub created_at: Option<i64>,
    /// When it was changed.
    pub updated_at: Option<i64>,
    /// How often it was changed.
    pub changes: i64,
    /// Its tags.
    pub tags: Vec<String>,
}

/// An image as the old server stored it.
#[derive(Debug, Clone, Default)]
pub struct OldImage {
    /// Its bytes.
    pub data: Vec<u8>,
    /// Its type.
    pub mime_type: String,
    /// Its metadata, as JSON.
    pub metadata: Option<String>,
}

/// Reads an old database, in one state from first to last.
#[async_trait]
pub trait OldDatabase: Send {
    /// Where it is, without a password.
    fn shown(&self) -> &str;

    /// Every entry, in the order of their ids, or of their creation where the ids are UUIDs.
    ///
    /// # Errors
    /// [`TransferError`].
    async fn list(&mut self) -> Result<Vec<Listed>, TransferError>;

    /// These entries, in this order.
    ///
    /// # Errors
    /// [`TransferError`].
    async fn entries(&mut self, ids: &[OldId]) -> Result<Vec<OldEntry>, TransferError>;

    /// An entry's images, in order.
    ///
    /// # Errors
    /// [`TransferError`].
    async fn images(&mut self, id: OldId) -> Result<Vec<OldImage>, TransferError>;
}
