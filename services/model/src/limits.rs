/// Size limits. One value configures validation and every transport.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Longest text of an entry, in characters (`MAX_TEXT_CHARS`).
    pub max_text_chars: usize,
    /// Largest decoded image, in bytes (`MAX_IMAGE_SIZE_MB`).
    pub max_image_bytes: u64,
    /// Largest total size of the decoded images of one request, in bytes (`MAX_TOTAL_SIZE_MB`).
    pub max_total_image_bytes: u64,
}

impl Limits {
    /// Maximum number of images of one entry.
    pub const MAX_IMAGES: usize = 10;
    /// Maximum number of items of one batch.
    pub const MAX_BATCH: usize = 100;
    /// Maximum number of ids or threads of one delete.
    pub const MAX_DELETE: usize = 1000;
    /// Maximum number of ids of one get.
    pub const MAX_GET: usize = 100;
    /// Largest offset of a ranked search.
    pub const MAX_RANKED_OFFSET: i64 = 10_000;
    /// Largest context id. JavaScript represents integers below 2^53 exactly.
    pub const MAX_ID: i64 = (1 << 53) - 1;
    /// Longest query of a full-text, semantic or hybrid search, in characters.
    pub const MAX_QUERY_CHARS: usize = 10_000;

    /// The limits for these settings; sizes in megabytes (1024 × 1024 bytes).
    #[must_use]
    pub const fn new(max_text_chars: usize, max_image_mb: u64, max_total_mb: u64) -> Self {
        Self {
            max_text_chars,
            max_image_bytes: max_image_mb * 1024 * 1024,
            max_total_image_bytes: max_total_mb * 1024 * 1024,
        }
    }

    /// The largest message any transport sends or accepts, in bytes.
    #[must_use]
    pub const fn max_message_bytes(&self) -> usize {
        max_message_bytes(self.max_total_image_bytes / (1024 * 1024))
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self::new(1_000_000, 10, 100)
    }
}

/// The largest message in bytes: `max(64 MiB, 1.4 × MAX_TOTAL_SIZE_MB + 16 MiB)`. The factor allows for what base64 and
/// JSON add to image bytes. tonic and axum use this limit. rmcp and the stdio transport use a smaller one if
/// GATEWAY_REQUEST_MEMORY_MB has no room for so large a request.
#[must_use]
pub const fn max_message_bytes(max_total_size_mb: u64) -> usize {
    let mib = 1024 * 1024;
    let scaled = max_total_size_mb.saturating_mul(mib).saturating_mul(14) / 10 + 16 * mib;
    (if scaled > 64 * mib { scaled } else { 64 * mib }) as usize
}
