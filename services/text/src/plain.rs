//! The modes without operators, where any input is a list of words.

use std::collections::HashSet;
use std::ops::Range;

use crate::pieces::{Piece, each_piece, sequence};
use crate::{Analyzer, MAX_CANDIDATES, MAX_TERMS, Parsed, Query, fold};

/// Up to this many words must all occur.
const STRICT_WORDS: usize = 3;

/// The distinct words of a query.
#[derive(Default)]
struct Distinct {
    pieces: Vec<Piece>,
    seen: HashSet<Piece>,
}

impl Distinct {
    fn add(&mut self, piece: Piece) {
        if self.seen.insert(by_stem(&piece)) {
            self.pieces.push(piece);
        }
    }
}

/// The piece with its stems only, because the index does not distinguish `run` from `running`.
fn by_stem(piece: &Piece) -> Piece {
    let mut same = piece.clone();
    match &mut same {
        Piece::Word(term) | Piece::Single(term) => term.word.clone_from(&term.stem),
        Piece::Run(terms) => terms
            .iter_mut()
            .for_each(|term| term.word.clone_from(&term.stem)),
    }
    same
}

/// A word of a text that is not a stop word, or any word of a text of stop words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContentWord {
    /// Byte range of the word in the text.
    pub range: Range<usize>,
    /// Its stem.
    pub stem: String,
}

/// The content words of a text: all words except stop words, or all words when the text has only stop words.
#[must_use]
pub fn content_words(text: &str, analyzer: &Analyzer) -> Vec<ContentWord> {
    let language = analyzer.language();
    let (mut content, mut stop_words) = (Vec::new(), Vec::new());
    analyzer.tokens(text, &mut |token| {
        let words = if language.is_stop_word(&fold(token.word)) {
            &mut stop_words
        } else {
            &mut content
        };
        words.push(ContentWord {
            range: token.start..token.end,
            stem: token.stem.to_owned(),
        });
        true
    });
    if content.is_empty() {
        stop_words
    } else {
        content
    }
}

/// Parses the input of [`crate::Mode::Match`]. Takes time and memory linear in the input.
pub(crate) fn matching(input: &str, analyzer: &Analyzer) -> Option<Parsed> {
    let language = analyzer.language();
    let mut content = Distinct::default();
    let mut stop_words = Distinct::default();
    each_piece(input, analyzer, usize::MAX, &mut |piece| {
        let stop = matches!(&piece, Piece::Word(term) if language.is_stop_word(&fold(&term.word)));
        if stop {
            stop_words.add(piece);
        } else {
            content.add(piece);
        }
        true
    });
    let pieces = if content.pieces.is_empty() {
        stop_words.pieces
    } else {
        content.pieces
    };
    let words: usize = pieces.iter().map(Piece::words).sum();
    let mut terms = distinct_terms(&pieces);
    if words > STRICT_WORDS {
        let mut first = terms.clone();
        first.truncate(MAX_TERMS);
        if terms.len() <= MAX_TERMS {
            terms.clear();
        }
        return Some(Parsed {
            query: Query::any(first)?,
            fallback: None,
            candidates: spread(terms, MAX_CANDIDATES),
        });
    }
    let loose = Query::any(terms)?;
    let query = Query::all(pieces.into_iter().map(Piece::query).collect())?;
    let fallback = (loose != query).then_some(loose);
    Some(Parsed {
        query,
        fallback,
        candidates: Vec::new(),
    })
}

/// The terms of the pieces, each once.
fn distinct_terms(pieces: &[Piece]) -> Vec<Query> {
    let mut seen = HashSet::new();
    let terms = pieces.iter().cloned().flat_map(Piece::loosened);
    terms
        .filter(|query| match query {
            Query::Word(term) => seen.insert((false, term.stem.clone())),
            Query::Prefix(term) => seen.insert((true, term.stem.clone())),
            _ => true,
        })
        .collect()
}

/// At most `max` of the queries, evenly spread over the list.
fn spread(queries: Vec<Query>, max: usize) -> Vec<Query> {
    let count = queries.len();
    if count <= max {
        return queries;
    }
    let is_selected = |at: &usize| at * max / count != (at + 1) * max / count;
    let queries = queries.into_iter().enumerate();
    queries
        .filter(|(at, _)| is_selected(at))
        .map(|(_, query)| query)
        .collect()
}

/// Parses the input of [`crate::Mode::Prefix`].
pub(crate) fn prefixes(input: &str, analyzer: &Analyzer) -> Option<Query> {
    let mut words: Vec<Query> = Vec::new();
    let mut terms = 0;
    each_piece(input, analyzer, MAX_TERMS, &mut |mut piece| {
        piece.truncate(MAX_TERMS - terms);
        let len = piece.len();
        let query = match piece {
            Piece::Word(term) => Query::Prefix(term),
            other => other.query(),
        };
        if !words.contains(&query) {
            words.push(query);
            terms += len;
        }
        terms < MAX_TERMS
    });
    Query::all(words)
}

/// Parses the input of [`crate::Mode::Phrase`].
pub(crate) fn phrase(input: &str, analyzer: &Analyzer) -> Option<Query> {
    let mut pieces = Vec::new();
    let mut terms = 0;
    each_piece(input, analyzer, MAX_TERMS, &mut |mut piece| {
        piece.truncate(MAX_TERMS - terms);
        terms += piece.len();
        pieces.push(piece);
        terms < MAX_TERMS
    });
    sequence(pieces)
}
