//! Events of the write-ahead log.

/// An event of the write-ahead log.
#[derive(Debug)]
pub(super) enum Event {
    LogWrite { offset: u64, data: Box<[u8]> },
    LogSync,
}

/// Sizes of a log's header and of a frame's header in bytes
/// (<https://www.sqlite.org/fileformat.html#the_write_ahead_log>).
const LOG_HEADER: u64 = 32;
const FRAME_HEADER: usize = 24;

impl Event {
    pub(super) fn holds(&self, needle: &[u8]) -> bool {
        matches!(self, Self::LogWrite { data, .. } if data.windows(needle.len()).any(|window| window == needle))
    }

    /// Whether this is the header of a frame that ends a transaction. Such a header contains the size of the database.
    pub(super) fn ends_transaction(&self) -> bool {
        match self {
            Self::LogWrite { offset, data } => {
                data.len() == FRAME_HEADER
                    && *offset >= LOG_HEADER
                    && data.get(4..8).is_some_and(|size| size != [0; 4])
            }
            Self::LogSync => false,
        }
    }
}
