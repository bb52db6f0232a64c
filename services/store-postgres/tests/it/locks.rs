//! Statements that wait for a lock.

use context_test_postgres::Client;
use context_test_support::until;

/// Waits until `count` statements of this database wait for a lock.
pub async fn until_blocked(client: &Client, count: i64) {
    let waiting = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
    until("so many statements wait", async || {
        let blocked = client.query_one(waiting, &[]).await;
        blocked.expect("the sessions are counted").get::<_, i64>(0) == count
    })
    .await;
}
