//! An HTTP server that responds or fails as the test specifies.

#![allow(dead_code, reason = "each test file uses a part of it")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use context_test_support::wait_for;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Mutex, Semaphore};

/// A received request.
#[derive(Debug, Clone)]
pub struct Seen {
    pub path: String,
    pub head: String,
    pub body: Value,
}

/// Chooses the reply to a request from the request and its number, from 0.
pub type Respond = Arc<dyn Fn(&Seen, usize) -> Reply + Send + Sync>;

/// The response to a request, or the fault that replaces it.
pub enum Reply {
    Json(Value),
    /// A body that a JSON library would not write.
    Raw(&'static str),
    /// A response that waits for a permit from the test.
    Held(Arc<Semaphore>, Value),
    Status(u16, &'static [(&'static str, &'static str)], Value),
    /// The beginning of a longer response, then the end of the connection.
    Truncated,
    /// One byte from time to time, without end.
    Trickle,
    /// No response.
    Hang,
}

pub struct Server {
    pub url: String,
    pub seen: Arc<Mutex<Vec<Seen>>>,
    requests: Arc<AtomicUsize>,
}

impl Server {
    pub async fn start(respond: impl Fn(&Seen, usize) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (seen, requests) = (
            Arc::new(Mutex::new(Vec::new())),
            Arc::new(AtomicUsize::new(0)),
        );
        let (respond, of_server, count): (Respond, _, _) =
            (Arc::new(respond), Arc::clone(&seen), Arc::clone(&requests));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(
                    stream,
                    Arc::clone(&respond),
                    Arc::clone(&of_server),
                    Arc::clone(&count),
                ));
            }
        });
        Self {
            url,
            seen,
            requests,
        }
    }

    pub async fn last(&self) -> Seen {
        self.seen
            .lock()
            .await
            .last()
            .cloned()
            .expect("a request was received")
    }

    /// Waits until this many requests have been received.
    pub async fn until(&self, requests: usize) {
        wait_for("the requests", || (self.count() >= requests).then_some(())).await;
    }

    pub fn count(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }
}

async fn serve(
    mut stream: TcpStream,
    respond: Respond,
    seen: Arc<Mutex<Vec<Seen>>>,
    count: Arc<AtomicUsize>,
) {
    while let Some(request) = read(&mut stream).await {
        let number = count.fetch_add(1, Ordering::SeqCst);
        let reply = respond(&request, number);
        seen.lock().await.push(request);
        let (status, headers, body) = match reply {
            Reply::Json(body) => (200, &[][..], body.to_string()),
            Reply::Raw(body) => (200, &[][..], body.to_owned()),
            Reply::Held(gate, body) => {
                gate.acquire().await.unwrap().forget();
                (200, &[][..], body.to_string())
            }
            Reply::Status(status, headers, body) => (status, headers, body.to_string()),
            Reply::Truncated => {
                let _ = stream
                    .write_all(
                        b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n{\"embeddings\":[[0.1",
                    )
                    .await;
                return;
            }
            Reply::Trickle => {
                let _ = stream
                    .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n")
                    .await;
                while stream.write_all(b" ").await.is_ok() {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                return;
            }
            Reply::Hang => std::future::pending().await,
        };
        let headers: String = headers
            .iter()
            .map(|(name, value)| format!("{name}: {value}\r\n"))
            .collect();
        let head = format!(
            "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\n{headers}content-length: {}\r\n\r\n",
            body.len()
        );
        if stream.write_all((head + &body).as_bytes()).await.is_err() {
            return;
        }
    }
}

async fn read(stream: &mut TcpStream) -> Option<Seen> {
    let mut bytes = Vec::new();
    let end = loop {
        if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            break end + 4;
        }
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    };
    let head = String::from_utf8_lossy(&bytes[..end]).to_lowercase();
    let length: usize = head
        .split("content-length: ")
        .nth(1)?
        .split("\r\n")
        .next()?
        .parse()
        .ok()?;
    while bytes.len() < end + length {
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    }
    let path = String::from_utf8_lossy(&bytes[..end])
        .split(' ')
        .nth(1)?
        .to_owned();
    Some(Seen {
        path,
        head,
        body: serde_json::from_slice(&bytes[end..end + length]).ok()?,
    })
}
