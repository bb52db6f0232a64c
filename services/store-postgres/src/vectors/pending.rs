//! Entries that have no vectors of a model yet. A service claims some of them for two minutes, embeds their texts and
//! adds the vectors.

use context_store::{
    EmbeddingModel, LateEmbedding, Once, OwnerId, ScanCursor, Unembedded, UnembeddedPage,
};
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Bool, Text};
use diesel_async::RunQueryDsl;

use super::ChunkChanges;
use crate::pg::connection::AsyncPgConnection;
use crate::pg::dsl::fixed;
use crate::pg::failure::Failure;
use crate::pg::sql::{self, Bind, Fragment, fragment};
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
    #[diesel(sql_type = Text)]
    text: String,
    /// False if another service claimed the entry first. `text` is then empty.
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
        let Some(set) = set_of(transaction, &self.model).await? else {
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
                owner: OwnerId::new(row.owner_id),
                id: row.id,
                version: row.version,
                text: row.text,
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
        let end = "SELECT owner_id, id FROM context.entries WHERE (owner_id, id) > (?, ?) ORDER BY owner_id, id LIMIT 1 OFFSET ?";
        let binds = vec![
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
            "WITH waiting AS MATERIALIZED (SELECT e.owner_id, e.id, e.version FROM context.entries AS e \
             WHERE (e.owner_id, e.id) > (?, ?){through} AND NOT EXISTS (SELECT 1 FROM context.chunks AS c \
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
             SELECT e.owner_id, e.id, e.version, CASE WHEN k.id IS NULL THEN '' ELSE e.text END AS text, \
             k.id IS NOT NULL AS claimed \
             FROM waiting AS w JOIN context.entries AS e ON e.owner_id = w.owner_id AND e.id = w.id \
             LEFT JOIN claimed AS k ON k.owner_id = w.owner_id AND k.id = w.id ORDER BY e.owner_id, e.id",
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

/// Counts the entries of all owners that have no vectors of the model.
pub(super) struct CountWaiting(pub EmbeddingModel);

impl Writing for CountWaiting {
    type Outcome = Once<i64>;

    async fn run(&self, transaction: &mut Transaction<'_>) -> Result<Once<i64>, Failure> {
        let Self(model) = self;
        let Some(Set { set_id, .. }) = set_of(transaction, model).await? else {
            return Ok(Once(0));
        };
        let all = entries(transaction.conn).await?;
        let embedded = embedded(transaction.conn, set_id).await?;
        Ok(Once((all - embedded).max(0)))
    }
}

/// Number of entries of all owners.
pub(super) async fn entries(conn: &mut AsyncPgConnection) -> Result<i64, Failure> {
    let entries = Fragment::prepared(
        "SELECT coalesce(sum(entry_count), 0)::bigint FROM context.owners",
        Vec::new(),
    );
    Ok(sql::number(conn, entries).await?)
}

/// Number of entries of all owners that have vectors of the set.
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
        let Some(Set { set_id, .. }) = set_of(transaction, &first.embedded.model).await? else {
            return Ok(Once(0));
        };
        // Locks the threads, like every write. From here on, no entry can change.
        transaction.lock_threads_of(self.ids()).await?;
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
        let select = "SELECT e.id, e.version FROM context.entries AS e WHERE e.owner_id = ? AND e.id = ANY(?) AND NOT EXISTS \
                      (SELECT 1 FROM context.chunks AS c WHERE c.owner_id = e.owner_id AND c.id = e.id AND c.set_id = ?)";
        let binds = vec![
            Bind::text(transaction.owner.as_str()),
            Bind::ints(self.ids()),
            Bind::Int(set_id),
        ];
        Ok(sql::query(transaction.conn, Fragment::prepared(select, binds)).await?)
    }
}

#[derive(QueryableByName)]
struct Set {
    #[diesel(sql_type = BigInt)]
    set_id: i64,
    /// The current time of the server's clock.
    #[diesel(sql_type = BigInt)]
    now: i64,
}

/// The set of a model, in any state.
async fn set_of(
    transaction: &mut Transaction<'_>,
    model: &EmbeddingModel,
) -> Result<Option<Set>, Failure> {
    let select = "SELECT set_id, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS now FROM context.embedding_sets \
                  WHERE model = ? AND dimensions = ?";
    let binds = vec![
        Bind::text(&model.identity),
        Bind::Int(i64::from(model.dimensions)),
    ];
    let rows = sql::query(transaction.conn, Fragment::prepared(select, binds)).await?;
    Ok(rows.into_iter().next())
}
