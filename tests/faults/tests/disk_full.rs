//! Disks that fill up, become read-only or fail while a service is running, tested over gRPC and REST.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use context_faults::audit::audit;
use context_faults::client::{Client as _, Embedded, Grpc};
use context_faults::content::Content;
use context_faults::disk::{Disk, Fault};
use context_faults::ledger::Ledger;
use context_faults::load::{Load, Signals, nothing_wrong, settle};
use context_model::Reason;
use context_service::{Running, Started, cli::Cli, config};
use context_store_sqlite::{Config, OpenError};
use context_test_support::http::Request;
use context_test_support::{Home, Process, Random, binary, rounds, seed};
use rustix::process::{Resource, Rlimit, getrlimit, prlimit};
use serde_json::json;

const WRITERS: usize = 8;

/// A service inside this process, so that its disk can be made to fail.
async fn start(directory: &Path) -> Running {
    let flag = |name: &str, file: &str| format!("--{name}={}", directory.join(file).display());
    let arguments = [
        "context-service".to_owned(),
        "--listen=127.0.0.1:0".to_owned(),
        flag("db-path", "contexts.db"),
        flag("socket", "s.sock"),
    ];
    let cli: Cli = config::read(arguments.map(Into::into), &|_| None)
        .unwrap_or_else(|error| panic!("{}", error.text));
    match context_service::start(&cli.config).await {
        Ok(Started::Running(service)) => service,
        Ok(Started::ServedByAnother) => panic!("no other service uses a new directory"),
        Err(error) => panic!("{error}"),
    }
}

fn content(serial: u64) -> Content {
    Content::new(WRITERS, serial, 0, "by hand")
}

/// The expected reply to writes during a fault.
struct Expected {
    fault: Fault,
    reason: Reason,
    code: tonic::Code,
    status: u16,
}

async fn assert_refused(expected: &Expected, client: &Grpc, address: std::net::SocketAddr) {
    let error = client
        .store(content(0).request())
        .await
        .expect_err("nothing can be stored");
    assert_eq!(
        error.reason, expected.reason,
        "{:?}: {error:?}",
        expected.fault
    );
    assert!(
        error.message.len() > 20 && !error.message.contains("SQL"),
        "a sentence: {}",
        error.message
    );
    let status = client
        .generated()
        .store_context(context_proto::v1::StoreContextRequest::from(
            content(0).request(),
        ))
        .await
        .expect_err("as above");
    assert_eq!(
        status.code(),
        expected.code,
        "{:?}: {status:?}",
        expected.fault
    );
    let body = json!(content(0).request());
    let reply = Request::post(address, "/v1/contexts", &body).send().await;
    assert_eq!(
        reply.status, expected.status,
        "{:?}: {}",
        expected.fault, reply.body
    );
    assert_eq!(
        reply.header("content-type"),
        Some("application/problem+json"),
        "{:?}",
        reply.headers
    );
    assert!(
        reply.body.contains(expected.reason.as_str()),
        "{}",
        reply.body
    );
}

async fn service_survives(expected: Expected) {
    let random = Random::new(seed());
    let directory = tempfile::tempdir().expect("a directory");
    let disk = Disk::attach(directory.path());
    let service = start(directory.path()).await;
    let (stop, address) = (service.stop(), service.address().expect("an address"));
    let client = Grpc::at(service.socket());
    let running = tokio::spawn(service.run());
    let mut ledgers: Vec<Ledger> = (0..WRITERS).map(Ledger::new).collect();
    for round in 0..rounds("CONTEXT_FAULTS_FULL_DISKS", 3) {
        let mut random = random.part(round as u64);
        let signals = Arc::new(Signals::default());
        let load = Load::start(ledgers, &random, &signals, |_| client.clone());
        signals.acknowledged(50 + random.below(200), &load).await;
        signals.fault.store(true, Ordering::SeqCst);
        disk.set_fault(expected.fault);
        ledgers = load.finish().await;

        assert_refused(&expected, &client, address).await;
        let during = settle(&client, &mut ledgers).await;
        nothing_wrong(
            &during,
            &format!(
                "{:?}, round {round}: reads while the disk fails",
                expected.fault
            ),
        );
        disk.set_fault(Fault::None);
        nothing_wrong(
            &settle(&client, &mut ledgers).await,
            &format!("{:?}, round {round}: reads afterwards", expected.fault),
        );
        let id = client
            .store(content(round as u64 + 1).request())
            .await
            .expect("writes succeed when there is room")
            .context_id;
        let request = context_model::DeleteContextRequest {
            context_ids: Some(vec![id]),
            thread_id: None,
        };
        assert_eq!(
            client
                .delete(request)
                .await
                .expect("deleting works too")
                .deleted_count,
            1
        );
    }
    stop.cancel();
    running.await.expect("the service stops");
    nothing_wrong(&audit(&directory.path().join("contexts.db")), "in the file");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_refuses_writes_serves_reads_and_recovers() {
    service_survives(Expected {
        fault: Fault::Full,
        reason: Reason::StorageFull,
        code: tonic::Code::ResourceExhausted,
        status: 507,
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_read_only_disk_refuses_writes_serves_reads_and_recovers() {
    service_survives(Expected {
        fault: Fault::ReadOnly,
        reason: Reason::StorageReadOnly,
        code: tonic::Code::ResourceExhausted,
        status: 507,
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disk_whose_writes_fail_refuses_writes_serves_reads_and_recovers() {
    service_survives(Expected {
        fault: Fault::WriteError,
        reason: Reason::StoreUnavailable,
        code: tonic::Code::Unavailable,
        status: 503,
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disk_whose_syncs_fail_acknowledges_nothing_and_recovers() {
    service_survives(Expected {
        fault: Fault::SyncError,
        reason: Reason::StoreUnavailable,
        code: tonic::Code::Unavailable,
        status: 503,
    })
    .await;
}

/// A command that runs a service on a file system of its own with 6 MB. A script fills the file system, whose directory
/// is `$1`, first. `None` where mounting is not allowed.
fn on_a_small_file_system(home: &Home, fill: &str) -> Option<Command> {
    let script = format!("mount -t tmpfs -o size=6m tmpfs \"$1\" && {fill} && exec \"$0\"");
    let small = home.path().join("small");
    std::fs::create_dir(&small).expect("a directory");
    let mut command = home.command_at(Path::new("unshare"));
    command
        .args(["--user", "--map-root-user", "--mount", "sh", "-c", &script])
        .arg(binary("context-service"))
        .arg(&small);
    command.env("DB_PATH", small.join("contexts.db"));
    // The mount ends with the namespace of this command.
    if !Command::new("unshare")
        .args(["--user", "--map-root-user", "--mount"])
        .args(["mount", "-t", "tmpfs", "tmpfs"])
        .arg(&small)
        .status()
        .is_ok_and(|status| status.success())
    {
        eprintln!("SKIPPED: unshare may not mount a file system here");
        return None;
    }
    Some(command)
}

/// Stores entries until the service refuses one for this reason, checks that all are there, makes room, and stores one
/// more.
async fn process_survives(
    home: &Home,
    mut service: Process,
    reason: Reason,
    make_room: impl FnOnce(&Process),
) {
    let client = Grpc::of(home);
    let mut stored = Vec::new();
    let error = loop {
        let content = Content {
            images: Vec::new(),
            ..content(stored.len() as u64 + 1)
        };
        match client.store(content.request()).await {
            Ok(reply) => stored.push((reply.context_id, content)),
            Err(error) => break error,
        }
        assert!(stored.len() < 5000, "there is no room for that many");
    };
    assert_eq!(error.reason, reason, "{error:?}");
    assert!(!stored.is_empty(), "there is room for the first entries");
    let check = async || {
        let found = client.everything().await.expect("reads go on");
        assert!(stored.iter().all(|(id, content)| {
            found
                .get(id)
                .is_some_and(|entry| Content::from(entry.clone()) == *content)
        }));
        found.len()
    };
    assert_eq!(check().await, stored.len());
    assert!(service.is_running());

    make_room(&service);
    client
        .store(content(0).request())
        .await
        .expect("writes succeed when there is room");
    assert_eq!(check().await, stored.len() + 1);
    assert!(service.terminate().await.success());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_system_that_really_fills_up_refuses_writes_serves_reads_and_recovers() {
    let home = Home::new();
    let fill = "head -c 3000000 /dev/zero >\"$1/ballast\"";
    let Some(command) = on_a_small_file_system(&home, fill) else {
        return;
    };
    let mut service = home.spawn_as(command);
    service.ready().await;
    process_survives(&home, service, Reason::StorageFull, |service| {
        let ballast = format!(
            "/proc/{}/root{}",
            service.pid().as_raw_nonzero(),
            home.path().join("small/ballast").display()
        );
        std::fs::remove_file(ballast).expect("the ballast file is removed");
    })
    .await;
}

/// Unlike the test above it runs everywhere. The error of the system is another one, which SQLite does not call "full".
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_that_may_not_grow_refuse_writes_serve_reads_and_recover() {
    let home = Home::new();
    let mut command = home.command_at(Path::new("sh"));
    // The signal would end the process. A shell's ignored signals stay ignored.
    command
        .args(["-c", "trap '' XFSZ && exec \"$0\""])
        .arg(binary("context-service"));
    let mut service = home.spawn_as(command);
    service.ready().await;
    let database = home.database();
    let sizes = [database.clone(), database.with_extension("db-wal")]
        .map(|file| std::fs::metadata(file).map_or(0, |file| file.len()));
    let unlimited = getrlimit(Resource::Fsize);
    let limit = |service: &Process, limit: Rlimit| {
        prlimit(Some(service.pid()), Resource::Fsize, limit).expect("a child may be limited");
    };
    let bytes = sizes[0].max(sizes[1]) + 1024 * 1024;
    let limited = Rlimit {
        current: Some(bytes),
        maximum: unlimited.maximum,
    };
    limit(&service, limited);
    process_survives(&home, service, Reason::StoreUnavailable, |service| {
        limit(service, unlimited);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_on_a_file_system_without_any_room_is_refused_with_a_sentence() {
    let home = Home::new();
    assert!(home.start().await.terminate().await.success());
    let fill = "cp \"$2\" \"$1/contexts.db\" && ! cat /dev/zero >\"$1/ballast\"";
    let Some(mut command) = on_a_small_file_system(&home, fill) else {
        return;
    };
    command.arg(home.database());
    let mut service = home.spawn_as(command);
    assert!(!service.ended().await.success());
    let log = service.log();
    assert!(
        log.contains("is full; free some space and start again"),
        "{log}"
    );
}

#[tokio::test]
async fn a_new_database_on_a_full_disk_is_refused_with_a_sentence() {
    let directory = tempfile::tempdir().expect("a directory");
    let disk = Disk::attach(directory.path());
    disk.set_fault(Fault::Full);
    let error = Embedded::open(Config::new(directory.path().join("contexts.db")))
        .expect_err("there is no room");
    assert!(matches!(error, OpenError::Full { .. }), "{error}");
    disk.set_fault(Fault::None);
    let store = Embedded::open(Config::new(directory.path().join("contexts.db")))
        .expect("there is room now");
    store.store(content(1).request()).await.expect("it works");
    store.close().await;
}

/// On this disk there is room for SQLite's shared memory file, but not for a change.
#[tokio::test]
async fn an_existing_database_on_a_full_disk_can_still_be_read() {
    let directory = tempfile::tempdir().expect("a directory");
    let disk = Disk::attach(directory.path());
    let config = || Config::new(directory.path().join("contexts.db"));
    let store = Embedded::open(config()).expect("a new database");
    store.store(content(1).request()).await.expect("it works");
    store.close().await;

    disk.set_fault(Fault::Full);
    let store = Embedded::open(config()).expect("opening needs no room");
    assert_eq!(store.everything().await.expect("reads go on").len(), 1);
    let error = store
        .store(content(2).request())
        .await
        .expect_err("there is no room");
    assert_eq!(error.reason, Reason::StorageFull);
    store.close().await;
}
