//! Evidence: the part of a text that shows why a search found it, when its opening does not.

use std::collections::HashMap;
use std::ops::Range;

use crate::snippet::ELLIPSIS;
use crate::window::is_character_boundary;
use crate::{Analyzer, ContentWord};

/// Added to the score of a part with words of the query if the part begins in the nearest chunk. The weights of all
/// words add up to 1.
const NEAREST_BONUS: f64 = 0.1;

/// Whole sentences around the words of the query that a text has, at most `max_chars` characters, with `...` at the
/// cuts. `nearest` are the bytes of the chunk that is nearest to the query: of nearly equal parts, one in it is chosen.
/// Without any of the words the result is the beginning of that chunk, beyond the opening.
///
/// `None` if the opening, the first `opening` bytes of the text, has more of the words than any other part, or if no
/// part has any and half of the nearest chunk is in the opening. Takes time linear in the length of the text.
///
/// ```
/// use context_text::{Analyzer, Language, content_words, evidence};
///
/// let analyzer = Analyzer::new(Language::English);
/// let words = content_words("when does the build run?", &analyzer);
/// let text = "We talked about the cellar. The nightly build runs at half past two. Ann has the key.";
/// let found = evidence(text, 27, None, &words, &analyzer, 50);
/// assert_eq!(found.as_deref(), Some("...The nightly build runs at half past two...."));
/// ```
#[must_use]
pub fn evidence(
    text: &str,
    opening: usize,
    nearest: Option<Range<usize>>,
    words: &[ContentWord],
    analyzer: &Analyzer,
    max_chars: usize,
) -> Option<String> {
    let budget = max_chars.saturating_sub(2 * ELLIPSIS.len());
    let parts = Parts::of(
        sentences(text, budget),
        text,
        words,
        analyzer,
        nearest.as_ref(),
    );
    let first = if parts.has_words() {
        parts.best(opening, budget)?
    } else {
        let chunk = nearest?;
        let start = chunk.start.max(opening);
        let is_beyond = 2 * chunk.end.saturating_sub(start) > chunk.len();
        is_beyond.then(|| parts.sentence_at(start))?
    };
    let shown = parts.sentences[parts.part(first, budget)].as_ref();
    let shown = shown.first()?.bytes.start..shown.last()?.bytes.end;
    let mut snippet = String::with_capacity(shown.len() + 2 * ELLIPSIS.len());
    if !text[..shown.start].trim().is_empty() {
        snippet.push_str(ELLIPSIS);
    }
    snippet.push_str(&text[shown.clone()]);
    if !text[shown.end..].trim().is_empty() {
        snippet.push_str(ELLIPSIS);
    }
    Some(snippet)
}

/// A sentence, or a piece of one that is longer than a snippet.
struct Sentence {
    bytes: Range<usize>,
    /// The same range in characters of the text.
    chars: Range<usize>,
}

/// The sentences of a text, in order, without white space around them. None is longer than `max_chars`.
fn sentences(text: &str, max_chars: usize) -> Vec<Sentence> {
    let mut sentences = Vec::new();
    let (mut byte, mut character) = (0, 0);
    for end in ends(text).chain([text.len()]) {
        let mut rest = trimmed(text, byte..end);
        while !rest.is_empty() {
            let piece = first_piece(text, rest.clone(), max_chars);
            character += text[byte..piece.start].chars().count();
            let chars = character..character + text[piece.clone()].chars().count();
            (byte, character) = (piece.end, chars.end);
            rest = trimmed(text, piece.end..rest.end);
            sentences.push(Sentence {
                bytes: piece,
                chars,
            });
        }
    }
    sentences
}

/// Where sentences end: after a line, after a mark of punctuation before white space, and after one of a script without
/// spaces.
fn ends(text: &str) -> impl Iterator<Item = usize> {
    let mut before = ' ';
    text.char_indices().filter_map(move |(at, c)| {
        let previous = std::mem::replace(&mut before, c);
        let ends_here = matches!(c, '\n' | '。' | '！' | '？' | '；');
        let ended_before =
            c.is_whitespace() && matches!(previous, '.' | '!' | '?' | '…' | ':' | ';');
        (ends_here || ended_before).then(|| at + c.len_utf8())
    })
}

/// The beginning of a range, up to `max_chars` characters, cut at the end of a word if there is one in the second half.
fn first_piece(text: &str, range: Range<usize>, max_chars: usize) -> Range<usize> {
    let part = &text[range.clone()];
    let at = |chars: usize| part.char_indices().nth(chars).map(|(byte, _)| byte);
    let Some(end) = at(max_chars.max(1)) else {
        return range;
    };
    let half = at(max_chars / 2).unwrap_or_default();
    let word = part[..end]
        .rfind(char::is_whitespace)
        .filter(|end| *end > half);
    let whole = || {
        let inside = part[..end]
            .char_indices()
            .rev()
            .map(|(at, _)| range.start + at);
        inside
            .take_while(|at| *at > range.start)
            .find(|at| is_character_boundary(text, *at))
    };
    let cut = if is_character_boundary(text, range.start + end) {
        Some(range.start + end)
    } else {
        whole()
    };
    let end = word.map_or(cut.unwrap_or(range.start + end), |word| range.start + word);
    trimmed(text, range.start..end)
}

fn trimmed(text: &str, range: Range<usize>) -> Range<usize> {
    let part = &text[range.clone()];
    let start = range.start + part.len() - part.trim_start().len();
    start..start.max(range.start + part.trim_end().len())
}

/// The sentences of a text, and the words of a query in them.
struct Parts {
    sentences: Vec<Sentence>,
    /// The distinct words of the query in each sentence.
    words: Vec<Vec<usize>>,
    /// The weight of each word. The weights of the words in the text add up to 1.
    weights: Vec<f64>,
    /// The sentences of the nearest chunk.
    nearest: Range<usize>,
}

impl Parts {
    /// A word in few sentences of the text weighs more than one in many.
    fn of(
        sentences: Vec<Sentence>,
        text: &str,
        words: &[ContentWord],
        analyzer: &Analyzer,
        nearest: Option<&Range<usize>>,
    ) -> Self {
        let mut numbers: HashMap<&str, usize> = HashMap::new();
        for word in words {
            let next = numbers.len();
            numbers.entry(&word.stem).or_insert(next);
        }
        let mut having = vec![0_usize; numbers.len()];
        let mut words = vec![Vec::new(); sentences.len()];
        let mut at = 0;
        analyzer.tokens(text, &mut |token| {
            while at < sentences.len() && sentences[at].bytes.end <= token.start {
                at += 1;
            }
            if let (Some(&word), Some(found)) = (numbers.get(token.stem), words.get_mut(at))
                && !found.contains(&word)
            {
                found.push(word);
                having[word] += 1;
            }
            true
        });
        let all = sentences.len() as f64;
        let rarity = |having: &usize| match having {
            0 => 0.0,
            _ => (1.0 + all / *having as f64).ln(),
        };
        let mut weights: Vec<f64> = having.iter().map(rarity).collect();
        let total: f64 = weights.iter().sum();
        if total > 0.0 {
            weights.iter_mut().for_each(|weight| *weight /= total);
        }
        let mut parts = Self {
            sentences,
            words,
            weights,
            nearest: 0..0,
        };
        if let Some(chunk) = nearest {
            parts.nearest = parts.sentence_at(chunk.start)..parts.sentence_at(chunk.end);
        }
        parts
    }

    fn has_words(&self) -> bool {
        self.weights.iter().any(|weight| *weight > 0.0)
    }

    /// The first sentence that ends after this byte of the text.
    fn sentence_at(&self, byte: usize) -> usize {
        self.sentences
            .partition_point(|sentence| sentence.bytes.end <= byte)
    }

    /// The part that begins with this sentence and has at most `max_chars` characters.
    fn part(&self, first: usize, max_chars: usize) -> Range<usize> {
        let rest = self.sentences.get(first..).unwrap_or_default();
        let start = rest.first().map_or(0, |sentence| sentence.chars.start);
        let fits = |sentence: &&Sentence| sentence.chars.end - start <= max_chars;
        first..first + rest.iter().take_while(fits).count()
    }

    /// The weight of the words in this part.
    fn score(&self, part: Range<usize>) -> f64 {
        let mut found = vec![false; self.weights.len()];
        for word in self.words[part].iter().flatten() {
            found[*word] = true;
        }
        let weights = self.weights.iter().zip(found);
        weights
            .filter(|(_, found)| *found)
            .map(|(weight, _)| weight)
            .sum()
    }

    /// The first sentence of the part with the highest score. It begins with a sentence that is not in the opening. Of
    /// several parts with equal scores the one in the middle, so that the words have text before and after them. `None`
    /// if the opening has a higher score.
    fn best(&self, opening: usize, max_chars: usize) -> Option<usize> {
        let hidden = self.sentence_at(opening);
        let mut best = self.score(0..hidden);
        let mut equal = Vec::new();
        for first in hidden..self.sentences.len() {
            let mut score = self.score(self.part(first, max_chars));
            if score > 0.0 && self.nearest.contains(&first) {
                score += NEAREST_BONUS;
            }
            if score > best {
                best = score;
                equal.clear();
            }
            if score == best {
                equal.push(first);
            }
        }
        equal.get(equal.len() / 2).copied()
    }
}
