//! Seeded rounds of writers, followers and faults: what each follower receives is what was committed.

use context_faults::follow::round::{Backend, Round};
use context_test_support::{rounds, seed};

/// Runs the rounds of a backend, and reports each violation with the command that repeats its round.
async fn play(backend: Backend, variable: &str) {
    let first = seed();
    let (mut views, mut faults, mut failed) = (0, 0, 0);
    let rounds = rounds(variable, 10);
    for seed in (0..rounds as u64).map(|round| first + round) {
        let Some(round) = Round::run(backend, seed).await else {
            return;
        };
        views += round.logs.iter().filter(|log| round.has_view(log)).count();
        faults += round.faults.len();
        let wrong = round.violations();
        if !wrong.is_empty() {
            failed += 1;
            eprintln!(
                "{wrong:#?}\nfaults: {:?}\nCONTEXT_FAULTS_SEED={seed} {variable}=1 cargo nextest run --workspace \
                 -E 'binary(follow)' repeats it",
                round.faults
            );
        }
    }
    eprintln!(
        "{backend:?}: {rounds} rounds from seed {first}, {faults} faults, {views} views compared, {failed} rounds with \
         violations"
    );
    assert_eq!(failed, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn followers_of_one_service_stay_in_step() {
    play(Backend::Sqlite, "CONTEXT_FAULTS_FOLLOW_SQLITE").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn followers_of_two_services_stay_in_step() {
    play(Backend::Postgres, "CONTEXT_FAULTS_FOLLOW_POSTGRES").await;
}
