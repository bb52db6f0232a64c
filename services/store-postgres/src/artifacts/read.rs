//! Reading artifacts, their lists and their versions.

use std::time::Duration;

use context_model::{ArtifactId, ArtifactPath, Error, Filter, ObjectText, Reason, Timestamp, fold};
use context_store::rules::artifact::ReadVersion;
use context_store::rules::path::{self as rules, Placed};
use context_store::seal::{self, StoredVersionContent};
use context_store::{
    ArtifactHistory, ArtifactPage, ArtifactsPage, AtRevision, DocumentKind, ListedArtifact,
    ListedVersion, OwnerId, PageStart, StoreError, StoredArtifact, VersionLookup, unreadable,
};
use diesel::dsl::not;
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Binary, Nullable, Text};
use diesel_async::RunQueryDsl;

use crate::columns::LossyText;
use crate::filter;
use crate::pg::connection::AsyncPgConnection;
use crate::pg::failure::Failure;
use crate::pg::sql::{self, Bind, Fragment, fragment};
use crate::read::{Reading, begin, commit, revision};
use crate::schema::{artifact_versions, artifacts};

/// A version with its artifact's creation time.
#[derive(Debug, Queryable)]
struct VersionRow {
    created_at: i64,
    path: Option<String>,
    version: i64,
    at: i64,
    title_given: bool,
    title: LossyText,
    metadata: LossyText,
    content: LossyText,
    seal: Option<Vec<u8>>,
}

impl VersionRow {
    fn into_version(self, id: ArtifactId) -> ReadVersion {
        let Self {
            created_at,
            path,
            version,
            at,
            title_given,
            title: LossyText(title),
            metadata: LossyText(metadata),
            content: LossyText(content),
            seal,
        } = self;
        ReadVersion {
            id,
            created_at,
            path,
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
/// `STORAGE_CORRUPT` when it does not match its checksum.
pub(crate) async fn version(
    conn: &mut AsyncPgConnection,
    owner: &OwnerId,
    id: &ArtifactId,
    number: Option<i64>,
) -> Result<Option<ReadVersion>, Failure> {
    let found = unchecked_version(conn, owner, id, number).await?;
    Ok(found.map(ReadVersion::checked).transpose()?)
}

/// Like [`version`], but without verifying the checksum.
pub(crate) async fn unchecked_version(
    conn: &mut AsyncPgConnection,
    owner: &OwnerId,
    id: &ArtifactId,
    number: Option<i64>,
) -> Result<Option<ReadVersion>, Failure> {
    let columns = (
        artifacts::created_at,
        artifacts::path,
        artifact_versions::version,
        artifact_versions::at,
        artifact_versions::title_given,
        artifact_versions::title,
        artifact_versions::metadata,
        artifact_versions::content,
        artifact_versions::seal,
    );
    let of_artifact = artifact_versions::owner_id
        .eq(artifacts::owner_id)
        .and(artifact_versions::artifact_id.eq(artifacts::artifact_id));
    let versions = artifacts::table
        .find((owner.as_str(), id.to_string()))
        .inner_join(artifact_versions::table.on(of_artifact))
        .select(columns);
    let found: Option<VersionRow> = match number {
        Some(number) => {
            let version = artifact_versions::version.eq(number);
            versions.filter(version).get_result(conn).await
        }
        None => {
            let current = artifact_versions::version.eq(artifacts::version);
            versions.filter(current).get_result(conn).await
        }
    }
    .optional()?;
    Ok(found.map(|row| row.into_version(*id)))
}

/// The number of the artifact's current version.
pub(crate) async fn current_version(
    conn: &mut AsyncPgConnection,
    owner: &OwnerId,
    id: &ArtifactId,
) -> Result<Option<i64>, Failure> {
    Ok(artifacts::table
        .find((owner.as_str(), id.to_string()))
        .select(artifacts::version)
        .get_result(conn)
        .await
        .optional()?)
}

define_sql_function! {
    /// A hash of the text, another one for each seed.
    fn hashtextextended(text: Nullable<Text>, seed: BigInt) -> Nullable<BigInt>;
}

/// The artifact with this path.
pub(crate) async fn at_path(
    conn: &mut AsyncPgConnection,
    owner: &OwnerId,
    path: &str,
) -> Result<Option<ArtifactId>, Failure> {
    let found: Option<String> = artifacts::table
        .filter(artifacts::owner_id.eq(owner.as_str()))
        // The index on paths consists of the owner and these two expressions.
        .filter(hashtextextended(artifacts::path, 0_i64).eq(hashtextextended(path, 0_i64)))
        .filter(hashtextextended(artifacts::path, 1_i64).eq(hashtextextended(path, 1_i64)))
        .filter(artifacts::path.eq(path))
        .select(artifacts::artifact_id)
        .get_result(conn)
        .await
        .optional()?;
    let id = |id: String| ArtifactId::parse(&id).map_err(|_| unreadable("artifact id", None));
    Ok(found.map(id).transpose()?)
}

/// Locks the artifacts at and below this path and returns them: at most [`rules::MAX_AT_PATH`] + 1, so that the
/// caller notices if there are too many.
pub(crate) async fn lock_placed(
    conn: &mut AsyncPgConnection,
    owner: &OwnerId,
    path: &ArtifactPath,
) -> Result<Vec<Placed>, Failure> {
    let (first, end) = rules::below(path);
    // `a.and(b)` is ambiguous: diesel has it for network addresses, too.
    let below = BoolExpressionMethods::and(artifacts::path.ge(first), artifacts::path.lt(end));
    let rows: Vec<(String, Option<String>, i64)> = artifacts::table
        .filter(artifacts::owner_id.eq(owner.as_str()))
        .filter(artifacts::path.eq(path.as_str()).or(below))
        .select((artifacts::artifact_id, artifacts::path, artifacts::version))
        // Every write locks artifacts in this order, so that writes cannot deadlock.
        .order(artifacts::artifact_id)
        .limit(rules::MAX_AT_PATH as i64 + 1)
        .for_update()
        .load(conn)
        .await?;
    let placed = rows
        .into_iter()
        .map(|(id, path, version)| rules::placed(&id, path, version));
    Ok(placed.collect::<Result<_, _>>()?)
}

/// The path of an artifact that a move from `from` to `to` does not reach, and that is at `to`, below it or above it.
pub(crate) async fn in_the_way(
    conn: &mut AsyncPgConnection,
    owner: &OwnerId,
    from: &ArtifactPath,
    to: &ArtifactPath,
) -> Result<Option<String>, Failure> {
    let (first, end) = rules::below(from);
    let moved = BoolExpressionMethods::and(artifacts::path.ge(first), artifacts::path.lt(end));
    let (first, end) = rules::below(to);
    let below = BoolExpressionMethods::and(artifacts::path.ge(first), artifacts::path.lt(end));
    let found: Option<Option<String>> = artifacts::table
        .filter(artifacts::owner_id.eq(owner.as_str()))
        .filter(artifacts::path.eq_any(rules::at_and_above(to)).or(below))
        .filter(not(artifacts::path.eq(from.as_str()).or(moved)))
        .select(artifacts::path)
        .order(artifacts::path)
        .first(conn)
        .await
        .optional()?;
    Ok(found.flatten())
}

/// Finds the artifact with a path. `None` when no artifact has it.
pub(crate) struct FindByPath {
    pub path: ArtifactPath,
    pub statement_timeout: Duration,
}

impl Reading for FindByPath {
    type Outcome = AtRevision<Option<ArtifactId>>;

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
        let value = at_path(conn, owner, self.path.as_str()).await?;
        commit(conn).await?;
        Ok(Some((revision, AtRevision { value, revision })))
    }
}

/// Reads an artifact at `version`, or at its current version. `None` when the artifact has no such version.
pub(crate) struct GetArtifact {
    pub id: ArtifactId,
    pub version: Option<i64>,
    pub statement_timeout: Duration,
}

impl Reading for GetArtifact {
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

/// Lists the newest versions before the current one.
pub(crate) struct History {
    pub id: ArtifactId,
    pub limit: u32,
    pub statement_timeout: Duration,
}

/// Version, title, time, changes and checksum.
type HistoryRow = (i64, LossyText, i64, Vec<String>, Option<Vec<u8>>);

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
                let id = self.id.to_string();
                let rows: Vec<HistoryRow> = artifact_versions::table
                    .filter(artifact_versions::owner_id.eq(owner.as_str()))
                    .filter(artifact_versions::artifact_id.eq(&id))
                    .filter(artifact_versions::version.lt(current_version))
                    .order(artifact_versions::version.desc())
                    .limit(self.limit.into())
                    .select((
                        artifact_versions::version,
                        artifact_versions::title,
                        artifact_versions::at,
                        artifact_versions::changes,
                        artifact_versions::seal,
                    ))
                    .load(conn)
                    .await?;
                let earlier =
                    rows.into_iter()
                        .map(|(version, LossyText(title), at, changes, seal)| {
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
                        });
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

/// Reads versions by number. `None` is the current one.
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

/// A page of artifacts, newest first.
pub(crate) struct List {
    /// Only artifacts whose metadata satisfies these conditions. The other parts of the filter are empty.
    pub filter: Filter,
    /// Only artifacts whose path begins with this text.
    pub path_prefix: Option<String>,
    /// Only artifacts whose title or content contains this text.
    pub substring: Option<String>,
    pub page: ArtifactPage,
    pub statement_timeout: Duration,
}

#[derive(QueryableByName)]
struct ListRow {
    #[diesel(sql_type = Text)]
    artifact_id: String,
    #[diesel(sql_type = Nullable<Text>)]
    path: Option<String>,
    #[diesel(sql_type = BigInt)]
    created_at: i64,
    #[diesel(sql_type = BigInt)]
    at: i64,
    #[diesel(sql_type = Text)]
    title: LossyText,
    #[diesel(sql_type = Text)]
    metadata: LossyText,
    #[diesel(sql_type = Text)]
    preview: LossyText,
    #[diesel(sql_type = BigInt)]
    version: i64,
    #[diesel(sql_type = Nullable<Binary>)]
    seal: Option<Vec<u8>>,
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
        let total = self.total(conn, owner).await?;
        commit(conn).await?;
        let bytes: usize = rows.iter().map(|row| row.metadata.0.len()).sum();
        if rows.len() > 1 && bytes as u64 > self.page.max_bytes {
            let sentence = "the metadata of these artifacts is too large for one reply; ask for fewer with a smaller `limit`";
            return Err(Error::new(Reason::ResultTooLarge, sentence).into());
        }
        let artifacts = rows.into_iter().map(
            |ListRow {
                 artifact_id,
                 path,
                 created_at,
                 at,
                 title: LossyText(title),
                 metadata: LossyText(json),
                 preview: LossyText(preview),
                 version,
                 seal,
             }| {
                let id =
                    ArtifactId::parse(&artifact_id).map_err(|_| unreadable("artifact id", None))?;
                let object = ObjectText::from_slice(json.as_bytes());
                let content = seal::is_whole(&preview, Some(self.page.preview_chars))
                    .then_some(preview.as_str());
                let read = StoredVersionContent {
                    id: &artifact_id,
                    version,
                    title: &title,
                    metadata: Some(&json),
                    content,
                };
                let damaged_version = (object.is_err()
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
                    path,
                    created_at,
                    updated_at,
                    damaged_version,
                })
            },
        );
        let artifacts = artifacts.collect::<Result<_, StoreError>>()?;
        Ok(Some((
            revision,
            ArtifactsPage {
                artifacts,
                total,
                revision,
            },
        )))
    }
}

impl List {
    /// The number of artifacts that have the path prefix and satisfy the filter. The substring is not applied.
    async fn total(&self, conn: &mut AsyncPgConnection, owner: &OwnerId) -> Result<i64, Failure> {
        let count = fragment!(
            "SELECT count(*) FROM context.artifacts AS a WHERE a.owner_id = ? {satisfying}",
            Bind::text(owner.as_str()),
            self.satisfying(owner),
        );
        Ok(sql::number(conn, count.cached()).await?)
    }

    /// The condition on artifacts `a` that their path begins with the prefix and their metadata satisfies the filter.
    /// Empty without either.
    fn satisfying<'v>(&'v self, owner: &'v OwnerId) -> Fragment<'v> {
        let path = match &self.path_prefix {
            None => Fragment::new(""),
            Some(prefix) => fragment!("AND {prefix}", filter::begins_with("a.path", prefix)),
        };
        if self.filter.count() == 0 {
            return path;
        }
        // METADATA_INDEXED_FIELDS makes indexes only for entries.
        fragment!(
            "{path} AND EXISTS (SELECT 1 FROM context.artifact_documents AS entries WHERE entries.artifact_id = a.artifact_id AND {filter})",
            path,
            filter::compile(DocumentKind::Artifact, &self.filter, owner.as_str(), &[]),
        )
    }

    /// The subquery selects the artifacts of the page before their versions are joined, so that no version of a skipped
    /// artifact is read.
    fn statement<'v>(&'v self, owner: &'v OwnerId) -> Fragment<'v> {
        let ArtifactPage {
            limit,
            start,
            preview_chars,
            max_bytes: _,
        } = self.page;
        let of_owner = || Bind::text(owner.as_str());
        let nothing = || Fragment::new("");
        let (after, offset) = match start {
            PageStart::Offset(offset) => (nothing(), offset),
            PageStart::After { created_at, id } => {
                let (at, id) = (Bind::Int(created_at.micros()), Bind::text(id.to_string()));
                let after = fragment!("AND (a.created_at, a.artifact_id) < (?, ?)", at, id);
                (after, 0)
            }
        };
        let satisfying = self.satisfying(owner);
        let holding = self.substring.as_deref().map_or_else(nothing, |query| {
            let folded = || Bind::text(fold(query));
            fragment!(
                "AND EXISTS (SELECT 1 FROM context.artifact_texts AS t WHERE t.owner_id = ? AND t.artifact_id = a.artifact_id \
                 AND (strpos(t.title, ?) > 0 OR strpos(t.content, ?) > 0))",
                of_owner(),
                folded(),
                folded(),
            )
        });
        // Raw SQL: diesel has no subquery in FROM.
        fragment!(
            "SELECT p.artifact_id, p.path, p.created_at, v.at, v.title, v.metadata::text AS metadata, left(v.content, ?::int) AS preview, \
             v.version, v.seal FROM (SELECT a.owner_id, a.artifact_id, a.path, a.created_at, a.version FROM context.artifacts AS a \
             WHERE a.owner_id = ? {after} {satisfying} {holding} ORDER BY a.created_at DESC, a.artifact_id DESC LIMIT ? OFFSET ?) AS p \
             JOIN context.artifact_versions AS v ON v.owner_id = p.owner_id AND v.artifact_id = p.artifact_id \
             AND v.version = p.version AND v.owner_id = ? ORDER BY p.created_at DESC, p.artifact_id DESC",
            Bind::Int(preview_chars.into()),
            of_owner(),
            after,
            satisfying,
            holding,
            Bind::Int(limit.into()),
            Bind::Int(i64::try_from(offset).unwrap_or(i64::MAX)),
            of_owner(),
        )
        .cached()
    }
}
