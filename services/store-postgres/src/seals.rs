//! Adds the checksums that are missing because an older service, which knows no checksums, created a row or a new
//! version of an entry.
//!
//! Every statement names one owner, so that it runs on one server; only the one that finds the next owner does not.
//! Sealing locks only rows that are free. Services that seal at the same time therefore share the work, and sealing
//! never holds a row lock that a write needs while it waits for another lock.

use async_trait::async_trait;
use context_store::seal::{self, Checked, EntrySeal, StoredContent};
use context_store::{Result, ScanCursor, SealStore, SealedPage, StoreError};
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Binary, Nullable, Text};
use diesel_async::{RunQueryDsl, SimpleAsyncConnection as _};

use crate::columns::CheckedText;
use crate::pg::connection::AsyncPgConnection;
use crate::pg::failure::Failure;
use crate::pg::sql::{self, Bind, Fragment, fragment};
use crate::schema::owners;
use crate::store::PostgresStore;

/// Maximum number of rows checked in one step.
const STEP_ROWS: i64 = 2_000;
/// Maximum number of rows sealed in one step.
const SEALED_ROWS: i64 = 16;
/// Maximum number of images sealed in one step. They are larger than other rows.
const SEALED_IMAGES: i64 = 4;

/// Stored in place of the checksums of a row with invalid UTF-8, which certainly is not what was stored. No content has
/// this checksum, so the row counts as damaged from then on. It is greater than every version, so that no later step
/// reads the row as unsealed.
const NO_CHECKSUM: [u8; 1] = [0xff];

/// The tables with checksums in the order of sealing. Each has the order of its rows and the content that its checksums
/// cover.
const TABLES: [Table; 3] = [
    Table {
        name: "entries",
        key: ("id::text", "0::bigint", "id"),
        content: "'' AS title, version, metadata::text AS metadata, text, ''::bytea AS data",
        unsealed: "(seal IS NULL OR substring(seal FROM 1 FOR 8) < int8send(version))",
        at_once: SEALED_ROWS,
    },
    Table {
        name: "images",
        key: ("id::text", "position", "id, position"),
        content: "mime_type AS title, 0::bigint AS version, metadata::text AS metadata, '' AS text, data",
        unsealed: "seal IS NULL",
        at_once: SEALED_IMAGES,
    },
    Table {
        name: "artifact_versions",
        key: ("artifact_id", "version", "artifact_id, version"),
        content: "title, version, metadata::text AS metadata, content AS text, ''::bytea AS data",
        unsealed: "seal IS NULL",
        at_once: SEALED_ROWS,
    },
];

struct Table {
    name: &'static str,
    /// The id as text, the position or version within it, and the columns that order the rows.
    key: (&'static str, &'static str, &'static str),
    /// The columns that the checksum covers.
    content: &'static str,
    /// The condition that the row has no checksum of its current version.
    unsealed: &'static str,
    /// Maximum number of rows sealed in one step.
    at_once: i64,
}

#[derive(QueryableByName)]
struct Row {
    #[diesel(sql_type = Text)]
    id: String,
    #[diesel(sql_type = BigInt)]
    number: i64,
    #[diesel(sql_type = Text)]
    title: CheckedText,
    #[diesel(sql_type = BigInt)]
    version: i64,
    #[diesel(sql_type = Nullable<Text>)]
    metadata: Option<CheckedText>,
    #[diesel(sql_type = Text)]
    text: CheckedText,
    #[diesel(sql_type = Binary)]
    data: Vec<u8>,
    #[diesel(sql_type = Nullable<Binary>)]
    seal: Option<Vec<u8>>,
}

impl Row {
    /// The row's new checksum. `None` when existing checksums show that the row is damaged.
    fn seal(&self, table: &Table) -> Option<Vec<u8>> {
        let Self {
            id,
            number,
            title,
            version,
            metadata,
            text,
            data,
            seal,
        } = self;
        let is_valid = [title, text]
            .into_iter()
            .chain(metadata)
            .all(|text| text.is_valid);
        let json = metadata.as_ref().map(|json| json.text.as_str());
        let (title, text) = (title.text.as_str(), text.text.as_str());
        match table.name {
            "entries" => {
                let (id, json) = (id.parse().ok()?, json.unwrap_or_default());
                let stored = StoredContent {
                    id,
                    version: *version,
                    seal: seal.as_deref(),
                    text,
                    metadata: json,
                };
                let unsealed = seal::check_entry(&stored, true) == Checked::Unsealed;
                unsealed.then(|| match is_valid {
                    true => EntrySeal::of(*version, text, json).to_bytes(id).to_vec(),
                    false => NO_CHECKSUM.to_vec(),
                })
            }
            _ if !is_valid => Some(NO_CHECKSUM.to_vec()),
            "images" => Some(seal::image(id.parse().ok()?, *number, title, json, data).to_vec()),
            _ => Some(
                seal::artifact_version(id, *version, title, json.unwrap_or_default(), text)
                    .to_vec(),
            ),
        }
    }
}

#[derive(QueryableByName)]
struct Key {
    #[diesel(sql_type = Text)]
    id: String,
    #[diesel(sql_type = BigInt)]
    number: i64,
}

/// The position that sealing has reached.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Position {
    table: usize,
    owner: String,
    /// The last key that was read of the owner's rows.
    after: Option<(String, i64)>,
}

impl Position {
    /// The owner comes last, because its name may contain spaces.
    fn to_cursor(&self) -> ScanCursor {
        let (id, number) = self.after.clone().unwrap_or_else(|| ("-".to_owned(), 0));
        ScanCursor::new(format!("{} {id} {number} {}", self.table, self.owner))
    }

    fn parse(cursor: &ScanCursor) -> Option<Self> {
        let mut parts = cursor.as_str().splitn(4, ' ');
        let (table, id, number, owner) = (
            parts.next()?.parse().ok()?,
            parts.next()?,
            parts.next()?.parse().ok()?,
            parts.next()?,
        );
        Some(Self {
            table,
            owner: owner.to_owned(),
            after: (id != "-").then(|| (id.to_owned(), number)),
        })
    }
}

/// The condition that a row's key is `>` or `<=` (`operator`) this key.
fn compared<'v>(
    table: &Table,
    operator: &'static str,
    (id, number): &'v (String, i64),
) -> Result<Fragment<'v>, Failure> {
    let number = || Bind::Int(*number);
    let entry_id = || {
        let id = id.parse().map(Bind::Int);
        id.map_err(|_| StoreError::Internal("a cursor of sealing cannot be parsed".into()))
    };
    let operator = Fragment::new(operator);
    Ok(match table.name {
        "entries" => fragment!("AND id {operator} ?", operator, entry_id()?),
        "images" => {
            let id = entry_id()?;
            fragment!(
                "AND (id, position) {operator} (?, ?)",
                operator,
                id,
                number()
            )
        }
        _ => fragment!(
            "AND (artifact_id, version) {operator} (?, ?)",
            operator,
            Bind::text(id.as_str()),
            number(),
        ),
    })
}

/// Seals the next rows of one owner in one table. Returns their number, and the last key that was checked, or `None` at
/// the end of the owner's rows.
async fn step(
    conn: &mut AsyncPgConnection,
    table: &Table,
    at: &Position,
) -> Result<(u64, Option<(String, i64)>), Failure> {
    let (id, number, order) = table.key;
    let [id, number, order] = [id, number, order].map(Fragment::new);
    let (name, owner) = (Fragment::new(table.name), at.owner.as_str());
    let after = match &at.after {
        Some(key) => compared(table, ">", key)?,
        None => Fragment::new(""),
    };
    // Raw SQL here and below: the table is one of three. This query finds the end of the step. Without it, a step would
    // read a sealed table to its end.
    let last = fragment!(
        "SELECT {id} AS id, {number} AS number FROM context.{table} WHERE owner_id = ? {after} ORDER BY {order} LIMIT 1 OFFSET ?",
        id.clone(),
        number.clone(),
        name.clone(),
        Bind::text(owner),
        after.clone(),
        order.clone(),
        Bind::Int(STEP_ROWS - 1),
    );
    let last: Option<Key> = sql::query(conn, last).await?.pop();
    let end = last.map(|Key { id, number }| (id, number));
    let before = match &end {
        Some(key) => compared(table, "<=", key)?,
        None => Fragment::new(""),
    };
    let select = fragment!(
        "SELECT {id} AS id, {number} AS number, {content}, seal FROM context.{table} WHERE owner_id = ? {after} \
         AND {unsealed} {before} ORDER BY {order} LIMIT ? FOR UPDATE SKIP LOCKED",
        id,
        number,
        Fragment::new(table.content),
        name,
        Bind::text(owner),
        after,
        Fragment::new(table.unsealed),
        before,
        order,
        Bind::Int(table.at_once),
    );
    let rows: Vec<Row> = sql::query(conn, select).await?;
    let seals: Vec<(&Row, Vec<u8>)> = rows
        .iter()
        .filter_map(|row| Some((row, row.seal(table)?)))
        .collect();
    let new_seals = || Bind::ByteStrings(seals.iter().map(|(_, seal)| &seal[..]).collect());
    let ids = || {
        Bind::ints(
            seals
                .iter()
                .map(|(row, _)| row.id.parse().unwrap_or(i64::MIN)),
        )
    };
    let numbers = || Bind::ints(seals.iter().map(|(row, _)| row.number));
    let update = match table.name {
        "entries" => Fragment::prepared(
            "UPDATE context.entries AS t SET seal = n.seal FROM unnest(?, ?) AS n(id, seal) WHERE t.owner_id = ? AND t.id = n.id",
            vec![ids(), new_seals(), Bind::text(owner)],
        ),
        "images" => Fragment::prepared(
            "UPDATE context.images AS t SET seal = n.seal FROM unnest(?, ?, ?) AS n(id, position, seal) \
             WHERE t.owner_id = ? AND t.id = n.id AND t.position = n.position",
            vec![ids(), numbers(), new_seals(), Bind::text(owner)],
        ),
        _ => Fragment::prepared(
            "UPDATE context.artifact_versions AS t SET seal = n.seal FROM unnest(?, ?, ?) AS n(id, version, seal) \
             WHERE t.owner_id = ? AND t.artifact_id = n.id AND t.version = n.version",
            vec![
                Bind::Texts(
                    seals
                        .iter()
                        .map(|(row, _)| row.id.as_str().into())
                        .collect(),
                ),
                numbers(),
                new_seals(),
                Bind::text(owner),
            ],
        ),
    };
    let sealed = if seals.is_empty() {
        0
    } else {
        sql::execute(conn, update).await?
    };
    let full = i64::try_from(rows.len()) == Ok(table.at_once);
    let after = rows
        .last()
        .filter(|_| full)
        .map(|row| (row.id.clone(), row.number))
        .or(end);
    Ok((sealed as u64, after))
}

/// The next owner by name. `None` after the last one.
async fn owner_after(conn: &mut AsyncPgConnection, owner: &str) -> Result<Option<String>, Failure> {
    Ok(owners::table
        .filter(owners::owner_id.gt(owner))
        .order(owners::owner_id)
        .limit(1)
        .select(owners::owner_id)
        .get_result(conn)
        .await
        .optional()?)
}

/// Seals the next rows at this position, or at the first one. Returns their number, and the next position.
async fn seal_next(
    conn: &mut AsyncPgConnection,
    at: Option<Position>,
) -> Result<(u64, Option<Position>), Failure> {
    let first_of = |owner| Position {
        table: 0,
        owner,
        after: None,
    };
    let at = match at {
        Some(at) => Some(at),
        None => owner_after(conn, "").await?.map(first_of),
    };
    let Some(at) = at else {
        return Ok((0, None));
    };
    let table = &TABLES[at.table.min(TABLES.len() - 1)];
    conn.batch_execute("BEGIN").await?;
    let (sealed, after) = step(conn, table, &at).await?;
    conn.batch_execute("COMMIT").await?;
    let next = match after {
        Some(after) => Some(Position {
            after: Some(after),
            ..at
        }),
        None if at.table + 1 < TABLES.len() => Some(Position {
            table: at.table + 1,
            after: None,
            ..at
        }),
        None => owner_after(conn, &at.owner).await?.map(first_of),
    };
    Ok((sealed, next))
}

#[async_trait]
impl SealStore for PostgresStore {
    async fn seal(&self, after: Option<&ScanCursor>) -> Result<SealedPage> {
        self.inner.soundness.check()?;
        let mut lease = self.inner.pool.get(None).await?;
        let sealed = seal_next(lease.conn(), after.and_then(Position::parse)).await;
        self.inner.pool.observe(&sealed);
        let (sealed, next) =
            sealed.inspect_err(|failure| failure.note_damage(&self.inner.soundness))?;
        lease.give_back();
        Ok(SealedPage {
            sealed,
            next: next.map(|at| at.to_cursor()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_reads_back_whatever_the_owner_is_called() {
        for after in [None, Some(("17".to_owned(), 3))] {
            let at = Position {
                table: 1,
                owner: "an owner - 4 2".to_owned(),
                after,
            };
            assert_eq!(Position::parse(&at.to_cursor()), Some(at));
        }
    }
}
