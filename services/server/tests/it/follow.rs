//! `context-service follow`: a copy stays equal to its source when either restarts, and is read-only.

#![expect(
    clippy::disallowed_methods,
    reason = "measures how long a copy takes to catch up"
)]

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use context_engine::{Admin, ChangesConfig, Engine, SystemClock};
use context_proto::v1::WatchRequest;
use context_proto::v1::change_service_client::ChangeServiceClient;
use context_service::cli::Follow;
use context_service::follow::{self, Key};
use context_test_support::http::Request;
use context_test_support::{Home, Process, grpc, until};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tonic::Code;

use crate::changes::both;
use crate::process::{program, run};
use crate::service::{Service, settings};

/// A copy that runs in this process.
struct Copy {
    address: SocketAddr,
    engine: Arc<Engine>,
    stop: CancellationToken,
    task: JoinHandle<Result<(), String>>,
}

impl Copy {
    /// Follows a service without keys, as [`start`](Self::start) does.
    async fn of(source: SocketAddr, directory: &Path) -> Self {
        Self::start(source, directory, None).await.expect("a copy")
    }

    /// Follows a service with a copy in this directory. Returns when the first snapshot is complete.
    async fn start(
        source: SocketAddr,
        directory: &Path,
        key: Option<&str>,
    ) -> Result<Self, String> {
        let arguments = Follow {
            source: format!("http://{source}"),
            to: format!("sqlite://{}", directory.join("copy.db").display()),
            owner: "default".to_owned(),
        };
        let key = Key::read(&|name| key.filter(|_| name == "CONTEXT_API_KEY").map(str::to_owned))?;
        let following = follow::start(&settings(directory, &[]), &arguments, key).await?;
        Ok(Self {
            address: following.running().address().expect("an address"),
            engine: following.running().engine().clone(),
            stop: following.running().stop(),
            task: tokio::spawn(following.run()),
        })
    }

    async fn stopped(self) {
        self.stop.cancel();
        let ended = self.task.await.expect("it stops without a panic");
        assert_eq!(ended, Ok(()));
    }
}

fn empty() -> TempDir {
    tempfile::tempdir().expect("a temporary directory")
}

async fn get(address: SocketAddr, path: &str) -> Value {
    let reply = Request::get(address, path).send().await;
    assert_eq!(reply.status, 200, "{path}: {}", reply.body);
    reply.json()
}

async fn post(address: SocketAddr, path: &str, body: Value) -> Value {
    let reply = Request::post(address, path, &body).send().await;
    assert!(reply.status.is_success(), "{path}: {}", reply.body);
    reply.json()
}

async fn change(address: SocketAddr, method: &str, path: &str, body: Value) {
    let request = Request::new(method, format!("http://{address}{path}"));
    let reply = request.json(&body).send().await;
    assert!(reply.status.is_success(), "{path}: {}", reply.body);
}

async fn revision(address: SocketAddr) -> i64 {
    let reply = get(address, "/v1/threads?limit=1").await;
    reply["revision"].as_i64().expect("a revision")
}

fn items<'r>(reply: &'r Value, field: &str) -> &'r [Value] {
    reply[field].as_array().expect("a list")
}

/// Everything that a service returns about its owner: entries with images, threads, tags, artifacts with versions, the
/// ids that a search finds (scores differ between databases), and the revision.
async fn everything(address: SocketAddr) -> Value {
    let newest = post(address, "/v1/contexts/search", json!({"limit": 100})).await;
    let ids = items(&newest, "results")
        .iter()
        .map(|hit| hit["id"].as_i64().expect("an id"));
    let last = ids.max().unwrap_or(0);
    let mut entries = Vec::new();
    for first in (1..=last).step_by(100) {
        let ids: Vec<String> = (first..first + 100).map(|id| id.to_string()).collect();
        let found = get(address, &format!("/v1/contexts?ids={}", ids.join(","))).await;
        entries.extend_from_slice(items(&found, "result"));
    }
    let listed = get(address, "/v1/artifacts?limit=50").await;
    let mut artifacts = Vec::new();
    for artifact in items(&listed, "result") {
        let path = format!("/v1/artifacts/{}", artifact["id"].as_str().expect("an id"));
        let mut whole = vec![
            get(address, &path).await,
            get(address, &format!("{path}/versions")).await,
        ];
        for version in 1..=whole[0]["version"].as_i64().expect("a version") {
            whole.push(get(address, &format!("{path}/versions/{version}")).await);
        }
        artifacts.push(whole);
    }
    let statistics = get(address, "/v1/statistics").await;
    let found = |query: &str| {
        let body = json!({"query": query, "limit": 50});
        post(address, "/v1/contexts/search/fts", body)
    };
    let found = found("text").await;
    let counts = ["total_entries", "total_images", "unique_tags"];
    let counts = counts.map(|field| statistics[field].as_i64().expect("a count"));
    json!({
        "entries": entries,
        "threads": get(address, "/v1/threads").await,
        "tags": get(address, "/v1/tags?limit=1000").await,
        "artifacts": artifacts,
        "listed": listed,
        "statistics": counts,
        "found": items(&found, "results").iter().map(|hit| hit["id"].as_i64()).collect::<BTreeSet<_>>(),
    })
}

/// Waits until the copy has the source's revision, and compares both.
async fn assert_equal(copy: SocketAddr, source: SocketAddr) {
    until("the copy has the revision", async || {
        revision(copy).await == revision(source).await
    })
    .await;
    let (copied, original) = (everything(copy).await, everything(source).await);
    for (field, value) in original.as_object().expect("an object") {
        assert_eq!(copied[field], *value, "{field}");
    }
}

/// Writes something of each kind.
async fn write(source: SocketAddr, name: &str) {
    let mut ids = Vec::new();
    for n in 0..12 {
        let source_of = ["user", "agent"][n % 2];
        let entry = json!({"thread_id": format!("{name} {}", n % 3), "source": source_of,
            "text": format!("text {n} of {name}"), "metadata": {"n": n, "x": 1.0}, "tags": ["All", format!("t{n}")]});
        ids.push(post(source, "/v1/contexts", entry).await["context_id"].clone());
    }
    let image = json!({"thread_id": name, "source": "user", "text": "an image with text", "images": [
        {"data": "iVBORw0KGgo=", "metadata": {"alt": "one"}}, {"data": "/9j/4AA=", "mime_type": "image/jpeg"}]});
    let image = post(source, "/v1/contexts", image).await["context_id"].clone();
    for (id, body) in [
        (&ids[0], json!({"text": "another text"})),
        (
            &ids[1],
            json!({"tags": ["changed"], "metadata_patch": {"n": null}}),
        ),
        (
            &ids[2],
            json!({"images": [{"data": "R0lGODlh", "mime_type": "image/gif"}]}),
        ),
        (&ids[3], json!({"metadata": {"only": true}})),
        (&image, json!({"images": []})),
        (&image, json!({"images": [{"data": "iVBORw0KGgo="}]})),
    ] {
        change(source, "PATCH", &format!("/v1/contexts/{id}"), body).await;
    }
    let body = json!({"context_ids": [ids[4], ids[11]]});
    post(source, "/v1/contexts/delete", body).await;
    change(
        source,
        "POST",
        "/v1/contexts/delete",
        json!({"thread_id": format!("{name} 2")}),
    )
    .await;

    let mut artifacts = Vec::new();
    for n in 0..3 {
        let body = json!({"content": format!("content {n} of {name}"), "metadata": {"n": n}, "path": format!("{name}/{n}")});
        let id = post(source, "/v1/artifacts", body).await["id"].clone();
        artifacts.push(format!("/v1/artifacts/{}", id.as_str().expect("an id")));
    }
    for n in 0..4 {
        let body = json!({"content": format!("version {n}"), "title": format!("title {n}")});
        change(source, "PATCH", &artifacts[0], body).await;
    }
    post(
        source,
        &format!("{}/versions/2/restore", artifacts[0]),
        json!({}),
    )
    .await;
    // Two artifacts exchange their paths.
    for (artifact, path) in [(1, "away"), (2, "1"), (1, "2")] {
        let body = json!({"path": format!("{name}/{path}")});
        change(source, "PATCH", &artifacts[artifact], body).await;
    }
    let removed = json!({"content": "removed"});
    let removed = post(source, "/v1/artifacts", removed).await["id"].clone();
    let removed = format!("/v1/artifacts/{}", removed.as_str().expect("an id"));
    change(source, "DELETE", &removed, json!({})).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_is_equal_to_its_source() {
    for (source, _database) in both(&[]).await {
        let directory = empty();
        write(source.address, "before").await;
        let copy = Copy::of(source.address, directory.path()).await;
        assert_equal(copy.address, source.address).await;
        write(source.address, "live").await;
        assert_equal(copy.address, source.address).await;
        copy.stopped().await;
        // It continues where it stopped.
        write(source.address, "meanwhile").await;
        let copy = Copy::of(source.address, directory.path()).await;
        assert_equal(copy.address, source.address).await;
        copy.stopped().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_that_was_away_for_too_long_reads_everything_again() {
    for (source, _database) in both(&[]).await {
        let directory = empty();
        write(source.address, "before").await;
        let copy = Copy::of(source.address, directory.path()).await;
        assert_equal(copy.address, source.address).await;
        copy.stopped().await;

        write(source.address, "meanwhile").await;
        let body = json!({"thread_id": "before 0"});
        post(source.address, "/v1/contexts/delete", body).await;
        let body = json!({"path": "before"});
        post(source.address, "/v1/artifacts/delete", body).await;
        let retention = ChangesConfig {
            retention_days: 30,
            max_rows: 1,
        };
        tokio::select! {
            () = source.engine.background.compact(retention, &SystemClock) => {}
            () = until("all but the last change have left the feed", async || {
                let changes = get(source.address, "/v1/changes?cursor=now").await;
                changes["compacted_before"] == changes["revision"]
            }) => {}
        }
        let copy = Copy::of(source.address, directory.path()).await;
        assert_equal(copy.address, source.address).await;
        write(source.address, "after").await;
        assert_equal(copy.address, source.address).await;
        copy.stopped().await;
    }
}

/// Searches of the copy need these changes, to leave out entries that changed while they ran.
#[tokio::test(flavor = "multi_thread")]
async fn a_copy_has_the_changes_of_its_source() {
    let source = Service::start().await;
    let directory = empty();
    let copy = Copy::of(source.address, directory.path()).await;
    write(source.address, "live").await;
    assert_equal(copy.address, source.address).await;
    let audit = async |engine: &Engine| {
        let audit = Admin::Audit {
            owner: "default".to_owned(),
            from: None,
            skip: 0,
        };
        engine.access.administer(audit).await.expect("a log")
    };
    let (copied, original) = (audit(&copy.engine).await, audit(&source.engine).await);
    assert!(original.lines().count() > 30, "{original}");
    assert_eq!(copied, original);
    copy.stopped().await;
}

/// The reason of a refusal.
async fn refusal(request: Request) -> String {
    let reply = request.send().await;
    assert!(!reply.status.is_success(), "{}", reply.body);
    reply.reason()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_refuses_writes_and_watch_and_so_does_an_ordinary_service_of_it() {
    let source = Service::start().await;
    write(source.address, "before").await;
    let directory = empty();
    let copy = Copy::of(source.address, directory.path()).await;
    let artifact = get(copy.address, "/v1/artifacts?limit=1").await;
    let artifact = items(&artifact, "result")[0]["id"]
        .as_str()
        .expect("an id")
        .to_owned();
    let before = everything(copy.address).await;
    let entry = json!({"thread_id": "t", "source": "user", "text": "text"});
    let writes = [
        ("POST", "/v1/contexts".to_owned(), entry.clone()),
        (
            "POST",
            "/v1/contexts/batch".to_owned(),
            json!({"entries": [entry]}),
        ),
        (
            "PATCH",
            "/v1/contexts/1".to_owned(),
            json!({"text": "other"}),
        ),
        (
            "PATCH",
            "/v1/contexts/batch".to_owned(),
            json!({"updates": [{"context_id": 1, "text": "other"}]}),
        ),
        ("DELETE", "/v1/contexts/1".to_owned(), json!({})),
        (
            "POST",
            "/v1/contexts/delete".to_owned(),
            json!({"context_ids": [1]}),
        ),
        (
            "POST",
            "/v1/contexts/batch-delete".to_owned(),
            json!({"thread_ids": ["before 0"]}),
        ),
        (
            "POST",
            "/v1/artifacts".to_owned(),
            json!({"content": "new"}),
        ),
        (
            "PATCH",
            format!("/v1/artifacts/{artifact}"),
            json!({"content": "new"}),
        ),
        ("DELETE", format!("/v1/artifacts/{artifact}"), json!({})),
        (
            "POST",
            format!("/v1/artifacts/{artifact}/versions/1/restore"),
            json!({}),
        ),
        (
            "POST",
            "/v1/artifacts/move".to_owned(),
            json!({"path": "before", "to": "after"}),
        ),
        (
            "POST",
            "/v1/artifacts/delete".to_owned(),
            json!({"path": "before"}),
        ),
    ];
    let refuses_all = async |address: SocketAddr| {
        for (method, path, body) in &writes {
            let request = Request::new(method, format!("http://{address}{path}")).json(body);
            assert_eq!(
                refusal(request).await,
                "STORAGE_READ_ONLY",
                "{method} {path}"
            );
        }
        for path in [
            "/v1/changes",
            "/v1/changes?cursor=now&wait_ms=1000",
            "/v1/watch",
        ] {
            let request = Request::get(address, path);
            assert_eq!(refusal(request).await, "FEATURE_UNAVAILABLE", "{path}");
        }
        let mut client = ChangeServiceClient::new(grpc::at(address));
        let refused = client.watch(WatchRequest::default()).await;
        let refused = refused.expect_err("a copy is not followed");
        assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
        assert!(everything(address).await == before);
    };
    refuses_all(copy.address).await;
    let follows = Copy::start(copy.address, empty().path(), None).await;
    let why = follows.err().expect("a copy is not followed");
    assert!(why.contains("follow the service that it copies"), "{why}");
    copy.stopped().await;

    let file = format!("--db-path={}", directory.path().join("copy.db").display());
    let ordinary = Service::start_with(&[&file]).await;
    refuses_all(ordinary.address).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_entry_whose_image_is_damaged_at_the_source_is_left_out() {
    const IMAGE: &[u8] = b"image to damage!";
    let entry = |text: &str| json!({"thread_id": "t", "source": "user", "text": text});
    let home = Home::new();
    let source = home.start().await;
    let mut damaged = entry("damaged");
    damaged["images"] = json!([{"data": "aW1hZ2UgdG8gZGFtYWdlIQ=="}]);
    let id = post(source.address(), "/v1/contexts", damaged).await["context_id"].clone();
    post(source.address(), "/v1/contexts", entry("sound")).await;
    assert!(source.terminate().await.success());
    let mut file = std::fs::read(home.database()).expect("the database");
    let places: Vec<usize> = file
        .windows(IMAGE.len())
        .enumerate()
        .filter(|(_, bytes)| *bytes == IMAGE)
        .map(|(place, _)| place)
        .collect();
    assert!(!places.is_empty(), "the file has the image");
    for place in places {
        file[place] ^= 1;
    }
    std::fs::write(home.database(), file).expect("the damaged database");

    let source = home.start().await;
    let whole = Request::get(source.address(), &format!("/v1/contexts/{id}"));
    assert_eq!(refusal(whole).await, "STORAGE_CORRUPT");
    let directory = empty();
    let copy = Copy::of(source.address(), directory.path()).await;
    post(source.address(), "/v1/contexts", entry("later")).await;
    until("the copy has the revision", async || {
        revision(copy.address).await == revision(source.address()).await
    })
    .await;
    let found = post(copy.address, "/v1/contexts/search", json!({"limit": 100})).await;
    let texts = items(&found, "results").iter();
    let texts: Vec<&str> = texts
        .filter_map(|hit| hit["text_content"].as_str())
        .collect();
    assert_eq!(texts, ["later", "sound"]);
    copy.stopped().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_with_entries_of_its_own_becomes_no_copy() {
    let source = Service::start().await;
    let directory = empty();
    let file = format!("--db-path={}", directory.path().join("copy.db").display());
    let other = Service::start_with(&[&file]).await;
    other.store("t", "text").await;
    other.begin_stop();
    other.stopped().await;
    let copy = Copy::start(source.address, directory.path(), None).await;
    let why = copy.err().expect("it is refused");
    assert!(why.contains("entries or artifacts of its own"), "{why}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_of_a_copy_waits_for_the_revision_and_the_metrics_say_how_far_it_is() {
    let source = Service::start().await;
    let directory = empty();
    let copy = Copy::of(source.address, directory.path()).await;
    for n in 0..30 {
        let entry = json!({"thread_id": "t", "source": "user", "text": format!("text {n}")});
        let stored = post(source.address, "/v1/contexts", entry).await;
        let path = format!(
            "/v1/contexts/{}?min_revision={}",
            stored["context_id"], stored["revision"]
        );
        let read = get(copy.address, &path).await;
        assert_eq!(read["text_content"], format!("text {n}"));
    }
    let request = Request::get(copy.address, "/v1/threads?min_revision=31");
    let (started, reply) = (Instant::now(), request.send().await);
    assert!(started.elapsed() >= Duration::from_secs(4));
    assert_eq!(
        (reply.status.as_u16(), reply.reason().as_str()),
        (400, "INVALID_ARGUMENT")
    );
    assert!(
        reply
            .body
            .contains("this copy has only reached revision 30"),
        "{}",
        reply.body
    );
    let metrics = Request::get(copy.address, "/metrics").send().await.body;
    assert!(
        metrics.contains("context_copy_behind_changes 0\n"),
        "{metrics}"
    );
    assert!(
        metrics.contains("context_copy_last_contact_timestamp_seconds 1"),
        "{metrics}"
    );
    copy.stopped().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_that_cannot_be_served_is_refused_before_the_source_is_contacted() {
    let home = Home::new();
    let follow = |name: &str, value: &str| {
        let mut command = program(&home);
        command.args(["follow", "unix:/nowhere/context.sock"]);
        command.args(["--to", &format!("sqlite://{}", home.database().display())]);
        run(command.env(name, value))
    };
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("an address").to_string();
    for (name, value) in [
        ("CONTEXT_LISTEN", address.as_str()),
        ("CONTEXT_LISTEN", "0.0.0.0:0"),
        ("MCP_AUTH_TOKEN", "secret-of-the-test"),
    ] {
        let (code, _, stderr) = follow(name, value);
        assert!(
            code == 1 && stderr.contains(name) && !stderr.contains("/nowhere"),
            "{name} {stderr}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_is_revoked_ends_the_copy_with_a_sentence() {
    let source = Service::start_with(&["--auth=keys"]).await;
    let directory = empty();
    for key in [None, Some("ctx_wrong")] {
        let refused = Copy::start(source.address, directory.path(), key).await;
        let why = refused.err().expect("it is refused");
        assert!(why.starts_with("the source refuses"), "{why}");
    }
    let key = source.key("default", &["read"]).await;
    let copy = Copy::start(source.address, directory.path(), Some(&key.text))
        .await
        .expect("a copy");
    let revoke = Admin::RevokeKey {
        owner: "default".to_owned(),
        key_id: key.id,
    };
    source
        .engine
        .access
        .administer(revoke)
        .await
        .expect("it is revoked");
    let ended = tokio::time::timeout(Duration::from_secs(20), copy.task).await;
    let ended = ended.expect("it ends in time").expect("without a panic");
    let why = ended.expect_err("it cannot continue");
    assert!(why.starts_with("the source refuses"), "{why}");
}

/// Starts the program with a copy of the service of `source`.
async fn follow_as_program(home: &Home, source: &Home) -> Process {
    let mut command = program(home);
    command.args(["follow", &format!("unix:{}", source.socket().display())]);
    command.args(["--to", &format!("sqlite://{}", home.database().display())]);
    home.start_as(command).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_survives_kills_of_both_and_an_older_database_of_its_source() {
    let source_home = Home::new();
    let copy_home = Home::new().with("LOG_LEVEL", "info");
    let mut source = source_home.start().await;
    write(source.address(), "first").await;
    let mut copy = follow_as_program(&copy_home, &source_home).await;

    // The copy is killed while it has much to do.
    for round in 0..3 {
        let before = revision(source.address()).await;
        let kill = async {
            until("the copy has the first of the writes", async || {
                revision(copy.address()).await > before
            })
            .await;
            copy.kill();
        };
        let name = format!("round {round}");
        tokio::join!(write(source.address(), &name), kill);
        copy = follow_as_program(&copy_home, &source_home).await;
        assert_equal(copy.address(), source.address()).await;
    }

    // The source is killed while it is written to.
    for round in 0..3 {
        let address = source.address();
        let before = revision(address).await;
        let writer = tokio::spawn(async move {
            for n in 0.. {
                let entry = json!({"thread_id": format!("flood {round}"), "source": "user", "text": format!("text {n}")});
                if Request::post(address, "/v1/contexts", &entry)
                    .try_send()
                    .await
                    .is_err()
                {
                    break;
                }
            }
        });
        until("the source has the first of the writes", async || {
            revision(address).await > before + 20
        })
        .await;
        source.kill();
        writer.await.expect("the writer ends");
        source = source_home.start().await;
        write(source.address(), &format!("after flood {round}")).await;
        assert_equal(copy.address(), source.address()).await;
    }

    // The source's database is replaced by an older backup, and gets other entries with the same ids.
    assert!(source.terminate().await.success());
    let older = copy_home.path().join("older.db");
    std::fs::copy(source_home.database(), &older).expect("a backup");
    source = source_home.start().await;
    write(source.address(), "lost").await;
    assert_equal(copy.address(), source.address()).await;
    assert!(source.terminate().await.success());
    std::fs::copy(&older, source_home.database()).expect("the backup is restored");
    source = source_home.start().await;
    write(source.address(), "instead").await;
    // Without these writes, the lost state would have the same revision.
    write(source.address(), "and more").await;
    assert_equal(copy.address(), source.address()).await;
    assert!(
        copy.log().contains("reads everything again"),
        "{}",
        copy.log()
    );
    assert!(copy.terminate().await.success());

    // No checksum is wrong. From the copy, migrate-data makes a database that accepts writes.
    let (code, _, stderr) = run(program(&copy_home).arg("verify"));
    assert_eq!(code, 0, "{stderr}");
    let own = Home::new();
    let (from, to) = (copy_home.database(), own.database());
    let (code, _, stderr) = run(program(&own)
        .arg("migrate-data")
        .args(["--from", &format!("sqlite://{}", from.display())])
        .args(["--to", &format!("sqlite://{}", to.display())]));
    assert_eq!(code, 0, "{stderr}");
    let own = own.start().await;
    assert_equal(own.address(), source.address()).await;
    write(own.address(), "its own").await;
}

/// 100 000 changes, as a snapshot and as changes after a cursor. It prints how long each took.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "a measurement of minutes; docs/sync.md has its result"]
async fn a_copy_catches_up_with_many_changes() {
    let source = Service::start().await;
    let directory = empty();
    let fill = async |round: u32| {
        for batch in 0..1000 {
            let entries: Vec<Value> = (0..100)
                .map(|n| {
                    json!({"thread_id": format!("thread {}", (batch * 100 + n) % 500), "source": "user",
                        "text": format!("text {n} of batch {batch} in round {round}, long enough to be a sentence of an agent"),
                        "tags": ["a", "b"], "metadata": {"n": n}})
                })
                .collect();
            post(
                source.address,
                "/v1/contexts/batch",
                json!({"entries": entries}),
            )
            .await;
        }
        write(source.address, &format!("round {round}")).await;
    };
    for (round, what) in ["a snapshot", "changes after a cursor"]
        .into_iter()
        .enumerate()
    {
        fill(u32::try_from(round).expect("small")).await;
        let wanted = revision(source.address).await;
        let started = Instant::now();
        let copy = Copy::of(source.address, directory.path()).await;
        while revision(copy.address).await < wanted {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        eprintln!("{what}: 100 000 changes in {:?}", started.elapsed());
        copy.stopped().await;
    }
    let copy = Copy::of(source.address, directory.path()).await;
    assert_equal(copy.address, source.address).await;
    copy.stopped().await;
}
