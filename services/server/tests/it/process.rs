//! The program itself: its command line, and how one process yields the database to another.

use std::ffi::OsStr;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use clap::CommandFactory as _;
use context_proto::v1::GetStatisticsRequest;
use context_service::cli::Cli;
use context_test_support::http::Request;
use context_test_support::{Home, grpc, until, wait_for};

const PROGRAM: &str = env!("CARGO_BIN_EXE_context-service");

pub fn program(home: &Home) -> Command {
    home.command_at(Path::new(PROGRAM))
}

/// How long a command may run. It takes seconds, also on a busy machine.
const LIMIT: Duration = Duration::from_secs(300);

/// Runs a command to its end. Returns its exit code, stdout and stderr.
///
/// # Panics
/// When it does not end, for example because a service starts that must not start.
pub fn run(command: &mut Command) -> (i32, String, String) {
    run_with_stdout(command, Stdio::piped())
}

/// As [`run`], with this stdout.
fn run_with_stdout(command: &mut Command, stdout: Stdio) -> (i32, String, String) {
    command.stdout(stdout).stderr(Stdio::piped());
    let child = command.spawn().expect("the program runs");
    let (sender, ended) = mpsc::channel();
    std::thread::spawn(move || sender.send(child.wait_with_output()));
    let output = ended.recv_timeout(LIMIT);
    let output = output.unwrap_or_else(|_| panic!("{command:?} does not end"));
    let output = output.expect("its output is read");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (
        output.status.code().unwrap_or(-1),
        text(&output.stdout),
        text(&output.stderr),
    )
}

#[test]
fn a_bad_value_is_refused_with_the_name_of_its_setting() {
    let home = Home::new();
    for (name, value, words) in [
        (
            "MAX_IMAGE_SIZE_MB",
            "lots",
            "MAX_IMAGE_SIZE_MB (--max-image-size-mb) is `lots`; it must be a whole number from 1 to 1024",
        ),
        (
            "LOG_LEVEL",
            "LOUD",
            "LOG_LEVEL (--log-level) is `LOUD`; it must be one of debug, info, warning, error, critical",
        ),
        (
            "ENABLE_FTS",
            "maybe",
            "ENABLE_FTS (--enable-fts) is `maybe`; it must be true, false or auto",
        ),
        (
            "CONTEXT_SOCKET",
            "relative.sock",
            "CONTEXT_SOCKET (--socket) is `relative.sock`; it must be an absolute path",
        ),
        (
            "OLLAMA_HOST",
            "http://gpu:port",
            "OLLAMA_HOST (--ollama-host) is `http://gpu:port`; it must be an address such as http://host:port",
        ),
        (
            "EMBEDDING_URL",
            "http://",
            "EMBEDDING_URL (--embedding-url) is `http://`; it must be an address",
        ),
        (
            "SUMMARY_URL",
            "ftp://x",
            "SUMMARY_URL (--summary-url) is `ftp://x`; it must be an address",
        ),
        (
            "RERANK_URL",
            "http://host?key=hunter2",
            "RERANK_URL (--rerank-url) is `http://host?***`; it must be an address",
        ),
        (
            "CONTEXT_ALLOWED_HOSTS",
            "a.example,https://b.example",
            "`https://b.example` is not a host; write it as context.example or context.example:8443",
        ),
        (
            "OIDC_SCOPE_CLAIM",
            "/",
            "OIDC_SCOPE_CLAIM (--oidc-scope-claim) is `/`; it must be the name of a claim, or a path",
        ),
        (
            "CONTEXT_CORS_ORIGINS",
            "*",
            "CONTEXT_CORS_ORIGINS (--cors-origins) is `*`; `*` is not an origin",
        ),
    ] {
        let (code, _, stderr) = run(program(&home).env(name, value));
        assert_eq!(code, 2, "{name}: {stderr}");
        assert!(stderr.contains(words), "{stderr}");
    }
    let latin_1 = OsStr::from_bytes(b"/tmp/caf\xe9.db");
    let (code, _, stderr) = run(program(&home).env("DB_PATH", latin_1));
    assert!(
        code == 2 && stderr.contains("DB_PATH is not valid UTF-8"),
        "{stderr}"
    );
    let (code, _, stderr) = run(program(&home).arg("--no-such-flag"));
    assert!(code == 2 && stderr.contains("--no-such-flag"), "{stderr}");
}

#[test]
fn flags_win_over_variables_and_an_empty_variable_is_unset() {
    let home = Home::new();
    let (code, help, _) = run(program(&home).env("DB_PATH", "").arg("--help"));
    assert!(
        code == 0
            && help.contains("[env: DB_PATH]")
            && help.contains("[default: ~/.mcp/context_storage.db]"),
        "{help}"
    );
    // The service cannot listen on these addresses, so it ends with a message that shows which value took precedence.
    let (code, _, stderr) = run(program(&home)
        .env("CONTEXT_LISTEN", "${NOT_SET:-192.0.2.7:1}")
        .env("AUTH", "")
        .env("CONTEXT_INSECURE", "true"));
    assert!(
        code == 1 && stderr.contains("cannot listen on 192.0.2.7:1 (CONTEXT_LISTEN)"),
        "{stderr}"
    );
    let (code, _, stderr) = run(program(&home).env("CONTEXT_LISTEN", "192.0.2.7:1").args([
        "--insecure",
        "--listen",
        "192.0.2.8:1",
    ]));
    assert!(
        code == 1 && stderr.contains("cannot listen on 192.0.2.8:1 (CONTEXT_LISTEN)"),
        "{stderr}"
    );
}

#[test]
fn the_help_of_a_command_has_only_its_own_options() {
    let home = Home::new();
    let help = |arguments: &[&str]| {
        let (code, help, stderr) = run(program(&home).args(arguments));
        assert_eq!(code, 0, "{arguments:?}: {stderr}");
        help
    };
    let list = help(&["keys", "list", "--help"]);
    assert!(list.contains("--owner <OWNER>"), "{list}");
    let command = Cli::command();
    let mut paths: Vec<Vec<String>> = Vec::new();
    for command in command.get_subcommands() {
        paths.push(vec![command.get_name().to_owned()]);
        for inner in command.get_subcommands() {
            paths.push(vec![
                command.get_name().to_owned(),
                inner.get_name().to_owned(),
            ]);
        }
    }
    assert!(paths.len() > 15, "{paths:?}");
    for path in paths {
        let path: Vec<&str> = path.iter().map(String::as_str).collect();
        let long = help(&[&path[..], &["--help"]].concat());
        for text in [
            help(&[&path[..], &["-h"]].concat()),
            help(&[&["help"], &path[..]].concat()),
            long.clone(),
        ] {
            assert!(
                text.lines().count() < 45 && !text.contains("--db-path"),
                "{path:?}: {text}"
            );
            assert!(
                text.contains("Every setting of the service is also a flag of this command."),
                "{path:?}: {text}"
            );
        }
    }
    // The settings are still flags, before and after the command.
    let database = home.path().join("other.db");
    let flag = format!("--db-path={}", database.display());
    for arguments in [["doctor", &flag], [&flag, "doctor"]] {
        let report = help(&arguments);
        assert!(report.contains("other.db opens"), "{report}");
    }
    assert!(help(&["--help"]).contains("--db-path <PATH>"));
}

#[tokio::test]
async fn the_banner_says_where_it_listens_and_how_to_register_the_gateway() {
    let home = Home::new();
    let process = home.start_as(program(&home)).await;
    let banner = process.log();
    for words in [
        "http://127.0.0.1:",
        "/docs",
        "service.sock",
        "contexts.db",
        "claude mcp add",
    ] {
        assert!(banner.contains(words), "{banner}");
    }
    let mode = |name: &str| {
        std::fs::metadata(home.path().join(name))
            .unwrap()
            .permissions()
            .mode()
            & 0o777
    };
    assert_eq!((mode("service.sock"), mode("contexts.db")), (0o600, 0o600));
    assert!(process.terminate().await.success());
    assert!(!home.socket().exists());
}

#[tokio::test]
async fn the_log_tells_what_happened_and_nothing_of_what_was_stored() {
    let home = Home::new();
    let mut command = program(&home);
    command.env("LOG_LEVEL", "debug").env("LOG_FORMAT", "json");
    let mut process = home.start_as(command).await;
    let address = process.address();
    let send = |method: &str, path: &str, body: &str| {
        let mut stream = TcpStream::connect(address).expect("a connection");
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\nx-request-id: job-1\r\n"
        );
        write!(stream, "{head}idempotency-key: hidden-key\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}", body.len())
            .expect("sent");
        let mut reply = String::new();
        stream.read_to_string(&mut reply).expect("a reply");
        reply
    };
    let stored = r#"{"thread_id": "t", "source": "user", "text": "hidden-text", "metadata": {"k": "hidden-metadata"}}"#;
    let bad_source = r#"{"thread_id": "t", "source": "hidden-source", "text": "x"}"#;
    let bad_query = r#"{"query": "(hidden-query", "mode": "boolean"}"#;
    for (method, path, body, status) in [
        ("POST", "/v1/contexts", bad_source, 400),
        ("POST", "/v1/contexts", stored, 201),
        (
            "POST",
            "/v1/contexts/search/fts",
            r#"{"query": "hidden-query"}"#,
            200,
        ),
        ("POST", "/v1/contexts/search/fts", bad_query, 400),
        ("GET", "/v1/threads/hidden-thread", "", 404),
        ("GET", "/v1/tags?prefix=hidden-tag", "", 200),
        ("GET", "/hidden-path", "", 404),
    ] {
        let reply = send(method, path, body);
        assert!(reply.starts_with(&format!("HTTP/1.1 {status}")), "{reply}");
    }
    process.stop();
    assert!(process.ended().await.success());
    let log = process.log();
    assert!(
        log.lines()
            .any(|line| line.contains("job-1") && line.contains("INVALID_ARGUMENT")),
        "{log}"
    );
    assert!(!log.contains("hidden"), "{log}");
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_log_that_cannot_be_written_stops_neither_the_service_nor_a_request() {
    let home = Home::new();
    // Each write to /dev/full fails, as on a full disk.
    let mut command = home.command_at(Path::new("/bin/sh"));
    command
        .args(["-c", "exec \"$0\" 2>/dev/full", PROGRAM])
        .env("LOG_LEVEL", "debug");
    let mut process = home.spawn_as(command);
    until("the socket exists, or the program has ended", async || {
        home.socket().exists() || !process.is_running()
    })
    .await;
    let mut client = grpc::contexts(grpc::at_socket(&home.socket()));
    until("the service responds, or has ended", async || {
        let request = GetStatisticsRequest { min_revision: None };
        client.get_statistics(request).await.is_ok() || !process.is_running()
    })
    .await;
    assert!(process.terminate().await.success());
}

#[tokio::test]
async fn one_started_by_hand_takes_over_from_one_that_a_gateway_started() {
    let home = Home::new();
    let mut command = program(&home);
    command.arg("--auto-started");
    let mut started = home.start_as(command).await;
    let banner = started.log();
    assert!(
        !banner.contains("http://"),
        "it listens only on the socket: {banner}"
    );
    let by_hand = home.start_as(program(&home)).await;
    assert!(started.ended().await.success(), "it drained");
    assert!(home.socket().exists(), "the successor's socket stays");
    let (code, _, stderr) = run(&mut program(&home));
    assert!(code == 1 && stderr.contains("held by"), "{stderr}");
    let (code, _, stderr) = run(program(&home).arg("--auto-started"));
    assert!(
        code == 0 && stderr.contains("another service serves this database already"),
        "{stderr}"
    );
    assert!(by_hand.terminate().await.success());
}

#[tokio::test]
async fn a_signal_during_the_start_ends_the_program() {
    let home = Home::new();
    // Accepts the connection and never responds.
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    server.set_nonblocking(true).unwrap();
    let port = server.local_addr().unwrap().port();
    let mut command = program(&home);
    command
        .env("STORAGE_BACKEND", "postgresql")
        .env("POSTGRESQL_HOST", "127.0.0.1")
        .env("POSTGRESQL_PORT", port.to_string())
        .env("POSTGRESQL_CONNECT_TIMEOUT_MS", "600000");
    let process = home.spawn_as(command);
    let _connection = wait_for("a connection", || server.accept().ok()).await;
    assert!(process.terminate().await.success());
}

#[tokio::test]
async fn a_service_that_a_gateway_started_stops_when_no_client_connects() {
    let home = Home::new();
    let mut command = program(&home);
    command.args(["--auto-started", "--idle-exit-seconds=1"]);
    assert!(home.start_as(command).await.ended().await.success());
}

#[tokio::test]
async fn the_doctor_finds_what_is_wrong() {
    let home = Home::new();
    let (code, report, _) = run(program(&home).arg("doctor"));
    assert_eq!(code, 0, "{report}");
    assert!(report.contains("✔ database"), "{report}");
    assert!(report.lines().all(|line| line.starts_with('✔')), "{report}");

    assert_eq!(run(program(&home).arg("ready")).0, 1);
    let process = home.start_as(program(&home)).await;
    assert_eq!(run(program(&home).arg("ready")).0, 0);
    let entry =
        serde_json::json!({"thread_id": "t", "source": "user", "text": "数据库什么时候迁移"});
    let stored = Request::post(process.address(), "/v1/contexts", &entry)
        .send()
        .await;
    assert_eq!(stored.status, 201);
    let (code, report, _) = run(program(&home).arg("doctor"));
    assert!(
        code == 0 && report.contains("is ready") && report.contains("is held by process"),
        "{report}"
    );
    let advice = "✔ language   most of the stored texts look Chinese; `context-service fetch-model multilingual-e5-small`";
    assert!(report.contains(advice), "{report}");
    assert!(process.terminate().await.success());
    let (_, report, _) = run(program(&home).arg("doctor"));
    assert!(report.contains(advice), "{report}");

    std::fs::write(
        home.path().join("other.db"),
        "not a database, but long enough to have a header".repeat(9),
    )
    .unwrap();
    let (code, report, _) = run(program(&home)
        .env("DB_PATH", home.path().join("other.db"))
        .arg("doctor"));
    assert!(code == 1 && report.contains("✘ database"), "{report}");
    let (code, report, _) = run(program(&home).args(["--listen=0.0.0.0:0", "doctor"]));
    assert!(code == 1 && report.contains("✘ settings"), "{report}");
}

#[test]
fn completions_are_printed_and_a_closed_pipe_is_no_failure() {
    let home = Home::new();
    let (code, script, _) = run(program(&home).args(["completions", "bash"]));
    assert!(code == 0 && script.contains("context-service"));
    let mut child = program(&home)
        .arg("openapi")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let mut complaints = String::new();
    child
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut complaints)
        .unwrap();
    assert!(
        child.wait().unwrap().success() && complaints.is_empty(),
        "{complaints}"
    );
}

#[cfg(target_os = "linux")]
fn full_disk() -> Stdio {
    let device = std::fs::File::options().write(true).open("/dev/full");
    device.expect("a device that is always full").into()
}

#[cfg(target_os = "linux")]
#[test]
fn output_that_cannot_be_written_is_a_failure_with_a_reason() {
    let home = Home::new();
    let (code, _, stderr) = run_with_stdout(program(&home).arg("openapi"), full_disk());
    assert!(
        code == 1 && stderr.contains("error: the output cannot be written"),
        "{stderr}"
    );
}
