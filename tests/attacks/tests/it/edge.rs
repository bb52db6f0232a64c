//! Requests that an attacker can make a browser or a proxy send, and what the log and the banner reveal.

use std::process::{Command, Stdio};
use std::time::Duration;

use context_attacks::client;
use context_test_support::{Home, Process, wait_for};
use reqwest::{Method, RequestBuilder, Response};
use serde_json::{Value, json};

fn request(service: &Process, method: Method, path: &str) -> RequestBuilder {
    let url = format!("http://{}{path}", service.address());
    client(Duration::from_secs(60)).request(method, url)
}

async fn posted(service: &Process, path: &str, body: &Value) -> Value {
    let reply = request(service, Method::POST, path)
        .json(body)
        .send()
        .await
        .expect("a reply");
    assert!(reply.status().is_success(), "{path}: {}", reply.status());
    reply.json().await.expect("JSON")
}

/// Calls a method of gRPC-Web with this body.
async fn grpc_web(
    service: &Process,
    method: &str,
    content_type: &str,
    headers: &[(&str, &str)],
    body: Vec<u8>,
) -> Response {
    let path = format!("/context.v1.ContextService/{method}");
    let request = request(service, Method::POST, &path)
        .header("content-type", content_type)
        .body(body);
    headers
        .iter()
        .fold(request, |request, (name, value)| {
            request.header(*name, *value)
        })
        .send()
        .await
        .expect("a reply")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_of_another_site_can_neither_restore_nor_delete_and_curl_can() {
    let home = Home::new();
    let service = home.start().await;
    let artifact = posted(
        &service,
        "/v1/artifacts",
        &json!({"title": "t", "content": "first"}),
    )
    .await;
    let restore = format!(
        "/v1/artifacts/{}/versions/1/restore",
        artifact["id"].as_str().expect("an id")
    );
    let entry = posted(
        &service,
        "/v1/contexts",
        &json!({"thread_id": "t", "source": "user", "text": "kept"}),
    )
    .await;
    let entry = format!("/v1/contexts/{}", entry["context_id"]);
    let (post, delete) = (Method::POST, Method::DELETE);
    for (method, path, headers, status) in [
        (
            &post,
            &restore,
            &[
                ("sec-fetch-site", "cross-site"),
                ("origin", "https://evil.example"),
            ][..],
            403,
        ),
        (&post, &restore, &[("sec-fetch-site", "same-site")], 403),
        (&post, &restore, &[("origin", "https://evil.example")], 403),
        (&post, &restore, &[("origin", "null")], 403),
        (&delete, &entry, &[("sec-fetch-site", "cross-site")], 403),
        (&delete, &entry, &[("origin", "http://localhost:1")], 403),
        (
            &Method::GET,
            &entry,
            &[("sec-fetch-site", "cross-site")],
            200,
        ),
        (&post, &restore, &[("sec-fetch-site", "same-origin")], 200),
        (&post, &restore, &[], 200),
        (&delete, &entry, &[], 200),
    ] {
        let request = request(&service, method.clone(), path);
        let reply = headers
            .iter()
            .fold(request, |request, (name, value)| {
                request.header(*name, *value)
            })
            .send()
            .await
            .expect("a reply");
        assert_eq!(
            reply.status().as_u16(),
            status,
            "{method} {path} {headers:?}"
        );
        if status == 403 {
            assert_eq!(
                reply.json::<Value>().await.expect("JSON")["reason"],
                "CROSS_SITE"
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_of_an_allowed_origin_may_write() {
    let home = Home::new().with("CONTEXT_CORS_ORIGINS", "https://app.example");
    let service = home.start().await;
    for (origin, status) in [("https://app.example", 200), ("https://evil.example", 403)] {
        let request = request(&service, Method::DELETE, "/v1/contexts/1")
            .header("sec-fetch-site", "cross-site")
            .header("origin", origin);
        assert_eq!(
            request.send().await.expect("a reply").status().as_u16(),
            status,
            "{origin}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failure_names_its_request_in_the_log() {
    for format in ["text", "json"] {
        let home = Home::new()
            .with("LOG_LEVEL", "WARNING")
            .with("LOG_FORMAT", format);
        let service = home.start().await;
        // Fields 1 to 3. The deadline has passed before the write could start.
        let entry = b"\x0a\x01t\x12\x04user\x1a\x04text";
        let body = [
            &[0, 0, 0, 0, u8::try_from(entry.len()).expect("short")],
            &entry[..],
        ]
        .concat();
        let headers = [("grpc-timeout", "0n"), ("x-request-id", "job-17")];
        let reply = grpc_web(
            &service,
            "StoreContext",
            "application/grpc-web+proto",
            &headers,
            body,
        )
        .await;
        assert_eq!(reply.headers()["x-request-id"], "job-17");
        let log = service.log();
        let line = log
            .lines()
            .find(|line| line.contains("Failed"))
            .unwrap_or_else(|| panic!("{log}"));
        assert!(
            line.contains("job-17") && line.contains("DEADLINE_EXCEEDED"),
            "{line}"
        );
        if format == "json" {
            let fields: Value = serde_json::from_str(line).expect("a line of JSON");
            assert_eq!(fields["request_id"], "job-17", "{line}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn grpc_web_in_base64_is_refused_with_a_sentence() {
    let home = Home::new();
    let service = home.start().await;
    // The frame of an empty message, as sent by the grpc-web client in its mode `grpcwebtext`.
    let reply = grpc_web(
        &service,
        "ListThreads",
        "application/grpc-web-text",
        &[("x-grpc-web", "1")],
        b"AAAAAAA=".to_vec(),
    )
    .await;
    let header = |name: &str| {
        reply
            .headers()
            .get(name)
            .map(|value| value.to_str().expect("text").to_owned())
            .unwrap_or_default()
    };
    assert_eq!(header("grpc-status"), "3", "{reply:?}");
    assert!(
        header("grpc-message").contains("application/grpc-web+proto"),
        "{reply:?}"
    );
    let reply = grpc_web(
        &service,
        "ListThreads",
        "application/grpc-web+proto",
        &[("x-grpc-web", "1")],
        vec![0; 5],
    )
    .await;
    assert!(
        String::from_utf8_lossy(&reply.bytes().await.expect("a body")).contains("grpc-status:0")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_open_port_without_authentication_is_announced_in_capitals_and_checks_hosts() {
    let home = Home::new()
        .with("CONTEXT_LISTEN", "0.0.0.0:0")
        .with("CONTEXT_INSECURE", "true")
        .with("CONTEXT_ALLOWED_HOSTS", "context.example");
    let service = home.start().await;
    assert!(
        service
            .log()
            .contains("ANYONE WHO REACHES THIS PORT CAN READ, CHANGE AND DELETE EVERYTHING"),
        "{}",
        service.log()
    );
    let open = Home::new()
        .with("CONTEXT_LISTEN", "0.0.0.0:0")
        .with("CONTEXT_INSECURE", "true");
    let unnamed = open.start().await;
    for (service, host, status) in [
        (&service, "context.example", 200),
        (&service, "evil.example", 400),
        (&unnamed, "localhost:7420", 200),
        (&unnamed, "192.168.1.5:7420", 200),
        (&unnamed, "evil.example", 400),
    ] {
        let reply = request(service, Method::GET, "/v1/threads")
            .header("host", host)
            .send()
            .await
            .expect("a reply");
        assert_eq!(reply.status().as_u16(), status, "{host}");
    }
    let home = Home::new();
    assert!(
        !home.start().await.log().contains("ANYONE"),
        "on loopback the banner has no warning"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn one_database_file_under_two_names_has_one_owner() {
    let home = Home::new();
    let first = home.start().await;
    let (hard, soft) = (home.path().join("hard.db"), home.path().join("soft.db"));
    std::fs::hard_link(home.database(), &hard).expect("a hard link");
    std::os::unix::fs::symlink(home.database(), &soft).expect("a symbolic link");
    for name in [&hard, &soft] {
        let mut command = home.command("context-service");
        command
            .env("DB_PATH", name)
            .env("CONTEXT_SOCKET", name.with_extension("sock"));
        let mut second = home.spawn_as(command);
        wait_for("the second service ends or is ready", || {
            (!second.is_running() || second.log().contains("is ready")).then_some(())
        })
        .await;
        let log = second.log();
        assert!(
            log.contains("is held by")
                && log.contains(&first.pid().as_raw_pid().to_string())
                && !log.contains("is ready"),
            "{}: {log}",
            name.display()
        );
    }
    first.terminate().await;
    let mut command = home.command("context-service");
    command.env("DB_PATH", &hard);
    home.spawn_as(command).listening().await;
}

/// A password that no output may contain, whichever setting it is in.
const PASSWORD: &str = "hunter2";

/// Sets the addresses of providers and of the issuer to this URL, which contains the password.
fn set_addresses(command: &mut Command, url: &str) {
    let settings = [
        "OLLAMA_HOST",
        "EMBEDDING_URL",
        "SUMMARY_URL",
        "RERANK_URL",
        "OIDC_ISSUER",
        "OIDC_JWKS_URL",
        "HF_ENDPOINT",
    ];
    command
        .env("LOG_LEVEL", "DEBUG")
        .envs(settings.map(|name| (name, url)));
    command
        .env("EMBEDDING_PROVIDER", "tei")
        .env("SUMMARY_MODEL", "m")
        .env("RERANK_PROVIDER", "tei");
}

/// Runs a command to its end and returns its output.
fn output(command: &mut Command) -> String {
    let output = command
        .stdin(Stdio::null())
        .output()
        .expect("the command runs");
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_service_writes_no_password_of_an_address() {
    let home = Home::new();
    let mut command = home.command("context-service");
    set_addresses(&mut command, "http://user:hunter2@127.0.0.1:1");
    command.env(
        "POSTGRESQL_CONNECTION_STRING",
        "postgresql://user:hunter2@127.0.0.1:1/d",
    );
    let mut service = home.spawn_as(command);
    service.listening().await;
    posted(
        &service,
        "/v1/contexts",
        &json!({"thread_id": "t", "source": "user", "text": "x".repeat(2000)}),
    )
    .await;
    let search = json!({"query": "x", "limit": 5});
    for path in [
        "/v1/contexts/search/fts",
        "/v1/contexts/search/semantic",
        "/v1/contexts/search/hybrid",
    ] {
        let reply = request(&service, Method::POST, path)
            .json(&search)
            .send()
            .await
            .expect("a reply")
            .text()
            .await
            .expect("text");
        assert!(!reply.contains(PASSWORD), "{path}: {reply}");
    }
    let statistics = request(&service, Method::GET, "/v1/statistics")
        .send()
        .await
        .expect("a reply")
        .text()
        .await
        .expect("text");
    assert!(!statistics.contains(PASSWORD), "{statistics}");
    wait_for("the log names the provider that does not respond", || {
        service.log().contains("is not available yet").then_some(())
    })
    .await;
    let mut doctor = home.command("context-service");
    set_addresses(&mut doctor, "http://user:hunter2@127.0.0.1:1");
    let report = output(doctor.arg("doctor"));
    assert!(
        report.contains("settings") && !report.contains(PASSWORD),
        "{report}"
    );
    let log = service.log();
    assert!(
        log.contains("Read the settings") && log.contains("127.0.0.1:1") && !log.contains(PASSWORD),
        "{log}"
    );
}

#[test]
fn the_help_of_the_gateway_shows_no_password_of_an_address() {
    let home = Home::new();
    for subcommand in ["stdio", "http", "search"] {
        let mut command = home.command("context-gateway");
        command.args([subcommand, "--help"]);
        let settings = [
            "CONTEXT_BACKEND",
            "GATEWAY_ALLOWED_HOSTS",
            "GATEWAY_ALLOWED_ORIGINS",
            "GATEWAY_PUBLIC_URL",
            "OIDC_ISSUER",
        ];
        command.envs(settings.map(|name| (name, "https://user:hunter2@context.example/")));
        let help = output(&mut command);
        assert!(
            help.contains("Usage") && !help.contains(PASSWORD),
            "{subcommand}: {help}"
        );
    }
}

/// Settings, and arguments of the command.
type Case = (Vec<(&'static str, &'static str)>, Vec<&'static str>);

/// Runs a command until it ends, is ready, or reports that its provider is unavailable. Returns its output.
async fn log_of(home: &Home, settings: &[(&str, &str)], arguments: &[&str]) -> String {
    let mut command = home.command("context-service");
    command
        .env("LOG_LEVEL", "DEBUG")
        .envs(settings.iter().copied())
        .args(arguments);
    let mut process = home.spawn_as(command);
    let what = format!("{settings:?} {arguments:?} fails or starts");
    // That an embedding provider does not respond may be logged after the service is ready. All other addresses are
    // checked before.
    let end = if settings
        .iter()
        .any(|(name, _)| *name == "EMBEDDING_PROVIDER")
    {
        "is not available yet"
    } else {
        "is ready"
    };
    wait_for(&what, || {
        (!process.is_running() || process.log().contains(end)).then_some(())
    })
    .await;
    process.log()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_address_is_shown_without_its_password() {
    let mut cases: Vec<Case> = Vec::new();
    let mut run = |settings: &[(&'static str, &'static str)], arguments: &[&'static str]| {
        cases.push((settings.to_vec(), arguments.to_vec()))
    };
    for url in [
        "ftp://user:hunter2@host",
        "http://user:hunter2@host:port",
        "http://host/?key=hunter2",
        "http://user:hun?hunter2@host",
    ] {
        run(
            &[("EMBEDDING_PROVIDER", "tei"), ("EMBEDDING_URL", url)],
            &[],
        );
        run(
            &[("EMBEDDING_PROVIDER", "ollama"), ("OLLAMA_HOST", url)],
            &[],
        );
        run(&[("SUMMARY_MODEL", "m"), ("SUMMARY_URL", url)], &[]);
        run(&[("RERANK_PROVIDER", "tei"), ("RERANK_URL", url)], &[]);
        run(&[("RERANK_URL", url)], &[]);
        run(
            &[
                ("AUTH", "oidc"),
                ("OIDC_AUDIENCE", "a"),
                ("OIDC_ISSUER", url),
            ],
            &[],
        );
        run(
            &[
                ("AUTH", "oidc"),
                ("OIDC_AUDIENCE", "a"),
                ("OIDC_ISSUER", "https://issuer.example"),
                ("OIDC_JWKS_URL", url),
            ],
            &[],
        );
        run(&[("CONTEXT_CORS_ORIGINS", url)], &[]);
        run(&[("HF_ENDPOINT", url)], &["fetch-model"]);
        run(&[], &["--no-such-flag", url]);
        run(&[], &["migrate-data", url]);
        run(&[], &["follow", url, "--to", "sqlite:///nowhere/copy.db"]);
    }
    run(
        &[("CONTEXT_CORS_ORIGINS", "https://user:hunter2@app.example")],
        &[],
    );
    run(
        &[("HF_ENDPOINT", "http://user:hunter2@127.0.0.1:1")],
        &["fetch-model"],
    );
    for url in [
        "postgresql://u:hunter2@127.0.0.1:1/d",
        "postgresql://u:hunter2@[::1/d",
        "postgresql://u:p?sslmode=hunter2@127.0.0.1:1/d",
    ] {
        run(
            &[
                ("STORAGE_BACKEND", "postgresql"),
                ("POSTGRESQL_CONNECTION_STRING", url),
                ("POSTGRESQL_CONNECT_TIMEOUT_MS", "500"),
            ],
            &[],
        );
        run(&[], &["migrate-data", "--from", url, "--to", "sqlite"]);
    }
    let home = Home::new();
    for (settings, arguments) in cases {
        let text = log_of(&home, &settings, &arguments).await;
        assert!(
            !text.is_empty() && !text.contains(PASSWORD),
            "{settings:?} {arguments:?}: {text}"
        );
    }
}
