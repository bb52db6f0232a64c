//! Cutting a long text into chunks for a model with a limited number of tokens.

use std::ops::Range;

/// The sizes of chunks, in tokens of the model that reads them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkSizes {
    /// Preferred maximum length. A chunk ends at the best position before it, if there is a good one.
    pub target: usize,
    /// Absolute maximum length. A text no longer than this is one chunk. At least `target`.
    pub max: usize,
    /// Maximum number of tokens shared by adjacent chunks. [`chunks`] uses at most half of `target`.
    pub overlap: usize,
}

/// Quality of a position for a cut, in ascending order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Break {
    Word,
    Sentence,
    Line,
    Paragraph,
}

/// Cuts a text into chunks of the given sizes. Each chunk is a byte range of the text without white space at its ends.
/// Cuts between paragraphs are preferred, then between lines, sentences and words. A word longer than a chunk is cut at
/// the start of a token. As soon as the rest fits into one chunk, it is the last one. `tokens` are the byte offsets at
/// which the tokens of the text start, in ascending order.
///
/// Together the chunks hold every character that is not white space. A blank text has no chunks.
///
/// ```
/// use context_text::{ChunkSizes, chunks};
///
/// let text = "One two. Three four. Five six.";
/// let words = [0, 4, 9, 15, 21, 26];
/// let sizes = ChunkSizes { target: 3, max: 3, overlap: 0 };
/// let parts: Vec<&str> = chunks(text, &words, sizes).into_iter().map(|range| &text[range]).collect();
/// assert_eq!(parts, ["One two.", "Three four.", "Five six."]);
/// ```
#[must_use]
pub fn chunks(text: &str, tokens: &[usize], sizes: ChunkSizes) -> Vec<Range<usize>> {
    let max = sizes.max.max(1);
    let target = sizes.target.clamp(1, max);
    let overlap = sizes.overlap.min(target / 2);
    let whole = trimmed(text, 0..text.len());
    if whole.is_empty() {
        return Vec::new();
    }
    if tokens.len() <= max {
        return vec![whole];
    }
    let mut chunks = Vec::with_capacity(tokens.len() / target + 1);
    let mut first = 0;
    loop {
        let start = if first == 0 {
            0
        } else {
            floor(text, tokens[first])
        };
        if tokens.len() - first <= max {
            push(&mut chunks, text, start..text.len());
            return chunks;
        }
        let cut = cut(text, tokens, first, target, max);
        push(&mut chunks, text, start..floor(text, tokens[cut]));
        first = next_start(text, tokens, first, cut, overlap);
    }
}

/// The token before which the chunk that starts at token `first` ends. It has the best kind of break in the second half
/// of the target, and is the last of that kind. If that half has no break better than between words, a better one up to
/// `max` is used. If there is no break at all, the chunk ends at the target.
fn cut(text: &str, tokens: &[usize], first: usize, target: usize, max: usize) -> usize {
    let best = |from: usize, to: usize| {
        (from..=to)
            .filter_map(|token| break_before(text, tokens, token).map(|kind| (kind, token)))
            .max_by_key(|(kind, token)| (*kind, *token))
    };
    let half = first + target.div_ceil(2).max(1);
    let near = best(half, first + target);
    let found = match near {
        Some((Break::Word, token)) => best(first + target, first + max)
            .filter(|(kind, _)| *kind > Break::Word)
            .or(Some((Break::Word, token))),
        Some(found) => Some(found),
        None => best(first + target, first + max),
    };
    found.map_or(first + target, |(_, token)| token)
}

/// The first token of the next chunk: up to `overlap` tokens before the cut, at the start of a sentence or at least of
/// a word.
fn next_start(text: &str, tokens: &[usize], first: usize, cut: usize, overlap: usize) -> usize {
    let from = cut.saturating_sub(overlap).max(first + 1);
    let begins = |least: Break| {
        (from..cut)
            .find(|token| break_before(text, tokens, *token).is_some_and(|kind| kind >= least))
    };
    if overlap == 0 || from >= cut {
        cut
    } else {
        begins(Break::Sentence)
            .or_else(|| begins(Break::Word))
            .unwrap_or(cut)
    }
}

/// The kind of break before this token, if there is one.
pub(crate) fn break_before(text: &str, tokens: &[usize], token: usize) -> Option<Break> {
    let at = floor(text, *tokens.get(token)?);
    // Several tokens of one character start at the same byte.
    if token > 0 && floor(text, tokens[token - 1]) == at {
        return None;
    }
    let before = &text[..at];
    let words = before.trim_end_matches(char::is_whitespace);
    let space = &before[words.len()..];
    let ends_sentence = |c: char| matches!(c, '.' | '!' | '?' | '…' | ':' | ';');
    let ends_dense_sentence = |c: char| matches!(c, '。' | '！' | '？' | '；');
    if space.matches('\n').take(2).count() == 2 {
        Some(Break::Paragraph)
    } else if space.contains('\n') {
        Some(Break::Line)
    } else if !space.is_empty() && words.ends_with(ends_sentence)
        || words.ends_with(ends_dense_sentence)
    {
        Some(Break::Sentence)
    } else if !space.is_empty() {
        Some(Break::Word)
    } else {
        None
    }
}

fn push(chunks: &mut Vec<Range<usize>>, text: &str, range: Range<usize>) {
    let range = trimmed(text, range);
    match chunks.last_mut() {
        // Only tokens of white space lie between the starts of the two chunks.
        Some(last) if last.start == range.start => last.end = last.end.max(range.end),
        Some(last) if last.end >= range.end => {}
        _ if range.is_empty() => {}
        _ => chunks.push(range),
    }
}

/// The range without the white space at its ends.
pub(crate) fn trimmed(text: &str, range: Range<usize>) -> Range<usize> {
    let part = &text[range.clone()];
    let start = range.start + part.len() - part.trim_start().len();
    start..start.max(range.start + part.trim_end().len())
}

/// The last character boundary at or before byte `at`.
pub(crate) fn floor(text: &str, at: usize) -> usize {
    (0..=at.min(text.len()))
        .rev()
        .find(|at| text.is_char_boundary(*at))
        .unwrap_or(0)
}

/// Estimated token offsets for a model whose tokenizer is not available locally: one token for every three ASCII
/// letters or digits of a word, and one for each other character that is not white space. Most models produce fewer
/// tokens for most texts.
#[must_use]
pub fn estimated_tokens(text: &str) -> Vec<usize> {
    let mut tokens = Vec::with_capacity(text.len() / 3);
    let mut in_word = 0;
    for (at, c) in text.char_indices() {
        if c.is_whitespace() {
            in_word = 0;
            continue;
        }
        let alone = !c.is_ascii_alphanumeric();
        if alone || in_word % 3 == 0 {
            tokens.push(at);
        }
        in_word = if alone { 0 } else { in_word + 1 };
    }
    tokens
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn words(text: &str) -> Vec<usize> {
        let starts = |(at, c): (usize, char)| {
            (!c.is_whitespace()
                && text[..at]
                    .chars()
                    .next_back()
                    .is_none_or(char::is_whitespace))
            .then_some(at)
        };
        text.char_indices().filter_map(starts).collect()
    }

    fn split(text: &str, target: usize, max: usize, overlap: usize) -> Vec<&str> {
        chunks(
            text,
            &words(text),
            ChunkSizes {
                target,
                max,
                overlap,
            },
        )
        .into_iter()
        .map(|range| &text[range])
        .collect()
    }

    #[test]
    fn a_text_that_fits_is_one_chunk_and_a_blank_one_none() {
        assert_eq!(split(" one two ", 2, 2, 1), ["one two"]);
        assert_eq!(split(" \n ", 2, 2, 1), [""; 0]);
    }

    #[test]
    fn the_best_cut_is_between_paragraphs_then_lines_then_sentences() {
        assert_eq!(
            split("a b c d. e\n\nf g h i j", 6, 6, 0),
            ["a b c d. e", "f g h i j"]
        );
        assert_eq!(
            split("a b c d. e\nf g h i j", 6, 6, 0),
            ["a b c d. e", "f g h i j"]
        );
        assert_eq!(
            split("a b c d. e f g h i j", 6, 6, 0),
            ["a b c d.", "e f g h i j"]
        );
        assert_eq!(
            split("a b c d e f g h", 3, 4, 0),
            ["a b c", "d e f", "g h"],
            "words, when there is nothing better"
        );
    }

    #[test]
    fn adjacent_chunks_share_the_last_sentence_that_fits_the_overlap() {
        assert_eq!(
            split("a b c d. e f. g h i j k", 6, 6, 2),
            ["a b c d. e f.", "e f. g h i j", "i j k"]
        );
    }

    #[test]
    fn a_word_longer_than_a_chunk_is_cut_at_a_token() {
        let text = "ääääääää";
        let tokens: Vec<usize> = (0..8).map(|i| i * 2).collect();
        let found = chunks(
            text,
            &tokens,
            ChunkSizes {
                target: 3,
                max: 3,
                overlap: 0,
            },
        );
        assert_eq!(found, [0..6, 6..12, 12..16]);
    }

    proptest! {
        #[test]
        fn chunks_hold_everything_and_are_no_longer_than_allowed(
            text in "[a-c .\n!äß中文]{0,200}", target in 1usize..12, extra in 0usize..6, overlap in 0usize..6,
        ) {
            for tokens in [words(&text), estimated_tokens(&text), text.char_indices().map(|(at, _)| at).collect()] {
                let sizes = ChunkSizes { target, max: target + extra, overlap };
                let found = chunks(&text, &tokens, sizes);
                let mut covered = vec![false; text.len()];
                for range in &found {
                    covered[range.clone()].fill(true);
                    let inside = tokens.iter().filter(|token| range.contains(token) && !text[**token..].starts_with(char::is_whitespace)).count();
                    prop_assert!(inside <= sizes.max, "{range:?} has {inside} tokens");
                }
                for (at, c) in text.char_indices() {
                    prop_assert!(covered[at] || c.is_whitespace(), "{at} is in no chunk");
                }
                prop_assert!(found.windows(2).all(|pair| pair[0].start < pair[1].start));
            }
        }
    }
}
