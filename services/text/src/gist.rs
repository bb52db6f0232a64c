//! What a text contributes to the search for its neighbours.

use crate::{Analyzer, TokenKind, fold};

/// Bytes of a text that are looked at: some ten times what a turn of a conversation has.
pub const GIST_BYTES: usize = 4_096;

/// The stems of the first content words of a text, each once, at most `max`, with a space between them. A text of stop
/// words alone has none.
///
/// Looks at no more than the first [`GIST_BYTES`], so it takes no longer for a long text than for a short one.
///
/// ```
/// use context_text::{Analyzer, Language, gist};
///
/// let analyzer = Analyzer::new(Language::English);
/// assert_eq!(gist("Who is on call on the night of the cutover calls?", &analyzer, 10), "call night cutov");
/// ```
#[must_use]
pub fn gist(text: &str, analyzer: &Analyzer, max: usize) -> String {
    let mut end = text.len().min(GIST_BYTES);
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
        // A separate list of what was seen would be longer than the few words that are compared.
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
        gist(text, &Analyzer::new(Language::English), max)
    }

    #[test]
    fn a_gist_has_each_content_word_once_and_no_more_than_wanted() {
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
    fn only_the_beginning_of_a_long_text_is_looked_at() {
        let long = format!("{}ä late", "again ".repeat(GIST_BYTES / 6));
        assert!(!english(&long, 9).contains("late"));
        let cut_within_a_character = "ä".repeat(GIST_BYTES);
        assert!(!english(&cut_within_a_character, 9).is_empty());
    }
}
