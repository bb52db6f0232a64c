//! Durable stores. Each transport has its own service on a copy of the same database, and the floor has another copy.

use std::cell::{Cell, RefCell};
use std::path::PathBuf;
use std::rc::Rc;

use super::{Bench, Connections, Loaded, SharedConnections};
use crate::Result;
use crate::corpus::Entry;
use crate::floor::store::{ContextKeywords, Prepared, StoreFloor};
use crate::measure::{Contender, alternate};
use crate::report::{Goal, Ratio, Report, Section};
use crate::service::Service;
use crate::transport::{Grpc, Operation};

/// Goal: minimum ratio of gRPC's throughput to the floor's with the most clients.
const GOAL: f64 = 0.6;

struct Transport {
    service: Service,
    connections: SharedConnections,
    stored: Rc<Cell<u64>>,
}

/// Measures stores for each number of clients.
///
/// # Errors
/// A process does not start, a store fails, or entries are missing at the end.
pub async fn run(bench: &Bench, report: &mut Report) -> Result<()> {
    let base = base(bench, report).await?;
    let most = bench.scale.clients.iter().copied().max().unwrap_or(1);
    let mut transports = Vec::new();
    for name in Connections::TRANSPORTS {
        bench
            .progress
            .step(&format!("Starting a service for {name}"));
        let database = bench.dir.join(format!(
            "store-{}.db",
            name.to_lowercase().replace(' ', "-")
        ));
        std::fs::copy(&base, &database)?;
        let service = Service::start(&database)?;
        let connections = Connections::connect(name, &service, most).await?.shared();
        transports.push(Transport {
            service,
            connections,
            stored: Rc::new(Cell::new(0)),
        });
    }
    let database = bench.dir.join("store-floor.db");
    std::fs::copy(&base, &database)?;
    let floor = Rc::new(RefCell::new(StoreFloor::open(&database)?));
    let floor_stored = Rc::new(Cell::new(0));
    let keywords = Rc::new(RefCell::new(ContextKeywords::default()));

    let without = bench
        .scale
        .clients
        .iter()
        .zip(&bench.scale.stores)
        .map(|(&clients, &stores)| (clients, stores, false));
    for (clients, stores, images) in without.chain([(1, bench.scale.image_stores, true)]) {
        let what = if images {
            "store with an image of 256 KiB"
        } else {
            "store"
        };
        let name = format!(
            "{what}, {clients} client{}",
            if clients == 1 { "" } else { "s" }
        );
        bench.progress.step(&format!("Measuring {name}"));
        let mut contenders = vec![Contender::new(format!("SQLite, groups of {clients}"), {
            let (floor, stored, keywords) = (floor.clone(), floor_stored.clone(), keywords.clone());
            move |count| {
                let (floor, stored, keywords) = (floor.clone(), stored.clone(), keywords.clone());
                Box::pin(async move {
                    let entries = entries(bench, clients, count, images, &stored).into_iter();
                    let entries: Vec<_> = entries
                        .map(|entry| Prepared::new(entry, &mut keywords.borrow_mut()))
                        .collect();
                    floor.borrow_mut().round(&entries, clients)
                })
            }
        })];
        let mut before = Vec::new();
        for transport in &transports {
            before.push(commits_and_writes(&transport.service).await?);
            let (connections, stored) = (transport.connections.clone(), transport.stored.clone());
            let name = transport.connections.lock().await.name;
            contenders.push(Contender::new(name, move |count| {
                let (connections, stored) = (connections.clone(), stored.clone());
                Box::pin(async move {
                    let mut operations = vec![Vec::new(); clients];
                    for (at, entry) in entries(bench, clients, count, images, &stored)
                        .into_iter()
                        .enumerate()
                    {
                        operations[at % clients].push(Operation::Store(entry));
                    }
                    let (round, replies) = connections.lock().await.round(&operations).await?;
                    replies
                        .iter()
                        .try_for_each(|reply| reply.stored_id().map(drop))?;
                    Ok(round)
                })
            }));
        }
        let present = bench.scale.store_base + floor_stored.get();
        let series = alternate(contenders, stores, bench.scale.rounds).await?;
        let mut section = Section::new(&name, &format!("{present} entries before the first round"));
        section.add(&series[0], None);
        for ((series_of, transport), before) in series.iter().skip(1).zip(&transports).zip(before) {
            let ratio = Ratio::higher(series_of.throughput_ratio(&series[0]));
            if series_of.name == "gRPC" && clients == most && !images {
                report.goal(Goal::at_least(
                    format!("{name}: gRPC over raw SQLite"),
                    ratio.value,
                    GOAL,
                    "×",
                ));
            }
            section.add(series_of, Some(ratio));
            let after = commits_and_writes(&transport.service).await?;
            section.note(format!(
                "{}: {:.1} stores a commit",
                series_of.name,
                (after.1 - before.1) / (after.0 - before.0)
            ));
        }
        report.section(section);
    }
    for transport in transports {
        let total = transport
            .connections
            .lock()
            .await
            .run(&Operation::Statistics)
            .await?
            .total()?;
        let expected = i64::try_from(bench.scale.store_base + transport.stored.get())?;
        if total != expected {
            return Err(format!("the service has {total} entries, {expected} were stored").into());
        }
        drop(transport.connections);
        transport.service.stop()?;
    }
    Ok(())
}

/// A closed database with the entries that are present before stores are measured.
async fn base(bench: &Bench, report: &mut Report) -> Result<PathBuf> {
    let path = bench.dir.join("store-base.db");
    let service = Service::start(&path)?;
    let rate = Loaded::default()
        .up_to(bench.scale.store_base, bench, &service)
        .await?;
    report.fact(
        "loaded in batches of 100 by one client",
        format!("{rate:.0} entries/s"),
    );
    service.stop()?;
    if path
        .with_extension("db-wal")
        .metadata()
        .is_ok_and(|log| log.len() > 0)
    {
        return Err("the stopped service left a write-ahead log".into());
    }
    Ok(path)
}

/// At least `count` new entries, in whole groups of one entry per client. Clients share no thread, and each continues in
/// another one after 100 entries.
fn entries(
    bench: &Bench,
    clients: usize,
    count: usize,
    images: bool,
    stored: &Cell<u64>,
) -> Vec<Entry> {
    (0..count.next_multiple_of(clients))
        .map(|at| {
            let n = stored.replace(stored.get() + 1);
            let n_of_all = bench.scale.store_base + n;
            let mut entry = if images {
                bench.corpus.entry_with_image(n_of_all)
            } else {
                bench.corpus.entry(n_of_all)
            };
            entry.thread_id = format!(
                "client-{:02}-{:04}",
                at % clients,
                n / (100 * clients as u64)
            );
            entry
        })
        .collect()
}

/// The service's numbers of commits and writes so far.
async fn commits_and_writes(service: &Service) -> Result<(f64, f64)> {
    let mut client = Grpc::connect(service.address).await?;
    let reply = client
        .0
        .get_statistics(context_proto::v1::GetStatisticsRequest::default())
        .await?
        .into_inner();
    let metrics = reply.connection_metrics.unwrap_or_default();
    Ok((metrics.commits as f64, metrics.writes as f64))
}
