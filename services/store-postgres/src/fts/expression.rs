//! Compiles a parsed query to PostgreSQL's query language. Every word is quoted, so no user input is read as syntax.

use std::borrow::Cow;

use context_text::{Query, Term, fold};

use super::Language;
use super::document::quote;
use crate::pg::sql::{Bind, Fragment, fragment};

/// The tsquery in SQL.
pub(crate) fn query(query: &Query, language: &Language) -> Fragment<'static> {
    let mut text = String::new();
    write(query, lexeme_in(language), &mut text);
    match language {
        Language::Ours(_) => fragment!("?::tsquery", Bind::text(text)),
        Language::Server(configuration) => fragment!(
            "to_tsquery(?::regconfig, ?)",
            Bind::text(configuration.clone()),
            Bind::text(text),
        ),
    }
}

/// The parts of the query that score a match, one tsquery each, in SQL: its words, prefixes and phrases, but not the
/// excluded ones.
pub(crate) fn terms(query: &Query, language: &Language) -> Fragment<'static> {
    let mut terms = Vec::new();
    collect(query, lexeme_in(language), &mut terms);
    match language {
        Language::Ours(_) => fragment!("?::tsquery[]", Bind::Texts(terms)),
        Language::Server(configuration) => fragment!(
            "ARRAY(SELECT to_tsquery(?::regconfig, t.term) FROM unnest(?) AS t(term))",
            Bind::text(configuration.clone()),
            Bind::Texts(terms),
        ),
    }
}

/// How a word of the query is searched: its stem, or the word itself if the server stems it.
fn lexeme_in(language: &Language) -> fn(&Term) -> &str {
    match language {
        Language::Ours(_) => |term| &term.stem,
        Language::Server(_) => |term| &term.word,
    }
}

/// Recursion is bounded by the parser's depth limit.
fn collect(query: &Query, lexeme: fn(&Term) -> &str, out: &mut Vec<Cow<'static, str>>) {
    match query {
        Query::Word(_) | Query::Prefix(_) | Query::Phrase(_) => {
            let mut term = String::new();
            write(query, lexeme, &mut term);
            out.push(Cow::Owned(term));
        }
        Query::And(queries) | Query::Or(queries) => {
            queries.iter().for_each(|query| collect(query, lexeme, out))
        }
        Query::Not {
            positive,
            negative: _,
        } => collect(positive, lexeme, out),
    }
}

/// Recursion is bounded by the parser's depth limit.
fn write(query: &Query, lexeme: fn(&Term) -> &str, out: &mut String) {
    match query {
        Query::Word(term) => quote(lexeme(term), out),
        Query::Prefix(term) => {
            quote(&fold(&term.word), out);
            out.push_str(":*");
        }
        Query::Phrase(terms) => {
            out.push('(');
            for (i, term) in terms.iter().enumerate() {
                out.push_str(if i == 0 { "" } else { " <-> " });
                quote(lexeme(term), out);
            }
            out.push(')');
        }
        Query::And(queries) => join(queries, " & ", lexeme, out),
        Query::Or(queries) => join(queries, " | ", lexeme, out),
        Query::Not { positive, negative } => {
            out.push('(');
            write(positive, lexeme, out);
            out.push_str(" & !(");
            write(negative, lexeme, out);
            out.push_str("))");
        }
    }
}

fn join(queries: &[Query], operator: &str, lexeme: fn(&Term) -> &str, out: &mut String) {
    out.push('(');
    for (i, query) in queries.iter().enumerate() {
        out.push_str(if i == 0 { "" } else { operator });
        write(query, lexeme, out);
    }
    out.push(')');
}

#[cfg(test)]
mod tests {
    use super::*;
    use context_text::{Mode, parse};

    #[test]
    fn a_tree_becomes_quoted_words_and_operators() {
        let language = Language::of_ours("english").unwrap();
        let parsed = parse(
            Mode::Boolean,
            "(running AND fox*) NOT \"red 'dog'\" ",
            &language.analyzer(),
        )
        .unwrap()
        .unwrap();
        let mut text = String::new();
        write(&parsed.query, |term| &term.stem, &mut text);
        assert_eq!(text, "(('run' & 'fox':*) & !(('red' <-> 'dog')))");
    }
}
