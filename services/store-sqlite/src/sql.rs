//! SQL assembled at run time: text with a `?` for every value, and the values.

use diesel::QueryResult;
use diesel::connection::DefaultLoadingMode;
use diesel::deserialize::QueryableByName;
use diesel::prelude::*;
use diesel::query_builder::BoxedSqlQuery;
use diesel::sql_types::{BigInt, Binary, Double, Text};
use diesel::sqlite::{Sqlite, SqliteConnection};

/// A bound value.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Bind {
    /// TEXT.
    Text(String),
    /// INTEGER.
    Int(i64),
    /// REAL. Never NaN, which SQLite would store as NULL.
    Float(f64),
    /// BLOB.
    Blob(Vec<u8>),
}

/// SQL text and the values of its `?` placeholders, in order.
///
/// Of a caller's input, the text contains only the paths of metadata fields (`filter.rs`). Everything else is bound.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Fragment {
    /// The SQL text.
    pub sql: String,
    /// The bound values.
    pub binds: Vec<Bind>,
}

impl Fragment {
    /// SQL without values.
    pub fn new(sql: impl Into<String>) -> Self {
        Self {
            sql: sql.into(),
            binds: Vec::new(),
        }
    }

    /// Appends text.
    pub fn push(&mut self, sql: &str) -> &mut Self {
        self.sql.push_str(sql);
        self
    }

    /// Appends `?` and its value.
    pub fn bind(&mut self, value: Bind) -> &mut Self {
        self.sql.push('?');
        self.binds.push(value);
        self
    }

    /// Appends another fragment.
    pub fn append(&mut self, other: Self) -> &mut Self {
        self.sql.push_str(&other.sql);
        self.binds.extend(other.binds);
        self
    }

    /// SQLite's plan for this query, one line per element.
    pub fn explain(&self, conn: &mut SqliteConnection) -> QueryResult<Vec<String>> {
        #[derive(QueryableByName)]
        struct Step {
            #[diesel(sql_type = Text)]
            detail: String,
        }
        let mut plan = Self::new("EXPLAIN QUERY PLAN ");
        plan.append(self.clone());
        Ok(query::<Step>(conn, &plan)?
            .into_iter()
            .map(|step| step.detail)
            .collect())
    }
}

/// Loads the rows of a query.
pub(crate) fn query<Row>(conn: &mut SqliteConnection, fragment: &Fragment) -> QueryResult<Vec<Row>>
where
    Row: QueryableByName<Sqlite> + 'static,
{
    boxed(fragment).load(conn)
}

/// Iterates over the rows of a query as they are read.
pub(crate) fn each<'c, Row>(
    conn: &'c mut SqliteConnection,
    fragment: &'c Fragment,
) -> QueryResult<impl Iterator<Item = QueryResult<Row>> + 'c>
where
    Row: QueryableByName<Sqlite> + 'static,
{
    boxed(fragment).load_iter::<Row, DefaultLoadingMode>(conn)
}

fn boxed(fragment: &Fragment) -> BoxedSqlQuery<'_, Sqlite, diesel::query_builder::SqlQuery> {
    fragment.binds.iter().fold(
        diesel::sql_query(&fragment.sql).into_boxed(),
        |query, bind| match bind {
            Bind::Text(text) => query.bind::<Text, _>(text),
            Bind::Int(int) => query.bind::<BigInt, _>(int),
            Bind::Float(float) => query.bind::<Double, _>(float),
            Bind::Blob(bytes) => query.bind::<Binary, _>(bytes),
        },
    )
}

/// `?, ?, …` with these values.
pub(crate) fn placeholders(values: impl IntoIterator<Item = Bind>) -> Fragment {
    let mut list = Fragment::default();
    for (i, value) in values.into_iter().enumerate() {
        list.push(if i == 0 { "" } else { ", " }).bind(value);
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(QueryableByName)]
    struct Row {
        #[diesel(sql_type = Text)]
        value: String,
    }

    #[test]
    fn every_kind_of_value_reaches_its_placeholder() {
        let mut conn = SqliteConnection::establish(":memory:").unwrap();
        let mut fragment = Fragment::new("SELECT typeof(");
        fragment
            .bind(Bind::Int(i64::MAX))
            .push(") || typeof(")
            .bind(Bind::Float(0.5))
            .push(") || typeof(");
        fragment
            .bind(Bind::Blob(vec![0]))
            .push(") || ")
            .bind(Bind::Text("?'\"".into()))
            .push(" AS value");
        assert_eq!(
            query::<Row>(&mut conn, &fragment).unwrap()[0].value,
            "integerrealblob?'\""
        );
    }
}
