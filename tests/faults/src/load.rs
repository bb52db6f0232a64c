//! Writers that continuously store, update and delete, and record the outcomes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use context_model::{
    DeleteContextRequest, Entry, Error, Reason, StoreContextBatchRequest, StoreContextRequest,
    UpdateContextBatchRequest, UpdateContextRequest,
};
use context_test_support::Random;
use tokio::task::JoinSet;

use crate::client::Client;
use crate::content::Content;
use crate::ledger::{Acknowledged, Attempt, Ledger};

/// Approximate maximum of entries per writer. A writer with this many stores nothing and deletes more often.
const ENTRIES_PER_WRITER: usize = 20;

/// Signals between the writers and the test.
#[derive(Debug, Default)]
pub struct Signals {
    /// The fault has started. Errors are expected from now on.
    pub fault: AtomicBool,
    /// The writers must stop.
    pub stop: AtomicBool,
    /// Number of acknowledgements so far, over all writers.
    pub acknowledged: AtomicUsize,
}

impl Signals {
    /// Waits until this many writes have been acknowledged since the start, or every writer has ended.
    ///
    /// # Panics
    /// Neither happens within two minutes.
    pub async fn acknowledged(&self, count: usize, load: &Load) {
        let waiting = async {
            while self.acknowledged.load(Ordering::SeqCst) < count && !load.has_ended() {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(120), waiting)
            .await
            .expect("writes are acknowledged within two minutes");
    }
}

/// Running writers.
#[derive(Debug)]
pub struct Load {
    tasks: JoinSet<Result<Ledger, String>>,
    running: Arc<AtomicUsize>,
}

impl Load {
    /// Starts one writer per ledger, each with its own client. It writes until [`Signals::stop`] or the first error.
    pub fn start<C: Client>(
        ledgers: Vec<Ledger>,
        random: &Random,
        signals: &Arc<Signals>,
        mut client: impl FnMut(usize) -> C,
    ) -> Self {
        let mut tasks = JoinSet::new();
        let running = Arc::new(AtomicUsize::new(ledgers.len()));
        for ledger in ledgers {
            let (client, signals, running) = (
                client(ledger.writer),
                Arc::clone(signals),
                Arc::clone(&running),
            );
            let random = random.part(ledger.writer as u64);
            tasks.spawn(async move {
                let outcome = write(client, ledger, random, signals).await;
                running.fetch_sub(1, Ordering::SeqCst);
                outcome
            });
        }
        Self { tasks, running }
    }

    /// Whether all writers have ended.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.running.load(Ordering::SeqCst) == 0
    }

    /// Waits for the writers and returns their ledgers, in order.
    ///
    /// # Panics
    /// A writer received an error before the fault.
    pub async fn finish(mut self) -> Vec<Ledger> {
        let mut ledgers = Vec::new();
        while let Some(outcome) = self.tasks.join_next().await {
            match outcome.expect("a writer does not panic") {
                Ok(ledger) => ledgers.push(ledger),
                Err(problem) => panic!("{problem}"),
            }
        }
        ledgers.sort_by_key(|ledger| ledger.writer);
        ledgers
    }
}

async fn write<C: Client>(
    client: C,
    mut ledger: Ledger,
    mut random: Random,
    signals: Arc<Signals>,
) -> Result<Ledger, String> {
    while !signals.stop.load(Ordering::SeqCst) {
        let outcome = step(&client, &mut ledger, &mut random).await;
        match outcome {
            Ok(()) => {
                ledger.attempt = None;
                ledger.acknowledged += 1;
                signals.acknowledged.fetch_add(1, Ordering::SeqCst);
            }
            Err(error) if signals.fault.load(Ordering::SeqCst) => {
                // These errors guarantee that nothing was done, and the test verifies that.
                if matches!(
                    error.reason,
                    Reason::StorageFull | Reason::StorageReadOnly | Reason::Overloaded
                ) {
                    ledger.attempt = None;
                }
                break;
            }
            Err(error) => {
                return Err(format!(
                    "writer {} was refused before the fault: {error:?}",
                    ledger.writer
                ));
            }
        }
    }
    Ok(ledger)
}

/// Makes one request. The ledger records it before it is sent, and its outcome.
async fn step(client: &impl Client, ledger: &mut Ledger, random: &mut Random) -> Result<(), Error> {
    let full = ledger.entries.len() >= ENTRIES_PER_WRITER;
    match random.below(100) {
        0..30 if !full => store(client, ledger, random).await,
        30..42 if !full => store_batch(client, ledger, random).await,
        _ if ledger.entries.len() < 3 => store(client, ledger, random).await,
        42..65 => update(client, ledger, random).await,
        65..75 => update_batch(client, ledger, random).await,
        75..80 if full => delete_thread(client, ledger).await,
        _ => delete(client, ledger, random).await,
    }
}

/// Each writer uses two threads of its own and one that all writers share.
fn new_content(ledger: &mut Ledger, random: &mut Random) -> Content {
    ledger.serial += 1;
    let thread = match random.below(3) {
        0 => "shared".to_owned(),
        part => format!("thread-{}-{part}", ledger.writer),
    };
    Content::new(ledger.writer, ledger.serial, 0, &thread)
}

async fn store(
    client: &impl Client,
    ledger: &mut Ledger,
    random: &mut Random,
) -> Result<(), Error> {
    let content = new_content(ledger, random);
    ledger.attempt = Some(Attempt::Store(vec![content.clone()], true));
    let reply = client.store(content.request()).await?;
    ledger.entries.insert(
        reply.context_id,
        Acknowledged {
            content,
            version: reply.version,
        },
    );
    Ok(())
}

async fn store_batch(
    client: &impl Client,
    ledger: &mut Ledger,
    random: &mut Random,
) -> Result<(), Error> {
    let atomic = random.chance(60);
    let contents: Vec<Content> = (0..2 + random.below(6))
        .map(|_| new_content(ledger, random))
        .collect();
    ledger.attempt = Some(Attempt::Store(contents.clone(), atomic));
    let mut entries: Vec<StoreContextRequest> = contents.iter().map(Content::request).collect();
    if !atomic {
        // An item that is rejected, between items that are not.
        entries.insert(
            1,
            StoreContextRequest {
                text: " ".to_owned(),
                ..entries[0].clone()
            },
        );
    }
    let reply = client
        .store_batch(StoreContextBatchRequest {
            entries,
            atomic: Some(atomic),
        })
        .await?;
    let stored = reply
        .results
        .iter()
        .filter(|result| result.success)
        .filter_map(|result| result.context_id);
    let stored: Vec<(i64, Content)> = stored.zip(contents.iter().cloned()).collect();
    assert_eq!(
        stored.len(),
        contents.len(),
        "every good item of a batch is stored: {reply:?}"
    );
    ledger
        .entries
        .extend(stored.into_iter().map(|(id, content)| {
            (
                id,
                Acknowledged {
                    content,
                    version: 1,
                },
            )
        }));
    Ok(())
}

fn any_id(ledger: &Ledger, random: &mut Random) -> i64 {
    *ledger
        .entries
        .keys()
        .nth(random.below(ledger.entries.len()))
        .expect("a writer with entries")
}

/// The next content of an entry, and the request that produces it.
fn next_content(
    ledger: &mut Ledger,
    id: i64,
    random: &mut Random,
) -> (Content, UpdateContextRequest) {
    ledger.serial += 1;
    let known = &ledger.entries[&id];
    let source = known.content.source;
    let next = Content {
        source,
        ..Content::new(ledger.writer, ledger.serial, 1, &known.content.thread_id)
    };
    let mut request = UpdateContextRequest {
        context_id: id,
        text: Some(next.text.clone()),
        tags: Some(next.tags.clone()),
        images: Some(next.images.clone()),
        expected_version: random.chance(50).then_some(known.version),
        ..UpdateContextRequest::default()
    };
    let mut expected = next.clone();
    if random.chance(40) {
        // A patch on the stored metadata instead of a new object.
        let mut patched = known.content.metadata.clone();
        patched.insert("patched".to_owned(), ledger.serial.into());
        let mut patch = context_model::JsonObject::new();
        patch.insert("patched".to_owned(), ledger.serial.into());
        request.metadata_patch = Some(patch);
        expected.metadata = patched;
    } else {
        request.metadata = Some(next.metadata);
    }
    (expected, request)
}

async fn update(
    client: &impl Client,
    ledger: &mut Ledger,
    random: &mut Random,
) -> Result<(), Error> {
    let id = any_id(ledger, random);
    let (content, request) = next_content(ledger, id, random);
    ledger.attempt = Some(Attempt::Update(vec![(id, content.clone())], true));
    let reply = client.update(request).await?;
    ledger.entries.insert(
        id,
        Acknowledged {
            content,
            version: reply.version,
        },
    );
    Ok(())
}

async fn update_batch(
    client: &impl Client,
    ledger: &mut Ledger,
    random: &mut Random,
) -> Result<(), Error> {
    let atomic = random.chance(60);
    let mut updates = BTreeMap::new();
    for _ in 0..4 {
        let id = any_id(ledger, random);
        updates
            .entry(id)
            .or_insert_with(|| next_content(ledger, id, random));
    }
    let attempt = updates
        .iter()
        .map(|(id, (content, _))| (*id, content.clone()))
        .collect();
    ledger.attempt = Some(Attempt::Update(attempt, atomic));
    let requests = updates
        .values()
        .map(|(_, request)| request.clone())
        .collect();
    let reply = client
        .update_batch(UpdateContextBatchRequest {
            updates: requests,
            atomic: Some(atomic),
        })
        .await?;
    assert!(
        reply.success,
        "updates of the writer's own entries succeed: {reply:?}"
    );
    for (id, (content, _)) in updates {
        let version = ledger.entries[&id].version + 1;
        ledger.entries.insert(id, Acknowledged { content, version });
    }
    Ok(())
}

async fn delete(
    client: &impl Client,
    ledger: &mut Ledger,
    random: &mut Random,
) -> Result<(), Error> {
    let mut ids: Vec<i64> = (0..1 + random.below(4))
        .map(|_| any_id(ledger, random))
        .collect();
    ids.sort_unstable();
    ids.dedup();
    ledger.attempt = Some(Attempt::Delete(ids.clone()));
    let reply = client
        .delete(DeleteContextRequest {
            context_ids: Some(ids.clone()),
            thread_id: None,
        })
        .await?;
    assert_eq!(
        reply.deleted_count,
        i64::try_from(ids.len()).unwrap_or(-1),
        "each of the writer's entries exists and is deleted"
    );
    ledger.entries.retain(|id, _| !ids.contains(id));
    Ok(())
}

async fn delete_thread(client: &impl Client, ledger: &mut Ledger) -> Result<(), Error> {
    let thread = format!("thread-{}-1", ledger.writer);
    let of_thread = ledger
        .entries
        .iter()
        .filter(|(_, known)| known.content.thread_id == thread);
    let ids: Vec<i64> = of_thread.map(|(id, _)| *id).collect();
    ledger.attempt = Some(Attempt::Delete(ids.clone()));
    let reply = client
        .delete(DeleteContextRequest {
            context_ids: None,
            thread_id: Some(thread),
        })
        .await?;
    assert_eq!(
        reply.deleted_count,
        i64::try_from(ids.len()).unwrap_or(-1),
        "all entries of the thread are deleted"
    );
    ledger.entries.retain(|id, _| !ids.contains(id));
    Ok(())
}

/// Compares every ledger with the stored entries, and the counts with the entries. Returns everything that is wrong.
///
/// # Panics
/// The entries cannot be read.
pub async fn settle(client: &impl Client, ledgers: &mut [Ledger]) -> Vec<String> {
    let stored = client.everything().await.expect("every entry can be read");
    let mut wrong: Vec<String> = ledgers
        .iter_mut()
        .filter_map(|ledger| ledger.settle(&stored).err())
        .flatten()
        .collect();
    wrong.extend(
        stored
            .values()
            .filter(|entry| {
                !ledgers
                    .iter()
                    .any(|ledger| ledger.wrote(&entry.text_content))
            })
            .map(unknown_entry),
    );
    wrong.extend(miscounts(client, &stored).await);
    wrong
}

/// Asserts that nothing is wrong.
///
/// # Panics
/// Something is wrong. The message lists all of it.
pub fn nothing_wrong(wrong: &[String], when: &str) {
    assert!(
        wrong.is_empty(),
        "{when}: {} things are wrong:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

fn unknown_entry(entry: &Entry) -> String {
    format!(
        "entry {} was never sent: `{}`",
        entry.id,
        entry.text_content.chars().take(40).collect::<String>()
    )
}

/// Each count of the statistics and of the threads that differs from the number of stored entries it counts.
async fn miscounts(client: &impl Client, stored: &BTreeMap<i64, Entry>) -> Vec<String> {
    let count =
        |test: &dyn Fn(&Entry) -> bool| stored.values().filter(|entry| test(entry)).count() as i64;
    let images = |entry: &Entry| entry.images.as_ref().map_or(0, Vec::len) as i64;
    let mut wrong = Vec::new();
    let mut check = |what: &str, counted: i64, shown: i64| {
        if counted != shown {
            wrong.push(format!("{what}: {shown} shown, {counted} counted"));
        }
    };
    let statistics = client.statistics().await.expect("statistics");
    let user = |entry: &Entry| entry.source == context_model::Source::User;
    let multimodal = |entry: &Entry| images(entry) > 0;
    let tags: std::collections::BTreeSet<&String> =
        stored.values().flat_map(|entry| &entry.tags).collect();
    check(
        "total_entries",
        stored.len() as i64,
        statistics.total_entries,
    );
    check("by_source.user", count(&user), statistics.by_source.user);
    check(
        "by_source.agent",
        count(&|entry| !user(entry)),
        statistics.by_source.agent,
    );
    check(
        "by_content_type.multimodal",
        count(&multimodal),
        statistics.by_content_type.multimodal,
    );
    check(
        "by_content_type.text",
        count(&|entry| !multimodal(entry)),
        statistics.by_content_type.text,
    );
    check(
        "total_images",
        stored.values().map(images).sum(),
        statistics.total_images,
    );
    check("unique_tags", tags.len() as i64, statistics.unique_tags);

    let threads = client.threads().await.expect("threads");
    let names: std::collections::BTreeSet<&String> =
        stored.values().map(|entry| &entry.thread_id).collect();
    check("total_threads", names.len() as i64, threads.total_threads);
    // Each listed thread is compared below, so the list must have all of them, each once.
    let listed: std::collections::BTreeSet<&String> = threads
        .threads
        .iter()
        .map(|thread| &thread.thread_id)
        .collect();
    check(
        "listed threads",
        names.len() as i64,
        threads.threads.len() as i64,
    );
    check(
        "listed threads with entries",
        names.len() as i64,
        names.intersection(&listed).count() as i64,
    );
    for thread in &threads.threads {
        let of = |entry: &Entry| entry.thread_id == thread.thread_id;
        let newest = stored
            .values()
            .filter(|entry| of(entry))
            .max_by_key(|entry| (entry.created_at, entry.id))
            .map_or(0, |entry| entry.id);
        let name = &thread.thread_id;
        check(
            &format!("{name}.entry_count"),
            count(&of),
            thread.entry_count,
        );
        check(
            &format!("{name}.sources.user"),
            count(&|entry| of(entry) && user(entry)),
            thread.sources.user,
        );
        check(
            &format!("{name}.sources.agent"),
            count(&|entry| of(entry) && !user(entry)),
            thread.sources.agent,
        );
        check(
            &format!("{name}.multimodal_count"),
            count(&|entry| of(entry) && multimodal(entry)),
            thread.multimodal_count,
        );
        check(&format!("{name}.last_id"), newest, thread.last_id);
    }
    wrong
}
