//! Measures the start on an existing database, the memory of idle processes, and the sizes of the programs.

use std::time::Instant;

use super::{Bench, Connections};
use crate::Result;
use crate::floor::echo::EchoClient;
use crate::measure::median;
use crate::process::sibling_program;
use crate::report::{Goal, Report};
use crate::service::{Echo, Service};
use crate::transport::{Grpc, Operation};
use crate::usage::Memory;

/// Goal: maximum time from start to first response, in milliseconds.
const START_GOAL_MS: f64 = 50.0;
/// Goal: maximum memory of the idle service, in MiB.
const SERVICE_GOAL_MIB: f64 = 40.0;
/// Goal: maximum memory of an idle gateway, in MiB.
const GATEWAY_GOAL_MIB: f64 = 15.0;
/// Goal: maximum size of a stripped program, in MiB.
const PROGRAM_GOAL_MIB: f64 = 40.0;

/// Measures with a database of `entries` entries that no service has open.
///
/// # Errors
/// A process does not start.
pub async fn run(
    bench: &Bench,
    report: &mut Report,
    database: &std::path::Path,
    entries: u64,
) -> Result<()> {
    bench.progress.step("Measuring starts");
    let (mut starts, mut floors, mut memory) = (Vec::new(), Vec::new(), Memory::default());
    for _ in 0..bench.scale.starts {
        let started = Instant::now();
        let echo = Echo::spawn(&bench.dir)?;
        let mut client = retry(|| EchoClient::tcp(echo.address)).await?;
        client.echo(bytes::Bytes::from_static(b"x")).await?;
        floors.push(started.elapsed().as_secs_f64() * 1000.0);

        let started = Instant::now();
        let service = Service::spawn(database)?;
        let mut client = retry(|| Grpc::connect(service.address)).await?;
        let reply = client
            .0
            .get_statistics(context_proto::v1::GetStatisticsRequest::default())
            .await?
            .into_inner();
        starts.push(started.elapsed().as_secs_f64() * 1000.0);
        if u64::try_from(reply.total_entries)? != entries {
            return Err(format!(
                "after a start the service has {} entries, {entries} were stored",
                reply.total_entries
            )
            .into());
        }
        memory = Memory::of(service.id());
        service.stop()?;
    }
    let start = median(starts);
    report.fact(
        &format!("start to first response, {entries} entries"),
        format!(
            "{start:.1} ms (a bare tonic server {:.1} ms)",
            median(floors)
        ),
    );
    report.goal(Goal::at_most(
        format!("start to first response, {entries} entries"),
        start,
        START_GOAL_MS,
        "ms",
    ));

    let service = Service::start(database)?;
    report.fact("service, resident after the first response", mib(memory));
    report.goal(Goal::at_most(
        "service, resident after the first response".into(),
        memory.resident,
        SERVICE_GOAL_MIB,
        "MiB",
    ));
    for transport in ["MCP stdio", "MCP HTTP"] {
        let mut connections = Connections::connect(transport, &service, 1).await?;
        let idle = Memory::of(connections.gateways()[0]);
        connections.run(&Operation::Statistics).await?;
        let used = Memory::of(connections.gateways()[0]);
        let what = format!("gateway, {transport}, resident");
        report.fact(&what, format!("{}; after a call {}", mib(idle), mib(used)));
        report.goal(Goal::at_most(what, used.resident, GATEWAY_GOAL_MIB, "MiB"));
    }
    service.stop()?;

    for program in ["context-service", "context-gateway"] {
        let size = sibling_program(program)?.metadata()?.len() as f64 / (1024.0 * 1024.0);
        report.fact(&format!("size of {program}"), format!("{size:.1} MiB"));
        if !cfg!(debug_assertions) {
            report.goal(Goal::at_most(
                format!("size of {program}"),
                size,
                PROGRAM_GOAL_MIB,
                "MiB",
            ));
        }
    }
    Ok(())
}

/// Retries the connection every 0.5 ms, for at most 30 s.
async fn retry<T>(mut connect: impl AsyncFnMut() -> Result<T>) -> Result<T> {
    let deadline = Instant::now() + std::time::Duration::from_secs(30);
    loop {
        match connect().await {
            Err(error) if Instant::now() > deadline => return Err(error),
            Err(_) => tokio::time::sleep(std::time::Duration::from_micros(500)).await,
            Ok(connected) => return Ok(connected),
        }
    }
}

/// Formats memory for display.
pub fn mib(memory: Memory) -> String {
    format!(
        "{:.1} MiB, {:.1} of it not pages of files",
        memory.resident, memory.anonymous
    )
}
