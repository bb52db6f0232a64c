//! A small HTTP client.

use http::{HeaderMap, HeaderValue, StatusCode, Version};
use http_body_util::{BodyExt as _, Full};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;

/// A request to send.
pub struct Request {
    builder: http::request::Builder,
    body: bytes::Bytes,
    http2: bool,
}

/// What came back.
pub struct Reply {
    pub status: StatusCode,
    pub version: Version,
    pub headers: HeaderMap,
    pub body: String,
}

impl Request {
    pub fn new(method: &str, uri: String) -> Self {
        Self {
            builder: http::Request::builder().method(method).uri(uri),
            body: bytes::Bytes::new(),
            http2: false,
        }
    }

    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.builder = self.builder.header(name, value);
        self
    }

    pub fn json(self, body: &serde_json::Value) -> Self {
        self.header("content-type", "application/json")
            .body(body.to_string())
    }

    pub fn body(mut self, body: impl Into<bytes::Bytes>) -> Self {
        self.body = body.into();
        self
    }

    pub const fn http2(mut self) -> Self {
        self.http2 = true;
        self
    }

    pub async fn send(self) -> Reply {
        let request = self.builder.body(Full::new(self.body)).expect("a request");
        let client = Client::builder(TokioExecutor::new())
            .http2_only(self.http2)
            .set_host(true)
            .build_http();
        let (parts, body) = client.request(request).await.expect("a reply").into_parts();
        let body = body.collect().await.expect("a whole body").to_bytes();
        Reply {
            status: parts.status,
            version: parts.version,
            headers: parts.headers,
            body: String::from_utf8_lossy(&body).into_owned(),
        }
    }
}

impl Reply {
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error} in {}", self.body))
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .get(name)
            .map(HeaderValue::to_str)
            .and_then(Result::ok)
    }

    /// The reason of a problem, after checking its form.
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
