//! Runs rounds: writers and followers at the same time, with faults, all chosen by a seed.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use context_engine::{ChangesConfig, SystemClock};
use context_test_support::http::Request;
use context_test_support::{Deadline, Random, until, wait_for};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::cluster::Cluster;
use super::database::{Database, copy_files};
use super::endpoint::{Endpoints, Target, Written, send_until_available, with_key};
use super::fault::{Backend, Fault, Plan, Step};
use super::follower::{Cut, Follower};
use super::history::History;
use super::node::{Keys, Node};
use super::round::Round;
use super::stored::Lists;
use super::writer::Writer;
use super::{Filter, Log};

const WRITERS: usize = 8;
const FOLLOWERS: usize = 4;
/// Requests of the [`WRITERS`] together, without those of the other owner's writer.
const REQUESTS: usize = 200;
/// Entries of the thread that some rounds delete: a commit that is too long for one page. Followers of everything
/// receive each of its changes, and those of tags or metadata a `left` for each. The others receive bookmarks.
const LONG: usize = 5000;
/// A compaction leaves at least this many changes in the feed.
const COMPACTION_KEEPS: usize = 20;

/// Runs rounds one after the other. Databases that take long to prepare are prepared once.
pub struct Rounds {
    backend: Backend,
    cluster: Option<Cluster>,
    /// The name of a database with tables.
    prepared: Option<String>,
    /// The name of a PostgreSQL database with the long thread.
    long: Option<String>,
    /// The stopped service whose SQLite file has the long thread.
    long_file: Option<Node>,
}

impl Rounds {
    /// `None` if there is no PostgreSQL to test on.
    ///
    /// # Panics
    /// When PostgreSQL does not start.
    pub async fn new(backend: Backend) -> Option<Self> {
        let cluster = match backend {
            Backend::Sqlite => None,
            Backend::Postgres => Some(Cluster::start().await?),
        };
        Some(Self {
            backend,
            cluster,
            prepared: None,
            long: None,
            long_file: None,
        })
    }

    /// Runs the round of a seed.
    ///
    /// # Panics
    /// When a service does not start or stop, replies with an internal error, or a follower does not arrive.
    pub async fn run(&mut self, seed: u64) -> Round {
        let mut random = Random::new(seed);
        let plan = Plan::new(self.backend, seed, REQUESTS, &mut random);
        let is_long = plan.has(Fault::ThreadDelete);
        let Some(cluster) = &mut self.cluster else {
            let node = Node::new(0, None, plan.is_subprocess);
            if is_long {
                if self.long_file.is_none() {
                    self.long_file = Some(prepare(None, LONG).await);
                }
                let made = self.long_file.iter();
                made.for_each(|made| copy_files(&made.home.database(), &node.home.database()));
            }
            let path = node.home.database();
            let database = Database::File { path, backup: None };
            let round = RunningRound::open(vec![node], database, plan, random).await;
            return round.run().await;
        };
        let (made, entries) = if is_long {
            (&mut self.long, LONG)
        } else {
            (&mut self.prepared, 0)
        };
        if made.is_none() {
            let name = cluster.create(None).await;
            prepare(Some(&cluster.url(&name)), entries).await;
            *made = Some(name);
        }
        let name = cluster.create(made.as_deref()).await;
        if plan.has(Fault::Promotion) {
            cluster.add_standby().await;
        }
        let url = cluster.url(&name);
        let nodes = [0, 1].map(|number| Node::new(number, Some(&url), plan.is_subprocess));
        let client = cluster.connect(&name).await;
        let database = Database::OnServer {
            cluster,
            name,
            client,
            backup: None,
        };
        let round = RunningRound::open(nodes.into(), database, plan, random).await;
        round.run().await
    }
}

/// Creates the tables of a database, and stores entries in its long thread. Returns the stopped service.
async fn prepare(database: Option<&str>, entries: usize) -> Node {
    let endpoints = Endpoints::default();
    let mut node = Node::new(0, database, false);
    node.start(&endpoints, 0).await;
    let endpoint = endpoints.any(&mut Random::new(0)).await;
    for first in (0..entries).step_by(100) {
        let entry = |number| {
            // Equal texts would be stored once.
            let text = format!("{number} of many");
            json!({"thread_id": "long", "source": "agent", "text": text, "metadata": {"n": 1}})
        };
        let batch: Vec<Value> = (first..first + 100).map(entry).collect();
        let batch = json!({"entries": batch});
        let request = Request::post(endpoint.address, "/v1/contexts/batch", &batch);
        let reply = request.send().await;
        assert_eq!(reply.status, 200, "{}", reply.body);
        assert_eq!(reply.json()["revision"], first + 100, "{}", reply.body);
    }
    node.stop(&endpoints, false).await;
    node
}

/// A round while it runs.
struct RunningRound<'c> {
    nodes: Vec<Node>,
    endpoints: Arc<Endpoints>,
    database: Database<'c>,
    plan: Plan,
    history: History,
    random: Random,
    /// The keys, if the services require one.
    keys: Option<Keys>,
    /// For the follower whose snapshot is cut.
    cut: Arc<Cut>,
}

impl<'c> RunningRound<'c> {
    async fn open(
        mut nodes: Vec<Node>,
        mut database: Database<'c>,
        plan: Plan,
        mut random: Random,
    ) -> Self {
        let has_keys = !plan.is_subprocess && random.one_in(4);
        let endpoints = Arc::new(Endpoints::default());
        for node in &mut nodes {
            if has_keys {
                node.flags.push("--auth=keys".to_owned());
            }
            node.start(&endpoints, 0).await;
        }
        let keys = match nodes[0].engine() {
            Some(engine) if has_keys => Some(Keys::new(engine).await),
            _ => None,
        };
        database.synchronize().await;
        Self {
            nodes,
            endpoints,
            database,
            plan,
            history: History::default(),
            random,
            keys,
            cut: Arc::default(),
        }
    }

    async fn run(mut self) -> Round {
        let requests = Arc::new(AtomicUsize::new(0));
        let mut writers = self.writers(&requests);
        let (announce, target) = watch::channel(None);
        let (filters, mut followers) = self.followers(&target);
        for (moment, step) in self.plan.steps.clone() {
            wait_for("the writers continue", || {
                (requests.load(Ordering::SeqCst) >= moment).then_some(())
            })
            .await;
            match step {
                Step::BackUp => self.back_up().await,
                Step::Detach => self.database.detach().await,
                Step::Fault(Fault::ThreadDelete) => {
                    let random = self.random.part(98);
                    writers.spawn(delete_long(Arc::clone(&self.endpoints), random, self.key()));
                }
                Step::Fault(fault) => self.fault(fault).await,
            }
        }
        while let Some(writer) = writers.join_next().await {
            writer.expect("a writer does not panic");
        }
        let target = self.write_targets().await;
        announce.send_replace(Some(target.clone()));
        let mut logs: Vec<Log> = Vec::new();
        let arrive = async {
            while let Some(log) = followers.join_next().await {
                logs.push(log.expect("a follower does not panic"));
            }
        };
        let arrived = tokio::time::timeout(Duration::from_secs(60), arrive).await;
        let faults = self.plan.faults;
        assert!(
            arrived.is_ok(),
            "a follower did not arrive; faults: {faults:?}"
        );
        let mut lists = Lists {
            endpoints: Arc::clone(&self.endpoints),
            random: self.random.clone(),
            key: self.key(),
        };
        let mut stored = Vec::new();
        for filter in filters {
            if stored.iter().all(|(other, _)| *other != filter) {
                stored.push((filter, lists.stored(filter).await));
            }
        }
        self.database.read(&mut self.history).await;
        self.stop(false).await;
        self.database.remove().await;
        Round {
            logs,
            history: self.history,
            faults: faults.into(),
            stored,
            target,
        }
    }

    fn writers(&self, requests: &Arc<AtomicUsize>) -> JoinSet<()> {
        let mut writers = JoinSet::new();
        let mut spawn = |part, key, requests| {
            let writer = Writer {
                endpoints: Arc::clone(&self.endpoints),
                random: self.random.part(part),
                key,
                requests,
                ids: Vec::new(),
                artifacts: Vec::new(),
            };
            writers.spawn(writer.run(REQUESTS / WRITERS));
        };
        for number in 0..WRITERS {
            spawn(number as u64, self.key(), Arc::clone(requests));
        }
        if let Some(keys) = &self.keys {
            spawn(99, Some(keys.other.clone()), Arc::default());
        }
        writers
    }

    fn followers(&self, target: &watch::Receiver<Option<Target>>) -> (Vec<Filter>, JoinSet<Log>) {
        let mut followers = JoinSet::new();
        let mut filters = Vec::new();
        for number in 0..FOLLOWERS {
            let mut random = self.random.part(100 + number as u64);
            let filter = match number {
                0 => Filter::None,
                1 if self.plan.has(Fault::ThreadDelete) => Filter::Thread("quiet"),
                2 if self.keys.is_some() => Filter::OfKey,
                _ => *random.pick(&Filter::ALL),
            };
            let key = self.keys.as_ref().map(|keys| match filter {
                Filter::OfKey => keys.narrow.clone(),
                _ => keys.all.clone(),
            });
            let is_cut = number == 0 && self.plan.has(Fault::SnapshotCut);
            filters.push(filter);
            let follower = Follower::new(
                random,
                filter,
                key,
                Arc::clone(&self.endpoints),
                target.clone(),
                is_cut.then(|| Arc::clone(&self.cut)),
            );
            followers.spawn(follower.run());
        }
        (filters, followers)
    }

    fn epoch(&self) -> usize {
        self.history.0.len() - 1
    }

    fn key(&self) -> Option<String> {
        self.keys.as_ref().map(|keys| keys.all.clone())
    }

    /// Stops all services. Those that are processes of their own are stopped with `kill -9` if `kills`.
    async fn stop(&mut self, kills: bool) {
        for node in &mut self.nodes {
            node.stop(&self.endpoints, kills).await;
        }
    }

    async fn start(&mut self) {
        let epoch = self.epoch();
        for node in &mut self.nodes {
            node.start(&self.endpoints, epoch).await;
        }
    }

    async fn back_up(&mut self) {
        self.stop(false).await;
        self.database.back_up().await;
        self.start().await;
    }

    async fn fault(&mut self, fault: Fault) {
        let node = self.random.below(self.nodes.len());
        match fault {
            Fault::Stop | Fault::Kill => {
                let kills = fault == Fault::Kill;
                let epoch = self.epoch();
                self.nodes[node].stop(&self.endpoints, kills).await;
                self.nodes[node].start(&self.endpoints, epoch).await;
            }
            Fault::Compaction => self.compact(node).await,
            Fault::OlderCopy => {
                let kills = self.random.chance(70);
                self.stop(kills).await;
                self.database.put_back(&mut self.history).await;
                self.start().await;
            }
            Fault::SnapshotCut => {
                self.cut.request();
                until("a snapshot is cut", async || self.cut.is_done()).await;
            }
            Fault::Restart => {
                let shuts_down = self.random.chance(50);
                self.database.restart(shuts_down).await;
                self.wait_for_services().await;
            }
            Fault::Promotion => {
                self.database
                    .promote(&mut self.history, &self.endpoints)
                    .await;
                self.wait_for_services().await;
            }
            Fault::ThreadDelete => unreachable!("it runs beside the others"),
        }
    }

    /// Waits until every service responds again.
    async fn wait_for_services(&self) {
        for endpoint in self.endpoints.all() {
            let request = || {
                let request = Request::get(endpoint.address, "/v1/changes?cursor=now");
                with_key(request, self.key().as_deref())
            };
            let reply = send_until_available(request).await;
            assert_eq!(reply.status, 200, "{}", reply.body);
        }
    }

    async fn compact(&mut self, node: usize) {
        self.database.read(&mut self.history).await;
        self.history.current().is_compacted = true;
        let Some(engine) = self.nodes[node].engine() else {
            return;
        };
        let keep = COMPACTION_KEEPS + self.random.below(60);
        let config = ChangesConfig {
            max_rows: i64::try_from(keep).expect("a small number"),
            ..ChangesConfig::default()
        };
        // The compaction never ends by itself. The timeout is long enough for one pass over a small feed.
        let compaction = engine.background.compact(config, &SystemClock);
        let _ = tokio::time::timeout(Duration::from_millis(60), compaction).await;
    }

    /// Makes the last changes of the round. Each filter selects at least one of them.
    async fn write_targets(&mut self) -> Target {
        let artifact = json!({"content": "the last one", "metadata": {"n": 9}});
        let entry = |thread: &str| {
            json!({
                "thread_id": thread, "source": "user", "text": "the last one",
                "tags": ["keep"], "metadata": {"n": 9},
            })
        };
        Target {
            epoch: self.epoch(),
            artifact: self.write("/v1/artifacts", &artifact).await,
            quiet: self.write("/v1/contexts", &entry("quiet")).await,
            last: self.write("/v1/contexts", &entry("t0")).await,
        }
    }

    async fn write(&mut self, path: &str, body: &Value) -> Written {
        let endpoint = self.endpoints.any(&mut self.random).await;
        let request = || {
            let request = Request::post(endpoint.address, path, body);
            with_key(request, self.key().as_deref())
        };
        let reply = send_until_available(request).await;
        assert_eq!(reply.status, 201, "{}", reply.body);
        let reply = reply.json();
        let id = &reply["context_id"];
        Written {
            revision: reply["revision"].as_i64().expect("a revision"),
            id: match reply["id"].as_str() {
                Some(artifact) => artifact.to_owned(),
                None => id.to_string(),
            },
        }
    }
}

/// Deletes the long thread. Tries again if the service stops meanwhile.
async fn delete_long(endpoints: Arc<Endpoints>, mut random: Random, key: Option<String>) {
    let deadline = Deadline::new();
    let thread = json!({"thread_id": "long"});
    loop {
        let endpoint = endpoints.any(&mut random).await;
        let request = Request::post(endpoint.address, "/v1/contexts/delete", &thread);
        match with_key(request, key.as_deref()).try_send().await {
            Ok(reply) if reply.status == 200 => return,
            other => deadline.pause(|| format!("{other:?}")).await,
        }
    }
}
