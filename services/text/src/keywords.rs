//! Context keywords: the words of an entry that also count when the later entries of its thread are ranked.

use crate::{Analyzer, TokenKind, fold};

/// Number of leading bytes of a text that are analyzed, about ten times the length of a conversation turn.
pub const CONTEXT_KEYWORDS_BYTES: usize = 4_096;

/// The stems of the first content words of a text, separated by spaces: each once, at most `max`. Empty for a text that
/// consists of stop words.
///
/// Analyzes only the first [`CONTEXT_KEYWORDS_BYTES`] bytes, so a long text takes no longer than a short one.
///
/// ```
/// use context_text::{Analyzer, Language, context_keywords};
///
/// let analyzer = Analyzer::new(Language::English);
/// assert_eq!(context_keywords("Who is on call on the night of the cutover calls?", &analyzer, 10), "call night cutov");
/// ```
#[must_use]
pub fn context_keywords(text: &str, analyzer: &Analyzer, max: usize) -> String {
    let mut end = text.len().min(CONTEXT_KEYWORDS_BYTES);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let language = analyzer.language();
    let (mut stems, mut count) = (String::new(), 0);
    if max == 0 {
        return stems;
    }
    analyzer.tokens(&text[..end], &mut |token| {
        let stop = token.kind == TokenKind::Word && language.is_stop_word(&fold(token.word));
        // A linear search is cheaper than a set for so few words.
        if !stop && !stems.split(' ').any(|stem| stem == token.stem) {
            if count > 0 {
                stems.push(' ');
            }
            stems.push_str(token.stem);
            count += 1;
        }
        count < max
    });
    stems
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Language;

    fn english(text: &str, max: usize) -> String {
        context_keywords(text, &Analyzer::new(Language::English), max)
    }

    #[test]
    fn context_keywords_have_each_content_word_once_and_no_more_than_wanted() {
        assert_eq!(
            english("the running fox runs to the foxes and a dog", 9),
            "run fox dog"
        );
        assert_eq!(english("one two three four", 2), "one two");
        assert_eq!(english("to be or not to be", 9), "");
        assert_eq!(english("word", 0), "");
        assert_eq!(english("数据库", 9), "数据 据库");
    }

    #[test]
    fn only_the_beginning_of_a_long_text_is_analyzed() {
        let long = format!("{}ä late", "again ".repeat(CONTEXT_KEYWORDS_BYTES / 6));
        assert!(!english(&long, 9).contains("late"));
        let cut_within_a_character = format!("a{}", "ä".repeat(CONTEXT_KEYWORDS_BYTES));
        assert!(!cut_within_a_character.is_char_boundary(CONTEXT_KEYWORDS_BYTES));
        assert!(!english(&cut_within_a_character, 9).is_empty());
    }
}
