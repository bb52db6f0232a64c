//! A PostgreSQL database for each test.
//!
//! The server is the one in `CONTEXT_TEST_POSTGRES_URL`, which `scripts/test` starts, or else the one in
//! `DATABASE_URL`. Only databases named `ctxt_…` are created and dropped there. Without a server, a test prints that it
//! is skipped. If `CONTEXT_TEST_POSTGRES_REQUIRED` or `CI` is set, it fails instead. A [`Server`] belongs to one test.
//!
//! ```no_run
//! # async fn example() {
//! use context_test_postgres::TestDatabase;
//!
//! let Some(database) = TestDatabase::create("example", async |_url| {}).await else { return };
//! println!("{}", database.url());
//! # }
//! ```

mod pgbouncer;
mod server;
mod url;

use std::time::Duration;

use context_test_support::{Deadline, now};
pub use tokio_postgres::Client;
use tokio_postgres::NoTls;

pub use pgbouncer::{PgBouncer, pgbouncers};
pub use server::{Server, programs};
pub use url::with_database;

/// Age after which the database of a killed test is dropped, whenever a template is created.
const ABANDONED_AFTER: Duration = Duration::from_secs(60 * 60);

/// An advisory lock. The number is arbitrary, but no other program may lock it.
const TEMPLATE_LOCK: i64 = 0x6374_7874_746d_706c;

/// A database that is dropped together with this value.
#[derive(Debug)]
pub struct TestDatabase {
    server: String,
    name: String,
    url: String,
}

/// The URL of the tests' server, if there is one.
///
/// # Panics
/// When there is none and the test run requires one.
#[must_use]
pub fn server() -> Option<String> {
    let found = variable("CONTEXT_TEST_POSTGRES_URL").or_else(|| variable("DATABASE_URL"));
    if found.is_none() {
        assert!(
            !is_required(),
            "there is no PostgreSQL to test on; set CONTEXT_TEST_POSTGRES_URL, or run scripts/test"
        );
        eprintln!(
            "SKIPPED: there is no PostgreSQL to test on; set CONTEXT_TEST_POSTGRES_URL, or run scripts/test"
        );
    }
    found
}

/// An environment variable, unless it is empty.
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// Whether a test that needs a server fails if there is none.
fn is_required() -> bool {
    variable("CONTEXT_TEST_POSTGRES_REQUIRED")
        .or_else(|| variable("CI"))
        .is_some()
}

impl TestDatabase {
    /// Creates a database as a copy of a template. The first call with a template's name creates the template:
    /// `prepare` gets the URL of an empty database, and must close its connections. The name must change when `prepare`
    /// changes. `None` if there is no [`server`].
    ///
    /// # Panics
    /// When the server rejects a statement.
    pub async fn create(template: &str, prepare: impl AsyncFnOnce(&str)) -> Option<Self> {
        let server = server()?;
        let client = connect(&server).await;
        let template = format!("ctxt_template_{template}");
        make_template(&client, &server, &template, prepare).await;
        let name = format!("ctxt_{}_{}", seconds(), uuid::Uuid::new_v4().simple());
        create_copy(&client, &name, &template).await;
        let url = with_database(&server, &name);
        Some(Self { server, name, url })
    }

    /// Creates an empty database. `None` if there is no [`server`].
    ///
    /// # Panics
    /// When the server rejects a statement.
    pub async fn empty() -> Option<Self> {
        let server = server()?;
        let client = connect(&server).await;
        let name = format!("ctxt_{}_{}", seconds(), uuid::Uuid::new_v4().simple());
        run(&client, &format!("CREATE DATABASE {name}")).await;
        let url = with_database(&server, &name);
        Some(Self { server, name, url })
    }

    /// Creates a copy of this database. Waits until the database has no connections.
    ///
    /// # Panics
    /// When the server rejects a statement.
    pub async fn copy(&self) -> Self {
        let client = connect(&self.server).await;
        let name = format!("ctxt_{}_{}", seconds(), uuid::Uuid::new_v4().simple());
        wait_until_alone(&client, &self.name).await;
        create_copy(&client, &name, &self.name).await;
        Self {
            server: self.server.clone(),
            url: with_database(&self.server, &name),
            name,
        }
    }

    /// The URL of the database.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// A connection to it, for tests that inspect or change the database directly.
    ///
    /// # Panics
    /// When the server cannot be reached.
    pub async fn connect(&self) -> Client {
        connect(&self.url).await
    }
}

impl Drop for TestDatabase {
    fn drop(&mut self) {
        let (server, statement) = (
            self.server.clone(),
            format!("DROP DATABASE IF EXISTS {} WITH (FORCE)", self.name),
        );
        // A runtime cannot be awaited inside another one, so this uses its own thread.
        let dropping = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            if let Ok(runtime) = runtime {
                runtime.block_on(async {
                    if let Ok((client, connection)) = tokio_postgres::connect(&server, NoTls).await
                    {
                        let driver = tokio::spawn(connection);
                        let _ = client.batch_execute(&statement).await;
                        drop(client);
                        let _ = driver.await;
                    }
                });
            }
        });
        let _ = dropping.join();
    }
}

/// A connection to this database.
///
/// # Panics
/// When the server cannot be reached.
pub async fn connect(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls)
        .await
        .expect("the PostgreSQL of the tests responds");
    tokio::spawn(connection);
    client
}

async fn run(client: &Client, statement: &str) {
    client
        .batch_execute(statement)
        .await
        .unwrap_or_else(|error| panic!("{statement}: {error:?}"));
}

/// Creates the template unless it exists. Tests run in many processes at once: one of them creates the template, and
/// the others wait.
async fn make_template(
    client: &Client,
    server: &str,
    template: &str,
    prepare: impl AsyncFnOnce(&str),
) {
    run(client, &format!("SELECT pg_advisory_lock({TEMPLATE_LOCK})")).await;
    let existing = client
        .query("SELECT 1 FROM pg_database WHERE datname = $1", &[&template])
        .await
        .expect("databases are listed");
    if existing.is_empty() {
        drop_abandoned(client).await;
        let unfinished = format!("{template}_unfinished");
        run(
            client,
            &format!("DROP DATABASE IF EXISTS {unfinished} WITH (FORCE)"),
        )
        .await;
        run(client, &format!("CREATE DATABASE {unfinished}")).await;
        prepare(&with_database(server, &unfinished)).await;
        wait_until_alone(client, &unfinished).await;
        run(
            client,
            &format!("ALTER DATABASE {unfinished} RENAME TO {template}"),
        )
        .await;
    }
    run(
        client,
        &format!("SELECT pg_advisory_unlock({TEMPLATE_LOCK})"),
    )
    .await;
}

/// Waits until the database has no connections. The server's process for a closed connection ends a moment later.
async fn wait_until_alone(client: &Client, database: &str) {
    let deadline = Deadline::new();
    let count = "SELECT count(*) FROM pg_stat_activity WHERE datname = $1";
    while client
        .query_one(count, &[&database])
        .await
        .expect("connections are counted")
        .get::<_, i64>(0)
        > 0
    {
        let what = || format!("a session stays connected to {database}");
        deadline.pause(what).await;
    }
}

/// Creates a copy of the template. Depending on the copy strategy, the server rejects the copy while another process
/// copies the same template.
async fn create_copy(client: &Client, name: &str, template: &str) {
    let deadline = Deadline::new();
    let statement = format!("CREATE DATABASE {name} TEMPLATE {template}");
    while let Err(error) = client.batch_execute(&statement).await {
        let busy = error.code() == Some(&tokio_postgres::error::SqlState::OBJECT_IN_USE);
        assert!(busy, "{statement}: {error:?}");
        deadline.pause(|| format!("{statement}: {error:?}")).await;
    }
}

async fn drop_abandoned(client: &Client) {
    let rows = client
        .query(
            "SELECT datname FROM pg_database WHERE datname LIKE 'ctxt\\_%'",
            &[],
        )
        .await
        .expect("databases are listed");
    for name in rows.iter().map(|row| row.get::<_, String>(0)) {
        let created = name
            .strip_prefix("ctxt_")
            .and_then(|rest| rest.split('_').next())
            .and_then(|seconds| seconds.parse::<u64>().ok());
        if created.is_some_and(|created| created + ABANDONED_AFTER.as_secs() < seconds()) {
            let _ = client
                .batch_execute(&format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)"))
                .await;
        }
    }
}

fn seconds() -> u64 {
    now().micros().cast_unsigned() / 1_000_000
}
