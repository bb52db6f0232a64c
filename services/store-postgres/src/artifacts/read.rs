//! Reading artifacts, their lists and their versions.

use std::time::Duration;

use context_model::{ArtifactId, Error, Reason, Timestamp, fold};
use context_store::rules::artifact::ReadVersion;
use context_store::seal::{self, StoredVersionContent};
use context_store::{
    ArtifactHistory, ArtifactPage, ArtifactsPage, AtRevision, ListedArtifact, ListedVersion,
    OwnerId, PageStart, StoreError, StoredArtifact, VersionLookup,
};
use diesel::QueryableByName;
use diesel::sql_types::{Array, BigInt, Binary, Bool, Nullable, Text};

use crate::columns::{LossyText, MetadataColumn};
use crate::connection::AsyncPgConnection;
use crate::failure::{Failure, unreadable};
use crate::read::{Reading, begin, commit, revision};
use crate::sql::{self, Bind, Fragment};

/// A version with its artifact's time of creation.
#[derive(Debug, QueryableByName)]
struct VersionRow {
    #[diesel(sql_type = BigInt)]
    created_at: i64,
    #[diesel(sql_type = BigInt)]
    version: i64,
    #[diesel(sql_type = BigInt)]
    at: i64,
    #[diesel(sql_type = Bool)]
    title_given: bool,
    #[diesel(sql_type = Text)]
    title: String,
    #[diesel(sql_type = Text)]
    metadata: LossyText,
    #[diesel(sql_type = Text)]
    content: LossyText,
    #[diesel(sql_type = Nullable<Binary>)]
    seal: Option<Vec<u8>>,
}

impl VersionRow {
    fn of(self, id: ArtifactId) -> ReadVersion {
        let Self {
            created_at,
            version,
            at,
            title_given,
            title,
            metadata: LossyText(metadata),
            content: LossyText(content),
            seal,
        } = self;
        ReadVersion {
            id,
            created_at,
            version,
            at,
            title_given,
            title,
            metadata,
            content,
            seal,
        }
    }
}

/// A version by its number, or the current one.
///
/// # Errors
/// `STORAGE_CORRUPT` when it is not what was stored.
pub(crate) async fn version(
    conn: &mut AsyncPgConnection,
    owner: &OwnerId,
    id: &ArtifactId,
    number: Option<i64>,
) -> Result<Option<ReadVersion>, Failure> {
    let found = unchecked_version(conn, owner, id, number).await?;
    Ok(found.map(ReadVersion::checked).transpose()?)
}

/// As [`version`], damaged or not.
pub(crate) async fn unchecked_version(
    conn: &mut AsyncPgConnection,
    owner: &OwnerId,
    id: &ArtifactId,
    number: Option<i64>,
) -> Result<Option<ReadVersion>, Failure> {
    let mut select = Fragment::prepared(
        "SELECT a.created_at, v.version, v.at, v.title_given, v.title, v.metadata::text AS metadata, v.content, v.seal \
         FROM context.artifacts AS a JOIN context.artifact_versions AS v ON v.owner_id = a.owner_id \
         AND v.artifact_id = a.artifact_id AND v.version = ",
        Vec::new(),
    );
    match number {
        Some(number) => select.bind(Bind::Int(number)),
        None => select.push("a.version"),
    };
    select
        .push(" WHERE a.owner_id = ")
        .bind(Bind::text(owner.as_str()))
        .push(" AND a.artifact_id = ")
        .bind(Bind::text(id.to_string()));
    let found: Option<VersionRow> = sql::query(conn, select).await?.pop();
    Ok(found.map(|row| row.of(*id)))
}

/// The number of the artifact's current version.
pub(crate) async fn current_version(
    conn: &mut AsyncPgConnection,
    owner: &OwnerId,
    id: &ArtifactId,
) -> Result<Option<i64>, Failure> {
    #[derive(QueryableByName)]
    struct CurrentVersion {
        #[diesel(sql_type = BigInt)]
        version: i64,
    }
    let select = "SELECT version FROM context.artifacts WHERE owner_id = ? AND artifact_id = ?";
    let binds = vec![Bind::text(owner.as_str()), Bind::text(id.to_string())];
    Ok(
        sql::query::<CurrentVersion>(conn, Fragment::prepared(select, binds))
            .await?
            .pop()
            .map(|row| row.version),
    )
}

/// An artifact with its current version, or with this one.
pub(crate) struct Get {
    pub id: ArtifactId,
    pub version: Option<i64>,
    pub statement_timeout: Duration,
}

impl Reading for Get {
    type Outcome = AtRevision<Option<StoredArtifact>>;

    fn empty(&self) -> Self::Outcome {
        AtRevision {
            value: None,
            revision: 0,
        }
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
        let row = version(conn, owner, &self.id, self.version).await?;
        commit(conn).await?;
        let value = row.map(ReadVersion::into_artifact);
        Ok(Some((revision, AtRevision { value, revision })))
    }
}

/// The newest versions before the current one.
pub(crate) struct History {
    pub id: ArtifactId,
    pub limit: u32,
    pub statement_timeout: Duration,
}

#[derive(QueryableByName)]
struct HistoryRow {
    #[diesel(sql_type = BigInt)]
    version: i64,
    #[diesel(sql_type = Text)]
    title: String,
    #[diesel(sql_type = BigInt)]
    at: i64,
    #[diesel(sql_type = Array<Text>)]
    changes: Vec<String>,
    #[diesel(sql_type = Nullable<Binary>)]
    seal: Option<Vec<u8>>,
}

impl Reading for History {
    type Outcome = AtRevision<Option<ArtifactHistory>>;

    fn empty(&self) -> Self::Outcome {
        AtRevision {
            value: None,
            revision: 0,
        }
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
        let value = match current_version(conn, owner, &self.id).await? {
            None => None,
            Some(current_version) => {
                let select = "SELECT version, title, at, changes, seal FROM context.artifact_versions \
                              WHERE owner_id = ? AND artifact_id = ? AND version < ? ORDER BY version DESC LIMIT ?";
                let binds = vec![
                    Bind::text(owner.as_str()),
                    Bind::text(self.id.to_string()),
                    Bind::Int(current_version),
                    Bind::Int(self.limit.into()),
                ];
                let rows: Vec<HistoryRow> =
                    sql::query(conn, Fragment::prepared(select, binds)).await?;
                let id = self.id.to_string();
                let earlier = rows.into_iter().map(
                    |HistoryRow {
                         version,
                         title,
                         at,
                         changes,
                         seal,
                     }| {
                        let read = StoredVersionContent {
                            id: &id,
                            version,
                            title: &title,
                            metadata: None,
                            content: None,
                        };
                        let damaged = !seal::artifact_is_sound(&read, seal.as_deref());
                        ListedVersion {
                            version,
                            title,
                            at: Timestamp(at),
                            changes,
                            damaged,
                        }
                    },
                );
                Some(ArtifactHistory {
                    current_version,
                    earlier: earlier.collect(),
                })
            }
        };
        commit(conn).await?;
        Ok(Some((revision, AtRevision { value, revision })))
    }
}

/// Versions by number; `None` stands for the current one.
pub(crate) struct Versions {
    pub id: ArtifactId,
    pub numbers: Vec<Option<i64>>,
    pub statement_timeout: Duration,
}

impl Reading for Versions {
    type Outcome = AtRevision<VersionLookup>;

    fn empty(&self) -> Self::Outcome {
        AtRevision {
            value: VersionLookup::NoArtifact,
            revision: 0,
        }
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
        let value = match current_version(conn, owner, &self.id).await? {
            None => VersionLookup::NoArtifact,
            Some(current_version) => {
                let mut versions = Vec::with_capacity(self.numbers.len());
                for number in &self.numbers {
                    let row = version(conn, owner, &self.id, *number).await?;
                    versions.push(row.map(ReadVersion::into_version));
                }
                VersionLookup::Artifact {
                    current_version,
                    versions,
                }
            }
        };
        commit(conn).await?;
        Ok(Some((revision, AtRevision { value, revision })))
    }
}

/// A page of artifacts, newest first; with a query those whose title or content holds it.
pub(crate) struct List {
    pub query: Option<String>,
    pub page: ArtifactPage,
    pub statement_timeout: Duration,
}

#[derive(QueryableByName)]
struct ListRow {
    #[diesel(sql_type = Text)]
    artifact_id: String,
    #[diesel(sql_type = BigInt)]
    created_at: i64,
    #[diesel(sql_type = BigInt)]
    at: i64,
    #[diesel(sql_type = Text)]
    title: String,
    #[diesel(sql_type = Text)]
    metadata: MetadataColumn,
    #[diesel(sql_type = Text)]
    preview: LossyText,
    #[diesel(sql_type = BigInt)]
    version: i64,
    #[diesel(sql_type = Nullable<Binary>)]
    seal: Option<Vec<u8>>,
}

#[derive(QueryableByName)]
struct Count {
    #[diesel(sql_type = BigInt)]
    total: i64,
}

impl Reading for List {
    type Outcome = ArtifactsPage;

    fn empty(&self) -> ArtifactsPage {
        ArtifactsPage {
            artifacts: Vec::new(),
            total: 0,
            revision: 0,
        }
    }

    async fn read(
        &self,
        conn: &mut AsyncPgConnection,
        owner: &OwnerId,
    ) -> Result<Option<(i64, ArtifactsPage)>, Failure> {
        begin(conn, self.statement_timeout).await?;
        let Some(revision) = revision(conn, owner).await? else {
            return commit(conn).await.map(|()| None);
        };
        let rows: Vec<ListRow> = sql::query(conn, self.statement(owner)).await?;
        let count = "SELECT count(*) AS total FROM context.artifacts WHERE owner_id = ?";
        let count: Vec<Count> = sql::query(
            conn,
            Fragment::prepared(count, vec![Bind::text(owner.as_str())]),
        )
        .await?;
        commit(conn).await?;
        let bytes: usize = rows.iter().map(|row| row.metadata.json.len()).sum();
        if rows.len() > 1 && bytes as u64 > self.page.max_bytes {
            let sentence = "the metadata of these artifacts is too large for one reply; ask for fewer with a smaller `limit`";
            return Err(Error::new(Reason::ResultTooLarge, sentence).into());
        }
        let artifacts = rows.into_iter().map(
            |ListRow {
                 artifact_id,
                 created_at,
                 at,
                 title,
                 metadata,
                 preview,
                 version,
                 seal,
             }| {
                let id =
                    ArtifactId::parse(&artifact_id).map_err(|_| unreadable("artifact id", None))?;
                let (LossyText(preview), MetadataColumn { object, json }) = (preview, metadata);
                let content = seal::is_whole(&preview, Some(self.page.preview_chars))
                    .then_some(preview.as_str());
                let read = StoredVersionContent {
                    id: &artifact_id,
                    version,
                    title: &title,
                    metadata: Some(&json),
                    content,
                };
                let damaged = (object.is_none()
                    || !seal::artifact_is_sound(&read, seal.as_deref()))
                .then_some(version);
                let (metadata, created_at, updated_at) = (
                    object.unwrap_or_default(),
                    Timestamp(created_at),
                    Timestamp(at),
                );
                Ok(ListedArtifact {
                    id,
                    title,
                    preview,
                    metadata,
                    created_at,
                    updated_at,
                    damaged,
                })
            },
        );
        let artifacts = artifacts.collect::<Result<_, StoreError>>()?;
        Ok(Some((
            revision,
            ArtifactsPage {
                artifacts,
                total: count.first().map_or(0, |row| row.total),
                revision,
            },
        )))
    }
}

impl List {
    /// The rows of the page are chosen by the small table alone, so that skipping over artifacts reads none of their
    /// texts.
    fn statement<'v>(&'v self, owner: &'v OwnerId) -> Fragment<'v> {
        let ArtifactPage {
            limit,
            start,
            preview_chars,
            max_bytes: _,
        } = self.page;
        let mut select = Fragment::prepared(
            "SELECT p.artifact_id, p.created_at, v.at, v.title, v.metadata::text AS metadata, left(v.content, ",
            Vec::new(),
        );
        select.bind(Bind::Int(preview_chars.into()));
        select.push("::int) AS preview, v.version, v.seal FROM (SELECT a.owner_id, a.artifact_id, a.created_at, a.version FROM context.artifacts AS a ");
        select
            .push("WHERE a.owner_id = ")
            .bind(Bind::text(owner.as_str()));
        if let PageStart::After { created_at, id } = start {
            select
                .push(" AND (a.created_at, a.artifact_id) < (")
                .bind(Bind::Int(created_at.micros()))
                .push(", ");
            select.bind(Bind::text(id.to_string())).push(")");
        }
        if let Some(query) = &self.query {
            let folded = fold(query);
            select.push(" AND EXISTS (SELECT 1 FROM context.artifact_texts AS t WHERE t.artifact_id = a.artifact_id AND t.owner_id = ");
            select
                .bind(Bind::text(owner.as_str()))
                .push(" AND (strpos(t.title, ");
            select
                .bind(Bind::text(folded.clone()))
                .push(") > 0 OR strpos(t.content, ")
                .bind(Bind::text(folded))
                .push(") > 0))");
        }
        select
            .push(" ORDER BY a.created_at DESC, a.artifact_id DESC LIMIT ")
            .bind(Bind::Int(limit.into()));
        if let PageStart::Offset(offset) = start {
            select
                .push(" OFFSET ")
                .bind(Bind::Int(i64::try_from(offset).unwrap_or(i64::MAX)));
        }
        select.push(
            ") AS p JOIN context.artifact_versions AS v ON v.owner_id = p.owner_id AND v.artifact_id = p.artifact_id \
             AND v.version = p.version AND v.owner_id = ",
        );
        select
            .bind(Bind::text(owner.as_str()))
            .push(" ORDER BY p.created_at DESC, p.artifact_id DESC");
        select
    }
}
