//! Evidence: the part of a text that shows why a search found it, when its opening does not.

use std::collections::{BTreeSet, HashMap};
use std::ops::Range;

use crate::snippet::ELLIPSIS;
use crate::split::trimmed;
use crate::window::is_character_boundary;
use crate::{Analyzer, ContentWord};

/// Score of a sentence that has every word of the query that the text has. The weights of these words add up to it.
const WORDS_WEIGHT: f64 = 0.5;
/// Added to the score of a sentence that has words of the query and is in the nearest chunk. Not added when
/// similarities are known, because they are more precise.
const NEAREST_BONUS: f64 = 0.05;
/// Maximum number of sentences that are chosen by score. Adjacent sentences fill the rest of the snippet. Two show the
/// answer more often than one or three.
const CHOSEN: usize = 2;
/// Minimum score of the second sentence, as a share of the best sentence's score.
const SECOND_SHARE: f64 = 0.3;
/// There is no snippet if the score of the opening exceeds that of the chosen sentences by more than this, or by more
/// than half of this if no similarities are known.
const OPENING_MARGIN: f64 = 0.3;
/// Words that share this many leading characters are probably forms of one word that the stemmer does not know: words
/// of another language, or a noun and its verb.
const ALIKE_CHARS: usize = 5;
/// How much such a similar word counts, relative to the same word.
const ALIKE_SHARE: f64 = 0.5;
/// Maximum number of characters of a label, with the colon and the white space after it.
const LABEL_CHARS: usize = 30;
/// Separates two parts of a text that are not adjacent.
const GAP: &str = " ... ";

/// What is known about a query and a text, as input of [`evidence`].
#[derive(Clone, Copy)]
pub struct Clues<'a> {
    /// The content words of the query.
    pub words: &'a [ContentWord],
    /// Byte range of the chunk that is nearest to the query.
    pub nearest: Option<&'a Range<usize>>,
    /// The similarity of a sentence to the query, at most 1, if it was computed. The sentences are those of
    /// [`evidence_sentences`].
    pub similarity: &'a dyn Fn(&str) -> Option<f64>,
}

/// The byte ranges of the sentences that [`evidence`] chooses from, in order.
#[must_use]
pub fn evidence_sentences(text: &str, max_chars: usize) -> Vec<Range<usize>> {
    let sentences = sentences(text, budget(max_chars)).into_iter();
    sentences.map(|sentence| sentence.bytes).collect()
}

/// The one or two sentences that match the query best and the sentences around them: at most `max_chars` characters,
/// with `...` at the cuts. A sentence matches by the words of the query that it has and by its similarity to the query.
/// If the text has none of the words and no similarities are known, the result is the beginning of the nearest chunk,
/// beyond the opening.
///
/// `opening` is the number of bytes at the start of the text that the reader already sees. The result is `None` if the
/// opening matches clearly better than the sentences beyond it, or if none of these matches. Where the nearest chunk
/// decides, the result is `None` if this chunk is unknown or at least half of it is in the opening.
///
/// Takes time almost linear in the length of the text.
///
/// ```
/// use context_text::{Analyzer, Clues, Language, content_words, evidence};
///
/// let analyzer = Analyzer::new(Language::English);
/// let words = content_words("when does the build run?", &analyzer);
/// let text = "We talked about the cellar. The nightly build runs at half past two. Ann has the key.";
/// let clues = Clues { words: &words, nearest: None, similarity: &|_| None };
/// let found = evidence(text, 27, clues, &analyzer, 50);
/// assert_eq!(found.as_deref(), Some("...The nightly build runs at half past two...."));
/// ```
#[must_use]
pub fn evidence(
    text: &str,
    opening: usize,
    clues: Clues<'_>,
    analyzer: &Analyzer,
    max_chars: usize,
) -> Option<String> {
    let budget = budget(max_chars);
    let parts = Parts::of(sentences(text, budget), text, clues, analyzer);
    let after_opening = parts.sentence_at(opening);
    let chosen = if parts.has_scores() {
        parts.best(after_opening, budget)?
    } else {
        let chunk = clues.nearest?;
        let start = chunk.start.max(opening);
        let is_beyond = 2 * chunk.end.saturating_sub(start) > chunk.len();
        let first = is_beyond.then(|| parts.sentence_at(start))?;
        // No sentence begins in white space at the end of the text.
        if first >= parts.sentences.len() {
            return None;
        }
        vec![first]
    };
    parts.shown(text, parts.widened(chosen, after_opening, budget))
}

/// Number of characters of the text that a snippet has room for.
fn budget(max_chars: usize) -> usize {
    max_chars.saturating_sub(2 * ELLIPSIS.len())
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

/// The byte offsets where sentences end: after a line, after punctuation that white space follows, and after
/// punctuation of a script without spaces. A short text before a colon is a label, such as the name of a speaker, and
/// belongs to the sentence after it.
pub(crate) fn ends(text: &str) -> impl Iterator<Item = usize> {
    let mut before = ' ';
    let mut chars = 0;
    text.char_indices().filter_map(move |(at, c)| {
        let previous = std::mem::replace(&mut before, c);
        chars += 1;
        let ends_here = matches!(c, '\n' | '。' | '！' | '？' | '；');
        let ended_before = c.is_whitespace()
            && match previous {
                ':' => chars > LABEL_CHARS,
                _ => matches!(previous, '.' | '!' | '?' | '…' | ';'),
            };
        if ends_here || ended_before {
            chars = 0;
        }
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

/// The sentences of a text, and how each matches a query.
struct Parts {
    sentences: Vec<Sentence>,
    /// For each sentence, the words of the query that it has: 1 for the word itself, [`ALIKE_SHARE`] for a similar
    /// word.
    words: Vec<HashMap<usize, f64>>,
    /// The weight of each word. The weights of the words in the text add up to [`WORDS_WEIGHT`].
    weights: Vec<f64>,
    /// The similarity of each sentence to the query. Empty if none is known.
    similarities: Vec<f64>,
    /// The sentences of the nearest chunk.
    nearest: Range<usize>,
}

impl Parts {
    /// Computes how each sentence matches. A word that few sentences have weighs more than one that many have.
    fn of(sentences: Vec<Sentence>, text: &str, clues: Clues<'_>, analyzer: &Analyzer) -> Self {
        let mut numbers: HashMap<&str, usize> = HashMap::new();
        let mut alike: HashMap<&str, usize> = HashMap::new();
        for word in clues.words {
            let next = numbers.len();
            let number = *numbers.entry(&word.stem).or_insert(next);
            if let Some(beginning) = beginning(&word.stem) {
                // Of words that begin alike, the first one of the query counts, so that the snippet is always the same.
                alike.entry(beginning).or_insert(number);
            }
        }
        let mut words = vec![HashMap::new(); sentences.len()];
        let mut at = 0;
        analyzer.tokens(text, &mut |token| {
            while at < sentences.len() && sentences[at].bytes.end <= token.start {
                at += 1;
            }
            let same = numbers.get(token.stem).map(|word| (*word, 1.0));
            let similar = || Some((*alike.get(beginning(token.stem)?)?, ALIKE_SHARE));
            if let (Some((word, share)), Some(found)) = (same.or_else(similar), words.get_mut(at)) {
                let known: &mut f64 = found.entry(word).or_default();
                *known = known.max(share);
            }
            true
        });
        let mut sentence_counts = vec![0_usize; numbers.len()];
        for word in words.iter().flat_map(HashMap::keys) {
            sentence_counts[*word] += 1;
        }
        let all = sentences.len() as f64;
        let rarity = |count: &usize| match count {
            0 => 0.0,
            _ => (1.0 + all / *count as f64).ln(),
        };
        let mut weights: Vec<f64> = sentence_counts.iter().map(rarity).collect();
        let total: f64 = weights.iter().sum();
        if total > 0.0 {
            let share = WORDS_WEIGHT / total;
            weights.iter_mut().for_each(|weight| *weight *= share);
        }
        let similarities = similarities(&sentences, text, clues.similarity);
        let mut parts = Self {
            sentences,
            words,
            weights,
            similarities,
            nearest: 0..0,
        };
        if let Some(chunk) = clues.nearest {
            parts.nearest = parts.sentence_at(chunk.start)..parts.sentence_at(chunk.end);
        }
        parts
    }

    /// Whether any sentence can have a score: the text has a word of the query, or similarities are known.
    fn has_scores(&self) -> bool {
        !self.similarities.is_empty() || self.weights.iter().any(|weight| *weight > 0.0)
    }

    /// The first sentence that ends after this byte of the text.
    fn sentence_at(&self, byte: usize) -> usize {
        self.sentences
            .partition_point(|sentence| sentence.bytes.end <= byte)
    }

    /// The weight of the words in these sentences, and the highest similarity of one of them.
    fn score(&self, sentences: impl Iterator<Item = usize>) -> f64 {
        let mut shares: HashMap<usize, f64> = HashMap::new();
        let mut similarity: f64 = 0.0;
        for sentence in sentences {
            for (word, share) in &self.words[sentence] {
                let known = shares.entry(*word).or_default();
                *known = known.max(*share);
            }
            similarity = similarity.max(self.similarities.get(sentence).copied().unwrap_or(0.0));
        }
        let mut shares: Vec<(usize, f64)> = shares.into_iter().collect();
        // Sums of floats depend on their order, and that of a map differs in each process.
        shares.sort_unstable_by_key(|(word, _)| *word);
        let words: f64 = shares
            .iter()
            .map(|(word, share)| self.weights[*word] * share)
            .sum();
        words + similarity
    }

    /// The best sentences beyond the opening, best first, that fit into `max_chars` together. `None` if no sentence
    /// matches, or if the opening matches clearly better.
    fn best(&self, after_opening: usize, max_chars: usize) -> Option<Vec<usize>> {
        let score = |sentence: usize| {
            let score = self.score(std::iter::once(sentence));
            let is_preferred = self.similarities.is_empty() && self.nearest.contains(&sentence);
            if is_preferred && score > 0.0 {
                score + NEAREST_BONUS
            } else {
                score
            }
        };
        let mut scored: Vec<(usize, f64)> = (after_opening..self.sentences.len())
            .map(|sentence| (sentence, score(sentence)))
            .filter(|(_, score)| *score > 0.0)
            .collect();
        scored.sort_by(|(_, one), (_, other)| other.total_cmp(one));
        let (_, best) = *scored.first()?;
        let mut left = max_chars;
        let mut chosen = Vec::new();
        for (sentence, score) in scored {
            let needed =
                self.sentences[sentence].chars.len() + usize::from(!chosen.is_empty()) * GAP.len();
            if chosen.len() == CHOSEN || score < SECOND_SHARE * best {
                break;
            }
            if needed <= left {
                left -= needed;
                chosen.push(sentence);
            }
        }
        let of_chosen = self.score(chosen.iter().copied());
        // Without similarities all scores are lower.
        let margin = if self.similarities.is_empty() {
            OPENING_MARGIN / 2.0
        } else {
            OPENING_MARGIN
        };
        (self.score(0..after_opening) <= of_chosen + margin).then_some(chosen)
    }

    /// The chosen sentences and, as long as they fit into `max_chars`, adjacent sentences beyond the opening: first the
    /// one after the best, because an answer often follows the sentence that mentions its subject.
    fn widened(
        &self,
        chosen: Vec<usize>,
        after_opening: usize,
        max_chars: usize,
    ) -> BTreeSet<usize> {
        let mut shown = BTreeSet::from_iter(chosen.iter().copied());
        let mut sides: Vec<usize> = chosen;
        loop {
            let before = shown.len();
            for place in 0..sides.len() {
                let sentence = sides[place];
                let adjacent = [sentence + 1, sentence.wrapping_sub(1)];
                let fitting = adjacent.into_iter().find(|next| {
                    let exists = (after_opening..self.sentences.len()).contains(next);
                    exists && !shown.contains(next) && {
                        let mut wider = shown.clone();
                        wider.insert(*next);
                        self.chars(&wider) <= max_chars
                    }
                });
                if let Some(next) = fitting {
                    shown.insert(next);
                    sides.push(next);
                }
            }
            if shown.len() == before {
                return shown;
            }
        }
    }

    /// These sentences as runs of adjacent ones.
    fn runs(shown: &BTreeSet<usize>) -> Vec<Range<usize>> {
        let mut runs: Vec<Range<usize>> = Vec::new();
        for &sentence in shown {
            match runs.last_mut() {
                Some(run) if run.end == sentence => run.end += 1,
                _ => runs.push(sentence..sentence + 1),
            }
        }
        runs
    }

    /// Number of characters that these sentences take, with the gaps between them.
    fn chars(&self, shown: &BTreeSet<usize>) -> usize {
        let runs = Self::runs(shown);
        let gaps = runs.len().saturating_sub(1) * GAP.len();
        let chars = |run: Range<usize>| {
            self.sentences[run.end - 1].chars.end - self.sentences[run.start].chars.start
        };
        runs.into_iter().map(chars).sum::<usize>() + gaps
    }

    /// The snippet of these sentences.
    fn shown(&self, text: &str, shown: BTreeSet<usize>) -> Option<String> {
        let bytes = |run: Range<usize>| {
            self.sentences[run.start].bytes.start..self.sentences[run.end - 1].bytes.end
        };
        let runs: Vec<Range<usize>> = Self::runs(&shown).into_iter().map(bytes).collect();
        let (first, last) = (runs.first()?, runs.last()?);
        let mut snippet = String::new();
        if !text[..first.start].trim().is_empty() {
            snippet.push_str(ELLIPSIS);
        }
        let parts: Vec<&str> = runs.iter().map(|run| &text[run.clone()]).collect();
        snippet.push_str(&parts.join(GAP));
        if !text[last.end..].trim().is_empty() {
            snippet.push_str(ELLIPSIS);
        }
        Some(snippet)
    }
}

/// The leading characters that similar words share. `None` for short words.
fn beginning(stem: &str) -> Option<&str> {
    let (last, c) = stem.char_indices().nth(ALIKE_CHARS - 1)?;
    stem.get(..last + c.len_utf8())
}

/// The similarity of each sentence. Empty unless all are known: if only some were, a better sentence without one would
/// rank too low, and the words alone show the answer more often.
fn similarities(
    sentences: &[Sentence],
    text: &str,
    similarity: &dyn Fn(&str) -> Option<f64>,
) -> Vec<f64> {
    let of = |sentence: &Sentence| similarity(&text[sentence.bytes.clone()]);
    let all: Option<Vec<f64>> = sentences.iter().map(of).collect();
    all.unwrap_or_default()
}
