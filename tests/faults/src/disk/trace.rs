//! The order of log writes, log syncs and acknowledgements.

use super::Disk;
use super::event::Event;

impl Disk {
    /// The current position in the trace.
    #[must_use]
    pub fn mark(&self) -> usize {
        self.lock().events.len()
    }

    /// Checks, when a write is acknowledged, that the transaction which first wrote `text` was followed by a sync of
    /// the log. The text must be unique, short enough to lie within one page, and written after `mark`.
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
