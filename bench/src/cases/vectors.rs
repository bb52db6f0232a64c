//! Compares semantic search with an exact scan of all vectors in memory, and hybrid search with its retrievers alone.

use std::path::Path;
use std::rc::Rc;
use std::time::Instant;

use serde_json::json;

use super::{Bench, Connections, Loaded, SharedConnections};
use crate::Result;
use crate::corpus::agent;
use crate::floor::vectors::VectorFloor;
use crate::measure::{Contender, Local, Round, Series, alternate};
use crate::provider::Provider;
use crate::report::{Goal, Ratio, Report, Section};
use crate::service::Service;
use crate::transport::{Http1, Message, Operation, Question};
use crate::usage::CpuTimes;
use crate::vectors::Vectors;

/// Number of different queries.
const QUERIES: u64 = 100;
/// Number of entries that are loaded in one step. The provider holds the vectors of one step at a time.
const STEP: u64 = 1_000;
/// The database size to which the goals of recall and of semantic search apply.
const GOAL_ENTRIES: usize = 100_000;
/// Maximum number of random vectors. A million random vectors are unlike those of any real store.
const MAX_RANDOM: u64 = 100_000;
/// Numbers of nearest entries whose recall is checked: those of a page, and those that hybrid search fuses.
const RECALL: [usize; 2] = [10, 200];
/// A search with a lower recall is broken, so its time means nothing.
const LEAST_RECALL: f64 = 0.9;
/// Number of queries whose results over MCP are compared with those over gRPC.
const COMPARED: usize = 10;
/// Number of results of the measured searches: the default of semantic_search_context.
const LIMIT: usize = 5;
/// Number of texts that [`embed`] measures.
const EMBEDDED: u64 = 400;

/// Which searches to measure.
#[derive(Debug, Clone, Copy)]
pub struct Searches {
    pub semantic: bool,
    pub hybrid: bool,
}

/// The database, connections and floor with which all searches of one size are measured.
struct Setup<'b> {
    bench: &'b Bench,
    vectors: &'b Vectors,
    provider: &'b Provider,
    floor: Rc<VectorFloor>,
    /// The agent of each entry.
    agents: Rc<Vec<String>>,
    ids: &'b [i64],
    grpc: SharedConnections,
    mcp: SharedConnections,
}

/// Measures at each size, with these vectors.
///
/// # Errors
/// A process does not start, or a search fails or returns wrong results.
pub async fn run(
    bench: &Bench,
    report: &mut Report,
    vectors: &Vectors,
    searches: Searches,
) -> Result<()> {
    let provider = Provider::start()?;
    let name = vectors.name();
    let database = bench.dir.join(format!("{}.db", name.replace(' ', "-")));
    let mut loaded = Loaded::default();
    let sizes = &bench.scale.vector_sizes;
    for &size in sizes {
        if matches!(vectors, Vectors::Random) && size > MAX_RANDOM {
            continue;
        }
        let service = Service::start_with(&database, &provider.settings(false))?;
        let rate = load(bench, &provider, vectors, &service, &mut loaded, size).await?;
        report.fact(
            &format!("stored with {name} up to {size} entries, in batches of 100"),
            format!("{rate:.0} entries/s"),
        );
        for n in 0..QUERIES {
            provider.set(&query_text(bench, n), &vectors.of_query(n));
        }
        let agents = (0..size).map(|n| agent_of(bench, n)).collect();
        let setup = Setup {
            bench,
            vectors,
            provider: &provider,
            floor: Rc::new(VectorFloor::new(vectors, size)),
            agents: Rc::new(agents),
            ids: &loaded.ids,
            grpc: Connections::connect("gRPC", &service, 1).await?.shared(),
            mcp: Connections::connect("MCP stdio", &service, 1)
                .await?
                .shared(),
        };
        recall(&setup, report).await?;
        for filtered in [None, Some(agent(3))] {
            if searches.semantic {
                semantic(&setup, report, filtered.as_ref()).await?;
            }
            if searches.hybrid {
                hybrid(&setup, report, filtered.as_ref()).await?;
            }
        }
        drop(setup);
        report.fact(
            &format!("service with {size} {name}, resident"),
            super::start::mib(crate::usage::Memory::of(service.id())),
        );
        service.stop()?;
        if searches.hybrid {
            reranked(bench, report, vectors, &provider, &database, size).await?;
        }
        provider.clear();
    }
    Ok(())
}

/// Stores the missing entries. Returns the number of entries stored per second.
async fn load(
    bench: &Bench,
    provider: &Provider,
    vectors: &Vectors,
    service: &Service,
    loaded: &mut Loaded,
    size: u64,
) -> Result<f64> {
    let first = loaded.ids.len() as u64;
    let mut seconds = 0.0;
    let mut from = first;
    while from < size {
        let to = size.min(from + STEP);
        for n in from..to {
            provider.set(&bench.corpus.entry(n).text, &vectors.of_entry(n));
        }
        let rate = loaded.up_to(to, bench, service).await?;
        seconds += (to - from) as f64 / rate;
        provider.clear();
        from = to;
    }
    Ok((size - first) as f64 / seconds)
}

/// A query of three words: one that 6 to 33 % of the entries have, one that 0.7 to 2.5 % have, and one that at most
/// 0.5 % have.
fn query_text(bench: &Bench, n: u64) -> String {
    let rank = n as usize;
    let words = [20 + rank, 300 + 7 * rank, 3_000 + 31 * rank].map(|rank| bench.corpus.word(rank));
    words.join(" ")
}

fn agent_of(bench: &Bench, n: u64) -> String {
    let entry = bench.corpus.entry(n);
    entry.metadata["agent_name"]
        .as_str()
        .unwrap_or_default()
        .to_owned()
}

impl Setup<'_> {
    fn title(&self, search: &str, filter: Option<&String>) -> String {
        let filter = if filter.is_some() {
            ", with a filter that 5 % satisfy"
        } else {
            ""
        };
        format!(
            "{search}, {} {}{filter}",
            self.ids.len(),
            self.vectors.name()
        )
    }

    fn question(&self, n: u64, filter: Option<&String>) -> Question {
        Question {
            text: query_text(self.bench, n),
            agent_name: filter.cloned(),
            ..Question::default()
        }
    }

    fn queries(&self) -> Vec<Vec<f32>> {
        (0..QUERIES).map(|n| self.vectors.of_query(n)).collect()
    }

    /// The exact scan. A filter is a comparison of strings, before the distance is computed.
    fn scan(&self, filter: Option<&String>) -> Contender<'static> {
        let (floor, agents) = (Rc::clone(&self.floor), Rc::clone(&self.agents));
        let (queries, filter) = (self.queries(), filter.cloned());
        Contender::new("exact scan in memory", move |count| {
            let queries: Vec<Vec<f32>> = queries.iter().cycle().take(count).cloned().collect();
            let round = match &filter {
                None => floor.round(&queries, LIMIT, |_| true),
                Some(agent) => floor.round(&queries, LIMIT, |entry| agents[entry] == *agent),
            };
            Box::pin(async move { Ok(round) })
        })
    }

    /// A contender that only calls the provider. Each search includes such a call.
    async fn provider(&self) -> Result<Contender<'static>> {
        let client = Http1::connect(self.provider.address).await?;
        let client = Rc::new(tokio::sync::Mutex::new(client));
        let body = json!({"model": "bench", "input": [query_text(self.bench, 0)], "encoding_format": "base64"});
        let message = Message::post("/v1/embeddings", body.to_string());
        Ok(Contender::new("provider alone", move |count| {
            let (client, message) = (Rc::clone(&client), message.clone());
            let round: Local<'static, Round> = Box::pin(async move {
                let mut client = client.lock().await;
                let pid = std::process::id();
                let (before, started) = (CpuTimes::of(pid), Instant::now());
                let mut latencies = Vec::with_capacity(count);
                for _ in 0..count {
                    let started = Instant::now();
                    client.send(message.clone()).await?;
                    latencies.push(started.elapsed());
                }
                Ok(Round {
                    elapsed: started.elapsed(),
                    latencies,
                    service: CpuTimes::of(pid).since(&before),
                    ..Round::default()
                })
            });
            round
        }))
    }

    async fn alternate(&self, contenders: Vec<Contender<'_>>) -> Result<Vec<Series>> {
        alternate(
            contenders,
            self.bench.scale.searches,
            self.bench.scale.rounds,
        )
        .await
    }
}

/// A contender that runs these searches on the first connection.
fn searches_over(
    name: impl Into<String>,
    connections: &SharedConnections,
    operations: Vec<Operation>,
) -> Contender<'static> {
    let connections = Rc::clone(connections);
    Contender::new(name, move |count| {
        let connections = Rc::clone(&connections);
        let repeated: Vec<Operation> = operations.iter().cycle().take(count).cloned().collect();
        Box::pin(async move { Ok(connections.lock().await.round(&[repeated]).await?.0) })
    })
}

/// Checks that the first queries have the same results on both connections.
///
/// # Errors
/// A search fails, returns nothing, or returns other results on the second connection.
async fn same(
    first: &SharedConnections,
    second: &SharedConnections,
    operations: &[Operation],
) -> Result<()> {
    for operation in operations.iter().take(COMPARED) {
        let expected = first.lock().await.run(operation).await?.ids()?;
        let found = second.lock().await.run(operation).await?.ids()?;
        if expected.is_empty() || found != expected {
            return Err(format!(
                "gRPC returns {expected:?} for {operation:?}, MCP stdio returns {found:?}"
            )
            .into());
        }
    }
    Ok(())
}

/// Compares the semantic ranking with the exact one.
///
/// # Errors
/// A search fails, or finds too few of the nearest entries.
async fn recall(setup: &Setup<'_>, report: &mut Report) -> Result<()> {
    setup
        .bench
        .progress
        .step(&setup.title("Checking recall", None));
    for filter in [None, Some(agent(3))] {
        for wanted in RECALL {
            let (mut found, mut all) = (0, 0);
            for n in 0..QUERIES.min(setup.bench.scale.searches as u64) {
                let allowed = |entry: usize| {
                    filter
                        .as_ref()
                        .is_none_or(|agent| setup.agents[entry] == *agent)
                };
                let exact = setup
                    .floor
                    .nearest(&setup.vectors.of_query(n), wanted, allowed);
                let exact: Vec<i64> = exact.into_iter().map(|entry| setup.ids[entry]).collect();
                let mut ids = Vec::new();
                // A page has at most 100 results.
                for offset in (0..wanted).step_by(100) {
                    let page = (wanted.min(100) as i64, offset as i64);
                    let question = Question {
                        page: Some(page),
                        retrievers: vec!["semantic"],
                        ..setup.question(n, filter.as_ref())
                    };
                    // Semantic search ranks only the entries of the page, hybrid search all that it fuses.
                    let operation = if wanted <= 100 {
                        Operation::Semantic(question)
                    } else {
                        Operation::Hybrid(question)
                    };
                    ids.extend(setup.grpc.lock().await.run(&operation).await?.ids()?);
                }
                found += exact.iter().filter(|id| ids.contains(id)).count();
                all += exact.len();
            }
            let recall = found as f64 / all.max(1) as f64;
            let title = setup.title(&format!("recall of the nearest {wanted}"), filter.as_ref());
            report.fact(&title, format!("{recall:.4}"));
            if recall < LEAST_RECALL {
                return Err(format!("{title} is {recall:.4}").into());
            }
            if setup.ids.len() == GOAL_ENTRIES {
                let bound = match setup.vectors {
                    Vectors::Real { .. } if wanted == 10 => 0.99,
                    _ => 0.95,
                };
                report.goal(Goal::at_least(title, recall, bound, ""));
            }
        }
    }
    Ok(())
}

async fn semantic(setup: &Setup<'_>, report: &mut Report, filter: Option<&String>) -> Result<()> {
    let title = setup.title("semantic search", filter);
    setup.bench.progress.step(&format!("Measuring {title}"));
    let questions: Vec<Operation> = (0..QUERIES)
        .map(|n| Operation::Semantic(setup.question(n, filter)))
        .collect();
    same(&setup.grpc, &setup.mcp, &questions).await?;
    let contenders = vec![
        setup.scan(filter),
        setup.provider().await?,
        searches_over("gRPC", &setup.grpc, questions.clone()),
        searches_over("MCP stdio", &setup.mcp, questions),
    ];
    let series = setup.alternate(contenders).await?;
    let mut section = Section::new(&title, &format!("{LIMIT} results"));
    section.add(&series[0], None);
    section.add(&series[1], None);
    for of_transport in &series[2..] {
        section.add(
            of_transport,
            Some(Ratio::lower(of_transport.p50_ratio(&series[0]))),
        );
    }
    let without_model = series[2].p50_minus(&series[1]) / series[0].p50_us();
    section.note(format!(
        "gRPC without the provider's time: {without_model:.2} of the exact scan"
    ));
    if setup.ids.len() == GOAL_ENTRIES && filter.is_none() {
        let bound = match setup.vectors {
            Vectors::Random => 1.5,
            Vectors::Real { .. } => 0.3,
        };
        report.goal(Goal::at_most(
            format!("{title}: gRPC without the provider's time"),
            without_model,
            bound,
            "exact scans",
        ));
    }
    report.section(section);
    Ok(())
}

async fn hybrid(setup: &Setup<'_>, report: &mut Report, filter: Option<&String>) -> Result<()> {
    let title = setup.title("hybrid search", filter);
    setup.bench.progress.step(&format!("Measuring {title}"));
    let questions = |retrievers: &[&'static str]| -> Vec<Operation> {
        let question = |n| Question {
            retrievers: retrievers.to_vec(),
            ..setup.question(n, filter)
        };
        (0..QUERIES)
            .map(|n| Operation::Hybrid(question(n)))
            .collect()
    };
    let semantic = (0..QUERIES)
        .map(|n| Operation::Semantic(setup.question(n, filter)))
        .collect();
    same(&setup.grpc, &setup.mcp, &questions(&[])).await?;
    let contenders = vec![
        searches_over("full text alone", &setup.grpc, questions(&["fts"])),
        searches_over("semantic search", &setup.grpc, semantic),
        searches_over("semantic part alone", &setup.grpc, questions(&["semantic"])),
        searches_over("gRPC", &setup.grpc, questions(&[])),
        searches_over("MCP stdio", &setup.mcp, questions(&[])),
    ];
    let series = setup.alternate(contenders).await?;
    let retrievers = [&series[0], &series[1]];
    let mut section = Section::new(
        &title,
        &format!(
            "{LIMIT} results; the floor is full text alone and semantic search, one after the other"
        ),
    );
    for of_part in &series[..3] {
        section.add(of_part, None);
    }
    for of_transport in &series[3..] {
        let ratio = Ratio::lower(of_transport.p50_ratio_to_sum(&retrievers));
        section.add(of_transport, Some(ratio));
    }
    report.section(section);
    report.goal(Goal::at_most(
        format!("{title}: gRPC"),
        series[3].p50_ratio_to_sum(&retrievers),
        1.5,
        "times its retrievers",
    ));
    let p95_ms = match setup.ids.len() {
        GOAL_ENTRIES => 20.0,
        10_000 => 10.0,
        _ => return Ok(()),
    };
    if filter.is_none() {
        let p95 = series[3].p95_us() / 1000.0;
        report.goal(Goal::at_most(
            format!("{title}: gRPC p95"),
            p95,
            p95_ms,
            "ms",
        ));
    }
    Ok(())
}

/// Hybrid search with a reranker that responds at once, on the same database. Also measures the start on it.
async fn reranked(
    bench: &Bench,
    report: &mut Report,
    vectors: &Vectors,
    provider: &Provider,
    database: &Path,
    size: u64,
) -> Result<()> {
    let title = format!("hybrid search, reranked, {size} {}", vectors.name());
    bench.progress.step(&format!("Measuring {title}"));
    let started = Instant::now();
    let service = Service::start_with(database, &provider.settings(true))?;
    report.fact(
        &format!("start with {size} {}", vectors.name()),
        format!(
            "{:.0} ms until it listens",
            started.elapsed().as_secs_f64() * 1e3
        ),
    );
    let grpc = Connections::connect("gRPC", &service, 1).await?.shared();
    let mcp = Connections::connect("MCP stdio", &service, 1)
        .await?
        .shared();
    let question = |n| Question {
        text: query_text(bench, n),
        ..Question::default()
    };
    let questions: Vec<Operation> = (0..QUERIES)
        .map(|n| Operation::Hybrid(question(n)))
        .collect();
    same(&grpc, &mcp, &questions).await?;
    let contenders = vec![
        searches_over("gRPC", &grpc, questions.clone()),
        searches_over("MCP stdio", &mcp, questions),
    ];
    let series = alternate(contenders, bench.scale.searches, bench.scale.rounds).await?;
    let mut section = Section::new(
        &title,
        "50 candidates, scored by a reranker that responds at once; measured on a separate service",
    );
    for of_transport in &series {
        section.add(of_transport, None);
    }
    report.section(section);
    service.stop()
}

/// Measures how many texts a second a service embeds with a model, when they are stored in batches of 100.
///
/// # Errors
/// A process does not start, or the service rejects an entry.
pub async fn embed(bench: &Bench, report: &mut Report, model: &Path) -> Result<()> {
    let settings = [
        ("EMBEDDING_PROVIDER", "local".to_owned()),
        ("EMBEDDING_MODEL_PATH", model.display().to_string()),
    ];
    let service = Service::start_with(&bench.dir.join("embed.db"), &settings)?;
    let mut loaded = Loaded::default();
    // The first batch waits until the model is loaded.
    loaded.up_to(100, bench, &service).await?;
    let rate = loaded.up_to(100 + EMBEDDED, bench, &service).await?;
    report.fact(
        "embedded and stored in batches of 100",
        format!("{rate:.1} texts/s"),
    );
    service.stop()
}
