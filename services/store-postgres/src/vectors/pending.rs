//! Entries and artifacts that have no vectors of a model yet. A service claims some of them for two minutes, embeds
//! their texts and adds the vectors.

use std::time::Duration;

use context_store::rules::artifact::document_text;
use context_store::{
    EmbeddingModel, LateEmbedding, Once, OwnerId, ScanCursor, Unembedded, UnembeddedPage,
};
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Bool, Nullable, Text};
use diesel_async::RunQueryDsl;

use super::ChunkChanges;
use crate::columns::LossyText;
use crate::pg::connection::AsyncPgConnection;
use crate::pg::dsl::fixed;
use crate::pg::failure::Failure;
use crate::pg::sql::{self, Bind, Fragment, fragment};
use crate::read::{Reading, begin, commit};
use crate::schema::embedding_claims as claims;
use crate::transaction::{Transaction, Writing};

/// Maximum number of entries read in one transaction.
const ENTRIES_AT_ONCE: i64 = 10_000;
/// How long a claim lasts. If embedding takes longer, another service may embed the same entries.
const CLAIM_MICROS: i64 = 120_000_000;

/// Claims entries without vectors.
pub(super) struct Claim {
    pub model: EmbeddingModel,
    /// Claims only entries after this owner and id.
    pub after: (String, i64),
    pub limit: u32,
    /// The name of the claiming service.
    pub holder: String,
}

/// The owner and the id that a cursor encodes. Without a cursor, the position before all entries.
pub(super) fn from_cursor(cursor: Option<&ScanCursor>) -> (String, i64) {
    let parts = cursor.and_then(|cursor| cursor.as_str().split_once(' '));
    parts
        .and_then(|(id, owner)| Some((owner.to_owned(), id.parse().ok()?)))
        .unwrap_or_default()
}

/// The id comes first, because it has no spaces.
fn to_cursor(owner: &str, id: i64) -> ScanCursor {
    ScanCursor::new(format!("{id} {owner}"))
}

/// An entry without vectors.
#[derive(QueryableByName)]
struct Waiting {
    #[diesel(sql_type = Text)]
    owner_id: String,
    #[diesel(sql_type = BigInt)]
    id: i64,
    #[diesel(sql_type = BigInt)]
    version: i64,
    /// The text of an entry.
    #[diesel(sql_type = Nullable<Text>)]
    text: Option<LossyText>,
    /// The id of an artifact.
    #[diesel(sql_type = Nullable<Text>)]
    artifact_id: Option<String>,
    /// Its title.
    #[diesel(sql_type = Nullable<Text>)]
    title: Option<LossyText>,
    /// Its content.
    #[diesel(sql_type = Nullable<Text>)]
    content: Option<LossyText>,
    /// False if another service claimed the entry first. There is no text then.
    #[diesel(sql_type = Bool)]
    claimed: bool,
}

/// The primary key of an entry.
#[derive(QueryableByName)]
struct EntryKey {
    #[diesel(sql_type = Text)]
    owner_id: String,
    #[diesel(sql_type = BigInt)]
    id: i64,
}

impl Writing for Claim {
    type Outcome = Once<UnembeddedPage>;

    async fn run(&self, transaction: &mut Transaction<'_>) -> Result<Self::Outcome, Failure> {
        let Some(set) = set_of(transaction.conn, &self.model).await? else {
            return Ok(Once(UnembeddedPage {
                entries: Vec::new(),
                next: None,
            }));
        };
        let through = self.end_of_range(transaction).await?;
        let limit = i64::from(self.limit.max(1));
        let rows = self
            .claim(transaction, &set, through.as_ref(), limit)
            .await?;
        let is_full = i64::try_from(rows.len()) == Ok(limit);
        let next = match rows.last() {
            Some(row) if is_full => Some(to_cursor(&row.owner_id, row.id)),
            _ => through.map(|through| to_cursor(&through.owner_id, through.id)),
        };
        let entries = rows
            .into_iter()
            .filter(|row| row.claimed)
            .map(|row| Unembedded {
                text: match (row.text, row.title, row.content) {
                    (None, Some(LossyText(title)), Some(LossyText(content))) => {
                        document_text(&title, &content)
                    }
                    (text, ..) => text.map_or_else(String::new, |LossyText(text)| text),
                },
                owner: OwnerId::new(row.owner_id),
                id: row.id,
                artifact_id: row.artifact_id,
                version: row.version,
            })
            .collect();
        Ok(Once(UnembeddedPage { entries, next }))
    }
}

impl Claim {
    /// The last entry that this transaction reads. `None` when it reads to the end.
    async fn end_of_range(
        &self,
        transaction: &mut Transaction<'_>,
    ) -> Result<Option<EntryKey>, Failure> {
        let (owner, id) = (self.after.0.as_str(), self.after.1);
        let end = "SELECT d.owner_id, d.id FROM (SELECT owner_id, id FROM context.entries WHERE (owner_id, id) > (?, ?) \
                   UNION ALL SELECT owner_id, id FROM context.artifact_documents WHERE (owner_id, id) > (?, ?)) AS d \
                   ORDER BY d.owner_id, d.id LIMIT 1 OFFSET ?";
        let binds = vec![
            Bind::text(owner),
            Bind::Int(id),
            Bind::text(owner),
            Bind::Int(id),
            Bind::Int(ENTRIES_AT_ONCE - 1),
        ];
        let end = sql::query(transaction.conn, Fragment::prepared(end, binds)).await?;
        Ok(end.into_iter().next())
    }

    /// Claims at most `limit` of the entries without vectors, up to the entry `through`. Entries with another service's
    /// claim are skipped. This service's own claims are renewed. A returned entry that is not claimed was claimed by
    /// another service between the two parts of the statement.
    ///
    /// The time is a bound value, because with Citus a statement must not read the clocks of several servers.
    async fn claim(
        &self,
        transaction: &mut Transaction<'_>,
        set: &Set,
        through: Option<&EntryKey>,
        limit: i64,
    ) -> Result<Vec<Waiting>, Failure> {
        let Set { set_id, now } = *set;
        let until = now.saturating_add(CLAIM_MICROS);
        let through = through.map_or(Fragment::new(""), |EntryKey { owner_id, id }| {
            fragment!(
                " AND (e.owner_id, e.id) <= (?, ?)",
                Bind::text(owner_id.as_str()),
                Bind::Int(*id),
            )
        });
        // Raw SQL for the CTEs and ON CONFLICT. It is planned each time, because the best plan depends on how many
        // entries after the cursor already have vectors.
        let claim = fragment!(
            "WITH waiting AS MATERIALIZED (SELECT e.owner_id, e.id, e.version FROM \
             (SELECT owner_id, id, version FROM context.entries WHERE (owner_id, id) > (?, ?) \
             UNION ALL SELECT owner_id, id, version FROM context.artifact_documents WHERE (owner_id, id) > (?, ?)) AS e \
             WHERE true{through} AND NOT EXISTS (SELECT 1 FROM context.chunks AS c \
              WHERE c.owner_id = e.owner_id AND c.id = e.id AND c.set_id = ?) \
             AND NOT EXISTS (SELECT 1 FROM context.embedding_claims AS k \
              WHERE k.owner_id = e.owner_id AND k.id = e.id AND k.set_id = ? AND k.version = e.version \
              AND k.holder <> ? AND k.until > ?) \
             ORDER BY e.owner_id, e.id LIMIT ?), \
             claimed AS (INSERT INTO context.embedding_claims AS k (owner_id, id, set_id, version, holder, until) \
             SELECT w.owner_id, w.id, ?, w.version, ?, ? FROM waiting AS w \
             ON CONFLICT (owner_id, id, set_id) DO UPDATE \
             SET version = excluded.version, holder = excluded.holder, until = excluded.until \
             WHERE k.holder = excluded.holder OR k.version <> excluded.version OR k.until <= ? \
             RETURNING k.owner_id, k.id) \
             SELECT w.owner_id, w.id, w.version, e.text, d.artifact_id, v.title, v.content, k.id IS NOT NULL AS claimed \
             FROM waiting AS w LEFT JOIN claimed AS k ON k.owner_id = w.owner_id AND k.id = w.id \
             LEFT JOIN context.entries AS e ON e.owner_id = k.owner_id AND e.id = k.id \
             LEFT JOIN context.artifact_documents AS d ON d.owner_id = k.owner_id AND d.id = k.id \
             LEFT JOIN context.artifact_versions AS v ON v.owner_id = d.owner_id AND v.artifact_id = d.artifact_id \
             AND v.version = d.version ORDER BY w.owner_id, w.id",
            Bind::text(self.after.0.as_str()),
            Bind::Int(self.after.1),
            Bind::text(self.after.0.as_str()),
            Bind::Int(self.after.1),
            through,
            Bind::Int(set_id),
            Bind::Int(set_id),
            Bind::text(self.holder.as_str()),
            Bind::Int(now),
            Bind::Int(limit),
            Bind::Int(set_id),
            Bind::text(self.holder.as_str()),
            Bind::Int(until),
            Bind::Int(now),
        );
        Ok(sql::query(transaction.conn, claim).await?)
    }
}

/// Counts the entries and artifacts of all owners that have no vectors of the model. A read, because it may take long,
/// and ends when its caller leaves.
pub(super) struct CountWaiting {
    pub model: EmbeddingModel,
    pub statement_timeout: Duration,
}

impl Reading for CountWaiting {
    type Outcome = i64;

    fn empty(&self) -> i64 {
        0
    }

    async fn read(
        &self,
        conn: &mut AsyncPgConnection,
        _: &OwnerId,
    ) -> Result<Option<(i64, i64)>, Failure> {
        begin(conn, self.statement_timeout).await?;
        let waiting = match set_of(conn, &self.model).await? {
            Some(Set { set_id, .. }) => {
                let all = entries(conn).await?;
                (all - embedded(conn, set_id).await?).max(0)
            }
            None => 0,
        };
        commit(conn).await?;
        // The revision is 0, because no call of this read requires one.
        Ok(Some((0, waiting)))
    }
}

/// Number of entries and artifacts of all owners.
pub(super) async fn entries(conn: &mut AsyncPgConnection) -> Result<i64, Failure> {
    let entries = Fragment::prepared(
        "SELECT coalesce(sum(entry_count), 0)::bigint + (SELECT count(*) FROM context.artifact_documents) FROM context.owners",
        Vec::new(),
    );
    Ok(sql::number(conn, entries).await?)
}

/// Number of entries and artifacts of all owners that have vectors of the set.
pub(super) async fn embedded(conn: &mut AsyncPgConnection, set_id: i64) -> Result<i64, Failure> {
    let embedded = "SELECT count(*) FROM context.chunks WHERE set_id = ? AND position = 0";
    let embedded = Fragment::prepared(embedded, vec![Bind::Int(set_id)]);
    Ok(sql::number(conn, embedded).await?)
}

/// Adds vectors to entries that still have none. Returns the number of entries that got theirs.
pub(super) struct Add(pub Vec<LateEmbedding>);

impl Writing for Add {
    type Outcome = Once<u64>;

    async fn run(&self, transaction: &mut Transaction<'_>) -> Result<Once<u64>, Failure> {
        let [first, ..] = self.0.as_slice() else {
            return Ok(Once(0));
        };
        let Some(Set { set_id, .. }) = set_of(transaction.conn, &first.embedded.model).await?
        else {
            return Ok(Once(0));
        };
        // Locks the threads, like every write of entries. From here on, no text of the entries can change.
        transaction.lock_threads_of(self.ids()).await?;
        lock_artifacts(transaction, self.ids()).await?;
        let unembedded = self.unembedded(transaction, set_id).await?;
        let mut added = 0;
        // Not `transaction.vectors`, which is absent if this service does not know of the tables. They exist, because
        // there is a set.
        let mut chunks = ChunkChanges::default();
        for LateEmbedding {
            id,
            version,
            embedded,
        } in &self.0
        {
            let is_unembedded = unembedded
                .iter()
                .any(|entry| entry.id == *id && entry.version == *version);
            // A call has the embeddings of one model. Others are skipped.
            if is_unembedded
                && embedded.model == first.embedded.model
                && chunks.add_late(*id, embedded)
            {
                added += 1;
            }
        }
        chunks.write(transaction.conn, transaction.owner).await?;
        // Releases the claims of every service: the entries have vectors now, or have changed.
        let release = diesel::delete(
            claims::table
                .filter(claims::owner_id.eq(transaction.owner.as_str()))
                .filter(claims::id.eq_any(self.ids()))
                .filter(claims::set_id.eq(set_id)),
        );
        fixed!(release).execute(transaction.conn).await?;
        Ok(Once(added))
    }
}

/// Locks the artifacts with these documents, as a write to them does.
async fn lock_artifacts(transaction: &mut Transaction<'_>, ids: Vec<i64>) -> Result<(), Failure> {
    if ids.iter().all(|id| *id > 0) {
        return Ok(());
    }
    // Raw SQL for FOR UPDATE OF one table.
    let lock = "SELECT a.version FROM context.artifacts AS a JOIN context.artifact_documents AS d ON d.owner_id = a.owner_id \
                AND d.artifact_id = a.artifact_id WHERE a.owner_id = ? AND d.id = ANY(?) ORDER BY a.artifact_id FOR UPDATE OF a";
    let binds = vec![Bind::text(transaction.owner.as_str()), Bind::ints(ids)];
    sql::execute(transaction.conn, Fragment::prepared(lock, binds)).await?;
    Ok(())
}

/// An entry or an artifact, and its version.
#[derive(QueryableByName)]
struct Version {
    #[diesel(sql_type = BigInt)]
    id: i64,
    #[diesel(sql_type = BigInt)]
    version: i64,
}

impl Add {
    /// The ids of the entries.
    fn ids(&self) -> Vec<i64> {
        self.0.iter().map(|late| late.id).collect()
    }

    /// Those of the entries that have no vectors in the set, with their versions.
    async fn unembedded(
        &self,
        transaction: &mut Transaction<'_>,
        set_id: i64,
    ) -> Result<Vec<Version>, Failure> {
        let select = "SELECT e.id, e.version FROM (SELECT id, version FROM context.entries WHERE owner_id = ? AND id = ANY(?) \
                      UNION ALL SELECT id, version FROM context.artifact_documents WHERE owner_id = ? AND id = ANY(?)) AS e \
                      WHERE NOT EXISTS (SELECT 1 FROM context.chunks AS c WHERE c.owner_id = ? AND c.id = e.id AND c.set_id = ?)";
        let owner = || Bind::text(transaction.owner.as_str());
        let binds = vec![
            owner(),
            Bind::ints(self.ids()),
            owner(),
            Bind::ints(self.ids()),
            owner(),
            Bind::Int(set_id),
        ];
        Ok(sql::query(transaction.conn, Fragment::prepared(select, binds)).await?)
    }
}

/// A set, and the time at which it was read.
#[derive(QueryableByName)]
struct Set {
    #[diesel(sql_type = BigInt)]
    set_id: i64,
    /// The current time of the server's clock.
    #[diesel(sql_type = BigInt)]
    now: i64,
}

/// The set of a model, in any state but `discarded`: a discarded set has another name.
async fn set_of(
    conn: &mut AsyncPgConnection,
    model: &EmbeddingModel,
) -> Result<Option<Set>, Failure> {
    let select = "SELECT set_id, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS now FROM context.embedding_sets \
                  WHERE model = ? AND dimensions = ?";
    let binds = vec![
        Bind::text(&model.identity),
        Bind::Int(i64::from(model.dimensions)),
    ];
    let rows = sql::query(conn, Fragment::prepared(select, binds)).await?;
    Ok(rows.into_iter().next())
}
