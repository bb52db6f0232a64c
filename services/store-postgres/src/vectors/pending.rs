//! Entries that wait for their vectors: those that have none of a model. A service claims those it gets for a while.

use context_store::{
    EmbeddingModel, LateEmbedding, Once, OwnerId, Place, Unembedded, UnembeddedPage,
};
use diesel::QueryableByName;
use diesel::sql_types::{BigInt, Bool, Text};

use crate::pg::failure::Failure;
use crate::pg::sql::{self, Bind, Fragment};
use crate::transaction::{Transaction, Writing};

/// Entries looked at in one transaction, at most.
const LOOKED_AT: i64 = 10_000;
/// How long a claim lasts. A service that embeds for longer may find that another one did the same work.
const CLAIM_MICROS: i64 = 120_000_000;

/// A claim of entries without vectors, after this place.
pub(super) struct Claim {
    pub model: EmbeddingModel,
    pub after: (String, i64),
    pub limit: u32,
    pub holder: String,
}

#[derive(QueryableByName)]
struct Row {
    #[diesel(sql_type = Text)]
    owner_id: String,
    #[diesel(sql_type = BigInt)]
    id: i64,
    #[diesel(sql_type = BigInt)]
    version: i64,
    #[diesel(sql_type = Text)]
    text: String,
    #[diesel(sql_type = Bool)]
    claimed: bool,
}

#[derive(QueryableByName)]
struct Last {
    #[diesel(sql_type = Text)]
    owner_id: String,
    #[diesel(sql_type = BigInt)]
    id: i64,
}

#[derive(QueryableByName)]
struct Set {
    #[diesel(sql_type = BigInt)]
    set_id: i64,
    /// Now, by the server's clock.
    #[diesel(sql_type = BigInt)]
    now: i64,
}

/// A place is an owner and an id; the id comes first, because it has no space in it.
pub(super) fn place(owner: &str, id: i64) -> Place {
    Place::new(format!("{id} {owner}"))
}

/// The owner and the id of a place; before everything when there is none.
pub(super) fn of_place(place: Option<&Place>) -> (String, i64) {
    let parts = place.and_then(|place| place.as_str().split_once(' '));
    parts
        .and_then(|(id, owner)| Some((owner.to_owned(), id.parse().ok()?)))
        .unwrap_or_default()
}

/// The set of a model, whatever it is used for.
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
    Ok(
        sql::query(transaction.conn, Fragment::prepared(select, binds))
            .await?
            .pop(),
    )
}

impl Writing for Claim {
    type Outcome = Once<UnembeddedPage>;

    async fn run(&self, transaction: &mut Transaction<'_>) -> Result<Self::Outcome, Failure> {
        let nothing = UnembeddedPage {
            entries: Vec::new(),
            next: None,
        };
        let Some(set) = set_of(transaction, &self.model).await? else {
            return Ok(Once(nothing));
        };
        let (owner, id) = (self.after.0.as_str(), self.after.1);
        let last = "SELECT owner_id, id FROM context.entries WHERE (owner_id, id) > (?, ?) ORDER BY owner_id, id LIMIT 1 OFFSET ?";
        let binds = vec![Bind::text(owner), Bind::Int(id), Bind::Int(LOOKED_AT - 1)];
        let last = sql::query::<Last>(transaction.conn, Fragment::prepared(last, binds))
            .await?
            .pop();
        let limit = i64::from(self.limit.max(1));
        let rows = self.claim(transaction, &set, last.as_ref(), limit).await?;
        let is_full = i64::try_from(rows.len()) == Ok(limit);
        let next = match rows.last() {
            Some(row) if is_full => Some(place(&row.owner_id, row.id)),
            _ => last.map(|last| place(&last.owner_id, last.id)),
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
    /// The entries that wait and are nobody's. Two services that come at the same moment find the same ones, and each
    /// entry is one's claim; the other passes over it.
    ///
    /// The time is bound: where owners are spread over servers, a statement that asks the clock could find two of them.
    async fn claim(
        &self,
        transaction: &mut Transaction<'_>,
        set: &Set,
        last: Option<&Last>,
        limit: i64,
    ) -> Result<Vec<Row>, Failure> {
        let Set { set_id, now } = *set;
        let mut claim = Fragment::new(
            "WITH waiting AS MATERIALIZED (SELECT e.owner_id, e.id, e.version FROM context.entries AS e WHERE (e.owner_id, e.id) > (",
        );
        claim
            .bind(Bind::text(self.after.0.as_str()))
            .push(", ")
            .bind(Bind::Int(self.after.1))
            .push(")");
        if let Some(Last { owner_id, id }) = last {
            claim
                .push(" AND (e.owner_id, e.id) <= (")
                .bind(Bind::text(owner_id.as_str()))
                .push(", ")
                .bind(Bind::Int(*id))
                .push(")");
        }
        claim.push(" AND NOT EXISTS (SELECT 1 FROM context.chunks AS c WHERE c.owner_id = e.owner_id AND c.id = e.id AND c.set_id = ");
        claim.bind(Bind::Int(set_id)).push(
            ") AND NOT EXISTS (SELECT 1 FROM context.embedding_claims AS k WHERE k.owner_id = e.owner_id AND k.id = e.id AND k.set_id = ",
        );
        claim
            .bind(Bind::Int(set_id))
            .push(" AND k.version = e.version AND k.holder <> ")
            .bind(Bind::text(self.holder.as_str()));
        claim
            .push(" AND k.until > ")
            .bind(Bind::Int(now))
            .push(") ORDER BY e.owner_id, e.id LIMIT ")
            .bind(Bind::Int(limit));
        claim.push("), claimed AS (INSERT INTO context.embedding_claims AS k (owner_id, id, set_id, version, holder, until) SELECT w.owner_id, w.id, ");
        claim
            .bind(Bind::Int(set_id))
            .push(", w.version, ")
            .bind(Bind::text(self.holder.as_str()));
        claim
            .push(", ")
            .bind(Bind::Int(now.saturating_add(CLAIM_MICROS)));
        claim.push(
            " FROM waiting AS w ON CONFLICT (owner_id, id, set_id) DO UPDATE SET version = excluded.version, holder = excluded.holder, \
             until = excluded.until WHERE k.holder = excluded.holder OR k.version <> excluded.version OR k.until <= ",
        );
        claim.bind(Bind::Int(now)).push(
            " RETURNING k.owner_id, k.id) \
             SELECT e.owner_id, e.id, e.version, CASE WHEN k.id IS NULL THEN '' ELSE e.text END AS text, k.id IS NOT NULL AS claimed \
             FROM waiting AS w JOIN context.entries AS e ON e.owner_id = w.owner_id AND e.id = w.id \
             LEFT JOIN claimed AS k ON k.owner_id = w.owner_id AND k.id = w.id ORDER BY e.owner_id, e.id",
        );
        Ok(sql::query(transaction.conn, claim).await?)
    }
}

/// Vectors of entries that waited for them.
pub(super) struct Add(pub Vec<LateEmbedding>);

#[derive(QueryableByName)]
struct Waiting {
    #[diesel(sql_type = BigInt)]
    id: i64,
    #[diesel(sql_type = BigInt)]
    version: i64,
}

#[derive(QueryableByName)]
struct Thread {
    #[diesel(sql_type = Text)]
    thread_id: String,
}

impl Writing for Add {
    type Outcome = u64;

    async fn run(&self, transaction: &mut Transaction<'_>) -> Result<u64, Failure> {
        let Some(first) = self.0.first() else {
            return Ok(0);
        };
        let Some(Set { set_id, .. }) = set_of(transaction, &first.embedded.model).await? else {
            return Ok(0);
        };
        let owner = transaction.owner;
        let ids = || Bind::ints(self.0.iter().map(|late| late.id));
        let of_owner = || vec![Bind::text(owner.as_str()), ids()];
        // As every write does, so that no entry changes from here on.
        let threads =
            "SELECT DISTINCT thread_id FROM context.entries WHERE owner_id = ? AND id = ANY(?)";
        let threads: Vec<Thread> =
            sql::query(transaction.conn, Fragment::prepared(threads, of_owner())).await?;
        transaction
            .lock_threads(threads.into_iter().map(|row| row.thread_id).collect())
            .await?;
        let waiting = "SELECT e.id, e.version FROM context.entries AS e WHERE e.owner_id = ? AND e.id = ANY(?) AND NOT EXISTS \
                       (SELECT 1 FROM context.chunks AS c WHERE c.owner_id = e.owner_id AND c.id = e.id AND c.set_id = ?)";
        let mut binds = of_owner();
        binds.push(Bind::Int(set_id));
        let waiting: Vec<Waiting> =
            sql::query(transaction.conn, Fragment::prepared(waiting, binds)).await?;
        let mut taken = 0;
        let mut chunks = super::ToEmbed::default();
        for LateEmbedding {
            id,
            version,
            embedded,
        } in &self.0
        {
            let waits = waiting
                .iter()
                .any(|entry| entry.id == *id && entry.version == *version);
            if waits && embedded.model == first.embedded.model && chunks.add_late(*id, embedded) {
                taken += 1;
            }
        }
        chunks.write(transaction.conn, owner).await?;
        let mut done = of_owner();
        done.push(Bind::Int(set_id));
        let release = "DELETE FROM context.embedding_claims WHERE owner_id = ? AND id = ANY(?) AND set_id = ?";
        sql::execute(transaction.conn, Fragment::prepared(release, done)).await?;
        Ok(taken)
    }
}
