//! Owners: creating and listing them, and deleting all their data.

use context_store::{Once, OwnerId, OwnerSummary};
use diesel::prelude::*;
use diesel::sql_types::Text;
use diesel_async::{RunQueryDsl, SimpleAsyncConnection as _};

use crate::pg::connection::AsyncPgConnection;
use crate::pg::dsl::PipelineDsl as _;
use crate::pg::failure::Failure;
use crate::pg::sql::{self, Bind, Fragment, fragment};
use crate::read::Reading;
use crate::schema::{api_keys, artifacts, owners, threads};
use crate::transaction::{Transaction, Writing};

/// Maximum number of owners listed.
const MAX_LISTED: i64 = 10_000;

/// Owners by name: one of them, or the first [`MAX_LISTED`].
async fn summaries(
    conn: &mut AsyncPgConnection,
    owner: Option<&OwnerId>,
) -> Result<Vec<OwnerSummary>, Failure> {
    let artifacts = artifacts::table
        .filter(artifacts::owner_id.eq(owners::owner_id))
        .count();
    let active_keys = api_keys::table
        .filter(api_keys::owner_id.eq(owners::owner_id))
        .filter(api_keys::deactivated_at.is_null())
        .count();
    let all = owners::table.order(owners::owner_id).select((
        owners::owner_id,
        owners::entry_count,
        artifacts.single_value().assume_not_null(),
        active_keys.single_value().assume_not_null(),
    ));
    let rows: Vec<(String, i64, i64, i64)> = match owner {
        None => all.limit(MAX_LISTED).load(conn).await?,
        Some(owner) => {
            let one = owners::owner_id.eq(owner.as_str());
            all.filter(one).load(conn).await?
        }
    };
    let summary = |(owner_id, contexts, artifacts, keys)| OwnerSummary {
        owner: OwnerId::new(owner_id),
        contexts,
        artifacts,
        keys,
    };
    Ok(rows.into_iter().map(summary).collect())
}

/// Creates the owner's row if there is none, and locks it, so that no erase deletes the owner before the commit.
pub(crate) async fn create(conn: &mut AsyncPgConnection, owner: &OwnerId) -> Result<(), Failure> {
    diesel::insert_into(owners::table)
        .values((
            owners::owner_id.eq(owner.as_str()),
            owners::revision.eq(0),
            owners::entry_count.eq(0),
            owners::user_count.eq(0),
            owners::agent_count.eq(0),
            owners::multimodal_count.eq(0),
            owners::image_count.eq(0),
            owners::thread_count.eq(0),
        ))
        .on_conflict(owners::owner_id)
        .do_update()
        .set(owners::revision.eq(owners::revision))
        .execute(conn)
        .await?;
    Ok(())
}

/// Locks the owner's row, if there is one, so that no erase deletes the owner before the commit. The owner's other
/// writes do not wait for this lock.
pub(super) async fn lock_owner(
    conn: &mut AsyncPgConnection,
    owner: &OwnerId,
) -> Result<(), Failure> {
    owners::table
        .find(owner.as_str())
        .select(owners::revision)
        .for_key_share()
        .send(conn)
        .await?;
    Ok(())
}

/// Creates an owner.
pub(crate) struct Create;

impl Writing for Create {
    type Outcome = Once<()>;

    async fn run(&self, transaction: &mut Transaction<'_>) -> Result<Once<()>, Failure> {
        create(transaction.conn, transaction.owner).await.map(Once)
    }
}

/// Lists the owners by name, at most [`MAX_LISTED`].
pub(crate) struct List;

impl Reading for List {
    type Outcome = Vec<OwnerSummary>;

    fn empty(&self) -> Self::Outcome {
        Vec::new()
    }

    async fn read(
        &self,
        conn: &mut AsyncPgConnection,
        _: &OwnerId,
    ) -> Result<Option<(i64, Self::Outcome)>, Failure> {
        Ok(Some((0, summaries(conn, None).await?)))
    }
}

#[derive(QueryableByName)]
struct Name {
    #[diesel(sql_type = Text)]
    name: String,
}

/// Deletes an owner. It reads from the database which tables hold the owner's rows, so that tables added later are
/// included.
pub(crate) struct Erase;

impl Writing for Erase {
    type Outcome = Once<Option<OwnerSummary>>;

    fn has_time_limit(&self) -> bool {
        false
    }

    async fn run(&self, transaction: &mut Transaction<'_>) -> Result<Self::Outcome, Failure> {
        // Deleting may take long, because an owner may have many rows. Another transaction must not hold it up for
        // ever.
        transaction
            .conn
            .batch_execute("SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = '30s'")
            .await?;
        // Locks what writes lock, in their order: threads or artifacts first, the owner's row last. A write that was
        // first is then committed, so every DELETE sees all its rows. Any other write waits for the owner's row, and
        // creates it again after the erase. No DELETE sees its rows.
        let owner = transaction.owner.as_str();
        threads::table
            .filter(threads::owner_id.eq(owner))
            .order(threads::thread_id)
            .select(threads::last_id)
            .for_update()
            .send(transaction.conn)
            .await?;
        artifacts::table
            .filter(artifacts::owner_id.eq(owner))
            .order(artifacts::artifact_id)
            .select(artifacts::version)
            .for_update()
            .send(transaction.conn)
            .await?;
        owners::table
            .find(owner)
            .select(owners::revision)
            .for_update()
            .send(transaction.conn)
            .await?;
        let Some(summary) = summaries(transaction.conn, Some(transaction.owner))
            .await?
            .pop()
        else {
            // A delete that found nothing has stored its idempotency key without the owner. Raw SQL for NOT EXISTS: a
            // write that creates the owner in the meantime keeps its key.
            let delete = "DELETE FROM context.idempotency WHERE owner_id = ? \
                          AND NOT EXISTS (SELECT 1 FROM context.owners AS o WHERE o.owner_id = ?)";
            let binds = vec![Bind::text(owner), Bind::text(owner)];
            sql::execute(transaction.conn, Fragment::prepared(delete, binds)).await?;
            return Ok(Once(None));
        };
        // Raw SQL for the catalogue. The id counter stays: other services may hold ids leased from it. Threads and
        // artifacts come first: a write that has locked a new one, and waits for the owner's row, makes a deadlock,
        // which then shows before the long deletes. The audited changes come after the changes, from which a compaction
        // may be moving rows. The owner's row is deleted last.
        let tables = "SELECT c.table_name::text AS name FROM information_schema.columns AS c WHERE c.table_schema = 'context' \
                      AND c.column_name = 'owner_id' AND c.table_name <> 'owner_ids' \
                      ORDER BY c.table_name NOT IN ('threads', 'artifacts'), c.table_name = 'owners', \
                      c.table_name = 'audited_changes', c.table_name";
        let tables: Vec<Name> =
            sql::query(transaction.conn, Fragment::prepared(tables, Vec::new())).await?;
        for Name { name } in tables {
            // Raw SQL for the table's name: it comes from this crate's migrations, never from a caller.
            let delete = fragment!(
                "DELETE FROM context.{name} WHERE owner_id = ?",
                Fragment::new(name),
                Bind::text(transaction.owner.as_str()),
            );
            sql::execute(transaction.conn, delete).await?;
        }
        Ok(Once(Some(summary)))
    }
}
