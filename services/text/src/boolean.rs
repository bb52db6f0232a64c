//! The grammar and parser of boolean mode.
//!
//! ```text
//! any     = all { "OR" all }
//! all     = operand { [ "AND" ] operand }
//! operand = [ "NOT" ] ( word | word"*" | '"' words '"' | "(" any ")" )
//! ```

use crate::pieces::{Piece, each_piece, sequence};
use crate::{Analyzer, MAX_DEPTH, MAX_TERMS, Query, QueryError};

/// Parses the input of [`crate::Mode::Boolean`].
///
/// # Errors
/// See [`crate::parse`].
pub(crate) fn parse(input: &str, analyzer: &Analyzer) -> Result<Option<Query>, QueryError> {
    let mut parser = Parser {
        analyzer,
        rest: input,
        position: 0,
        peeked: None,
        terms: 0,
    };
    if parser.peek()?.kind == Kind::End {
        return Ok(None);
    }
    let query = parser.any("", 0)?;
    let left = parser.peek()?;
    match left.kind {
        Kind::End => Ok(query.matching()),
        // `any` stops only at the end and at a parenthesis.
        _ => Err(unopened(left.position)),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind<'q> {
    Word(&'q str),
    Quoted(&'q str),
    Open,
    Close,
    And,
    Or,
    Not,
    End,
}

/// A lexeme and its start, in characters.
#[derive(Clone, Copy)]
struct Lexeme<'q> {
    kind: Kind<'q>,
    position: usize,
}

/// A parsed part of the input.
enum Part {
    /// It has no searchable words.
    Nothing,
    /// It matches what the query matches.
    Matching(Query),
    /// It has searchable words only after `NOT`. Where another part matches something, this is excluded from it.
    Excluding(Query),
}

impl Part {
    fn matching(self) -> Option<Query> {
        match self {
            Self::Matching(query) => Some(query),
            Self::Nothing | Self::Excluding(_) => None,
        }
    }
}

impl From<Option<Query>> for Part {
    fn from(query: Option<Query>) -> Self {
        query.map_or(Self::Nothing, Self::Matching)
    }
}

struct Parser<'q> {
    analyzer: &'q Analyzer,
    rest: &'q str,
    position: usize,
    peeked: Option<Lexeme<'q>>,
    terms: usize,
}

impl<'q> Parser<'q> {
    fn any(&mut self, after: &str, depth: usize) -> Result<Part, QueryError> {
        let mut branches = Vec::new();
        let mut exclusions = Vec::new();
        let mut branch = self.all(after, depth)?;
        loop {
            match branch {
                Part::Nothing => {}
                Part::Matching(query) => branches.push(query),
                Part::Excluding(query) => exclusions.push(query),
            }
            if self.peek()?.kind != Kind::Or {
                break;
            }
            self.next()?;
            branch = self.all("OR", depth)?;
        }
        Ok(match (Query::any(branches), Query::all(exclusions)) {
            (Some(query), _) => Part::Matching(query),
            // What every branch excludes.
            (None, Some(excluded)) => Part::Excluding(excluded),
            (None, None) => Part::Nothing,
        })
    }

    fn all(&mut self, after: &str, depth: usize) -> Result<Part, QueryError> {
        let mut positive = Vec::new();
        let mut negative = Vec::new();
        let mut first_not = None;
        let mut has_positive = false;
        let mut after = after;
        loop {
            if self.peek()?.kind == Kind::Not {
                let not = self.next()?;
                first_not.get_or_insert(not.position);
                negative.extend(self.operand("NOT", depth)?.matching());
            } else {
                has_positive = true;
                match self.operand(after, depth)? {
                    Part::Nothing => {}
                    Part::Matching(query) => positive.push(query),
                    Part::Excluding(query) => negative.push(query),
                }
            }
            match self.peek()?.kind {
                Kind::And => {
                    self.next()?;
                    after = "AND";
                }
                Kind::Or | Kind::Close | Kind::End => break,
                Kind::Word(_) | Kind::Quoted(_) | Kind::Open | Kind::Not => after = "",
            }
        }
        if let (false, Some(position)) = (has_positive, first_not) {
            return Err(QueryError {
                position,
                message: "NOT needs something to exclude from: write `this NOT that`".to_owned(),
            });
        }
        Ok(match (Query::all(positive), Query::any(negative)) {
            (Some(positive), Some(negative)) => Part::Matching(Query::Not {
                positive: Box::new(positive),
                negative: Box::new(negative),
            }),
            (Some(positive), None) => Part::Matching(positive),
            (None, Some(negative)) => Part::Excluding(negative),
            (None, None) => Part::Nothing,
        })
    }

    fn operand(&mut self, after: &str, depth: usize) -> Result<Part, QueryError> {
        let lexeme = self.next()?;
        match lexeme.kind {
            Kind::Word(word) => Ok(self.word(word, lexeme.position)?.into()),
            Kind::Quoted(text) => Ok(sequence(self.pieces(text, lexeme.position)?).into()),
            Kind::Open if depth == MAX_DEPTH => Err(QueryError {
                position: lexeme.position,
                message: format!("parentheses are nested deeper than {MAX_DEPTH} levels"),
            }),
            Kind::Open if self.peek()?.kind == Kind::End => Err(unclosed(lexeme.position)),
            Kind::Open => {
                let inner = self.any("(", depth + 1)?;
                match self.next()?.kind {
                    Kind::Close => Ok(inner),
                    _ => Err(unclosed(lexeme.position)),
                }
            }
            Kind::Close if depth == 0 && after.is_empty() => Err(unopened(lexeme.position)),
            Kind::Close => Err(expected(after, "`)`", lexeme.position)),
            Kind::And => Err(expected(after, "AND", lexeme.position)),
            Kind::Or => Err(expected(after, "OR", lexeme.position)),
            Kind::Not => Err(expected(after, "NOT", lexeme.position)),
            Kind::End => Err(expected(after, "the end of the query", lexeme.position)),
        }
    }

    fn word(&mut self, word: &str, position: usize) -> Result<Option<Query>, QueryError> {
        let mut pieces = self.pieces(word, position)?;
        let is_prefix = word.ends_with('*') && matches!(pieces.last(), Some(Piece::Word(_)));
        if !is_prefix {
            return Ok(sequence(pieces));
        }
        // The words before the last one form a phrase. The tree cannot express "phrase followed by a prefix", so the
        // last word only has to occur somewhere.
        let last = match pieces.pop() {
            Some(Piece::Word(term)) => Some(Query::Prefix(term)),
            _ => None,
        };
        Ok(Query::all(
            sequence(pieces).into_iter().chain(last).collect(),
        ))
    }

    fn pieces(&mut self, text: &str, position: usize) -> Result<Vec<Piece>, QueryError> {
        let mut pieces = Vec::new();
        let mut terms = self.terms;
        each_piece(text, self.analyzer, MAX_TERMS + 1, &mut |piece| {
            terms += piece.len();
            pieces.push(piece);
            terms <= MAX_TERMS
        });
        self.terms = terms;
        if terms > MAX_TERMS {
            return Err(QueryError {
                position,
                message: format!("a query has at most {MAX_TERMS} words"),
            });
        }
        Ok(pieces)
    }

    fn peek(&mut self) -> Result<Lexeme<'q>, QueryError> {
        if let Some(lexeme) = self.peeked {
            return Ok(lexeme);
        }
        let lexeme = self.lex()?;
        self.peeked = Some(lexeme);
        Ok(lexeme)
    }

    fn next(&mut self) -> Result<Lexeme<'q>, QueryError> {
        let lexeme = self.peek()?;
        self.peeked = None;
        Ok(lexeme)
    }

    fn lex(&mut self) -> Result<Lexeme<'q>, QueryError> {
        let space = self.rest.find(|c: char| !c.is_whitespace());
        self.take(space.unwrap_or(self.rest.len()));
        let position = self.position;
        let Some(first) = self.rest.chars().next() else {
            return Ok(Lexeme {
                kind: Kind::End,
                position,
            });
        };
        let kind = match first {
            '(' => {
                self.take(1);
                Kind::Open
            }
            ')' => {
                self.take(1);
                Kind::Close
            }
            _ if is_quote(first) => {
                self.take(first.len_utf8());
                let Some((end, closing)) = self.rest.char_indices().find(|(_, c)| is_quote(*c))
                else {
                    return Err(QueryError {
                        position,
                        message: "this quote is never closed: add a `\"`".to_owned(),
                    });
                };
                let text = self.take(end);
                self.take(closing.len_utf8());
                Kind::Quoted(text)
            }
            _ => {
                let ends = |c: char| c.is_whitespace() || matches!(c, '(' | ')') || is_quote(c);
                let end = self.rest.find(ends).unwrap_or(self.rest.len());
                match self.take(end) {
                    "AND" => Kind::And,
                    "OR" => Kind::Or,
                    "NOT" => Kind::Not,
                    word => Kind::Word(word),
                }
            }
        };
        Ok(Lexeme { kind, position })
    }

    /// Removes the next `bytes` bytes from the input and returns them.
    fn take(&mut self, bytes: usize) -> &'q str {
        let (taken, rest) = self.rest.split_at(bytes);
        self.rest = rest;
        self.position += taken.chars().count();
        taken
    }
}

/// Straight quotes, and the curly ones that phones and word processors substitute for them. In German, Polish and other
/// languages the opening one is low.
fn is_quote(c: char) -> bool {
    matches!(c, '"' | '\u{201C}' | '\u{201D}' | '\u{201E}')
}

fn unclosed(position: usize) -> QueryError {
    QueryError {
        position,
        message: "this parenthesis is never closed: add a `)`".to_owned(),
    }
}

fn unopened(position: usize) -> QueryError {
    QueryError {
        position,
        message: "this parenthesis was never opened: remove it or add a `(`".to_owned(),
    }
}

fn expected(after: &str, found: &str, position: usize) -> QueryError {
    let after = match after {
        "" => String::new(),
        after => format!(" after `{after}`"),
    };
    QueryError {
        position,
        message: format!("expected a word, a quoted phrase or `(`{after}, found {found}"),
    }
}
