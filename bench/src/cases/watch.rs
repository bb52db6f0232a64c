//! Measures streams of changes: how soon an event follows its commit, and what many idle streams cost.

use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::{Duration, Instant};

use context_proto::v1 as pb;
use context_proto::v1::change_service_client::ChangeServiceClient;
use pb::watch_response::Frame;
use tokio::sync::{Mutex, mpsc};
use tonic::transport::{Channel, Endpoint};

use super::{Bench, postgres};
use crate::Result;
use crate::floor::postgres::connect;
use crate::measure::{Contender, Local, Round, alternate, quantile};
use crate::report::{Goal, Ratio, Report, Section};
use crate::service::Service;
use crate::transport::Grpc;
use crate::usage::{CpuTimes, Memory};

/// Streams that share an HTTP/2 connection. The service allows 128.
const PER_CONNECTION: usize = 100;
/// The interval between the starts of two stores beside active streams: 100 stores a second.
const PACE: Duration = Duration::from_millis(10);
/// Maximum time for which an event is awaited.
const EVENT_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum time for which the CPU time of idle streams is measured.
const IDLE: Duration = Duration::from_secs(5);

/// Goal: maximum p99 of the time from a store's request to its event on every stream, in milliseconds.
const EVENT_GOAL_MS: f64 = 20.0;
/// The same when the streams are another service's, on PostgreSQL.
const ACROSS_GOAL_MS: f64 = 100.0;
/// Goal: maximum memory of 1 000 idle streams, in MiB.
const MEMORY_GOAL_MIB: f64 = 50.0;
/// Goal: maximum CPU time of 1 000 idle streams, in percent of one processor.
const CPU_GOAL_PERCENT: f64 = 1.0;
/// Goal: maximum ratio of a store beside 1 000 streams of other threads to one without.
const STORE_GOAL: f64 = 1.2;

/// Measures on SQLite.
///
/// # Errors
/// A process does not start, a request fails, an event is of another entry or arrives twice, or a stream ends.
pub async fn run(bench: &Bench, report: &mut Report) -> Result<()> {
    let settings = [("WATCH_MAX_STREAMS", (2 * bench.scale.streams).to_string())];
    let service = Service::start_with(&bench.dir.join("watch.db"), &settings)?;
    let name = "events, SQLite";
    events(bench, report, name, [&service, &service], EVENT_GOAL_MS).await?;
    let alone = Service::start_with(&bench.dir.join("alone.db"), &settings)?;
    idle(bench, report, &service, &alone).await?;
    alone.stop()?;
    service.stop()
}

/// Measures on PostgreSQL: one service stores, and another one has the streams. A database is created on the server
/// with the URL `server`, and dropped at the end.
///
/// # Errors
/// As [`run`].
pub async fn across(bench: &Bench, report: &mut Report, server: &str) -> Result<()> {
    let client = connect(server).await?;
    let name = format!("context_bench_{}_watch", std::process::id());
    client
        .batch_execute(&format!("CREATE DATABASE {name}"))
        .await?;
    let url = postgres::with_database(server, &name);
    let measured = across_services(bench, report, &url).await;
    client
        .batch_execute(&format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)"))
        .await?;
    measured
}

async fn across_services(bench: &Bench, report: &mut Report, url: &str) -> Result<()> {
    let settings = [
        ("STORAGE_BACKEND", "postgresql".to_owned()),
        ("POSTGRESQL_CONNECTION_STRING", url.to_owned()),
    ];
    let start = |name: &str| Service::start_with(&bench.dir.join(name), &settings);
    let services = [start("writing.db")?, start("watching.db")?];
    let name = "events, PostgreSQL, streams of another service";
    let [writing, watching] = &services;
    events(bench, report, name, [writing, watching], ACROSS_GOAL_MS).await?;
    for service in services {
        service.stop()?;
    }
    Ok(())
}

/// An event: the number of its stream, the id of its entry, and when it arrived.
type Event = (usize, String, Instant);

/// Open streams. Dropping them closes them.
struct Streams {
    tasks: tokio::task::JoinSet<()>,
    events: mpsc::UnboundedReceiver<Event>,
}

impl Streams {
    /// Opens streams of the changes of one thread, and waits until each is open.
    async fn open(service: &Service, count: usize, thread: &str) -> Result<Self> {
        let (sender, events) = mpsc::unbounded_channel();
        let mut tasks = tokio::task::JoinSet::new();
        let mut channel: Option<Channel> = None;
        for number in 0..count {
            if number % PER_CONNECTION == 0 {
                let endpoint = Endpoint::from_shared(format!("http://{}", service.address))?;
                channel = Some(endpoint.connect().await?);
            }
            let channel = channel.clone().ok_or("no connection")?;
            let filter = pb::Filter {
                thread_id: Some(thread.to_owned()),
                ..pb::Filter::default()
            };
            let request = pb::WatchRequest {
                cursor: Some("now".to_owned()),
                filter: Some(filter),
                ..pb::WatchRequest::default()
            };
            let mut stream = ChangeServiceClient::new(channel)
                .watch(request)
                .await?
                .into_inner();
            let first = stream.message().await?.and_then(|frame| frame.frame);
            if !matches!(first, Some(Frame::Opened(_))) {
                return Err(format!("a stream begins with {first:?}").into());
            }
            let sender = sender.clone();
            tasks.spawn(async move {
                while let Ok(Some(message)) = stream.message().await {
                    let Some(Frame::Change(change)) = message.frame else {
                        continue;
                    };
                    if sender.send((number, change.id, Instant::now())).is_err() {
                        return;
                    }
                }
            });
        }
        Ok(Self { tasks, events })
    }

    fn count(&self) -> usize {
        self.tasks.len()
    }

    /// Checks that all streams are still open and none has an event that was not read.
    fn check_idle(&mut self) -> Result<()> {
        if self.tasks.try_join_next().is_some() {
            return Err("an idle stream ended".into());
        }
        match self.events.try_recv() {
            Ok((_, id, _)) => Err(format!("an idle stream has an event of {id}").into()),
            Err(_) => Ok(()),
        }
    }
}

fn entry(thread: &str, number: usize) -> pb::StoreContextRequest {
    pb::StoreContextRequest {
        thread_id: thread.to_owned(),
        source: "agent".to_owned(),
        text: format!("Number {number}: what was found, and what it means for the next step."),
        ..pb::StoreContextRequest::default()
    }
}

/// The time from the request of a store until its event has arrived on every stream, at a steady pace.
async fn events(
    bench: &Bench,
    report: &mut Report,
    name: &str,
    [writing, watching]: [&Service; 2],
    goal: f64,
) -> Result<()> {
    bench.progress.step(&format!("Measuring {name}"));
    const THREAD: &str = "live";
    let mut streams = Streams::open(watching, bench.scale.active_streams, THREAD).await?;
    let mut client = Grpc::connect(writing.address).await?;
    let (mut stores, mut arrivals) = (Vec::new(), Vec::new());
    let mut ticks = tokio::time::interval(PACE);
    let before = CpuTimes::of(watching.id());
    let started = Instant::now();
    for number in 0..bench.scale.streamed_stores {
        ticks.tick().await;
        let sent = Instant::now();
        let stored = client.0.store_context(entry(THREAD, number)).await?;
        stores.push(sent.elapsed());
        let id = stored.into_inner().context_id.to_string();
        let mut reached = BTreeSet::new();
        for _ in 0..streams.count() {
            let (stream, changed, arrived) =
                tokio::time::timeout(EVENT_TIMEOUT, streams.events.recv())
                    .await
                    .map_err(|_| format!("an event of {id} is missing"))?
                    .ok_or("the streams ended")?;
            if changed != id {
                return Err(format!("an event of {changed} instead of {id}").into());
            }
            if !reached.insert(stream) {
                return Err(format!("a stream has two events of {id}").into());
            }
            arrivals.push(arrived.duration_since(sent));
        }
    }
    let elapsed = started.elapsed();
    let used = CpuTimes::of(watching.id()).since(&before).total_us();
    stores.sort_unstable();
    arrivals.sort_unstable();
    let ms = |sorted: &[Duration], share| quantile(sorted, share) / 1000.0;
    report.fact(
        &format!("{name}, {} streams", streams.count()),
        format!(
            "from the request to the event p50 {:.2} ms, p99 {:.2} ms; to the reply p50 {:.2} ms, p99 {:.2} ms; \
             {:.0} stores/s, CPU of the service with the streams {:.0} %",
            ms(&arrivals, 0.5),
            ms(&arrivals, 0.99),
            ms(&stores, 0.5),
            ms(&stores, 0.99),
            stores.len() as f64 / elapsed.as_secs_f64(),
            used / elapsed.as_secs_f64() / 10_000.0,
        ),
    );
    report.goal(Goal::at_most(
        format!("{name}: p99 from the request to the event"),
        ms(&arrivals, 0.99),
        goal,
        "ms",
    ));
    Ok(())
}

/// What idle streams cost: memory, CPU time, and stores to other threads.
async fn idle(
    bench: &Bench,
    report: &mut Report,
    service: &Service,
    alone: &Service,
) -> Result<()> {
    bench.progress.step("Measuring idle streams");
    let before = Memory::of(service.id());
    let mut streams = Streams::open(service, bench.scale.streams, "idle").await?;
    let memory = Memory::of(service.id()).anonymous - before.anonymous;
    let cpu = CpuTimes::of(service.id());
    let pause = IDLE.min(PACE * u32::try_from(bench.scale.streamed_stores)?);
    tokio::time::sleep(pause).await;
    let used = CpuTimes::of(service.id()).since(&cpu).total_us();
    let percent = used / pause.as_secs_f64() / 10_000.0;
    let name = format!("{} idle streams", streams.count());
    report.fact(
        &name,
        format!("{memory:.1} MiB, {percent:.2} % of a processor"),
    );
    report.goal(Goal::at_most(
        format!("{name}: memory"),
        memory,
        MEMORY_GOAL_MIB,
        "MiB",
    ));
    report.goal(Goal::at_most(
        format!("{name}: CPU time"),
        percent,
        CPU_GOAL_PERCENT,
        "%",
    ));
    let contenders = vec![
        stores("no stream", alone).await?,
        stores("idle streams", service).await?,
    ];
    let series = alternate(contenders, bench.scale.streamed_stores, bench.scale.rounds).await?;
    streams.check_idle()?;
    let mut section = Section::new("store beside idle streams", &name);
    section.add(&series[0], None);
    let ratio = series[1].p50_ratio(&series[0]);
    section.add(&series[1], Some(Ratio::lower(ratio)));
    report.section(section);
    report.goal(Goal::at_most(
        format!("{name}: p50 of a store to another thread over one without streams"),
        ratio,
        STORE_GOAL,
        "×",
    ));
    Ok(())
}

/// A contender that stores entries one after the other.
async fn stores<'a>(name: &str, service: &'a Service) -> Result<Contender<'a>> {
    let client = Rc::new(Mutex::new((Grpc::connect(service.address).await?, 0)));
    Ok(Contender::new(name, move |count| -> Local<'a, Round> {
        let client = Rc::clone(&client);
        Box::pin(async move {
            let mut client = client.lock().await;
            let (grpc, number) = &mut *client;
            let before = [std::process::id(), service.id()].map(CpuTimes::of);
            let started = Instant::now();
            let mut latencies = Vec::with_capacity(count);
            for _ in 0..count {
                *number += 1;
                let sent = Instant::now();
                grpc.0.store_context(entry("stored", *number)).await?;
                latencies.push(sent.elapsed());
            }
            Ok(Round {
                elapsed: started.elapsed(),
                latencies,
                client: CpuTimes::of(std::process::id()).since(&before[0]),
                service: CpuTimes::of(service.id()).since(&before[1]),
                ..Round::default()
            })
        })
    }))
}
