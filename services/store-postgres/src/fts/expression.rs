//! A parsed query in PostgreSQL's query language. Every word is quoted, so nothing a user wrote is taken for syntax.

use std::borrow::Cow;

use context_text::{Query, Term, fold};

use super::Language;
use super::document::quote;
use crate::pg::sql::{Bind, Fragment};

/// The tsquery in SQL.
pub(crate) fn query(query: &Query, language: &Language) -> Fragment<'static> {
    let mut text = String::new();
    write(query, lexeme_in(language), &mut text);
    match language {
        Language::Ours(_) => {
            let mut cast = Fragment::new("");
            cast.bind(Bind::text(text)).push("::tsquery");
            cast
        }
        Language::Server(configuration) => {
            let mut call = Fragment::new("to_tsquery(");
            call.bind(Bind::text(configuration.clone()))
                .push("::regconfig, ")
                .bind(Bind::text(text))
                .push(")");
            call
        }
    }
}

/// What of the query counts for a match, one tsquery each, in SQL: its words, prefixes and phrases, but not what must be
/// absent.
pub(crate) fn terms(query: &Query, language: &Language) -> Fragment<'static> {
    let mut terms = Vec::new();
    collect(query, lexeme_in(language), &mut terms);
    let mut array = Fragment::new("");
    match language {
        Language::Ours(_) => _ = array.bind(Bind::Texts(terms)).push("::tsquery[]"),
        Language::Server(configuration) => {
            array
                .push("ARRAY(SELECT to_tsquery(")
                .bind(Bind::text(configuration.clone()))
                .push("::regconfig, t.term) FROM unnest(");
            array.bind(Bind::Texts(terms)).push(") AS t(term))");
        }
    }
    array
}

/// What a word of the query is looked for as: its stem, or the word for a server that stems it.
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
