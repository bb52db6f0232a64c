//! The hooks of agents against a real service: what they capture arrives once, whatever happens to the service and
//! however often they fire, and what they recall stays inside a project.

#![expect(
    clippy::disallowed_methods,
    reason = "prints how long an agent waits for a hook"
)]

use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use context_faults::blocker::Blocker;
use context_proto::v1 as pb;
use context_test_support::{Home, Sweep, grpc};
use diesel::connection::SimpleConnection as _;
use diesel::{Connection as _, SqliteConnection};
use serde_json::{Value, json};

/// The hooks of one user.
struct Hooks {
    home: Home,
    /// What hooks wrote to stderr.
    complaints: std::sync::Mutex<Vec<String>>,
}

impl Hooks {
    fn new() -> Self {
        Self {
            // These tests show that nothing is lost, on however busy a machine. A hook that ends early is another test.
            home: Home::new().with("CONTEXT_HOOK_TIMEOUT_MS", "30000"),
            complaints: std::sync::Mutex::default(),
        }
    }

    /// A project in a directory of this name, whose remote has this name too.
    fn project(&self, name: &str) -> PathBuf {
        let root = self.home.path().join("projects").join(name);
        std::fs::create_dir_all(root.join(".git")).unwrap();
        std::fs::write(root.join(".git/HEAD"), "ref: refs/heads/main\n").unwrap();
        let config = format!(
            "[remote \"origin\"]\n\turl = https://me:pa55word@git.example/acme/{name}.git\n"
        );
        std::fs::write(root.join(".git/config"), config).unwrap();
        root
    }

    /// Fires a hook and returns what the agent gets. The hook must end with status 0, and may write one line to stderr.
    async fn fire(&self, event: &str, input: Value) -> String {
        self.fire_with(event, input, &[]).await
    }

    async fn fire_with(&self, event: &str, input: Value, settings: &[(&str, &str)]) -> String {
        let mut command = self.home.command("context-gateway");
        command
            .args(["hook", "claude", event])
            .envs(settings.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let run = tokio::task::spawn_blocking(move || {
            let mut child = command.spawn().unwrap();
            let mut stdin = child.stdin.take().unwrap();
            stdin.write_all(input.to_string().as_bytes()).unwrap();
            drop(stdin);
            child.wait_with_output().unwrap()
        });
        let output = run.await.unwrap();
        assert_eq!(output.status.code(), Some(0));
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert!(stderr.lines().count() <= 1, "{stderr}");
        if !stderr.is_empty() {
            self.complaints.lock().unwrap().push(stderr);
        }
        let answer = String::from_utf8(output.stdout).unwrap();
        if answer.is_empty() {
            return answer;
        }
        let answer: Value = serde_json::from_str(&answer).unwrap();
        assert_eq!(answer["hookSpecificOutput"]["hookEventName"], event);
        answer["hookSpecificOutput"]["additionalContext"]
            .as_str()
            .unwrap()
            .to_owned()
    }

    /// Fires a hook that has nothing to capture until no message waits.
    async fn flush(&self) {
        for _ in 0..200 {
            if waiting(self.home.path()).is_empty() {
                return;
            }
            self.fire("PreCompact", json!({"session_id": "flush", "cwd": "/"}))
                .await;
        }
        let files = waiting(self.home.path());
        let complaints = self.complaints.lock().unwrap();
        let last = complaints.iter().rev().take(5).collect::<Vec<_>>();
        panic!("{} messages still wait: {last:?}", files.len());
    }

    /// Every entry, oldest first.
    async fn entries(&self) -> Vec<pb::ContextHit> {
        let mut client = grpc::contexts(grpc::at_socket(&self.home.socket()));
        let request = pb::SearchContextRequest {
            limit: Some(100),
            ..pb::SearchContextRequest::default()
        };
        let mut found = client
            .search_context(request)
            .await
            .unwrap()
            .into_inner()
            .results;
        found.reverse();
        found
    }

    async fn store(&self, thread_id: &str, text: &str, metadata: Value) {
        let mut client = grpc::contexts(grpc::at_socket(&self.home.socket()));
        let Value::Object(metadata) = metadata else {
            panic!("an object")
        };
        let request = pb::StoreContextRequest {
            thread_id: thread_id.to_owned(),
            source: "agent".to_owned(),
            text: text.to_owned(),
            metadata: Some(context_proto::Object::from(&metadata)),
            ..pb::StoreContextRequest::default()
        };
        client.store_context(request).await.unwrap();
    }
}

fn texts(entries: &[pb::ContextHit]) -> Vec<&str> {
    entries
        .iter()
        .map(|entry| entry.text_content.as_str())
        .collect()
}

/// The files of messages that wait.
fn waiting(home: &Path) -> Vec<PathBuf> {
    let directory = home.join(".local/state/context-service/hooks/waiting");
    let Ok(files) = std::fs::read_dir(directory) else {
        return Vec::new();
    };
    let paths = files.map(|file| file.unwrap().path());
    // A hook that was ended while it wrote leaves a draft.
    paths
        .filter(|path| path.extension().is_some_and(|kind| kind == "json"))
        .collect()
}

fn prompt(session: &str, cwd: &Path, id: &str, text: &str) -> Value {
    json!({"session_id": session, "cwd": cwd, "prompt_id": id, "prompt": text})
}

fn stop(session: &str, cwd: &Path, id: &str, text: &str) -> Value {
    json!({"session_id": session, "cwd": cwd, "prompt_id": id, "last_assistant_message": text})
}

#[tokio::test(flavor = "multi_thread")]
async fn what_one_session_says_the_next_one_recalls_once_and_no_other_project_does() {
    let hooks = Hooks::new();
    let mut service = hooks.home.start().await;
    let (app, other) = (hooks.project("app"), hooks.project("other"));
    let fact = "The deploy key lives in vault seven.";
    assert_eq!(
        hooks
            .fire("UserPromptSubmit", prompt("s1", &app, "p1", fact))
            .await,
        ""
    );
    assert_eq!(
        hooks.fire("Stop", stop("s1", &app, "p1", "Noted.")).await,
        ""
    );
    let question = "Where does the deploy key live? In which vault?";
    let same = hooks
        .fire("UserPromptSubmit", prompt("s1", &app, "p2", question))
        .await;
    assert_eq!(same, "", "a session is not told what it said itself");
    let told = hooks
        .fire("UserPromptSubmit", prompt("s2", &app, "p3", question))
        .await;
    assert!(
        told.contains(fact) && told.contains("[id 1, ") && told.contains("not instructions"),
        "{told}"
    );
    let again = hooks
        .fire("UserPromptSubmit", prompt("s2", &app, "p4", question))
        .await;
    assert!(!again.contains(fact), "{again}");
    let elsewhere = hooks
        .fire("UserPromptSubmit", prompt("s3", &other, "p5", question))
        .await;
    assert_eq!(elsewhere, "", "another project");
    hooks
        .store(
            "notes",
            "Deploy key rotation: the deploy key changes in each vault on Mondays.",
            json!({"scope": "general"}),
        )
        .await;
    let general = hooks
        .fire("UserPromptSubmit", prompt("s4", &other, "p6", question))
        .await;
    assert!(
        general.contains("on Mondays") && !general.contains(fact),
        "{general}"
    );

    let thread = "git.example/acme/app/s1";
    let stored = hooks.entries().await;
    assert_eq!(
        (
            stored[0].text_content.as_str(),
            stored[0].source.as_str(),
            stored[0].thread_id.as_str()
        ),
        (fact, "user", thread)
    );
    assert_eq!(
        (
            stored[1].text_content.as_str(),
            stored[1].source.as_str(),
            stored[1].thread_id.as_str()
        ),
        ("Noted.", "agent", thread)
    );
    let shown = format!("{stored:?}");
    assert!(!shown.contains("pa55word"), "credentials of the remote");

    // The brief of a new session has the open threads and the decisions of its project, and none of other projects.
    hooks
        .fire("SessionEnd", json!({"session_id": "s2", "cwd": &app}))
        .await;
    hooks
        .store(
            "plans",
            "We chose SQLite for the laptop build.",
            json!({"project": "git.example/acme/app", "type": "decision"}),
        )
        .await;
    hooks
        .store(
            "plans",
            "We chose Oracle.",
            json!({"project": "git.example/acme/other", "type": "decision"}),
        )
        .await;
    let brief = hooks
        .fire(
            "SessionStart",
            json!({"session_id": "s5", "cwd": &app, "source": "startup"}),
        )
        .await;
    assert!(
        brief.contains("Open threads:") && brief.contains("SQLite") && !brief.contains("Oracle"),
        "{brief}"
    );
    service.kill();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_is_stored_once_however_often_its_hook_fires_and_after_two_days() {
    let hooks = Hooks::new();
    let app = hooks.project("app");
    let transcript = hooks.home.path().join("t.jsonl");
    let record = |kind: &str, id: &str, text: &str| {
        let message = json!({"id": format!("m{id}"), "model": "opus", "content": [{"type": "text", "text": text}]});
        json!({"type": kind, "promptId": id, "message": message}).to_string()
    };
    let said = [
        record("user", "p1", "First question?"),
        record("assistant", "", "First answer."),
        record("user", "p2", "Again."),
        record("assistant", "", "Same."),
        record("user", "p3", "Again."),
        record("assistant", "", "Same."),
    ];
    std::fs::write(&transcript, said.join("\n")).unwrap();
    let end =
        json!({"session_id": "s", "cwd": &app, "prompt_id": "p3", "transcript_path": &transcript});
    let fire_all = async || {
        for _ in 0..3 {
            hooks
                .fire(
                    "UserPromptSubmit",
                    prompt("s", &app, "p1", "First question?"),
                )
                .await;
            hooks
                .fire("Stop", stop("s", &app, "p1", "First answer."))
                .await;
            hooks
                .fire("UserPromptSubmit", prompt("s", &app, "p2", "Again."))
                .await;
            // The hooks for the rest did not run. The transcript fills the gap.
            hooks.fire("PreCompact", end.clone()).await;
            hooks.fire("SessionEnd", end.clone()).await;
        }
        hooks.flush().await;
    };
    let expected = [
        "First question?",
        "First answer.",
        "Again.",
        "Same.",
        "Again.",
        "Same.",
    ];
    let mut service = hooks.home.start().await;
    fire_all().await;
    assert_eq!(texts(&hooks.entries().await), expected);
    service.kill();
    // Two days later the service has deleted the idempotency keys, and this machine its record of what it sent.
    let mut database =
        SqliteConnection::establish(hooks.home.database().to_str().unwrap()).unwrap();
    database.batch_execute("DELETE FROM idempotency").unwrap();
    drop(database);
    std::fs::remove_dir_all(hooks.home.path().join(".local/state")).unwrap();
    let mut service = hooks.home.start().await;
    fire_all().await;
    assert_eq!(texts(&hooks.entries().await), expected);
    service.kill();
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_wait_privately_while_the_service_is_away_and_arrive_once_in_order() {
    let hooks = Hooks::new();
    let app = hooks.project("app");
    // With an address no hook starts the service.
    let away = format!("unix:{}", hooks.home.socket().display());
    for n in 0..5 {
        let input = prompt(
            "s",
            &app,
            &format!("p{n}"),
            &format!("Message {n} about the parser."),
        );
        let told = hooks
            .fire_with("UserPromptSubmit", input, &[("CONTEXT_BACKEND", &away)])
            .await;
        assert_eq!(told, "");
    }
    let files = waiting(hooks.home.path());
    assert_eq!(files.len(), 5);
    for file in files {
        assert_eq!(
            std::fs::metadata(file).unwrap().permissions().mode() & 0o777,
            0o600
        );
    }
    // A write that was cut off, by a full disk or a power cut.
    let directory = hooks
        .home
        .path()
        .join(".local/state/context-service/hooks/waiting");
    std::fs::write(directory.join("00000000000000000001-x.json"), "{\"id\":").unwrap();
    let mut service = hooks.home.start().await;
    hooks.fire("Stop", stop("s", &app, "p4", "Done.")).await;
    hooks.flush().await;
    let mut expected: Vec<String> = (0..5)
        .map(|n| format!("Message {n} about the parser."))
        .collect();
    expected.push("Done.".to_owned());
    assert_eq!(texts(&hooks.entries().await), expected);
    service.kill();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hook_starts_a_service_that_is_not_running() {
    let hooks = Hooks::new();
    let _sweep = Sweep(hooks.home.database());
    let app = hooks.project("app");
    hooks
        .fire("SessionStart", json!({"session_id": "s", "cwd": &app}))
        .await;
    hooks
        .fire("UserPromptSubmit", prompt("s", &app, "p", "Hello, parser."))
        .await;
    hooks.flush().await;
    assert_eq!(texts(&hooks.entries().await), ["Hello, parser."]);
}

#[tokio::test(flavor = "multi_thread")]
async fn fifty_hooks_at_once_lose_nothing_and_double_nothing() {
    let hooks = std::sync::Arc::new(Hooks::new());
    let mut service = hooks.home.start().await;
    let app = hooks.project("app");
    let mut firing = tokio::task::JoinSet::new();
    for n in 0..50 {
        let (hooks, app) = (hooks.clone(), app.clone());
        firing.spawn(async move {
            let (session, id) = (format!("s{}", n % 5), format!("p{n}"));
            // Each message twice, so that two processes race for it.
            let input = stop(&session, &app, &id, &format!("Answer {n}."));
            hooks.fire("Stop", input.clone()).await;
            hooks.fire("Stop", input).await;
        });
    }
    tokio::time::timeout(Duration::from_secs(120), firing.join_all())
        .await
        .unwrap();
    hooks.flush().await;
    let entries = hooks.entries().await;
    let mut found = texts(&entries);
    found.sort_unstable();
    let mut expected: Vec<String> = (0..50).map(|n| format!("Answer {n}.")).collect();
    expected.sort_unstable();
    assert_eq!(found, expected);
    service.kill();
}

/// What happens to the service while fifty hooks fire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trouble {
    Killed,
    Stopped,
    /// Another process has the database's write lock, and the queue is full.
    Full,
}

/// Fires fifty hooks at once while the service is in trouble, and repairs it. Every message must arrive once: those
/// that a hook captured, and, from the transcript at the session's end, those of hooks that had no time. Prints the
/// longest time that the agent waited.
async fn fifty_at_once(trouble: Trouble) {
    const SESSIONS: usize = 5;
    let hooks = Hooks {
        home: Home::new()
            .with("SQLITE_WRITE_QUEUE", "8")
            .with("SQLITE_BUSY_TIMEOUT_MS", "600000"),
        complaints: std::sync::Mutex::default(),
    };
    let hooks = std::sync::Arc::new(hooks);
    let mut service = hooks.home.start().await;
    let app = hooks.project("app");
    let transcript = |session: usize| hooks.home.path().join(format!("{session}.jsonl"));
    for session in 0..SESSIONS {
        let records: Vec<String> = (session..50)
            .step_by(SESSIONS)
            .map(|n| {
                let content =
                    json!([{"type": "text", "text": format!("Answer {n} about the parser.")}]);
                let question = json!({"content": format!("Question {n}?")});
                let asked =
                    json!({"type": "user", "promptId": format!("p{n}"), "message": question});
                let message = json!({"id": format!("m{n}"), "model": "opus", "content": content});
                format!(
                    "{asked}\n{}",
                    json!({"type": "assistant", "message": message})
                )
            })
            .collect();
        std::fs::write(transcript(session), records.join("\n")).unwrap();
    }
    let pid = service.pid();
    let signal = |signal| rustix::process::kill_process(pid, signal).unwrap();
    let blocker = match trouble {
        Trouble::Killed => None,
        Trouble::Stopped => {
            signal(rustix::process::Signal::STOP);
            None
        }
        Trouble::Full => Some(Blocker::hold(&hooks.home.database())),
    };
    if trouble == Trouble::Killed {
        service.kill();
    }
    // With an address no hook starts another service.
    let backend = format!("unix:{}", hooks.home.socket().display());
    let mut firing = tokio::task::JoinSet::new();
    for n in 0..50 {
        let (hooks, app, backend) = (hooks.clone(), app.clone(), backend.clone());
        firing.spawn(async move {
            let text = format!("Answer {n} about the parser.");
            let input = stop(&format!("s{}", n % SESSIONS), &app, &format!("p{n}"), &text);
            let began = std::time::Instant::now();
            hooks
                .fire_with("Stop", input, &[("CONTEXT_BACKEND", &backend)])
                .await;
            began.elapsed()
        });
    }
    let waits = firing.join_all().await;
    let captured = waiting(hooks.home.path()).len();
    eprintln!(
        "{trouble:?}: 50 hooks at once, the longest wait {} ms; {captured} messages wait for the service",
        waits.iter().max().unwrap().as_millis()
    );
    // The service acknowledged nothing, so each message waits, or its hook had no time and said so.
    let complaints = hooks.complaints.lock().unwrap().clone();
    let is_late = |complaint: &&String| complaint.contains("the time is over");
    let late = complaints.iter().filter(is_late).count();
    assert!(
        captured + late >= 50,
        "{trouble:?}: {captured} messages wait, {late} hooks were late: {complaints:?}"
    );
    drop(blocker);
    match trouble {
        Trouble::Killed => service = hooks.home.start().await,
        Trouble::Stopped => signal(rustix::process::Signal::CONT),
        Trouble::Full => {}
    }
    let patient = [("CONTEXT_HOOK_TIMEOUT_MS", "30000")];
    for session in 0..SESSIONS {
        let end = json!({"session_id": format!("s{session}"), "cwd": &app, "transcript_path": transcript(session)});
        hooks.fire_with("SessionEnd", end, &patient).await;
    }
    hooks.flush().await;
    let entries = hooks.entries().await;
    let mut found = texts(&entries);
    found.sort_unstable();
    // No hook fired for the prompts: they come from the transcript alone.
    let mut expected: Vec<String> = (0..50)
        .flat_map(|n| {
            [
                format!("Answer {n} about the parser."),
                format!("Question {n}?"),
            ]
        })
        .collect();
    expected.sort_unstable();
    assert_eq!(found, expected);
    service.kill();
}

#[tokio::test(flavor = "multi_thread")]
async fn fifty_hooks_at_once_lose_and_double_nothing_when_the_service_was_killed() {
    fifty_at_once(Trouble::Killed).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn fifty_hooks_at_once_lose_and_double_nothing_while_the_service_is_stopped() {
    fifty_at_once(Trouble::Stopped).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn fifty_hooks_at_once_lose_and_double_nothing_while_the_service_is_full() {
    fifty_at_once(Trouble::Full).await;
}

/// Prints how long the agent waits for a hook, with a service that runs and 100 000 entries in ten projects. It is the
/// worst case of a recall: every entry has words of every prompt. Complaints are hooks that ended without an answer, of
/// all events so far. Figures of a debug build say little:
///
/// ```text
/// cargo nextest run --locked --workspace --run-ignored only --no-capture -E 'test(latency_of_hooks)'
/// ```
#[tokio::test(flavor = "multi_thread")]
#[ignore = "a measurement of a few minutes, without an assertion about its result"]
async fn latency_of_hooks() {
    const ENTRIES: usize = 100_000;
    const RUNS: usize = 500;
    let hooks = Hooks {
        home: Home::new(),
        complaints: std::sync::Mutex::default(),
    };
    let mut service = hooks.home.start().await;
    let app = hooks.project("app0");
    let mut client = grpc::contexts(grpc::at_socket(&hooks.home.socket()));
    let subjects = [
        "parser", "invoice", "gauge", "router", "scanner", "tariff", "ledger", "cache", "backup",
        "tunnel",
    ];
    for batch in 0..ENTRIES / 100 {
        let entries = (0..100)
            .map(|place| {
                let n = batch * 100 + place;
                let (project, subject) = (n % 10, subjects[n / 10 % 10]);
                let metadata = json!({
                    "project": format!("git.example/acme/app{project}"),
                    "session": format!("old{}", n / 200),
                    "message_id": format!("{n:032x}"),
                });
                let Value::Object(metadata) = metadata else {
                    panic!("an object")
                };
                let text = format!(
                    "The {subject} of lot {n} was checked on day {}; its limit is {} units.",
                    n % 365,
                    n % 977
                );
                pb::StoreContextRequest {
                    thread_id: format!("git.example/acme/app{project}/old{}", n / 200),
                    source: ["user", "agent"][n % 2].to_owned(),
                    text,
                    metadata: Some(context_proto::Object::from(&metadata)),
                    ..pb::StoreContextRequest::default()
                }
            })
            .collect();
        let request = pb::StoreContextBatchRequest {
            entries,
            ..pb::StoreContextBatchRequest::default()
        };
        client.store_context_batch(request).await.unwrap();
    }
    for event in ["UserPromptSubmit", "SessionStart", "Stop"] {
        let mut times = Vec::new();
        for n in 0..RUNS {
            let subject = subjects[n % subjects.len()];
            let input = json!({
                "session_id": format!("s{}", n / 20),
                "cwd": &app,
                "prompt_id": format!("p{n}"),
                "prompt": format!("What is the limit of the {subject} of lot {}?", n * 10),
                "last_assistant_message": format!("The limit of the {subject} is {n}."),
            });
            let began = std::time::Instant::now();
            hooks.fire(event, input).await;
            times.push(began.elapsed());
        }
        times.sort_unstable();
        let at = |percent: usize| {
            times[(RUNS * percent / 100).min(RUNS - 1)].as_micros() as f64 / 1000.0
        };
        let late = hooks.complaints.lock().unwrap().len();
        eprintln!(
            "{event}: {RUNS} runs, p50 {:.1} ms, p95 {:.1} ms, longest {:.1} ms, complaints {late}",
            at(50),
            at(95),
            at(100)
        );
    }
    service.kill();
}
