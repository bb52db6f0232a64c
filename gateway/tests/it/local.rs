//! Finding and starting the service of a database on this machine.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::sync::Arc;

use context_gateway::backend::{Backend, Target};
use context_gateway::call::Call;
use context_gateway::local::LocalService;
use context_gateway::service_program::ServiceProgram;
use context_model::{Error, JsonObject, Operation, Reason};
use tonic::metadata::MetadataMap;

/// A fake service program. It records each start and then runs this shell script.
fn stand_in(dir: &Path, body: &str) -> std::path::PathBuf {
    let path = dir.join("context-service");
    std::fs::write(
        &path,
        format!(
            "#!/bin/sh\necho started >> '{}'\n{body}\n",
            dir.join("starts").display()
        ),
    )
    .unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path
}

const LISTEN: &str = r#"exec python3 -c '
import os, socket, sys, time
assert sys.argv[1:] == ["--auto-started"], sys.argv
s = socket.socket(socket.AF_UNIX)
s.bind(os.environ["CONTEXT_SOCKET"])
# Before it listens, because the test reads the file as soon as it is connected.
open(os.environ["CONTEXT_SOCKET"] + ".session", "w").write(str(os.getsid(0) == os.getpid()))
s.listen(64)
s.settimeout(5)
held = []
try:
    while True: held.append(s.accept())
except TimeoutError:
    pass
' "$@""#;

fn starts(dir: &Path) -> usize {
    std::fs::read_to_string(dir.join("starts"))
        .unwrap_or_default()
        .lines()
        .count()
}

#[tokio::test]
async fn many_gateways_start_one_detached_service() {
    let dir = tempfile::tempdir().unwrap();
    let command = stand_in(dir.path(), LISTEN);
    let socket = dir.path().join("run/service.sock");
    let service = Arc::new(LocalService::with_program(
        &dir.path().join("a.db"),
        Some(socket.clone()),
        ServiceProgram::at(command),
    ));
    // The tasks stand for gateways. They share one `LocalService`: another one would compare its settings with those of
    // the service, which the fake program cannot do.
    let connecting: Vec<_> = (0..8)
        .map(|_| {
            let service = service.clone();
            tokio::spawn(async move { service.connect().await.map(drop) })
        })
        .collect();
    for task in connecting {
        task.await.unwrap().unwrap();
    }
    assert_eq!(starts(dir.path()), 1);
    assert_eq!(
        std::fs::read_to_string(socket.with_extension("sock.session")).unwrap(),
        "True",
        "the service has its own session"
    );
}

#[tokio::test]
async fn a_service_that_cannot_start_is_reported_in_its_own_words() {
    let dir = tempfile::tempdir().unwrap();
    let command = stand_in(
        dir.path(),
        "echo 'the database is from a newer version' >&2; exit 3",
    );
    let service = LocalService::with_program(
        &dir.path().join("a.db"),
        Some(dir.path().join("service.sock")),
        ServiceProgram::at(command),
    );
    let error = service.connect().await.unwrap_err().to_string();
    assert!(
        error.contains("the database is from a newer version"),
        "{error}"
    );
    assert!(error.contains("service.log"), "{error}");
}

#[tokio::test]
async fn a_missing_program_is_named_with_the_way_out() {
    let dir = tempfile::tempdir().unwrap();
    let service = LocalService::with_program(
        &dir.path().join("a.db"),
        Some(dir.path().join("service.sock")),
        ServiceProgram::at(dir.path().join("no-such-program")),
    );
    let error = service.connect().await.unwrap_err().to_string();
    assert!(
        error.contains("no-such-program") && error.contains("CONTEXT_BACKEND"),
        "{error}"
    );
}

/// The error of a call that starts the service with this script.
async fn failed_call(dir: &Path, body: &str) -> Error {
    let command = stand_in(dir, body);
    let socket = dir.join("service.sock");
    let program = ServiceProgram::at(command);
    let service = LocalService::with_program(&dir.join("a.db"), Some(socket), program);
    let backend = Backend::new(Target::Local(Arc::new(service)), 1024 * 1024).unwrap();
    let call = Call {
        backend: &backend,
        metadata: MetadataMap::new(),
        operation: Operation::ListThreads,
        lease: None,
    };
    call.run(JsonObject::new()).await.unwrap_err()
}

#[tokio::test]
async fn a_start_that_fails_until_it_is_corrected_is_tried_once_and_says_what_to_correct() {
    let dir = tempfile::tempdir().unwrap();
    let script = "echo 'error: MAX_IMAGE_SIZE_MB is `huge`' >&2; exit 2";
    let error = failed_call(dir.path(), script).await;
    assert_eq!(
        (error.reason, error.retry_after),
        (Reason::StoreUnavailable, None)
    );
    assert!(
        error.message.contains("MAX_IMAGE_SIZE_MB is `huge`")
            && error.message.contains("service.log")
            && error
                .message
                .ends_with("correct the cause, then call again"),
        "{}",
        error.message
    );
    assert_eq!(starts(dir.path()), 1);
}

#[tokio::test]
async fn a_malformed_setting_found_by_a_comparison_asks_for_a_correction() {
    let dir = tempfile::tempdir().unwrap();
    let _running = tokio::net::UnixListener::bind(dir.path().join("service.sock")).unwrap();
    let script = "echo 'error: MAX_IMAGE_SIZE_MB is `huge`' >&2; exit 2";
    let error = failed_call(dir.path(), script).await;
    assert_eq!(
        (error.reason, error.retry_after),
        (Reason::StoreUnavailable, None)
    );
    assert!(error.message.contains("MAX_IMAGE_SIZE_MB"), "{error}");
}

#[tokio::test]
async fn a_start_that_was_interrupted_is_tried_again() {
    let dir = tempfile::tempdir().unwrap();
    let error = failed_call(dir.path(), "kill -KILL $$").await;
    assert!(error.retry_after.is_some());
    assert!(
        error.message.ends_with("try again in a moment"),
        "{}",
        error.message
    );
    assert_eq!(starts(dir.path()), 3);
}

#[tokio::test]
async fn the_log_is_private() {
    let dir = tempfile::tempdir().unwrap();
    let command = stand_in(dir.path(), "exit 1");
    let service = LocalService::with_program(
        &dir.path().join("a.db"),
        Some(dir.path().join("service.sock")),
        ServiceProgram::at(command),
    );
    service.connect().await.unwrap_err();
    assert_eq!(
        std::fs::metadata(dir.path().join("service.log"))
            .unwrap()
            .mode()
            & 0o777,
        0o600
    );
}

#[test]
fn the_socket_is_named_after_the_database() {
    let of = |db: &str| {
        let program = ServiceProgram::beside();
        LocalService::with_program(Path::new(db), None, program)
            .socket()
            .to_owned()
    };
    assert_eq!(of("/data/a.db"), of("/data/./a.db"));
    assert_ne!(of("/data/a.db"), of("/data/b.db"));
}
