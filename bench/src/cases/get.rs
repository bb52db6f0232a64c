//! Getting one entry by its id, compared with echoes of the same bytes.

use std::rc::Rc;
use std::time::Instant;

use bytes::Bytes;
use context_proto::v1 as pb;
use prost::Message as _;
use serde_json::{Value, json};
use tokio::sync::Mutex;

use super::{Bench, Connections, Loaded, SharedConnections};
use crate::Result;
use crate::corpus::{IMAGE_BYTES, Random};
use crate::floor::echo::{self, EchoClient};
use crate::measure::{Contender, Round, Series, alternate};
use crate::report::{Goal, Ratio, Report, Section};
use crate::service::{Echo, HttpGateway, Service, stdio_floor};
use crate::transport::{Grpc, Http1, Message, Operation, Stdio, call};
use crate::usage::CpuTimes;

/// Goal: maximum ratio of gRPC's p50 to that of the echo.
const ECHO_GOAL: f64 = 2.0;
/// Goal: maximum time that MCP over stdio may add to gRPC's p50, in milliseconds.
const GATEWAY_GOAL_MS: f64 = 0.15;

/// Measures gets from the loaded service.
///
/// # Errors
/// A process does not start, an entry differs from the stored one, or a floor does not echo.
pub async fn run(
    bench: &Bench,
    report: &mut Report,
    service: &Service,
    loaded: &Loaded,
) -> Result<()> {
    let what = if loaded.images {
        "get with an image of 256 KiB"
    } else {
        "get by id"
    };
    let name = format!("{what}, {} entries", loaded.ids.len());
    bench.progress.step(&format!("Measuring {name}"));
    let mut transports = Vec::new();
    for transport in Connections::TRANSPORTS {
        let mut connections = Connections::connect(transport, service, 1).await?;
        for n in [0, loaded.ids.len() / 2, loaded.ids.len() - 1] {
            if connections
                .run(&Operation::Get(loaded.ids[n]))
                .await?
                .text()?
                != bench.corpus.entry(n as u64).text
            {
                return Err(format!("{transport}: entry {n} differs from the stored one").into());
            }
        }
        transports.push(connections.shared());
    }
    let (grpc_bytes, json_bytes) = payload(service, loaded).await?;
    let about = format!(
        "{} bytes of protobuf, {} bytes of JSON",
        grpc_bytes.len(),
        json_bytes.len()
    );
    let echo = Echo::start(&bench.dir)?;
    let hop = HttpGateway::start_floor(&echo.socket)?;
    let mut stdio = Stdio::start(stdio_floor(&echo.socket)?).await?;
    // An MCP reply contains the JSON of the entry twice, as text and as structured content. Twice the bytes make the
    // floor's reply about as long.
    let text = format!("{0}{0}", String::from_utf8_lossy(&json_bytes));
    let line = call("echo", json!({"text": text})).to_string() + "\n";
    let request = Message::mcp(&call("echo", json!({"text": text})));
    let json_request = Message::post(echo::JSON, json_bytes.clone());

    let mut grpc_echo = EchoClient::tcp(echo.address).await?;
    let mut json_echo = Http1::connect(echo.address).await?;
    let mut hop_client = Http1::connect(hop.address).await?;
    let sent: Value = serde_json::from_slice(&json_bytes)?;
    let echoed: Value = serde_json::from_slice(&json_echo.send(json_request.clone()).await?)?;
    if grpc_echo.echo(grpc_bytes.clone()).await? != grpc_bytes || echoed != sent {
        return Err("a floor does not echo what it receives".into());
    }
    if !loaded.images
        && (echoed_text(&stdio.send(&line).await?)? != text
            || echoed_text(&hop_client.send(request.clone()).await?)? != text)
    {
        return Err("a floor of the gateway does not echo what it receives".into());
    }
    let grpc_echo = Rc::new(Mutex::new(grpc_echo));
    let json_echo = Rc::new(Mutex::new(json_echo));
    let (stdio_id, stdio) = (stdio.id(), Rc::new(Mutex::new(stdio)));
    let (hop_id, hop_client) = (hop.id(), Rc::new(Mutex::new(hop_client)));
    let echo_id = echo.id();
    /// A contender that makes the same call again and again, each after the response to the one before.
    macro_rules! repeat {
        ($name:literal, $service:expr, $gateway:expr, $client:ident, $payload:ident, $send:expr) => {
            Contender::new($name, move |count| {
                let (client, payload) = ($client.clone(), $payload.clone());
                Box::pin(async move {
                    let mut client = client.lock().await;
                    let pids = [std::process::id(), $service, $gateway];
                    let before = pids.map(CpuTimes::of);
                    let started = Instant::now();
                    let mut latencies = Vec::with_capacity(count);
                    for _ in 0..count {
                        let payload = payload.clone();
                        let started = Instant::now();
                        $send(&mut client, payload).await?;
                        latencies.push(started.elapsed());
                    }
                    let elapsed = started.elapsed();
                    let [client, service, gateway] =
                        std::array::from_fn(|at| CpuTimes::of(pids[at]).since(&before[at]));
                    Ok(Round {
                        elapsed,
                        latencies,
                        service,
                        gateway,
                        client,
                    })
                })
            })
        };
    }
    let mut contenders = vec![
        repeat!(
            "tonic echo",
            echo_id,
            0,
            grpc_echo,
            grpc_bytes,
            async |client: &mut EchoClient, bytes| client.echo(bytes).await
        ),
        transport(&transports[0], "gRPC", loaded),
        repeat!(
            "axum echo",
            echo_id,
            0,
            json_echo,
            json_request,
            async |client: &mut Http1, message| client.send(message).await
        ),
        transport(&transports[1], "REST", loaded),
        repeat!(
            "rmcp stdio → tonic",
            echo_id,
            stdio_id,
            stdio,
            line,
            async |client: &mut Stdio, line: String| client.send(&line).await
        ),
        transport(&transports[2], "MCP stdio", loaded),
        repeat!(
            "rmcp HTTP → tonic",
            echo_id,
            hop_id,
            hop_client,
            request,
            async |client: &mut Http1, message| client.send(message).await
        ),
        transport(&transports[3], "MCP HTTP", loaded),
    ];
    if loaded.images {
        // Not measured over MCP: a reply has the image twice, as base64 in the text and in the structured content.
        contenders.truncate(4);
    }
    let gets = if loaded.images {
        bench.scale.image_gets
    } else {
        bench.scale.gets
    };
    let series = alternate(contenders, gets, bench.scale.rounds).await?;

    let mut section = Section::new(&name, &about);
    for pair in series.chunks(2) {
        section.add(&pair[0], None);
        section.add(&pair[1], Some(Ratio::lower(pair[1].p50_ratio(&pair[0]))));
    }
    if loaded.images {
        report.section(section);
        return Ok(());
    }
    let added = |at: usize| -> f64 { Series::p50_minus(&series[at], &series[1]) / 1000.0 };
    section.note(format!(
        "MCP stdio adds {:.3} ms to gRPC, MCP HTTP {:.3} ms",
        added(5),
        added(7)
    ));
    report.section(section);
    report.goal(Goal::at_most(
        format!("{name}: gRPC p50 over tonic echo"),
        series[1].p50_ratio(&series[0]),
        ECHO_GOAL,
        "×",
    ));
    report.goal(Goal::at_most(
        format!("{name}: MCP stdio p50 on top of gRPC"),
        added(5),
        GATEWAY_GOAL_MS,
        "ms",
    ));
    Ok(())
}

fn transport<'a>(connections: &SharedConnections, name: &str, loaded: &'a Loaded) -> Contender<'a> {
    let connections = connections.clone();
    let mut random = Random::new(1);
    Contender::new(name, move |count| {
        let connections = connections.clone();
        let operations = (0..count)
            .map(|_| Operation::Get(loaded.ids[random.below(loaded.ids.len() as u64) as usize]))
            .collect();
        Box::pin(async move { Ok(connections.lock().await.round(&[operations]).await?.0) })
    })
}

/// The text in the result of a floor of the gateway.
fn echoed_text(reply: &[u8]) -> Result<String> {
    let reply: Value = serde_json::from_slice(reply)?;
    reply["result"]["content"][0]["text"]
        .as_str()
        .map(str::to_owned)
        .ok_or_else(|| format!("no text: {reply}").into())
}

/// The service's response for an entry in the middle, as protobuf and as JSON.
async fn payload(service: &Service, loaded: &Loaded) -> Result<(Bytes, Bytes)> {
    let id = loaded.ids[loaded.ids.len() / 2];
    let mut client = Grpc::connect(service.address).await?;
    let request = pb::GetContextByIdsRequest {
        context_ids: vec![id],
        ..pb::GetContextByIdsRequest::default()
    };
    let reply = client.0.get_context_by_ids(request).await?.into_inner();
    let reply: Bytes = reply.encode_to_vec().into();
    let json = Http1::connect(service.address)
        .await?
        .send(Message::get(&format!("/v1/contexts/{id}")))
        .await?;
    if loaded.images && reply.len().min(json.len()) < IMAGE_BYTES {
        return Err("a reply lacks the image".into());
    }
    Ok((reply, json))
}
