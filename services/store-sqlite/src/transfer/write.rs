//! Writes the rows that a data migration copies, and the data that is derived from them.

use std::collections::BTreeMap;

use context_model::{Metadata, fold};
use context_store::transfer::{Cell, ErasedOwner, Head, Row, Table, thread_parts};
use context_store::{BoxError, OwnerId};
use context_vector::{decode, signs};
use diesel::prelude::*;

use super::read::{is_row_id, model};
use crate::entries::{parse_metadata, tags_json};
use crate::owners::{Owner, Owners};
use crate::schema::{chunks, erased_owners};
use crate::statement::{self, Prepared, Value};

/// The number of the vector set that a migration fills.
pub(super) const SET: i64 = 1;

/// Returns the owner's row, which it creates if there is none.
fn owner(conn: &mut SqliteConnection, id: &OwnerId) -> QueryResult<Owner> {
    match crate::owners::find(conn, id)? {
        Some(owner) => Ok(owner),
        None => Owners::create(conn, id),
    }
}

/// Writes an owner's rows of one table, and what is derived from them.
pub(super) fn rows(
    conn: &mut SqliteConnection,
    id: &OwnerId,
    table: &'static Table,
    rows: &[Row],
) -> Result<(), BoxError> {
    let owner = owner(conn, id)?;
    match table.name {
        "entries" => entries(conn, &owner, table, rows),
        "chunks" => vectors(conn, &owner, table, rows),
        "chunk_tokens" => tokens(conn, &owner, table, rows),
        "artifact_versions" => {
            plain(conn, &owner, table, rows, &[])?;
            artifact_texts(conn, &owner, table, rows)
        }
        _ => plain(conn, &owner, table, rows, &[]),
    }
}

fn row_id(owner: &Owner, id: i64) -> Result<i64, BoxError> {
    let refused = || {
        format!(
            "the entry {id} of owner `{}` cannot be stored in SQLite, whose ids are below 2^40",
            owner.owner_id.escape_debug()
        )
    };
    owner.row_id(id).ok_or_else(|| refused().into())
}

/// Writes rows unchanged, with additional columns: pairs of a name and one value for each row.
fn plain(
    conn: &mut SqliteConnection,
    owner: &Owner,
    table: &'static Table,
    rows: &[Row],
    further: &[(&str, Vec<String>)],
) -> Result<(), BoxError> {
    let mut names = vec!["owner".to_owned()];
    for column in table.stored() {
        names.push(if is_row_id(table, column) {
            "row_id".to_owned()
        } else {
            format!("\"{}\"", column.name)
        });
    }
    if table.name == "entries" {
        names.push("id".to_owned());
    }
    names.extend(further.iter().map(|(name, _)| (*name).to_owned()));
    let insert = format!(
        "INSERT INTO \"{}\" ({}) VALUES ({})",
        table.name,
        names.join(", "),
        vec!["?"; names.len()].join(", ")
    );
    for (at, row) in rows.iter().enumerate() {
        let lists: Vec<String> = row
            .0
            .iter()
            .filter_map(|cell| {
                if let Cell::List(items) = cell {
                    Some(tags_json(items))
                } else {
                    None
                }
            })
            .collect();
        let mut lists = lists.iter();
        let mut values = vec![Value::Int(owner.owner)];
        for (cell, column) in row.0.iter().zip(table.stored()) {
            values.push(match cell {
                Cell::Int(id) if is_row_id(table, column) => Value::Int(row_id(owner, *id)?),
                Cell::Null => Value::Null,
                Cell::Int(value) => Value::Int(*value),
                Cell::Text(text) => Value::Text(text),
                Cell::List(_) => lists.next().map_or(Value::Null, |list| Value::Text(list)),
                Cell::Bytes(bytes) => Value::Blob(bytes),
            });
        }
        if table.name == "entries" {
            values.push(Value::Int(row.int(table, "id")));
        }
        values.extend(
            further
                .iter()
                .map(|(_, texts)| texts.get(at).map_or(Value::Null, |text| Value::Text(text))),
        );
        Prepared {
            sql: &insert,
            values: &values,
        }
        .execute(conn)?;
    }
    Ok(())
}

/// Writes entries, their tags and the counts of their threads. The full-text index is built at the end of the
/// migration.
fn entries(
    conn: &mut SqliteConnection,
    owner: &Owner,
    table: &'static Table,
    rows: &[Row],
) -> Result<(), BoxError> {
    // Damaged metadata is copied like other content, and its checksum shows the damage. Its folded form is empty.
    let folded = |row: &Row| {
        let metadata = parse_metadata(row.text(table, "metadata")).unwrap_or_default();
        Metadata::from_stored(metadata).to_folded_json()
    };
    let folded = rows.iter().map(folded).collect();
    plain(conn, owner, table, rows, &[("metadata_folded", folded)])?;
    let number = Value::Int(owner.owner);
    let mut counts: BTreeMap<&str, i64> = BTreeMap::new();
    for row in rows {
        let row_id = Value::Int(row_id(owner, row.int(table, "id"))?);
        for tag in row.list(table, "tags") {
            let insert = "INSERT INTO entry_tags (owner, tag, row_id) VALUES (?, ?, ?)";
            statement::execute(conn, insert, &[number, Value::Text(tag), row_id])?;
            *counts.entry(tag).or_default() += 1;
        }
    }
    for (tag, count) in counts {
        let insert = "INSERT INTO tag_counts (owner, tag, entries) VALUES (?, ?, ?) \
                      ON CONFLICT (owner, tag) DO UPDATE SET entries = entries + excluded.entries";
        statement::execute(conn, insert, &[number, Value::Text(tag), Value::Int(count)])?;
    }
    for (thread_id, part) in thread_parts(table, rows) {
        // Adds the batch to the thread's row. The newest entry is the one with the latest time, then the highest id.
        let insert = "\
            INSERT INTO threads AS t \
                (owner, thread_id, entry_count, user_count, agent_count, multimodal_count, \
                 first_entry, last_entry, last_id, last_source, last_hash) \
            VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) \
            ON CONFLICT (owner, thread_id) DO UPDATE SET \
                entry_count = t.entry_count + excluded.entry_count, \
                user_count = t.user_count + excluded.user_count, \
                agent_count = t.agent_count + excluded.agent_count, \
                multimodal_count = t.multimodal_count + excluded.multimodal_count, \
                first_entry = min(t.first_entry, excluded.first_entry), \
                last_source = iif((excluded.last_entry, excluded.last_id) > (t.last_entry, t.last_id), \
                                  excluded.last_source, t.last_source), \
                last_hash = iif((excluded.last_entry, excluded.last_id) > (t.last_entry, t.last_id), \
                                excluded.last_hash, t.last_hash), \
                last_id = iif((excluded.last_entry, excluded.last_id) > (t.last_entry, t.last_id), \
                              excluded.last_id, t.last_id), \
                last_entry = max(t.last_entry, excluded.last_entry)";
        let counts = [
            part.entries,
            part.user,
            part.agent,
            part.multimodal,
            part.first_entry,
            part.last_entry,
            part.last_id,
        ];
        let mut values = vec![number, Value::Text(thread_id)];
        values.extend(counts.map(Value::Int));
        values.extend([Value::Text(&part.last_source), Value::Int(part.last_hash)]);
        statement::execute(conn, insert, &values)?;
    }
    Ok(())
}

/// Writes vectors with their codes. A vector with another length than the model's is rejected, because the source is
/// damaged.
fn vectors(
    conn: &mut SqliteConnection,
    owner: &Owner,
    table: &'static Table,
    rows: &[Row],
) -> Result<(), BoxError> {
    let dimensions = model(conn)?.map_or(0, |(_, model)| {
        usize::try_from(model.dimensions).unwrap_or(0)
    });
    let last: Option<i64> = chunks::table
        .select(chunks::chunk_id)
        .order(chunks::chunk_id.desc())
        .first(conn)
        .optional()?;
    for (row, chunk_id) in rows.iter().zip(last.unwrap_or(0) + 1..) {
        let bytes = row.bytes(table, "vector");
        let mut vector = vec![0.0; dimensions];
        if !decode(bytes, &mut vector) {
            return Err(format!(
                "a vector of the entry {} has another length than the model's",
                row.int(table, "id")
            )
            .into());
        }
        let code = signs(&vector).to_bytes();
        let int = |column| Value::Int(row.int(table, column));
        let entry = row_id(owner, row.int(table, "id"))?;
        statement::execute(
            conn,
            "INSERT INTO chunks (chunk_id, owner, row_id, set_id, position, start_char, end_char, code) \
             VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            &[
                Value::Int(chunk_id),
                Value::Int(owner.owner),
                Value::Int(entry),
                Value::Int(SET),
                int("position"),
                int("start_char"),
                int("end_char"),
                Value::Blob(&code),
            ],
        )?;
        statement::execute(
            conn,
            "INSERT INTO vectors (chunk_id, vector) VALUES (?, ?)",
            &[Value::Int(chunk_id), Value::Blob(bytes)],
        )?;
    }
    Ok(())
}

/// Writes token vectors unchanged.
fn tokens(
    conn: &mut SqliteConnection,
    owner: &Owner,
    table: &'static Table,
    rows: &[Row],
) -> Result<(), BoxError> {
    for row in rows {
        statement::execute(
            conn,
            "INSERT INTO chunk_tokens (owner, row_id, set_id, position, tokens) \
             VALUES (?, ?, ?, ?, ?)",
            &[
                Value::Int(owner.owner),
                Value::Int(row_id(owner, row.int(table, "id"))?),
                Value::Int(SET),
                Value::Int(row.int(table, "position")),
                Value::Blob(row.bytes(table, "tokens")),
            ],
        )?;
    }
    Ok(())
}

/// Writes the folded texts of the current versions for search.
fn artifact_texts(
    conn: &mut SqliteConnection,
    owner: &Owner,
    table: &'static Table,
    rows: &[Row],
) -> Result<(), BoxError> {
    for row in rows {
        let (id, version) = (row.text(table, "artifact_id"), row.int(table, "version"));
        let (title, content) = (
            fold(row.text(table, "title")),
            fold(row.text(table, "content")),
        );
        let insert = "INSERT INTO artifact_texts (owner, artifact_id, title, content) SELECT ?, ?, ?, ? \
                      WHERE EXISTS (SELECT 1 FROM artifacts WHERE owner = ? AND artifact_id = ? AND version = ?)";
        let (number, id) = (Value::Int(owner.owner), Value::Text(id));
        let values = [
            number,
            id,
            Value::Text(&title),
            Value::Text(&content),
            number,
            id,
            Value::Int(version),
        ];
        statement::execute(conn, insert, &values)?;
    }
    Ok(())
}

/// Stores the next ids of erased owners.
pub(super) fn erased(conn: &mut SqliteConnection, erased: &[ErasedOwner]) -> QueryResult<()> {
    for ErasedOwner { owner, next_id } in erased {
        diesel::replace_into(erased_owners::table)
            .values((
                erased_owners::owner_id.eq(owner.as_str()),
                erased_owners::next_id.eq(next_id),
            ))
            .execute(conn)?;
    }
    Ok(())
}

/// Sets the owner's counters: those of the source, and those derived from its rows.
pub(super) fn close_owner(conn: &mut SqliteConnection, head: &Head) -> Result<(), BoxError> {
    let Owner { owner: number, .. } = owner(conn, &head.owner)?;
    let number = Value::Int(number);
    statement::execute(
        conn,
        "UPDATE owners SET \
             revision = ?, \
             next_id = ?, \
             entry_count = t.entries, \
             user_count = t.users, \
             agent_count = t.agents, \
             multimodal_count = t.multimodal, \
             thread_count = t.threads, \
             image_count = (SELECT count(*) FROM images WHERE owner = ?), \
             tag_count = (SELECT count(*) FROM tag_counts WHERE owner = ?) \
         FROM (SELECT \
                   coalesce(sum(entry_count), 0) AS entries, \
                   coalesce(sum(user_count), 0) AS users, \
                   coalesce(sum(agent_count), 0) AS agents, \
                   coalesce(sum(multimodal_count), 0) AS multimodal, \
                   count(*) AS threads \
               FROM threads WHERE owner = ?) AS t \
         WHERE owners.owner = ?",
        &[
            Value::Int(head.revision),
            Value::Int(head.next_id),
            number,
            number,
            number,
            number,
        ],
    )?;
    Ok(())
}
