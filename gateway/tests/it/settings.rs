//! Compares the settings of a gateway with those of the service that it finds.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use context_test_support::{Home, Mcp, Sweep, services_of, until, wait_for};
use serde_json::{Value, json};

/// Secrets that must not appear in any log or reply.
const SECRETS: [(&str, &str); 4] = [
    ("EMBEDDING_API_KEY", "canary-one"),
    ("SUMMARY_API_KEY", "canary-two"),
    ("POSTGRESQL_PASSWORD", "canary-three"),
    ("EMBEDDING_URL", "http://user:canary-four@127.0.0.1:9/path"),
];

/// A directory whose services end with the test.
struct Machine {
    home: Home,
    _sweep: Sweep,
}

impl Machine {
    fn new() -> Self {
        let home = Home::new();
        let _sweep = Sweep(home.database());
        Self { home, _sweep }
    }

    fn command(&self, program: &str, settings: &[(&str, &str)]) -> Command {
        let mut command = self.home.command(program);
        command.envs(settings.iter().copied());
        command
    }

    /// A gateway with these settings, and the file with its stderr.
    async fn gateway(&self, name: &str, settings: &[(&str, &str)]) -> (Mcp, PathBuf) {
        let log = self.home.path().join(format!("{name}.stderr"));
        let command = self.command("context-gateway", settings);
        (Mcp::start_logging(command, &log).await, log)
    }

    /// Waits until the running service has no client.
    async fn unused(&self) {
        until("the service is unused", async || {
            let output = self
                .command("context-service", &[])
                .args(["config", "--compare"])
                .output()
                .expect("the service's program runs");
            let found: Value = serde_json::from_slice(&output.stdout).expect("JSON");
            found["service"]["other_clients"] == false
        })
        .await;
    }
}

/// The blocks of a tool's reply.
async fn blocks(gateway: &Mcp) -> Vec<String> {
    let reply = gateway.tool("get_statistics", &json!({})).await;
    let content = reply["result"]["content"].as_array();
    let content = content.unwrap_or_else(|| panic!("no result: {reply}"));
    let text = |block: &Value| block["text"].as_str().expect("a text").to_owned();
    content.iter().map(text).collect()
}

fn read(log: &Path) -> String {
    std::fs::read_to_string(log).unwrap_or_default()
}

async fn fts_works(gateway: &Mcp) -> bool {
    let outcome = gateway
        .call("fts_search_context", json!({"query": "word"}))
        .await;
    if let Err(error) = &outcome {
        assert!(error.contains("FEATURE_UNAVAILABLE"), "{error}");
    }
    outcome.is_ok()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_gateways_with_different_settings_share_the_first_ones_and_the_second_is_told() {
    let machine = Machine::new();
    let (first, first_log) = machine
        .gateway("first", &[("MAX_IMAGE_SIZE_MB", "5")])
        .await;
    assert_eq!(blocks(&first).await.len(), 1, "its own settings");
    let (second, second_log) = machine
        .gateway(
            "second",
            &[("ENABLE_FTS", "false"), ("EMBEDDING_API_KEY", "canary-one")],
        )
        .await;

    let [reply, warning] = &blocks(&second).await[..] else {
        panic!("the first reply has one block more")
    };
    assert!(serde_json::from_str::<Value>(reply).is_ok_and(|reply| reply["fts"].is_object()));
    let expected = "Warning about the configuration of this MCP server, for the user: another gateway started the context service of this \
        database with other settings. They stay in effect, because other clients use it. MAX_IMAGE_SIZE_MB is `5` in the service and `10` \
        here; ENABLE_FTS is `auto` in the service and `false` here; EMBEDDING_API_KEY is not set in the service and `***` here. To change \
        that, give all clients of this database the same settings, or close the other clients and start this one again.";
    assert_eq!(warning, expected);
    let expected = "context-gateway: another gateway started the context service of this database with other settings. They stay in \
        effect, because other clients use it:\n\
        context-gateway:   MAX_IMAGE_SIZE_MB is `5` in the service and `10` here\n\
        context-gateway:   ENABLE_FTS is `auto` in the service and `false` here\n\
        context-gateway:   EMBEDDING_API_KEY is not set in the service and `***` here\n\
        context-gateway: To change that, give all clients of this database the same settings, or close the other clients and start this \
        one again.\n";
    assert_eq!(read(&second_log), expected);
    assert_eq!(blocks(&second).await.len(), 1, "the warning comes once");
    assert!(fts_works(&second).await, "the first one's settings stay");

    // The first one finds its own service again.
    assert_eq!(blocks(&first).await.len(), 1);
    assert_eq!(read(&first_log), "");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_starts_again_with_other_settings_gets_them() {
    let machine = Machine::new();
    let (before, _) = machine.gateway("before", &[]).await;
    assert!(fts_works(&before).await);
    let old = services_of(&machine.home.database());
    assert!(before.leave().await.success());
    machine.unused().await;

    let (after, log) = machine.gateway("after", &[("ENABLE_FTS", "false")]).await;
    assert!(!fts_works(&after).await, "there is no full text");
    assert_eq!(
        blocks(&after).await.len(),
        1,
        "nothing is left to warn about"
    );
    let expected = "context-gateway: no other client used the context service of this database, so it is restarted with the settings of \
        this gateway:\n\
        context-gateway:   ENABLE_FTS is `auto` in the service and `false` here\n";
    assert_eq!(read(&log), expected);
    wait_for("the old service ends", || {
        let new = services_of(&machine.home.database());
        (new.len() == 1 && new != old).then_some(())
    })
    .await;

    // A gateway with the same settings does not restart the service.
    let same = services_of(&machine.home.database());
    assert!(after.leave().await.success());
    machine.unused().await;
    let (again, log) = machine.gateway("again", &[("ENABLE_FTS", "no")]).await;
    assert!(!fts_works(&again).await);
    assert_eq!(services_of(&machine.home.database()), same);
    assert_eq!(read(&log), "");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gateways_with_different_settings_that_start_at_once_settle_on_one_service() {
    let machine = Machine::new();
    let settings = ["1", "2", "3", "4"].map(|size| [("MAX_IMAGE_SIZE_MB", size)]);
    let starting = settings.iter().map(|settings| async {
        let (gateway, _) = machine.gateway(settings[0].1, settings).await;
        let count = blocks(&gateway).await.len();
        (gateway, count)
    });
    let gateways = futures::future::join_all(starting).await;
    let warned = gateways.iter().filter(|(_, count)| *count == 2).count();
    assert_eq!(warned, 3, "all but the one whose settings are used");
    let running = services_of(&machine.home.database());
    for (gateway, _) in &gateways {
        assert_eq!(blocks(gateway).await.len(), 1);
    }
    assert_eq!(services_of(&machine.home.database()), running);
    assert_eq!(running.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_an_operators_service_only_what_the_gateway_sets_is_compared() {
    let machine = Machine::new();
    let by_hand = [
        ("SEARCH_TRUNCATION_LENGTH", "50"),
        ("MAX_IMAGE_SIZE_MB", "5"),
    ];
    let service = machine.command("context-service", &by_hand);
    let mut service = machine.home.start_as(service).await;
    let (quiet, log) = machine.gateway("quiet", &[]).await;
    assert_eq!((blocks(&quiet).await.len(), read(&log).as_str()), (1, ""));

    let socket = format!("unix:{}", machine.home.socket().display());
    for backend in ["", &socket] {
        let settings = [("MAX_IMAGE_SIZE_MB", "7"), ("CONTEXT_BACKEND", backend)];
        let (warned, log) = machine.gateway("warned", &settings).await;
        let blocks = blocks(&warned).await;
        let sentence = "the context service of this database was started with other settings, and they stay in effect";
        let difference = "MAX_IMAGE_SIZE_MB is `5` in the service and `7` here";
        for text in [&blocks[1], &read(&log)] {
            assert!(
                text.contains(sentence)
                    && text.contains(difference)
                    && text.contains("where that service is started"),
                "{backend}: {text}"
            );
            assert!(!text.contains("SEARCH_TRUNCATION_LENGTH"), "{text}");
        }
    }
    assert!(service.is_running(), "no gateway stops it");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_that_names_only_the_socket_of_an_operators_service_is_told_nothing_about_the_database()
 {
    let machine = Machine::new();
    let _service = machine.home.start().await;
    let log = machine.home.path().join("gateway.stderr");
    let mut command = machine.command("context-gateway", &[]);
    command.env_remove("DB_PATH");
    let gateway = Mcp::start_logging(command, &log).await;
    assert_eq!((blocks(&gateway).await.len(), read(&log).as_str()), (1, ""));
}

#[test]
fn a_malformed_setting_of_the_service_stops_the_gateway_before_it_serves() {
    let machine = Machine::new();
    let sentence = "context-gateway: MAX_IMAGE_SIZE_MB (--max-image-size-mb) is `huge`; it must be a whole number from 1 to 1024\n";
    let socket = format!("unix:{}", machine.home.socket().display());
    let check = |arguments: &[&str], settings: &[(&str, &str)], sentence: &str| {
        let output = machine
            .command("context-gateway", settings)
            .args(arguments)
            .stdin(Stdio::null())
            .output()
            .expect("the gateway runs");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(stderr, sentence, "{arguments:?} {settings:?}");
        assert_eq!(output.status.code(), Some(2));
        assert!(output.stdout.is_empty());
    };
    for (transport, backend) in [("stdio", ""), ("stdio", &socket), ("http", "")] {
        let settings = [("MAX_IMAGE_SIZE_MB", "huge"), ("CONTEXT_BACKEND", backend)];
        check(&[transport], &settings, sentence);
    }
    // The gateway allows more than the service does.
    let sentence = "context-gateway: MAX_TOTAL_SIZE_MB (--max-total-size-mb) is `2000`; it must be a whole number from 1 to 1024\n";
    for backend in ["", &socket] {
        let flags = ["stdio", "--max-total-size-mb=2000"];
        check(&flags, &[("CONTEXT_BACKEND", backend)], sentence);
    }
    assert!(services_of(&machine.home.database()).is_empty());
}

/// A copy of the gateway's program, without a service's program beside it.
fn lonely_gateway(machine: &Machine) -> PathBuf {
    let copy = machine.home.path().join("context-gateway");
    std::fs::copy(context_test_support::binary("context-gateway"), &copy).expect("a copy");
    copy
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_of_the_service_that_is_missing_or_too_old_changes_nothing() {
    let machine = Machine::new();
    let _service = machine.home.start().await;
    let gateway = lonely_gateway(&machine);
    let start = |path: PathBuf| {
        let mut command = machine.home.command_at(&gateway);
        command.env("PATH", path).env("MAX_IMAGE_SIZE_MB", "7");
        Mcp::start(command)
    };
    let missing = start(machine.home.path().join("empty")).await;
    assert_eq!(blocks(&missing).await.len(), 1);

    // An older program refuses the unknown subcommand as clap does.
    let old = machine.home.path().join("old");
    std::fs::create_dir(&old).unwrap();
    let script = "#!/bin/sh\necho \"error: unrecognized subcommand 'config'\" >&2\nexit 2\n";
    std::fs::write(old.join("context-service"), script).unwrap();
    let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(old.join("context-service"), executable).unwrap();
    let path = format!("{}:/usr/bin:/bin", old.display());
    assert_eq!(blocks(&start(path.into()).await).await.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_over_http_prints_differences_and_replies_without_them() {
    let machine = Machine::new();
    let (first, _) = machine.gateway("first", &[]).await;
    assert_eq!(blocks(&first).await.len(), 1);
    let mut command = machine.command("context-gateway", &[("ENABLE_FTS", "false")]);
    command.arg("http");
    let gateway = machine.home.start_as(command).await;
    let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "get_statistics", "arguments": {}}});
    let reply = context_test_support::http::Request::post(gateway.address(), "/mcp", &call)
        .header("accept", "application/json, text/event-stream")
        .send()
        .await;
    let reply = reply.json();
    assert_eq!(
        reply["result"]["content"].as_array().map(Vec::len),
        Some(1),
        "{reply}"
    );
    let log = gateway.log();
    assert!(
        log.contains("ENABLE_FTS is `auto` in the service and `false` here"),
        "{log}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn settings_given_to_the_gateway_as_flags_reach_the_service_that_it_starts() {
    let machine = Machine::new();
    let mut command = machine.home.command_at(Path::new("/bin/sh"));
    command
        .args(["-c", r#"exec "$GATEWAY" "$1" --storage-backend=postgresql --postgresql-connection-string=nonsense"#, "sh"])
        .env("GATEWAY", context_test_support::binary("context-gateway"));
    let gateway = Mcp::start(command).await;
    let reply = gateway.tool("get_statistics", &json!({})).await.to_string();
    assert!(
        reply.contains("POSTGRESQL_CONNECTION_STRING cannot be used"),
        "{reply}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_and_passwords_appear_in_no_output_log_or_reply() {
    let machine = Machine::new();
    let debug = ("LOG_LEVEL", "DEBUG");
    let ours = [&SECRETS[..], &[debug, ("EMBEDDING_PROVIDER", "tei")]].concat();
    let theirs = ours
        .iter()
        .map(|(name, value)| (*name, value.replace("canary", "other-canary")))
        .collect::<Vec<_>>();
    let theirs: Vec<_> = theirs
        .iter()
        .map(|(name, value)| (*name, value.as_str()))
        .collect();
    let (first, first_log) = machine.gateway("first", &ours).await;
    let mut seen = blocks(&first).await;
    let (second, second_log) = machine.gateway("second", &theirs).await;
    seen.extend(blocks(&second).await);
    let differs = "EMBEDDING_API_KEY differs (the value is not shown)";
    assert!(seen.iter().any(|text| text.contains(differs)), "{seen:?}");
    for arguments in [
        &["config"][..],
        &["config", "--json"],
        &["config", "--compare"],
    ] {
        let output = machine
            .command("context-service", &theirs)
            .args(arguments)
            .stderr(Stdio::piped())
            .output()
            .expect("the service's program runs");
        assert!(output.status.success());
        let shown = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(
            shown.contains("EMBEDDING_API_KEY"),
            "{arguments:?}: {shown}"
        );
        seen.push(shown);
        seen.push(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    let service_log = read(&machine.home.socket().with_extension("log"));
    assert!(service_log.contains("Read the settings"), "{service_log}");
    seen.extend([service_log, read(&first_log), read(&second_log)]);
    for text in seen {
        assert!(!text.contains("canary"), "{text}");
    }
}
