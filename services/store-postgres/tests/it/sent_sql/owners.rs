//! Checks that a statement restricts every table it accesses to one owner, as sharding by owner requires. A statement
//! that reads the owners after one, in their order, passes too.

use std::collections::BTreeSet;

/// Statements over all owners: a part of their text, and what they are for.
pub const OVER_ALL_OWNERS: [(&str, &str); 11] = [
    (
        r#"WHERE ("context"."api_keys"."lookup" = $1)"#,
        "the owner of a caller with a key is not known yet",
    ),
    (
        r#"WHERE ("context"."api_keys"."deactivated_at" IS NULL) ORDER BY"#,
        "the active keys of all owners",
    ),
    (r#"FROM "context"."owners" ORDER BY"#, "the owners"),
    (
        "SELECT coalesce(sum(entry_count), 0)::bigint + (SELECT count(*) FROM context.artifact_documents) FROM context.owners",
        "the number of entries and artifacts to embed for another model",
    ),
    (
        "LIMIT 1) AS missing",
        "whether artifacts are to be indexed when a database is opened",
    ),
    (
        "LIMIT $2) AS waiting",
        "whether entries have no vectors of the new model yet",
    ),
    (
        "SELECT count(*) FROM context.chunks WHERE set_id = $1 AND position = 0",
        "the progress of the change to another model",
    ),
    (
        "FROM context.chunks WHERE set_id = $1 LIMIT 1) AS found",
        "whether a set has vectors",
    ),
    (
        "DELETE FROM context.chunks WHERE (owner_id, id, set_id, position) IN",
        "deletion of a discarded set",
    ),
    (
        "DELETE FROM context.embedding_claims WHERE until",
        "deletion of expired claims",
    ),
    (
        "FROM context.owners AS o CROSS JOIN LATERAL",
        "owners with old changes in the feed, or with old lines in the audit log",
    ),
];

#[derive(Debug, Clone, PartialEq, Eq)]
enum Token {
    /// A name or a keyword, lower-cased.
    Word(String),
    /// A parameter, a number or a string.
    Value,
    /// A subquery, which is checked separately.
    Query,
    Operator(String),
    Sign(char),
}

use Token::{Operator, Query, Sign, Value, Word};

impl Token {
    fn is(&self, word: &str) -> bool {
        matches!(self, Word(found) if found == word)
    }

    fn is_one_of(&self, words: &[&str]) -> bool {
        matches!(self, Word(found) if words.contains(&found.as_str()))
    }

    fn compares(&self) -> bool {
        matches!(self, Operator(operator) if ["=", "<", ">", "<=", ">="].contains(&operator.as_str()))
    }
}

fn tokens(sql: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    let mut rest = sql.trim_start();
    while let Some(first) = rest.chars().next() {
        let is_word = |c: char| c.is_alphanumeric() || c == '_';
        let is_operator = |c: char| "<>=!@&|#~+-*/:%^?".contains(c);
        let length = |is: fn(char) -> bool, rest: &str| rest.find(|c| !is(c)).unwrap_or(rest.len());
        let quoted = |quote: char| rest[1..].find(quote).map_or(rest.len(), |end| end + 2);
        let end = match first {
            '\'' | '"' => quoted(first),
            '$' => 1 + length(|c| c.is_ascii_digit(), &rest[1..]),
            c if is_word(c) => length(|c| c.is_alphanumeric() || c == '_', rest),
            c if is_operator(c) => length(|c| "<>=!@&|#~+-*/:%^?".contains(c), rest),
            c => c.len_utf8(),
        };
        let text = &rest[..end];
        tokens.push(match first {
            '\'' | '$' | '0'..='9' => Value,
            '"' => Word(text.trim_matches('"').to_lowercase()),
            c if is_word(c) => Word(text.to_lowercase()),
            c if is_operator(c) => Operator(text.to_owned()),
            c => Sign(c),
        });
        rest = rest[end..].trim_start();
    }
    tokens
}

/// The statement and its subqueries, each without the subqueries in it. The parts of a UNION are separate.
fn queries(sql: &str) -> Vec<Vec<Token>> {
    let mut open: Vec<(Vec<Token>, usize)> = vec![(Vec::new(), 0)];
    let mut done = Vec::new();
    let tokens = tokens(sql);
    for (at, token) in tokens.iter().enumerate() {
        let Some((query, depth)) = open.last_mut() else {
            break;
        };
        let begins = tokens
            .get(at + 1)
            .is_some_and(|next| next.is_one_of(&["select", "with", "insert", "update", "delete"]));
        match token {
            Sign('(') if begins => {
                query.push(Query);
                open.push((Vec::new(), 0));
            }
            Sign(')') if *depth == 0 => done.extend(open.pop().map(|(query, _)| query)),
            _ => {
                *depth += usize::from(*token == Sign('('));
                *depth -= usize::from(*token == Sign(')'));
                query.push(token.clone());
            }
        }
    }
    done.extend(open.pop().map(|(query, _)| query));
    let alone = |query: Vec<Token>| -> Vec<Vec<Token>> {
        query
            .split(|token| token.is("union"))
            .map(<[Token]>::to_vec)
            .collect()
    };
    done.into_iter().flat_map(alone).collect()
}

/// A table that a query accesses.
#[derive(Debug, Clone)]
struct Touched {
    table: String,
    alias: String,
    inserts_owner: Option<bool>,
}

/// Words that may follow a table without being its alias.
const KEYWORDS: [&str; 17] = [
    "where",
    "set",
    "order",
    "on",
    "join",
    "inner",
    "left",
    "cross",
    "for",
    "using",
    "values",
    "select",
    "limit",
    "returning",
    "group",
    "default",
    "offset",
];

fn touched(query: &[Token], owned: &BTreeSet<String>) -> Vec<Touched> {
    let mut found = Vec::new();
    for at in 0..query.len().saturating_sub(2) {
        let (Word(schema), Sign('.'), Word(table)) = (&query[at], &query[at + 1], &query[at + 2])
        else {
            continue;
        };
        // With a column after it, this is the table of a column.
        if schema != "context" || !owned.contains(table) || query.get(at + 3) == Some(&Sign('.')) {
            continue;
        }
        let behind = at + 3 + usize::from(query.get(at + 3).is_some_and(|token| token.is("as")));
        let (alias, behind) = match query.get(behind) {
            Some(Word(alias)) if !KEYWORDS.contains(&alias.as_str()) => (alias, behind + 1),
            _ => (table, behind),
        };
        let is_inserted = at > 0 && query[at - 1].is("into");
        let columns = query[behind..]
            .split(|token| *token == Sign(')'))
            .next()
            .unwrap_or_default();
        found.push(Touched {
            table: table.clone(),
            alias: alias.clone(),
            inserts_owner: is_inserted.then(|| columns.iter().any(|token| token.is("owner_id"))),
        });
    }
    found
}

/// The alias before a column's name, and the start of the qualified name.
fn qualified(query: &[Token], at: usize) -> (Option<&str>, usize) {
    match query[..at] {
        [.., Sign('.'), Word(_), Sign('.')] if at >= 4 && query[at - 4].is("context") => {
            let Word(table) = &query[at - 2] else {
                return (None, at);
            };
            (Some(table), at - 4)
        }
        [.., Word(_), Sign('.')] => {
            let Word(alias) = &query[at - 2] else {
                return (None, at);
            };
            (Some(alias), at - 2)
        }
        _ => (None, at),
    }
}

/// What a column is compared with: the column of an alias, or a value (`None`).
enum Compared<'q> {
    With(Option<&'q str>),
    Not,
}

fn compared(query: &[Token], from: usize, at: usize) -> Compared<'_> {
    let other = |place: usize| -> Compared<'_> {
        let owner_id = (place..query.len().min(place + 5)).find(|at| query[*at].is("owner_id"));
        match owner_id.map(|at| qualified(query, at)) {
            Some((alias, begin)) if begin == place => Compared::With(alias),
            _ => Compared::With(None),
        }
    };
    if query.get(at + 1).is_some_and(Token::compares) {
        return other(at + 2);
    }
    if from >= 2 && query[from - 1].compares() {
        // `a.owner_id = b.owner_id`, read from its end.
        return match query[from - 2].is("owner_id") {
            true => Compared::With(qualified(query, from - 2).0),
            false => Compared::With(None),
        };
    }
    // The first column of a row: `(owner_id, id) > ($1, $2)`.
    if from >= 1 && query[from - 1] == Sign('(') {
        let close = (at..query.len()).find(|at| query[*at] == Sign(')'));
        if close.is_some_and(|close| query.get(close + 1).is_some_and(Token::compares)) {
            return Compared::With(None);
        }
    }
    Compared::Not
}

/// The tables that the query does not restrict to an owner.
fn open_tables(query: &[Token], owned: &BTreeSet<String>) -> Vec<String> {
    let tables = touched(query, owned);
    let mut restricted: BTreeSet<&str> = BTreeSet::new();
    let mut equal: Vec<(&str, &str)> = Vec::new();
    for at in 0..query.len() {
        if !query[at].is("owner_id") {
            continue;
        }
        let (alias, from) = qualified(query, at);
        let alias = match (alias, tables.as_slice()) {
            (Some(alias), _) => alias,
            (None, [only]) => only.alias.as_str(),
            (None, _) => continue,
        };
        match compared(query, from, at) {
            Compared::Not => {}
            // A table of an outer query or of an earlier CTE is checked there.
            Compared::With(Some(other)) if tables.iter().any(|table| table.alias == other) => {
                equal.push((alias, other));
            }
            Compared::With(_) => _ = restricted.insert(alias),
        }
    }
    for _ in 0..equal.len() {
        for (one, other) in &equal {
            if restricted.contains(one) || restricted.contains(other) {
                restricted.extend([*one, *other]);
            }
        }
    }
    let open = tables.iter().filter(|table| {
        !table
            .inserts_owner
            .unwrap_or(restricted.contains(&*table.alias))
    });
    open.map(|table| table.table.clone()).collect()
}

/// Number of joins that neither compare the owners of both sides nor give a value for the owner.
fn open_joins(query: &[Token]) -> usize {
    let ends = [
        "join", "left", "inner", "cross", "where", "order", "group", "limit",
    ];
    let joins = (0..query.len()).filter(|at| query[*at].is("join"));
    joins
        .filter(|at| {
            let end = (at + 1..query.len()).find(|end| query[*end].is_one_of(&ends));
            let join = &query[at + 1..end.unwrap_or(query.len())];
            // LATERAL queries and values belong to the row that they are joined with.
            let has_no_owner = query[at - 1].is("cross")
                || join[0].is_one_of(&["lateral", "unnest", "pg_class", "pg_catalog"]);
            let mut owners = (0..join.len()).filter(|at| join[*at].is("owner_id"));
            let names_owner =
                owners.clone().count() >= 2 || owners.any(|at| join.get(at + 2) == Some(&Value));
            !has_no_owner && !names_owner
        })
        .count()
}

/// The violations in a statement.
pub fn faults(sql: &str, owned: &BTreeSet<String>) -> Vec<String> {
    if OVER_ALL_OWNERS.iter().any(|(part, _)| sql.contains(part)) {
        return Vec::new();
    }
    let mut faults = Vec::new();
    for query in queries(sql) {
        for table in open_tables(&query, owned) {
            faults.push(format!("{table} is not restricted to its owner in {sql}"));
        }
        for _ in 0..open_joins(&query) {
            faults.push(format!(
                "a join does not name the owner on both sides in {sql}"
            ));
        }
    }
    faults
}

#[test]
fn a_statement_that_leaves_an_owner_open_is_found() {
    let owned = ["entries", "threads", "owners"].map(str::to_owned).into();
    for (sql, wrong) in [
        ("SELECT id FROM context.entries WHERE owner_id = $1", 0),
        ("SELECT id FROM context.entries WHERE id = $1", 1),
        (
            r#"SELECT "context"."entries"."id" FROM "context"."entries" WHERE (("context"."entries"."owner_id" = $1) AND ("context"."entries"."id" = $2))"#,
            0,
        ),
        (
            r#"SELECT "context"."entries"."owner_id" FROM "context"."entries" WHERE ("context"."entries"."id" = $2)"#,
            1,
        ),
        (
            r#"SELECT 1 FROM ("context"."threads" INNER JOIN "context"."entries" ON (("context"."entries"."owner_id" = "context"."threads"."owner_id") AND ("context"."entries"."thread_id" = "context"."threads"."thread_id"))) WHERE ("context"."threads"."owner_id" = $1)"#,
            0,
        ),
        (
            r#"SELECT 1 FROM ("context"."threads" INNER JOIN "context"."entries" ON ("context"."entries"."thread_id" = "context"."threads"."thread_id")) WHERE ("context"."threads"."owner_id" = $1)"#,
            2,
        ),
        (
            "SELECT 1 FROM context.threads AS t JOIN context.entries AS e ON e.owner_id = t.owner_id",
            2,
        ),
        (
            "WITH page AS (SELECT owner_id, id FROM context.entries WHERE (owner_id, id) > ($1, $2)) \
             SELECT e.text FROM page AS p JOIN context.entries AS e ON e.owner_id = p.owner_id AND e.id = p.id",
            0,
        ),
        (
            "WITH page AS (SELECT owner_id, id FROM context.entries WHERE owner_id = $1) \
             SELECT e.text FROM page AS p JOIN context.entries AS e ON e.id = p.id",
            2,
        ),
        (
            "INSERT INTO context.threads AS t (owner_id, thread_id) SELECT $1, n FROM unnest($2) AS n",
            0,
        ),
        ("INSERT INTO context.threads (thread_id) VALUES ($1)", 1),
        (
            "SELECT e.id FROM unnest($1) AS w(id) JOIN context.entries AS e ON e.owner_id = $2 AND e.id = w.id",
            0,
        ),
        (
            "DELETE FROM context.entries WHERE owner_id = $1 AND id IN (SELECT id FROM context.entries WHERE thread_id = $2)",
            1,
        ),
        (
            "SELECT 1 FROM context.entries WHERE owner_id = $1 UNION ALL SELECT 1 FROM context.threads",
            1,
        ),
        ("SELECT value FROM context.settings WHERE key = $1", 0),
    ] {
        assert_eq!(faults(sql, &owned).len(), wrong, "{sql}");
    }
}
