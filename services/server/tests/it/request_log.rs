//! The log of requests.

use std::process::Command;

use context_proto::v1::{GetContextByIdsRequest, StoreContextRequest};
use context_test_support::http::Request;
use context_test_support::{Home, Process, grpc, until};
use serde_json::{Value, json};

use crate::process::{program, run};

/// Part of every text that requests of these tests send and that must not be logged.
const HIDDEN: &str = "hidden";

fn logging(home: &Home, format: &str) -> Command {
    let mut command = program(home);
    command
        .args(["--log-level=info", "--embedding-provider=none"])
        .arg(format!("--log-format={format}"));
    command
}

/// The lines about requests, as JSON.
fn requests(process: &Process) -> Vec<Value> {
    let log = process.log();
    let lines = log
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok());
    lines
        .filter(|line: &Value| line["message"] == "Request")
        .collect()
}

/// The line of the request with this id. Checks that there is only one, and the fields that every line has.
fn line(process: &Process, id: &str) -> Value {
    let mut found = requests(process);
    found.retain(|line| line["request_id"] == id);
    assert_eq!(found.len(), 1, "{id}: {}", process.log());
    let line = found.remove(0);
    assert_eq!(line["level"], "INFO");
    assert!(line["duration_ms"].as_f64().unwrap() > 0.0, "{line}");
    line
}

fn fields(line: &Value) -> Value {
    json!([
        line["transport"],
        line["method"],
        line["route"],
        line["status"],
        line["reason"],
        line["key_id"]
    ])
}

#[tokio::test]
async fn each_request_has_one_line_on_both_transports_and_nothing_of_what_was_sent() {
    let home = Home::new();
    let mut process = home.start_as(logging(&home, "json")).await;
    let address = process.address();
    let stored = json!({"thread_id": HIDDEN, "source": "user", "text": "hidden text", "metadata": {"k": "hidden"}});
    let stored = Request::post(address, "/v1/contexts", &stored)
        .header("x-request-id", "stored")
        .send()
        .await;
    assert_eq!(stored.header("x-request-id"), Some("stored"));
    for (id, path) in [
        ("got", "/v1/contexts/1"),
        ("missing", "/v1/contexts/99?include_images=hidden"),
        ("missing-2", "/v1/contexts/99?include_images=true"),
        ("nowhere", "/hidden/path?hidden=1"),
        ("health", "/healthz"),
    ] {
        let request = Request::get(address, path).header("x-request-id", id);
        request.send().await;
    }
    let search = Request::post(
        address,
        "/v1/contexts/search/fts",
        &json!({"query": HIDDEN}),
    );
    // An id that is not safe in a log is replaced.
    let searched = search
        .header("x-request-id", "hidden \"quotes\"")
        .send()
        .await;
    let searched = searched.header("x-request-id").unwrap().to_owned();

    let mut client = grpc::contexts(grpc::at(address));
    let with_id = |id: &'static str| tonic::metadata::MetadataValue::from_static(id);
    let mut call = tonic::Request::new(StoreContextRequest {
        thread_id: HIDDEN.to_owned(),
        source: "user".to_owned(),
        text: "hidden text over gRPC".to_owned(),
        ..StoreContextRequest::default()
    });
    call.metadata_mut()
        .insert("x-request-id", with_id("grpc-stored"));
    let reply = client.store_context(call).await.unwrap();
    assert_eq!(reply.metadata().get("x-request-id").unwrap(), "grpc-stored");
    let mut call = tonic::Request::new(GetContextByIdsRequest::default());
    call.metadata_mut()
        .insert("x-request-id", with_id("grpc-refused"));
    let refused = client.get_context_by_ids(call).await.unwrap_err();
    assert_eq!(refused.code(), tonic::Code::InvalidArgument);

    process.stop();
    assert!(process.ended().await.success());
    let grpc = |method: &str| format!("/context.v1.ContextService/{method}");
    for (id, expected) in [
        (
            "stored",
            json!(["rest", "POST", "/v1/contexts", 201, null, null]),
        ),
        (
            "got",
            json!(["rest", "GET", "/v1/contexts/{context_id}", 200, null, null]),
        ),
        (
            "missing",
            json!([
                "rest",
                "GET",
                "/v1/contexts/{context_id}",
                400,
                "INVALID_ARGUMENT",
                null
            ]),
        ),
        (
            "missing-2",
            json!([
                "rest",
                "GET",
                "/v1/contexts/{context_id}",
                404,
                "CONTEXT_NOT_FOUND",
                null
            ]),
        ),
        (
            "nowhere",
            json!(["rest", "GET", "unknown", 404, "NOT_FOUND", null]),
        ),
        (
            "health",
            json!(["rest", "GET", "/healthz", 200, null, null]),
        ),
        (
            &searched,
            json!(["rest", "POST", "/v1/contexts/search/fts", 200, null, null]),
        ),
        (
            "grpc-stored",
            json!(["grpc", "POST", grpc("StoreContext"), 0, null, null]),
        ),
        (
            "grpc-refused",
            json!([
                "grpc",
                "POST",
                grpc("GetContextByIds"),
                3,
                "INVALID_ARGUMENT",
                null
            ]),
        ),
    ] {
        assert_eq!(fields(&line(&process, id)), expected, "{id}");
    }
    assert_eq!(requests(&process).len(), 9, "{}", process.log());
    assert!(!process.log().contains(HIDDEN), "{}", process.log());
}

#[tokio::test]
async fn with_keys_a_line_names_the_key_and_refusals_have_lines_too() {
    let home = Home::new().with("AUTH", "keys");
    let mut process = home.start_as(logging(&home, "json")).await;
    let address = process.address();
    let (code, printed, stderr) =
        run(program(&home).args(["keys", "create", "reader", "--scopes=read"]));
    assert_eq!(code, 0, "{stderr}");
    let key = printed.split_whitespace().next().unwrap().to_owned();
    let key_id = printed
        .split("Its id is ")
        .nth(1)
        .and_then(|rest| rest.split('.').next())
        .unwrap();
    for (id, key) in [
        ("allowed", key.as_str()),
        ("unknown", "sk_prod_hiddenhiddenhiddenhiddenhidden12"),
    ] {
        let request = Request::get(address, "/v1/threads").key(key);
        request.header("x-request-id", id).send().await;
    }
    let entry = json!({"thread_id": "t", "source": "user", "text": "x"});
    let refused = Request::post(address, "/v1/contexts", &entry).key(&key);
    refused.header("x-request-id", "refused").send().await;

    process.stop();
    assert!(process.ended().await.success());
    for (id, expected) in [
        (
            "allowed",
            json!(["rest", "GET", "/v1/threads", 200, null, key_id]),
        ),
        (
            "unknown",
            json!(["rest", "GET", "/v1/threads", 401, "UNAUTHENTICATED", null]),
        ),
        (
            "refused",
            json!(["rest", "POST", "/v1/contexts", 403, "SCOPE_MISSING", key_id]),
        ),
    ] {
        assert_eq!(fields(&line(&process, id)), expected, "{id}");
    }
    let log = process.log();
    assert!(!log.contains(HIDDEN) && !log.contains(&key), "{log}");
}

#[tokio::test]
async fn a_request_whose_client_left_has_a_line_too() {
    let home = Home::new();
    let process = home.start_as(logging(&home, "json")).await;
    // The service waits for a body that never comes.
    let head = "POST /v1/contexts HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
                x-request-id: left\r\ncontent-length: 100\r\nexpect: 100-continue\r\n\r\n";
    let mut stream = std::net::TcpStream::connect(process.address()).unwrap();
    let timeout = std::time::Duration::from_secs(30);
    stream.set_read_timeout(Some(timeout)).unwrap();
    std::io::Write::write_all(&mut stream, head.as_bytes()).unwrap();
    // The service sends `100 Continue` when it starts to read the body.
    let mut begun = [0; 12];
    std::io::Read::read_exact(&mut stream, &mut begun).unwrap();
    assert_eq!(&begun, b"HTTP/1.1 100");
    drop(stream);
    until("the line is written", async || {
        requests(&process)
            .iter()
            .any(|line| line["request_id"] == "left")
    })
    .await;
    let line = line(&process, "left");
    let status = line["status"].as_u64().unwrap();
    assert!([400, 499].contains(&status), "{line}");
}

#[tokio::test(flavor = "multi_thread")]
#[expect(clippy::disallowed_methods, reason = "the log is limited per second")]
async fn a_flood_without_keys_does_not_fill_the_log() {
    const SENT: usize = 2_000;
    let home = Home::new().with("AUTH", "keys");
    let mut process = home.start_as(logging(&home, "json")).await;
    let address = process.address();
    let started = std::time::Instant::now();
    let mut senders = tokio::task::JoinSet::new();
    for _ in 0..8 {
        senders.spawn(async move {
            for _ in 0..SENT / 8 {
                let reply = Request::get(address, "/v1/threads").send().await;
                assert_eq!(reply.status, 401);
            }
        });
    }
    senders.join_all().await;
    // Each second has at most 100 lines. The first and the last second may be partial.
    let seconds = usize::try_from(started.elapsed().as_secs()).unwrap() + 2;
    let limit = 100 * seconds;
    assert!(
        limit < SENT,
        "{SENT} requests are too few for {seconds} s: a log without a limit would pass too"
    );
    process.stop();
    assert!(process.ended().await.success());
    let lines = requests(&process).len();
    assert!((1..=limit).contains(&lines), "{lines} lines in {seconds} s");
}

#[tokio::test]
async fn a_line_of_text_has_the_same_fields_and_the_default_level_has_none() {
    let home = Home::new();
    let mut process = home.start_as(logging(&home, "text")).await;
    let request = Request::get(process.address(), "/v1/contexts/7");
    request.header("x-request-id", "job-7").send().await;
    process.stop();
    assert!(process.ended().await.success());
    let log = process.log();
    let line = log.lines().find(|line| line.contains(" Request ")).unwrap();
    let expected = "INFO Request method=GET route=/v1/contexts/{context_id} transport=rest status=404 \
                    reason=\"CONTEXT_NOT_FOUND\" duration_ms=";
    assert!(line.contains(expected), "{line}");
    assert!(line.ends_with(" request_id=job-7"), "{line}");

    let home = Home::new();
    let mut process = home.start_as(program(&home)).await;
    Request::get(process.address(), "/v1/contexts/7")
        .send()
        .await;
    process.stop();
    assert!(process.ended().await.success());
    assert!(!process.log().contains("Request"), "{}", process.log());
}
