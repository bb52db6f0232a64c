//! Evidence: the part of an entry's text that answers the query, for results whose opening does not.

use std::collections::HashMap;
use std::ops::Range;

use context_store::{ChunkRange, StoredEntry};
use context_text::{Analyzer, Clues, ContentWord};

use super::documents::end_of_shown;

/// Maximum number of characters in a snippet.
pub(super) const SNIPPET_CHARS: usize = 300;
/// At least this many characters of each text are searched for evidence. The nearest chunk is searched even if it lies
/// beyond them.
const SEARCHED_CHARS: u32 = 32_000;

/// What a search knows about the query and the entries of a page. The snippets are selected by it.
pub(super) struct Evidence {
    /// The content words of the query.
    pub words: Vec<ContentWord>,
    /// The chunk of each entry that is nearest to the query, if the semantic retriever found the entry.
    pub chunks: HashMap<i64, ChunkRange>,
    /// The similarity to the query of each sentence that was compared with it (sentences.rs).
    pub similarities: HashMap<String, f64>,
}

impl Evidence {
    /// Number of characters to read of each text.
    pub fn text_chars(&self) -> u32 {
        let last = self.chunks.values().map(|chunk| chunk.end).max();
        last.unwrap_or_default().max(SEARCHED_CHARS)
    }

    /// The evidence in an entry's text. The result shows at most `shown_chars` characters of it. `None` if they are the
    /// whole text, if they match clearly better than the rest, or if nothing matches.
    pub fn snippet(
        &self,
        entry: &StoredEntry,
        shown_chars: usize,
        analyzer: &Analyzer,
    ) -> Option<String> {
        let text = entry.text.as_str();
        let opening = end_of_shown(entry, shown_chars)?;
        let chunk = self.chunks.get(&entry.id);
        let nearest = chunk.map(|chunk| character_range(text, (chunk.start, chunk.end)));
        let clues = Clues {
            words: &self.words,
            nearest: nearest.as_ref(),
            similarity: &|sentence| self.similarities.get(sentence).copied(),
        };
        context_text::evidence(text, opening, clues, analyzer, SNIPPET_CHARS)
    }
}

/// The bytes of the characters of a text from `start` to `end`.
pub(super) fn character_range(text: &str, (start, end): (u32, u32)) -> Range<usize> {
    let byte = |character: u32| {
        text.char_indices()
            .nth(character as usize)
            .map_or(text.len(), |(byte, _)| byte)
    };
    let (start, end) = (byte(start), byte(end));
    start.min(end)..end
}
