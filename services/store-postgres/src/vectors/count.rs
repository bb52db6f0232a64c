//! The number of an owner's entries that have vectors.

use std::time::Duration;

use context_model::ThreadSet;
use context_store::{EmbeddingModel, OwnerId};

use crate::filter::within;
use crate::pg::connection::AsyncPgConnection;
use crate::pg::failure::Failure;
use crate::pg::sql::{self, Bind, Fragment, fragment};
use crate::read::{Reading, begin_if_needed, commit};

/// Counts the entries with vectors of a model.
pub(super) struct CountEmbedded {
    pub model: EmbeddingModel,
    /// Counts only entries of these threads.
    pub threads: Option<ThreadSet>,
    pub statement_timeout: Duration,
}

impl Reading for CountEmbedded {
    type Outcome = i64;

    fn empty(&self) -> i64 {
        0
    }

    async fn read(
        &self,
        conn: &mut AsyncPgConnection,
        owner: &OwnerId,
    ) -> Result<Option<(i64, i64)>, Failure> {
        let count = match &self.threads {
            Some(threads) => self.within(owner, threads),
            None => self.all(owner),
        };
        let begun = begin_if_needed(conn, false, self.statement_timeout).await?;
        let count = sql::number(conn, count).await?;
        if begun {
            commit(conn).await?;
        }
        // The revision is 0, because no call of this read requires one.
        Ok(Some((0, count)))
    }
}

impl CountEmbedded {
    // The ids of artifacts' documents are negative. `position = 0` must be in the text: the planner does not use the
    // partial index of first chunks for a bound value.
    fn all<'a>(&'a self, owner: &'a OwnerId) -> Fragment<'a> {
        let count = "SELECT count(*) FROM context.chunks WHERE owner_id = ? AND id > 0 AND position = 0 AND set_id = \
                     (SELECT set_id FROM context.embedding_sets WHERE model = ? AND dimensions = ?)";
        let binds = vec![
            Bind::text(owner.as_str()),
            Bind::text(&self.model.identity),
            Bind::Int(i64::from(self.model.dimensions)),
        ];
        Fragment::prepared(count, binds)
    }

    fn within<'a>(&'a self, owner: &'a OwnerId, threads: &'a ThreadSet) -> Fragment<'a> {
        fragment!(
            "SELECT count(*) FROM context.entries AS e WHERE e.owner_id = ? AND {within} AND EXISTS (SELECT 1 \
             FROM context.chunks AS c WHERE c.owner_id = e.owner_id AND c.id = e.id AND c.position = 0 AND c.set_id = \
             (SELECT set_id FROM context.embedding_sets WHERE model = ? AND dimensions = ?))",
            Bind::text(owner.as_str()),
            within("e.thread_id", threads),
            Bind::text(&self.model.identity),
            Bind::Int(i64::from(self.model.dimensions)),
        )
    }
}
