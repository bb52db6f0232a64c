//! Choosing the part of a text that a snippet shows.

use std::collections::VecDeque;
use std::ops::Range;

use crate::chars::{Class, class};

/// An occurrence of a leaf of the query (a word, prefix or phrase) in the text.
#[derive(Clone, Debug)]
pub(crate) struct Hit {
    /// Byte range in the text.
    pub(crate) bytes: Range<usize>,
    /// The same range in characters, as the budget of the window counts them.
    pub(crate) chars: Range<usize>,
    /// Number of the leaf.
    pub(crate) leaf: usize,
}

/// Slides over the hits of a text and remembers the best window: the most distinct leaves, then the most hits, then the
/// earliest.
pub(crate) struct BestWindow {
    budget: usize,
    inside: VecDeque<Hit>,
    /// Number of hits of each leaf inside the window.
    per_leaf: Vec<usize>,
    distinct: usize,
    best: Vec<Hit>,
    best_score: (usize, usize),
}

impl BestWindow {
    /// A window for snippets of `budget` characters, for a query with this number of leaves.
    pub(crate) fn new(budget: usize, leaves: usize) -> Self {
        Self {
            budget,
            inside: VecDeque::new(),
            per_leaf: vec![0; leaves],
            distinct: 0,
            best: Vec::new(),
            best_score: (0, 0),
        }
    }

    /// Adds the next hit. Hits come in the order of their ends, except the words of a phrase that is longer than the
    /// budget: they come together, at the end of the phrase.
    pub(crate) fn push(&mut self, hit: Hit) {
        self.per_leaf[hit.leaf] += 1;
        self.distinct += usize::from(self.per_leaf[hit.leaf] == 1);
        let end = hit.chars.end;
        // A phrase ends last but starts first. It is moved before the few hits inside it, so that the hits are in the
        // order of their starts.
        let mut at = self.inside.len();
        while at > 0 && self.inside[at - 1].chars.start > hit.chars.start {
            at -= 1;
        }
        self.inside.insert(at, hit);
        while let Some(first) = self.inside.front()
            && end.saturating_sub(first.chars.start) > self.budget
            && self.inside.len() > 1
        {
            self.per_leaf[first.leaf] -= 1;
            self.distinct -= usize::from(self.per_leaf[first.leaf] == 0);
            self.inside.pop_front();
        }
        let score = (self.distinct, self.inside.len());
        if score > self.best_score {
            self.best_score = score;
            self.best.clear();
            self.best.extend(self.inside.iter().cloned());
        }
    }

    /// The hits of the best window.
    pub(crate) fn finish(self) -> Vec<Hit> {
        self.best
    }
}

/// Widens `core` to at most `budget` characters, evenly on both sides, and cuts between words.
///
/// Of a core longer than the budget at most the first `budget` characters remain, cut inside a word only if it is the
/// first one.
pub(crate) fn widen(text: &str, core: Range<usize>, budget: usize) -> Range<usize> {
    let core_chars = text[core.clone()].chars().count();
    let slack = budget.saturating_sub(core_chars);
    let before = count_back(text, core.start, slack);
    let after = count_forward(text, core.end, slack);
    // Characters that one side cannot use go to the other side.
    let left = before.min((slack / 2).max(slack - after));
    let right = after.min(slack - left);
    let start = step_back(text, core.start, left);
    let (end, limit) = if core_chars > budget {
        (step_forward(text, core.start, budget), core.start)
    } else {
        (step_forward(text, core.end, right), core.end)
    };
    let cut = cut_at_start(text, start, core.start)..cut_at_end(text, end, limit);
    // A character with more marks than fit is cut, because an empty snippet would be worse.
    if cut.is_empty() { start..end } else { cut }
}

/// The number of characters before `at`, counted up to `max`.
fn count_back(text: &str, at: usize, max: usize) -> usize {
    text[..at].chars().rev().take(max).count()
}

fn count_forward(text: &str, at: usize, max: usize) -> usize {
    text[at..].chars().take(max).count()
}

fn step_back(text: &str, at: usize, chars: usize) -> usize {
    let skipped: usize = text[..at]
        .chars()
        .rev()
        .take(chars)
        .map(char::len_utf8)
        .sum();
    at - skipped
}

fn step_forward(text: &str, at: usize, chars: usize) -> usize {
    let skipped: usize = text[at..].chars().take(chars).map(char::len_utf8).sum();
    at + skipped
}

/// Moves a cut towards `limit` until it is at the start of a word.
fn cut_at_start(text: &str, start: usize, limit: usize) -> usize {
    if start == 0 || start >= limit {
        return limit.min(start);
    }
    let between = &text[start..limit];
    let space = |(offset, c): (usize, char)| {
        let at = start + offset;
        (!c.is_whitespace() && text[..at].ends_with(char::is_whitespace)).then_some(at)
    };
    between
        .char_indices()
        .find_map(space)
        .or_else(|| {
            between
                .char_indices()
                .map(|(offset, _)| start + offset)
                .find(|at| is_word_boundary(text, *at))
        })
        .or_else(|| {
            between
                .char_indices()
                .map(|(offset, _)| start + offset)
                .find(|at| is_character_boundary(text, *at))
        })
        .unwrap_or(limit)
}

/// Moves a cut back towards `limit` until it is at the end of a word.
fn cut_at_end(text: &str, end: usize, limit: usize) -> usize {
    if end == text.len() || end <= limit {
        return limit.max(end);
    }
    let between = &text[limit..end];
    let ends = || {
        between
            .char_indices()
            .rev()
            .map(|(offset, c)| (limit + offset + c.len_utf8(), c))
    };
    let space = |(at, c): (usize, char)| {
        (!c.is_whitespace() && text[at..].starts_with(char::is_whitespace)).then_some(at)
    };
    ends()
        .find_map(space)
        .or_else(|| {
            ends()
                .map(|(at, _)| at)
                .find(|at| is_word_boundary(text, *at))
        })
        .or_else(|| {
            ends()
                .map(|(at, _)| at)
                .find(|at| is_character_boundary(text, *at))
        })
        .unwrap_or(limit)
}

/// The characters before and after this byte. `None` at the start and the end of the text.
fn around(text: &str, at: usize) -> Option<(char, char)> {
    Some((text[..at].chars().next_back()?, text[at..].chars().next()?))
}

/// Whether a cut at this byte splits no word. Scripts without spaces may be cut between any two characters.
fn is_word_boundary(text: &str, at: usize) -> bool {
    let inside_word = matches!(
        around(text, at).map(|(before, after)| (class(before), class(after))),
        Some((Class::Word | Class::Extend, Class::Word))
    );
    !inside_word && is_character_boundary(text, at)
}

/// Whether a cut at this byte splits no character as the reader sees it (with its marks, joiners, skin tone or flag).
pub(crate) fn is_character_boundary(text: &str, at: usize) -> bool {
    let Some((before, after)) = around(text, at) else {
        return true;
    };
    let is_flag = |c: char| matches!(c, '\u{1F1E6}'..='\u{1F1FF}');
    let splits = class(after) == Class::Extend
        || matches!(after, '\u{1F3FB}'..='\u{1F3FF}')
        || before == '\u{200D}'
        || (is_flag(before) && is_flag(after))
        || (before == '\r' && after == '\n');
    !splits
}
