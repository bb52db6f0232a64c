//! The search index of artifacts: for each artifact a row of `artifact_documents`, its words in the full-text table,
//! and its vectors. They are written in the transaction of the artifact.

use context_model::{ArtifactId, JsonObject, Metadata};
use context_store::rules::artifact::{NewVersion, ReadVersion, document_text};
use context_store::{ArtifactDocument, Embedding, StoreError, unreadable};
use context_text::Language;
use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Binary, Nullable, Text};

use crate::collection::Collection;
use crate::columns::LossyText;
use crate::failure::{Failure, store_error};
use crate::filter::json_list;
use crate::fts;
use crate::full_text::FullTextChange;
use crate::indexable::Indexable;
use crate::owners::{ID_BITS, Owner};
use crate::schema::{artifact_documents, meta, owners};
use crate::sql::{self, Bind, Fragment};
use crate::statement::{self, Value};
use crate::transaction::Transaction;
use crate::vectors;

/// Number of artifacts indexed in one transaction when the database is opened. A content has up to 100 000 characters.
const AT_ONCE: i64 = 20;
/// The key in `meta` of the language and analyzer version with which artifacts were indexed.
const MADE_WITH: &str = "fts_artifacts";

/// Indexes a new artifact.
pub(super) fn insert(
    transaction: &mut Transaction<'_>,
    new: &NewVersion,
    embedding: &Embedding,
) -> Result<(), Failure> {
    let owner = transaction.owner.owner;
    if !has_any(transaction.conn, owner)? {
        transaction.create_full_text_table(Collection::artifacts(owner))?;
    }
    let mut row_id = new_row_id(transaction.conn, owner)?;
    if let Some(removed) = transaction.vectors.removed_documents.get(&owner) {
        // The vectors of the removed document may be computed at this moment. Another document must not get them.
        row_id = row_id.min(removed - 1);
    }
    let row = Row {
        row_id,
        owner,
        artifact_id: new.id.to_string(),
        version: new.version,
        created_at: new.created_at.micros(),
        metadata: new.metadata.clone(),
        metadata_folded: folded(&new.metadata),
    };
    diesel::insert_into(artifact_documents::table)
        .values(row)
        .execute(transaction.conn)?;
    vectors::insert(transaction, row_id, embedding)?;
    add_words(transaction, row_id, new);
    Ok(())
}

/// Indexes the next version of an artifact.
pub(super) fn update(
    transaction: &mut Transaction<'_>,
    next: &NewVersion,
    embedding: &Embedding,
) -> Result<(), Failure> {
    let owner = transaction.owner.owner;
    let Some(row_id) = find(transaction.conn, owner, &next.id)? else {
        return insert(transaction, next, embedding);
    };
    statement::execute(
        transaction.conn,
        "UPDATE artifact_documents SET version = ?, metadata = ?, metadata_folded = ? WHERE row_id = ?",
        &[
            Value::Int(next.version),
            Value::Text(&next.metadata),
            Value::Text(&folded(&next.metadata)),
            Value::Int(row_id),
        ],
    )?;
    if next.has_other_texts() {
        vectors::replace(transaction, row_id, embedding)?;
        transaction.full_text(FullTextChange::Delete { owner, row_id });
        add_words(transaction, row_id, next);
    }
    Ok(())
}

/// Removes an artifact from the index.
pub(super) fn remove(transaction: &mut Transaction<'_>, id: &ArtifactId) -> Result<(), Failure> {
    let owner = transaction.owner.owner;
    let Some(row_id) = find(transaction.conn, owner, id)? else {
        return Ok(());
    };
    vectors::remove(transaction, row_id)?;
    diesel::delete(artifact_documents::table.find(row_id)).execute(transaction.conn)?;
    let removed = &mut transaction.vectors.removed_documents;
    let lowest = removed.entry(owner).or_insert(row_id);
    *lowest = row_id.min(*lowest);
    transaction.full_text(FullTextChange::Delete { owner, row_id });
    Ok(())
}

/// Whether any artifact of the owner is indexed. If so, the owner has a full-text table of artifacts.
pub(crate) fn has_any(conn: &mut SqliteConnection, owner: i64) -> QueryResult<bool> {
    let any = artifact_documents::table.filter(artifact_documents::owner.eq(owner));
    diesel::select(diesel::dsl::exists(any)).get_result(conn)
}

/// The version of the owner's artifact with this document. `None` if there is none.
pub(crate) fn version_of(
    conn: &mut SqliteConnection,
    owner: i64,
    row_id: i64,
) -> QueryResult<Option<i64>> {
    artifact_documents::table
        .find(row_id)
        .filter(artifact_documents::owner.eq(owner))
        .select(artifact_documents::version)
        .get_result(conn)
        .optional()
}

#[derive(QueryableByName)]
struct DocumentRow {
    #[diesel(sql_type = BigInt)]
    row_id: i64,
    #[diesel(sql_type = Text)]
    artifact_id: String,
    #[diesel(sql_type = BigInt)]
    created_at: i64,
    #[diesel(sql_type = Nullable<Text>)]
    path: Option<String>,
    #[diesel(sql_type = BigInt)]
    version: i64,
    #[diesel(sql_type = BigInt)]
    at: i64,
    #[diesel(sql_type = BigInt)]
    title_given: i64,
    #[diesel(sql_type = Text, deserialize_as = LossyText)]
    title: String,
    #[diesel(sql_type = Text, deserialize_as = LossyText)]
    metadata: String,
    #[diesel(sql_type = Text, deserialize_as = LossyText)]
    content: String,
    #[diesel(sql_type = Nullable<Binary>)]
    seal: Option<Vec<u8>>,
}

/// The documents with these ids. Those that changed after the revision `as_of` are left out.
pub(super) fn read(
    conn: &mut SqliteConnection,
    owner: &Owner,
    ids: &[i64],
    as_of: Option<i64>,
) -> Result<Vec<ArtifactDocument>, StoreError> {
    let rows: Vec<i64> = ids.iter().filter_map(|id| owner.row_id(*id)).collect();
    let mut select = Fragment::new(
        "SELECT d.row_id, d.artifact_id, d.created_at, a.path, v.version, v.at, v.title_given, v.title, \
             v.metadata, v.content, v.seal \
         FROM artifact_documents AS d NOT INDEXED \
         JOIN artifacts AS a ON a.owner = d.owner AND a.artifact_id = d.artifact_id \
         JOIN artifact_versions AS v \
             ON v.owner = a.owner AND v.artifact_id = a.artifact_id AND v.version = a.version \
         WHERE d.row_id IN (SELECT value FROM json_each(",
    );
    select
        .bind(Bind::Text(json_list(&rows)))
        .push(")) AND d.owner = ")
        .bind(Bind::Int(owner.owner));
    if let Some(revision) = as_of {
        select.push(" AND NOT EXISTS (SELECT 1 FROM changes AS c WHERE c.owner = ");
        select
            .bind(Bind::Int(owner.owner))
            .push(" AND c.revision > ")
            .bind(Bind::Int(revision))
            .push(" AND c.entity = 'artifact' AND c.entity_id = d.artifact_id)");
    }
    let found: Vec<DocumentRow> = sql::query(conn, &select).map_err(store_error)?;
    found.into_iter().map(document).collect()
}

fn document(row: DocumentRow) -> Result<ArtifactDocument, StoreError> {
    let id = ArtifactId::parse(&row.artifact_id).map_err(|_| unreadable("artifact id", None))?;
    let version = ReadVersion {
        id,
        created_at: row.created_at,
        path: row.path,
        version: row.version,
        at: row.at,
        title_given: row.title_given != 0,
        title: row.title,
        metadata: row.metadata,
        content: row.content,
        seal: row.seal,
    };
    Ok(version.into_document(row.row_id))
}

/// Indexes the artifacts that an older version of the service stored. Indexes the words of all artifacts again if the
/// language or the analyzer has changed. Called when the database is opened, before the first search, and at the end of
/// a migration.
///
/// # Errors
/// Database errors.
pub(crate) fn complete(conn: &mut SqliteConnection, language: Language) -> QueryResult<()> {
    let wanted = fts::made_with(language);
    let made_with: Option<String> = meta::table
        .find(MADE_WITH)
        .select(meta::value)
        .first(conn)
        .optional()?;
    if made_with.as_ref() != Some(&wanted) {
        // Owners without artifacts too: the table that their deleted artifacts left has the old language.
        for owner in owners::table.select(owners::owner).load::<i64>(conn)? {
            rebuild_words(conn, owner, language)?;
        }
        diesel::replace_into(meta::table)
            .values((meta::key.eq(MADE_WITH), meta::value.eq(&wanted)))
            .execute(conn)?;
    }
    let (mut indexed, mut after) = (0, (i64::MIN, i64::MIN, String::new()));
    loop {
        let done = conn.immediate_transaction(|conn| index_some(conn, language, &after))?;
        let Some(last) = done.last() else { break };
        after = (last.owner, last.created_at, last.artifact_id.clone());
        indexed += done.len();
    }
    if indexed > 0 {
        tracing::info!(artifacts = indexed, "Artifacts were indexed for search");
    }
    Ok(())
}

#[derive(QueryableByName)]
struct ArtifactText {
    #[diesel(sql_type = BigInt)]
    owner: i64,
    #[diesel(sql_type = BigInt)]
    row_id: i64,
    #[diesel(sql_type = Text)]
    artifact_id: String,
    #[diesel(sql_type = BigInt)]
    created_at: i64,
    #[diesel(sql_type = BigInt)]
    version: i64,
    #[diesel(sql_type = Text, deserialize_as = LossyText)]
    title: String,
    #[diesel(sql_type = Text, deserialize_as = LossyText)]
    metadata: String,
    #[diesel(sql_type = Text, deserialize_as = LossyText)]
    content: String,
}

/// Indexes and returns the next artifacts without a document, in the order of owner, time and id. It begins after the
/// given position. From the beginning, each call would check all indexed artifacts again.
fn index_some(
    conn: &mut SqliteConnection,
    language: Language,
    (owner, created_at, artifact_id): &(i64, i64, String),
) -> QueryResult<Vec<ArtifactText>> {
    let mut select = Fragment::new(
        "SELECT a.owner, 0 AS row_id, a.artifact_id, a.created_at, v.version, v.title, v.metadata, v.content \
         FROM artifacts AS a \
         JOIN artifact_versions AS v \
             ON v.owner = a.owner AND v.artifact_id = a.artifact_id AND v.version = a.version \
         WHERE NOT EXISTS (\
             SELECT 1 FROM artifact_documents AS d WHERE d.owner = a.owner AND d.artifact_id = a.artifact_id\
         ) AND (a.owner, a.created_at, a.artifact_id) > (",
    );
    select
        .bind(Bind::Int(*owner))
        .push(", ")
        .bind(Bind::Int(*created_at))
        .push(", ")
        .bind(Bind::Text(artifact_id.clone()))
        .push(") ORDER BY a.owner, a.created_at, a.artifact_id LIMIT ")
        .bind(Bind::Int(AT_ONCE));
    let found: Vec<ArtifactText> = sql::query(conn, &select)?;
    for found in &found {
        let owner = found.owner;
        let row = Row {
            row_id: new_row_id(conn, owner)?,
            owner,
            artifact_id: found.artifact_id.clone(),
            version: found.version,
            created_at: found.created_at,
            metadata: found.metadata.clone(),
            metadata_folded: folded(&found.metadata),
        };
        fts::create_table(conn, Collection::artifacts(owner), language)?;
        fts::insert_artifact(
            conn,
            owner,
            row.row_id,
            &words(&found.title, &found.content),
        )?;
        diesel::insert_into(artifact_documents::table)
            .values(row)
            .execute(conn)?;
    }
    Ok(found)
}

/// Recreates the full-text table of an owner's artifacts. Drops it if no artifact is indexed.
fn rebuild_words(conn: &mut SqliteConnection, owner: i64, language: Language) -> QueryResult<()> {
    let collection = Collection::artifacts(owner);
    conn.immediate_transaction(|conn| {
        conn.batch_execute(&format!("DROP TABLE IF EXISTS {}", collection.fts_table()))?;
        match has_any(conn, owner)? {
            true => fts::create_table(conn, collection, language),
            false => Ok(()),
        }
    })?;
    let mut last = -((owner + 1) << ID_BITS);
    loop {
        let select = texts_after(owner, last);
        let found: Vec<ArtifactText> = sql::query(conn, &select)?;
        let Some(end) = found.last() else {
            return Ok(());
        };
        last = end.row_id;
        conn.immediate_transaction(|conn| {
            found.iter().try_for_each(|found| {
                let words = words(&found.title, &found.content);
                fts::insert_artifact(conn, owner, found.row_id, &words)
            })
        })?;
    }
}

/// The texts of the owner's next documents after this row.
fn texts_after(owner: i64, last: i64) -> Fragment {
    // CROSS JOIN: the documents come first. Otherwise SQLite reads and sorts all versions of the owner's artifacts.
    let mut select = Fragment::new(
        "SELECT d.owner, d.row_id, d.artifact_id, d.created_at, v.version, v.title, v.metadata, v.content \
         FROM artifact_documents AS d NOT INDEXED \
         CROSS JOIN artifacts AS a ON a.owner = d.owner AND a.artifact_id = d.artifact_id \
         CROSS JOIN artifact_versions AS v \
             ON v.owner = a.owner AND v.artifact_id = a.artifact_id AND v.version = a.version \
         WHERE d.row_id > ",
    );
    select
        .bind(Bind::Int(last))
        .push(" AND d.row_id < ")
        .bind(Bind::Int(-(owner << ID_BITS)));
    select
        .push(" ORDER BY d.row_id LIMIT ")
        .bind(Bind::Int(AT_ONCE));
    select
}

#[derive(Insertable)]
#[diesel(table_name = artifact_documents)]
struct Row {
    row_id: i64,
    owner: i64,
    artifact_id: String,
    version: i64,
    created_at: i64,
    metadata: String,
    metadata_folded: String,
}

/// The row id of the owner's next document: -(owner << `ID_BITS` | number). Filters are evaluated as bitmaps over the
/// numbers, so the numbers must have no large gaps. After a restart, the highest number is used again if its document
/// was deleted.
fn new_row_id(conn: &mut SqliteConnection, owner: i64) -> QueryResult<i64> {
    let before = -(owner << ID_BITS);
    let last: Option<i64> = artifact_documents::table
        .filter(artifact_documents::row_id.gt(before - (1 << ID_BITS)))
        .filter(artifact_documents::row_id.lt(before))
        .select(diesel::dsl::min(artifact_documents::row_id))
        .get_result(conn)?;
    Ok(last.unwrap_or(before) - 1)
}

/// The row id of an artifact's document.
fn find(conn: &mut SqliteConnection, owner: i64, id: &ArtifactId) -> QueryResult<Option<i64>> {
    artifact_documents::table
        .filter(artifact_documents::owner.eq(owner))
        .filter(artifact_documents::artifact_id.eq(id.to_string()))
        .select(artifact_documents::row_id)
        .get_result(conn)
        .optional()
}

fn add_words(transaction: &mut Transaction<'_>, row_id: i64, version: &NewVersion) {
    transaction.full_text(FullTextChange::InsertArtifact {
        owner: transaction.owner.owner,
        row_id,
        text: words(&version.state.title, &version.state.content),
    });
}

fn words(title: &str, content: &str) -> Indexable {
    Indexable::plain(&document_text(title, content))
}

/// The metadata with its strings lower-cased. Unreadable metadata becomes `{}`.
fn folded(metadata: &str) -> String {
    let object: JsonObject = serde_json::from_str(metadata).unwrap_or_default();
    Metadata::from_stored(object).to_folded_json()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use context_store::Store as _;

    use super::*;
    use crate::config::Config;
    use crate::connection;
    use crate::store::SqliteStore;

    #[tokio::test]
    async fn documents_are_indexed_again_in_their_order_without_a_sort() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("store.db");
        let store = SqliteStore::open(Config::new(&path)).unwrap();
        let mut conn = connection::reader(&path, Duration::ZERO).unwrap();
        let plan = texts_after(1, 0).explain(&mut conn).unwrap();
        assert!(
            plan[0].starts_with("SEARCH d USING INTEGER PRIMARY KEY"),
            "{plan:?}"
        );
        assert!(!plan.iter().any(|step| step.contains("B-TREE")), "{plan:?}");
        drop(conn);
        store.close().await;
    }
}
