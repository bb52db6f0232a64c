//! `kill -9` at a random moment under sixteen writers, including during a start and during recovery.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use context_faults::audit::{audit, audit_copy};
use context_faults::client::Grpc;
use context_faults::ledger::Ledger;
use context_faults::load::{Load, Signals, nothing_wrong, settle};
use context_test_support::{Home, Random, rounds, seed};

const WRITERS: usize = 16;

/// Kills a service that is starting and recovering the state left by the previous one.
async fn kill_while_starting(home: &Home, random: &mut Random) {
    let mut service = home.spawn();
    tokio::time::sleep(Duration::from_micros(random.below(60_000) as u64)).await;
    service.kill();
}

fn database_exists(database: &Path) -> bool {
    std::fs::metadata(database).is_ok_and(|file| file.len() > 0)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kill_dash_nine_loses_no_acknowledged_write_and_leaves_no_half_one() {
    let random = Random::new(seed());
    let home = Home::new();
    let mut ledgers: Vec<Ledger> = (0..WRITERS).map(Ledger::new).collect();
    let mut in_flight = 0;
    let rounds = rounds("CONTEXT_FAULTS_KILLS", 20);
    for round in 0..rounds {
        let mut random = random.part(round as u64);
        while random.chance(40) {
            kill_while_starting(&home, &mut random).await;
        }
        let mut service = home.start().await;
        nothing_wrong(
            &settle(&Grpc::of(&home), &mut ledgers).await,
            &format!("round {round}, after the start"),
        );

        let signals = Arc::new(Signals::default());
        let load = Load::start(ledgers, &random, &signals, |_| Grpc::of(&home));
        signals.acknowledged(random.below(300), &load).await;
        // A random delay, so that the kill does not always follow an acknowledgement.
        tokio::time::sleep(Duration::from_micros(random.below(30_000) as u64)).await;
        signals.fault.store(true, Ordering::SeqCst);
        if random.chance(20) {
            // In the middle of an orderly stop.
            rustix::process::kill_process(service.pid(), rustix::process::Signal::TERM)
                .expect("the service runs");
            tokio::time::sleep(Duration::from_micros(random.below(60_000) as u64)).await;
        }
        service.kill();
        ledgers = load.finish().await;
        let attempts = ledgers.iter().filter(|ledger| ledger.attempt.is_some());
        in_flight += attempts.count();

        if database_exists(&home.database()) {
            nothing_wrong(
                &audit_copy(&home.database()),
                &format!("round {round}, in the files"),
            );
        }
    }
    let service = home.start().await;
    nothing_wrong(
        &settle(&Grpc::of(&home), &mut ledgers).await,
        "after the last round",
    );
    let acknowledged: usize = ledgers.iter().map(|ledger| ledger.acknowledged).sum();
    eprintln!(
        "{rounds} rounds, {acknowledged} acknowledged writes, 0 lost, {in_flight} in flight at the kills"
    );
    assert!(acknowledged > rounds, "the writers wrote");
    assert!(in_flight > 0, "no write was in flight at a kill");
    assert!(
        service.terminate().await.success(),
        "a service that gets SIGTERM ends with success"
    );
    nothing_wrong(&audit(&home.database()), "after an orderly stop");
}
