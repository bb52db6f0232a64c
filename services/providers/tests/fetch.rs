//! Downloads a model from a hub that redirects, interrupts downloads and sends wrong data.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use context_providers::fetch::{FetchError, Fetchable, Pinned, fetch};
use context_test_support::Reserved;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

const CONTENT: &[u8] = b"abcdefghijklmnopqrstuvwxyz";
/// Output of `sha256sum` for it.
const SHA256: &str = "71c480df93d6ae2f1efad1447c66c9525e316218cf51fc8d9ed832f2daf18b73";

const MODEL: Fetchable = Fetchable {
    name: "m",
    repository: "owner/m",
    files: &[Pinned {
        path: "model.safetensors",
        bytes: 26,
        sha256: SHA256,
    }],
    settings: &[("1_Pooling/config.json", "{}")],
};

/// How the hub responds to the n-th request for the file, to which the first path redirects.
type Behaviour = fn(number: usize, from: usize) -> (&'static str, Vec<u8>);

async fn hub(behaviour: Behaviour) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let requests = Arc::new(AtomicUsize::new(0));
    let (count, own) = (Arc::clone(&requests), url.clone());
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut bytes = Vec::new();
            while !bytes.ends_with(b"\r\n\r\n")
                && stream.read_buf(&mut bytes).await.is_ok_and(|read| read > 0)
            {}
            let head = String::from_utf8_lossy(&bytes).to_lowercase();
            let response = if head.starts_with("get /owner/m/resolve/main/model.safetensors ") {
                format!("HTTP/1.1 302 Found\r\nlocation: {own}/cdn/file?signed=1\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
                    .into_bytes()
            } else {
                let from = head
                    .split("range: bytes=")
                    .nth(1)
                    .and_then(|rest| rest.split('-').next()?.parse().ok())
                    .unwrap_or(0);
                let (status, body) = behaviour(count.fetch_add(1, Ordering::SeqCst), from);
                // A shorter body than the whole file breaks off. A longer one is sent whole.
                let claimed = if status.starts_with("20") {
                    let whole = CONTENT.len() - if status.starts_with("206") { from } else { 0 };
                    whole.max(body.len())
                } else {
                    body.len()
                };
                let head = format!(
                    "HTTP/1.1 {status}\r\ncontent-length: {claimed}\r\nconnection: close\r\n\r\n"
                );
                [head.as_bytes(), &body].concat()
            };
            let _ = stream.write_all(&response).await;
        }
    });
    (url, requests)
}

#[tokio::test]
async fn a_download_that_breaks_off_goes_on_where_it_was() {
    let (url, requests) = hub(|number, from| {
        if number == 0 {
            ("200 OK", CONTENT[..10].to_vec())
        } else {
            ("206 Partial Content", CONTENT[from..].to_vec())
        }
    })
    .await;
    let directory = tempfile::tempdir().unwrap();
    let error = fetch(&MODEL, &url, directory.path(), |_, _, _| ())
        .await
        .unwrap_err();
    assert!(matches!(error, FetchError::Hub { .. }), "{error}");
    assert!(
        !directory.path().join("model.safetensors").exists(),
        "no partial file is put in place"
    );
    let mut seen = Vec::new();
    fetch(&MODEL, &url, directory.path(), |file, have, all| {
        seen.push((file, have, all))
    })
    .await
    .unwrap();
    assert_eq!(
        std::fs::read(directory.path().join("model.safetensors")).unwrap(),
        CONTENT
    );
    assert_eq!(seen.last(), Some(&("model.safetensors", 26, 26)));
    assert!(seen[0].1 > 10, "the download was resumed");
    assert_eq!(
        std::fs::read(directory.path().join("1_Pooling/config.json")).unwrap(),
        b"{}"
    );
    fetch(&MODEL, &url, directory.path(), |_, _, _| ())
        .await
        .unwrap();
    assert_eq!(
        requests.load(Ordering::SeqCst),
        2,
        "an existing file is not downloaded again"
    );
}

#[tokio::test]
async fn a_hub_that_cannot_resume_sends_it_all_again() {
    let (url, _) = hub(|number, _| {
        (
            "200 OK",
            if number == 0 {
                CONTENT[..10].to_vec()
            } else {
                CONTENT.to_vec()
            },
        )
    })
    .await;
    let directory = tempfile::tempdir().unwrap();
    fetch(&MODEL, &url, directory.path(), |_, _, _| ())
        .await
        .unwrap_err();
    fetch(&MODEL, &url, directory.path(), |_, _, _| ())
        .await
        .unwrap();
    assert_eq!(
        std::fs::read(directory.path().join("model.safetensors")).unwrap(),
        CONTENT
    );
}

#[tokio::test]
async fn another_file_than_expected_is_thrown_away() {
    let (url, _) = hub(|number, _| {
        (
            "200 OK",
            if number == 0 {
                CONTENT.to_ascii_uppercase()
            } else {
                CONTENT.to_vec()
            },
        )
    })
    .await;
    let directory = tempfile::tempdir().unwrap();
    let error = fetch(&MODEL, &url, directory.path(), |_, _, _| ())
        .await
        .unwrap_err();
    assert!(
        matches!(
            error,
            FetchError::Fingerprint {
                path: "model.safetensors",
                ..
            }
        ),
        "{error}"
    );
    fetch(&MODEL, &url, directory.path(), |_, _, _| ())
        .await
        .unwrap();
}

#[tokio::test]
async fn two_processes_do_not_write_to_one_file() {
    let (url, requests) = hub(|_, from| ("206 Partial Content", CONTENT[from..].to_vec())).await;
    let directory = tempfile::tempdir().unwrap();
    let part = directory.path().join("model.part");
    std::fs::write(&part, &CONTENT[..10]).unwrap();
    let other = std::fs::File::open(&part).unwrap();
    other.try_lock().unwrap();
    let error = fetch(&MODEL, &url, directory.path(), |_, _, _| ())
        .await
        .unwrap_err()
        .to_string();
    assert!(error.contains("another process"), "{error}");
    assert_eq!(requests.load(Ordering::SeqCst), 0);
    drop(other);
    fetch(&MODEL, &url, directory.path(), |_, _, _| ())
        .await
        .unwrap();
    assert_eq!(
        std::fs::read(directory.path().join("model.safetensors")).unwrap(),
        CONTENT
    );
}

#[tokio::test]
async fn a_longer_response_than_the_file_is_refused_and_the_next_download_begins_again() {
    let (url, _) = hub(|number, _| {
        let times = if number == 0 { 2 } else { 1 };
        ("200 OK", CONTENT.repeat(times))
    })
    .await;
    let directory = tempfile::tempdir().unwrap();
    let error = fetch(&MODEL, &url, directory.path(), |_, _, _| ())
        .await
        .unwrap_err()
        .to_string();
    assert!(error.contains("longer than 26 bytes"), "{error}");
    let exists = |file: &str| directory.path().join(file).exists();
    assert_eq!(["model.part", "model.safetensors"].map(exists), [false; 2]);
    fetch(&MODEL, &url, directory.path(), |_, _, _| ())
        .await
        .unwrap();
    assert_eq!(
        std::fs::read(directory.path().join("model.safetensors")).unwrap(),
        CONTENT
    );
}

#[tokio::test]
async fn a_longer_file_than_expected_is_downloaded_again() {
    let (url, _) = hub(|_, _| ("200 OK", CONTENT.to_vec())).await;
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("model.part"), CONTENT.repeat(2)).unwrap();
    fetch(&MODEL, &url, directory.path(), |_, _, _| ())
        .await
        .unwrap();
    assert_eq!(
        std::fs::read(directory.path().join("model.safetensors")).unwrap(),
        CONTENT
    );
}

#[tokio::test]
async fn a_missing_file_and_an_absent_hub_are_sentences() {
    let (url, _) = hub(|_, _| ("404 Not Found", Vec::new())).await;
    let directory = tempfile::tempdir().unwrap();
    let error = fetch(&MODEL, &url, directory.path(), |_, _, _| ())
        .await
        .unwrap_err()
        .to_string();
    assert!(error.contains("404"), "{error}");
    let absent = Reserved::new();
    let url = format!("http://{}", absent.address());
    let error = fetch(&MODEL, &url, directory.path(), |_, _, _| ())
        .await
        .unwrap_err()
        .to_string();
    assert!(error.contains("connection refused"), "{error}");
}

#[tokio::test]
async fn a_failure_of_tls_is_named() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
        }
    });
    let directory = tempfile::tempdir().unwrap();
    let error = fetch(&MODEL, &url, directory.path(), |_, _, _| ())
        .await
        .unwrap_err()
        .to_string();
    assert!(error.contains("TLS failed"), "{error}");
}
