//! Compiles a parsed query to FTS5's query language. Every token is quoted, so user input is never interpreted as
//! syntax.

use context_text::{Query, fold};

/// The expression for a query on the `text` column and, `with_context`, also on the context keywords.
pub(super) fn expression(query: &Query, with_context: bool) -> String {
    let mut expression = String::from(if with_context {
        "{text ctx} : ("
    } else {
        "text : ("
    });
    write(query, &mut expression);
    expression.push(')');
    expression
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
