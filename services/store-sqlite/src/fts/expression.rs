//! Compiles a parsed query to FTS5's query language. Every token is quoted, so user input is never interpreted as
//! syntax.

use context_text::{Query, fold};

use super::scope;

/// The expression for a query on the `text` column and, `with_context`, also on the context keywords.
pub(super) fn expression(query: &Query, with_context: bool) -> String {
    let mut expression = String::from(if !with_context {
        "text : ("
    } else if may_match_scope(query) {
        "{text ctx} : ("
    } else {
        // No column is named, because the scope column has none of these tokens. With a filter of columns, FTS5 copies
        // the positions of every row.
        "("
    });
    write(query, &mut expression);
    expression.push(')');
    expression
}

/// Whether a token of the query may match one of the scope column. Recursion is bounded by the parser's depth limit.
fn may_match_scope(query: &Query) -> bool {
    match query {
        Query::Word(term) => scope::is_like_token(&term.stem),
        Query::Prefix(_) => true,
        Query::Phrase(terms) => terms.iter().any(|term| scope::is_like_token(&term.stem)),
        Query::And(queries) | Query::Or(queries) => queries.iter().any(may_match_scope),
        Query::Not { positive, negative } => may_match_scope(positive) || may_match_scope(negative),
    }
}

/// Recursion is bounded by the parser's depth limit.
fn write(query: &Query, out: &mut String) {
    match query {
        Query::Word(term) => quote(&term.stem, out),
        Query::Prefix(term) => {
            quote(&fold(&term.word), out);
            out.push_str(" *");
        }
        Query::Phrase(terms) => {
            for (i, term) in terms.iter().enumerate() {
                out.push_str(if i == 0 { "" } else { " + " });
                quote(&term.stem, out);
            }
        }
        Query::And(queries) => join(queries, " AND ", out),
        Query::Or(queries) => join(queries, " OR ", out),
        Query::Not { positive, negative } => {
            out.push('(');
            write(positive, out);
            out.push_str(" NOT ");
            write(negative, out);
            out.push(')');
        }
    }
}

fn join(queries: &[Query], operator: &str, out: &mut String) {
    out.push('(');
    for (i, query) in queries.iter().enumerate() {
        out.push_str(if i == 0 { "" } else { operator });
        write(query, out);
    }
    out.push(')');
}

fn quote(token: &str, out: &mut String) {
    out.push('"');
    out.push_str(&token.replace('"', "\"\""));
    out.push('"');
}
