//! The search document of a text.

use std::collections::{HashMap, HashSet};

use context_store::ContextWindow;
use context_text::{context_keywords, fold};

use super::Language;
use crate::pg::sql::Bind;

/// A tsvector holds less than 1 MiB of lexemes and positions (`MAXSTRPOS`).
const MAX_TSVECTOR_BYTES: usize = 1_000_000;
/// PostgreSQL stores larger positions as this one (`MAXENTRYPOS` − 1).
const MAX_POSITION: usize = 16_383;
/// Maximum number of positions indexed for a lexeme, as many as `to_tsvector` stores (`MAXNUMPOS` − 1).
const MAX_POSITIONS: usize = 255;
/// Bytes counted for a lexeme besides its text: padding, its number of positions and the first position. Each further
/// position counts 2 bytes.
const LEXEME_OVERHEAD: usize = 8;
/// Maximum bytes of words in a language that only the server stems. The tsvector that the server builds from them stays
/// below its limit.
const MAX_SERVER_BYTES: usize = 400_000;

/// A text's search document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Document {
    pub words: Words,
    /// Whether words at the end of the text are not indexed, because the text has too many.
    pub cut: bool,
}

/// The words of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Words {
    /// A tsvector in PostgreSQL's input format.
    Lexemes(String),
    /// Words for a text search configuration of the server.
    Plain {
        configuration: String,
        words: String,
    },
}

impl Document {
    /// Analyzes a text. Takes time linear in its length.
    pub fn new(text: &str, language: &Language) -> Self {
        match language {
            Language::Ours(_) => lexemes(text, language),
            Language::Server(configuration) => plain(text, configuration, language),
        }
    }

    /// The values to bind to the SQL of `words!`.
    pub fn binds(&self) -> [Bind<'_>; 3] {
        let (lexemes, configuration, words) = match &self.words {
            Words::Lexemes(lexemes) => (Some(lexemes), None, None),
            Words::Plain {
                configuration,
                words,
            } => (None, Some(configuration), Some(words)),
        };
        [lexemes, configuration, words].map(|text| Bind::OptionalText(text.map(Into::into)))
    }

    /// The values to bind for a text that does not change. The SQL of `words!` is then NULL.
    pub fn no_binds() -> [Bind<'static>; 3] {
        [(); 3].map(|()| Bind::OptionalText(None))
    }
}

/// A document's tsvector in SQL. [`Document::binds`] returns the values.
macro_rules! words {
    () => {
        "coalesce(?::tsvector, to_tsvector(?::regconfig, ?))"
    };
}
pub(crate) use words;

fn lexemes(text: &str, language: &Language) -> Document {
    let context_keywords = context_keywords(text, &language.analyzer(), ContextWindow::WORDS);
    let context_keywords: HashSet<&str> = context_keywords.split(' ').collect();
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
            if i == 0 && context_keywords.contains(&**lexeme) {
                // Weight C marks the words that this text adds to the context windows of later entries.
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

/// Writes a lexeme in the input format of tsvector and tsquery.
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
