//! Reading artifacts, their lists and their versions.

use context_model::{ArtifactId, ArtifactPath, Error, Filter, ObjectText, Reason, Timestamp, fold};
use context_store::rules::artifact::ReadVersion;
use context_store::rules::path::{self as rules, Placed};
use context_store::seal::{self, StoredVersionContent};
use context_store::{
    ArtifactHistory, ArtifactPage, ArtifactSelection, ArtifactsPage, ListedArtifact, ListedVersion,
    PageStart, StoreError, unreadable,
};
use diesel::dsl::not;
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Binary, Nullable, Text};

use crate::columns::LossyText;
use crate::failure::store_error;
use crate::filter;
use crate::owners::Owner;
use crate::schema::artifacts;
use crate::sql::{self, Bind, Fragment};

/// A version with the creation time of its artifact.
#[derive(Debug, QueryableByName)]
struct VersionRow {
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

impl VersionRow {
    fn of(self, id: ArtifactId) -> ReadVersion {
        let Self {
            created_at,
            path,
            version,
            at,
            title_given,
            title,
            metadata,
            content,
            seal,
        } = self;
        ReadVersion {
            id,
            created_at,
            path,
            version,
            at,
            title_given: title_given != 0,
            title,
            metadata,
            content,
            seal,
        }
    }
}

/// The version with this number, or the current one.
///
/// # Errors
/// `STORAGE_CORRUPT` when the version does not match its checksum.
pub(crate) fn version(
    conn: &mut SqliteConnection,
    owner: i64,
    id: &ArtifactId,
    number: Option<i64>,
) -> Result<Option<ReadVersion>, StoreError> {
    let found = unchecked_version(conn, owner, id, number).map_err(store_error)?;
    found.map(ReadVersion::checked).transpose()
}

/// Like [`version`], without comparing the checksum.
pub(crate) fn unchecked_version(
    conn: &mut SqliteConnection,
    owner: i64,
    id: &ArtifactId,
    number: Option<i64>,
) -> QueryResult<Option<ReadVersion>> {
    let mut select = Fragment::new(
        "SELECT a.created_at, a.path, v.version, v.at, v.title_given, v.title, v.metadata, v.content, v.seal \
         FROM artifacts a \
         JOIN artifact_versions v ON v.owner = a.owner AND v.artifact_id = a.artifact_id AND v.version = ",
    );
    match number {
        Some(number) => select.bind(Bind::Int(number)),
        None => select.push("a.version"),
    };
    select
        .push(" WHERE a.owner = ")
        .bind(Bind::Int(owner))
        .push(" AND a.artifact_id = ")
        .bind(Bind::Text(id.to_string()));
    let found: Option<VersionRow> = sql::query(conn, &select)?.pop();
    Ok(found.map(|row| row.of(*id)))
}

#[derive(QueryableByName)]
struct CurrentVersion {
    #[diesel(sql_type = BigInt)]
    version: i64,
}

/// The number of the artifact's current version.
pub(crate) fn current_version(
    conn: &mut SqliteConnection,
    owner: i64,
    id: &ArtifactId,
) -> QueryResult<Option<i64>> {
    let mut select = Fragment::new("SELECT version FROM artifacts WHERE owner = ");
    select
        .bind(Bind::Int(owner))
        .push(" AND artifact_id = ")
        .bind(Bind::Text(id.to_string()));
    Ok(sql::query::<CurrentVersion>(conn, &select)?
        .pop()
        .map(|row| row.version))
}

/// The artifact with this path.
pub(crate) fn at_path(
    conn: &mut SqliteConnection,
    owner: i64,
    path: &str,
) -> Result<Option<ArtifactId>, StoreError> {
    let found: Option<String> = artifacts::table
        .filter(artifacts::owner.eq(owner))
        .filter(artifacts::path.eq(path))
        .select(artifacts::artifact_id)
        .get_result(conn)
        .optional()
        .map_err(store_error)?;
    let id = |id: String| ArtifactId::parse(&id).map_err(|_| unreadable("artifact id", None));
    found.map(id).transpose()
}

/// The artifacts at and below this path, at most one more than a write may reach.
pub(crate) fn placed(
    conn: &mut SqliteConnection,
    owner: i64,
    path: &ArtifactPath,
) -> Result<Vec<Placed>, StoreError> {
    let (first, end) = rules::below(path);
    // `a.and(b)` is ambiguous: diesel has it for network addresses, too.
    let below = BoolExpressionMethods::and(artifacts::path.ge(first), artifacts::path.lt(end));
    let rows: Vec<(String, Option<String>, i64)> = artifacts::table
        .filter(artifacts::owner.eq(owner))
        .filter(artifacts::path.eq(path.as_str()).or(below))
        .select((artifacts::artifact_id, artifacts::path, artifacts::version))
        .order(artifacts::path)
        .limit(rules::MAX_AT_PATH as i64 + 1)
        .load(conn)
        .map_err(store_error)?;
    rows.into_iter()
        .map(|(id, path, version)| rules::placed(&id, path, version))
        .collect()
}

/// The path of an artifact that a move from `from` to `to` does not reach, and that is at `to`, below it or above it.
pub(crate) fn in_the_way(
    conn: &mut SqliteConnection,
    owner: i64,
    from: &ArtifactPath,
    to: &ArtifactPath,
) -> QueryResult<Option<String>> {
    let (first, end) = rules::below(from);
    let moved = BoolExpressionMethods::and(artifacts::path.ge(first), artifacts::path.lt(end));
    let (first, end) = rules::below(to);
    let below = BoolExpressionMethods::and(artifacts::path.ge(first), artifacts::path.lt(end));
    let found: Option<Option<String>> = artifacts::table
        .filter(artifacts::owner.eq(owner))
        .filter(artifacts::path.eq_any(rules::at_and_above(to)).or(below))
        .filter(not(artifacts::path.eq(from.as_str()).or(moved)))
        .select(artifacts::path)
        .order(artifacts::path)
        .first(conn)
        .optional()?;
    Ok(found.flatten())
}

#[derive(QueryableByName)]
struct HistoryRow {
    #[diesel(sql_type = BigInt)]
    version: i64,
    #[diesel(sql_type = Text, deserialize_as = LossyText)]
    title: String,
    #[diesel(sql_type = BigInt)]
    at: i64,
    #[diesel(sql_type = Text)]
    changes: String,
    #[diesel(sql_type = Nullable<Binary>)]
    seal: Option<Vec<u8>>,
}

/// The newest versions, without the current one.
pub(crate) fn history(
    conn: &mut SqliteConnection,
    owner: i64,
    id: &ArtifactId,
    limit: u32,
) -> Result<Option<ArtifactHistory>, StoreError> {
    let Some(current_version) = current_version(conn, owner, id).map_err(store_error)? else {
        return Ok(None);
    };
    let mut select = Fragment::new(
        "SELECT version, title, at, changes, seal FROM artifact_versions WHERE owner = ",
    );
    select
        .bind(Bind::Int(owner))
        .push(" AND artifact_id = ")
        .bind(Bind::Text(id.to_string()));
    select
        .push(" AND version < ")
        .bind(Bind::Int(current_version));
    select
        .push(" ORDER BY version DESC LIMIT ")
        .bind(Bind::Int(limit.into()));
    let rows: Vec<HistoryRow> = sql::query(conn, &select).map_err(store_error)?;
    let earlier = rows.into_iter().map(
        |HistoryRow {
             version,
             title,
             at,
             changes,
             seal,
         }| {
            let read = StoredVersionContent {
                id: &id.to_string(),
                version,
                title: &title,
                metadata: None,
                content: None,
            };
            let damaged = !seal::artifact_is_sound(&read, seal.as_deref());
            let changes = serde_json::from_str(&changes)
                .map_err(|e| unreadable("list of changes", Some(e)))?;
            Ok(ListedVersion {
                version,
                title,
                at: Timestamp(at),
                changes,
                damaged,
            })
        },
    );
    Ok(Some(ArtifactHistory {
        current_version,
        earlier: earlier.collect::<Result<_, StoreError>>()?,
    }))
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
    #[diesel(sql_type = Text, deserialize_as = LossyText)]
    title: String,
    #[diesel(sql_type = Text, deserialize_as = LossyText)]
    metadata: String,
    #[diesel(sql_type = Text, deserialize_as = LossyText)]
    preview: String,
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

/// A page of the selected artifacts, newest first.
pub(crate) fn list(
    conn: &mut SqliteConnection,
    owner: &Owner,
    selection: &ArtifactSelection,
    page: ArtifactPage,
) -> Result<ArtifactsPage, StoreError> {
    let select = list_statement(owner.owner, selection, page);
    let rows: Vec<ListRow> = sql::query(conn, &select).map_err(store_error)?;
    let bytes: usize = rows.iter().map(|row| row.metadata.len()).sum();
    if rows.len() > 1 && bytes as u64 > page.max_bytes {
        let sentence = "the metadata of these artifacts is too large for one reply; ask for fewer with a smaller `limit`";
        return Err(Error::new(Reason::ResultTooLarge, sentence).into());
    }
    let artifacts = rows.into_iter().map(
        |ListRow {
             artifact_id,
             path,
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
            let content =
                seal::is_whole(&preview, Some(page.preview_chars)).then_some(preview.as_str());
            let read = StoredVersionContent {
                id: &artifact_id,
                version,
                title: &title,
                metadata: Some(&metadata),
                content,
            };
            let object = ObjectText::from_slice(metadata.as_bytes());
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
    let mut count = Fragment::new("SELECT count(*) AS total FROM artifacts AS a WHERE a.owner = ");
    count
        .bind(Bind::Int(owner.owner))
        .append(satisfying(owner.owner, selection));
    let total = sql::query::<Count>(conn, &count)
        .map_err(store_error)?
        .pop()
        .map_or(0, |row| row.total);
    Ok(ArtifactsPage {
        artifacts,
        total,
        revision: owner.revision,
    })
}

/// The page is selected in the small table `artifacts` first, so that the versions of skipped artifacts are not read.
fn list_statement(owner: i64, selection: &ArtifactSelection, page: ArtifactPage) -> Fragment {
    let ArtifactPage {
        limit,
        start,
        preview_chars,
        max_bytes: _,
    } = page;
    let mut select = Fragment::new(
        "SELECT p.artifact_id, p.path, p.created_at, v.at, v.title, v.metadata, substr(v.content, 1, ",
    );
    select.bind(Bind::Int(preview_chars.into()));
    select.push(
        ") AS preview, v.version, v.seal FROM (\
         SELECT a.owner, a.artifact_id, a.path, a.created_at, a.version FROM artifacts a WHERE a.owner = ",
    );
    select.bind(Bind::Int(owner));
    if let PageStart::After { created_at, id } = start {
        select
            .push(" AND (a.created_at, a.artifact_id) < (")
            .bind(Bind::Int(created_at.micros()))
            .push(", ");
        select.bind(Bind::Text(id.to_string())).push(")");
    }
    select.append(satisfying(owner, selection));
    if let Some(query) = &selection.substring {
        let folded = fold(query);
        select.push(
            " AND EXISTS (SELECT 1 FROM artifact_texts t \
             WHERE t.owner = a.owner AND t.artifact_id = a.artifact_id AND (instr(t.title, ",
        );
        select
            .bind(Bind::Text(folded.clone()))
            .push(") > 0 OR instr(t.content, ")
            .bind(Bind::Text(folded))
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
        ") p JOIN artifact_versions v \
             ON v.owner = p.owner AND v.artifact_id = p.artifact_id AND v.version = p.version \
         ORDER BY p.created_at DESC, p.artifact_id DESC",
    );
    select
}

/// The condition on rows `a` of `artifacts` that their path and metadata satisfy the selection, with a leading `AND`.
/// Empty when the selection has neither.
fn satisfying(owner: i64, selection: &ArtifactSelection) -> Fragment {
    let mut condition = Fragment::default();
    if let Some(prefix) = &selection.path_prefix {
        condition
            .push(" AND ")
            .append(filter::begins_with("a.path", prefix));
    }
    if !selection.conditions.is_empty() {
        let filter = Filter {
            conditions: selection.conditions.clone(),
            ..Filter::default()
        };
        condition
            .push(
                " AND EXISTS (SELECT 1 FROM artifact_documents AS entries \
                 WHERE entries.artifact_id = a.artifact_id AND ",
            )
            .append(filter::compile(&filter, owner))
            .push(")");
    }
    condition
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_walks_the_index_and_sorts_nothing_large() {
        let mut conn = SqliteConnection::establish(":memory:").unwrap();
        let schema = concat!(
            include_str!("../../../../migrations/sqlite/2026-11-21-000002_artifacts/up.sql"),
            "ALTER TABLE artifact_versions ADD COLUMN seal BLOB; ALTER TABLE artifacts ADD COLUMN path TEXT;"
        );
        diesel::connection::SimpleConnection::batch_execute(&mut conn, schema).unwrap();
        let id = ArtifactId::parse("123e4567-e89b-12d3-a456-426614174000").unwrap();
        for start in [
            PageStart::Offset(5),
            PageStart::After {
                created_at: Timestamp(1),
                id,
            },
        ] {
            let page = ArtifactPage {
                limit: 10,
                start,
                preview_chars: 201,
                max_bytes: 1,
            };
            let plan = list_statement(1, &ArtifactSelection::default(), page)
                .explain(&mut conn)
                .unwrap()
                .join("\n");
            assert!(
                plan.contains("USING COVERING INDEX artifacts_by_time")
                    || plan.contains("USING INDEX artifacts_by_time"),
                "{plan}"
            );
            assert!(
                plan.contains("USING INDEX artifact_versions_by_number"),
                "{plan}"
            );
        }
    }
}
