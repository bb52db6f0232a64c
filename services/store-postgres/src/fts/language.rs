//! The language of the full-text index, and whether this program or the server stems it.

use context_text::Analyzer;

/// The language of the index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Language {
    /// `context-text` stems, as on SQLite.
    Ours(context_text::Language),
    /// This text search configuration of the server stems.
    Server(String),
}

impl Language {
    /// A language of `context-text`, or `simple` for no stemming.
    pub fn of_ours(name: &str) -> Option<Self> {
        let unstemmed = name.trim().eq_ignore_ascii_case("simple");
        let language = if unstemmed {
            Some(context_text::Language::Unstemmed)
        } else {
            context_text::Language::parse(name)
        };
        language.map(Self::Ours)
    }

    /// A text search configuration of the server, by its name in SQL.
    pub fn of_the_server(name: String) -> Self {
        Self::Server(name)
    }

    /// The analyzer of documents.
    pub fn analyzer(&self) -> Analyzer {
        match self {
            Self::Ours(language) => Analyzer::new(*language),
            Self::Server(_) => Analyzer::new(context_text::Language::Unstemmed),
        }
    }

    /// Its name in the database and in the log.
    pub fn name(&self) -> &str {
        match self {
            Self::Ours(language) => language.name(),
            Self::Server(name) => name,
        }
    }
}
