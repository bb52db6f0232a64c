//! What is indexed of a text.

use std::collections::{HashMap, HashSet};

use context_store::Neighbourhood;
use context_text::{fold, gist};

use super::Language;
use crate::pg::sql::{Bind, Fragment};

/// A tsvector holds less than 1 MiB of lexemes and positions (`MAXSTRPOS`).
const MAX_TSVECTOR_BYTES: usize = 1_000_000;
/// Positions beyond it count as it (`MAXENTRYPOS`).
const MAX_POSITION: usize = 16_383;
/// Positions of a lexeme that are kept (`MAXNUMPOS`).
const MAX_POSITIONS: usize = 255;
/// What a lexeme takes beside its bytes and positions.
const LEXEME_OVERHEAD: usize = 8;
/// Bytes of the words of a language that only the server knows: what it makes of them stays below its limit.
const MAX_SERVER_BYTES: usize = 400_000;

/// A text as it is indexed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Document {
    pub words: Words,
    /// Whether it has more words than are indexed.
    pub cut: bool,
}

/// The words of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Words {
    /// A tsvector as PostgreSQL reads it.
    Lexemes(String),
    /// Words for a text search configuration.
    Plain {
        configuration: String,
        words: String,
    },
}

impl Document {
    /// Takes time linear in the text.
    pub fn new(text: &str, language: &Language) -> Self {
        match language {
            Language::Ours(_) => lexemes(text, language),
            Language::Server(configuration) => plain(text, configuration, language),
        }
    }

    /// The tsvector in SQL.
    pub fn expression(&self) -> Fragment<'_> {
        match &self.words {
            Words::Lexemes(vector) => {
                let mut cast = Fragment::new("");
                cast.bind(Bind::text(vector)).push("::tsvector");
                cast
            }
            Words::Plain {
                configuration,
                words,
            } => {
                let mut call = Fragment::new("to_tsvector(");
                call.bind(Bind::text(configuration))
                    .push("::regconfig, ")
                    .bind(Bind::text(words))
                    .push(")");
                call
            }
        }
    }
}

fn lexemes(text: &str, language: &Language) -> Document {
    let gist = gist(text, &language.analyzer(), Neighbourhood::WORDS);
    let gist: HashSet<&str> = gist.split(' ').collect();
    let mut lexemes: HashMap<String, Vec<u16>> = HashMap::new();
    let (mut position, mut bytes, mut cut) = (0_usize, 0_usize, false);
    language.analyzer().tokens(text, &mut |token| {
        position += 1;
        let at = u16::try_from(position.min(MAX_POSITION)).unwrap_or(u16::MAX);
        let mut add = |lexeme: &str| {
            if let Some(positions) = lexemes.get_mut(lexeme) {
                if positions.len() < MAX_POSITIONS && positions.last() != Some(&at) {
                    positions.push(at);
                    bytes += 2;
                }
            } else {
                bytes += lexeme.len() + LEXEME_OVERHEAD;
                lexemes.insert(lexeme.to_owned(), vec![at]);
            }
        };
        add(token.stem);
        let word = fold(token.word);
        if word != token.stem {
            add(&word);
        }
        cut = bytes > MAX_TSVECTOR_BYTES;
        !cut
    });
    let mut vector = String::with_capacity(bytes * 2);
    for (lexeme, positions) in &lexemes {
        if !vector.is_empty() {
            vector.push(' ');
        }
        quote(lexeme, &mut vector);
        for (i, position) in positions.iter().enumerate() {
            vector.push(if i == 0 { ':' } else { ',' });
            vector.push_str(&position.to_string());
            if i == 0 && gist.contains(&**lexeme) {
                // What it contributes to the contexts of the entries after it.
                vector.push('C');
            }
        }
    }
    Document {
        words: Words::Lexemes(vector),
        cut,
    }
}

fn plain(text: &str, configuration: &str, language: &Language) -> Document {
    let (mut words, mut cut) = (String::new(), false);
    language.analyzer().tokens(text, &mut |token| {
        words.push_str(token.word);
        words.push(' ');
        cut = words.len() > MAX_SERVER_BYTES;
        !cut
    });
    Document {
        words: Words::Plain {
            configuration: configuration.to_owned(),
            words,
        },
        cut,
    }
}

/// A lexeme as the input of tsvector and tsquery has it.
pub(super) fn quote(lexeme: &str, out: &mut String) {
    out.push('\'');
    for c in lexeme.chars() {
        if matches!(c, '\'' | '\\') {
            out.push(c);
        }
        out.push(c);
    }
    out.push('\'');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vector(text: &str) -> Vec<String> {
        let language = Language::of_ours("english").unwrap();
        match Document::new(text, &language).words {
            Words::Lexemes(vector) => {
                let mut all: Vec<String> = vector.split(' ').map(str::to_owned).collect();
                all.sort();
                all
            }
            Words::Plain { .. } => unreachable!("english is ours"),
        }
    }

    #[test]
    fn stems_and_words_stand_at_their_positions() {
        assert_eq!(
            vector("the running fox runs"),
            [
                "'fox':3C",
                "'run':2C,4",
                "'running':2",
                "'runs':4",
                "'the':1"
            ]
        );
        assert_eq!(vector("数据库"), ["'据库':2C", "'数据':1C"]);
    }

    #[test]
    fn a_text_with_more_words_than_fit_is_cut_and_says_so() {
        let language = Language::of_ours("simple").unwrap();
        let text: String = (0..200_000).map(|i| format!("word{i} ")).collect();
        assert!(Document::new(&text, &language).cut);
        let repeated = "again ".repeat(200_000);
        assert!(!Document::new(&repeated, &language).cut);
    }

    #[test]
    fn quotes_and_backslashes_are_doubled() {
        let mut out = String::new();
        quote("o'neil\\", &mut out);
        assert_eq!(out, "'o''neil\\\\'");
    }
}
