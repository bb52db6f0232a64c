//! The power fails at a random write, truncation or sync. Unsynced data is lost, kept or torn at random.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use context_faults::audit::audit;
use context_faults::client::{Client as _, Embedded};
use context_faults::content::Content;
use context_faults::disk::{Cut, Disk};
use context_faults::ledger::Ledger;
use context_faults::load::{Load, Signals, nothing_wrong, settle};
use context_store_sqlite::Config;
use context_test_support::{Random, rounds, seed};

const WRITERS: usize = 8;

/// The ledgers of the writers, and the state of their database after the cut.
struct Aftermath {
    ledgers: Vec<Ledger>,
    cut: Cut,
}

fn ledgers() -> Vec<Ledger> {
    (0..WRITERS).map(Ledger::new).collect()
}

fn config(directory: &Path) -> Config {
    Config {
        readers: 1,
        ..Config::new(directory.join("contexts.db"))
    }
}

/// Writes until the power fails.
async fn cut_power(random: &mut Random, ignore_sync: bool) -> Aftermath {
    let directory = tempfile::tempdir().expect("a directory");
    let disk = Disk::attach(directory.path());
    disk.ignore_sync(ignore_sync);
    let mut written = ledgers();
    // In some rounds an earlier service ends normally, so that the power can fail during a checkpoint.
    let restarts = random.chance(30);
    if !restarts {
        let operations = [60, 2000, 12_000][random.below(3)];
        disk.cut_after(1 + random.below(operations), random.part(1));
    }
    loop {
        let Ok(store) = Embedded::open(config(directory.path())) else {
            break;
        };
        let signals = Arc::new(Signals::default());
        // The first error is caused by the cut.
        signals.fault.store(true, Ordering::SeqCst);
        let load = Load::start(written, random, &signals, |_| store.clone());
        if restarts && !disk.is_cut() {
            signals.acknowledged(40 + random.below(200), &load).await;
            signals.stop.store(true, Ordering::SeqCst);
        }
        written = load.finish().await;
        assert!(
            disk.is_cut() || signals.stop.load(Ordering::SeqCst),
            "the writers ended before the power cut"
        );
        if restarts && !disk.is_cut() {
            disk.cut_after(1 + random.below(150), random.part(2));
        }
        store.close().await;
        if disk.is_cut() {
            break;
        }
    }
    assert!(
        disk.is_cut(),
        "the database does not open before the power cut"
    );
    Aftermath {
        ledgers: written,
        cut: disk.cut_now(random.clone()),
    }
}

/// Writes the files as the disk left them, opens the database, and returns every fault found.
async fn inspect(aftermath: &mut Aftermath) -> Vec<String> {
    let directory = tempfile::tempdir().expect("a directory");
    aftermath
        .cut
        .write_to(directory.path())
        .expect("the files are written");
    let store = match Embedded::open(config(directory.path())) {
        Ok(store) => store,
        Err(error) => return vec![format!("the database does not open: {error}")],
    };
    let mut wrong = settle(&store, &mut aftermath.ledgers).await;
    // The database must also be writable, not only readable.
    let content = Content::new(WRITERS, 0, 0, "after the cut");
    match store.store(content.request()).await {
        Ok(_) => wrong.extend(audit(&directory.path().join("contexts.db"))),
        Err(error) => wrong.push(format!("nothing can be stored: {error}")),
    }
    store.close().await;
    wrong
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_power_cut_loses_no_acknowledged_entry_and_leaves_no_half_one() {
    let random = Random::new(seed());
    let (mut acknowledged, mut unsynced) = (0, 0);
    for round in 0..rounds("CONTEXT_FAULTS_POWER_CUTS", 20) {
        let mut random = random.part(round as u64);
        let mut aftermath = cut_power(&mut random, false).await;
        acknowledged += aftermath
            .ledgers
            .iter()
            .map(|ledger| ledger.acknowledged)
            .sum::<usize>();
        unsynced += aftermath.cut.unsynced;
        let wrong = inspect(&mut aftermath).await;
        nothing_wrong(
            &wrong,
            &format!(
                "round {round}, {:?} of {} unsynced changes lost",
                aftermath.cut.loss, aftermath.cut.unsynced
            ),
        );
    }
    eprintln!("{acknowledged} acknowledged writes, {unsynced} unsynced changes at the cuts");
    assert!(
        acknowledged > 0 && unsynced > 0,
        "there were acknowledged writes and unsynced changes"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_creation_that_was_cut_short_anywhere_can_be_begun_again() {
    let random = Random::new(seed());
    for operation in 1.. {
        let directory = tempfile::tempdir().expect("a directory");
        let disk = Disk::attach(directory.path());
        disk.cut_after(operation, random.part(operation as u64));
        if let Ok(store) = Embedded::open(config(directory.path())) {
            store.close().await;
        }
        if !disk.is_cut() {
            assert!(operation > 10, "the power was cut {operation} times only");
            eprintln!("{operation} writes, truncations and syncs create and close a database");
            return;
        }
        let mut aftermath = Aftermath {
            ledgers: ledgers(),
            cut: disk.cut_now(random.clone()),
        };
        let wrong = inspect(&mut aftermath).await;
        nothing_wrong(
            &wrong,
            &format!(
                "cut at operation {operation}, {:?} lost",
                aftermath.cut.loss
            ),
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disk_that_ignores_syncs_is_caught_losing_entries() {
    let random = Random::new(seed());
    for round in 0..30 {
        let mut random = random.part(round);
        let mut aftermath = cut_power(&mut random, true).await;
        if aftermath
            .ledgers
            .iter()
            .any(|ledger| ledger.acknowledged > 0)
            && !inspect(&mut aftermath).await.is_empty()
        {
            return;
        }
    }
    panic!("without syncs, 30 power cuts lost nothing: the test above proves nothing");
}

/// Stores entries from eight concurrent tasks. Returns, for each acknowledgement, whether the disk's trace shows that
/// its transaction was synced before.
async fn trace(disk: &Arc<Disk>, directory: &Path) -> Vec<Result<(), String>> {
    let store = Embedded::open(config(directory)).expect("the database opens");
    let tasks = (0..WRITERS).map(|writer| {
        let (store, disk) = (store.clone(), Arc::clone(disk));
        tokio::spawn(async move {
            let mut outcomes = Vec::new();
            for serial in 0..20 {
                // Short enough to lie within one page.
                let text = format!("text {serial} of writer {writer}.");
                let mut request = Content::new(writer, serial, 0, "trace").request();
                request.text.clone_from(&text);
                let mark = disk.mark();
                store.store(request).await.expect("it is stored");
                outcomes.push(disk.was_synced(&text, mark));
            }
            outcomes
        })
    });
    let mut outcomes = Vec::new();
    for task in tasks.collect::<Vec<_>>() {
        outcomes.extend(task.await.expect("no panic"));
    }
    store.close().await;
    outcomes
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_acknowledgement_follows_the_sync_of_its_transaction() {
    let directory = tempfile::tempdir().expect("a directory");
    let disk = Disk::attach(directory.path());
    let outcomes = trace(&disk, directory.path()).await;
    assert_eq!(outcomes.len(), WRITERS * 20);
    assert_eq!(outcomes.into_iter().find(Result::is_err), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_syncs_the_trace_says_so() {
    let directory = tempfile::tempdir().expect("a directory");
    let disk = Disk::attach(directory.path());
    disk.ignore_sync(true);
    let outcomes = trace(&disk, directory.path()).await;
    assert!(outcomes.iter().all(|outcome| {
        outcome
            .as_ref()
            .is_err_and(|problem| problem.ends_with("before the log was synced"))
    }));
}
