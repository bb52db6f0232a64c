//! An HTTP/2 client for attacks. Its streams send arbitrary data at arbitrary times and read nothing.

use std::net::SocketAddr;

use bytes::Bytes;
use h2::client::{ResponseFuture, SendRequest};
use http::{HeaderMap, Request, Response};
use tokio::net::TcpStream;

/// An HTTP/2 connection without TLS or an upgrade ("prior knowledge"). By itself it only responds to pings.
#[derive(Clone)]
pub struct Connection {
    address: SocketAddr,
    send: SendRequest<Bytes>,
}

/// A stream whose request head was sent.
pub struct Stream {
    body: h2::SendStream<Bytes>,
    response: Option<ResponseFuture>,
    head: Option<Response<h2::RecvStream>>,
}

impl Connection {
    /// Connects.
    ///
    /// # Panics
    /// The service does not accept the connection.
    pub async fn open(address: SocketAddr) -> Self {
        Self::try_open(address).await.expect("a connection")
    }

    /// Connects. The service may refuse the connection.
    ///
    /// # Errors
    /// The error of the connection.
    pub async fn try_open(address: SocketAddr) -> std::io::Result<Self> {
        Self::try_open_with_window(address, 16 * 1024).await
    }

    /// Connects and allows the peer to send `window` bytes on each stream.
    ///
    /// # Errors
    /// The error of the connection.
    pub async fn try_open_with_window(address: SocketAddr, window: u32) -> std::io::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        let handshake = h2::client::Builder::new()
            .initial_window_size(window)
            .handshake(stream);
        let (send, connection) = handshake.await.map_err(std::io::Error::other)?;
        tokio::spawn(async move {
            let _ = connection.await;
        });
        Ok(Self { address, send })
    }

    /// Whether the connection accepts further requests.
    pub async fn is_open(&self) -> bool {
        self.send.clone().ready().await.is_ok()
    }

    /// Sends the head of a gRPC request.
    pub async fn grpc(&self, path: &str, key: Option<&str>) -> Stream {
        self.request(self.grpc_request(path, key), false).await
    }

    /// Like [`grpc`](Self::grpc), with messages that may be compressed with gzip.
    pub async fn compressed_grpc(&self, path: &str, key: Option<&str>) -> Stream {
        let mut request = self.grpc_request(path, key);
        request
            .headers_mut()
            .insert("grpc-encoding", http::HeaderValue::from_static("gzip"));
        self.request(request, false).await
    }

    /// Sends a GET request.
    ///
    /// # Panics
    /// The connection is closed.
    pub async fn get(&self, path: &str, key: &str) -> Stream {
        self.try_get(path, key)
            .await
            .expect("the connection accepts requests")
    }

    /// Sends a GET request if the connection is open.
    ///
    /// # Errors
    /// The error that closed the connection.
    pub async fn try_get(&self, path: &str, key: &str) -> Result<Stream, h2::Error> {
        let request = Request::get(format!("http://{}{path}", self.address))
            .header("authorization", format!("Bearer {key}"));
        self.try_request(request.body(()).expect("a request"), true)
            .await
    }

    fn grpc_request(&self, path: &str, key: Option<&str>) -> Request<()> {
        let mut request = Request::post(format!("http://{}{path}", self.address))
            .header("content-type", "application/grpc")
            .header("te", "trailers");
        if let Some(key) = key {
            request = request.header("authorization", format!("Bearer {key}"));
        }
        request.body(()).expect("a request")
    }

    /// Sends any request. `end` says that it has no body.
    ///
    /// # Panics
    /// The connection is closed.
    pub async fn request(&self, request: Request<()>, end: bool) -> Stream {
        self.try_request(request, end)
            .await
            .expect("the connection accepts requests")
    }

    /// Sends the head of a gRPC request if the connection is open.
    ///
    /// # Errors
    /// The error that closed the connection.
    pub async fn try_grpc(&self, path: &str, key: Option<&str>) -> Result<Stream, h2::Error> {
        self.try_request(self.grpc_request(path, key), false).await
    }

    /// Sends any request if the connection is open.
    ///
    /// # Errors
    /// The error that closed the connection.
    pub async fn try_request(&self, request: Request<()>, end: bool) -> Result<Stream, h2::Error> {
        let mut send = self.send.clone().ready().await?;
        let (response, body) = send.send_request(request, end)?;
        Ok(Stream {
            body,
            response: Some(response),
            head: None,
        })
    }
}

impl Stream {
    /// Sends data. If the service has already replied and accepts no more data, the data is dropped.
    pub async fn send(&mut self, data: Bytes, end: bool) {
        let _ = self.body.send_data(data, end);
    }

    /// The status of the reply. The body is not read.
    ///
    /// # Panics
    /// There is no reply.
    pub async fn head(&mut self) -> u16 {
        self.try_head().await.expect("a reply")
    }

    /// The status of the reply, if there is one. The body is not read.
    ///
    /// # Errors
    /// The error that ended the stream or the connection.
    ///
    /// # Panics
    /// The head was read before.
    pub async fn try_head(&mut self) -> Result<u16, h2::Error> {
        let response = self.response.take().expect("the head is read once");
        let head = response.await?;
        let status = head.status().as_u16();
        self.head = Some(head);
        Ok(status)
    }

    /// Whether the head that was read begins a reply with content. A refused gRPC call also has status 200, but its head
    /// has a `grpc-status`.
    #[must_use]
    pub fn is_accepted(&self) -> bool {
        self.head.as_ref().is_some_and(|head| {
            head.status() == http::StatusCode::OK && !head.headers().contains_key("grpc-status")
        })
    }

    /// Waits for the gRPC status of the reply.
    ///
    /// # Panics
    /// There is no reply.
    pub async fn grpc_status(mut self) -> (i32, String) {
        if self.head.is_none() {
            self.head().await;
        }
        let response = self.head.take().expect("a head");
        let (parts, mut body) = response.into_parts();
        if let Some(status) = status(&parts.headers) {
            return status;
        }
        while let Some(data) = body.data().await {
            let data = data.expect("data");
            let _ = body.flow_control().release_capacity(data.len());
        }
        let trailers = body.trailers().await.expect("trailers").unwrap_or_default();
        status(&trailers).expect("a gRPC status")
    }
}

fn status(headers: &HeaderMap) -> Option<(i32, String)> {
    let code = headers.get("grpc-status")?.to_str().ok()?.parse().ok()?;
    let message = headers
        .get("grpc-message")
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    Some((code, message.to_owned()))
}

/// A gRPC message with its prefix.
#[must_use]
pub fn message(data: &[u8]) -> Bytes {
    framed(0, data)
}

/// A compressed gRPC message with its prefix.
#[must_use]
pub fn compressed_message(data: &[u8]) -> Bytes {
    framed(1, data)
}

fn framed(flag: u8, data: &[u8]) -> Bytes {
    let length = u32::try_from(data.len())
        .expect("a short message")
        .to_be_bytes();
    [&[flag][..], &length, data].concat().into()
}

/// Compresses data with gzip.
///
/// # Panics
/// Never, because writing to memory does not fail.
#[must_use]
pub fn gzip(data: &[u8]) -> Vec<u8> {
    use std::io::Write as _;
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    encoder.write_all(data).expect("memory");
    encoder.finish().expect("memory")
}
