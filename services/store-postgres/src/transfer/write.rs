//! Writes rows of any migrated table, and the data derived from them.

use std::borrow::Cow;

use crate::pg::connection::AsyncPgConnection;
use context_model::fold;
use context_store::transfer::{Cell, Column, ErasedOwner, Head, Kind, Row, Table, thread_parts};
use context_store::{OwnerId, unreadable};
use diesel::ExpressionMethods as _;
use diesel_async::RunQueryDsl as _;

use super::vectors;
use crate::filter::folded_json;
use crate::fts::{Document, Language, Words};
use crate::keys;
use crate::pg::dsl::fixed;
use crate::pg::failure::Failure;
use crate::pg::sql::{self, Bind, Fragment, fragment};
use crate::schema::owner_ids;

/// Writes an owner's rows.
pub(super) async fn rows(
    conn: &mut AsyncPgConnection,
    owner: &OwnerId,
    table: &'static Table,
    rows: &[Row],
    language: &Language,
) -> Result<(), Failure> {
    keys::create_owner(conn, owner).await?;
    match table.name {
        "entries" => entries(conn, owner, table, rows, language).await,
        "chunks" => vectors::write(conn, owner, table, rows).await,
        "chunk_tokens" => vectors::write_tokens(conn, owner, table, rows).await,
        "artifact_versions" => {
            insert(conn, owner, table, rows, Vec::new()).await?;
            artifact_texts(conn, owner, table, rows).await
        }
        _ => insert(conn, owner, table, rows, Vec::new()).await,
    }
}

/// A column that only this database has: its name, the SQL of its value, and for each row the value that this SQL reads
/// as `n.f0` (for the first of these columns), `n.f1` or `n.f2`.
struct ExtraColumn<'v> {
    name: &'static str,
    expression: Fragment<'v>,
    values: Bind<'v>,
}

/// Writes rows with one statement.
async fn insert(
    conn: &mut AsyncPgConnection,
    owner: &OwnerId,
    table: &'static Table,
    rows: &[Row],
    extra: Vec<ExtraColumn<'_>>,
) -> Result<(), Failure> {
    let (mut names, mut given) = (Vec::new(), Vec::new());
    let (mut values, mut arrays) = (Fragment::new(""), Fragment::new(""));
    let own = table.stored().enumerate().map(|(at, column)| {
        let name = format!("c{at}");
        let value = Fragment::new(expression(column, &name));
        (column.name, name, value, array(column, at, rows))
    });
    let extra = extra.into_iter().enumerate();
    let extra = extra.map(|(at, column)| {
        (
            column.name,
            format!("f{at}"),
            column.expression,
            column.values,
        )
    });
    for (name, as_given, value, array) in own.chain(extra) {
        let separator = if names.is_empty() { "" } else { ", " };
        values.push(separator).append(value);
        arrays.push(separator).bind(array);
        names.push(name);
        given.push(as_given);
    }
    // Raw SQL: the table and its columns vary.
    let insert = fragment!(
        "INSERT INTO context.{table} (owner_id, {names}) SELECT ?, {values} FROM unnest({arrays}) AS n({given})",
        Fragment::new(table.name),
        Fragment::new(names.join(", ")),
        Bind::text(owner.as_str()),
        values,
        arrays,
        Fragment::new(given.join(", ")),
    );
    sql::execute(conn, insert).await?;
    Ok(())
}

/// The expression for a column's value, from the array value of this name.
fn expression(column: &Column, given: &str) -> String {
    match column.kind {
        Kind::Int
        | Kind::OptionalInt
        | Kind::Text
        | Kind::OptionalText
        | Kind::Bytes
        | Kind::OptionalBytes
        | Kind::Copy => format!("n.{given}"),
        Kind::Flag => format!("n.{given} <> 0"),
        Kind::Json | Kind::OptionalJson => format!("n.{given}::json"),
        // Lists are sent as JSON, because in an array of arrays all arrays must have the same length.
        Kind::List => format!(
            "ARRAY(SELECT i.value FROM json_array_elements_text(n.{given}::json) WITH ORDINALITY AS i(value, place) ORDER BY i.place)"
        ),
    }
}

/// A column's values as one array.
fn array<'r>(column: &Column, at: usize, rows: &'r [Row]) -> Bind<'r> {
    let cells = rows
        .iter()
        .map(move |row| row.0.get(at).unwrap_or(&Cell::Null));
    match column.kind {
        Kind::Int | Kind::OptionalInt | Kind::Flag | Kind::Copy => Bind::OptionalInts(
            cells
                .map(|cell| {
                    if let Cell::Int(value) = cell {
                        Some(*value)
                    } else {
                        None
                    }
                })
                .collect(),
        ),
        Kind::Bytes => Bind::ByteStrings(
            cells
                .map(|cell| {
                    if let Cell::Bytes(bytes) = cell {
                        &bytes[..]
                    } else {
                        &[]
                    }
                })
                .collect(),
        ),
        Kind::OptionalBytes => Bind::OptionalByteStrings(
            cells
                .map(|cell| {
                    if let Cell::Bytes(bytes) = cell {
                        Some(&bytes[..])
                    } else {
                        None
                    }
                })
                .collect(),
        ),
        Kind::Text | Kind::OptionalText | Kind::Json | Kind::OptionalJson | Kind::List => {
            let text = |cell: &'r Cell| match cell {
                Cell::Text(text) => Some(Cow::Borrowed(text.as_str())),
                Cell::List(items) => Some(Cow::Owned(serde_json::json!(items).to_string())),
                Cell::Null | Cell::Int(_) | Cell::Bytes(_) => None,
            };
            Bind::OptionalTexts(cells.map(text).collect())
        }
    }
}

/// Writes entries with their search documents and tags, and adds them to their threads.
async fn entries(
    conn: &mut AsyncPgConnection,
    owner: &OwnerId,
    table: &'static Table,
    rows: &[Row],
    language: &Language,
) -> Result<(), Failure> {
    let (mut folded, mut words, mut cut) = (Vec::new(), Vec::new(), Vec::new());
    for row in rows {
        let metadata = serde_json::from_str(row.text(table, "metadata"))
            .map_err(|error| unreadable("metadata", Some(error)))?;
        folded.push(Cow::Owned(folded_json(&metadata)));
        let document = Document::new(row.text(table, "text"), language);
        cut.push(i64::from(document.cut));
        words.push(Cow::Owned(match document.words {
            Words::Lexemes(lexemes) => lexemes,
            Words::Plain {
                configuration: _,
                words,
            } => words,
        }));
    }
    let vector = match language {
        Language::Ours(_) => Fragment::new("n.f1::tsvector"),
        Language::Server(configuration) => {
            fragment!("to_tsvector(?::regconfig, n.f1)", Bind::text(configuration))
        }
    };
    let extra = vec![
        ExtraColumn {
            name: "metadata_folded",
            expression: Fragment::new("n.f0::jsonb"),
            values: Bind::Texts(folded),
        },
        ExtraColumn {
            name: "words",
            expression: vector,
            values: Bind::Texts(words),
        },
        ExtraColumn {
            name: "words_cut",
            expression: Fragment::new("n.f2 <> 0"),
            values: Bind::Ints(cut),
        },
    ];
    insert(conn, owner, table, rows, extra).await?;
    tags(conn, owner, table, rows).await?;
    threads(conn, owner, table, rows).await
}

async fn tags(
    conn: &mut AsyncPgConnection,
    owner: &OwnerId,
    table: &'static Table,
    rows: &[Row],
) -> Result<(), Failure> {
    let (mut tags, mut ids) = (Vec::new(), Vec::new());
    for row in rows {
        for tag in row.list(table, "tags") {
            tags.push(Cow::Borrowed(tag.as_str()));
            ids.push(row.int(table, "id"));
        }
    }
    // Raw SQL for `unnest`: one statement for any number of tags.
    let insert = "INSERT INTO context.entry_tags (owner_id, tag, id) SELECT ?, n.tag, n.id FROM unnest(?, ?) AS n(tag, id)";
    let binds = vec![
        Bind::text(owner.as_str()),
        Bind::Texts(tags),
        Bind::Ints(ids),
    ];
    sql::execute(conn, Fragment::prepared(insert, binds)).await?;
    Ok(())
}

async fn threads(
    conn: &mut AsyncPgConnection,
    owner: &OwnerId,
    table: &'static Table,
    rows: &[Row],
) -> Result<(), Failure> {
    let parts = thread_parts(table, rows);
    let upsert = "INSERT INTO context.threads AS t (owner_id, thread_id, entry_count, user_count, agent_count, multimodal_count, \
                  first_entry, last_entry, last_id, last_source, last_hash) \
                  SELECT ?, n.* FROM unnest(?, ?, ?, ?, ?, ?, ?, ?, ?, ?) AS n \
                  ON CONFLICT (owner_id, thread_id) DO UPDATE SET entry_count = t.entry_count + excluded.entry_count, \
                  user_count = t.user_count + excluded.user_count, agent_count = t.agent_count + excluded.agent_count, \
                  multimodal_count = t.multimodal_count + excluded.multimodal_count, \
                  first_entry = least(t.first_entry, excluded.first_entry), (last_entry, last_id, last_source, last_hash) = \
                  (SELECT w.* FROM (VALUES (t.last_entry, t.last_id, t.last_source, t.last_hash), \
                  (excluded.last_entry, excluded.last_id, excluded.last_source, excluded.last_hash)) AS w \
                  ORDER BY 1 DESC, 2 DESC LIMIT 1)";
    let ints = |value: fn(&context_store::transfer::ThreadPart) -> i64| {
        Bind::ints(parts.values().map(value))
    };
    let binds = vec![
        Bind::text(owner.as_str()),
        Bind::Texts(parts.keys().map(|name| Cow::Borrowed(*name)).collect()),
        ints(|part| part.entries),
        ints(|part| part.user),
        ints(|part| part.agent),
        ints(|part| part.multimodal),
        ints(|part| part.first_entry),
        ints(|part| part.last_entry),
        ints(|part| part.last_id),
        Bind::Texts(
            parts
                .values()
                .map(|part| Cow::Borrowed(part.last_source.as_str()))
                .collect(),
        ),
        ints(|part| part.last_hash),
    ];
    sql::execute(conn, Fragment::prepared(upsert, binds)).await?;
    Ok(())
}

/// Writes the current versions' texts, folded for search.
async fn artifact_texts(
    conn: &mut AsyncPgConnection,
    owner: &OwnerId,
    table: &'static Table,
    rows: &[Row],
) -> Result<(), Failure> {
    let texts = |column: &'static str| {
        Bind::Texts(
            rows.iter()
                .map(|row| Cow::Owned(fold(row.text(table, column))))
                .collect(),
        )
    };
    let insert = "INSERT INTO context.artifact_texts (owner_id, artifact_id, title, content) \
                  SELECT a.owner_id, a.artifact_id, n.title, n.content FROM context.artifacts AS a, \
                  unnest(?, ?, ?, ?) AS n(artifact_id, version, title, content) \
                  WHERE a.owner_id = ? AND a.artifact_id = n.artifact_id AND a.version = n.version";
    let binds = vec![
        Bind::Texts(
            rows.iter()
                .map(|row| Cow::Borrowed(row.text(table, "artifact_id")))
                .collect(),
        ),
        Bind::ints(rows.iter().map(|row| row.int(table, "version"))),
        texts("title"),
        texts("content"),
        Bind::text(owner.as_str()),
    ];
    sql::execute(conn, Fragment::prepared(insert, binds)).await?;
    Ok(())
}

/// Stores the next ids of erased owners.
pub(super) async fn erased(
    conn: &mut AsyncPgConnection,
    erased: &[ErasedOwner],
) -> Result<(), Failure> {
    for ErasedOwner { owner, next_id } in erased {
        set_next_id(conn, owner.as_str(), *next_id).await?;
    }
    Ok(())
}

async fn set_next_id(
    conn: &mut AsyncPgConnection,
    owner: &str,
    next_id: i64,
) -> Result<(), Failure> {
    let ids = diesel::insert_into(owner_ids::table)
        .values((
            owner_ids::owner_id.eq(owner),
            owner_ids::next_id.eq(next_id),
        ))
        .on_conflict(owner_ids::owner_id)
        .do_update()
        .set(owner_ids::next_id.eq(next_id));
    fixed!(ids).execute(conn).await?;
    Ok(())
}

/// Sets the owner's revision and next id to those of the source, and computes the owner's counts from the copied rows.
pub(super) async fn close_owner(conn: &mut AsyncPgConnection, head: &Head) -> Result<(), Failure> {
    let Head {
        owner,
        revision,
        next_id,
    } = head;
    keys::create_owner(conn, owner).await?;
    let owner = owner.as_str();
    // An owner that has never stored an entry has leased no ids.
    if *next_id > 1 {
        set_next_id(conn, owner, *next_id).await?;
    }
    // Raw SQL: the sums are numeric and need a cast.
    let counts = "UPDATE context.owners AS o SET revision = ?, (entry_count, user_count, agent_count, multimodal_count, thread_count) = \
                  (SELECT coalesce(sum(t.entry_count), 0)::bigint, coalesce(sum(t.user_count), 0)::bigint, coalesce(sum(t.agent_count), 0)::bigint, \
                  coalesce(sum(t.multimodal_count), 0)::bigint, count(*) FROM context.threads AS t WHERE t.owner_id = ?), \
                  image_count = (SELECT count(*) FROM context.images AS i WHERE i.owner_id = ?) WHERE o.owner_id = ?";
    let binds = vec![
        Bind::Int(*revision),
        Bind::text(owner),
        Bind::text(owner),
        Bind::text(owner),
    ];
    sql::execute(conn, Fragment::prepared(counts, binds)).await?;
    Ok(())
}
