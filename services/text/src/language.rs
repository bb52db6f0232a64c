//! The languages in which a text can be stemmed.

use rust_stemmers::Algorithm;

/// The language whose stemmer and stop words are used: one of the eighteen Snowball languages of `rust-stemmers`, or
/// none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "each variant is the language of its name")]
pub enum Language {
    Arabic,
    Danish,
    Dutch,
    English,
    Finnish,
    French,
    German,
    Greek,
    Hungarian,
    Italian,
    Norwegian,
    Portuguese,
    Romanian,
    Russian,
    Spanish,
    Swedish,
    Tamil,
    Turkish,
    /// Words are folded but not stemmed, and there are no stop words.
    Unstemmed,
}

impl Language {
    /// Every language, `Unstemmed` last.
    pub const ALL: [Language; 19] = [
        Language::Arabic,
        Language::Danish,
        Language::Dutch,
        Language::English,
        Language::Finnish,
        Language::French,
        Language::German,
        Language::Greek,
        Language::Hungarian,
        Language::Italian,
        Language::Norwegian,
        Language::Portuguese,
        Language::Romanian,
        Language::Russian,
        Language::Spanish,
        Language::Swedish,
        Language::Tamil,
        Language::Turkish,
        Language::Unstemmed,
    ];

    /// Finds a language by its English name, in any case. `None` for a name not in [`Language::ALL`].
    ///
    /// ```
    /// use context_text::Language;
    /// assert_eq!(Language::parse("German"), Some(Language::German));
    /// assert_eq!(Language::parse("klingon").unwrap_or(Language::Unstemmed), Language::Unstemmed);
    /// ```
    pub fn parse(name: &str) -> Option<Language> {
        let name = name.trim();
        Language::ALL
            .into_iter()
            .find(|language| language.name().eq_ignore_ascii_case(name))
    }

    /// The lower-case English name, as accepted by [`Language::parse`]. Except for `unstemmed`, it is also the name of
    /// a PostgreSQL text search configuration.
    pub fn name(self) -> &'static str {
        match self {
            Language::Arabic => "arabic",
            Language::Danish => "danish",
            Language::Dutch => "dutch",
            Language::English => "english",
            Language::Finnish => "finnish",
            Language::French => "french",
            Language::German => "german",
            Language::Greek => "greek",
            Language::Hungarian => "hungarian",
            Language::Italian => "italian",
            Language::Norwegian => "norwegian",
            Language::Portuguese => "portuguese",
            Language::Romanian => "romanian",
            Language::Russian => "russian",
            Language::Spanish => "spanish",
            Language::Swedish => "swedish",
            Language::Tamil => "tamil",
            Language::Turkish => "turkish",
            Language::Unstemmed => "unstemmed",
        }
    }

    pub(crate) fn algorithm(self) -> Option<Algorithm> {
        Some(match self {
            Language::Arabic => Algorithm::Arabic,
            Language::Danish => Algorithm::Danish,
            Language::Dutch => Algorithm::Dutch,
            Language::English => Algorithm::English,
            Language::Finnish => Algorithm::Finnish,
            Language::French => Algorithm::French,
            Language::German => Algorithm::German,
            Language::Greek => Algorithm::Greek,
            Language::Hungarian => Algorithm::Hungarian,
            Language::Italian => Algorithm::Italian,
            Language::Norwegian => Algorithm::Norwegian,
            Language::Portuguese => Algorithm::Portuguese,
            Language::Romanian => Algorithm::Romanian,
            Language::Russian => Algorithm::Russian,
            Language::Spanish => Algorithm::Spanish,
            Language::Swedish => Algorithm::Swedish,
            Language::Tamil => Algorithm::Tamil,
            Language::Turkish => Algorithm::Turkish,
            Language::Unstemmed => return None,
        })
    }

    /// Whether the stemmer needs diacritics, so that they may be removed only after stemming.
    pub(crate) fn stems_diacritics(self) -> bool {
        !matches!(self, Language::English | Language::Unstemmed)
    }
}
