//! SQL text with `?` for every value, and the values.

use std::borrow::Cow;
use std::pin::pin;
use std::time::Instant;

use diesel::QueryResult;
use diesel::deserialize::{self, FromSqlRow, QueryableByName};
use diesel::pg::Pg;
use diesel::query_builder::{AstPass, Query, QueryFragment, QueryId};
use diesel::sql_types::{Array, BigInt, Binary, Bool, Nullable, Text, Untyped};
use futures::TryStreamExt as _;

use crate::pg::connection::AsyncPgConnection;
use crate::pg::driver::{Encoded, PgRow};
use crate::pg::failure::{CommitError, failed as driver_failed};
use crate::pg::statement_cache::{CachePolicy, StatementId};
use crate::vectors::{Vector, VectorType};

/// A value that PostgreSQL gets apart from the SQL.
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
    /// bytea
    Bytes(&'v [u8]),
    /// text[]
    Texts(Vec<Cow<'v, str>>),
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

    /// Any number of texts as one value.
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

/// SQL text and the values of its `?` placeholders, in order; it has no other question mark.
///
/// The text holds nothing a caller wrote: every value of a caller is a bind.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Fragment<'v> {
    sql: Cow<'static, str>,
    binds: Vec<Bind<'v>>,
    /// How long the statement stays prepared on its connection.
    policy: CachePolicy,
}

impl<'v> Fragment<'v> {
    /// SQL put together at run time. It is planned anew each time, with its values in view.
    pub fn new(sql: impl Into<Cow<'static, str>>) -> Self {
        Self {
            sql: sql.into(),
            binds: Vec::new(),
            policy: CachePolicy::Never,
        }
    }

    /// A search put together at run time. It stays prepared while it is asked often, and quick.
    pub fn search(sql: impl Into<Cow<'static, str>>) -> Self {
        Self {
            policy: CachePolicy::WhileUsed,
            ..Self::new(sql)
        }
    }

    /// A statement of fixed text, which stays prepared.
    pub fn prepared(sql: &'static str, binds: Vec<Bind<'v>>) -> Self {
        debug_assert_eq!(sql.matches('?').count(), binds.len(), "{sql}");
        Self {
            sql: Cow::Borrowed(sql),
            binds,
            policy: CachePolicy::Always,
        }
    }

    /// The text.
    pub fn sql(&self) -> &str {
        &self.sql
    }

    /// The statement as it goes to the server.
    fn encode(&self, conn: &AsyncPgConnection) -> QueryResult<Encoded> {
        match (&self.sql, self.policy) {
            (Cow::Borrowed(literal), CachePolicy::Always) => {
                conn.encode_fixed(StatementId::of_literal(literal), self)
            }
            _ => conn.encode(self, self.policy),
        }
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
        if self.policy != CachePolicy::Always {
            out.unsafe_to_cache_prepared();
        }
        let mut parts = self.sql.split('?');
        out.push_sql(parts.next().unwrap_or_default());
        for (bind, part) in self.binds.iter().zip(parts) {
            match bind {
                Bind::Text(text) => out.push_bind_param::<Text, _>(text)?,
                Bind::OptionalText(text) => out.push_bind_param::<Nullable<Text>, _>(text)?,
                Bind::Int(int) => out.push_bind_param::<BigInt, _>(int)?,
                Bind::Bool(value) => out.push_bind_param::<Bool, _>(value)?,
                Bind::Bytes(bytes) => out.push_bind_param::<Binary, _>(bytes)?,
                Bind::Texts(texts) => out.push_bind_param::<Array<Text>, _>(texts)?,
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

// The text tells one from another, not the type.
impl QueryId for Fragment<'_> {
    type QueryId = ();
    const HAS_STATIC_QUERY_ID: bool = false;
}

impl Query for Fragment<'_> {
    type SqlType = Untyped;
}

/// Extensions have no fixed numbers for their types.
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

/// The rows of a query.
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

/// The rows of a query as they come, until `keep` says that it has enough.
pub(crate) async fn each<Row, E>(
    conn: &mut AsyncPgConnection,
    fragment: Fragment<'_>,
    failed: impl Fn(diesel::result::Error) -> E,
    keep: impl FnMut(Row) -> Result<(), E>,
) -> Result<(), E>
where
    Row: QueryableByName<Pg> + Send + 'static,
{
    read(conn, fragment, failed, Row::build, keep).await
}

/// As [`each`], with the columns `Columns` read by their places.
pub(crate) async fn each_in_order<Columns, Row, E>(
    conn: &mut AsyncPgConnection,
    fragment: Fragment<'_>,
    failed: impl Fn(diesel::result::Error) -> E,
    keep: impl FnMut(Row) -> Result<(), E>,
) -> Result<(), E>
where
    Row: FromSqlRow<Columns, Pg>,
{
    read(conn, fragment, failed, Row::build_from_row, keep).await
}

async fn read<Row, E>(
    conn: &mut AsyncPgConnection,
    fragment: Fragment<'_>,
    failed: impl Fn(diesel::result::Error) -> E,
    build: impl Fn(&PgRow) -> deserialize::Result<Row>,
    mut keep: impl FnMut(Row) -> Result<(), E>,
) -> Result<(), E> {
    load_types(conn, &fragment).await.map_err(&failed)?;
    let statement = fragment.encode(conn).map_err(&failed)?;
    let search = (fragment.policy == CachePolicy::WhileUsed)
        .then(|| (statement.sql.clone(), Instant::now()));
    let mut rows = pin!(conn.rows(statement).await.map_err(&failed)?);
    while let Some(row) = rows
        .try_next()
        .await
        .map_err(|error| failed(driver_failed(error)))?
    {
        keep(
            build(&PgRow(row))
                .map_err(|error| failed(diesel::result::Error::DeserializationError(error)))?,
        )?;
    }
    if let Some((sql, started)) = search {
        conn.slow_searches().record(&sql, started.elapsed());
    }
    Ok(())
}

/// Runs a statement and gives the number of rows it changed.
pub(crate) async fn execute(
    conn: &mut AsyncPgConnection,
    fragment: Fragment<'_>,
) -> QueryResult<usize> {
    load_types(conn, &fragment).await?;
    let statement = fragment.encode(conn)?;
    conn.execute(statement).await
}

/// Sends a statement whose rows nobody needs, and does not wait: if it fails, so does the next one that is waited for.
pub(crate) async fn send(conn: &mut AsyncPgConnection, fragment: Fragment<'_>) -> QueryResult<()> {
    load_types(conn, &fragment).await?;
    let statement = fragment.encode(conn)?;
    conn.send(statement).await
}

/// The rows of the last query of a transaction, which `end` then ends.
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

/// The plan PostgreSQL makes for this query, a line each, for callers: without its estimates, which come from the rows of
/// every owner.
pub(crate) async fn explain(
    conn: &mut AsyncPgConnection,
    fragment: &Fragment<'_>,
) -> QueryResult<Vec<String>> {
    let plan = planned("EXPLAIN (COSTS OFF) ", fragment.clone());
    Ok(query::<Line>(conn, plan)
        .await?
        .into_iter()
        .map(|row| row.line)
        .collect())
}

/// The rows of a query, and how many PostgreSQL expects of `other`, in one round trip.
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
        planned("EXPLAIN ", other).encode(conn)?,
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

fn planned<'v>(explain: &'static str, fragment: Fragment<'v>) -> Fragment<'v> {
    let mut plan = Fragment::new(explain);
    plan.append(fragment);
    plan
}
