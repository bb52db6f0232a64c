//! Reads rows of any migrated table.

use crate::pg::connection::AsyncPgConnection;
use context_store::transfer::{
    BATCH_BYTES, BATCH_ROWS, Cell, Column, ErasedOwner, Head, Kind, OWNERS_AT_ONCE, Row, Slot,
    Slots, Table,
};
use context_store::{OwnerId, StoreError, unreadable};
use diesel::QueryableByName;
use diesel::sql_types::{BigInt, Binary, Nullable, Text};

use super::vectors;
use crate::columns::CheckedText;
use crate::pg::failure::Failure;
use crate::pg::sql::{self, Bind, Fragment, fragment};

/// A row of any table, with its columns in the [`Slots`] of their types.
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
    t0: Option<CheckedText>,
    #[diesel(sql_type = Nullable<Text>)]
    t1: Option<CheckedText>,
    #[diesel(sql_type = Nullable<Text>)]
    t2: Option<CheckedText>,
    #[diesel(sql_type = Nullable<Text>)]
    t3: Option<CheckedText>,
    #[diesel(sql_type = Nullable<Text>)]
    t4: Option<CheckedText>,
    #[diesel(sql_type = Nullable<Text>)]
    t5: Option<CheckedText>,
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
            texts: [t0, t1, t2, t3, t4, t5].map(|text| text.map(|text| text.text)),
            bytes: [b0, b1],
        }
    }

    /// Of these columns, those with invalid UTF-8.
    fn damaged<'c>(&self, columns: &'c [Column]) -> Vec<&'c Column> {
        let Self {
            t0,
            t1,
            t2,
            t3,
            t4,
            t5,
            ..
        } = self;
        columns
            .iter()
            .filter(|column| column.kind.slot() == Slot::Text)
            .zip([t0, t1, t2, t3, t4, t5])
            .filter(|(_, text)| text.as_ref().is_some_and(|text| !text.is_valid))
            .map(|(column, _)| column)
            .collect()
    }

    /// The row. Invalid UTF-8 is replaced where a checksum shows the damage, in the copy too. Elsewhere the damage
    /// would be hidden, so the row is an error.
    fn into_row(self, table: &Table) -> Result<Row, StoreError> {
        let damaged = self.damaged(table.columns);
        let mut row = self
            .into_slots()
            .into_row(table)
            .ok_or_else(|| unreadable(table.name, None))?;
        let has_seal = matches!(row.cell(table, "seal"), Some(Cell::Bytes(_)));
        if damaged
            .iter()
            .any(|column| !has_seal || !table.is_sealed(column))
        {
            return Err(unreadable(table.name, None));
        }
        if table.name == "chunks"
            && let Some(Cell::Bytes(vector)) = row.0.last_mut()
        {
            *vector =
                vectors::to_little_endian(vector).ok_or_else(|| unreadable("vector", None))?;
        }
        Ok(row)
    }

    fn into_key(self, table: &Table) -> Result<Vec<Cell>, StoreError> {
        if !self.damaged(table.key_columns()).is_empty() {
            return Err(unreadable(table.name, None));
        }
        self.into_slots()
            .into_key(table)
            .ok_or_else(|| unreadable(table.name, None))
    }
}

/// Whether this is a pgvector column.
fn is_vector(table: &Table, column: &Column) -> bool {
    table.name == "chunks" && column.kind == Kind::Bytes
}

/// A column's expression in SELECT.
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

/// A column's expression in ORDER BY. Rows are ordered byte by byte, as everywhere.
fn ordering(column: &Column) -> String {
    if column.kind == Kind::Text {
        format!("{} COLLATE \"C\"", column.name)
    } else {
        column.name.to_owned()
    }
}

/// The SQL for the bytes of a row's long values. The server stores the lengths of texts and bytes, and reads only JSON,
/// because its cast to text is a function.
fn size(table: &Table) -> String {
    let long = table
        .columns
        .iter()
        .filter(|column| column.kind.slot() != Slot::Int && column.kind != Kind::List);
    let bytes = long.map(|column| match is_vector(table, column) {
        true => " + coalesce(pg_column_size(embedding), 0)".to_owned(),
        false => format!(
            " + coalesce(octet_length({}), 0)",
            expression(table, column)
        ),
    });
    std::iter::once("64".to_owned()).chain(bytes).collect()
}

/// NULL in the type of this slot, for a slot that no column of the table uses.
const fn null(slot: Slot) -> &'static str {
    match slot {
        Slot::Int => "NULL::bigint",
        Slot::Text => "NULL::text",
        Slot::Bytes => "NULL::bytea",
    }
}

/// A page of the owners after this one, by name.
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
    // Raw SQL for greatest, which ignores NULL: an owner that has never stored an entry has leased no ids. After a
    // failover to an asynchronous standby, a service may have used ids whose lease was lost.
    let select = "SELECT o.owner_id, o.revision, greatest(1, (SELECT i.next_id FROM context.owner_ids AS i WHERE i.owner_id = o.owner_id), \
                  (SELECT max(e.id) + 1 FROM context.entries AS e WHERE e.owner_id = o.owner_id)) AS next_id \
                  FROM context.owners AS o WHERE o.owner_id > ? ORDER BY o.owner_id LIMIT ?";
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

/// The owners that were erased and not created again.
pub(super) async fn erased(conn: &mut AsyncPgConnection) -> Result<Vec<ErasedOwner>, Failure> {
    #[derive(QueryableByName)]
    struct Erased {
        #[diesel(sql_type = Text)]
        owner_id: String,
        #[diesel(sql_type = BigInt)]
        next_id: i64,
    }
    // Raw SQL for NOT EXISTS: the id counter of an owner stays when its row is deleted.
    let select = "SELECT i.owner_id, i.next_id FROM context.owner_ids AS i \
                  WHERE NOT EXISTS (SELECT 1 FROM context.owners AS o WHERE o.owner_id = i.owner_id)";
    let rows: Vec<Erased> = sql::query(conn, Fragment::prepared(select, Vec::new())).await?;
    let erased = |Erased { owner_id, next_id }| ErasedOwner {
        owner: OwnerId::new(owner_id),
        next_id,
    };
    Ok(rows.into_iter().map(erased).collect())
}

/// The number of a table's rows that are migrated, of all owners.
pub(super) async fn count(conn: &mut AsyncPgConnection, table: &Table) -> Result<u64, Failure> {
    // Raw SQL here and below: the table and its columns vary.
    let count = fragment!(
        "SELECT count(*) FROM context.{table} WHERE true {of_set}",
        Fragment::new(table.name),
        of_set(conn, table).await?,
    );
    Ok(u64::try_from(sql::number(conn, count).await?).unwrap_or(0))
}

/// A batch of the owner's rows after this key: at most `BATCH_ROWS`, and about `BATCH_BYTES`.
pub(super) async fn rows(
    conn: &mut AsyncPgConnection,
    owner: &OwnerId,
    table: &'static Table,
    after: &[Cell],
) -> Result<Vec<Row>, Failure> {
    // Denials have no key of their own. They get a row number among equal rows.
    let source = if table.name == "denials" {
        fragment!(
            "(SELECT *, row_number() OVER (PARTITION BY at, key_id, operation, reason, attempts) AS copy \
             FROM context.denials WHERE owner_id = ?) AS numbered",
            Bind::text(owner.as_str()),
        )
    } else {
        fragment!("context.{table}", Fragment::new(table.name))
    };
    let (size, keys) = (
        Fragment::new(size(table)),
        Fragment::new(key_columns(table)),
    );
    // Long values other than JSON are not read until it is known which rows fit. The first row always fits.
    let select = fragment!(
        "SELECT {columns} FROM (SELECT *, sum({size}) OVER (ORDER BY {keys}) - ({size}) AS bytes_before FROM \
         (SELECT * FROM {source} WHERE owner_id = ? {of_set} {after} ORDER BY {keys} LIMIT {rows}) AS next) AS sized \
         WHERE bytes_before < {bytes} ORDER BY {keys}",
        Fragment::new(table.select_list(|column| expression(table, column), null)),
        size.clone(),
        keys.clone(),
        size,
        source,
        Bind::text(owner.as_str()),
        of_set(conn, table).await?,
        compared(table, ">", after)?,
        keys.clone(),
        Fragment::new(BATCH_ROWS.to_string()),
        Fragment::new(BATCH_BYTES.to_string()),
        keys,
    );
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

/// The condition that restricts a table of vectors to the current set.
async fn of_set(conn: &mut AsyncPgConnection, table: &Table) -> Result<Fragment<'static>, Failure> {
    if !matches!(table.name, "chunks" | "chunk_tokens") {
        return Ok(Fragment::new(""));
    }
    let set = Bind::Int(vectors::set(conn).await?);
    // The vectors of artifacts have negative ids. They are not migrated, because the target embeds artifacts again.
    Ok(fragment!("AND set_id = ? AND id > 0", set))
}

/// The condition that compares rows' keys with this key. Without a key it is empty.
fn compared<'v>(
    table: &Table,
    operator: &'static str,
    key: &'v [Cell],
) -> Result<Fragment<'v>, Failure> {
    let mut values = Fragment::new("");
    for (at, cell) in key.iter().enumerate() {
        values.push(if at == 0 { "" } else { ", " });
        values.bind(match cell {
            Cell::Int(value) => Bind::Int(*value),
            Cell::Text(text) => Bind::text(text),
            Cell::Null | Cell::List(_) | Cell::Bytes(_) => {
                return Err(unreadable("progress of a migration", None).into());
            }
        });
    }
    if values.is_empty() {
        return Ok(values);
    }
    Ok(fragment!(
        "AND ({keys}) {operator} ({values})",
        Fragment::new(key_columns(table)),
        Fragment::new(operator),
        values,
    ))
}

/// Keys of the owner's rows after this one.
pub(super) async fn keys(
    conn: &mut AsyncPgConnection,
    owner: &OwnerId,
    table: &'static Table,
    after: &[Cell],
) -> Result<Vec<Vec<Cell>>, Failure> {
    let select = fragment!(
        "SELECT {keys} FROM context.{table} WHERE owner_id = ? {after} ORDER BY {order} LIMIT {rows}",
        Fragment::new(table.key_list(|column| expression(table, column), null)),
        Fragment::new(table.name),
        Bind::text(owner.as_str()),
        compared(table, ">", after)?,
        Fragment::new(key_columns(table)),
        Fragment::new(BATCH_ROWS.to_string()),
    );
    let found: Vec<Loaded> = sql::query(conn, select).await?;
    let keys = found.into_iter().map(|loaded| loaded.into_key(table));
    Ok(keys.collect::<Result<_, _>>()?)
}

/// The owner's row with this key.
pub(super) async fn row(
    conn: &mut AsyncPgConnection,
    owner: &OwnerId,
    table: &'static Table,
    key: &[Cell],
) -> Result<Option<Row>, Failure> {
    let select = fragment!(
        "SELECT {columns} FROM context.{table} WHERE owner_id = ? {with_key}",
        Fragment::new(table.select_list(|column| expression(table, column), null)),
        Fragment::new(table.name),
        Bind::text(owner.as_str()),
        compared(table, "=", key)?,
    );
    let found: Vec<Loaded> = sql::query(conn, select).await?;
    Ok(found
        .into_iter()
        .next()
        .map(|loaded| loaded.into_row(table))
        .transpose()?)
}
