//! More writes than the disk takes: refused at once, with bounded memory, and over when the disk works again.

use std::collections::BTreeSet;

use context_faults::audit::audit;
use context_faults::blocker::Blocker;
use context_faults::content::Content;
use context_faults::door::Door as _;
use context_faults::http;
use context_faults::process::{Home, wait_for};
use context_model::{Reason, StoreContextRequest};
use tokio::task::JoinSet;

/// A service whose queue is short and whose writes wait as long as the test likes.
fn home(queue: usize) -> Home {
    Home::new()
        .with("SQLITE_WRITE_QUEUE", queue.to_string())
        .with("SQLITE_BUSY_TIMEOUT_MS", "600000")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_queue_refuses_with_retry_after_and_recovers() {
    const QUEUE: usize = 8;
    const REQUESTS: u64 = 100;
    let home = home(QUEUE);
    let service = home.start().await;
    let door = home.door();
    door.store(Content::new(1, 0, 0, "before").request())
        .await
        .expect("it works");

    let blocker = Blocker::hold(&home.database());
    let mut requests = JoinSet::new();
    for serial in 0..REQUESTS {
        let door = door.clone();
        requests.spawn(async move {
            let content = Content::new(0, serial, 0, "overload");
            (content.text.clone(), door.store(content.request()).await)
        });
    }
    // What the writer took and what waits behind it have no answer yet; the rest is refused meanwhile.
    let mut refused = BTreeSet::new();
    let mut check = |text: String, error: context_model::Error| {
        assert_eq!(error.reason, Reason::Overloaded, "{error:?}");
        assert!(error.retry_after.is_some(), "{error:?}");
        refused.insert(text);
    };
    let full_queues = 2 * QUEUE + 1;
    for _ in full_queues..usize::try_from(REQUESTS).expect("a small number") {
        let (text, outcome) = requests
            .join_next()
            .await
            .expect("requests")
            .expect("no panic");
        check(text, outcome.expect_err("the writer is stopped"));
    }

    // While writes are refused: reads go on, REST says the same, the service reports ready to read.
    assert_eq!(door.everything().await.expect("reads go on").len(), 1);
    let body = serde_json::to_string(&Content::new(2, 0, 0, "overload").request()).expect("JSON");
    let reply = http::request(service.address(), "POST", "/v1/contexts", &body)
        .await
        .expect("a reply");
    assert_eq!(reply.status, 503, "{}", reply.body);
    assert!(
        reply
            .header("retry-after")
            .is_some_and(|seconds| seconds.parse::<u32>().is_ok()),
        "{}",
        reply.head
    );
    let status = door
        .client()
        .store_context(context_proto::v1::StoreContextRequest::from(
            Content::new(2, 1, 0, "overload").request(),
        ))
        .await
        .expect_err("the queue is full");
    assert_eq!(status.code(), tonic::Code::Unavailable);

    drop(blocker);
    let mut stored = BTreeSet::new();
    while let Some(outcome) = requests.join_next().await {
        match outcome.expect("no panic") {
            (text, Ok(_)) => _ = stored.insert(text),
            (text, Err(error)) => check(text, error),
        }
    }
    assert!(!stored.is_empty(), "what was queued is stored in the end");
    door.store(Content::new(1, 1, 0, "after").request())
        .await
        .expect("the service recovered");
    let texts: BTreeSet<String> = door
        .everything()
        .await
        .expect("entries")
        .into_values()
        .map(|entry| entry.text_content)
        .collect();
    assert!(
        stored.is_subset(&texts),
        "every acknowledged entry is there"
    );
    assert!(refused.is_disjoint(&texts), "no refused entry is there");
    assert!(service.terminate().await.success());
    assert_eq!(audit(&home.database()), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_stays_bounded_while_large_writes_pile_up() {
    const REQUESTS: u64 = 300;
    const MEGABYTE: usize = 1_000_000;
    let home = home(10_000)
        .with("CONTEXT_REQUEST_MEMORY_MB", "64")
        .with("MAX_TOTAL_SIZE_MB", "10");
    let service = home.start().await;
    let door = home.door();
    door.store(Content::new(1, 0, 0, "before").request())
        .await
        .expect("it works");
    let before = service.resident_kb();

    let blocker = Blocker::hold(&home.database());
    let mut requests = JoinSet::new();
    for serial in 0..REQUESTS {
        let door = door.clone();
        requests.spawn(async move {
            let text = format!("{serial} {}", "x".repeat(MEGABYTE - 10));
            let request = StoreContextRequest {
                thread_id: "big".into(),
                source: "user".into(),
                text,
                ..StoreContextRequest::default()
            };
            door.store(request).await.map(|reply| reply.context_id)
        });
    }
    let mut refused = 0;
    let mut highest = before;
    while refused < REQUESTS / 2 {
        let outcome = requests
            .join_next()
            .await
            .expect("most are refused: 64 MB do not hold 300")
            .expect("no panic");
        let error = outcome.expect_err("the writer is stopped");
        assert_eq!(error.reason, Reason::Overloaded, "{error:?}");
        refused += 1;
        highest = highest.max(service.resident_kb());
    }
    drop(blocker);
    while let Some(outcome) = requests.join_next().await {
        highest = highest.max(service.resident_kb());
        if let Err(error) = outcome.expect("no panic") {
            assert_eq!(error.reason, Reason::Overloaded, "{error:?}");
        }
    }
    eprintln!("{before} KB before, {highest} KB at most");
    assert!(
        highest < before + 400_000,
        "64 MB of requests took {} KB",
        highest - before
    );
    door.store(Content::new(1, 1, 0, "after").request())
        .await
        .expect("the service recovered");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_outlives_thousands_of_refusals() {
    // What a request has sent when it is refused comes in afterwards, and counts as a fault of the client.
    let home = home(10_000)
        .with("CONTEXT_REQUEST_MEMORY_MB", "64")
        .with("MAX_TOTAL_SIZE_MB", "10");
    let service = home.start().await;
    let door = home.door();
    let blocker = Blocker::hold(&home.database());
    let text = "x".repeat(1_000_000);
    for round in 0..10 {
        let mut requests = JoinSet::new();
        for _ in 0..200 {
            let (door, text) = (door.clone(), text.clone());
            let request = StoreContextRequest {
                thread_id: "big".into(),
                source: "user".into(),
                text,
                ..StoreContextRequest::default()
            };
            requests.spawn(async move { door.store(request).await });
        }
        let mut refused = 0;
        while refused < 130 {
            let outcome = requests
                .join_next()
                .await
                .expect("64 MB do not hold 200")
                .expect("no panic");
            let error = outcome.expect_err("the writer is stopped");
            assert_eq!(error.reason, Reason::Overloaded, "round {round}: {error:?}");
            refused += 1;
        }
    }
    drop(blocker);
    door.store(Content::new(1, 1, 0, "after").request())
        .await
        .expect("the service recovered");
    assert!(service.terminate().await.success());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopping_service_finishes_what_is_queued() {
    let home = home(1000);
    let mut service = home.start().await;
    let door = home.door();
    door.store(Content::new(1, 0, 0, "before").request())
        .await
        .expect("it works");
    let blocker = Blocker::hold(&home.database());
    let mut requests = JoinSet::new();
    // The writer takes all that waits at once, so how many stay in the queue behind it depends on the moment: send
    // until enough do.
    let queued = async {
        for serial in 0..1000 {
            let storing = door.clone();
            requests.spawn(async move {
                storing
                    .store(Content::new(0, serial, 0, "draining").request())
                    .await
            });
            let metrics = door
                .statistics()
                .await
                .expect("statistics")
                .connection_metrics
                .expect("without keys they are shown");
            if metrics.queued_writes >= 20 {
                return;
            }
        }
        panic!("1000 requests and the queue is not filled");
    };
    tokio::time::timeout(std::time::Duration::from_secs(60), queued)
        .await
        .expect("the requests are queued");
    rustix::process::kill_process(service.pid(), rustix::process::Signal::TERM)
        .expect("the service runs");
    wait_for("the service drains", || {
        (std::os::unix::net::UnixStream::connect(home.socket()).is_err()).then_some(())
    })
    .await;
    drop(blocker);
    let mut stored = 0;
    while let Some(outcome) = requests.join_next().await {
        stored += usize::from(outcome.expect("no panic").is_ok());
    }
    assert!(service.ended().await.success());
    let restarted = home.start().await;
    assert_eq!(
        home.door().everything().await.expect("entries").len(),
        stored + 1,
        "the acknowledged ones, and no other"
    );
    assert!(stored >= 20, "what was queued was finished: {stored}");
    drop(restarted);
}
