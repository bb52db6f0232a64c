//! Raw SQL: text with `?` for every value, and the values.
//!
//! Statements are written in diesel's query language ([`crate::pg::dsl`]) unless it cannot express them. Each raw
//! statement is one literal. `tests/it/raw_sql.txt` lists those that the conformance suite sends, with their reasons.

#![expect(clippy::disallowed_methods, reason = "the duration of searches")]

use std::borrow::Cow;
use std::pin::pin;
use std::sync::Arc;
use std::time::Instant;

use diesel::QueryResult;
use diesel::deserialize::{self, FromSqlRow, QueryableByName};
use diesel::expression::{AppearsOnTable, Expression, ValidGrouping, is_aggregate};
use diesel::pg::Pg;
use diesel::query_builder::{AstPass, Query, QueryFragment, QueryId};
use diesel::sql_types::{Array, BigInt, Binary, Bool, Nullable, Text, Untyped};
use futures::TryStreamExt as _;

use crate::pg::connection::AsyncPgConnection;
use crate::pg::driver::{Encoded, PgRow, Source};
use crate::pg::failure::{CommitError, failed as driver_failed};
use crate::pg::statement_cache::{CachePolicy, SlowSearches, StatementId};
use crate::vectors::{Vector, VectorType};

/// A value that is sent to PostgreSQL separately from the SQL text.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Bind<'v> {
    /// text
    Text(Cow<'v, str>),
    /// text, or NULL
    OptionalText(Option<Cow<'v, str>>),
    /// bigint
    Int(i64),
    /// boolean
    Bool(bool),
    /// boolean, or NULL
    OptionalBool(Option<bool>),
    /// bytea
    Bytes(&'v [u8]),
    /// text[]
    Texts(Vec<Cow<'v, str>>),
    /// text[], or NULL
    OptionalList(Option<Vec<Cow<'v, str>>>),
    /// text[] with NULLs
    OptionalTexts(Vec<Option<Cow<'v, str>>>),
    /// bigint[]
    Ints(Vec<i64>),
    /// bigint[] with NULLs
    OptionalInts(Vec<Option<i64>>),
    /// bytea[]
    ByteStrings(Vec<&'v [u8]>),
    /// bytea[] with NULLs
    OptionalByteStrings(Vec<Option<&'v [u8]>>),
    /// vector
    Vector(Vector),
    /// vector[]
    Vectors(Vec<Vector>),
}

impl<'v> Bind<'v> {
    pub fn text(text: impl Into<Cow<'v, str>>) -> Self {
        Self::Text(text.into())
    }

    /// Texts as one array value.
    pub fn texts<T: AsRef<str>>(texts: &'v [T]) -> Self {
        Self::Texts(
            texts
                .iter()
                .map(|text| Cow::Borrowed(text.as_ref()))
                .collect(),
        )
    }

    pub fn ints(ints: impl IntoIterator<Item = i64>) -> Self {
        Self::Ints(ints.into_iter().collect())
    }
}

/// SQL text and the values of its `?` placeholders, in order. Every question mark in the text is a placeholder.
///
/// Of what a caller wrote, the text contains only the paths of metadata fields, whose characters cannot end a literal
/// ([`crate::filter`]). Every value is a bind.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Fragment<'v> {
    sql: Cow<'static, str>,
    binds: Vec<Bind<'v>>,
    /// How long the statement stays prepared on its connection.
    policy: CachePolicy,
    /// The literal in the source that the text comes from.
    literal: Option<&'static str>,
}

/// An argument of [`fragment!`].
pub(crate) enum Part<'v> {
    Value(Bind<'v>),
    Sql(Fragment<'v>),
}

impl<'v> From<Bind<'v>> for Part<'v> {
    fn from(value: Bind<'v>) -> Self {
        Self::Value(value)
    }
}

impl<'v> From<Fragment<'v>> for Part<'v> {
    fn from(sql: Fragment<'v>) -> Self {
        Self::Sql(sql)
    }
}

/// SQL written as one literal. Each `?` in it is replaced by a value and each `{name}` by another fragment, in the
/// order of the arguments. Braces inside quotes are literal.
macro_rules! fragment {
    ($literal:expr $(, $part:expr)* $(,)?) => {
        $crate::pg::sql::Fragment::filled($literal, vec![$($crate::pg::sql::Part::from($part)),*])
    };
}
pub(crate) use fragment;

impl<'v> Fragment<'v> {
    /// SQL put together at run time. The server plans it for each use, with its values.
    pub fn new(sql: impl Into<Cow<'static, str>>) -> Self {
        let sql = sql.into();
        Self {
            literal: match sql {
                Cow::Borrowed(literal) => Some(literal),
                Cow::Owned(_) => None,
            },
            sql,
            binds: Vec::new(),
            policy: CachePolicy::Never,
        }
    }

    /// Replaces each occurrence of `part` in the text. Neither text may have a `?`.
    pub fn replace(&mut self, part: &str, by: &str) {
        if self.sql.contains(part) {
            self.sql = Cow::Owned(self.sql.replace(part, by));
            self.literal = None;
        }
    }

    /// A statement of fixed text, which stays prepared.
    pub fn prepared(sql: &'static str, binds: Vec<Bind<'v>>) -> Self {
        Self {
            policy: CachePolicy::Always,
            ..Self::planned(sql, binds)
        }
    }

    /// A statement of fixed text that the server plans for each use, with its values, because one plan for all values
    /// would be slow.
    pub fn planned(sql: &'static str, binds: Vec<Bind<'v>>) -> Self {
        debug_assert_eq!(sql.matches('?').count(), binds.len(), "{sql}");
        Self {
            binds,
            ..Self::new(sql)
        }
    }

    /// Fills in the literal of [`fragment!`].
    pub fn filled(literal: &'static str, parts: Vec<Part<'v>>) -> Self {
        let (mut sql, mut binds) = (String::with_capacity(2 * literal.len()), Vec::new());
        let (mut parts, mut is_quoted, mut is_name) = (parts.into_iter(), false, false);
        for c in literal.chars() {
            match c {
                '?' | '{' if !is_quoted => {
                    let part = parts.next();
                    debug_assert_eq!(matches!(part, Some(Part::Value(_))), c == '?', "{literal}");
                    is_name = c == '{';
                    match part {
                        Some(Part::Value(value)) => {
                            sql.push('?');
                            binds.push(value);
                        }
                        Some(Part::Sql(part)) => {
                            sql.push_str(&part.sql);
                            binds.extend(part.binds);
                        }
                        None => debug_assert!(false, "a part is missing: {literal}"),
                    }
                }
                '}' if is_name => is_name = false,
                _ if is_name => {}
                _ => {
                    is_quoted ^= c == '\'';
                    sql.push(c);
                }
            }
        }
        debug_assert!(parts.next().is_none(), "a part is left over: {literal}");
        Self {
            sql: Cow::Owned(sql),
            binds,
            policy: CachePolicy::Never,
            literal: Some(literal),
        }
    }

    /// Keeps the statement prepared while it is used often and is fast.
    pub fn cached(self) -> Self {
        Self {
            policy: CachePolicy::WhileUsed,
            ..self
        }
    }

    /// The SQL text.
    pub fn sql(&self) -> &str {
        &self.sql
    }

    /// Encodes the statement for the server.
    fn encode(&self, conn: &AsyncPgConnection) -> QueryResult<Encoded> {
        let encoded = match (&self.sql, self.policy) {
            (Cow::Borrowed(literal), CachePolicy::Always) => {
                conn.encode_fixed(StatementId::of_literal(literal), self)
            }
            _ => conn.encode(self, self.policy),
        };
        Ok(Encoded {
            source: Source::Raw(self.literal),
            ..encoded?
        })
    }

    /// Whether it has no text.
    pub fn is_empty(&self) -> bool {
        self.sql.is_empty()
    }

    /// Appends text.
    pub fn push(&mut self, sql: &str) -> &mut Self {
        self.sql.to_mut().push_str(sql);
        self
    }

    /// Appends `?` and its value.
    pub fn bind(&mut self, value: Bind<'v>) -> &mut Self {
        self.sql.to_mut().push('?');
        self.binds.push(value);
        self
    }

    /// Appends another fragment.
    pub fn append(&mut self, other: Self) -> &mut Self {
        self.sql.to_mut().push_str(&other.sql);
        self.binds.extend(other.binds);
        self
    }
}

impl QueryFragment<Pg> for Fragment<'_> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Pg>) -> QueryResult<()> {
        let mut parts = self.sql.split('?');
        out.push_sql(parts.next().unwrap_or_default());
        for (bind, part) in self.binds.iter().zip(parts) {
            match bind {
                Bind::Text(text) => out.push_bind_param::<Text, _>(text)?,
                Bind::OptionalText(text) => out.push_bind_param::<Nullable<Text>, _>(text)?,
                Bind::Int(int) => out.push_bind_param::<BigInt, _>(int)?,
                Bind::Bool(value) => out.push_bind_param::<Bool, _>(value)?,
                Bind::OptionalBool(value) => out.push_bind_param::<Nullable<Bool>, _>(value)?,
                Bind::Bytes(bytes) => out.push_bind_param::<Binary, _>(bytes)?,
                Bind::Texts(texts) => out.push_bind_param::<Array<Text>, _>(texts)?,
                Bind::OptionalList(texts) => {
                    out.push_bind_param::<Nullable<Array<Text>>, _>(texts)?
                }
                Bind::OptionalTexts(texts) => {
                    out.push_bind_param::<Array<Nullable<Text>>, _>(texts)?
                }
                Bind::Ints(ints) => out.push_bind_param::<Array<BigInt>, _>(ints)?,
                Bind::OptionalInts(ints) => {
                    out.push_bind_param::<Array<Nullable<BigInt>>, _>(ints)?
                }
                Bind::ByteStrings(strings) => out.push_bind_param::<Array<Binary>, _>(strings)?,
                Bind::OptionalByteStrings(strings) => {
                    out.push_bind_param::<Array<Nullable<Binary>>, _>(strings)?
                }
                Bind::Vector(vector) => out.push_bind_param::<VectorType, _>(vector)?,
                Bind::Vectors(vectors) => out.push_bind_param::<Array<VectorType>, _>(vectors)?,
            }
            out.push_sql(part);
        }
        Ok(())
    }
}

// All fragments have this type, so only its text identifies a statement.
impl QueryId for Fragment<'_> {
    type QueryId = ();
    const HAS_STATIC_QUERY_ID: bool = false;
}

impl Query for Fragment<'_> {
    type SqlType = Untyped;
}

/// A compiled condition for the WHERE of a diesel query.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Condition<'v>(pub Fragment<'v>);

impl QueryFragment<Pg> for Condition<'_> {
    fn walk_ast<'b>(&'b self, out: AstPass<'_, 'b, Pg>) -> QueryResult<()> {
        self.0.walk_ast(out)
    }
}

impl QueryId for Condition<'_> {
    type QueryId = ();
    const HAS_STATIC_QUERY_ID: bool = false;
}

impl Expression for Condition<'_> {
    type SqlType = Bool;
}

impl<Grouping> ValidGrouping<Grouping> for Condition<'_> {
    type IsAggregate = is_aggregate::Never;
}

// The condition's text names its columns, so diesel cannot check them.
impl<Tables> AppearsOnTable<Tables> for Condition<'_> {}

/// Loads the OIDs of extension types, which differ between databases.
async fn load_types(conn: &mut AsyncPgConnection, fragment: &Fragment<'_>) -> QueryResult<()> {
    if fragment
        .binds
        .iter()
        .any(|bind| matches!(bind, Bind::Vector(_) | Bind::Vectors(_)))
    {
        conn.load_type("vector").await?;
    }
    Ok(())
}

/// Returns the rows of a query.
pub(crate) async fn query<Row>(
    conn: &mut AsyncPgConnection,
    fragment: Fragment<'_>,
) -> QueryResult<Vec<Row>>
where
    Row: QueryableByName<Pg> + Send + 'static,
{
    let mut rows = Vec::new();
    let push = |row| {
        rows.push(row);
        Ok(())
    };
    each(conn, fragment, |error| error, push).await?;
    Ok(rows)
}

/// Passes a query's rows to `handle` as they arrive. The first error of `handle` ends the query and is returned.
/// `failed` converts the errors of the query.
pub(crate) async fn each<Row, E>(
    conn: &mut AsyncPgConnection,
    fragment: Fragment<'_>,
    failed: impl Fn(diesel::result::Error) -> E,
    handle: impl FnMut(Row) -> Result<(), E>,
) -> Result<(), E>
where
    Row: QueryableByName<Pg> + Send + 'static,
{
    read(conn, fragment, failed, Row::build, handle).await
}

/// As [`each`], but reads the columns `Columns` by position.
pub(crate) async fn each_in_order<Columns, Row, E>(
    conn: &mut AsyncPgConnection,
    fragment: Fragment<'_>,
    failed: impl Fn(diesel::result::Error) -> E,
    handle: impl FnMut(Row) -> Result<(), E>,
) -> Result<(), E>
where
    Row: FromSqlRow<Columns, Pg>,
{
    read(conn, fragment, failed, Row::build_from_row, handle).await
}

/// The number that a query with one row and one column returns.
pub(crate) async fn number(
    conn: &mut AsyncPgConnection,
    fragment: Fragment<'_>,
) -> QueryResult<i64> {
    let mut number = None;
    let set = |found| {
        number = Some(found);
        Ok(())
    };
    each_in_order::<BigInt, i64, _>(conn, fragment, |error| error, set).await?;
    number.ok_or(diesel::result::Error::NotFound)
}

async fn read<Row, E>(
    conn: &mut AsyncPgConnection,
    fragment: Fragment<'_>,
    failed: impl Fn(diesel::result::Error) -> E,
    build: impl Fn(&PgRow) -> deserialize::Result<Row>,
    mut handle: impl FnMut(Row) -> Result<(), E>,
) -> Result<(), E> {
    load_types(conn, &fragment).await.map_err(&failed)?;
    let statement = fragment.encode(conn).map_err(&failed)?;
    let _timing = (fragment.policy == CachePolicy::WhileUsed).then(|| Timing {
        sql: statement.sql.clone(),
        started: Instant::now(),
        searches: Arc::clone(conn.slow_searches()),
    });
    let mut rows = pin!(conn.rows(statement).await.map_err(&failed)?);
    while let Some(row) = rows
        .try_next()
        .await
        .map_err(|error| failed(driver_failed(error)))?
    {
        handle(
            build(&PgRow(row))
                .map_err(|error| failed(diesel::result::Error::DeserializationError(error)))?,
        )?;
    }
    Ok(())
}

/// Records the duration of a search when it is dropped. A search that fails at its time limit is recorded too:
/// otherwise the plan that made it slow would stay cached.
struct Timing {
    sql: String,
    started: Instant,
    searches: Arc<SlowSearches>,
}

impl Drop for Timing {
    fn drop(&mut self) {
        self.searches.record(&self.sql, self.started.elapsed());
    }
}

/// Runs a statement and returns the number of rows it changed.
pub(crate) async fn execute(
    conn: &mut AsyncPgConnection,
    fragment: Fragment<'_>,
) -> QueryResult<usize> {
    load_types(conn, &fragment).await?;
    let statement = fragment.encode(conn)?;
    conn.execute(statement).await
}

/// Sends a statement whose rows are not needed, without waiting. If it fails, the next awaited statement fails too.
pub(crate) async fn send(conn: &mut AsyncPgConnection, fragment: Fragment<'_>) -> QueryResult<()> {
    load_types(conn, &fragment).await?;
    let statement = fragment.encode(conn)?;
    conn.send(statement).await
}

/// Returns the rows of a transaction's last query. `end` then ends the transaction.
pub(crate) async fn query_and_end<Row>(
    conn: &mut AsyncPgConnection,
    fragment: Fragment<'_>,
    end: &str,
) -> Result<Vec<Row>, CommitError>
where
    Row: QueryableByName<Pg>,
{
    let statement = fragment.encode(conn).map_err(CommitError::Rejected)?;
    let rows = conn.rows_and_end(statement, end).await?;
    let read = |row: &PgRow| {
        Row::build(row).map_err(|error| {
            CommitError::OutcomeUnknown(diesel::result::Error::DeserializationError(error))
        })
    };
    rows.iter().map(read).collect()
}

/// PostgreSQL's plan of this query, one line each, for callers. The planner's estimates are left out, because they come
/// from the rows of every owner.
pub(crate) async fn explain(
    conn: &mut AsyncPgConnection,
    fragment: &Fragment<'_>,
) -> QueryResult<Vec<String>> {
    let plan = explained("EXPLAIN (COSTS OFF) ", fragment.clone());
    Ok(query::<Line>(conn, plan)
        .await?
        .into_iter()
        .map(|row| row.line)
        .collect())
}

/// Returns the rows of a query, and the number of rows that PostgreSQL expects of `other`, in one round trip.
pub(crate) async fn query_and_expected_rows<Row>(
    conn: &mut AsyncPgConnection,
    fragment: Fragment<'_>,
    other: Fragment<'_>,
) -> QueryResult<(Vec<Row>, f64)>
where
    Row: QueryableByName<Pg>,
{
    let (fragment, plan) = (
        fragment.encode(conn)?,
        explained("EXPLAIN ", other).encode(conn)?,
    );
    let (rows, plan) = conn.rows_of_both(fragment, plan).await?;
    let lines: Vec<Line> = built(&plan[..])?;
    let expected = lines
        .as_slice()
        .first()
        .and_then(|Line { line }| line.split("rows=").nth(1)?.split(' ').next()?.parse().ok());
    Ok((built(&rows[..])?, expected.unwrap_or(0.0)))
}

fn built<Row: QueryableByName<Pg>>(rows: &[PgRow]) -> QueryResult<Vec<Row>> {
    let rows: deserialize::Result<_> = rows.iter().map(Row::build).collect();
    rows.map_err(diesel::result::Error::DeserializationError)
}

#[derive(QueryableByName)]
struct Line {
    #[diesel(sql_type = Text, column_name = "QUERY PLAN")]
    line: String,
}

fn explained<'v>(explain: &'static str, fragment: Fragment<'v>) -> Fragment<'v> {
    let mut plan = Fragment::new(explain);
    plan.append(fragment);
    plan
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_of_a_fragment_take_the_places_of_its_literal_in_order() {
        let filter = fragment!("b = ? AND c = '{}'", Bind::Int(2));
        let select = fragment!(
            "SELECT '{1}' WHERE a = ? AND ({filter}) LIMIT {limit}",
            Bind::Int(1),
            filter,
            Fragment::new("3"),
        );
        assert_eq!(
            (select.sql(), select.binds.as_slice()),
            (
                "SELECT '{1}' WHERE a = ? AND (b = ? AND c = '{}') LIMIT 3",
                &[Bind::Int(1), Bind::Int(2)][..]
            )
        );
    }
}
