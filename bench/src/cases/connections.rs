use std::rc::Rc;
use std::time::Instant;

use futures::future::try_join_all;
use tokio::sync::Mutex;

use crate::Result;
use crate::measure::Round;
use crate::service::{HttpGateway, Service, stdio_gateway};
use crate::transport::{Connection, Grpc, Operation, Reply, Stdio};
use crate::usage::CpuTimes;

/// The connections to one service over one transport.
pub struct Connections {
    /// The transport's name in reports.
    pub name: &'static str,
    connections: Vec<Connection>,
    service: u32,
    gateways: Vec<u32>,
    /// Runs as long as the connections are used.
    _http_gateway: Option<HttpGateway>,
}

/// Connections that the rounds use one after the other.
pub type SharedConnections = Rc<Mutex<Connections>>;

impl Connections {
    /// The names of the four transports.
    pub const TRANSPORTS: [&'static str; 4] = ["gRPC", "REST", "MCP stdio", "MCP HTTP"];

    /// Connects this many clients over a transport, one of [`TRANSPORTS`](Self::TRANSPORTS). On stdio each client has
    /// its own gateway.
    ///
    /// # Errors
    /// Nothing listens, or a gateway does not start.
    pub async fn connect(name: &'static str, service: &Service, clients: usize) -> Result<Self> {
        let http_gateway = if name == "MCP HTTP" {
            Some(HttpGateway::start(&service.socket)?)
        } else {
            None
        };
        let mut connections = Vec::new();
        let mut gateways: Vec<u32> = http_gateway.iter().map(HttpGateway::id).collect();
        for _ in 0..clients {
            connections.push(match (name, &http_gateway) {
                ("gRPC", _) => Connection::Grpc(Grpc::connect(service.address).await?),
                ("REST", _) => Connection::rest(service.address).await?,
                (_, Some(gateway)) => Connection::mcp_http(gateway.address).await?,
                _ => {
                    let gateway = Stdio::start(stdio_gateway(&service.socket)?).await?;
                    gateways.push(gateway.id());
                    Connection::Stdio(gateway)
                }
            });
        }
        Ok(Self {
            name,
            connections,
            service: service.id(),
            gateways,
            _http_gateway: http_gateway,
        })
    }

    /// The connections, shared between rounds.
    pub fn shared(self) -> SharedConnections {
        Rc::new(Mutex::new(self))
    }

    /// The process ids of the gateways.
    pub fn gateways(&self) -> &[u32] {
        &self.gateways
    }

    /// Runs one operation on the first connection.
    ///
    /// # Errors
    /// The connection breaks, or the service rejects the operation.
    pub async fn run(&mut self, operation: &Operation) -> Result<Reply> {
        self.connections
            .first_mut()
            .ok_or("no connection")?
            .run(operation)
            .await
    }

    /// Runs the operations of each client one after the other, and all clients concurrently. Returns the figures and
    /// each client's last reply.
    ///
    /// # Errors
    /// The first failure, or a last reply that is an error of a tool.
    pub async fn round(&mut self, operations: &[Vec<Operation>]) -> Result<(Round, Vec<Reply>)> {
        let (own, service) = (std::process::id(), self.service);
        let gateways = self.gateways.clone();
        let of_gateways = || {
            gateways.iter().fold(CpuTimes::default(), |mut sum, pid| {
                sum.add(&CpuTimes::of(*pid));
                sum
            })
        };
        let work: Vec<_> = self
            .connections
            .iter_mut()
            .zip(operations)
            .map(|(connection, operations)| {
                let requests: Vec<_> = operations
                    .iter()
                    .map(|operation| connection.request(operation))
                    .collect();
                (connection, requests)
            })
            .collect();
        let before = (CpuTimes::of(own), CpuTimes::of(service), of_gateways());
        let started = Instant::now();
        let done = try_join_all(work.into_iter().map(|(connection, requests)| async move {
            let mut latencies = Vec::with_capacity(requests.len());
            let mut last = None;
            for request in requests {
                let started = Instant::now();
                last = Some(connection.send(request).await?);
                latencies.push(started.elapsed());
            }
            Ok::<_, crate::Error>((latencies, last))
        }))
        .await?;
        let elapsed = started.elapsed();
        let client = CpuTimes::of(own).since(&before.0);
        let (service, gateway) = (
            CpuTimes::of(service).since(&before.1),
            of_gateways().since(&before.2),
        );
        let mut latencies = Vec::new();
        let mut replies = Vec::new();
        for (times, last) in done {
            latencies.extend(times);
            replies.extend(last);
        }
        replies.iter().try_for_each(Reply::check)?;
        Ok((
            Round {
                elapsed,
                latencies,
                service,
                gateway,
                client,
            },
            replies,
        ))
    }
}
