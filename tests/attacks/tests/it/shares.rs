//! One owner that uses all shared resources.

use context_attacks::{Target, http2};
use tokio::task::JoinSet;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_reads_of_a_future_revision_do_not_hold_up_another_owner() {
    let target = Target::start(&[("CONTEXT_MAX_CONCURRENT_REQUESTS", "16")]).await;
    let mut reads = JoinSet::new();
    let mut connections = Vec::new();
    for _ in 0..10 {
        let connection = http2::Connection::open(target.address()).await;
        for _ in 0..100 {
            let mut stream = connection
                .get(
                    "/v1/contexts/1?min_revision=9000000000000000",
                    &target.read_key,
                )
                .await;
            reads.spawn(async move { stream.head().await });
        }
        connections.push(connection);
    }
    for _ in 0..5 {
        target
            .assert_bystander_is_served("while a thousand reads ask for a future revision")
            .await;
    }
    while let Some(status) = reads.join_next().await {
        let status = status.expect("no panic");
        assert!([400, 404, 503].contains(&status), "{status}");
    }
}
