//! `context-service config`, and the routes by which a gateway compares settings.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;

use clap::CommandFactory as _;
use context_service::cli::Cli;
use context_test_support::{Home, Process, http::Request, until};
use serde_json::{Value, json};

use crate::process::{program, run};
use crate::semantic::harness::model;

/// Values that must not be printed.
const SECRETS: [(&str, &str); 4] = [
    ("OPENAI_API_KEY", "canary-one"),
    (
        "POSTGRESQL_CONNECTION_STRING",
        "postgresql://u:canary-two@h/d",
    ),
    ("OLLAMA_HOST", "http://u:canary-three@127.0.0.1:9"),
    ("SUMMARY_API_KEY", "canary-four"),
];

fn config(home: &Home) -> Command {
    let mut command = program(home);
    command.arg("config");
    command
}

#[test]
fn every_setting_is_printed_with_its_value_and_where_it_came_from() {
    let home = Home::new();
    let (code, table, _) = run(config(&home)
        .env("ENABLE_FTS", "YES")
        .env("EMBEDDING_PROVIDER", "openai")
        .env("OPENAI_API_KEY", "canary")
        .arg("--max-image-size-mb=20"));
    assert_eq!(code, 0);
    let (set, defaults) = table.split_once("\nDefaults:\n").expect("two parts");
    let row = |part: &str, name: &str| -> String {
        let found = part
            .lines()
            .find(|line| line.trim_start().starts_with(name));
        let found = found.unwrap_or_else(|| panic!("no {name} in {part}"));
        found.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    assert_eq!(
        row(set, "ENABLE_FTS"),
        "ENABLE_FTS true environment variable"
    );
    assert_eq!(
        row(set, "MAX_IMAGE_SIZE_MB"),
        "MAX_IMAGE_SIZE_MB 20 flag --max-image-size-mb"
    );
    assert_eq!(
        row(set, "EMBEDDING_API_KEY"),
        "EMBEDDING_API_KEY *** environment variable OPENAI_API_KEY of mcp-context-server"
    );
    assert_eq!(row(defaults, "MAX_TOTAL_SIZE_MB"), "MAX_TOTAL_SIZE_MB 100");
    assert_eq!(row(defaults, "SUMMARY_MODEL"), "SUMMARY_MODEL –");

    let (code, text, _) = run(config(&home).env("ENABLE_FTS", "YES").arg("--json"));
    assert_eq!(code, 0);
    let printed: Value = serde_json::from_str(&text).unwrap();
    let printed = printed["settings"].as_array().unwrap();
    let fts = printed
        .iter()
        .find(|setting| setting["name"] == "ENABLE_FTS");
    let expected = json!({"name": "ENABLE_FTS", "value": "true", "secret": false, "from": "environment", "variable": "ENABLE_FTS"});
    assert_eq!(fts, Some(&expected));
    let cli = Cli::command();
    let names: Vec<&str> = cli
        .get_arguments()
        .filter(|arg| !arg.is_hide_set())
        .filter_map(|arg| arg.get_env()?.to_str())
        .collect();
    assert!(names.len() > 90);
    for name in names {
        assert!(
            printed.iter().any(|setting| setting["name"] == name),
            "{name}"
        );
        assert!(
            table
                .lines()
                .any(|line| line.trim_start().starts_with(name)),
            "{name}"
        );
    }
}

#[test]
fn a_downloaded_model_is_printed_as_found() {
    let home = Home::new();
    let cache = home
        .path()
        .join(".cache/context-service/models/all-MiniLM-L6-v2");
    std::fs::create_dir_all(cache.parent().unwrap()).unwrap();
    std::os::unix::fs::symlink(model(), &cache).unwrap();
    let (_, table, _) = run(&mut config(&home));
    let row = table
        .lines()
        .find(|line| line.contains("EMBEDDING_MODEL_PATH"))
        .unwrap();
    assert!(
        row.contains("all-MiniLM-L6-v2") && row.ends_with("downloaded by fetch-model"),
        "{row}"
    );
}

#[test]
fn a_malformed_setting_is_refused_as_by_the_service() {
    let home = Home::new();
    let refused = run(config(&home).env("MAX_IMAGE_SIZE_MB", "huge"));
    assert_eq!(
        refused,
        run(program(&home).env("MAX_IMAGE_SIZE_MB", "huge"))
    );
    assert_eq!(refused.0, 2);
    assert!(refused.2.contains("MAX_IMAGE_SIZE_MB"), "{}", refused.2);
}

#[test]
fn keys_and_passwords_are_not_printed() {
    let home = Home::new();
    for form in [&[][..], &["--json"], &["--compare"]] {
        let mut command = config(&home);
        command
            .env("EMBEDDING_PROVIDER", "openai")
            .envs(SECRETS)
            .args(form);
        let (code, output, errors) = run(&mut command);
        assert_eq!(code, 0, "{errors}");
        // Without a service there is nothing to compare. `gateway/tests/it/settings.rs` compares settings with secrets.
        let names_settings = form != ["--compare"];
        assert_eq!(output.contains("SUMMARY_API_KEY"), names_settings);
        assert!(
            !format!("{output}{errors}").contains("canary"),
            "{output}{errors}"
        );
    }
}

/// Posts to the socket. Returns the status and the body.
fn post(home: &Home, path: &str, body: &str) -> (u16, String) {
    let mut stream = UnixStream::connect(home.socket()).expect("the service listens");
    let length = body.len();
    write!(
        stream,
        "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
    )
    .unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).unwrap();
    let (head, body) = reply.split_once("\r\n\r\n").expect("a reply");
    (head[9..12].parse().expect("a status"), body.to_owned())
}

async fn start(home: &Home, arguments: &[&str]) -> Process {
    let mut command = program(home);
    command
        .env("LOG_LEVEL", "debug")
        .envs(SECRETS)
        .args(arguments);
    home.start_as(command).await
}

#[tokio::test]
async fn a_service_tells_its_settings_on_the_socket_only_and_its_keys_as_hashes() {
    let home = Home::new();
    let service = start(&home, &[]).await;
    let nonce = "00ff".repeat(16);
    let request = json!({ "nonce": nonce });
    let (status, reply) = post(&home, "/internal/settings", &request.to_string());
    assert_eq!(status, 200, "{reply}");
    let response: Value = serde_json::from_str(&reply).unwrap();
    let key = response["settings"]
        .as_array()
        .unwrap()
        .iter()
        .find(|setting| setting["name"] == "SUMMARY_API_KEY");
    assert_eq!(key.unwrap()["value"], "***");
    assert_eq!(key.unwrap()["hmac"].as_str().map(str::len), Some(64));
    let other = json!({ "nonce": "11".repeat(32) });
    let (_, other) = post(&home, "/internal/settings", &other.to_string());
    assert!(
        !other.contains(key.unwrap()["hmac"].as_str().unwrap()),
        "the nonce is the key"
    );
    for text in [&reply, &other, &service.log()] {
        assert!(!text.contains("canary"), "{text}");
    }
    for bad in ["", "{}", r#"{"nonce": "00"}"#, r#"{"nonce": 5}"#] {
        assert_eq!(post(&home, "/internal/settings", bad).0, 400, "{bad}");
    }
    for path in ["/internal/settings", "/internal/stop-unused"] {
        let reply = Request::post(service.address(), path, &request)
            .send()
            .await;
        assert_eq!(reply.status, 404, "{path}");
    }
}

#[tokio::test]
async fn a_service_stops_for_other_settings_only_if_a_gateway_started_it_and_no_client_uses_it() {
    let home = Home::new();
    let mut by_hand = start(&home, &[]).await;
    let (status, reply) = post(&home, "/internal/stop-unused", "");
    assert!(
        status == 409 && reply.contains("started by hand"),
        "{reply}"
    );
    assert!(by_hand.is_running());
    assert!(by_hand.terminate().await.success());

    let mut started = start(&home, &["--auto-started"]).await;
    let client = UnixStream::connect(home.socket()).unwrap();
    let (status, reply) = post(&home, "/internal/stop-unused", "");
    assert!(status == 409 && reply.contains("other clients"), "{reply}");
    assert!(started.is_running());
    drop(client);
    until("the service notices that its client is gone", async || {
        post(&home, "/internal/stop-unused", "").0 == 200
    })
    .await;
    assert!(started.ended().await.success());
}

#[tokio::test]
async fn settings_that_cannot_be_used_stop_no_service() {
    let home = Home::new();
    let mut started = start(&home, &["--auto-started"]).await;
    let missing = Path::new("/no/such/model");
    let (code, found, _) = run(config(&home)
        .args(["--compare", "--stop-unused"])
        .env("EMBEDDING_MODEL_PATH", missing));
    assert_eq!(code, 0);
    let found: Value = serde_json::from_str(&found).unwrap();
    assert_eq!(found["stopped"], false);
    let warning = found["warning"].as_str().unwrap();
    assert!(
        warning.contains("cannot be used") && warning.contains("/no/such/model"),
        "{warning}"
    );
    assert!(started.is_running());
}

#[test]
fn without_a_service_there_is_nothing_to_compare() {
    let home = Home::new();
    let (code, found, _) = run(config(&home).arg("--compare"));
    let found: Value = serde_json::from_str(&found).unwrap();
    assert_eq!(
        (code, &found["service"], &found["stopped"]),
        (0, &Value::Null, &json!(false))
    );
}
