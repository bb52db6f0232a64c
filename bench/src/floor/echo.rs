//! The floor of a call: a server that echoes what it receives, bytes with tonic and parsed JSON with axum.

use std::net::SocketAddr;
use std::path::Path;

use axum::extract::Request;
use axum::routing::post;
use axum::serve::ListenerExt as _;
use axum::{Json, Router};
use bytes::Bytes;
use http::uri::PathAndQuery;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, UnixListener, UnixStream};
use tonic::server::UnaryService;
use tonic::transport::{Channel, Endpoint};
use tonic::{Response, Status};
use tonic_prost::ProstCodec;

use crate::Result;

/// The route of the gRPC method. (prost encodes `Bytes` as google.protobuf.BytesValue.)
const GRPC: &str = "/bench.Echo/Echo";
/// The route of the JSON echo.
pub const JSON: &str = "/echo";

#[derive(Clone, Copy)]
struct Echo;

impl UnaryService<Bytes> for Echo {
    type Response = Bytes;
    type Future = std::future::Ready<std::result::Result<Response<Bytes>, Status>>;

    fn call(&mut self, request: tonic::Request<Bytes>) -> Self::Future {
        std::future::ready(Ok(Response::new(request.into_inner())))
    }
}

async fn grpc(request: Request) -> http::Response<tonic::body::Body> {
    tonic::server::Grpc::new(ProstCodec::<Bytes, Bytes>::default())
        .unary(Echo, request)
        .await
}

async fn json(Json(value): Json<serde_json::Value>) -> Json<serde_json::Value> {
    Json(value)
}

/// Serves both echoes on a port and on a socket until the process is terminated.
///
/// # Errors
/// The server cannot listen.
pub async fn serve(socket: &Path, address: SocketAddr) -> Result<()> {
    let app = Router::new()
        .route(GRPC, post(grpc))
        .route(JSON, post(json));
    let unix = UnixListener::bind(socket)?;
    let tcp = TcpListener::bind(address)
        .await?
        .tap_io(|stream| _ = stream.set_nodelay(true));
    tokio::spawn(axum::serve(unix, app.clone()).into_future());
    axum::serve(tcp, app).await?;
    Ok(())
}

/// A client of the gRPC echo.
#[derive(Debug, Clone)]
pub struct EchoClient(tonic::client::Grpc<Channel>);

impl EchoClient {
    /// Connects over TCP.
    ///
    /// # Errors
    /// Nothing listens.
    pub async fn tcp(address: SocketAddr) -> Result<Self> {
        Ok(Self(tonic::client::Grpc::new(
            Endpoint::from_shared(format!("http://{address}"))?
                .connect()
                .await?,
        )))
    }

    /// Connects over a Unix socket on first use.
    pub fn unix(socket: &Path) -> Self {
        let socket = socket.to_owned();
        let connect = tower::service_fn(move |_| {
            let socket = socket.clone();
            async move { UnixStream::connect(socket).await.map(TokioIo::new) }
        });
        Self(tonic::client::Grpc::new(
            Endpoint::from_static("http://floor.local").connect_with_connector_lazy(connect),
        ))
    }

    /// Sends bytes and returns the echo.
    ///
    /// # Errors
    /// The call fails.
    pub async fn echo(&mut self, bytes: Bytes) -> Result<Bytes> {
        self.0.ready().await?;
        let path = PathAndQuery::from_static(GRPC);
        Ok(self
            .0
            .unary(
                tonic::Request::new(bytes),
                path,
                ProstCodec::<Bytes, Bytes>::default(),
            )
            .await?
            .into_inner())
    }
}
