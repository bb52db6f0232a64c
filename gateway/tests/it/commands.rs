//! The commands for people and scripts, over a real service, and over a fake one where only the request matters.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use context_model::{Error, Reason};
use context_proto::status_from_error;
use context_test_support::{Home, Sweep, services_of, wait_for};
use serde_json::{Value, json};

use crate::fake::{Behaviour, Fake};

const GATEWAY: &str = env!("CARGO_BIN_EXE_context-gateway");
/// Runs its arguments on a terminal.
const ON_A_TERMINAL: &str =
    "import os, pty, sys; sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))";

struct Ran {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

impl Ran {
    fn json(&self) -> Value {
        assert_eq!(self.code, Some(0), "{}", self.stderr);
        serde_json::from_str(&self.stdout)
            .unwrap_or_else(|error| panic!("{error}: {}", self.stdout))
    }

    fn text(&self) -> &str {
        assert_eq!(self.code, Some(0), "{}", self.stderr);
        &self.stdout
    }

    /// The sentence on stderr.
    fn sentence(&self) -> &str {
        assert_eq!(
            (self.stdout.as_str(), self.stderr.lines().count()),
            ("", 1),
            "{}",
            self.stderr
        );
        &self.stderr
    }
}

fn run_command(mut command: Command, input: &str) -> Ran {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A command that takes no input may end before it is written.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    let Output {
        status,
        stdout,
        stderr,
    } = child.wait_with_output().unwrap();
    Ran {
        code: status.code(),
        stdout: String::from_utf8(stdout).unwrap(),
        stderr: String::from_utf8(stderr).unwrap(),
    }
}

fn gateway(home: &Home, arguments: &[&str]) -> Command {
    let mut command = home.command_at(Path::new(GATEWAY));
    command.args(arguments);
    command
}

fn run(home: &Home, arguments: &[&str]) -> Ran {
    run_command(gateway(home, arguments), "")
}

fn pipe(home: &Home, arguments: &[&str], input: &str) -> Ran {
    run_command(gateway(home, arguments), input)
}

fn on_a_terminal(home: &Home, arguments: &[&str], input: &str, settings: &[(&str, &str)]) -> Ran {
    let mut command = home.command_at(Path::new("python3"));
    command
        .args(["-c", ON_A_TERMINAL, GATEWAY])
        .args(arguments)
        .env("TERM", "xterm")
        .envs(settings.iter().copied());
    run_command(command, input)
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_piped_in_is_found_shown_and_listed() {
    let home = Home::new();
    let _service = home.start().await;
    let stored = pipe(
        &home,
        &[
            "add",
            "-t",
            "billing",
            "--tag",
            "Decision",
            "-m",
            "area=db",
            "-m",
            "priority:=5",
        ],
        "We chose PostgreSQL\nfor the billing service.\n",
    );
    assert_eq!(stored.text(), "stored entry 1 in thread billing\n");
    let again = pipe(
        &home,
        &["add", "-", "--thread", "billing", "--json"],
        "We chose PostgreSQL\nfor the billing service.",
    );
    assert_eq!(again.json()["context_id"], 1, "{}", again.stdout);
    let mut by_variable = gateway(&home, &["add", "the second", "--source", "agent", "--json"]);
    by_variable.env("CONTEXT_THREAD", "notes");
    assert_eq!(run_command(by_variable, "").json()["thread_id"], "notes");

    let found = run(&home, &["search", "which", "postgresql", "database?"]);
    let lines: Vec<&str> = found.text().lines().collect();
    assert!(lines[0].starts_with("ID"), "{lines:?}");
    assert!(
        lines[1].starts_with(" 1") && lines[1].contains("billing"),
        "{lines:?}"
    );
    assert!(
        lines[1].ends_with("We chose PostgreSQL for the billing service."),
        "{lines:?}"
    );
    let found = pipe(&home, &["search", "-", "--json"], "postgresql").json();
    assert_eq!(found["results"][0]["id"], 1, "{found}");
    let none = run(&home, &["search", "postgresql", "--thread", "nowhere"]);
    assert_eq!((none.code, none.stdout.as_str()), (Some(0), ""));
    assert!(none.stderr.ends_with("no entry\n"), "{}", none.stderr);

    let shown = run(&home, &["show", "2", "1"]);
    let expected = [
        "entry 2  thread notes  agent",
        "\n\nthe second\n\nentry 1  thread billing  user",
        "\ntags: decision\nmetadata: {\"area\":\"db\",\"priority\":5}\n\nWe chose PostgreSQL\nfor the billing service.\n",
    ];
    for part in expected {
        assert!(shown.text().contains(part), "{part}: {}", shown.stdout);
    }
    assert_eq!(
        run(&home, &["show", "1", "--text"]).text(),
        "We chose PostgreSQL\nfor the billing service."
    );
    let listed = |arguments: &[&str]| {
        let mut all = vec!["list", "--json"];
        all.extend(arguments);
        let reply = run(&home, &all).json();
        let ids = reply["results"].as_array().unwrap().iter();
        ids.map(|entry| entry["id"].as_i64().unwrap())
            .collect::<Vec<_>>()
    };
    assert_eq!(listed(&[]), [2, 1]);
    assert_eq!(listed(&["-n", "1", "--offset", "1"]), [1]);
    assert_eq!(listed(&["-m", "priority:=5", "-m", "area=db"]), [1]);
    assert_eq!(listed(&["-m", "priority=5"]), [0; 0], "text is no number");
    assert_eq!(listed(&["--tag", "decision", "--source", "user"]), [1]);
    assert_eq!(listed(&["--since", "2999-01-01"]), [0; 0]);
    assert_eq!(listed(&["--until", "2000-01-01"]), [0; 0]);
    let years = ["--since", "2000-01-01", "--until", "2999-01-01"];
    assert_eq!(listed(&years), [2, 1]);
    assert!(run(&home, &["list"]).text().contains("decision"));
    let first = run(&home, &["list", "-n", "1"]);
    assert_eq!(first.text().lines().count(), 2, "{}", first.stdout);
    assert!(
        first.stderr.contains("there are more entries"),
        "{}",
        first.stderr
    );
    let threads = run(&home, &["threads"]);
    assert_eq!(threads.text().lines().count(), 3, "{}", threads.stdout);
    assert!(threads.stdout.contains("notes") && threads.stdout.contains("billing"));

    let status = run(&home, &["status"]);
    assert!(
        status
            .text()
            .contains("entries   2 (1 of users, 1 of agents), 0 images\n"),
        "{}",
        status.stdout
    );
    assert_eq!(run(&home, &["status", "--json"]).json()["total_entries"], 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_hybrid_search_a_search_uses_full_text_unless_it_needs_the_relevance() {
    let home = Home::new().with("ENABLE_HYBRID_SEARCH", "false");
    let _service = home.start().await;
    let _ = run(&home, &["add", "We chose PostgreSQL.", "-t", "t"]).text();
    let found = run(&home, &["search", "postgresql"]);
    assert!(
        found.text().contains("We chose PostgreSQL."),
        "{}",
        found.stdout
    );
    let reason = "ENABLE_HYBRID_SEARCH=false";
    assert!(found.stderr.contains(reason), "{}", found.stderr);
    let refused = run(&home, &["search", "postgresql", "--min-relevance", "0.3"]);
    assert_eq!(refused.code, Some(1));
    assert!(refused.sentence().contains(reason), "{}", refused.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_entry_is_changed_unless_it_changed_meanwhile_and_deleted_with_yes() {
    let home = Home::new();
    let _service = home.start().await;
    let _ = run(&home, &["add", "one", "-t", "t", "-m", "a=1", "-m", "b=2"]).text();
    let edited = pipe(
        &home,
        &[
            "edit",
            "1",
            "--text",
            "-",
            "-m",
            "c:=true",
            "--unset",
            "a",
            "--tag",
            "x",
            "--expected-version",
            "1",
        ],
        "new\n",
    );
    assert_eq!(edited.text(), "entry 1 is now at version 2\n");
    let entry = run(&home, &["show", "1", "--json"]).json()["result"][0].clone();
    assert_eq!(
        (&entry["text_content"], &entry["metadata"], &entry["tags"]),
        (&json!("new"), &json!({"b": "2", "c": true}), &json!(["x"]))
    );
    let missing = run(&home, &["edit", "1", "--unset", "b", "--unset", "o.q"]);
    assert_eq!(missing.code, Some(1));
    assert!(
        missing
            .sentence()
            .contains("the key `o.q`; nothing was changed"),
        "{}",
        missing.stderr
    );
    let late = run(
        &home,
        &["edit", "1", "--no-tags", "--expected-version", "1"],
    );
    assert_eq!(late.code, Some(1));
    assert!(
        late.sentence().contains("is at version 2, not 1"),
        "{}",
        late.stderr
    );
    assert_eq!(
        run(&home, &["edit", "1", "--no-tags", "--json"]).json()["version"],
        3
    );
    let entry = run(&home, &["show", "1", "--json"]).json()["result"][0].clone();
    assert_eq!(
        (&entry["text_content"], &entry["metadata"], &entry["tags"]),
        (&json!("new"), &json!({"b": "2", "c": true}), &json!([]))
    );

    let unasked = run(&home, &["delete", "1"]);
    assert_eq!(unasked.code, Some(2));
    assert!(unasked.sentence().contains("--yes"), "{}", unasked.stderr);
    let declined = on_a_terminal(&home, &["delete", "1"], "n\n", &[]);
    assert_eq!(declined.code, Some(1), "{}", declined.stdout);
    assert!(
        declined.stdout.contains("Delete entry 1?"),
        "{}",
        declined.stdout
    );
    assert!(declined.stdout.contains("nothing was deleted"));
    assert_eq!(run(&home, &["show", "1"]).code, Some(0));
    let agreed = on_a_terminal(&home, &["delete", "1"], "y\n", &[]);
    assert_eq!(agreed.code, Some(0), "{}", agreed.stdout);
    assert_eq!(run(&home, &["show", "1"]).code, Some(1));
    let partly = {
        let _ = run(&home, &["add", "two", "-t", "t"]).text();
        run(&home, &["delete", "2", "99", "--yes"])
    };
    assert_eq!(
        (partly.code, partly.stdout.as_str()),
        (Some(1), "deleted 1 entry\n")
    );
    assert!(partly.stderr.contains("1 of 2 ids"), "{}", partly.stderr);
    let _ = run(&home, &["add", "three", "-t", "t"]).text();
    assert_eq!(
        run(&home, &["delete", "--thread", "t", "-y", "--json"]).json()["deleted_count"],
        1
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stored_text_cannot_drive_the_terminal() {
    let home = Home::new();
    let _service = home.start().await;
    let hostile = "needle \u{1b}]0;owned\u{7}\u{1b}[2J\r\u{9b}31m\u{202e}";
    let thread = "t\u{1b}[31m";
    let added = run(
        &home,
        &[
            "add",
            hostile,
            "-t",
            thread,
            "--tag",
            "\u{1b}[5m",
            "-m",
            "k=\u{9b}5m",
        ],
    );
    let created = pipe(
        &home,
        &["artifact", "save", "-", "--title", "T\u{1b}[31m", "--json"],
        hostile,
    );
    let artifact = created.json()["id"].as_str().unwrap().to_owned();
    let is_active = |c: char| (c.is_control() && c != '\n' && c != '\r') || c == '\u{202e}';
    assert!(!added.text().contains(is_active), "{:?}", added.stdout);
    let artifact: &str = &artifact;
    for arguments in [
        &["show", "1"] as &[&str],
        &["show", "1", "--text"],
        &["show", "1", "--json"],
        &["list"],
        &["list", "--json"],
        &["search", "needle"],
        &["threads"],
        &["changes"],
        &["changes", "--json"],
        &["artifact", "list"],
        &["artifact", "show", artifact],
        &["artifact", "show", artifact, "--content"],
    ] {
        let shown = on_a_terminal(&home, arguments, "", &[("NO_COLOR", "1")]);
        assert_eq!(shown.code, Some(0), "{arguments:?}: {}", shown.stdout);
        assert!(
            !shown.stdout.contains(is_active),
            "{arguments:?}: {:?}",
            shown.stdout
        );
        // Each of these shows a stored ESC, as `\u{1b}` or in JSON as `\u001b`.
        assert!(
            shown.stdout.contains("1b"),
            "{arguments:?}: {:?}",
            shown.stdout
        );
        // The terminal ends lines with CR LF.
        let lines = shown.stdout.replace("\r\n", "\n");
        assert!(!lines.contains('\r'), "{arguments:?}: {lines:?}");
    }
    // A pipe gets it as it is stored.
    assert_eq!(run(&home, &["show", "1", "--text"]).text(), hostile);
    assert_eq!(
        run(&home, &["artifact", "show", artifact, "--content"]).text(),
        hostile
    );
    let entry = run(&home, &["show", "1", "--json"]).json();
    assert_eq!(entry["result"][0]["text_content"], hostile);
    // The message repeats the refused value, with escapes.
    let refused = run(&home, &["add", "x", "-t", "t", "--source", "\u{1b}[2J"]);
    assert_eq!(refused.code, Some(1));
    assert!(!refused.stderr.contains('\u{1b}'), "{:?}", refused.stderr);
    assert!(
        refused.sentence().contains("\\u{1b}[2J"),
        "{}",
        refused.stderr
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn colours_are_for_terminals_that_want_them() {
    let home = Home::new();
    let _service = home.start().await;
    let _ = run(&home, &["add", "text", "-t", "t"]).text();
    let bold = "\u{1b}[1m";
    assert!(
        on_a_terminal(&home, &["list"], "", &[])
            .text()
            .contains(bold)
    );
    for settings in [("NO_COLOR", "1"), ("TERM", "dumb")] {
        let plain = on_a_terminal(&home, &["list"], "", &[settings]);
        assert!(!plain.text().contains('\u{1b}'), "{settings:?}");
    }
    assert!(!run(&home, &["list"]).text().contains('\u{1b}'));
    assert!(
        !on_a_terminal(&home, &["list", "--json"], "", &[])
            .text()
            .contains('\u{1b}')
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_artifact_is_saved_again_shown_and_deleted() {
    let home = Home::new();
    let _service = home.start().await;
    let file = home.path().join("plan.md");
    std::fs::write(&file, "# Plan\n\nfirst\n").unwrap();
    let file = file.to_str().unwrap();
    let saved = run(
        &home,
        &["artifact", "save", file, "-m", "kind=plan", "--json"],
    )
    .json();
    let id = saved["id"].as_str().unwrap();
    let second = pipe(
        &home,
        &[
            "artifact",
            "save",
            "-",
            "--id",
            id,
            "--expected-version",
            "1",
        ],
        "# Plan\n\nsecond\n",
    );
    assert_eq!(
        second.text(),
        format!("saved artifact {id}, version 2: Plan\n")
    );
    let late = pipe(
        &home,
        &[
            "artifact",
            "save",
            "-",
            "--id",
            id,
            "--expected-version",
            "1",
        ],
        "third",
    );
    assert_eq!(late.code, Some(1), "{}", late.stderr);
    let content = |version: &[&str]| {
        let mut all = vec!["artifact", "show", id, "--content"];
        all.extend(version);
        run(&home, &all).text().to_owned()
    };
    assert_eq!(content(&[]), "# Plan\n\nsecond\n");
    assert_eq!(content(&["--version", "1"]), "# Plan\n\nfirst\n");
    let shown = run(&home, &["artifact", "show", id]);
    assert!(
        shown.text().starts_with("Plan  version 2  "),
        "{}",
        shown.stdout
    );
    assert!(
        shown
            .stdout
            .contains("metadata: {\"kind\":\"plan\"}\n\n# Plan")
    );
    assert!(run(&home, &["artifact", "list"]).text().contains(id));
    assert!(
        run(&home, &["artifact", "list", "SECOND"])
            .text()
            .contains(id)
    );
    assert_eq!(run(&home, &["artifact", "list", "elsewhere"]).text(), "");
    assert_eq!(run(&home, &["artifact", "delete", id]).code, Some(2));
    assert_eq!(
        run(&home, &["artifact", "delete", id, "--yes"]).text(),
        format!("deleted artifact {id}\n")
    );
    assert_eq!(run(&home, &["artifact", "show", id]).code, Some(1));
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_are_listed_and_followed_one_line_each() {
    let home = Home::new();
    let _service = home.start().await;
    let _ = run(&home, &["add", "before", "-t", "t"]).text();
    let listed = run(&home, &["changes"]);
    assert!(
        listed.text().contains("  created   entry 1  t  before\n"),
        "{}",
        listed.stdout
    );
    let page = run(&home, &["changes", "--json"]).json();
    let cursor = page["next_cursor"].as_str().unwrap();
    let mut follower = gateway(
        &home,
        &["changes", "--follow", "--json", "--cursor", cursor],
    )
    .stdout(Stdio::piped())
    .spawn()
    .unwrap();
    let lines = BufReader::new(follower.stdout.take().unwrap()).lines();
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        lines
            .map_while(Result::ok)
            .try_for_each(|line| sender.send(line))
    });
    let next = || -> Value {
        let line = receiver.recv_timeout(std::time::Duration::from_secs(60));
        serde_json::from_str(&line.expect("a change within a minute")).unwrap()
    };
    let _ = run(&home, &["add", "after", "-t", "t"]).text();
    let change = next();
    assert_eq!(
        (&change["operation"], &change["id"], &change["preview"]),
        (&json!("created"), &json!("2"), &json!("after"))
    );
    assert!(change["next_cursor"].is_string(), "{change}");
    let _ = run(&home, &["delete", "2", "--yes"]).text();
    assert_eq!(next()["operation"], "deleted");
    follower.kill().unwrap();
    follower.wait().unwrap();
}

#[test]
fn a_warning_that_cannot_be_written_does_not_stop_the_gateway() {
    let home = Home::new();
    // Each write to /dev/full fails, as on a full disk. The client sends nothing and leaves.
    let mut command = home.command_at(Path::new("/bin/sh"));
    command
        .args(["-c", "exec \"$0\" stdio 2>/dev/full", GATEWAY])
        .env("CONTEXT_BACKEND", "http://127.0.0.1:1")
        .env("DISABLED_TOOLS", "unheard_of");
    let status = command.status().expect("the gateway runs");
    assert!(status.success(), "{status}");
}

#[tokio::test(flavor = "multi_thread")]
async fn following_outlasts_a_busy_service_and_uses_the_key_that_is_now_in_the_file() {
    let home = Home::new();
    let fake = Fake::default();
    let (socket, _server) = fake.serve(home.path());
    let backend = format!("unix:{}", socket.display());
    let (key_file, new_file) = (home.path().join("key"), home.path().join("new"));
    std::fs::write(&key_file, "ctx_first").unwrap();
    let arguments = ["changes", "--follow", "--backend", &backend];
    let mut follower = gateway(&home, &arguments)
        .arg("--api-key-file")
        .arg(&key_file)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    // The second request follows the first reply.
    wait_for("the second request", || {
        (fake.seen().len() > 1).then_some(())
    })
    .await;
    let busy =
        Error::new(Reason::Overloaded, "busy").with_retry_after(std::time::Duration::from_secs(1));
    let busy = status_from_error(&busy, tonic::Code::Unavailable);
    fake.behave(Behaviour::Fail(busy));
    std::fs::write(&new_file, "ctx_second").unwrap();
    std::fs::rename(&new_file, &key_file).unwrap();
    // The first request with the new key fails because the service is busy. The second one shows that this did not end
    // the follower.
    wait_for("two requests with the new key", || {
        let seen = fake.seen();
        let new = seen.iter().filter(|seen| {
            seen.metadata
                .get("authorization")
                .is_some_and(|key| key == "Bearer ctx_second")
        });
        (new.count() >= 2).then_some(())
    })
    .await;
    assert!(follower.try_wait().unwrap().is_none());
    follower.kill().unwrap();
    follower.wait().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_exit_code_says_who_can_help() {
    let home = Home::new();
    let _service = home.start().await;
    for (arguments, code, said) in [
        (&["show", "1"] as &[&str], 1, "not found: 1"),
        (&["add", "x", "-t", "t", "-s", "nobody"], 1, "`source`"),
        (&["add", " ", "-t", "t"], 1, "`text`"),
        (&["edit", "1"], 1, "at least one of `text`"),
        (&["changes", "--cursor", "garbled"], 1, "cursor"),
        (&["edit", "1", "-m", "k=v", "--unset", "k"], 2, "`k`"),
        (&["list", "-m", "k=v", "-m", "k=w"], 2, "`k`"),
        (&["artifact", "save", "/no/such/file"], 2, "/no/such/file"),
        (&["artifact", "show", "no-id"], 1, "artifact ID"),
    ] {
        let ran = run(&home, arguments);
        assert_eq!(ran.code, Some(code), "{arguments:?}: {}", ran.stderr);
        assert!(
            ran.sentence().contains(said),
            "{arguments:?}: {}",
            ran.stderr
        );
    }
    for arguments in [
        &["add", "x"] as &[&str],
        &["add", "x", "-t", "t", "-m", "nonsense"],
        &["show"],
        &["show", "one"],
        &["delete"],
        &["search"],
        &["status", "--no-such-flag"],
    ] {
        let ran = run(&home, arguments);
        assert_eq!(
            (ran.code, ran.stdout.as_str()),
            (Some(2), ""),
            "{arguments:?}"
        );
    }
    let mut without_thread = gateway(&home, &["add", "x"]);
    without_thread.env("CONTEXT_THREAD", "");
    let ran = run_command(without_thread, "");
    assert_eq!(ran.code, Some(2), "{}", ran.stderr);
    assert!(ran.stderr.contains("set CONTEXT_THREAD"), "{}", ran.stderr);
    let mut not_text = gateway(&home, &["add", "-t", "t"]);
    let mut child = not_text
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"\xff").unwrap();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("UTF-8"), "{said}");
    for setting in [
        ("CONTEXT_BACKEND", "nonsense://x"),
        ("CONTEXT_API_KEY_FILE", "/no/such/file"),
    ] {
        let mut command = gateway(&home, &["status"]);
        command.envs([setting]);
        let ran = run_command(command, "");
        assert_eq!(ran.code, Some(2), "{}", ran.stderr);
        assert!(ran.sentence().contains(setting.1), "{}", ran.stderr);
    }
    let mut unreachable = gateway(&home, &["status", "--json"]);
    unreachable.env("CONTEXT_BACKEND", "unix:/no/such.sock");
    let ran = run_command(unreachable, "");
    assert_eq!(ran.code, Some(3));
    assert!(
        ran.sentence().contains("unix:/no/such.sock"),
        "{}",
        ran.stderr
    );
}

/// The gateway has no behaviour of its own: what a command does is what one request does.
#[tokio::test(flavor = "multi_thread")]
async fn each_command_is_one_request_with_the_key() {
    let home = Home::new();
    let fake = Fake::default();
    let (socket, _server) = fake.serve(home.path());
    let backend = format!("unix:{}", socket.display());
    let key_file = home.path().join("key");
    std::fs::write(&key_file, "ctx_secret\n").unwrap();
    let key_file = key_file.to_str().unwrap();
    let id = "0197a0b0-0000-7000-8000-000000000001";
    let cases: &[(&[&str], &str)] = &[
        (&["status"], "get_statistics"),
        (&["add", "x", "-t", "t"], "store_context"),
        (&["search", "x"], "hybrid_search_context"),
        (&["list"], "search_context"),
        (&["show", "42"], "get_context_by_ids"),
        (&["threads"], "list_threads"),
        (&["edit", "42", "--text", "x"], "update_context"),
        (&["delete", "42", "-y"], "delete_context"),
        (&["changes"], "changes_since"),
        (&["artifact", "list"], "list_artifacts"),
        (&["artifact", "list", "x"], "search_artifacts"),
        (&["artifact", "show", id], "get_artifact"),
        (
            &["artifact", "show", id, "--version", "1"],
            "get_artifact_version",
        ),
        (&["artifact", "save", key_file], "create_artifact"),
        (
            &["artifact", "save", key_file, "--id", id],
            "update_artifact",
        ),
        (&["artifact", "delete", id, "-y"], "delete_artifact"),
    ];
    for (index, (arguments, operation)) in cases.iter().enumerate() {
        let settings = ["--backend", &backend, "--api-key-file", key_file, "--json"];
        let mut command = gateway(&home, arguments);
        command.args(settings);
        let _ = run_command(command, "").json();
        let seen = fake.seen();
        assert_eq!(seen.len(), index + 1, "{arguments:?}");
        assert_eq!(seen[index].operation, *operation);
        assert_eq!(
            seen[index].metadata.get("authorization").unwrap(),
            "Bearer ctx_secret"
        );
    }
    fake.behave(Behaviour::Fail(tonic::Status::unavailable("")));
    let mut command = gateway(&home, &["add", "x", "-t", "t", "--backend", &backend]);
    command.env("LOG_LEVEL", "DEBUG");
    let ran = run_command(command, "");
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    // The status has no message, so the sentence says how the call failed.
    assert!(
        ran.sentence().trim_end().len() > "context-gateway: ".len(),
        "{}",
        ran.stderr
    );
}

/// The certificates are described in `services/store-postgres/tests/it/tls.rs`.
#[test]
fn a_service_behind_tls_is_called_only_if_its_certificate_is_trusted() {
    const AUTHORITY: &str = "services/store-postgres/tests/it/tls/authority.pem";
    /// The certificate of the server. It signed nothing.
    const ANOTHER: &str = "services/store-postgres/tests/it/tls/server.pem";
    /// A file without certificates.
    const NONE: &str = "gateway/Cargo.toml";
    let home = Home::new();
    let fake = Fake::default();
    let (port, _server) = fake.serve_tls();
    let status = |host: &str, authorities: &str| {
        let mut command = gateway(&home, &["status", "--json"]);
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        command
            .env("CONTEXT_BACKEND", format!("{host}:{port}"))
            .env("CONTEXT_API_KEY", "ctx_secret")
            .env("SSL_CERT_FILE", root.join(authorities));
        run_command(command, "")
    };
    let _ = status("https://localhost", AUTHORITY).json();
    let seen = fake.seen();
    let authorization = seen[0].metadata.get("authorization");
    assert_eq!(authorization.unwrap(), "Bearer ctx_secret");
    for (host, authorities, code, cause) in [
        ("https://localhost", ANOTHER, 3, "UnknownIssuer"),
        ("https://127.0.0.1", AUTHORITY, 3, "not valid for name"),
        ("https://localhost", NONE, 2, "SSL_CERT_FILE"),
        ("http://localhost", AUTHORITY, 3, "cannot be reached"),
    ] {
        let ran = status(host, authorities);
        assert_eq!(ran.code, Some(code), "{host}: {}", ran.stderr);
        assert!(ran.sentence().contains(cause), "{host}: {}", ran.stderr);
        let is_lasting = ran.stderr.contains("correct the cause");
        assert_eq!(is_lasting, host.starts_with("https") && code == 3);
    }
    assert_eq!(fake.seen().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_command_starts_the_service() {
    let home = Home::new().with("CONTEXT_IDLE_EXIT_SECONDS", "60");
    let _sweep = Sweep(home.database());
    let _ = context_test_support::binary("context-service");
    let mut command = home.command("context-gateway");
    command.args(["add", "x", "-t", "t"]);
    assert_eq!(
        run_command(command, "").text(),
        "stored entry 1 in thread t\n"
    );
    assert_eq!(services_of(&home.database()).len(), 1);
    let mut command = home.command("context-gateway");
    command.args(["show", "1", "--text"]);
    assert_eq!(run_command(command, "").text(), "x");
    assert_eq!(services_of(&home.database()).len(), 1);
}
