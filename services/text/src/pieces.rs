//! The words of a query, with the bigrams of a run kept together.

use crate::chars::is_of_short_words;
use crate::{Analyzer, Query, Term, Token, TokenKind};

/// A run of up to this many characters counts as one word: Chinese idioms have four, most other words two or three.
const WORD_CHARS: usize = 4;

/// The same for a run without Han and Hiragana: コミュニケーション has nine characters, คอมพิวเตอร์ nine.
const LONG_WORD_CHARS: usize = 10;

/// A word of the input, or a run without spaces.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Piece {
    Word(Term),
    /// The bigrams of a run, in order.
    Run(Vec<Term>),
    /// A run of a single character.
    Single(Term),
}

impl Piece {
    /// The query for this piece alone.
    pub(crate) fn query(self) -> Query {
        match self {
            Piece::Word(term) => Query::Word(term),
            // Runs of two or more characters are indexed as bigrams, so a single character is found as the prefix of a
            // bigram.
            Piece::Single(term) => Query::Prefix(term),
            Piece::Run(terms) => in_order(terms),
        }
    }

    /// How many words the piece counts as. A run that is longer than a word counts as many as it has bigrams.
    pub(crate) fn words(&self) -> usize {
        match self {
            Piece::Run(terms) if !is_word(terms) => terms.len(),
            Piece::Word(_) | Piece::Single(_) | Piece::Run(_) => 1,
        }
    }

    /// The terms of the piece, each as a query.
    pub(crate) fn loosened(self) -> Vec<Query> {
        match self {
            Piece::Run(terms) => terms.into_iter().map(Query::Word).collect(),
            other => vec![other.query()],
        }
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            Piece::Word(_) | Piece::Single(_) => 1,
            Piece::Run(terms) => terms.len(),
        }
    }

    /// Keeps the first `max` terms of a run.
    pub(crate) fn truncate(&mut self, max: usize) {
        if let Piece::Run(terms) = self {
            terms.truncate(max.max(1));
        }
    }
}

/// Whether a run is no longer than a word.
fn is_word(bigrams: &[Term]) -> bool {
    let short = |bigram: &Term| bigram.word.chars().any(is_of_short_words);
    let max_chars = if bigrams.iter().take(LONG_WORD_CHARS).any(short) {
        WORD_CHARS
    } else {
        LONG_WORD_CHARS
    };
    bigrams.len() < max_chars
}

fn in_order(mut terms: Vec<Term>) -> Query {
    match terms.pop() {
        Some(only) if terms.is_empty() => Query::Word(only),
        Some(last) => {
            terms.push(last);
            Query::Phrase(terms)
        }
        None => Query::Phrase(terms),
    }
}

/// Calls `f` with the pieces of `input` until it returns false. A run is cut after `max_run` bigrams.
pub(crate) fn each_piece(
    input: &str,
    analyzer: &Analyzer,
    max_run: usize,
    f: &mut dyn FnMut(Piece) -> bool,
) {
    let mut run: Vec<Term> = Vec::new();
    let mut run_end = 0;
    let mut stopped = false;
    analyzer.tokens(input, &mut |token| {
        if token.kind == TokenKind::CjkBigram {
            let same_run = token.start < run_end;
            if !same_run && !run.is_empty() && !f(Piece::Run(std::mem::take(&mut run))) {
                stopped = true;
                return false;
            }
            run_end = token.end;
            if run.len() < max_run {
                run.push(term(&token));
            }
            return true;
        }
        if !run.is_empty() && !f(Piece::Run(std::mem::take(&mut run))) {
            stopped = true;
            return false;
        }
        let piece = match token.kind {
            TokenKind::CjkUnigram => Piece::Single(term(&token)),
            TokenKind::Word | TokenKind::CjkBigram => Piece::Word(term(&token)),
        };
        let go_on = f(piece);
        stopped = !go_on;
        go_on
    });
    if !stopped && !run.is_empty() {
        f(Piece::Run(run));
    }
}

fn term(token: &Token<'_>) -> Term {
    Term {
        word: token.word.to_owned(),
        stem: token.stem.to_owned(),
    }
}

/// The query for pieces that follow each other.
///
/// A single character of a dense script may be the prefix of a bigram in the text, which a phrase cannot express. It
/// therefore splits the sequence into parts that must all occur.
pub(crate) fn sequence(pieces: Vec<Piece>) -> Option<Query> {
    let mut parts = Vec::new();
    let mut terms = Vec::new();
    for piece in pieces {
        match piece {
            Piece::Word(term) => terms.push(term),
            Piece::Run(run) => terms.extend(run),
            Piece::Single(term) => {
                if !terms.is_empty() {
                    parts.push(in_order(std::mem::take(&mut terms)));
                }
                parts.push(Query::Prefix(term));
            }
        }
    }
    if !terms.is_empty() {
        parts.push(in_order(terms));
    }
    Query::all(parts)
}
