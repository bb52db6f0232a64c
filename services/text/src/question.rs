//! Questions at the end of a text.

use crate::evidence::ends;
use crate::split::trimmed;

/// How much of a text is questions at its end: their share of the bytes of its sentences, 0 to 1. It is 1 for a text
/// that only asks, and 0 for a text that ends otherwise. A closing emoji or quotation mark changes nothing.
///
/// ```
/// use context_text::closing_question;
///
/// assert_eq!(closing_question("Who has the key?"), 1.0);
/// assert_eq!(closing_question("It is Tuesday. Who has the key?"), 16.0 / 30.0);
/// assert_eq!(closing_question("Who has the key? Ann has it."), 0.0);
/// ```
#[must_use]
pub fn closing_question(text: &str) -> f64 {
    let (mut start, mut asked, mut all) = (0, 0, 0);
    for end in ends(text).chain([text.len()]) {
        let sentence = &text[trimmed(text, start..end)];
        start = end;
        if !sentence.contains(char::is_alphanumeric) {
            continue;
        }
        all += sentence.len();
        asked = if is_question(sentence) {
            asked + sentence.len()
        } else {
            0
        };
    }
    if all > 0 {
        asked as f64 / all as f64
    } else {
        0.0
    }
}

/// Whether a question mark is among the characters after the last word.
fn is_question(sentence: &str) -> bool {
    sentence
        .chars()
        .rev()
        .take_while(|c| !c.is_alphanumeric())
        .any(|c| matches!(c, '?' | '？' | '؟'))
}

#[cfg(test)]
mod tests {
    use super::closing_question;

    #[test]
    fn only_questions_at_the_end_count() {
        assert_eq!(closing_question("Really? Since when?"), 1.0);
        assert_eq!(closing_question("Ann: who has the key?"), 1.0);
        assert_eq!(closing_question("Who has the key?\n\nAnn has it"), 0.0);
        assert_eq!(closing_question("see /search?q=key"), 0.0);
        let half = closing_question("The key is lost!!\nWho has another?!");
        assert!((half - 0.5).abs() < 0.02, "{half}");
    }

    #[test]
    fn marks_of_other_scripts_and_signs_after_the_question_change_nothing() {
        for text in [
            "誰が鍵を持っていますか？",
            "من لديه المفتاح؟",
            "Who has it? 😊",
            "\"Who has it?\"",
            "Who has it??",
        ] {
            assert_eq!(closing_question(text), 1.0, "{text}");
        }
    }

    #[test]
    fn a_text_without_words_asks_nothing() {
        for text in ["", " \n", "?", "!?"] {
            assert_eq!(closing_question(text), 0.0, "{text}");
        }
    }
}
