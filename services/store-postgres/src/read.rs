//! What a read does on its connection.

use context_store::OwnerId;
use diesel_async::AsyncPgConnection;

use crate::failure::Failure;

/// A read. It may be run more than once.
pub(crate) trait Reading: Sync {
    /// What it gives.
    type Outcome: Send;

    /// What an owner that never wrote reads.
    fn empty(&self) -> Self::Outcome;

    /// The owner's revision and what was read, of one state of the database; `None` when the owner never wrote.
    fn read(
        &self,
        conn: &mut AsyncPgConnection,
        owner: &OwnerId,
    ) -> impl Future<Output = Result<Option<(i64, Self::Outcome)>, Failure>> + Send;
}
