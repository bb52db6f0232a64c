//! A PostgreSQL primary that crashes while sixteen writers are active, and the standby that takes over.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use context_faults::client::{Client as _, Grpc};
use context_model::{Error, GetContextByIdsRequest, Reason, StoreContextRequest};
use context_proto::v1 as pb;
use context_test_postgres::{Server, programs};
use context_test_support::{Home, wait_for};
use tokio::task::JoinSet;

const WRITERS: usize = 16;
/// This many of them send an idempotency key and repeat a request until they receive a reply.
const WITH_KEY: usize = 4;
/// Number of acknowledgements before the crash, and of each writer after the promotion.
const BEFORE: usize = 300;
const AFTER: usize = 5;
/// Maximum time from the promotion to the first success. The requirement is 2 s; a machine that compiles other code at
/// the same time is allowed more.
const LIMIT: Duration = Duration::from_secs(10);

/// The state shared by the writers and the test.
#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    acknowledged: AtomicUsize,
    /// The writers that were refused at least once.
    refused: Mutex<BTreeSet<usize>>,
    /// Errors are expected from now on.
    crashed: AtomicBool,
    /// When the standby was promoted. Only writes that begin later are counted.
    promoted: Mutex<Option<Instant>>,
    /// The time from the promotion until the first write and the first read succeeded.
    first_write: Mutex<Option<Duration>>,
    first_read: Mutex<Option<Duration>>,
}

impl Shared {
    fn record_first(&self, first: &Mutex<Option<Duration>>) {
        if let Some(promoted) = *self.promoted.lock().expect("no thread panics") {
            first
                .lock()
                .expect("no thread panics")
                .get_or_insert(promoted.elapsed());
        }
    }
}

/// The outcomes that one writer received, for each text it sent.
#[derive(Default)]
struct Outcomes {
    /// The id of each acknowledged text. The texts are unique. An id is not: the standby may give out the id of a
    /// write that it lost a second time.
    acknowledged: BTreeMap<String, i64>,
    refused: BTreeSet<String>,
    unknown: BTreeSet<String>,
    after: usize,
}

/// Whether an error says that the outcome of the write is unknown.
fn is_unknown(error: &Error) -> bool {
    error.message.contains("may have happened or not")
}

async fn write(client: Grpc, writer: usize, shared: Arc<Shared>) -> Outcomes {
    let mut outcomes = Outcomes::default();
    let mut serial = 0_u64;
    while !shared.stop.load(Ordering::SeqCst) || outcomes.after < AFTER {
        serial += 1;
        let text = format!("w{writer}n{serial} and some words");
        // Half of them write to their own thread, half to a common thread.
        let thread_id = if writer.is_multiple_of(2) {
            format!("thread-{writer}")
        } else {
            "shared".to_owned()
        };
        let request = StoreContextRequest {
            thread_id,
            source: "agent".into(),
            text: text.clone(),
            ..StoreContextRequest::default()
        };
        loop {
            let promoted = shared.promoted.lock().expect("no thread panics").is_some();
            match store(&client, &request, (writer < WITH_KEY).then_some(&*text)).await {
                Ok(id) => {
                    outcomes.acknowledged.insert(text, id);
                    shared.acknowledged.fetch_add(1, Ordering::SeqCst);
                    if promoted {
                        outcomes.after += 1;
                        shared.record_first(&shared.first_write);
                    }
                    break;
                }
                Err(error) => {
                    assert!(
                        shared.crashed.load(Ordering::SeqCst),
                        "writer {writer} was refused before the crash: {error:?}"
                    );
                    assert!(
                        matches!(error.reason, Reason::StoreUnavailable | Reason::Overloaded),
                        "writer {writer}: {error:?}"
                    );
                    shared
                        .refused
                        .lock()
                        .expect("no thread panics")
                        .insert(writer);
                    tokio::time::sleep(Duration::from_millis(5)).await;
                    if writer >= WITH_KEY {
                        if is_unknown(&error) {
                            &mut outcomes.unknown
                        } else {
                            &mut outcomes.refused
                        }
                        .insert(text);
                        break;
                    }
                }
            }
        }
    }
    outcomes
}

async fn store(
    client: &Grpc,
    request: &StoreContextRequest,
    key: Option<&str>,
) -> Result<i64, Error> {
    let mut message = tonic::Request::new(pb::StoreContextRequest::from(request.clone()));
    if let Some(key) = key {
        message.metadata_mut().insert(
            "idempotency-key",
            key.replace(' ', "-").parse().expect("ASCII"),
        );
    }
    let reply = client
        .generated()
        .store_context(message)
        .await
        .map_err(|status| context_proto::error_from_status(&status))?;
    Ok(context_model::StoreContextReply::from(reply.into_inner()).context_id)
}

async fn read(client: Grpc, shared: Arc<Shared>) -> usize {
    let mut failures = 0;
    // The first entry is never changed or deleted.
    let mut first: Option<String> = None;
    while !shared.stop.load(Ordering::SeqCst)
        || shared
            .first_read
            .lock()
            .expect("no thread panics")
            .is_none()
    {
        let promoted = shared.promoted.lock().expect("no thread panics").is_some();
        let request = GetContextByIdsRequest {
            context_ids: vec![1],
            include_images: None,
            min_revision: None,
        };
        match client.get(request).await {
            Ok(reply) => {
                let text = reply.result.into_iter().next();
                let text = text.map(|entry| entry.text_content);
                assert!(
                    first.is_none() || text == first,
                    "{text:?} was read after {first:?}"
                );
                first = text;
                if promoted {
                    assert!(first.is_some(), "the standby lacks the first entry");
                    shared.record_first(&shared.first_read);
                }
            }
            Err(error) => {
                assert!(
                    shared.crashed.load(Ordering::SeqCst),
                    "a read was refused before the crash: {error:?}"
                );
                failures += 1;
            }
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    failures
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failover_loses_no_acknowledged_write_and_needs_no_restart() {
    let Some(programs) = programs() else { return };
    let mut primary = Server::start(&programs).await;
    let standby = primary.synchronous_standby().await;
    let string = format!(
        "postgresql://postgres@{},{}/postgres?target_session_attrs=read-write",
        primary.address(),
        standby.address()
    );
    let home = Home::new()
        .with("STORAGE_BACKEND", "postgresql")
        .with("POSTGRESQL_CONNECTION_STRING", string)
        .with("LOG_LEVEL", "INFO");
    let mut service = home.start().await;

    let shared = Arc::new(Shared::default());
    let mut writers = JoinSet::new();
    for writer in 0..WRITERS {
        writers.spawn(write(Grpc::of(&home), writer, Arc::clone(&shared)));
    }
    let reader = tokio::spawn(read(Grpc::of(&home), Arc::clone(&shared)));
    wait_for("the writers write", || {
        (shared.acknowledged.load(Ordering::SeqCst) >= BEFORE).then_some(())
    })
    .await;
    shared.crashed.store(true, Ordering::SeqCst);
    primary.crash().await;
    // Writing is impossible now, and every write is rejected at once.
    wait_for("every writer is refused", || {
        let refused = shared.refused.lock().expect("no thread panics").len();
        (refused == WRITERS).then_some(())
    })
    .await;
    standby.promote().await;
    #[expect(
        clippy::disallowed_methods,
        reason = "measures the time until the first write"
    )]
    let promoted = Instant::now();
    *shared.promoted.lock().expect("no thread panicked") = Some(promoted);
    shared.stop.store(true, Ordering::SeqCst);
    let mut all = Outcomes::default();
    let ends = async {
        while let Some(outcomes) = writers.join_next().await {
            let mut outcomes = outcomes.expect("a writer does not panic");
            all.acknowledged.append(&mut outcomes.acknowledged);
            all.refused.append(&mut outcomes.refused);
            all.unknown.append(&mut outcomes.unknown);
        }
        reader.await.expect("the reader does not panic")
    };
    let ended = tokio::time::timeout(Duration::from_secs(60), ends).await;
    let failed_reads =
        ended.unwrap_or_else(|_| panic!("every caller gets a reply again: {}", service.log()));
    assert!(
        service.is_running(),
        "the service needs no restart: {}",
        service.log()
    );

    check(&standby, &all).await;
    let first = |first: &Mutex<Option<Duration>>| {
        first
            .lock()
            .expect("no thread panics")
            .expect("an operation succeeded after the promotion")
    };
    let (written, read) = (first(&shared.first_write), first(&shared.first_read));
    eprintln!(
        "{} acknowledged writes, 0 lost; {} refused, {} of unknown outcome; {failed_reads} reads refused; \
         first write {written:?} and first read {read:?} after the promotion",
        all.acknowledged.len(),
        all.refused.len(),
        all.unknown.len()
    );
    assert!(
        written < LIMIT && read < LIMIT,
        "the service works again in time: {written:?}, {read:?}"
    );
    assert!(
        service.log().contains("PostgreSQL responds again"),
        "the circuit closes: {}",
        service.log()
    );
    assert!(service.terminate().await.success());
}

/// Compares the content of the new primary with the outcomes that the writers received.
async fn check(standby: &Server, outcomes: &Outcomes) {
    let client = standby.connect().await;
    let rows = client
        .query("SELECT id, text FROM context.entries", &[])
        .await
        .expect("the entries are read");
    let stored: BTreeMap<i64, String> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
    let lost: Vec<_> = outcomes
        .acknowledged
        .iter()
        .filter(|(text, id)| stored.get(id) != Some(*text))
        .collect();
    assert!(
        lost.is_empty(),
        "{} acknowledged writes are lost or different: {lost:?}",
        lost.len()
    );
    let texts: BTreeSet<&String> = stored.values().collect();
    assert_eq!(texts.len(), stored.len(), "nothing was stored twice");
    let back: Vec<_> = outcomes
        .refused
        .iter()
        .filter(|text| texts.contains(text))
        .collect();
    assert!(back.is_empty(), "refused, but stored: {back:?}");
    let sent: BTreeSet<&String> = outcomes
        .acknowledged
        .keys()
        .chain(&outcomes.unknown)
        .collect();
    let unexpected: Vec<_> = texts.difference(&sent).collect();
    assert!(
        unexpected.is_empty(),
        "stored, but never sent by a writer: {unexpected:?}"
    );
    let sums = "SELECT count(*), min(revision), max(revision), (SELECT revision FROM context.owners) FROM context.changes";
    let row = client
        .query_one(sums, &[])
        .await
        .expect("the changes are counted");
    let all = i64::try_from(stored.len()).expect("few");
    assert_eq!(
        (row.get::<_, i64>(0), row.get(1), row.get(2), row.get(3)),
        (all, 1_i64, all, all),
        "revisions without a gap"
    );
}
