//! Many gateways on one database share one service. They start it, survive its death and let it end when no longer
//! needed.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use context_faults::audit::audit;
use context_faults::client::{Client as _, Grpc};
use context_faults::ledger::Ledger;
use context_faults::load::{Load, Signals, nothing_wrong, settle};
use context_test_support::{Home, Mcp, Random, Sweep, seed, services_of, wait_for};
use rustix::process::{Signal, kill_process};
use serde_json::json;
use tokio::task::JoinSet;

const GATEWAYS: usize = 8;
const WRITERS: usize = 25;
const ENTRIES: usize = 2;

/// Whether a message shows a conflict over the database.
fn is_busy(message: &str) -> bool {
    let message = message.to_ascii_lowercase();
    message.contains("busy") || message.contains("locked")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn eight_gateways_with_25_writers_each_share_one_service() {
    let home = Home::new().with("CONTEXT_IDLE_EXIT_SECONDS", "1");
    let _sweep = Sweep(home.database());
    let mut starting = JoinSet::new();
    let home = Arc::new(home);
    for _ in 0..GATEWAYS {
        let home = Arc::clone(&home);
        starting.spawn(async move { Mcp::start(home.command("context-gateway")).await });
    }
    let gateways: Vec<Arc<Mcp>> = starting
        .join_all()
        .await
        .into_iter()
        .map(Arc::new)
        .collect();

    // All at once, so that eight first calls find no service.
    let mut writers = JoinSet::new();
    for (number, gateway) in gateways.iter().enumerate() {
        for writer in 0..WRITERS {
            let gateway = Arc::clone(gateway);
            writers.spawn(async move {
                for entry in 0..ENTRIES {
                    let text = format!("entry {entry} of writer {writer} behind gateway {number}");
                    let entry = json!({ "thread_id": format!("g{number}"), "source": "agent", "text": text, "tags": ["gateways"] });
                    let outcome = gateway.call("store_context", entry).await;
                    let problem = outcome.as_ref().err().cloned().unwrap_or_default();
                    assert!(!is_busy(&problem), "{problem}");
                    assert_eq!(outcome.expect("it is stored")["success"], true);
                }
            });
        }
    }
    writers.join_all().await;
    assert_eq!(
        services_of(&home.database()).len(),
        1,
        "exactly one service"
    );
    let total = GATEWAYS * WRITERS * ENTRIES;
    let stored = Grpc::of(&home).everything().await.expect("entries");
    assert_eq!(stored.len(), total);
    let texts: std::collections::BTreeSet<&String> =
        stored.values().map(|entry| &entry.text_content).collect();
    assert_eq!(texts.len(), total, "each once");

    // The service is killed. The next call starts it again.
    let [killed] = services_of(&home.database())[..] else {
        panic!("one service")
    };
    kill_process(killed, Signal::KILL).expect("it runs");
    wait_for("the service is gone", || {
        (!services_of(&home.database()).contains(&killed)).then_some(())
    })
    .await;
    let mut calls = JoinSet::new();
    for gateway in &gateways {
        let gateway = Arc::clone(gateway);
        calls.spawn(async move { gateway.call("get_statistics", json!({})).await });
    }
    for outcome in calls.join_all().await {
        assert_eq!(
            outcome.expect("the next call works")["total_entries"],
            total
        );
    }
    assert_eq!(
        services_of(&home.database()).len(),
        1,
        "exactly one service again"
    );

    for gateway in gateways {
        let gateway = Arc::into_inner(gateway).expect("no call is in flight");
        assert!(
            gateway.leave().await.success(),
            "a gateway ends with its client"
        );
    }
    wait_for("the service ends when no client needs it", || {
        services_of(&home.database()).is_empty().then_some(())
    })
    .await;
    let log = home.database().with_extension("db-wal");
    assert!(
        std::fs::metadata(log).map_or(0, |log| log.len()) == 0,
        "it moved its log into the database"
    );
    assert_eq!(audit(&home.database()), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_started_by_hand_takes_over_from_a_gateways() {
    let home = Home::new();
    let _sweep = Sweep(home.database());
    let gateway = Mcp::start(home.command("context-gateway")).await;
    let entry = json!({ "thread_id": "t", "source": "user", "text": "stored before the takeover" });
    gateway
        .call("store_context", entry)
        .await
        .expect("it is stored");
    let automatic = services_of(&home.database());
    assert_eq!(automatic.len(), 1);

    // Writers are active all the time. From the takeover on some may be rejected, but everything acknowledged must
    // remain.
    let signals = Arc::new(Signals::default());
    let ledgers = (0..4).map(Ledger::new).collect();
    let load = Load::start(ledgers, &Random::new(seed()), &signals, |_| Grpc::of(&home));
    signals.acknowledged(30, &load).await;
    signals.fault.store(true, Ordering::SeqCst);
    let by_hand = home.start().await;
    signals.stop.store(true, Ordering::SeqCst);
    let mut ledgers = load.finish().await;

    wait_for("one service is left", || {
        (services_of(&home.database()) == [by_hand.pid()]).then_some(())
    })
    .await;
    let found = gateway
        .call("search_context", json!({ "thread_id": "t" }))
        .await
        .expect("the gateway found the new service");
    assert_eq!(found["count"], 1, "{found}");
    let request = context_model::DeleteContextRequest {
        context_ids: None,
        thread_id: Some("t".into()),
    };
    Grpc::of(&home).delete(request).await.expect("deleted");
    nothing_wrong(
        &settle(&Grpc::of(&home), &mut ledgers).await,
        "after the takeover",
    );
    assert!(by_hand.terminate().await.success());
    assert_eq!(audit(&home.database()), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_service_started_by_hand_is_refused_with_a_sentence() {
    let home = Home::new();
    let first = home.start().await;
    let mut second = home.spawn();
    assert!(!second.ended().await.success());
    let log = second.log();
    assert!(
        log.contains("is held by process") && log.contains("started by hand"),
        "{log}"
    );
    assert!(
        log.contains(&first.pid().as_raw_nonzero().to_string()),
        "it names the process: {log}"
    );
    Grpc::of(&home)
        .statistics()
        .await
        .expect("the first one is unharmed");
}

/// The resources of which the gateway has notified, as soon as there are so many.
async fn updated(gateway: &Mcp, count: usize) -> std::collections::BTreeSet<String> {
    let mut uris = std::collections::BTreeSet::new();
    wait_for("notifications", || {
        let updates = gateway.notifications().into_iter();
        let updates = updates.filter(|one| one["method"] == "notifications/resources/updated");
        uris.extend(updates.map(|one| one["params"]["uri"].as_str().expect("a URI").to_owned()));
        (uris.len() >= count).then_some(())
    })
    .await;
    uris
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_announces_what_another_one_changes_also_after_the_service_was_killed() {
    let home = Home::new();
    let _sweep = Sweep(home.database());
    let reader = Mcp::start(home.command("context-gateway")).await;
    let writer = Mcp::start(home.command("context-gateway")).await;
    let thread = "context://threads/plans%20of%20a%2Fb";
    let subscribed = reader
        .request("resources/subscribe", json!({ "uri": thread }))
        .await;
    assert!(subscribed["result"].is_object(), "{subscribed}");
    for text in ["before", "after the service was killed"] {
        let entry = json!({"thread_id": "plans of a/b", "source": "agent", "text": text});
        let stored = writer.call("store_context", entry).await.expect("stored");
        let entry = format!("context://entries/{}", stored["context_id"]);
        assert_eq!(updated(&reader, 1).await, [thread.to_owned()].into());
        let subscribed = reader
            .request("resources/subscribe", json!({ "uri": entry }))
            .await;
        assert!(subscribed["result"].is_object(), "{subscribed}");
        let change = json!({"context_id": stored["context_id"], "tags": ["changed"]});
        writer
            .call("update_context", change)
            .await
            .expect("changed");
        assert_eq!(updated(&reader, 2).await, [thread.to_owned(), entry].into());
        let read = reader
            .request("resources/read", json!({ "uri": thread }))
            .await;
        let content = read["result"]["contents"][0]["text"].as_str();
        assert!(content.expect("a text").contains(text), "{read}");
        let service = wait_for("one service runs", || {
            match services_of(&home.database())[..] {
                [service] => Some(service),
                _ => None,
            }
        })
        .await;
        kill_process(service, Signal::KILL).expect("it runs");
        // A read is repeated on a new connection, a write is not.
        writer
            .call("get_statistics", json!({}))
            .await
            .expect("the service was started again");
    }
    for gateway in [reader, writer] {
        assert!(gateway.leave().await.success());
    }
}
