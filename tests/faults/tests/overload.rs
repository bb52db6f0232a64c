//! More writes than the disk can take: they are rejected at once with bounded memory, and accepted when the disk works
//! again.

use std::collections::BTreeSet;

use context_faults::audit::audit;
use context_faults::blocker::Blocker;
use context_faults::client::{Client as _, Grpc};
use context_faults::content::Content;
use context_model::{Reason, StoreContextRequest};
use context_test_support::http::Request;
use context_test_support::{Home, wait_for};
use serde_json::json;
use tokio::task::JoinSet;

/// A service whose queue takes this many writes. They may wait for ten minutes.
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
    let client = Grpc::of(&home);
    client
        .store(Content::new(1, 0, 0, "before").request())
        .await
        .expect("it works");

    let blocker = Blocker::hold(&home.database());
    let mut requests = JoinSet::new();
    for serial in 0..REQUESTS {
        let client = client.clone();
        requests.spawn(async move {
            let content = Content::new(0, serial, 0, "overload");
            (content.text.clone(), client.store(content.request()).await)
        });
    }
    // Writes taken by the writer or queued have no reply yet. All others are rejected in the meantime.
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

    // While writes are rejected, reads continue, REST returns the same error, and the service reports that it can serve
    // reads.
    assert_eq!(client.everything().await.expect("reads go on").len(), 1);
    let body = json!(Content::new(2, 0, 0, "overload").request());
    let reply = Request::post(service.address(), "/v1/contexts", &body)
        .send()
        .await;
    assert_eq!(reply.status, 503, "{}", reply.body);
    assert_eq!(reply.reason(), Reason::Overloaded.as_str());
    assert!(
        reply
            .header("retry-after")
            .is_some_and(|seconds| seconds.parse::<u32>().is_ok()),
        "{:?}",
        reply.headers
    );
    let status = client
        .generated()
        .store_context(context_proto::v1::StoreContextRequest::from(
            Content::new(2, 1, 0, "overload").request(),
        ))
        .await
        .expect_err("the queue is full");
    assert_eq!(status.code(), tonic::Code::Unavailable);
    let ready = Request::get(service.address(), "/readyz").send().await;
    assert_eq!(ready.status, 200, "{}", ready.body);

    drop(blocker);
    let mut stored = BTreeSet::new();
    while let Some(outcome) = requests.join_next().await {
        match outcome.expect("no panic") {
            (text, Ok(_)) => _ = stored.insert(text),
            (text, Err(error)) => check(text, error),
        }
    }
    assert!(!stored.is_empty(), "what was queued is stored in the end");
    client
        .store(Content::new(1, 1, 0, "after").request())
        .await
        .expect("the service recovered");
    let texts: BTreeSet<String> = client
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
    let client = Grpc::of(&home);
    client
        .store(Content::new(1, 0, 0, "before").request())
        .await
        .expect("it works");
    let before = service.resident_kib();

    let blocker = Blocker::hold(&home.database());
    let mut requests = JoinSet::new();
    for serial in 0..REQUESTS {
        let client = client.clone();
        requests.spawn(async move {
            let text = format!("{serial} {}", "x".repeat(MEGABYTE - 10));
            let request = StoreContextRequest {
                thread_id: "big".into(),
                source: "user".into(),
                text,
                ..StoreContextRequest::default()
            };
            client.store(request).await.map(|reply| reply.context_id)
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
        highest = highest.max(service.resident_kib());
    }
    drop(blocker);
    while let Some(outcome) = requests.join_next().await {
        highest = highest.max(service.resident_kib());
        if let Err(error) = outcome.expect("no panic") {
            assert_eq!(error.reason, Reason::Overloaded, "{error:?}");
        }
    }
    eprintln!("{before} KiB before, {highest} KiB at most");
    assert!(
        highest < before + 400_000,
        "64 MB of requests took {} KiB",
        highest - before
    );
    client
        .store(Content::new(1, 1, 0, "after").request())
        .await
        .expect("the service recovered");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_outlives_thousands_of_refusals() {
    // The rest of a rejected request arrives afterwards, which the HTTP/2 library counts as a fault of the client.
    let home = home(10_000)
        .with("CONTEXT_REQUEST_MEMORY_MB", "64")
        .with("MAX_TOTAL_SIZE_MB", "10");
    let service = home.start().await;
    let client = Grpc::of(&home);
    let blocker = Blocker::hold(&home.database());
    let text = "x".repeat(1_000_000);
    for round in 0..10 {
        let mut requests = JoinSet::new();
        for _ in 0..200 {
            let (client, text) = (client.clone(), text.clone());
            let request = StoreContextRequest {
                thread_id: "big".into(),
                source: "user".into(),
                text,
                ..StoreContextRequest::default()
            };
            requests.spawn(async move { client.store(request).await });
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
    client
        .store(Content::new(1, 1, 0, "after").request())
        .await
        .expect("the service recovered");
    assert!(service.terminate().await.success());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopping_service_finishes_what_is_queued() {
    let home = home(1000);
    let mut service = home.start().await;
    let client = Grpc::of(&home);
    client
        .store(Content::new(1, 0, 0, "before").request())
        .await
        .expect("it works");
    let blocker = Blocker::hold(&home.database());
    let mut requests = JoinSet::new();
    // The writer takes everything that is queued at once, so the number of writes left in the queue varies. Writes are
    // sent until enough are queued.
    let queued = async {
        for serial in 0..1000 {
            let storing = client.clone();
            requests.spawn(async move {
                storing
                    .store(Content::new(0, serial, 0, "draining").request())
                    .await
            });
            let metrics = client
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
        Grpc::of(&home).everything().await.expect("entries").len(),
        stored + 1,
        "the acknowledged ones, and no other"
    );
    assert!(stored >= 20, "what was queued was finished: {stored}");
    drop(restarted);
}
