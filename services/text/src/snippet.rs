//! Snippets: the part of a text that shows why it was found.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;

use crate::mark::{MARK_CHARS, escaped_chars, write_marked};
use crate::window::{BestWindow, Hit, widen};
use crate::{Analyzer, Query, Term, Token, fold};

pub(crate) const ELLIPSIS: &str = "...";

/// Cuts a window around the best hits of `query` in `text`. The snippet has at most `max_chars` characters, including
/// `...` at the cuts, marks and entities. The best window has the most distinct words, then the most hits, then the
/// earliest position. Without hits it is the beginning of the text.
///
/// Hits are enclosed in `<mark>…</mark>`. `<`, `>` and `&` of the text are escaped. A phrase is one mark. Words
/// excluded by the query are never marked. Takes time linear in the length of the text.
pub fn highlight(text: &str, query: &Query, analyzer: &Analyzer, max_chars: usize) -> String {
    let whole = text.chars().nth(max_chars).is_none();
    let budget = if whole {
        max_chars
    } else {
        max_chars.saturating_sub(2 * ELLIPSIS.len())
    };
    let mut finder = Finder::new(text, query, budget);
    analyzer.tokens(text, &mut |token| {
        finder.visit(&token);
        true
    });
    let hits = finder.window.finish();
    let window = if whole {
        0..text.len()
    } else {
        trim(text, widen(text, span(&hits).unwrap_or(0..0), budget))
    };
    let snippet = marked(text, &window, &hits, max_chars);
    if fits(&snippet, max_chars) {
        snippet
    } else {
        narrowed(text, window, &hits, max_chars)
    }
}

fn fits(snippet: &str, max_chars: usize) -> bool {
    snippet.chars().nth(max_chars).is_none()
}

/// The bytes from the first to the last hit.
fn span(hits: &[Hit]) -> Option<Range<usize>> {
    let start = hits.iter().map(|hit| hit.bytes.start).min()?;
    let end = hits.iter().map(|hit| hit.bytes.end).max()?;
    Some(start..end)
}

/// The snippet that shows this window.
fn marked(text: &str, window: &Range<usize>, hits: &[Hit], max_chars: usize) -> String {
    let mut out = String::with_capacity(window.len() + 32);
    let cut = |cut: bool, out: &mut String| {
        if cut && !window.is_empty() && max_chars > 2 * ELLIPSIS.len() {
            out.push_str(ELLIPSIS);
        }
    };
    cut(!text[..window.start].trim().is_empty(), &mut out);
    write_marked(text, window.clone(), &merged(hits, window), &mut out);
    cut(!text[window.end..].trim().is_empty(), &mut out);
    out
}

/// The widest snippet inside the window that is short enough with its marks and entities, around the best of the hits
/// that still have room. `hits` are all hits in the window.
fn narrowed(text: &str, window: Range<usize>, hits: &[Hit], max_chars: usize) -> String {
    let offset = window.start;
    let shown = &text[window.clone()];
    let core = span(&with_room(text, &window, hits, max_chars))
        .map_or(0..0, |span| span.start - offset..span.end - offset);
    let narrow = |budget: usize| {
        let part = trim(shown, widen(shown, core.clone(), budget));
        let part = part.start + offset..part.end + offset;
        marked(text, &part, hits, max_chars)
    };
    let mut widest = narrow(0);
    let (mut fitting, mut too_wide) = (0, max_chars + 1);
    while too_wide - fitting > 1 {
        let budget = fitting.midpoint(too_wide);
        let snippet = narrow(budget);
        if fits(&snippet, max_chars) {
            widest = snippet;
            fitting = budget;
        } else {
            too_wide = budget;
        }
    }
    widest
}

/// The best of the hits in the window that fit the snippet together with their marks and the entities between them.
fn with_room(text: &str, window: &Range<usize>, hits: &[Hit], max_chars: usize) -> Vec<Hit> {
    let marks = merged(hits, window);
    let inside = |hit: &Hit| {
        let bytes = hit.bytes.start.max(window.start)..hit.bytes.end.min(window.end);
        if bytes.is_empty() {
            return None;
        }
        let marks_before = marks.partition_point(|mark| mark.end <= bytes.start);
        let start = escaped_chars(&text[window.start..bytes.start]) + marks_before * MARK_CHARS;
        let end = start + escaped_chars(&text[bytes.clone()]) + MARK_CHARS;
        Some(Hit {
            bytes,
            chars: start..end,
            leaf: hit.leaf,
        })
    };
    let mut inside: Vec<Hit> = hits.iter().filter_map(inside).collect();
    inside.sort_by_key(|hit| hit.chars.end);
    let leaves = inside.iter().map(|hit| hit.leaf + 1).max().unwrap_or(0);
    let mut best = BestWindow::new(max_chars.saturating_sub(2 * ELLIPSIS.len()), leaves);
    for hit in inside {
        best.push(hit);
    }
    best.finish()
}

fn trim(text: &str, window: Range<usize>) -> Range<usize> {
    let shown = &text[window.clone()];
    let start = window.start + (shown.len() - shown.trim_start().len());
    start..(start + shown.trim().len())
}

/// The ranges to mark inside the window. Overlapping and touching hits are joined.
fn merged(hits: &[Hit], window: &Range<usize>) -> Vec<Range<usize>> {
    let mut ranges: Vec<Range<usize>> = hits
        .iter()
        .map(|hit| hit.bytes.start.max(window.start)..hit.bytes.end.min(window.end))
        .filter(|range| range.start < range.end)
        .collect();
    ranges.sort_by_key(|range| (range.start, range.end));
    let mut marks: Vec<Range<usize>> = Vec::with_capacity(ranges.len());
    for range in ranges {
        match marks.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => marks.push(range),
        }
    }
    marks
}

/// The position of a token in the text.
#[derive(Clone)]
struct Position {
    /// Number of the stem among the stems of all phrases, from 1.
    stem: usize,
    bytes: Range<usize>,
    chars: Range<usize>,
}

/// A phrase as a sequence of stem numbers.
struct Phrase {
    stems: Vec<usize>,
    leaf: usize,
}

/// Reads the tokens of a text in order and finds the leaves of the query: its words, prefixes and phrases.
struct Finder<'q> {
    text: &'q str,
    budget: usize,
    /// The leaf of each stem.
    words: HashMap<&'q str, usize>,
    /// Folded prefix, its stem and its leaf.
    prefixes: Vec<(String, &'q str, usize)>,
    phrases: Vec<Phrase>,
    phrase_stems: HashMap<&'q str, usize>,
    longest_phrase: usize,
    /// The latest tokens, without gaps, that can be part of a phrase.
    recent: VecDeque<Position>,
    /// A byte offset and the number of characters before it.
    counted: (usize, usize),
    window: BestWindow,
}

impl<'q> Finder<'q> {
    fn new(text: &'q str, query: &'q Query, budget: usize) -> Self {
        let mut finder = Self {
            text,
            budget,
            words: HashMap::new(),
            prefixes: Vec::new(),
            phrases: Vec::new(),
            phrase_stems: HashMap::new(),
            longest_phrase: 0,
            recent: VecDeque::new(),
            counted: (0, 0),
            window: BestWindow::new(budget, 0),
        };
        let mut leaves = 0;
        finder.add(query, &mut leaves);
        finder.window = BestWindow::new(budget, leaves);
        finder
    }

    /// Collects the leaves that can make a text match.
    fn add(&mut self, query: &'q Query, leaves: &mut usize) {
        let leaf = *leaves;
        match query {
            Query::Word(term) => {
                self.words.entry(&term.stem).or_insert(leaf);
                *leaves += 1;
            }
            Query::Prefix(term) => {
                let prefix = fold(&term.word).into_owned();
                self.prefixes.push((prefix, &term.stem, leaf));
                *leaves += 1;
            }
            Query::Phrase(terms) => {
                let stems = terms.iter().map(|term| self.number(term)).collect();
                self.phrases.push(Phrase { stems, leaf });
                self.longest_phrase = self.longest_phrase.max(terms.len());
                *leaves += 1;
            }
            Query::And(queries) | Query::Or(queries) => {
                for query in queries {
                    self.add(query, leaves);
                }
            }
            Query::Not { positive, .. } => self.add(positive, leaves),
        }
    }

    /// The number of a term's stem among the stems of all phrases, from 1.
    fn number(&mut self, term: &'q Term) -> usize {
        let next = self.phrase_stems.len() + 1;
        *self.phrase_stems.entry(&term.stem).or_insert(next)
    }

    fn visit(&mut self, token: &Token<'_>) {
        let bytes = token.start..token.end;
        if let Some(leaf) = self.words.get(token.stem).copied() {
            let hit = self.hit(&bytes, leaf);
            self.window.push(hit);
        }
        if !self.prefixes.is_empty() {
            let word = fold(token.word);
            let found = self
                .prefixes
                .iter()
                .find(|(prefix, stem, _)| word.starts_with(prefix.as_str()) || *stem == token.stem);
            if let Some((_, _, leaf)) = found {
                let hit = self.hit(&bytes, *leaf);
                self.window.push(hit);
            }
        }
        if !self.phrases.is_empty() {
            self.match_phrases(token.stem, bytes);
        }
    }

    fn match_phrases(&mut self, stem: &str, bytes: Range<usize>) {
        let Some(stem) = self.phrase_stems.get(stem).copied() else {
            self.recent.clear();
            return;
        };
        let chars = self.chars(&bytes);
        if self.recent.len() == self.longest_phrase {
            self.recent.pop_front();
        }
        self.recent.push_back(Position { stem, bytes, chars });
        for phrase in &self.phrases {
            let len = phrase.stems.len();
            let Some(first) = self.recent.len().checked_sub(len) else {
                continue;
            };
            let positions = self.recent.range(first..);
            if !positions
                .clone()
                .map(|position| position.stem)
                .eq(phrase.stems.iter().copied())
            {
                continue;
            }
            let (start, end) = (&self.recent[first], &self.recent[self.recent.len() - 1]);
            let chars = start.chars.start..end.chars.end;
            // A long run of punctuation may stand between the words of a phrase, so that the phrase does not fit the
            // snippet. Its words are then marked one by one.
            if chars.len() > self.budget {
                for position in positions {
                    self.window.push(Hit {
                        bytes: position.bytes.clone(),
                        chars: position.chars.clone(),
                        leaf: phrase.leaf,
                    });
                }
            } else {
                self.window.push(Hit {
                    bytes: start.bytes.start..end.bytes.end,
                    chars,
                    leaf: phrase.leaf,
                });
            }
        }
    }

    fn hit(&mut self, bytes: &Range<usize>, leaf: usize) -> Hit {
        Hit {
            bytes: bytes.clone(),
            chars: self.chars(bytes),
            leaf,
        }
    }

    /// The range in characters. Counts from the start of the previously requested range, because ranges are requested
    /// in the order of their starts.
    fn chars(&mut self, bytes: &Range<usize>) -> Range<usize> {
        let (counted, chars) = self.counted;
        let start = chars + self.text[counted..bytes.start].chars().count();
        self.counted = (bytes.start, start);
        start..start + self.text[bytes.clone()].chars().count()
    }
}
