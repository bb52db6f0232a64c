//! Owners: making them, counting what belongs to them, and removing all of it.

use context_store::{Once, OwnerId, OwnerSummary};
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Text};
use diesel_async::{RunQueryDsl, SimpleAsyncConnection as _};

use crate::pg::connection::AsyncPgConnection;
use crate::pg::dsl::PipelineDsl as _;
use crate::pg::failure::Failure;
use crate::pg::sql::{self, Bind, Fragment};
use crate::read::Reading;
use crate::schema::{owners, threads};
use crate::transaction::{Transaction, Writing};

#[derive(QueryableByName)]
struct Row {
    #[diesel(sql_type = Text)]
    owner_id: String,
    #[diesel(sql_type = BigInt)]
    contexts: i64,
    #[diesel(sql_type = BigInt)]
    artifacts: i64,
    #[diesel(sql_type = BigInt)]
    keys: i64,
}

/// Owners by name; one of them, or the first 10 000.
async fn summaries(
    conn: &mut AsyncPgConnection,
    owner: Option<&OwnerId>,
) -> Result<Vec<OwnerSummary>, Failure> {
    let mut select = Fragment::prepared(
        "SELECT o.owner_id, o.entry_count AS contexts, \
         (SELECT count(*) FROM context.artifacts AS a WHERE a.owner_id = o.owner_id) AS artifacts, \
         (SELECT count(*) FROM context.api_keys AS k WHERE k.owner_id = o.owner_id AND k.deactivated_at IS NULL) AS keys \
         FROM context.owners AS o",
        Vec::new(),
    );
    if let Some(owner) = owner {
        select
            .push(" WHERE o.owner_id = ")
            .bind(Bind::text(owner.as_str()));
    }
    select.push(" ORDER BY o.owner_id LIMIT 10000");
    let rows: Vec<Row> = sql::query(conn, select).await?;
    let summary = |Row {
                       owner_id,
                       contexts,
                       artifacts,
                       keys,
                   }| OwnerSummary {
        owner: OwnerId::new(owner_id),
        contexts,
        artifacts,
        keys,
    };
    Ok(rows.into_iter().map(summary).collect())
}

/// Makes the row of an owner that has none.
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
        .do_nothing()
        .execute(conn)
        .await?;
    Ok(())
}

/// An owner to make.
pub(crate) struct Create;

impl Writing for Create {
    type Outcome = Once<()>;

    async fn run(&self, transaction: &mut Transaction<'_>) -> Result<Once<()>, Failure> {
        create(transaction.conn, transaction.owner).await.map(Once)
    }
}

/// Every owner.
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

/// An owner to remove. Which tables hold something of it is asked of the database, so that a table that comes later is
/// never forgotten.
pub(crate) struct Erase;

impl Writing for Erase {
    type Outcome = Once<Option<OwnerSummary>>;

    async fn run(&self, transaction: &mut Transaction<'_>) -> Result<Self::Outcome, Failure> {
        let Some(summary) = summaries(transaction.conn, Some(transaction.owner))
            .await?
            .pop()
        else {
            return Ok(Once(None));
        };
        // There may be a lot of it.
        transaction
            .conn
            .batch_execute("SET LOCAL statement_timeout = 0")
            .await?;
        // As every write does, so that no other write is half done.
        threads::table
            .filter(threads::owner_id.eq(transaction.owner.as_str()))
            .order(threads::thread_id)
            .select(threads::last_id)
            .for_update()
            .send(transaction.conn)
            .await?;
        // The counter of ids stays: other services may hold ids that were leased from it. The owner's row goes last.
        let tables = "SELECT c.table_name::text AS name FROM information_schema.columns AS c WHERE c.table_schema = 'context' \
                      AND c.column_name = 'owner_id' AND c.table_name <> 'owner_ids' ORDER BY c.table_name = 'owners', c.table_name";
        let tables: Vec<Name> =
            sql::query(transaction.conn, Fragment::prepared(tables, Vec::new())).await?;
        for Name { name } in tables {
            // A name of our own migrations, never a caller's text.
            let mut delete = Fragment::new(format!("DELETE FROM context.{name} WHERE owner_id = "));
            delete.bind(Bind::text(transaction.owner.as_str()));
            sql::execute(transaction.conn, delete).await?;
        }
        Ok(Once(Some(summary)))
    }
}
