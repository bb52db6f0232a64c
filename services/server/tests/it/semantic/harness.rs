//! What the tests of semantic search share: databases, services with a model, and searches over REST.

use context_test_postgres::TestDatabase;
use context_test_support::until;
use serde_json::Value;
use tempfile::TempDir;

use crate::service::Service;

/// The network that the tests of `context-bert` use as reference.
pub fn model() -> String {
    concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../bert/tests/reference/cross-encoder"
    )
    .to_owned()
}

pub fn with_model() -> Vec<String> {
    vec![
        "--embedding-provider=auto".to_owned(),
        "--embedding-model-path".to_owned(),
        model(),
        // The tests compare rankings, so all candidates are reranked, also on a slow machine.
        "--rerank-budget-ms=60000".to_owned(),
    ]
}

/// The same network under another name, which the service treats as another model.
pub fn named(name: &str) -> Vec<String> {
    [with_model(), vec![format!("--embedding-model={name}")]].concat()
}

pub const TEXTS: [&str; 4] = [
    "the database stores every context entry",
    "agents search threads for meaning",
    "why did we choose the embedded service",
    "tags and metadata",
];

/// A database for the services of a test, which run one after the other or at the same time.
pub struct Database {
    pub flags: Vec<String>,
    _file: TempDir,
    pub server: Option<TestDatabase>,
}

impl Database {
    pub fn sqlite() -> Self {
        let directory = TempDir::new().unwrap();
        let flags = vec![
            "--db-path".to_owned(),
            directory.path().join("contexts.db").display().to_string(),
        ];
        Self {
            flags,
            _file: directory,
            server: None,
        }
    }

    pub async fn postgres() -> Option<Self> {
        let server = TestDatabase::empty().await?;
        let string = format!("--postgresql-connection-string={}", server.url());
        let flags = vec![
            "--storage-backend=postgresql".to_owned(),
            string,
            "--postgresql-pool-size=8".to_owned(),
        ];
        Some(Self {
            flags,
            _file: TempDir::new().unwrap(),
            server: Some(server),
        })
    }

    /// All databases. Without a PostgreSQL server, only SQLite.
    pub async fn all() -> Vec<Self> {
        [Some(Self::sqlite()), Self::postgres().await]
            .into_iter()
            .flatten()
            .collect()
    }

    pub async fn start(&self, flags: &[String]) -> Service {
        start(&[flags, &self.flags].concat()).await
    }
}

pub async fn start(flags: &[String]) -> Service {
    Service::start_with(&flags.iter().map(String::as_str).collect::<Vec<_>>()).await
}

/// Waits until this many entries have vectors.
pub async fn until_embedded(service: &Service, entries: u64) {
    until("all are embedded", async || {
        let statistics = service.get("/v1/statistics").send().await.json();
        statistics["semantic_search"]["embedding_count"] == entries
    })
    .await;
}

pub async fn search(service: &Service, kind: &str, body: Value) -> Value {
    let reply = service
        .post(&format!("/v1/contexts/search/{kind}"), body)
        .send()
        .await;
    let found = reply.json();
    assert_eq!(reply.status.as_u16(), 200, "{found}");
    found
}

pub fn hits(found: &Value) -> &[Value] {
    found["results"].as_array().unwrap()
}

pub fn ids(found: &Value) -> Vec<i64> {
    found["results"]
        .as_array()
        .unwrap()
        .iter()
        .map(|hit| hit["id"].as_i64().unwrap())
        .collect()
}
