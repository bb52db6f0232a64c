//! The query tree.

/// Maximum number of terms in a query. Boolean mode rejects more. Phrase mode uses the first terms, and the other modes
/// the first distinct ones. [`Parsed::rarest`] can replace those of [`Mode::Match`](crate::Mode::Match) by rarer ones.
pub const MAX_TERMS: usize = 64;

/// Maximum number of terms in [`Parsed::candidates`].
pub const MAX_CANDIDATES: usize = 2048;

/// Maximum nesting depth of parentheses in a boolean query.
pub const MAX_DEPTH: usize = 32;

/// One word, or one bigram of a run without spaces.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Term {
    /// The word in the form of [`crate::Token::word`]: unstemmed, in some languages with diacritics. An engine that
    /// analyzes it again, exactly once, obtains `stem`.
    pub word: String,
    /// The word in the form of [`crate::Token::stem`], as held by an index of our tokens.
    pub stem: String,
}

/// A parsed query as a tree.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Query {
    /// A word with this stem.
    Word(Term),
    /// A word that begins with `term.word`, folded. See the crate's notes for stores.
    Prefix(Term),
    /// Words with these stems, each directly after the previous one. Two or more.
    Phrase(Vec<Term>),
    /// All of these. Two or more.
    And(Vec<Query>),
    /// At least one of these. Two or more.
    Or(Vec<Query>),
    /// `positive` without `negative`.
    Not {
        /// What must occur.
        positive: Box<Query>,
        /// What must not occur.
        negative: Box<Query>,
    },
}

/// A parsed query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parsed {
    /// The query to run first.
    pub query: Query,
    /// The query to use when `query` finds nothing. Only [`Mode::Match`](crate::Mode::Match) has one.
    pub fallback: Option<Query>,
    /// The distinct terms of the whole input, if `query` matches texts with any term and the input has more than
    /// [`MAX_TERMS`]. Each is a query of one term. At most [`MAX_CANDIDATES`]. Empty for any other query.
    pub candidates: Vec<Query>,
}

impl Parsed {
    /// Replaces the query by one for any of the [`MAX_TERMS`] rarest candidates, in the order of the input.
    /// `frequencies` holds, for each candidate, the number of texts that have it. Candidates in no text are left out.
    /// Of equally frequent ones the first are chosen. Without candidates, or if no text has any of them, the query
    /// stays the same.
    #[must_use]
    pub fn rarest(self, frequencies: &[u64]) -> Self {
        let mut found: Vec<(u64, usize)> = (0..self.candidates.len())
            .filter_map(|at| Some((*frequencies.get(at)?, at)))
            .filter(|(frequency, _)| *frequency > 0)
            .collect();
        found.sort_unstable();
        let mut rarest: Vec<usize> = found.iter().take(MAX_TERMS).map(|(_, at)| *at).collect();
        rarest.sort_unstable();
        let rarest = rarest.into_iter().map(|at| self.candidates[at].clone());
        Self {
            query: Query::any(rarest.collect()).unwrap_or(self.query),
            fallback: self.fallback,
            candidates: Vec::new(),
        }
    }

    /// The fallback if there is one, else the query. In [`Mode::Match`](crate::Mode::Match) it matches texts with any
    /// of the words, for ranking by relevance.
    pub fn loosest(&self) -> &Query {
        self.fallback.as_ref().unwrap_or(&self.query)
    }

    /// The query that a search ran: the fallback if it was used.
    pub fn that_ran(self, used_fallback: bool) -> Query {
        match self.fallback {
            Some(fallback) if used_fallback => fallback,
            _ => self.query,
        }
    }
}

/// Why a boolean query was rejected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message} (at character {position})")]
pub struct QueryError {
    /// Position in the input, in characters, starting at 0.
    pub position: usize,
    /// What is wrong and what is expected, as a sentence without a full stop.
    pub message: String,
}

impl Query {
    /// Number of words. A phrase has several.
    #[must_use]
    pub fn words(&self) -> usize {
        match self {
            Query::Word(_) | Query::Prefix(_) => 1,
            Query::Phrase(terms) => terms.len(),
            Query::And(queries) | Query::Or(queries) => queries.iter().map(Query::words).sum(),
            Query::Not { positive, negative } => positive.words() + negative.words(),
        }
    }

    /// Number of phrases. A single word counts as one.
    #[must_use]
    pub fn phrases(&self) -> usize {
        match self {
            Query::Word(_) | Query::Prefix(_) | Query::Phrase(_) => 1,
            Query::And(queries) | Query::Or(queries) => queries.iter().map(Query::phrases).sum(),
            Query::Not { positive, negative } => positive.phrases() + negative.phrases(),
        }
    }

    /// The words that may occur in what is found, as [`Term::word`], in the order of the query. Excluded words are left
    /// out.
    #[must_use]
    pub fn wanted_words(&self) -> Vec<&str> {
        match self {
            Query::Word(term) | Query::Prefix(term) => vec![&term.word],
            Query::Phrase(terms) => terms.iter().map(|term| term.word.as_str()).collect(),
            Query::And(queries) | Query::Or(queries) => {
                queries.iter().flat_map(Query::wanted_words).collect()
            }
            Query::Not { positive, .. } => positive.wanted_words(),
        }
    }

    /// The conjunction of the queries, nested conjunctions flattened. `None` for an empty list.
    pub(crate) fn all(queries: Vec<Query>) -> Option<Query> {
        let mut flat = Vec::with_capacity(queries.len());
        for query in queries {
            match query {
                Query::And(inner) => flat.extend(inner),
                other => flat.push(other),
            }
        }
        if flat.len() < 2 {
            flat.pop()
        } else {
            Some(Query::And(flat))
        }
    }

    /// The disjunction of the queries, nested disjunctions flattened. `None` for an empty list.
    pub(crate) fn any(queries: Vec<Query>) -> Option<Query> {
        let mut flat = Vec::with_capacity(queries.len());
        for query in queries {
            match query {
                Query::Or(inner) => flat.extend(inner),
                other => flat.push(other),
            }
        }
        if flat.len() < 2 {
            flat.pop()
        } else {
            Some(Query::Or(flat))
        }
    }
}
