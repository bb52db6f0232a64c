//! The program itself: its command line, and how one process gives way to another.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

fn program(directory: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_context-service"));
    command
        .env_clear()
        .env("HOME", directory)
        .env("DB_PATH", directory.join("contexts.db"))
        .env("CONTEXT_SOCKET", directory.join("context.sock"))
        .env("CONTEXT_LISTEN", "127.0.0.1:0")
        .stdin(Stdio::null());
    command
}

/// Runs it to its end and gives exit code, stdout and stderr.
fn run(command: &mut Command) -> (i32, String, String) {
    let output = command.output().expect("the program runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (
        output.status.code().unwrap_or(-1),
        text(&output.stdout),
        text(&output.stderr),
    )
}

/// A started service; killed when a test fails before it has stopped.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Process {
    /// Starts it and waits for its banner, which it gives back.
    fn start(command: &mut Command) -> (Self, String) {
        let mut child = command
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let mut stderr = BufReader::new(child.stderr.take().expect("stderr"));
        let mut banner = String::new();
        while !banner.contains("  database  ") {
            let mut line = String::new();
            assert!(
                stderr.read_line(&mut line).expect("a line") > 0,
                "it stopped: {banner}"
            );
            banner.push_str(&line);
        }
        child.stderr = Some(stderr.into_inner());
        (Self(child), banner)
    }

    fn terminate(&self) {
        let pid = rustix::process::Pid::from_child(&self.0);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM)
            .expect("it can be signalled");
    }

    fn exit_code(mut self) -> Option<i32> {
        self.0.wait().expect("it ends").code()
    }
}

#[test]
fn a_bad_value_is_refused_with_the_name_of_its_setting() {
    let directory = tempfile::tempdir().unwrap();
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
            "CONTEXT_CORS_ORIGINS",
            "*",
            "CONTEXT_CORS_ORIGINS (--cors-origins) is `*`; `*` is not an origin",
        ),
    ] {
        let (code, _, stderr) = run(program(directory.path()).env(name, value));
        assert_eq!(code, 2, "{name}: {stderr}");
        assert!(stderr.contains(words), "{stderr}");
    }
    let (code, _, stderr) = run(program(directory.path()).arg("--no-such-flag"));
    assert!(code == 2 && stderr.contains("--no-such-flag"), "{stderr}");
}

#[test]
fn flags_win_over_variables_and_an_empty_variable_is_unset() {
    let directory = tempfile::tempdir().unwrap();
    let (code, help, _) = run(program(directory.path()).env("DB_PATH", "").arg("--help"));
    assert!(
        code == 0
            && help.contains("[env: DB_PATH]")
            && help.contains("[default: ~/.mcp/context_storage.db]"),
        "{help}"
    );
    // The port cannot be listened on, so that the start ends with a sentence that shows which value won.
    let (code, _, stderr) = run(program(directory.path())
        .env("CONTEXT_LISTEN", "${NOT_SET:-192.0.2.7:1}")
        .env("AUTH", "")
        .env("CONTEXT_INSECURE", "true"));
    assert!(
        code == 1 && stderr.contains("CONTEXT_LISTEN is 192.0.2.7:1"),
        "{stderr}"
    );
    let (code, _, stderr) = run(program(directory.path())
        .env("CONTEXT_LISTEN", "192.0.2.7:1")
        .args(["--insecure", "--listen", "192.0.2.8:1"]));
    assert!(
        code == 1 && stderr.contains("CONTEXT_LISTEN is 192.0.2.8:1"),
        "{stderr}"
    );
}

#[test]
fn the_banner_says_where_it_listens_and_how_to_register_the_gateway() {
    let directory = tempfile::tempdir().unwrap();
    let (process, banner) = Process::start(&mut program(directory.path()));
    for words in ["http://127.0.0.1:", "/docs", "context.sock", "contexts.db"] {
        assert!(banner.contains(words), "{banner}");
    }
    let mode = |name: &str| {
        std::fs::metadata(directory.path().join(name))
            .unwrap()
            .permissions()
            .mode()
            & 0o777
    };
    assert_eq!((mode("context.sock"), mode("contexts.db")), (0o600, 0o600));
    process.terminate();
    assert_eq!(process.exit_code(), Some(0));
    assert!(!directory.path().join("context.sock").exists());
}

#[test]
fn the_log_tells_what_happened_and_nothing_of_what_was_stored() {
    let directory = tempfile::tempdir().unwrap();
    let (mut process, banner) = Process::start(
        program(directory.path())
            .env("LOG_LEVEL", "debug")
            .env("LOG_FORMAT", "json"),
    );
    let address = banner
        .split("REST      http://")
        .nth(1)
        .and_then(|rest| rest.split('/').next())
        .expect("an address")
        .to_owned();
    let mut stderr = process.0.stderr.take().expect("stderr");
    let post = |path: &str, body: &str| {
        let mut stream = TcpStream::connect(&address).expect("a connection");
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\nx-request-id: job-1\r\n"
        );
        write!(stream, "{head}idempotency-key: hidden-key\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}", body.len())
            .expect("sent");
        let mut reply = String::new();
        stream.read_to_string(&mut reply).expect("a reply");
        reply
    };
    let stored = r#"{"thread_id": "t", "source": "user", "text": "hidden-text", "metadata": {"k": "hidden-metadata"}}"#;
    assert!(post("/v1/contexts", stored).starts_with("HTTP/1.1 201"));
    assert!(
        post(
            "/v1/contexts",
            r#"{"thread_id": "t", "source": "hidden-source", "text": "x"}"#
        )
        .starts_with("HTTP/1.1 400")
    );
    assert!(
        post("/v1/contexts/search/fts", r#"{"query": "hidden-query"}"#).starts_with("HTTP/1.1 200")
    );
    process.terminate();
    let mut log = String::new();
    stderr.read_to_string(&mut log).unwrap();
    assert!(
        log.lines()
            .any(|line| line.contains("job-1") && line.contains("INVALID_ARGUMENT")),
        "{log}"
    );
    assert!(!log.contains("hidden"), "{log}");
    assert_eq!(process.exit_code(), Some(0));
}

#[test]
fn one_started_by_hand_takes_over_from_one_that_a_gateway_started() {
    let directory = tempfile::tempdir().unwrap();
    let (started, banner) = Process::start(program(directory.path()).arg("--auto-started"));
    assert!(
        !banner.contains("http://"),
        "it opens the socket alone: {banner}"
    );
    let (by_hand, _) = Process::start(&mut program(directory.path()));
    assert_eq!(started.exit_code(), Some(0), "it drained");
    assert!(
        directory.path().join("context.sock").exists(),
        "the successor's socket stays"
    );
    let (code, _, stderr) = run(&mut program(directory.path()));
    assert!(code == 1 && stderr.contains("held by"), "{stderr}");
    let (code, _, stderr) = run(program(directory.path()).arg("--auto-started"));
    assert!(
        code == 0 && stderr.contains("another service serves this database already"),
        "{stderr}"
    );
    by_hand.terminate();
    assert_eq!(by_hand.exit_code(), Some(0));
}

#[test]
fn one_that_a_gateway_started_stops_when_nobody_comes() {
    let directory = tempfile::tempdir().unwrap();
    let (process, _) =
        Process::start(program(directory.path()).args(["--auto-started", "--idle-exit-seconds=1"]));
    assert_eq!(process.exit_code(), Some(0));
}

#[test]
fn the_doctor_finds_what_is_wrong() {
    let directory = tempfile::tempdir().unwrap();
    let (code, report, _) = run(program(directory.path()).arg("doctor"));
    assert_eq!(code, 0, "{report}");
    assert!(report.lines().all(|line| line.starts_with('✔')), "{report}");

    assert_eq!(run(program(directory.path()).arg("ready")).0, 1);
    let (process, _) = Process::start(&mut program(directory.path()));
    assert_eq!(run(program(directory.path()).arg("ready")).0, 0);
    let (code, report, _) = run(program(directory.path()).arg("doctor"));
    assert!(
        code == 0 && report.contains("is ready") && report.contains("is held by process"),
        "{report}"
    );
    process.terminate();
    assert_eq!(process.exit_code(), Some(0));

    std::fs::write(
        directory.path().join("other.db"),
        "not a database, but long enough to have a header".repeat(9),
    )
    .unwrap();
    let (code, report, _) = run(program(directory.path())
        .env("DB_PATH", directory.path().join("other.db"))
        .arg("doctor"));
    assert!(code == 1 && report.contains("✘ database"), "{report}");
    let (code, report, _) = run(program(directory.path()).args(["--listen=0.0.0.0:0", "doctor"]));
    assert!(code == 1 && report.contains("✘ settings"), "{report}");
}

#[test]
fn completions_are_printed_and_a_closed_pipe_is_no_failure() {
    let directory = tempfile::tempdir().unwrap();
    let (code, script, _) = run(program(directory.path()).args(["completions", "bash"]));
    assert!(code == 0 && script.contains("context-service"));
    let mut child = program(directory.path())
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
