//! Reading rows of any table.

use context_store::transfer::{
    BATCH_BYTES, BATCH_ROWS, Cell, Column, ErasedOwner, Head, OWNERS_AT_ONCE, Row, Slot, Slots,
    Table,
};
use context_store::{EmbeddingModel, OwnerId, StoreError, unreadable};
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Binary, Nullable, Text};

use crate::columns::CheckedText;
use crate::failure::store_error;
use crate::owners::{ID_BITS, id_of_row};
use crate::schema::{embedding_sets, erased_owners, owners};
use crate::sql::{self, Bind, Fragment};

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
        with_ids(&mut row.0, table);
        Ok(row)
    }

    fn into_key(self, table: &Table) -> Result<Vec<Cell>, StoreError> {
        if !self.damaged(table.key_columns()).is_empty() {
            return Err(unreadable(table.name, None));
        }
        let mut key = self
            .into_slots()
            .into_key(table)
            .ok_or_else(|| unreadable(table.name, None))?;
        with_ids(&mut key, table);
        Ok(key)
    }
}

/// Replaces row ids by the ids of entries.
fn with_ids(cells: &mut [Cell], table: &Table) {
    for (cell, column) in cells.iter_mut().zip(table.columns) {
        if let Cell::Int(value) = cell
            && is_row_id(table, column)
        {
            *value = id_of_row(*value);
        }
    }
}

/// Whether this column holds an entry's id, which this database stores as a row id.
pub(super) fn is_row_id(table: &Table, column: &Column) -> bool {
    matches!(table.name, "entries" | "images" | "chunks" | "chunk_tokens") && column.name == "id"
}

fn expression(table: &Table, column: &Column) -> String {
    if is_row_id(table, column) {
        "row_id".to_owned()
    } else {
        format!("\"{}\"", column.name)
    }
}

/// Whether the rows belong to a vector set. Only the set in use is moved, without the rows of artifacts (negative row
/// ids): a service embeds artifacts again when it runs on the target.
fn is_of_a_set(table: &Table) -> bool {
    matches!(table.name, "chunks" | "chunk_tokens")
}

/// The model in use and the number of its set.
pub(super) fn model(conn: &mut SqliteConnection) -> QueryResult<Option<(i64, EmbeddingModel)>> {
    let found: Option<(i64, String, i64)> = embedding_sets::table
        .filter(embedding_sets::current.eq(1))
        .select((
            embedding_sets::set_id,
            embedding_sets::model,
            embedding_sets::dimensions,
        ))
        .get_result(conn)
        .optional()?;
    let model = |(set, identity, dimensions): (i64, String, i64)| {
        (
            set,
            EmbeddingModel {
                identity,
                dimensions: u32::try_from(dimensions).unwrap_or(0),
            },
        )
    };
    Ok(found.map(model))
}

/// The number of the set in use. 0, which is never a set, when there is none.
fn set(conn: &mut SqliteConnection) -> Result<i64, StoreError> {
    Ok(model(conn).map_err(store_error)?.map_or(0, |(set, _)| set))
}

/// The owner's number.
pub(super) fn number(conn: &mut SqliteConnection, owner: &OwnerId) -> QueryResult<Option<i64>> {
    owners::table
        .filter(owners::owner_id.eq(owner.as_str()))
        .select(owners::owner)
        .get_result(conn)
        .optional()
}

/// Owners by name.
pub(super) fn owners(
    conn: &mut SqliteConnection,
    after: Option<&OwnerId>,
) -> QueryResult<Vec<Head>> {
    let rows: Vec<(String, i64, i64)> = owners::table
        .filter(owners::owner_id.gt(after.map_or("", OwnerId::as_str)))
        .order(owners::owner_id)
        .limit(i64::try_from(OWNERS_AT_ONCE).unwrap_or(i64::MAX))
        .select((owners::owner_id, owners::revision, owners::next_id))
        .load(conn)?;
    let head = |(owner, revision, next_id)| Head {
        owner: OwnerId::new(owner),
        revision,
        next_id,
    };
    Ok(rows.into_iter().map(head).collect())
}

/// The owners that were erased and not created again.
pub(super) fn erased(conn: &mut SqliteConnection) -> QueryResult<Vec<ErasedOwner>> {
    let rows: Vec<(String, i64)> = erased_owners::table
        .select((erased_owners::owner_id, erased_owners::next_id))
        .load(conn)?;
    let erased = |(owner, next_id)| ErasedOwner {
        owner: OwnerId::new(owner),
        next_id,
    };
    Ok(rows.into_iter().map(erased).collect())
}

/// Number of the rows that [`rows`] returns for all owners.
pub(super) fn count(conn: &mut SqliteConnection, table: &Table) -> Result<u64, StoreError> {
    #[derive(QueryableByName)]
    struct Count {
        #[diesel(sql_type = BigInt)]
        rows: i64,
    }
    let mut count = Fragment::new(format!("SELECT count(*) AS rows FROM \"{}\"", table.name));
    if is_of_a_set(table) {
        count
            .push(" WHERE row_id > 0 AND set_id = ")
            .bind(Bind::Int(set(conn)?));
    }
    let rows: Vec<Count> = sql::query(conn, &count).map_err(store_error)?;
    Ok(rows
        .first()
        .and_then(|count| u64::try_from(count.rows).ok())
        .unwrap_or(0))
}

/// The owner's rows after this key.
pub(super) fn rows(
    conn: &mut SqliteConnection,
    owner: &OwnerId,
    table: &'static Table,
    after: &[Cell],
) -> Result<Vec<Row>, StoreError> {
    let Some(owner) = number(conn, owner).map_err(store_error)? else {
        return Ok(Vec::new());
    };
    let set = if is_of_a_set(table) { set(conn)? } else { 0 };
    load(conn, table, &select(owner, set, table, after)?)
}

/// The query for an owner's rows after this key. Of a table with vectors, it reads the rows of this set.
fn select(
    owner: i64,
    set: i64,
    table: &'static Table,
    after: &[Cell],
) -> Result<Fragment, StoreError> {
    // Of two lower bounds SQLite uses only one, so this one must not be lower than the key: otherwise each batch would
    // read the earlier ones again. No row of an artifact is included, because their row ids are negative.
    let first_row = match after.first() {
        Some(Cell::Int(id)) => owner << ID_BITS | id,
        _ => owner << ID_BITS,
    };
    let mut select = Fragment::new("SELECT ");
    select.push(&table.select_list(|column| expression(table, column), |_| "NULL"));
    match table.name {
        "entries" | "chunks" => {
            select.push(if table.name == "chunks" {
                " FROM chunks JOIN vectors USING (chunk_id)"
            } else {
                " FROM entries"
            });
            select.push(" WHERE row_id >= ").bind(Bind::Int(first_row));
            select
                .push(" AND row_id < ")
                .bind(Bind::Int((owner + 1) << ID_BITS));
        }
        "denials" => {
            // Denials have no key of their own.
            select.push(
                " FROM (SELECT *, \
                     row_number() OVER (PARTITION BY at, key_id, operation, reason, attempts) AS copy \
                 FROM denials WHERE owner = ",
            );
            select.bind(Bind::Int(owner)).push(") WHERE 1");
        }
        "chunk_tokens" => {
            select
                .push(" FROM chunk_tokens WHERE row_id >= ")
                .bind(Bind::Int(first_row));
            select.push(" AND owner = ").bind(Bind::Int(owner));
        }
        name => {
            select
                .push(&format!(" FROM \"{name}\" WHERE owner = "))
                .bind(Bind::Int(owner));
        }
    }
    if is_of_a_set(table) {
        select.push(" AND set_id = ").bind(Bind::Int(set));
    }
    if !after.is_empty() {
        select.append(compared(owner, table, ">", after)?);
    }
    select.push(&format!(
        " ORDER BY {} LIMIT {BATCH_ROWS}",
        key_columns(table)
    ));
    Ok(select)
}

fn key_columns(table: &Table) -> String {
    let keys: Vec<String> = table
        .key_columns()
        .iter()
        .map(|column| expression(table, column))
        .collect();
    keys.join(", ")
}

/// The condition that compares the keys of rows with this key, with a leading `AND`.
fn compared(
    owner: i64,
    table: &Table,
    operator: &str,
    key: &[Cell],
) -> Result<Fragment, StoreError> {
    let mut condition = Fragment::new(format!(" AND ({}) {operator} (", key_columns(table)));
    for (at, (cell, column)) in key.iter().zip(table.key_columns()).enumerate() {
        condition.push(if at == 0 { "" } else { ", " });
        condition.bind(match cell {
            Cell::Int(id) if is_row_id(table, column) => Bind::Int(owner << ID_BITS | id),
            Cell::Int(value) => Bind::Int(*value),
            Cell::Text(text) => Bind::Text(text.clone()),
            Cell::Null | Cell::List(_) | Cell::Bytes(_) => {
                return Err(unreadable("progress of a migration", None));
            }
        });
    }
    condition.push(")");
    Ok(condition)
}

/// Keys of the owner's rows after this one. Read from an index if possible, because the index may be sound when the
/// rows are not.
pub(super) fn keys(
    conn: &mut SqliteConnection,
    owner: &OwnerId,
    table: &'static Table,
    after: &[Cell],
) -> Result<Vec<Vec<Cell>>, StoreError> {
    let Some(owner) = number(conn, owner).map_err(store_error)? else {
        return Ok(Vec::new());
    };
    let from = match table.name {
        "entries" => "entries INDEXED BY entries_by_time",
        "artifact_versions" => "artifact_versions INDEXED BY artifact_versions_by_number",
        name => name,
    };
    let mut select = Fragment::new("SELECT ");
    select.push(&table.key_list(|column| expression(table, column), |_| "NULL"));
    select
        .push(&format!(" FROM {from} WHERE owner = "))
        .bind(Bind::Int(owner));
    if !after.is_empty() {
        select.append(compared(owner, table, ">", after)?);
    }
    select.push(&format!(
        " ORDER BY {} LIMIT {BATCH_ROWS}",
        key_columns(table)
    ));
    sql::query::<Loaded>(conn, &select)
        .map_err(store_error)?
        .into_iter()
        .map(|loaded| loaded.into_key(table))
        .collect()
}

/// The owner's row with this key.
pub(super) fn row(
    conn: &mut SqliteConnection,
    owner: &OwnerId,
    table: &'static Table,
    key: &[Cell],
) -> Result<Option<Row>, StoreError> {
    let Some(owner) = number(conn, owner).map_err(store_error)? else {
        return Ok(None);
    };
    let mut select = Fragment::new("SELECT ");
    select.push(&table.select_list(|column| expression(table, column), |_| "NULL"));
    // The entry is found by its row id. The plus keeps SQLite from using the index by owner, which may be damaged.
    let by_owner = if table.name == "entries" {
        "+owner"
    } else {
        "owner"
    };
    select
        .push(&format!(" FROM {} WHERE {by_owner} = ", table.name))
        .bind(Bind::Int(owner));
    select.append(compared(owner, table, "=", key)?);
    Ok(load(conn, table, &select)?.pop())
}

/// Structural damage of the file that SQLite reports.
pub(super) fn structure(conn: &mut SqliteConnection) -> QueryResult<Vec<String>> {
    let lines: Vec<String> = diesel::dsl::sql::<Text>("PRAGMA integrity_check(100)").load(conn)?;
    Ok(lines.into_iter().filter(|line| line != "ok").collect())
}

/// Loads the rows of a query, and stops after the row that fills a batch.
fn load(
    conn: &mut SqliteConnection,
    table: &'static Table,
    select: &Fragment,
) -> Result<Vec<Row>, StoreError> {
    let (mut rows, mut bytes) = (Vec::new(), 0);
    for loaded in sql::each::<Loaded>(conn, select).map_err(store_error)? {
        let row = loaded.map_err(store_error)?.into_row(table)?;
        bytes += row.size();
        rows.push(row);
        if bytes >= BATCH_BYTES {
            break;
        }
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_later_batch_starts_at_the_last_key_of_the_one_before() {
        const OWNER: i64 = 3;
        let key = [Cell::Int(7), Cell::Int(0)];
        for name in ["entries", "chunks", "chunk_tokens"] {
            let table = Table::named(name).unwrap();
            let bounds = [&key[..0], &key[..table.key]]
                .map(|after| select(OWNER, 1, table, after).unwrap().binds.remove(0));
            let first = OWNER << ID_BITS;
            assert_eq!(bounds, [first, first | 7].map(Bind::Int), "{name}");
        }
    }
}
