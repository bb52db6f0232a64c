//! The order of log writes, log syncs and acknowledgements.

use super::Disk;

/// Something that happened to the write-ahead log.
#[derive(Debug)]
pub(super) enum Event {
    LogWrite { offset: u64, data: Box<[u8]> },
    LogSync,
}

/// Bytes of the header of a log and of a frame in it (<https://www.sqlite.org/fileformat.html#the_write_ahead_log>).
const LOG_HEADER: u64 = 32;
const FRAME_HEADER: usize = 24;

impl Event {
    fn holds(&self, needle: &[u8]) -> bool {
        matches!(self, Self::LogWrite { data, .. } if data.windows(needle.len()).any(|window| window == needle))
    }

    /// Whether this is the header of a frame that ends a transaction: it carries the size of the database.
    fn ends_transaction(&self) -> bool {
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

impl Disk {
    /// Where the trace stands.
    #[must_use]
    pub fn mark(&self) -> usize {
        self.lock().events.len()
    }

    /// Checks, at the moment of an acknowledgement, that the transaction which first wrote `text` was followed by a sync
    /// of the log. The text must be unique, and short enough to lie within a page; it was written after `mark`.
    ///
    /// # Errors
    /// What is missing, as a sentence.
    pub fn was_synced(&self, text: &str, mark: usize) -> Result<(), String> {
        let state = self.lock();
        let events = &state.events[mark..];
        let Some(written) = events.iter().position(|event| event.holds(text.as_bytes())) else {
            return Err(format!(
                "`{text}` was acknowledged before it was in the log"
            ));
        };
        // A frame's header is written before its page.
        let frame = written.saturating_sub(1);
        let Some(committed) = events[frame..]
            .iter()
            .position(Event::ends_transaction)
            .map(|at| frame + at)
        else {
            return Err(format!(
                "`{text}` was acknowledged before its transaction ended in the log"
            ));
        };
        let last = committed.max(written) + 1;
        if events[last..]
            .iter()
            .any(|event| matches!(event, Event::LogSync))
        {
            Ok(())
        } else {
            Err(format!(
                "`{text}` was acknowledged before the log was synced"
            ))
        }
    }
}
