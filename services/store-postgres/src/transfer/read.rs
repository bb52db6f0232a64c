//! Reading rows of any table.

use crate::pg::connection::AsyncPgConnection;
use context_store::transfer::{
    BATCH_BYTES, BATCH_ROWS, Cell, Column, Head, Kind, OWNERS_AT_ONCE, Row, Slot, Slots, Table,
};
use context_store::{OwnerId, StoreError};
use diesel::QueryableByName;
use diesel::sql_types::{BigInt, Binary, Nullable, Text};

use super::vectors;
use crate::pg::failure::{Failure, unreadable};
use crate::pg::sql::{self, Bind, Fragment};

#[derive(QueryableByName)]
struct Loaded {
    #[diesel(sql_type = Nullable<BigInt>)]
    i0: Option<i64>,
    #[diesel(sql_type = Nullable<BigInt>)]
    i1: Option<i64>,
    #[diesel(sql_type = Nullable<BigInt>)]
    i2: Option<i64>,
    #[diesel(sql_type = Nullable<BigInt>)]
    i3: Option<i64>,
    #[diesel(sql_type = Nullable<BigInt>)]
    i4: Option<i64>,
    #[diesel(sql_type = Nullable<Text>)]
    t0: Option<String>,
    #[diesel(sql_type = Nullable<Text>)]
    t1: Option<String>,
    #[diesel(sql_type = Nullable<Text>)]
    t2: Option<String>,
    #[diesel(sql_type = Nullable<Text>)]
    t3: Option<String>,
    #[diesel(sql_type = Nullable<Text>)]
    t4: Option<String>,
    #[diesel(sql_type = Nullable<Text>)]
    t5: Option<String>,
    #[diesel(sql_type = Nullable<Binary>)]
    b0: Option<Vec<u8>>,
    #[diesel(sql_type = Nullable<Binary>)]
    b1: Option<Vec<u8>>,
}

impl Loaded {
    fn into_slots(self) -> Slots {
        let Self {
            i0,
            i1,
            i2,
            i3,
            i4,
            t0,
            t1,
            t2,
            t3,
            t4,
            t5,
            b0,
            b1,
        } = self;
        Slots {
            ints: [i0, i1, i2, i3, i4],
            texts: [t0, t1, t2, t3, t4, t5],
            bytes: [b0, b1],
        }
    }

    fn into_row(self, table: &Table) -> Result<Row, StoreError> {
        let mut row = self
            .into_slots()
            .into_row(table)
            .ok_or_else(|| unreadable(table.name, None))?;
        if table.name == "chunks"
            && let Some(Cell::Bytes(vector)) = row.0.last_mut()
        {
            *vector = vectors::travelling(vector).ok_or_else(|| unreadable("vector", None))?;
        }
        Ok(row)
    }
}

/// Whether it is pgvector's column.
fn is_vector(table: &Table, column: &Column) -> bool {
    table.name == "chunks" && column.kind == Kind::Bytes
}

/// Whether its rows belong to a set of vectors, of which the one in use is moved.
fn is_of_a_set(table: &Table) -> bool {
    matches!(table.name, "chunks" | "chunk_tokens")
}

/// A column as it is selected.
fn expression(table: &Table, column: &Column) -> String {
    let name = column.name;
    match column.kind {
        Kind::Bytes if is_vector(table, column) => "vector_send(embedding)".to_owned(),
        Kind::Int
        | Kind::OptionalInt
        | Kind::Text
        | Kind::OptionalText
        | Kind::Bytes
        | Kind::OptionalBytes
        | Kind::Copy => name.to_owned(),
        Kind::Flag => format!("{name}::int::bigint"),
        Kind::Json | Kind::OptionalJson => format!("{name}::text"),
        Kind::List => format!("to_json({name})::text"),
    }
}

/// A column as it orders rows: byte by byte, as everywhere.
fn ordering(column: &Column) -> String {
    if column.kind == Kind::Text {
        format!("{} COLLATE \"C\"", column.name)
    } else {
        column.name.to_owned()
    }
}

/// The bytes of a row's long values, which the server knows without reading them.
fn size(table: &Table) -> String {
    let long = table
        .columns
        .iter()
        .filter(|column| column.kind.slot() != Slot::Int && column.kind != Kind::List);
    long.fold("64".to_owned(), |mut sum, column| {
        let bytes = if is_vector(table, column) {
            "pg_column_size(embedding)".to_owned()
        } else {
            format!("octet_length({})", expression(table, column))
        };
        sum.push_str(&format!(" + coalesce({bytes}, 0)"));
        sum
    })
}

const fn nothing(slot: Slot) -> &'static str {
    match slot {
        Slot::Int => "NULL::bigint",
        Slot::Text => "NULL::text",
        Slot::Bytes => "NULL::bytea",
    }
}

/// Owners by name.
pub(super) async fn owners(
    conn: &mut AsyncPgConnection,
    after: Option<&OwnerId>,
) -> Result<Vec<Head>, Failure> {
    #[derive(QueryableByName)]
    struct Owner {
        #[diesel(sql_type = Text)]
        owner_id: String,
        #[diesel(sql_type = BigInt)]
        revision: i64,
        #[diesel(sql_type = BigInt)]
        next_id: i64,
    }
    // An owner that never stored an entry has leased no ids.
    let select = "SELECT o.owner_id, o.revision, coalesce((SELECT i.next_id FROM context.owner_ids AS i WHERE i.owner_id = o.owner_id), 1) \
                  AS next_id FROM context.owners AS o WHERE o.owner_id > ? ORDER BY o.owner_id LIMIT ?";
    let limit = i64::try_from(OWNERS_AT_ONCE).unwrap_or(i64::MAX);
    let binds = vec![
        Bind::text(after.map_or("", OwnerId::as_str)),
        Bind::Int(limit),
    ];
    let rows: Vec<Owner> = sql::query(conn, Fragment::prepared(select, binds)).await?;
    let head = |Owner {
                    owner_id,
                    revision,
                    next_id,
                }| Head {
        owner: OwnerId::new(owner_id),
        revision,
        next_id,
    };
    Ok(rows.into_iter().map(head).collect())
}

/// Rows of all owners.
pub(super) async fn count(conn: &mut AsyncPgConnection, table: &Table) -> Result<u64, Failure> {
    #[derive(QueryableByName)]
    struct Count {
        #[diesel(sql_type = BigInt)]
        rows: i64,
    }
    let mut count = Fragment::new(format!(
        "SELECT count(*) AS rows FROM context.{}",
        table.name
    ));
    if is_of_a_set(table) {
        count
            .push(" WHERE set_id = ")
            .bind(Bind::Int(vectors::set(conn).await?));
    }
    let rows: Vec<Count> = sql::query(conn, count).await?;
    Ok(rows
        .first()
        .and_then(|count| u64::try_from(count.rows).ok())
        .unwrap_or(0))
}

/// The owner's rows after this key.
pub(super) async fn rows(
    conn: &mut AsyncPgConnection,
    owner: &OwnerId,
    table: &'static Table,
    after: &[Cell],
) -> Result<Vec<Row>, Failure> {
    let keys = key_columns(table);
    let size = size(table);
    // Long values stay where they are until it is known which rows fit; the first one always does.
    let mut select = Fragment::new("SELECT ");
    select.push(&table.select_list(|column| expression(table, column), nothing));
    select.push(&format!(" FROM (SELECT *, sum({size}) OVER (ORDER BY {keys}) - ({size}) AS bytes_before FROM (SELECT * FROM "));
    if table.name == "denials" {
        // They have no key of their own.
        select.push(
            "(SELECT *, row_number() OVER (PARTITION BY at, key_id, operation, reason, attempts) AS copy FROM context.denials \
             WHERE owner_id = ",
        );
        select
            .bind(Bind::text(owner.as_str()))
            .push(") AS numbered WHERE true");
    } else {
        select
            .push(&format!("context.{} WHERE owner_id = ", table.name))
            .bind(Bind::text(owner.as_str()));
    }
    if is_of_a_set(table) {
        select
            .push(" AND set_id = ")
            .bind(Bind::Int(vectors::set(conn).await?));
    }
    if !after.is_empty() {
        select.append(compared(table, ">", after)?);
    }
    select.push(&format!(" ORDER BY {keys} LIMIT {BATCH_ROWS}) AS next) AS sized WHERE bytes_before < {BATCH_BYTES} ORDER BY {keys}"));
    let mut rows = Vec::new();
    sql::each(conn, select, Failure::Database, |loaded: Loaded| {
        rows.push(loaded.into_row(table)?);
        Ok(())
    })
    .await?;
    Ok(rows)
}

fn key_columns(table: &Table) -> String {
    let keys: Vec<String> = table.key_columns().iter().map(ordering).collect();
    keys.join(", ")
}

/// The condition that compares rows' keys with this one.
fn compared<'v>(table: &Table, operator: &str, key: &'v [Cell]) -> Result<Fragment<'v>, Failure> {
    let mut condition = Fragment::new(format!(" AND ({}) {operator} (", key_columns(table)));
    for (at, cell) in key.iter().enumerate() {
        condition.push(if at == 0 { "" } else { ", " });
        condition.bind(match cell {
            Cell::Int(value) => Bind::Int(*value),
            Cell::Text(text) => Bind::text(text),
            Cell::Null | Cell::List(_) | Cell::Bytes(_) => {
                return Err(unreadable("place of a migration", None).into());
            }
        });
    }
    condition.push(")");
    Ok(condition)
}

/// Keys of the owner's rows after this one.
pub(super) async fn keys(
    conn: &mut AsyncPgConnection,
    owner: &OwnerId,
    table: &'static Table,
    after: &[Cell],
) -> Result<Vec<Vec<Cell>>, Failure> {
    let mut select = Fragment::new("SELECT ");
    select.push(&table.key_list(|column| expression(table, column), nothing));
    select
        .push(&format!(" FROM context.{} WHERE owner_id = ", table.name))
        .bind(Bind::text(owner.as_str()));
    if !after.is_empty() {
        select.append(compared(table, ">", after)?);
    }
    select.push(&format!(
        " ORDER BY {} LIMIT {BATCH_ROWS}",
        key_columns(table)
    ));
    let found: Vec<Loaded> = sql::query(conn, select).await?;
    let key = |loaded: Loaded| {
        loaded
            .into_slots()
            .into_key(table)
            .ok_or_else(|| unreadable(table.name, None).into())
    };
    found.into_iter().map(key).collect()
}

/// The owner's row with this key.
pub(super) async fn row(
    conn: &mut AsyncPgConnection,
    owner: &OwnerId,
    table: &'static Table,
    key: &[Cell],
) -> Result<Option<Row>, Failure> {
    let mut select = Fragment::new("SELECT ");
    select.push(&table.select_list(|column| expression(table, column), nothing));
    select
        .push(&format!(" FROM context.{} WHERE owner_id = ", table.name))
        .bind(Bind::text(owner.as_str()));
    select.append(compared(table, "=", key)?);
    let found: Vec<Loaded> = sql::query(conn, select).await?;
    Ok(found
        .into_iter()
        .next()
        .map(|loaded| loaded.into_row(table))
        .transpose()?)
}
