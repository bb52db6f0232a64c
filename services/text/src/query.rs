//! What a search looks for.

/// A query names at most this many terms. `boolean` refuses more; the other modes use the first
/// distinct ones.
pub const MAX_TERMS: usize = 64;

/// How deep parentheses of a boolean query may nest.
pub const MAX_DEPTH: usize = 32;

/// One word, or one bigram of a run without spaces.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Term {
    /// The word as [`crate::Token::word`]: folded, unstemmed. An engine that analyzes this again,
    /// exactly once, arrives at `stem`.
    pub word: String,
    /// The word as [`crate::Token::stem`]: what an index of our tokens holds.
    pub stem: String,
}

/// What to find.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Query {
    /// A word with this stem.
    Word(Term),
    /// A word beginning with `term.word`, folded; see the crate's notes for stores.
    Prefix(Term),
    /// Words with these stems, each right after the previous one; two or more.
    Phrase(Vec<Term>),
    /// All of these; two or more.
    And(Vec<Query>),
    /// At least one of these; two or more.
    Or(Vec<Query>),
    /// The first, but not the second.
    Not {
        /// What must be found.
        positive: Box<Query>,
        /// What must not be found.
        negative: Box<Query>,
    },
}

/// A parsed query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parsed {
    /// What to look for.
    pub query: Query,
    /// What to look for instead when `query` finds nothing. Only [`Mode::Match`] has one.
    pub fallback: Option<Query>,
}

impl Parsed {
    /// The query that asks for any of the words, for ranking by relevance: the fallback where
    /// there is one.
    pub fn loosest(&self) -> &Query {
        self.fallback.as_ref().unwrap_or(&self.query)
    }
}

/// Why a boolean query cannot be understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message} (at character {position})")]
pub struct QueryError {
    /// Where, in characters from the start of the input, the first being 0.
    pub position: usize,
    /// What is wrong and what is expected, as a sentence without a full stop.
    pub message: String,
}

impl Query {
    /// How many words it names; a phrase has several.
    #[must_use]
    pub fn words(&self) -> usize {
        match self {
            Query::Word(_) | Query::Prefix(_) => 1,
            Query::Phrase(terms) => terms.len(),
            Query::And(queries) | Query::Or(queries) => queries.iter().map(Query::words).sum(),
            Query::Not { positive, negative } => positive.words() + negative.words(),
        }
    }

    /// How many phrases it names; a single word is one.
    #[must_use]
    pub fn phrases(&self) -> usize {
        match self {
            Query::Word(_) | Query::Prefix(_) | Query::Phrase(_) => 1,
            Query::And(queries) | Query::Or(queries) => queries.iter().map(Query::phrases).sum(),
            Query::Not { positive, negative } => positive.phrases() + negative.phrases(),
        }
    }

    /// All of the queries, nested conjunctions flattened; `None` when there are none.
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

    /// Any of the queries, nested disjunctions flattened; `None` when there are none.
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
