//! A small HTTP client. Each request uses a new connection.

use std::net::SocketAddr;
use std::time::Duration;

use http::{HeaderMap, HeaderValue, StatusCode, Version};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use serde_json::Value;

/// Maximum time for a reply. Some requests wait for minutes on purpose, but a run of the tests must end.
const LIMIT: Duration = Duration::from_secs(600);

/// Why there is no reply.
pub type Error = Box<dyn std::error::Error + Send + Sync>;

/// A request to send.
#[derive(Debug)]
#[must_use]
pub struct Request {
    builder: http::request::Builder,
    body: bytes::Bytes,
    http2: bool,
}

/// The reply.
#[derive(Debug)]
#[expect(missing_docs, reason = "each is its name")]
pub struct Reply {
    pub status: StatusCode,
    pub version: Version,
    pub headers: HeaderMap,
    pub body: String,
}

impl Request {
    /// A request for this URL.
    pub fn new(method: &str, url: String) -> Self {
        Self {
            builder: http::Request::builder().method(method).uri(url),
            body: bytes::Bytes::new(),
            http2: false,
        }
    }

    /// A GET at this address.
    pub fn get(address: SocketAddr, path: &str) -> Self {
        Self::new("GET", format!("http://{address}{path}"))
    }

    /// A POST of JSON to this address.
    pub fn post(address: SocketAddr, path: &str, body: &Value) -> Self {
        Self::new("POST", format!("http://{address}{path}")).json(body)
    }

    /// Adds this header.
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.builder = self.builder.header(name, value);
        self
    }

    /// Adds this key.
    pub fn key(self, key: &str) -> Self {
        self.header("authorization", &format!("Bearer {key}"))
    }

    /// Sets JSON as the body.
    pub fn json(self, body: &Value) -> Self {
        self.header("content-type", "application/json")
            .body(body.to_string())
    }

    /// Sets the body.
    pub fn body(mut self, body: impl Into<bytes::Bytes>) -> Self {
        self.body = body.into();
        self
    }

    /// Uses HTTP/2.
    pub const fn http2(mut self) -> Self {
        self.http2 = true;
        self
    }

    /// Sends the request and waits for the whole reply.
    ///
    /// # Panics
    /// When there is none within ten minutes.
    pub async fn send(self) -> Reply {
        tokio::time::timeout(LIMIT, self.try_send())
            .await
            .expect("a reply within ten minutes")
            .expect("a reply")
    }

    /// Sends the request and returns the events of its reply.
    ///
    /// # Panics
    /// When there is no reply within ten minutes, or it is no stream of events.
    pub async fn events(self) -> Events {
        let reply = tokio::time::timeout(LIMIT, self.open())
            .await
            .expect("a reply within ten minutes")
            .expect("a reply");
        let (parts, body) = reply.into_parts();
        assert_eq!(parts.status, StatusCode::OK);
        assert_eq!(parts.headers["content-type"], "text/event-stream");
        Events {
            body,
            received: Vec::new(),
        }
    }

    /// Sends the request and returns the events of its reply, or the reply if it is no stream of events.
    ///
    /// # Errors
    /// The error of the connection.
    pub async fn try_events(self) -> Result<std::result::Result<Events, Reply>, Error> {
        let (parts, body) = self.open().await?.into_parts();
        if parts.status != StatusCode::OK {
            return Ok(Err(Reply::whole(parts, body).await?));
        }
        let received = Vec::new();
        Ok(Ok(Events { body, received }))
    }

    /// Sends the request and waits for the whole reply. Returns an error if there is none.
    ///
    /// # Errors
    /// The error of the connection.
    ///
    /// # Panics
    /// When a header cannot be sent.
    pub async fn try_send(self) -> Result<Reply, Error> {
        let (parts, body) = self.open().await?.into_parts();
        Reply::whole(parts, body).await
    }

    async fn open(self) -> Result<http::Response<Incoming>, Error> {
        let request = self.builder.body(Full::new(self.body)).expect("a request");
        let client = Client::builder(TokioExecutor::new())
            .http2_only(self.http2)
            .set_host(true)
            .build_http();
        Ok(client.request(request).await?)
    }
}

/// A stream of Server-Sent Events.
#[derive(Debug)]
pub struct Events {
    body: Incoming,
    /// What was received and not returned. A character can be split between two pieces of the body.
    received: Vec<u8>,
}

/// One Server-Sent Event.
#[derive(Debug, Clone, PartialEq)]
#[expect(missing_docs, reason = "each is its name")]
pub struct Event {
    pub name: String,
    pub id: Option<String>,
    pub data: Value,
}

impl Events {
    /// The next event. `None` when the stream ends or its connection breaks.
    ///
    /// # Panics
    /// When an event is not UTF-8, or its data not JSON.
    pub async fn next(&mut self) -> Option<Event> {
        loop {
            while let Some(end) = self.received.windows(2).position(|two| two == b"\n\n") {
                let rest = self.received.split_off(end + 2);
                let block = std::mem::replace(&mut self.received, rest);
                let block = String::from_utf8(block).expect("UTF-8");
                let field = |name: &str| {
                    block
                        .lines()
                        .filter_map(|line| line.split_once(": "))
                        .find(|(field, _)| *field == name)
                        .map(|(_, value)| value.to_owned())
                };
                if let (Some(name), Some(data)) = (field("event"), field("data")) {
                    return Some(Event {
                        name,
                        id: field("id"),
                        data: serde_json::from_str(&data).expect("JSON"),
                    });
                }
            }
            let frame = self.body.frame().await?.ok()?;
            if let Ok(data) = frame.into_data() {
                self.received.extend_from_slice(&data);
            }
        }
    }
}

impl Reply {
    async fn whole(parts: http::response::Parts, body: Incoming) -> Result<Self, Error> {
        let body = body.collect().await?.to_bytes();
        Ok(Self {
            status: parts.status,
            version: parts.version,
            headers: parts.headers,
            body: String::from_utf8_lossy(&body).into_owned(),
        })
    }

    /// The body as JSON.
    ///
    /// # Panics
    /// When the body is not JSON.
    #[must_use]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error} in {}", self.body))
    }

    /// A header's value.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .get(name)
            .map(HeaderValue::to_str)
            .and_then(Result::ok)
    }

    /// The reason in a problem document. Checks the document's form.
    ///
    /// # Panics
    /// When the body is not a problem document.
    pub fn reason(&self) -> String {
        assert_eq!(
            self.header("content-type"),
            Some("application/problem+json"),
            "{}",
            self.body
        );
        let problem = self.json();
        assert_eq!(problem["status"], self.status.as_u16());
        assert_eq!(problem["instance"].as_str(), self.header("x-request-id"));
        problem["reason"].as_str().expect("a reason").to_owned()
    }
}
