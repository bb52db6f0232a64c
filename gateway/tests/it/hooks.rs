//! `context-gateway hook` as agents call it, with a fake service and with the real one, and the hooks that `install`
//! writes.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use context_gateway::hook::secrets::redact;
use context_test_support::{Home, Random, Sweep};
use serde_json::{Value, json};

use crate::fake::{Behaviour, Fake};

fn command(home: &Home) -> Command {
    home.command_at(Path::new(env!("CARGO_BIN_EXE_context-gateway")))
}

fn fire(home: &Home, arguments: &[&str], input: &str, settings: &[(&str, &str)]) -> Output {
    let mut child = command(home)
        .args(arguments)
        .envs(settings.iter().copied())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A hook that ends without reading closes the pipe.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    child.wait_with_output().unwrap()
}

fn utf8(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// With the exit code 2 Claude Code blocks the prompt. It shows everything on stdout to the model.
#[tokio::test(flavor = "multi_thread")]
async fn whatever_goes_wrong_the_agent_goes_on() {
    let home = Home::new();
    let fake = Fake::default();
    let (socket, _server) = fake.serve(home.path());
    let backend = format!("unix:{}", socket.display());
    let good = json!({"session_id": "s", "cwd": home.path(), "prompt_id": "p", "prompt": "Where does the deploy key live?"}).to_string();
    let prompt: &[&str] = &["hook", "claude", "UserPromptSubmit"];
    let state_file = home.path().join("a-file");
    std::fs::write(&state_file, "").unwrap();
    let state_file = state_file.to_str().unwrap();
    /// Arguments, input and settings.
    type Case<'c> = (&'c [&'c str], &'c str, &'c [(&'c str, &'c str)]);
    let cases: &[Case<'_>] = &[
        (prompt, "", &[]),
        (prompt, "not json", &[]),
        (prompt, "{}", &[]),
        (prompt, "[]", &[]),
        (&["hook", "claude", "NoSuchEvent"], &good, &[]),
        (&["hook", "nobody", "Stop"], &good, &[]),
        (&["hook"], &good, &[]),
        (&["hook", "--no-such-flag", "claude", "Stop"], &good, &[]),
        (prompt, &good, &[("CONTEXT_BACKEND", "nonsense://x")]),
        (prompt, &good, &[("CONTEXT_BACKEND", "unix:/no/such.sock")]),
        (prompt, &good, &[("MAX_TOTAL_SIZE_MB", "huge")]),
        (prompt, &good, &[("CONTEXT_HOOK_CAPTURE", "maybe")]),
        (prompt, &good, &[("CONTEXT_HOOK_STATE", state_file)]),
        (prompt, &good, &[("CONTEXT_API_KEY_FILE", "/no/such/file")]),
    ];
    for (arguments, input, settings) in cases {
        let mut all = vec![("CONTEXT_BACKEND", backend.as_str())];
        all.extend(settings.iter().copied());
        let output = fire(&home, arguments, input, &all);
        let stderr = utf8(&output.stderr);
        let what = format!("{arguments:?} {settings:?}: {stderr}");
        assert_eq!(
            (output.status.code(), utf8(&output.stdout).as_str()),
            (Some(0), ""),
            "{what}"
        );
        assert_eq!(stderr.lines().count(), 1, "{what}");
    }
    // A setting of another program, with which the gateway itself does not start.
    let settings = [
        ("CONTEXT_BACKEND", backend.as_str()),
        ("MCP_TRANSPORT", "sse"),
        ("CONTEXT_HOOK_TIMEOUT_MS", "30000"),
    ];
    let output = fire(&home, prompt, &good, &settings);
    assert_eq!(
        (output.status.code(), utf8(&output.stderr).as_str()),
        (Some(0), "")
    );
    assert!(utf8(&output.stdout).contains("additionalContext"));
    for behaviour in [
        Behaviour::Hang,
        Behaviour::Fail(tonic::Status::internal("broken")),
        Behaviour::Fail(tonic::Status::unavailable("")),
    ] {
        fake.behave(behaviour.clone());
        let output = fire(&home, prompt, &good, &[("CONTEXT_BACKEND", &backend)]);
        let stderr = utf8(&output.stderr);
        assert_eq!(
            (
                output.status.code(),
                utf8(&output.stdout).as_str(),
                stderr.lines().count()
            ),
            (Some(0), "", 1),
            "{behaviour:?}: {stderr}"
        );
    }
}

/// The agent waits for a hook, so the hook ends although its stdin stays open and no service responds.
#[test]
fn a_hook_ends_by_itself_when_its_input_does_not_end() {
    let home = Home::new();
    let mut child = command(&home)
        .args(["hook", "claude", "Stop"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let open = child.stdin.take();
    let output = child.wait_with_output().unwrap();
    drop(open);
    assert_eq!(output.status.code(), Some(0));
    assert!(utf8(&output.stderr).contains("the time is over"));
}

#[tokio::test(flavor = "multi_thread")]
async fn subagents_scheduled_tasks_and_excluded_projects_are_not_captured() {
    let home = Home::new();
    let fake = Fake::default();
    let (socket, _server) = fake.serve(home.path());
    let backend = format!("unix:{}", socket.display());
    let project = home.path().join("project");
    std::fs::create_dir_all(&project).unwrap();
    let send = |event: &str, mut input: Value, settings: &[(&str, &str)]| {
        input["session_id"] = json!("s");
        input["cwd"] = json!(project);
        let mut all = vec![
            ("CONTEXT_BACKEND", backend.as_str()),
            ("CONTEXT_HOOK_TIMEOUT_MS", "30000"),
        ];
        all.extend(settings.iter().copied());
        let output = fire(&home, &["hook", "claude", event], &input.to_string(), &all);
        assert_eq!(utf8(&output.stderr), "");
    };
    let stored = || {
        fake.seen()
            .iter()
            .filter(|seen| seen.operation == "store_context")
            .count()
    };
    let question = |n: usize| json!({"prompt_id": format!("p{n}"), "prompt": "Check the deploy of the parser."});
    send(
        "UserPromptSubmit",
        json!({"agent_id": "a", "prompt": "Search the parser."}),
        &[],
    );
    send(
        "UserPromptSubmit",
        json!({"prompt": "<task-notification>parser</task-notification>"}),
        &[],
    );
    send(
        "Stop",
        json!({"session_crons": [{"id": "c", "prompt": "Check the deploy of the parser."}]}),
        &[],
    );
    send("UserPromptSubmit", question(1), &[]);
    assert_eq!(stored(), 0);
    send(
        "UserPromptSubmit",
        json!({"prompt_id": "p2", "prompt": "Parser?"}),
        &[("CONTEXT_HOOK_CAPTURE", "off")],
    );
    let here = project.to_str().unwrap();
    send(
        "UserPromptSubmit",
        json!({"prompt_id": "p3", "prompt": "Parser?"}),
        &[("CONTEXT_HOOK_EXCLUDE", here)],
    );
    // Without a repository the root is the directory in which the agent works.
    std::fs::write(project.join(".contextignore"), "private/\n").unwrap();
    send(
        "UserPromptSubmit",
        json!({"prompt_id": "p4", "prompt": "Read private/keys.md about the parser."}),
        &[],
    );
    assert_eq!(stored(), 0);
    let is_searched_for = |word: &str| {
        let mut requests = fake.seen().into_iter().map(|seen| seen.request.to_string());
        requests.any(|request| request.contains(word))
    };
    assert!(is_searched_for("Parser"));
    for words in [
        "private/keys.md",
        "Search the parser",
        "task-notification",
        "Check the deploy",
    ] {
        assert!(!is_searched_for(words), "{words}");
    }
    send(
        "UserPromptSubmit",
        json!({"prompt_id": "p5", "prompt": "Parser?"}),
        &[],
    );
    assert_eq!(stored(), 1);
    std::fs::write(project.join(".contextignore"), "*\n").unwrap();
    let before = fake.seen().len();
    send(
        "UserPromptSubmit",
        json!({"prompt_id": "p6", "prompt": "Parser?"}),
        &[],
    );
    assert_eq!(
        fake.seen().len(),
        before,
        "an excluded project sends nothing at all"
    );
}

/// The files would otherwise stay forever, because no other event deletes them.
#[tokio::test(flavor = "multi_thread")]
async fn files_of_old_sessions_are_deleted_also_without_recall() {
    let home = Home::new();
    let fake = Fake::default();
    let (socket, _server) = fake.serve(home.path());
    let backend = format!("unix:{}", socket.display());
    let sessions = home
        .path()
        .join(".local/state/context-service/hooks/sessions");
    std::fs::create_dir_all(&sessions).unwrap();
    // The names of the files are hashes.
    let [old, recent] = ["0", "1"].map(|name| sessions.join(format!("{}.json", name.repeat(32))));
    std::fs::File::create(&recent).unwrap();
    std::fs::File::create(&old)
        .unwrap()
        .set_modified(std::time::UNIX_EPOCH)
        .unwrap();
    let input = json!({"session_id": "s", "cwd": home.path()}).to_string();
    let output = fire(
        &home,
        &["hook", "claude", "SessionStart"],
        &input,
        &[
            ("CONTEXT_BACKEND", backend.as_str()),
            ("CONTEXT_HOOK_RECALL", "false"),
            ("CONTEXT_HOOK_TIMEOUT_MS", "30000"),
        ],
    );
    assert_eq!(utf8(&output.stderr), "");
    assert!(!old.exists() && recent.exists());
}

#[test]
fn a_service_on_another_machine_gets_no_message_without_an_explicit_setting() {
    let home = Home::new();
    let input = json!({"session_id": "s", "cwd": home.path(), "prompt_id": "p", "last_assistant_message": "The parser."}).to_string();
    // TEST-NET-1 (RFC 5737) reaches nothing. The attempt to connect ends before the hook's time.
    let remote = ("CONTEXT_BACKEND", "http://192.0.2.1:7420");
    let time = ("CONTEXT_HOOK_TIMEOUT_MS", "30000");
    let count_waiting = || {
        let directory = home
            .path()
            .join(".local/state/context-service/hooks/waiting");
        std::fs::read_dir(directory).map_or(0, Iterator::count)
    };
    fire(&home, &["hook", "claude", "Stop"], &input, &[remote, time]);
    assert_eq!(count_waiting(), 0);
    fire(
        &home,
        &["hook", "claude", "Stop"],
        &input,
        &[remote, time, ("CONTEXT_HOOK_CAPTURE", "on")],
    );
    assert_eq!(count_waiting(), 1);
    let output = fire(&home, &["hook", "status"], "", &[remote]);
    let status = utf8(&output.stdout);
    assert!(
        status.contains("off: CONTEXT_BACKEND is another machine") && status.contains("1 messages"),
        "{status}"
    );
}

/// The next hook may run in a project with another service, perhaps on another machine.
#[tokio::test(flavor = "multi_thread")]
async fn a_message_is_sent_only_to_the_service_for_which_it_was_captured() {
    let home = Home::new();
    let [own, other] = ["own", "other"].map(|name| home.path().join(name));
    for directory in [&own, &other] {
        std::fs::create_dir(directory).unwrap();
    }
    let say = |text: &str, socket: &Path| {
        let input = json!({"session_id": "s", "cwd": home.path(), "prompt_id": text, "last_assistant_message": text});
        let backend = format!("unix:{}", socket.display());
        let settings = [
            ("CONTEXT_BACKEND", backend.as_str()),
            ("CONTEXT_HOOK_TIMEOUT_MS", "30000"),
        ];
        fire(
            &home,
            &["hook", "claude", "Stop"],
            &input.to_string(),
            &settings,
        );
    };
    let texts = |fake: &Fake| -> Vec<Value> {
        let seen = fake.seen().into_iter();
        seen.filter(|seen| seen.operation == "store_context")
            .map(|mut seen| seen.request["text"].take())
            .collect()
    };
    say("While it is down.", &own.join("service.sock"));
    let fake = Fake::default();
    let (socket, _other_server) = fake.serve(&other);
    say("Said elsewhere.", &socket);
    assert_eq!(texts(&fake), ["Said elsewhere."]);
    let fake = Fake::default();
    let (socket, _own_server) = fake.serve(&own);
    say("While it is up.", &socket);
    assert_eq!(texts(&fake), ["While it is down.", "While it is up."]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_the_service_fails_at_waits_and_holds_back_no_other() {
    let home = Home::new();
    let fake = Fake::default();
    let say = |text: &str, session: &str, backend: &str| {
        let input = json!({"session_id": session, "cwd": home.path(), "prompt_id": text, "last_assistant_message": text});
        let settings = [
            ("CONTEXT_BACKEND", backend),
            ("CONTEXT_HOOK_TIMEOUT_MS", "30000"),
        ];
        let hook: &[&str] = &["hook", "claude", "Stop"];
        utf8(&fire(&home, hook, &input.to_string(), &settings).stderr)
    };
    let backend = format!("unix:{}", home.path().join("service.sock").display());
    say("A poisoned message.", "s1", &backend);
    say("The second message.", "s1", &backend);
    let (_socket, _server) = fake.serve(home.path());
    let stored = || -> Vec<String> {
        let seen = fake.seen().into_iter();
        seen.filter(|seen| seen.operation == "store_context")
            .map(|seen| seen.request["text"].as_str().unwrap().to_owned())
            .collect()
    };
    fake.behave(Behaviour::FailAt(
        "poisoned",
        tonic::Status::internal("it broke"),
    ));
    let stderr = say("The third message.", "s2", &backend);
    assert!(stderr.contains("it broke"), "{stderr}");
    // Each once: the hook does not try the first one again and again.
    assert_eq!(
        stored(),
        [
            "A poisoned message.",
            "The second message.",
            "The third message."
        ]
    );
    fake.behave(Behaviour::Respond);
    assert_eq!(say("The fourth message.", "s2", &backend), "");
    assert_eq!(
        stored()[3..],
        ["A poisoned message.", "The fourth message."]
    );
}

#[test]
fn the_status_of_hooks_cannot_drive_the_terminal() {
    let home = Home::new();
    let state = home.path().join("state\u{1b}[2J\ncapture  on");
    let state = ("CONTEXT_HOOK_STATE", state.to_str().unwrap());
    let remote = ("CONTEXT_BACKEND", "http://192.0.2.1:7420");
    let output = fire(&home, &["hook", "status"], "", &[state, remote]);
    let status = utf8(&output.stdout);
    assert!(
        status.contains("state\\u{1b}[2J\\u{a}capture  on\n"),
        "{status}"
    );
    assert!(!status.contains('\u{1b}'));
}

/// A random token of `length` characters.
fn random(random: &mut Random, alphabet: &str, length: usize) -> String {
    let alphabet: Vec<char> = alphabet.chars().collect();
    // The last character is always a digit: real tokens of this length have one, and without any the token could look
    // like a word.
    let mut token: String = (1..length).map(|_| *random.pick(&alphabet)).collect();
    let digits: Vec<char> = alphabet
        .iter()
        .copied()
        .filter(char::is_ascii_digit)
        .collect();
    token.push(*random.pick(&digits));
    token
}

const ALNUM: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
const UPPER: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
const HEX: &str = "0123456789abcdef";
const PASSWORD: &str = "abcdefghkmnpqrstuvwxyzABCDEFGH23456789!#$%*+";

/// Two hundred lines, each with the secret that it contains: ten of each of twenty kinds. They are generated, so that
/// no file of the repository contains a text that looks like a secret.
fn planted() -> Vec<(String, String)> {
    let mut r = Random::new(7);
    let r = &mut r;
    let mut lines = Vec::new();
    for n in 0..10 {
        let mut plant = |secret: String, before: &str, after: &str| {
            let around = ["", "Please note: ", "  - ", "export X=1; ", "> "][n % 5];
            lines.push((format!("{around}{before}{secret}{after}"), secret));
        };
        plant(random(r, ALNUM, 36), "the clone uses ghp_", " now");
        plant(
            format!("{}_{}", random(r, ALNUM, 22), random(r, ALNUM, 40)),
            "github_pat_",
            "",
        );
        plant(random(r, ALNUM, 20), "glpat-", ".");
        plant(random(r, UPPER, 16), ["AKIA", "ASIA"][n % 2], " is the id");
        plant(random(r, ALNUM, 40), "aws_secret_access_key = ", "");
        plant(
            format!("{}-{}", random(r, "0123456789", 12), random(r, ALNUM, 24)),
            ["xoxb-", "xoxp-"][n % 2],
            "",
        );
        plant(
            random(r, ALNUM, 24),
            ["sk_live_", "rk_live_", "sk_test_"][n % 3],
            "\"",
        );
        plant(random(r, ALNUM, 35), "AIza", "&x=1");
        plant(
            random(r, ALNUM, 48),
            ["sk-", "sk-proj-", "sk-ant-api03-"][n % 3],
            "",
        );
        plant(random(r, ALNUM, 36), "//registry/:_authToken=npm_", "");
        plant(random(r, ALNUM, 100), "pypi-AgEIcHlwaS5vcmc", "");
        plant(
            format!("{}.{}", random(r, ALNUM, 60), random(r, ALNUM, 43)),
            "eyJhbGciOiJIUzI1NiJ9.eyJ",
            "",
        );
        plant(
            random(r, PASSWORD, 12),
            ["https://deploy:", "postgres://app:", "redis://:"][n % 3],
            "@host.example/db",
        );
        plant(
            random(r, PASSWORD, 14),
            ["password=", "DB_PASSWORD=", "passwd: ", "--password "][n % 4],
            "",
        );
        plant(
            random(r, PASSWORD, 14),
            ["\"password\": \"", "password = '", "pwd: \""][n % 3],
            ["\"", "'", "\""][n % 3],
        );
        plant(
            random(r, PASSWORD, 10),
            "the password for the staging host is ",
            " by the way",
        );
        plant(
            random(r, ALNUM, 40),
            ["Authorization: Bearer ", "authorization: bearer "][n % 2],
            "",
        );
        plant(
            random(r, HEX, 32),
            ["api_key: ", "API_KEY=", "client_secret=", "our api key is "][n % 4],
            "",
        );
        plant(
            random(r, ALNUM, 32),
            ["the token: ", "secret = ", "the secret is "][n % 3],
            " (keep it)",
        );
        let body: Vec<String> = (0..4).map(|_| random(r, ALNUM, 64)).collect();
        let label = ["RSA PRIVATE KEY", "OPENSSH PRIVATE KEY", "PRIVATE KEY"][n % 3];
        let newline = ["\n", "\\n"][n % 2];
        plant(
            body.join(newline),
            &format!("-----BEGIN {label}-----{newline}"),
            &format!("{newline}-----END {label}-----"),
        );
    }
    lines
}

/// Whether a text contains any eight consecutive characters of the secret.
fn leaks(text: &str, secret: &str) -> bool {
    secret
        .as_bytes()
        .windows(8)
        .any(|part| text.contains(std::str::from_utf8(part).unwrap()))
}

#[test]
fn of_two_hundred_planted_secrets_none_stays_in_the_text() {
    let planted = planted();
    assert_eq!(planted.len(), 200);
    let missed: Vec<_> = planted
        .iter()
        .filter(|(line, secret)| leaks(&redact(line).text, secret))
        .map(|(line, _)| format!("{line} → {}", redact(line).text))
        .collect();
    assert!(
        missed.is_empty(),
        "{} of 200:\n{}",
        missed.len(),
        missed.join("\n")
    );
}

#[test]
fn at_most_two_in_a_hundred_ordinary_lines_are_altered() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let files = [
        "docs/keys.md",
        "docs/configuration.md",
        "docs/operations.md",
        "docs/gateway.md",
        "tests/retrieval/data/team-chat.jsonl",
        "tests/retrieval/data/notes.jsonl",
        "clients/typescript/package.json",
        "gateway/src/key_file.rs",
        "services/oidc/src/lib.rs",
        "services/server/src/write_context.rs",
    ];
    let text: Vec<String> = files
        .iter()
        .map(|file| std::fs::read_to_string(root.join(file)).unwrap())
        .collect();
    let lines: Vec<&str> = text
        .iter()
        .flat_map(|text| text.lines())
        .filter(|line| !line.trim().is_empty())
        .collect();
    assert!(lines.len() > 1500, "{} lines", lines.len());
    let altered: Vec<_> = lines
        .iter()
        .filter(|line| redact(line).removed > 0)
        .collect();
    assert!(
        altered.len() * 50 <= lines.len(),
        "{} of {}: {altered:#?}",
        altered.len(),
        lines.len()
    );
    // Redacting twice changes nothing more.
    for (line, _) in planted() {
        let once = redact(&line).text;
        assert_eq!(redact(&once).text, once);
    }
}

/// Every file below a directory, as one text.
fn files_below(directory: &Path) -> String {
    let mut text = String::new();
    for file in std::fs::read_dir(directory).unwrap() {
        let path = file.unwrap().path();
        if path.is_dir() {
            text.push_str(&files_below(&path));
        } else if path.is_file() {
            text.push_str(&String::from_utf8_lossy(&std::fs::read(&path).unwrap()));
        }
    }
    text
}

#[tokio::test(flavor = "multi_thread")]
async fn no_planted_secret_leaves_the_process_in_requests_files_or_lines_on_stderr() {
    let home = Home::new();
    let state = home.path().join("state");
    let fake = Fake::default();
    let (socket, mut server) = fake.serve(home.path());
    let backend = format!("unix:{}", socket.display());
    let settings = [
        ("CONTEXT_BACKEND", backend.as_str()),
        ("CONTEXT_HOOK_STATE", state.to_str().unwrap()),
        ("CONTEXT_HOOK_TIMEOUT_MS", "30000"),
    ];
    let planted = planted();
    let mut stderr = String::new();
    for (n, lines) in planted.chunks(10).enumerate() {
        if n == 10 {
            // The later messages wait in files.
            server.kill();
        }
        let text: Vec<&str> = lines.iter().map(|(line, _)| line.as_str()).collect();
        let text = format!("About the parser:\n{}", text.join("\n"));
        for (event, name) in [
            ("UserPromptSubmit", "prompt"),
            ("Stop", "last_assistant_message"),
        ] {
            let input = json!({"session_id": "s", "cwd": home.path(), "prompt_id": format!("p{n}"), name: text});
            let output = fire(
                &home,
                &["hook", "claude", event],
                &input.to_string(),
                &settings,
            );
            assert_eq!(output.status.code(), Some(0));
            stderr.push_str(&utf8(&output.stderr));
        }
    }
    let requests: Vec<String> = fake
        .seen()
        .iter()
        .map(|seen| seen.request.to_string())
        .collect();
    let sent = requests.join("\n");
    let files = files_below(&state);
    // A prompt and an answer of each part: those of the first half were sent, and those of the second half wait.
    let seen = fake.seen().into_iter();
    let stored = seen.filter(|seen| seen.operation == "store_context");
    let waiting = std::fs::read_dir(state.join("waiting")).unwrap();
    assert_eq!((stored.count(), waiting.count()), (20, 20));
    for (line, secret) in &planted {
        assert!(!leaks(&sent, secret), "sent: {line}");
        assert!(!leaks(&files, secret), "in a file: {line}");
        assert!(!leaks(&stderr, secret), "on stderr: {line}");
    }
}

#[test]
fn hooks_are_installed_beside_others_and_removed_without_a_trace() {
    let home = Home::new();
    let directory = home.path().join(".claude");
    std::fs::create_dir_all(&directory).unwrap();
    let file = directory.join("settings.json");
    let original = "{\n  // mine\n  \"model\": \"opus\",\n  \"hooks\": {\n    \"Stop\": [\n      { \"hooks\": [{ \"type\": \"command\", \"command\": \"say done\" }] }\n    ]\n  }\n}\n";
    std::fs::write(&file, original).unwrap();
    let read = || std::fs::read_to_string(&file).unwrap();
    let install = |more: &[&str]| {
        let file = home.path().join("mcp.json");
        let fixed = ["install", "claude", "--file", file.to_str().unwrap()];
        let arguments = [fixed.as_slice(), more].concat();
        let output = fire(&home, &arguments, "", &[]);
        assert!(output.status.success(), "{}", utf8(&output.stderr));
        utf8(&output.stdout)
    };
    let diff = install(&["--hooks", "--dry-run"]);
    assert_eq!(read(), original);
    assert!(!home.path().join("mcp.json").exists());
    assert!(
        diff.contains("+++ ")
            && diff.contains("hook claude UserPromptSubmit")
            && !diff.contains("\n-  \"model\""),
        "{diff}"
    );
    install(&["--hooks", "--db-path", "/data/it's.db"]);
    let installed = read();
    assert!(installed.contains("// mine") && installed.contains("say done"));
    for event in [
        "SessionStart",
        "UserPromptSubmit",
        "Stop",
        "PreCompact",
        "SessionEnd",
    ] {
        assert!(
            installed.contains(&format!(
                "hook --db-path '/data/it'\\\\''s.db' claude {event}\""
            )),
            "{installed}"
        );
    }
    let saved = directory.join("settings.json.before-context-gateway");
    assert_eq!(std::fs::read_to_string(saved).unwrap(), original);
    assert!(
        install(&["--hooks", "--db-path", "/data/it's.db"]).contains("already has these hooks")
    );
    assert_eq!(read(), installed, "installing twice changes nothing");
    install(&["--hooks"]);
    assert_eq!(
        read().matches("hook claude Stop").count(),
        1,
        "other settings replace the hooks"
    );
    let diff = install(&["--uninstall", "--dry-run"]);
    assert!(diff.contains("hook claude Stop"), "{diff}");
    install(&["--uninstall"]);
    assert_eq!(read(), original);
    assert!(install(&["--uninstall"]).contains("has no hooks"));
}

#[test]
fn the_hooks_of_codex_and_gemini_stand_in_their_own_files() {
    for (client, file, events) in [
        (
            "codex",
            ".codex/hooks.json",
            &["SessionStart", "UserPromptSubmit", "Stop", "SessionEnd"][..],
        ),
        (
            "gemini",
            ".gemini/settings.json",
            &["SessionStart", "BeforeAgent", "AfterAgent", "SessionEnd"],
        ),
    ] {
        let home = Home::new();
        let file = home.path().join(file);
        let install = |more: &[&str]| {
            let output = fire(&home, &[&["install", client], more].concat(), "", &[]);
            assert!(output.status.success(), "{}", utf8(&output.stderr));
        };
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        let original = "{\n  \"hooks\": {\n    \"Stop\": [\n      { \"hooks\": [{ \"command\": \"x\" }] }\n    ]\n  },\n  \"mcpServers\": {\n    \"other\": {}\n  }\n}\n";
        std::fs::write(&file, original).unwrap();
        install(&["--hooks"]);
        let installed: Value =
            serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
        for event in events {
            let groups = installed["hooks"][event].as_array().unwrap();
            let hook = &groups.last().unwrap()["hooks"][0];
            let command = hook["command"].as_str().unwrap();
            assert!(
                command.ends_with(&format!(" hook {client} {event}")),
                "{command}"
            );
            let timeout = match (client, *event) {
                ("gemini", _) => 5000,
                (_, "SessionEnd") => 3,
                _ => 5,
            };
            assert_eq!(hook["timeout"], timeout, "{client}");
        }
        install(&["--uninstall"]);
        assert_eq!(
            std::fs::read_to_string(&file).unwrap(),
            original,
            "{client}"
        );
    }
    let refused = fire(&Home::new(), &["install", "zed", "--hooks"], "", &[]);
    assert!(!refused.status.success());
    assert!(utf8(&refused.stderr).contains("claude, codex and gemini"));
}

/// The inputs are those of Codex 0.169 and Gemini CLI 0.61, which name the id of a turn differently.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_said_to_one_agent_is_recalled_for_another() {
    let home = Home::new();
    // The first hook starts a service.
    let _sweep = Sweep(home.database());
    let project = home.path().join("project");
    std::fs::create_dir_all(&project).unwrap();
    let send = |agent: &str, event: &str, mut input: Value| {
        input["cwd"] = json!(project);
        input["hook_event_name"] = json!(event);
        let settings = [("CONTEXT_HOOK_TIMEOUT_MS", "60000")];
        let output = fire(
            &home,
            &["hook", agent, event],
            &input.to_string(),
            &settings,
        );
        assert_eq!(utf8(&output.stderr), "", "{agent} {event}");
        utf8(&output.stdout)
    };
    let codex = json!({"session_id": "c", "turn_id": "t1", "model": "gpt", "permission_mode": "default", "transcript_path": null});
    let with = |base: &Value, more: Value| {
        let mut all = base.clone();
        for (name, value) in more.as_object().unwrap() {
            all[name] = value.clone();
        }
        all
    };
    let fact = "The staging database listens on port 6543, behind the blue proxy.";
    send(
        "codex",
        "SessionStart",
        with(&codex, json!({"source": "startup"})),
    );
    send(
        "codex",
        "UserPromptSubmit",
        with(&codex, json!({"prompt": fact})),
    );
    // Fired twice, as when a plugin and the settings both have the hook.
    send(
        "codex",
        "UserPromptSubmit",
        with(&codex, json!({"prompt": fact})),
    );
    send(
        "codex",
        "Stop",
        with(
            &codex,
            json!({"last_assistant_message": "Noted.", "stop_hook_active": false}),
        ),
    );
    let gemini = |seconds: u32, more: Value| {
        let base = json!({"session_id": "g", "transcript_path": "/nowhere", "timestamp": format!("2026-11-24T10:00:{seconds:02}.000Z")});
        with(&base, more)
    };
    let question = "On which port does the staging database listen?";
    let answer = send(
        "gemini",
        "BeforeAgent",
        gemini(1, json!({"prompt": question})),
    );
    let answer: Value = serde_json::from_str(&answer)
        .unwrap_or_else(|error| panic!("no recall: {error}: {answer}"));
    assert_eq!(answer["hookSpecificOutput"]["hookEventName"], "BeforeAgent");
    let recalled = answer["hookSpecificOutput"]["additionalContext"]
        .as_str()
        .unwrap();
    assert!(recalled.contains("6543"), "{recalled}");
    send(
        "gemini",
        "AfterAgent",
        gemini(
            2,
            json!({"prompt": question, "prompt_response": "On port 6543."}),
        ),
    );
    send("gemini", "SessionEnd", gemini(3, json!({"reason": "exit"})));
    let listed = fire(&home, &["list", "--json", "--limit", "50"], "", &[]);
    assert_eq!(utf8(&listed.stderr), "");
    let listed: Value = serde_json::from_str(&utf8(&listed.stdout)).unwrap();
    let mut said: Vec<(String, String, String)> = listed["results"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            (
                text(&entry["metadata"]["agent"]),
                text(&entry["source"]),
                text(&entry["text_content"]),
            )
        })
        .collect();
    said.sort();
    let expected = [
        ("codex", "agent", "Noted."),
        ("codex", "user", fact),
        ("gemini", "agent", "On port 6543."),
        ("gemini", "user", question),
    ];
    let expected = expected.map(|(a, b, c)| (a.to_owned(), b.to_owned(), c.to_owned()));
    assert_eq!(said, expected);
}
