//! Searches, lists and statistics over the four transports, compared with the same queries in SQL.

use std::cell::RefCell;
use std::rc::Rc;

use super::{Bench, Connections, Loaded};
use crate::Result;
use crate::corpus::{AGENTS, agent};
use crate::floor::search::ReadFloor;
use crate::measure::{Contender, alternate};
use crate::report::{Goal, Ratio, Report, Section};
use crate::service::Service;
use crate::transport::{Operation, Query};

/// The database size to which the absolute goals apply.
const GOAL_ENTRIES: usize = 100_000;

struct QueryCase {
    name: &'static str,
    /// Goal: maximum p95 over gRPC in milliseconds, at [`GOAL_ENTRIES`].
    goal_ms: f64,
    operations: Vec<Operation>,
}

/// Measures every query on the loaded service.
///
/// # Errors
/// A process does not start, or a result differs from the floor's.
pub async fn run(
    bench: &Bench,
    report: &mut Report,
    service: &Service,
    loaded: &Loaded,
) -> Result<()> {
    let entries = loaded.ids.len();
    let floor = Rc::new(RefCell::new(ReadFloor::open(&service.database)?));
    let mut transports = Vec::new();
    for transport in Connections::TRANSPORTS {
        transports.push(Connections::connect(transport, service, 1).await?.shared());
    }
    for QueryCase {
        name,
        goal_ms,
        operations,
    } in query_cases(bench)
    {
        let title = format!("{name}, {entries} entries");
        bench.progress.step(&format!("Measuring {title}"));
        let rows = check(&operations, &floor, &transports, entries).await?;
        let operations = Rc::new(operations);
        let mut contenders = vec![Contender::new("SQL inline", {
            let (floor, operations) = (floor.clone(), operations.clone());
            move |count| {
                let round = floor.borrow_mut().round(&repeated(&operations, count));
                Box::pin(async move { round })
            }
        })];
        for connections in &transports {
            let (connections, operations) = (connections.clone(), operations.clone());
            let transport = connections.lock().await.name;
            contenders.push(Contender::new(transport, move |count| {
                let (connections, operations) = (connections.clone(), repeated(&operations, count));
                Box::pin(async move { Ok(connections.lock().await.round(&[operations]).await?.0) })
            }));
        }
        let series = alternate(contenders, bench.scale.searches, bench.scale.rounds).await?;
        let mut section = Section::new(&title, &format!("{rows:.1} rows on average"));
        section.add(&series[0], None);
        for transport in &series[1..] {
            let ratio = Ratio::lower(transport.p50_ratio(&series[0]));
            section.add(transport, Some(ratio));
        }
        report.section(section);
        if entries == GOAL_ENTRIES {
            report.goal(Goal::at_most(
                format!("{title}: gRPC p95"),
                series[1].p95_us() / 1000.0,
                goal_ms,
                "ms",
            ));
        }
    }
    Ok(())
}

fn query_cases(bench: &Bench) -> Vec<QueryCase> {
    let word = |rank: usize| bench.corpus.word(rank).to_owned();
    let search = |n: u64| {
        Operation::Search(Query {
            status: "active",
            agent_name: agent(n),
            priority: 8,
        })
    };
    vec![
        QueryCase {
            name: "search_context, metadata",
            goal_ms: 5.0,
            operations: (0..AGENTS).map(search).collect(),
        },
        QueryCase {
            name: "full text, two words",
            goal_ms: 10.0,
            operations: (0..20)
                .map(|n| Operation::FullText(format!("{} {}", word(40 + n), word(150 + 5 * n))))
                .collect(),
        },
        QueryCase {
            name: "full text, common word",
            goal_ms: 20.0,
            operations: (4..8).map(|n| Operation::FullText(word(n))).collect(),
        },
        QueryCase {
            name: "list_threads",
            goal_ms: 5.0,
            operations: vec![Operation::Threads],
        },
        QueryCase {
            name: "get_statistics",
            goal_ms: 5.0,
            operations: vec![Operation::Statistics],
        },
    ]
}

fn repeated(operations: &[Operation], count: usize) -> Vec<Operation> {
    operations.iter().cycle().take(count).cloned().collect()
}

/// Runs each query once in SQL and once over every transport. Returns the average number of rows of a result.
///
/// # Errors
/// A transport returns another result than SQL, or no query has a result.
async fn check(
    operations: &[Operation],
    floor: &RefCell<ReadFloor>,
    transports: &[super::SharedConnections],
    entries: usize,
) -> Result<f64> {
    let mut rows = 0;
    for operation in operations {
        let expected = floor.borrow_mut().run(operation)?;
        rows += expected.rows;
        for connections in transports {
            let mut connections = connections.lock().await;
            let reply = connections.run(operation).await?;
            let same = match operation {
                Operation::Search(_) | Operation::FullText(_) => reply.ids()? == expected.ids,
                Operation::Threads => reply.threads()? == expected.rows,
                Operation::Statistics => usize::try_from(reply.total()?)? == entries,
                Operation::Store(_)
                | Operation::Get(_)
                | Operation::Semantic(_)
                | Operation::Hybrid(_) => true,
            };
            if !same {
                return Err(format!(
                    "{} returns {reply:?} for {operation:?}, SQL returns {expected:?}",
                    connections.name
                )
                .into());
            }
        }
    }
    if rows == 0 {
        return Err(format!("SQL returns nothing for any of {operations:?}").into());
    }
    Ok(rows as f64 / operations.len() as f64)
}
