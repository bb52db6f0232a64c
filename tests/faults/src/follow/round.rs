//! One round: writers and followers beside each other, with faults, all chosen by a seed.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use context_engine::{Admin, ChangesConfig, Engine, SystemClock};
use context_model::CreateApiKeyRequest;
use context_service::cli::Cli;
use context_service::{Started, config, start};
use context_test_postgres::{Client, TestDatabase};
use context_test_support::http::Request;
use context_test_support::{Home, Process, Random, wait_for};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

use super::check::check;
use super::follower::{Follower, NUMBERED, artifact_of_json, entry_of_json};
use super::history::{History, last_of_file};
use super::place::{Place, Places, Target, with_key};
use super::writer::Writer;
use super::{Filter, Log, Stored, View};

const WRITERS: usize = 8;
const FOLLOWERS: usize = 4;
/// Requests of all writers together.
const REQUESTS: usize = 200;
const FAULTS: usize = 2;
/// Entries that some rounds store at once. No follower but one of everything reads their thread, so the others receive
/// a bookmark. Deleting them is a commit that is too long for one page.
const BURST: usize = 1100;
/// A compaction keeps this many changes at least.
const KEPT: usize = 20;

/// The keys of a round with authentication.
struct Keys {
    /// For everything of the owner.
    all: String,
    /// For reading one thread.
    narrow: String,
    /// Of another owner.
    other: String,
}

/// A service in this process, or in one of its own, which can be killed.
enum Running {
    Here {
        engine: Arc<Engine>,
        stop: Box<dyn Fn() + Send>,
        task: JoinHandle<()>,
    },
    Apart(Process),
}

struct Node {
    number: usize,
    home: Home,
    /// The flags of a service in this process.
    flags: Vec<String>,
    /// Whether the service has a process of its own.
    is_apart: bool,
    running: Option<Running>,
}

impl Node {
    fn new(number: usize, database: Option<&str>, is_apart: bool) -> Self {
        let mut home = Home::new().with("EMBEDDING_PROVIDER", "none");
        let mut flags = Vec::new();
        if let Some(url) = database {
            home = home
                .with("STORAGE_BACKEND", "postgresql")
                .with("POSTGRESQL_CONNECTION_STRING", url);
            flags.push("--storage-backend=postgresql".to_owned());
            flags.push(format!("--postgresql-connection-string={url}"));
        }
        Self {
            number,
            home,
            flags,
            is_apart,
            running: None,
        }
    }

    async fn start(&mut self, places: &Places, epoch: usize) {
        let (running, address) = if self.is_apart {
            let mut process = self.home.spawn();
            process.listening().await;
            let address = process.address();
            (Running::Apart(process), address)
        } else {
            let database = format!("--db-path={}", self.home.database().display());
            let socket = format!("--socket={}", self.home.socket().display());
            let flags = [
                "context-service",
                "--listen=127.0.0.1:0",
                "--embedding-provider=none",
                &database,
                &socket,
            ];
            let flags = flags
                .into_iter()
                .chain(self.flags.iter().map(String::as_str));
            let cli: Cli =
                config::read(flags.map(Into::into), &|_| None).expect("settings that can be read");
            let Started::Running(service) = start(&cli.config).await.expect("the service starts")
            else {
                panic!("another service uses this database");
            };
            let (address, token) = (service.address().expect("an address"), service.stop());
            let engine = Arc::clone(service.engine());
            let stop = Box::new(move || token.cancel());
            let task = tokio::spawn(service.run());
            (Running::Here { engine, stop, task }, address)
        };
        self.running = Some(running);
        places.set(self.number, Some(Place { address, epoch }));
    }

    /// Stops the service: with `kill -9` if it has its own process and `kills`.
    async fn stop(&mut self, places: &Places, kills: bool) {
        match self.running.take() {
            Some(Running::Apart(mut process)) => {
                if kills {
                    process.kill();
                } else {
                    let status = process.terminate().await;
                    assert!(
                        status.success(),
                        "a service that is asked to stop ends well"
                    );
                }
            }
            Some(Running::Here { stop, task, .. }) => {
                stop();
                task.await.expect("the service stops without a panic");
            }
            None => {}
        }
        places.set(self.number, None);
    }
}

/// Which database a round uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backend {
    /// One service on a SQLite file.
    Sqlite,
    /// Two services on a PostgreSQL database.
    Postgres,
}

/// What a round left: what followers received, and what they should have received.
#[derive(Debug)]
pub struct Round {
    /// What each follower received.
    pub logs: Vec<Log>,
    /// What was committed.
    pub history: History,
    /// The faults, for messages.
    pub faults: Vec<String>,
    stored: Vec<(Filter, Stored)>,
    target: Target,
}

impl Round {
    /// Runs the round of a seed. `None` if there is no PostgreSQL to test on.
    ///
    /// # Panics
    /// When a service does not start or stop, replies with an internal error, or a follower does not arrive.
    pub async fn run(backend: Backend, seed: u64) -> Option<Self> {
        let database = match backend {
            Backend::Sqlite => None,
            Backend::Postgres => Some(TestDatabase::empty().await?),
        };
        let round = Stage::open(database.as_ref(), seed).await.play().await;
        drop(database);
        Some(round)
    }

    /// Every violation.
    #[must_use]
    pub fn violations(&self) -> Vec<String> {
        self.logs
            .iter()
            .flat_map(|log| self.violations_of(log))
            .collect()
    }

    /// The violations in a log, which may have been changed.
    #[must_use]
    pub fn violations_of(&self, log: &Log) -> Vec<String> {
        let mut wrong = check(log, &self.history, self.target.revision(log.filter));
        let stored = self.stored.iter().find(|(filter, _)| *filter == log.filter);
        if let (Some(view), Some((_, stored))) = (View::of(log), stored) {
            let Log { name, filter, .. } = log;
            let differences = view.differences(stored).into_iter();
            wrong.extend(differences.map(|what| format!("{name}, {filter:?}, at the end: {what}")));
        }
        wrong
    }

    /// Whether the view of a log was compared with the database.
    #[must_use]
    pub fn has_view(&self, log: &Log) -> bool {
        View::of(log).is_some()
    }
}

/// The parts of a round while it runs.
struct Stage {
    nodes: Vec<Node>,
    places: Arc<Places>,
    /// A connection to PostgreSQL.
    client: Option<Client>,
    history: History,
    random: Random,
    /// The keys, if the services ask for one.
    keys: Option<Keys>,
    /// A copy of the SQLite file, which a later fault puts back.
    copy: Option<tempfile::TempDir>,
    faults: Vec<String>,
}

impl Stage {
    async fn open(database: Option<&TestDatabase>, seed: u64) -> Self {
        let mut random = Random::new(seed);
        // One round in five runs the real program, which can be killed.
        let is_apart = seed.is_multiple_of(5);
        let url = database.map(TestDatabase::url);
        let count = if url.is_some() { 2 } else { 1 };
        let mut nodes: Vec<Node> = (0..count)
            .map(|number| Node::new(number, url, is_apart))
            .collect();
        let has_keys = !is_apart && random.one_in(4);
        if has_keys {
            for node in &mut nodes {
                node.flags.push("--auth=keys".to_owned());
            }
        }
        let places = Arc::new(Places::default());
        for node in &mut nodes {
            node.start(&places, 0).await;
        }
        let keys = match &nodes[0].running {
            Some(Running::Here { engine, .. }) if has_keys => Some(Keys {
                all: new_key(engine, "default", &["read", "write", "delete"], None).await,
                narrow: new_key(engine, "default", &["read"], Some("t0")).await,
                other: new_key(engine, "another", &["read", "write", "delete"], None).await,
            }),
            _ => None,
        };
        let client = match database {
            Some(database) => Some(database.connect().await),
            None => None,
        };
        Self {
            nodes,
            places,
            client,
            history: History::default(),
            random,
            keys,
            copy: None,
            faults: Vec::new(),
        }
    }

    async fn play(mut self) -> Round {
        let has_burst = self.random.one_in(20);
        let requests = Arc::new(AtomicUsize::new(0));
        let mut writers = JoinSet::new();
        for number in 0..WRITERS {
            let writer = Writer {
                places: Arc::clone(&self.places),
                random: self.random.part(number as u64),
                key: self.key(),
                requests: Arc::clone(&requests),
                ids: Vec::new(),
                artifacts: Vec::new(),
            };
            writers.spawn(writer.run(REQUESTS / WRITERS));
        }
        if let Some(keys) = &self.keys {
            let stranger = Writer {
                places: Arc::clone(&self.places),
                random: self.random.part(99),
                key: Some(keys.other.clone()),
                requests: Arc::default(),
                ids: Vec::new(),
                artifacts: Vec::new(),
            };
            writers.spawn(stranger.run(REQUESTS / WRITERS));
        }
        let (announce, target) = watch::channel(None);
        let mut followers = JoinSet::new();
        let mut filters = Vec::new();
        for number in 0..FOLLOWERS {
            let mut random = self.random.part(100 + number as u64);
            let filter = match number {
                0 => Filter::None,
                1 if has_burst => Filter::Thread("quiet"),
                2 if self.keys.is_some() => Filter::OfKey,
                _ => *random.pick(&Filter::ALL),
            };
            let key = self.keys.as_ref().map(|keys| match filter {
                Filter::OfKey => keys.narrow.clone(),
                _ => keys.all.clone(),
            });
            filters.push(filter);
            let follower = Follower::new(
                random,
                filter,
                key,
                Arc::clone(&self.places),
                target.clone(),
            );
            followers.spawn(follower.run());
        }
        if has_burst {
            self.burst().await;
        }
        let mut moments: Vec<usize> = (0..FAULTS).map(|_| self.random.below(REQUESTS)).collect();
        moments.sort_unstable();
        for (number, moment) in moments.into_iter().enumerate() {
            wait_for("the writers go on", || {
                (requests.load(Ordering::SeqCst) >= moment).then_some(())
            })
            .await;
            self.fault(number).await;
        }
        while let Some(writer) = writers.join_next().await {
            writer.expect("a writer does not panic");
        }
        let target = self.mark().await;
        announce.send_replace(Some(target));
        let mut logs = Vec::new();
        let arrive = async {
            while let Some(log) = followers.join_next().await {
                logs.push(log.expect("a follower does not panic"));
            }
        };
        let arrived = tokio::time::timeout(Duration::from_secs(60), arrive).await;
        assert!(
            arrived.is_ok(),
            "a follower did not arrive; faults: {:?}",
            self.faults
        );
        let mut stored = Vec::new();
        for filter in filters {
            if stored.iter().all(|(known, _)| *known != filter) {
                stored.push((filter, self.stored(filter).await));
            }
        }
        self.read_history().await;
        for number in 0..self.nodes.len() {
            let places = Arc::clone(&self.places);
            self.nodes[number].stop(&places, false).await;
        }
        Round {
            logs,
            history: self.history,
            faults: self.faults,
            stored,
            target,
        }
    }

    async fn burst(&mut self) {
        self.faults.push("a burst".to_owned());
        let entry = json!({"thread_id": "burst", "source": "agent", "text": "one of many", "metadata": {"n": 1}});
        let batch = json!({"entries": vec![entry; 100]});
        for _ in 0..BURST / 100 {
            let place = self.places.any(&mut self.random).await;
            let reply = with_key(
                Request::post(place.address, "/v1/contexts/batch", &batch),
                self.key().as_deref(),
            )
            .send()
            .await;
            assert_eq!(reply.status, 200, "{}", reply.body);
        }
        if self.random.chance(50) {
            let place = self.places.any(&mut self.random).await;
            let thread = json!({"thread_id": "burst"});
            let reply = with_key(
                Request::post(place.address, "/v1/contexts/delete", &thread),
                self.key().as_deref(),
            )
            .send()
            .await;
            assert_eq!(reply.status, 200, "{}", reply.body);
        }
    }

    fn epoch(&self) -> usize {
        self.history.0.len() - 1
    }

    fn key(&self) -> Option<String> {
        self.keys.as_ref().map(|keys| keys.all.clone())
    }

    async fn read_history(&mut self) {
        match &self.client {
            Some(client) => self.history.read_postgres(client).await,
            None => self.history.read_file(&self.nodes[0].home.database()),
        }
    }

    async fn fault(&mut self, number: usize) {
        let places = Arc::clone(&self.places);
        let node = self.random.below(self.nodes.len());
        let (is_apart, is_file) = (self.nodes[node].is_apart, self.client.is_none());
        let kills = is_apart && self.random.chance(70);
        match self.random.below(3) {
            0 if !is_apart => self.compact(node).await,
            // The second fault puts back the copy that the first one made.
            0 | 1 if is_file && (number == 0 || self.copy.is_some()) => {
                self.nodes[node].stop(&places, kills).await;
                self.copy_or_put_back().await;
                let epoch = self.epoch();
                self.nodes[node].start(&places, epoch).await;
            }
            _ => {
                self.faults
                    .push(if kills { "kill -9" } else { "SIGTERM" }.to_owned());
                self.nodes[node].stop(&places, kills).await;
                let epoch = self.epoch();
                self.nodes[node].start(&places, epoch).await;
            }
        }
    }

    async fn compact(&mut self, node: usize) {
        self.faults.push("compaction".to_owned());
        self.read_history().await;
        self.history.current().is_compacted = true;
        let Some(Running::Here { engine, .. }) = &self.nodes[node].running else {
            return;
        };
        let keep = KEPT + self.random.below(60);
        let config = ChangesConfig {
            max_rows: i64::try_from(keep).expect("a small number"),
            ..ChangesConfig::default()
        };
        // It never ends. One pass over a small feed is short.
        let compaction = engine.background.compact(config, &SystemClock);
        let _ = tokio::time::timeout(Duration::from_millis(60), compaction).await;
    }

    async fn copy_or_put_back(&mut self) {
        let database = self.nodes[0].home.database();
        self.read_history().await;
        if let Some(copy) = &self.copy {
            self.faults.push("an older copy".to_owned());
            for file in files_of(&database) {
                std::fs::remove_file(file).expect("the file is removed");
            }
            copy_files(&copy.path().join("contexts.db"), &database);
            self.history.begin(last_of_file(&database));
        } else {
            self.faults.push("a copy is made".to_owned());
            let copy = tempfile::tempdir().expect("a temporary directory");
            copy_files(&database, &copy.path().join("contexts.db"));
            self.copy = Some(copy);
        }
    }

    /// Makes the last changes, which each filter selects one of.
    async fn mark(&mut self) -> Target {
        let artifact = json!({"content": "the last one", "metadata": {"n": 9}});
        let entry = |thread: &str| json!({"thread_id": thread, "source": "user", "text": "the last one", "tags": ["keep"], "metadata": {"n": 9}});
        Target {
            epoch: self.epoch(),
            artifact: self.write("/v1/artifacts", &artifact).await,
            quiet: self.write("/v1/contexts", &entry("quiet")).await,
            last: self.write("/v1/contexts", &entry("t0")).await,
        }
    }

    async fn write(&mut self, path: &str, body: &Value) -> i64 {
        let place = self.places.any(&mut self.random).await;
        let reply = with_key(
            Request::post(place.address, path, body),
            self.key().as_deref(),
        )
        .send()
        .await;
        assert_eq!(reply.status, 201, "{}", reply.body);
        reply.json()["revision"].as_i64().expect("a revision")
    }

    async fn get(&mut self, path: &str) -> Value {
        let place = self.places.any(&mut self.random).await;
        let reply = with_key(Request::get(place.address, path), self.key().as_deref())
            .send()
            .await;
        assert_eq!(reply.status, 200, "{}", reply.body);
        reply.json()
    }

    /// What the lists of the API have with this filter.
    async fn stored(&mut self, filter: Filter) -> Stored {
        let mut stored = Stored::new();
        if filter != Filter::Artifacts {
            self.stored_entries(filter, &mut stored).await;
        }
        let artifacts = match filter {
            Filter::None | Filter::Artifacts => Some(String::new()),
            Filter::Numbered => Some(format!("&metadata_filters={NUMBERED}")),
            Filter::Thread(_) | Filter::OfUser | Filter::Tagged | Filter::OfKey => None,
        };
        if let Some(query) = artifacts {
            self.stored_artifacts(&query, &mut stored).await;
        }
        stored
    }

    async fn stored_entries(&mut self, filter: Filter, stored: &mut Stored) {
        let mut search = json!({"limit": 100, "offset": 0});
        match filter {
            Filter::Thread(thread) => search["thread_id"] = json!(thread),
            Filter::OfKey => search["thread_id"] = json!("t0"),
            Filter::OfUser => search["source"] = json!("user"),
            Filter::Tagged => search["tags"] = json!(["keep"]),
            Filter::Numbered => {
                search["metadata_filters"] = json!([{"key": "n", "operator": "gte", "value": 5}]);
            }
            Filter::None | Filter::Artifacts => {}
        }
        let mut ids = Vec::new();
        loop {
            search["offset"] = json!(ids.len());
            let place = self.places.any(&mut self.random).await;
            let reply = with_key(
                Request::post(place.address, "/v1/contexts/search", &search),
                self.key().as_deref(),
            )
            .send()
            .await;
            assert_eq!(reply.status, 200, "{}", reply.body);
            let page = reply.json();
            let found = page["results"].as_array().expect("a list");
            ids.extend(found.iter().map(|entry| entry["id"].to_string()));
            if page["has_more"] != true {
                break;
            }
        }
        for some in ids.chunks(100) {
            let page = self
                .get(&format!(
                    "/v1/contexts?include_images=false&ids={}",
                    some.join(",")
                ))
                .await;
            for entry in page["result"].as_array().expect("a list") {
                stored.insert(
                    ("context".to_owned(), entry["id"].to_string()),
                    entry_of_json(entry),
                );
            }
        }
    }

    async fn stored_artifacts(&mut self, query: &str, stored: &mut Stored) {
        let mut ids = Vec::new();
        loop {
            let page = self
                .get(&format!(
                    "/v1/artifacts?limit=50&offset={}{query}",
                    ids.len()
                ))
                .await;
            let found = page["result"].as_array().expect("a list");
            ids.extend(
                found
                    .iter()
                    .map(|artifact| artifact["id"].as_str().expect("an id").to_owned()),
            );
            if page["has_more"] != true {
                break;
            }
        }
        for id in ids {
            let artifact = self.get(&format!("/v1/artifacts/{id}")).await;
            stored.insert(("artifact".to_owned(), id), artifact_of_json(&artifact));
        }
    }
}

async fn new_key(engine: &Engine, owner: &str, scopes: &[&str], thread: Option<&str>) -> String {
    let key = CreateApiKeyRequest {
        name: "follow".to_owned(),
        scopes: Some(scopes.iter().map(ToString::to_string).collect()),
        threads: thread.map(|thread| vec![thread.to_owned()]),
        ..CreateApiKeyRequest::default()
    };
    let owner = owner.to_owned();
    let printed = engine
        .access
        .administer(Admin::CreateKey { owner, key })
        .await
        .expect("a key");
    printed
        .split_whitespace()
        .next()
        .expect("the key")
        .to_owned()
}

/// A database file and what SQLite keeps beside it.
fn files_of(database: &Path) -> Vec<PathBuf> {
    let names =
        ["", "-wal", "-shm"].map(|suffix| PathBuf::from(format!("{}{suffix}", database.display())));
    names.into_iter().filter(|file| file.exists()).collect()
}

fn copy_files(from: &Path, to: &Path) {
    for file in files_of(from) {
        let suffix = file
            .display()
            .to_string()
            .replacen(&from.display().to_string(), "", 1);
        std::fs::copy(&file, format!("{}{suffix}", to.display())).expect("room for a copy");
    }
}
