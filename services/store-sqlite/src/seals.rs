//! Sealing: adds checksums to rows that were stored before checksums existed.

use async_trait::async_trait;
use context_store::seal::{self, EntrySeal};
use context_store::{Result, ScanCursor, SealStore, SealedPage};
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Binary, Nullable, Text};

use crate::columns::CheckedText;
use crate::failure::store_error;
use crate::owners::id_of_row;
use crate::schema::meta;
use crate::sql::{self, Bind, Fragment};
use crate::statement::{self, Value};
use crate::store::SqliteStore;

/// The key in `meta` that records that every row has checksums. After that, nothing writes a row without them: no older
/// program opens this schema, and `migrate-data`, which can copy such rows, removes the key from its target.
pub(crate) const SEALED: &str = "sealed";

/// Maximum number of rows read in one step.
const STEP_ROWS: i64 = 500;
/// A step ends with the row that reaches this number of bytes of content.
const STEP_BYTES: usize = 1024 * 1024;

/// The tables with checksums, in the order in which they are sealed.
const TABLES: [&str; 3] = ["entries", "images", "artifact_versions"];

/// Stored in place of the checksums of a row with invalid UTF-8, which certainly is not what was stored. No content has
/// this checksum, so the row counts as damaged from then on.
const NO_CHECKSUM: [u8; 1] = [0];

/// A row's key, in the form used by the updates, and its checksums.
type Sealed = ([i64; 3], Vec<u8>);

#[derive(QueryableByName)]
struct Row {
    #[diesel(sql_type = BigInt)]
    k0: i64,
    #[diesel(sql_type = BigInt)]
    k1: i64,
    #[diesel(sql_type = BigInt)]
    k2: i64,
    #[diesel(sql_type = BigInt)]
    unsealed: i64,
    #[diesel(sql_type = BigInt)]
    version: i64,
    #[diesel(sql_type = Text)]
    id: CheckedText,
    #[diesel(sql_type = Text)]
    title: CheckedText,
    #[diesel(sql_type = Nullable<Text>)]
    metadata: Option<CheckedText>,
    #[diesel(sql_type = Text)]
    text: CheckedText,
    #[diesel(sql_type = Binary)]
    data: Vec<u8>,
}

impl Row {
    const fn key(&self) -> [i64; 3] {
        [self.k0, self.k1, self.k2]
    }

    fn seal(&self, table: &str) -> Vec<u8> {
        let Self {
            k1,
            k2,
            version,
            id,
            title,
            metadata,
            text,
            data,
            ..
        } = self;
        let mut texts = [id, title, text].into_iter().chain(metadata);
        if !texts.all(|text| text.is_valid) {
            return NO_CHECKSUM.to_vec();
        }
        let [id, title, text] = [id, title, text].map(|text| text.text.as_str());
        let json = metadata.as_ref().map(|json| json.text.as_str());
        match table {
            "entries" => EntrySeal::of(*version, text, json.unwrap_or_default())
                .to_bytes(id_of_row(*k1))
                .to_vec(),
            "images" => seal::image(id_of_row(*k1), *k2, title, json, data).to_vec(),
            _ => {
                seal::artifact_version(id, *version, title, json.unwrap_or_default(), text).to_vec()
            }
        }
    }
}

/// Rows of a table after this key, in the order of the table, so that SQLite reads only the rows that are used. The
/// content of sealed rows is omitted. `k1` is an entry's row id.
fn rows(table: &str, [k0, k1, k2]: [i64; 3]) -> Fragment {
    let (columns, from) = match table {
        "entries" => (
            "0 AS k0, row_id AS k1, 0 AS k2, seal IS NULL AS unsealed, version, '' AS id, '' AS title, \
             iif(seal IS NULL, metadata, '') AS metadata, iif(seal IS NULL, text, '') AS text, X'' AS data",
            "entries NOT INDEXED WHERE row_id > ",
        ),
        "images" => (
            "owner AS k0, row_id AS k1, position AS k2, seal IS NULL AS unsealed, 0 AS version, '' AS id, mime_type AS title, \
             metadata, '' AS text, iif(seal IS NULL, data, X'') AS data",
            "images WHERE (owner, row_id, position) > (",
        ),
        _ => (
            "0 AS k0, rowid AS k1, 0 AS k2, seal IS NULL AS unsealed, version, artifact_id AS id, title, \
             iif(seal IS NULL, metadata, '') AS metadata, iif(seal IS NULL, content, '') AS text, X'' AS data",
            "artifact_versions NOT INDEXED WHERE rowid > ",
        ),
    };
    let mut select = Fragment::new(format!("SELECT {columns} FROM {from}"));
    if table == "images" {
        select
            .bind(Bind::Int(k0))
            .push(", ")
            .bind(Bind::Int(k1))
            .push(", ")
            .bind(Bind::Int(k2))
            .push(")");
    } else {
        select.bind(Bind::Int(k1));
    }
    // SQLite sorts if a constant is among the terms.
    let order = match table {
        "images" => "k0, k1, k2",
        _ => "k1",
    };
    select
        .push(&format!(" ORDER BY {order} LIMIT "))
        .bind(Bind::Int(STEP_ROWS));
    select
}

/// The checksums for the next rows without any, and the key of the last row read. `None` at the end of the table.
fn next(
    conn: &mut SqliteConnection,
    table: &'static str,
    after: [i64; 3],
) -> Result<(Vec<Sealed>, Option<[i64; 3]>)> {
    let (mut sealed, mut bytes, mut last) = (Vec::new(), 0, None);
    for row in sql::each::<Row>(conn, &rows(table, after)).map_err(store_error)? {
        let row = row.map_err(store_error)?;
        last = Some(row.key());
        if row.unsealed != 0 {
            bytes += row.text.text.len() + row.data.len();
            sealed.push((row.key(), row.seal(table)));
        }
        if bytes >= STEP_BYTES {
            break;
        }
    }
    Ok((sealed, last))
}

/// Stores checksums of rows that still have none. Every write of content also writes its checksums, so the content of
/// these rows has not changed since it was read.
fn write(conn: &mut SqliteConnection, table: &'static str, sealed: &[Sealed]) -> QueryResult<u64> {
    let mut changed = 0;
    for ([k0, k1, k2], seal) in sealed {
        let (seal, k0, k1, k2) = (
            Value::Blob(seal),
            Value::Int(*k0),
            Value::Int(*k1),
            Value::Int(*k2),
        );
        changed += match table {
            "entries" => statement::execute(
                conn,
                "UPDATE entries SET seal = ? WHERE row_id = ? AND seal IS NULL",
                &[seal, k1],
            )?,
            "images" => {
                let update = "UPDATE images SET seal = ? \
                    WHERE owner = ? AND row_id = ? AND position = ? AND seal IS NULL";
                statement::execute(conn, update, &[seal, k0, k1, k2])?
            }
            _ => statement::execute(
                conn,
                "UPDATE artifact_versions SET seal = ? WHERE rowid = ? AND seal IS NULL",
                &[seal, k1],
            )?,
        };
    }
    Ok(changed as u64)
}

/// Parses a cursor into an index of [`TABLES`] and a key in that table.
fn parse(cursor: &ScanCursor) -> Option<(usize, [i64; 3])> {
    let mut parts = cursor
        .as_str()
        .split(' ')
        .map(|part| part.parse::<i64>().ok());
    let mut part = || parts.next().flatten();
    Some((usize::try_from(part()?).ok()?, [part()?, part()?, part()?]))
}

#[async_trait]
impl SealStore for SqliteStore {
    async fn seal(&self, after: Option<&ScanCursor>) -> Result<SealedPage> {
        let (at, key) = after.and_then(parse).unwrap_or((0, [0; 3]));
        let Some(table) = TABLES.get(at).copied() else {
            self.write_without_owner(|conn, _| {
                diesel::replace_into(meta::table)
                    .values((meta::key.eq(SEALED), meta::value.eq("all")))
                    .execute(conn)?;
                Ok(())
            })
            .await?;
            return Ok(SealedPage {
                sealed: 0,
                next: None,
            });
        };
        let found = self.searches.read(None, move |conn| {
            let all = meta::table
                .find(SEALED)
                .select(meta::value)
                .get_result::<String>(conn)
                .optional()
                .map_err(store_error)?;
            if all.is_some() {
                Ok(None)
            } else {
                next(conn, table, key).map(Some)
            }
        });
        let Some((rows, last)) = found.await? else {
            return Ok(SealedPage {
                sealed: 0,
                next: None,
            });
        };
        let sealed = if rows.is_empty() {
            0
        } else {
            self.write_without_owner(move |conn, _| Ok(write(conn, table, &rows)?))
                .await?
        };
        let (at, [k0, k1, k2]) = last.map_or((at + 1, [0; 3]), |key| (at, key));
        Ok(SealedPage {
            sealed,
            next: Some(ScanCursor::new(format!("{at} {k0} {k1} {k2}"))),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use context_store::Store as _;

    use super::*;
    use crate::config::Config;
    use crate::connection;

    #[tokio::test]
    async fn a_step_reads_a_table_in_its_order_and_sorts_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("store.db");
        let store = SqliteStore::open(Config::new(&path)).unwrap();
        let mut conn = connection::reader(&path, Duration::ZERO).unwrap();
        for table in TABLES {
            let plan = rows(table, [1, 2, 3]).explain(&mut conn).unwrap();
            assert!(
                matches!(&plan[..], [step] if step.starts_with("SEARCH")),
                "{table}: {plan:?}"
            );
        }
        drop(conn);
        store.close().await;
    }
}
