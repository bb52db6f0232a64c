//! Choosing the part of a text that a model reads.

use std::collections::HashMap;
use std::ops::Range;

use crate::Analyzer;
use crate::split::{Break, break_before, estimated_tokens, floor, trimmed};

/// The part of a text, of at most `max` estimated tokens, whose words have the greatest total weight. `weights` are the
/// weights of stems; a word that occurs several times counts once. The part begins with a sentence if one begins
/// shortly before these words, and is as long as `max` allows. If the text has none of the words, it is the start of
/// the text.
///
/// ```
/// use std::collections::HashMap;
/// use context_text::{Analyzer, Language, best_part};
///
/// let analyzer = Analyzer::new(Language::English);
/// let text = "It was late. The foxes slept. A dog barked at them. Nobody heard it.";
/// let words = HashMap::from([("dog", 1.0), ("bark", 1.0), ("late", 0.5)]);
/// assert_eq!(best_part(text, &words, &analyzer, 9), "A dog barked at them.");
/// ```
#[must_use]
pub fn best_part<'t>(
    text: &'t str,
    weights: &HashMap<&str, f64>,
    analyzer: &Analyzer,
    max: usize,
) -> &'t str {
    let tokens = estimated_tokens(text);
    if tokens.len() <= max {
        return text;
    }
    let words = heaviest(text, &tokens, weights, analyzer, max);
    // As many tokens before the words as after them, unless the text ends.
    let slack = max.saturating_sub(words.len());
    let from = words
        .start
        .saturating_sub(slack / 2)
        .min(tokens.len().saturating_sub(max));
    let begins = |least: Break| {
        let is =
            |token: &usize| break_before(text, &tokens, *token).is_some_and(|kind| kind >= least);
        (from..=words.start).find(|token| *token == 0 || is(token))
    };
    let start = begins(Break::Sentence)
        .or_else(|| begins(Break::Word))
        .unwrap_or(from);
    let to = (start + max).min(tokens.len());
    let end = if to == tokens.len() {
        text.len()
    } else {
        let ends = |token: &usize| break_before(text, &tokens, *token).is_some();
        let last = (words.end.max(start + 1)..=to).rev().find(ends);
        floor(text, tokens[last.unwrap_or(to)])
    };
    &text[trimmed(text, floor(text, tokens[start])..end)]
}

/// The first range of at most `max` tokens whose words have the greatest total weight. It begins and ends with one of
/// these words. A word longer than `max` is a range by itself. Without any of the words, it is empty.
fn heaviest(
    text: &str,
    tokens: &[usize],
    weights: &HashMap<&str, f64>,
    analyzer: &Analyzer,
    max: usize,
) -> Range<usize> {
    let token_at = |byte: usize| tokens.partition_point(|start| *start <= byte).max(1) - 1;
    let mut hits: Vec<(Range<usize>, &str, f64)> = Vec::new();
    analyzer.tokens(text, &mut |word| {
        if let Some((stem, weight)) = weights.get_key_value(word.stem) {
            let range = token_at(word.start)..token_at(word.end.saturating_sub(1)) + 1;
            hits.push((range, *stem, *weight));
        }
        true
    });
    let mut counts: HashMap<&str, usize> = HashMap::new();
    let (mut first, mut weight) = (0, 0.0);
    let mut best = (0.0, 0..0);
    for (last, (range, stem, of_word)) in hits.iter().enumerate() {
        let count = counts.entry(*stem).or_default();
        *count += 1;
        if *count == 1 {
            weight += of_word;
        }
        // Drop words from the start that occur again later, or that make the range too long.
        while first < last {
            let (before, stem, of_word) = &hits[first];
            let count = counts.entry(*stem).or_default();
            let too_long = range.end - before.start > max;
            if !too_long && *count == 1 {
                break;
            }
            *count -= 1;
            if *count == 0 {
                weight -= of_word;
            }
            first += 1;
        }
        if weight > best.0 + 1e-9 {
            best = (weight, hits[first].0.start..range.end);
        }
    }
    best.1
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Language;

    fn part<'t>(text: &'t str, words: &[(&str, f64)], max: usize) -> &'t str {
        let weights = words.iter().copied().collect();
        best_part(text, &weights, &Analyzer::new(Language::English), max)
    }

    #[test]
    fn the_part_with_the_most_important_words_is_taken() {
        let filler = "Nothing happened on that day. ".repeat(20);
        let text =
            format!("{filler}The budget is fine. {filler}The budget of the bakery grows. {filler}");
        let words = [("budget", 0.5), ("bakeri", 1.0)];
        let found = part(&text, &words, 60);
        assert!(found.contains("The budget of the bakery grows."), "{found}");
        assert!(estimated_tokens(found).len() <= 60, "{found}");
        assert!(
            found.starts_with("Nothing"),
            "it begins with a sentence: {found}"
        );
        assert!(
            estimated_tokens(found).len() > 40,
            "it uses the room: {found}"
        );
    }

    #[test]
    fn a_short_text_is_whole_and_a_text_without_the_words_begins_at_its_start() {
        assert_eq!(
            part("One two three.", &[("two", 1.0)], 10),
            "One two three."
        );
        let text = format!("start {}", "word ".repeat(100));
        let beginning = format!("start{}", " word".repeat(9));
        assert_eq!(part(&text, &[("absent", 1.0)], 20), beginning);
        assert_eq!(part(&text, &[], 20), beginning);
    }

    #[test]
    fn a_word_longer_than_the_part_is_cut() {
        let text = "x".repeat(1_000);
        assert!(!part(&text, &[(&text[..64], 1.0)], 10).is_empty());
    }

    proptest! {
        #[test]
        fn a_part_is_never_too_long_and_never_blank(text in "[ab語\\. \n]{0,200}", max in 1usize..40) {
            let found = part(&text, &[("a", 1.0), ("ab", 0.5), ("語語", 2.0)], max);
            prop_assert!(text.contains(found));
            prop_assert!(found.len() == text.len() || estimated_tokens(found).len() <= max, "{:?}", found);
            prop_assert!(text.trim().is_empty() || !found.trim().is_empty());
        }
    }
}
