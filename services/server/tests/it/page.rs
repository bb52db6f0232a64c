//! The page at `/` and its files.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use context_service::{Started, start};
use context_test_support::Home;
use context_test_support::http::{Reply, Request};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;

use crate::process::{program, run};
use crate::service::{Service, settings};

const FILES: [(&str, &str); 3] = [
    ("/", "text/html; charset=utf-8"),
    ("/ui/app.js", "text/javascript; charset=utf-8"),
    ("/ui/app.css", "text/css; charset=utf-8"),
];

#[tokio::test(flavor = "multi_thread")]
async fn the_page_allows_no_other_host_and_no_inline_script() {
    let service = Service::start().await;
    for (path, kind) in FILES {
        let reply = service.get(path).send().await;
        assert_eq!(
            (reply.status.as_u16(), reply.header("content-type")),
            (200, Some(kind)),
            "{path}"
        );
        let policy = reply.header("content-security-policy").unwrap_or_default();
        for part in [
            "default-src 'none'",
            "script-src 'self'",
            "style-src 'self'",
        ] {
            assert!(policy.contains(part), "{path}: {policy}");
        }
        for forbidden in ["unsafe", "http", "*"] {
            assert!(!policy.contains(forbidden), "{path}: {policy}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_names_its_files_relative_to_itself() {
    let service = Service::start().await;
    let page = service.get("/").send().await.body;
    let mut files = Vec::new();
    for attribute in page.split(['"']).skip(1).step_by(2) {
        assert!(!attribute.starts_with('/'), "{attribute}");
        assert!(!attribute.starts_with("http"), "{attribute}");
        if attribute.starts_with("ui/") {
            files.push(format!("/{attribute}"));
        }
    }
    files.sort();
    assert_eq!(files, ["/ui/app.css", "/ui/app.js"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_the_browser_has_is_not_sent_again() {
    let service = Service::start().await;
    for (path, _) in FILES {
        let first = service.get(path).send().await;
        assert_eq!(first.header("cache-control"), Some("no-cache"), "{path}");
        let tag = first.header("etag").unwrap();
        let same = service.get(path).header("if-none-match", tag).send().await;
        assert_eq!(
            (same.status.as_u16(), same.body.as_str()),
            (304, ""),
            "{path}"
        );
        let other = format!("\"0\", {tag}");
        let listed = service
            .get(path)
            .header("if-none-match", &other)
            .send()
            .await;
        assert_eq!(listed.status, 304, "{path}");
        let old = service
            .get(path)
            .header("if-none-match", "W/\"0\"")
            .send()
            .await;
        assert_eq!(old.status, 200, "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_file_of_the_page_is_not_found() {
    let service = Service::start().await;
    for path in ["/ui/", "/ui/other.js", "/ui/../Cargo.toml"] {
        assert_eq!(
            service.get(path).send().await.reason(),
            "NOT_FOUND",
            "{path}"
        );
    }
    assert_eq!(
        service.request("POST", "/").send().await.reason(),
        "METHOD_NOT_ALLOWED"
    );
}

/// The parts of the page's URL: the address of its port, and the ticket.
fn parts(url: &str) -> (SocketAddr, &str) {
    let (address, ticket) = url
        .strip_prefix("http://")
        .and_then(|rest| rest.split_once("/#open="))
        .unwrap_or_else(|| panic!("{url}"));
    (address.parse().unwrap(), ticket)
}

fn started_by_gateway(home: &Home) -> Command {
    let mut command = program(home);
    command.arg("--auto-started");
    command
}

/// The URL that `open --print` prints.
fn opened(home: &Home) -> String {
    let (code, url, stderr) = run(program(home).args(["open", "--print"]));
    assert_eq!(code, 0, "{stderr}");
    url.trim().to_owned()
}

async fn session(address: SocketAddr, ticket: &str) -> Reply {
    Request::post(address, "/ui/session", &json!({ "ticket": ticket }))
        .send()
        .await
}

fn threads(address: SocketAddr) -> Request {
    Request::get(address, "/v1/threads")
}

#[tokio::test]
async fn a_service_without_a_port_opens_one_for_any_caller_of_its_socket() {
    let home = Home::new();
    let (code, _, stderr) = run(program(&home).args(["open", "--print"]));
    assert!(
        code == 1 && stderr.contains("no service responds"),
        "{stderr}"
    );
    let service = home.start_as(started_by_gateway(&home)).await;
    let url = opened(&home);
    let (address, ticket) = parts(&url);
    assert!(address.ip().is_loopback());
    // Another process of the machine can reach the port, but it has no ticket.
    assert_eq!(Request::get(address, "/").send().await.status, 200);
    for stranger in [
        threads(address),
        threads(address).key(ticket),
        threads(address).key(""),
        Request::get(address, "/v1/watch"),
        Request::post(address, "/v1/contexts", &json!({})),
    ] {
        let reply = stranger.send().await;
        assert_eq!(
            (reply.status.as_u16(), reply.reason()),
            (401, "PAGE_CLOSED".to_owned())
        );
    }
    assert_eq!(session(address, "0").await.reason(), "PAGE_CLOSED");
    for body in [
        json!({}),
        json!({"ticket": 1}),
        json!({"ticket": "x".repeat(2000)}),
    ] {
        let reply = Request::post(address, "/ui/session", &body).send().await;
        assert_eq!(reply.reason(), "INVALID_ARGUMENT", "{body}");
    }
    assert_eq!(
        Request::post(address, "/internal/open-page", &json!({}))
            .send()
            .await
            .status,
        404
    );
    // A page of another site, and a host name that points to this address.
    let foreign = Request::post(address, "/ui/session", &json!({ "ticket": ticket }))
        .header("sec-fetch-site", "cross-site");
    assert_eq!(foreign.send().await.reason(), "CROSS_SITE");
    let renamed = threads(address).header("host", "evil.example");
    assert_eq!(renamed.send().await.status, 400);

    let begun: Value = session(address, ticket).await.json();
    let token = begun["token"].as_str().unwrap();
    assert_eq!(begun["socket"], home.socket().display().to_string());
    assert_eq!(
        begun["gateway_environment"]["DB_PATH"],
        home.database().display().to_string()
    );
    assert_eq!(session(address, ticket).await.reason(), "PAGE_CLOSED");
    assert_eq!(threads(address).key(token).send().await.status, 200);
    // A second page, on the same port; the first one stays.
    let again = opened(&home);
    let (same, ticket) = parts(&again);
    assert_eq!(same, address);
    let other: Value = session(address, ticket).await.json();
    for token in [token, other["token"].as_str().unwrap()] {
        assert_eq!(threads(address).key(token).send().await.status, 200);
    }
    assert!(service.terminate().await.success());
}

#[tokio::test]
async fn with_keys_the_page_asks_for_one() {
    let home = Home::new().with("AUTH", "keys");
    let service = home.start_as(started_by_gateway(&home)).await;
    let (code, created, stderr) = run(program(&home).args(["keys", "create", "page"]));
    assert_eq!(code, 0, "{stderr}");
    let url = opened(&home);
    let (address, ticket) = parts(&url);
    let begun: Value = session(address, ticket).await.json();
    let token = begun["token"].as_str().unwrap();
    assert_eq!(
        threads(address).key(token).send().await.reason(),
        "UNAUTHENTICATED"
    );
    let key = created.lines().next().unwrap();
    assert_eq!(threads(address).key(key).send().await.status, 200);
    assert!(service.terminate().await.success());
}

#[tokio::test]
async fn the_page_of_a_service_with_a_port_is_there() {
    let home = Home::new();
    let service = home.start_as(program(&home)).await;
    let page = service.address();
    assert_eq!(opened(&home), format!("http://{page}/"));
    let shown = Request::get(page, "/").send().await;
    assert_eq!(
        (shown.status.as_u16(), shown.header("content-type")),
        (200, Some(FILES[0].1))
    );
    assert_eq!(session(page, "0").await.reason(), "NOT_FOUND");
}

#[tokio::test]
async fn the_port_closes_without_a_page_and_then_the_service_stops() {
    let directory = tempfile::tempdir().unwrap();
    let config = settings(
        directory.path(),
        &["--auto-started", "--idle-exit-seconds=60"],
    );
    let Started::Running(running) = start(&config).await.unwrap() else {
        panic!("no other service uses this database");
    };
    let socket = running.socket().to_owned();
    let service = tokio::spawn(running.run());
    let url = request_page(&socket).await;
    let (address, _) = parts(&url);
    let is_open = || std::net::TcpStream::connect(address).is_ok();
    tokio::time::pause();
    for _ in 0..25 {
        tokio::time::advance(Duration::from_secs(60)).await;
    }
    // A new request keeps the port open for another 30 minutes.
    assert_eq!(parts(&request_page(&socket).await).0, address);
    for _ in 0..29 {
        tokio::time::advance(Duration::from_secs(60)).await;
        assert!(!service.is_finished());
    }
    assert!(is_open());
    for _ in 0..70 {
        tokio::time::advance(Duration::from_secs(60)).await;
    }
    assert!(!is_open());
    service.await.unwrap();
}

async fn request_page(socket: &Path) -> String {
    let mut stream = UnixStream::connect(socket).await.unwrap();
    stream
        .write_all(b"POST /internal/open-page HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
        .await
        .unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).await.unwrap();
    let (_, body) = reply.split_once("\r\n\r\n").unwrap();
    let page: Value = serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {reply}"));
    page["url"].as_str().unwrap().to_owned()
}
