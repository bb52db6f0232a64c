//! The search index of artifacts: for each artifact its vectors, and a row of `artifact_documents` with its words. Both
//! are written in the transaction that writes the artifact. Vectors that are not ready by then are added later.

use std::time::Duration;

use context_model::{ArtifactId, JsonObject};
use context_store::rules::artifact::{NewVersion, ReadVersion, document_text};
use context_store::{ArtifactDocument, OwnerId, StoreError, unreadable};
use diesel::QueryableByName;
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Binary, Bool, Nullable, Text};
use diesel_async::SimpleAsyncConnection as _;

use crate::columns::LossyText;
use crate::filter::folded_json;
use crate::fts::{Document, Language, made_with, words};
use crate::pg::connection::AsyncPgConnection;
use crate::pg::dsl::PipelineDsl as _;
use crate::pg::failure::Failure;
use crate::pg::sql::{self, Bind, Fragment, fragment};
use crate::read::{Reading, begin, commit, revision};
use crate::schema::artifact_documents;
use crate::settings;
use crate::transaction::Transaction;

/// Number of artifacts indexed in one transaction when the database is opened. A content has up to 100 000 characters.
const AT_ONCE: i64 = 20;
/// Key of the setting that stores how the words of artifacts were made ([`made_with`]).
const SETTING: &str = "artifact_words";

/// Indexes a version of an artifact, whose row the transaction has created or locked.
pub(super) async fn write(
    transaction: &mut Transaction<'_>,
    version: &NewVersion,
    language: &Language,
) -> Result<(), Failure> {
    let id = version.id.document();
    insert(
        transaction.conn,
        &Indexed {
            owner: transaction.owner.as_str(),
            id,
            artifact_id: &version.id.to_string(),
            version: version.version,
            created_at: version.created_at.micros(),
            metadata: &version.state.metadata,
            text: &document_text(&version.state.title, &version.state.content),
        },
        language,
    )
    .await?;
    if let Some(vectors) = &mut transaction.vectors
        && (version.version == 1 || version.has_other_texts())
    {
        vectors.replace(id, transaction.embeddings.first());
    }
    Ok(())
}

/// Removes an artifact from the index.
pub(super) async fn remove(
    transaction: &mut Transaction<'_>,
    id: &ArtifactId,
) -> Result<(), Failure> {
    let id = id.document();
    let row = artifact_documents::table.find((transaction.owner.as_str(), id));
    diesel::delete(row).send(transaction.conn).await?;
    if let Some(vectors) = &mut transaction.vectors {
        vectors.remove([id]);
    }
    Ok(())
}

/// The content of an artifact's row in `artifact_documents`.
struct Indexed<'a> {
    owner: &'a str,
    id: i64,
    artifact_id: &'a str,
    version: i64,
    created_at: i64,
    metadata: &'a JsonObject,
    text: &'a str,
}

/// Writes the row of an artifact.
async fn insert(
    conn: &mut AsyncPgConnection,
    indexed: &Indexed<'_>,
    language: &Language,
) -> Result<(), Failure> {
    // Raw SQL for the cast to tsvector.
    const SQL: &str = concat!(
        "INSERT INTO context.artifact_documents AS d (owner_id, id, artifact_id, version, created_at, metadata_folded, words) \
         VALUES (?, ?, ?, ?, ?, ?::jsonb, ",
        words!(),
        ") ON CONFLICT (owner_id, id) DO UPDATE SET version = excluded.version, \
         metadata_folded = excluded.metadata_folded, words = excluded.words"
    );
    let Indexed {
        owner,
        id,
        artifact_id,
        version,
        created_at,
        metadata,
        text,
    } = *indexed;
    let document = Document::new(text, language);
    let mut binds = vec![
        Bind::text(owner),
        Bind::Int(id),
        Bind::text(artifact_id),
        Bind::Int(version),
        Bind::Int(created_at),
        Bind::text(folded_json(metadata)),
    ];
    binds.extend(document.binds());
    sql::send(conn, Fragment::prepared(SQL, binds)).await?;
    Ok(())
}

/// Reads documents by id.
pub(crate) struct GetDocuments {
    pub ids: Vec<i64>,
    /// Leaves out artifacts that changed after this revision.
    pub as_of: Option<i64>,
    pub statement_timeout: Duration,
}

#[derive(QueryableByName)]
struct Row {
    #[diesel(sql_type = BigInt)]
    id: i64,
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
    #[diesel(sql_type = Bool)]
    title_given: bool,
    #[diesel(sql_type = Text)]
    title: LossyText,
    #[diesel(sql_type = Text)]
    metadata: LossyText,
    #[diesel(sql_type = Text)]
    content: LossyText,
    #[diesel(sql_type = Nullable<Binary>)]
    seal: Option<Vec<u8>>,
}

impl Reading for GetDocuments {
    type Outcome = Vec<ArtifactDocument>;

    fn empty(&self) -> Self::Outcome {
        Vec::new()
    }

    async fn read(
        &self,
        conn: &mut AsyncPgConnection,
        owner: &OwnerId,
    ) -> Result<Option<(i64, Self::Outcome)>, Failure> {
        begin(conn, self.statement_timeout).await?;
        let Some(revision) = revision(conn, owner).await? else {
            return commit(conn).await.map(|()| None);
        };
        let unchanged = match self.as_of {
            None => Fragment::new(""),
            Some(as_of) => fragment!(
                "AND NOT EXISTS (SELECT 1 FROM context.changes AS c WHERE c.owner_id = d.owner_id AND c.revision > ? \
                 AND c.entity = 'artifact' AND c.entity_id = d.artifact_id)",
                Bind::Int(as_of),
            ),
        };
        // Raw SQL for the optional condition.
        let select = fragment!(
            "SELECT d.id, d.artifact_id, d.created_at, a.path, v.version, v.at, v.title_given, v.title, v.metadata::text AS metadata, \
             v.content, v.seal FROM context.artifact_documents AS d \
             JOIN context.artifacts AS a ON a.owner_id = d.owner_id AND a.artifact_id = d.artifact_id \
             JOIN context.artifact_versions AS v ON v.owner_id = a.owner_id AND v.artifact_id = a.artifact_id \
             AND v.version = a.version WHERE d.owner_id = ? AND d.id = ANY(?) {unchanged}",
            Bind::text(owner.as_str()),
            Bind::ints(self.ids.iter().copied()),
            unchanged,
        );
        let rows: Vec<Row> = sql::query(conn, select.cached()).await?;
        commit(conn).await?;
        let documents = rows
            .into_iter()
            .map(document)
            .collect::<Result<_, StoreError>>()?;
        Ok(Some((revision, documents)))
    }
}

fn document(row: Row) -> Result<ArtifactDocument, StoreError> {
    let id = ArtifactId::parse(&row.artifact_id).map_err(|_| unreadable("artifact id", None))?;
    let version = ReadVersion {
        id,
        created_at: row.created_at,
        path: row.path,
        version: row.version,
        at: row.at,
        title_given: row.title_given,
        title: row.title.0,
        metadata: row.metadata.0,
        content: row.content.0,
        seal: row.seal,
    };
    Ok(version.into_document(row.id))
}

/// Indexes the artifacts that an older version of the service stored or changed, and all of them if the words were made
/// with another language. Called when the database is opened.
pub(crate) async fn complete(
    conn: &mut AsyncPgConnection,
    language: &Language,
) -> Result<(), Failure> {
    let wanted = made_with(language);
    let is_same_language = settings::read(conn, SETTING).await?.as_ref() == Some(&wanted);
    if is_same_language && !are_missing(conn).await? {
        return Ok(());
    }
    let (mut owner, mut indexed) = (String::new(), 0);
    while let Some(next) = next_owner(conn, &owner, is_same_language).await? {
        owner = next;
        // The owner's last artifact that was rebuilt. `None` if only missing artifacts are indexed.
        let mut rebuilt = (!is_same_language).then(String::new);
        loop {
            conn.batch_execute("BEGIN").await?;
            let done = index_some(conn, &owner, rebuilt.as_deref(), language).await?;
            conn.batch_execute("COMMIT").await?;
            let Some(last) = done.last() else { break };
            indexed += done.len();
            rebuilt = rebuilt.map(|_| last.clone());
        }
    }
    settings::write(conn, SETTING, &wanted).await?;
    if indexed > 0 {
        tracing::info!(artifacts = indexed, "Artifacts were indexed for search");
    }
    Ok(())
}

/// Whether the current version of any artifact is not indexed. It only reads, because a service also opens standbys.
async fn are_missing(conn: &mut AsyncPgConnection) -> Result<bool, Failure> {
    let missing = fragment!(
        "SELECT count(*) FROM (SELECT 1 FROM context.artifacts AS a WHERE {stale} LIMIT 1) AS missing",
        Fragment::new(STALE),
    );
    Ok(sql::number(conn, missing).await? > 0)
}

/// The condition on artifacts `a` that their current version is not indexed.
const STALE: &str = "NOT EXISTS (SELECT 1 FROM context.artifact_documents AS d WHERE d.owner_id = a.owner_id \
                     AND d.artifact_id = a.artifact_id AND d.version = a.version)";

/// The next owner, by name, that has artifacts, or artifacts whose current version is not indexed.
async fn next_owner(
    conn: &mut AsyncPgConnection,
    after: &str,
    only_stale: bool,
) -> Result<Option<String>, Failure> {
    #[derive(QueryableByName)]
    struct Owner {
        #[diesel(sql_type = Text)]
        owner_id: String,
    }
    let wanted = if only_stale { STALE } else { "true" };
    // Raw SQL for the optional condition.
    let next = fragment!(
        "SELECT a.owner_id FROM context.artifacts AS a WHERE a.owner_id > ? AND {wanted} ORDER BY a.owner_id LIMIT 1",
        Bind::text(after),
        Fragment::new(wanted),
    );
    let next: Vec<Owner> = sql::query(conn, next).await?;
    Ok(next.into_iter().next().map(|Owner { owner_id }| owner_id))
}

#[derive(QueryableByName)]
struct Stale {
    #[diesel(sql_type = Text)]
    artifact_id: String,
    #[diesel(sql_type = BigInt)]
    created_at: i64,
    #[diesel(sql_type = BigInt)]
    version: i64,
    #[diesel(sql_type = Text)]
    title: LossyText,
    #[diesel(sql_type = Text)]
    metadata: LossyText,
    #[diesel(sql_type = Text)]
    content: LossyText,
    /// Whether the current version is not indexed.
    #[diesel(sql_type = Bool)]
    is_stale: bool,
}

/// Indexes some of an owner's artifacts: those after this id, or those whose current version is not indexed. Returns
/// their ids, in order.
async fn index_some(
    conn: &mut AsyncPgConnection,
    owner: &str,
    after: Option<&str>,
    language: &Language,
) -> Result<Vec<String>, Failure> {
    let wanted = match after {
        Some(id) => fragment!("a.artifact_id > ?", Bind::text(id)),
        None => Fragment::new("d.artifact_id IS NULL"),
    };
    // Raw SQL for FOR UPDATE OF one table. The owner is a value and there is no subquery, because only then does Citus
    // recognise that all rows are on one server, and lock them. The condition on `artifact_id`, which is compared in the
    // join, makes it an anti join that reads in order. With another column, all of the owner's artifacts would be sorted
    // for each batch. The statement is planned each time, because it runs only when the database is opened.
    let select = fragment!(
        "SELECT a.artifact_id, a.created_at, v.version, v.title, v.metadata::text AS metadata, v.content, d.artifact_id IS NULL AS is_stale \
         FROM context.artifacts AS a JOIN context.artifact_versions AS v ON v.owner_id = a.owner_id AND v.artifact_id = a.artifact_id \
         AND v.version = a.version LEFT JOIN context.artifact_documents AS d ON d.owner_id = a.owner_id \
         AND d.artifact_id = a.artifact_id AND d.version = a.version WHERE a.owner_id = ? AND {wanted} \
         ORDER BY a.artifact_id LIMIT ? FOR UPDATE OF a",
        Bind::text(owner),
        wanted,
        Bind::Int(AT_ONCE),
    );
    let rows: Vec<Stale> = sql::query(conn, select).await?;
    let mut done = Vec::with_capacity(rows.len());
    for row in rows {
        let metadata: JsonObject = serde_json::from_str(&row.metadata.0).unwrap_or_default();
        let id = ArtifactId::parse(&row.artifact_id)
            .map_err(|_| unreadable("artifact id", None))?
            .document();
        let indexed = Indexed {
            owner,
            id,
            artifact_id: &row.artifact_id,
            version: row.version,
            created_at: row.created_at,
            metadata: &metadata,
            text: &document_text(&row.title.0, &row.content.0),
        };
        insert(conn, &indexed, language).await?;
        if row.is_stale {
            // These vectors belong to an older text. The backfill creates new ones.
            let stale = "DELETE FROM context.chunks WHERE owner_id = ? AND id = ?";
            let binds = vec![Bind::text(owner), Bind::Int(id)];
            delete_if_any(conn, Fragment::prepared(stale, binds)).await?;
        }
        done.push(row.artifact_id);
    }
    Ok(done)
}

/// Deletes chunks, if the database has the table of vectors.
async fn delete_if_any(conn: &mut AsyncPgConnection, delete: Fragment<'_>) -> Result<(), Failure> {
    let exists =
        "SELECT count(*) FROM pg_catalog.pg_class WHERE oid = to_regclass('context.chunks')";
    if sql::number(conn, Fragment::prepared(exists, Vec::new())).await? > 0 {
        sql::execute(conn, delete).await?;
    }
    Ok(())
}
