//! A PostgreSQL server for the rounds of one test, which may stop and replace it.

use context_test_postgres::{Client, Server, connect, programs, with_database};

pub(super) struct Cluster {
    server: Server,
    /// The standby that takes over in this round.
    standby: Option<Server>,
    /// Number of databases so far, for their names.
    databases: usize,
}

impl Cluster {
    /// Starts a server. `None` if `CONTEXT_TEST_POSTGRES_BIN` does not name the directory of PostgreSQL's programs.
    ///
    /// # Panics
    /// Instead of `None` if `CI` is set. When the server does not start.
    pub async fn start() -> Option<Self> {
        Some(Self {
            server: Server::start(&programs()?).await,
            standby: None,
            databases: 0,
        })
    }

    async fn run(&self, statement: &str) {
        let client = self.server.connect().await;
        let done = client.batch_execute(statement).await;
        done.unwrap_or_else(|error| panic!("{statement}: {error:?}"));
    }

    /// Creates a database, empty or as a copy of another one, whose connections are closed.
    pub async fn create(&mut self, template: Option<&str>) -> String {
        self.databases += 1;
        let name = format!("round{}", self.databases);
        self.copy(&name, template).await;
        name
    }

    async fn copy(&self, name: &str, template: Option<&str>) {
        let template = template.unwrap_or("template0");
        self.run(&format!(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{template}'"
        ))
        .await;
        self.run(&format!("CREATE DATABASE {name} TEMPLATE {template}"))
            .await;
    }

    /// Replaces a database by a copy of another one. The connections of both are closed.
    pub async fn replace(&self, name: &str, template: &str) {
        self.remove(name).await;
        self.copy(name, Some(template)).await;
    }

    /// Removes a database.
    pub async fn remove(&self, name: &str) {
        self.run(&format!("DROP DATABASE {name} WITH (FORCE)"))
            .await;
    }

    /// Starts a standby.
    pub async fn add_standby(&mut self) {
        self.standby = Some(self.server.standby().await);
    }

    fn standby(&self) -> &Server {
        self.standby.as_ref().expect("this round has a standby")
    }

    /// Waits until the standby, if there is one, has replayed everything.
    pub async fn synchronize(&self) {
        if let Some(standby) = &self.standby {
            standby.wait_for_replay(&self.server).await;
        }
    }

    /// Ends the replication to the standby.
    pub async fn detach(&self) {
        self.standby().detach().await;
    }

    /// Crashes the primary.
    pub async fn crash(&mut self) {
        self.server.crash().await;
    }

    /// Promotes the standby, which becomes the server.
    pub async fn promote(&mut self) {
        self.standby().promote().await;
        if let Some(standby) = self.standby.take() {
            self.server = standby;
        }
    }

    /// Stops the server, with or without a shutdown, and starts it again.
    pub async fn restart(&mut self, shuts_down: bool) {
        self.server.restart(shuts_down).await;
    }

    /// The connection string of a database. With a standby it names both servers, and selects the one that accepts
    /// writes.
    pub fn url(&self, database: &str) -> String {
        let Some(standby) = &self.standby else {
            return with_database(&self.server.url(), database);
        };
        let (primary, standby) = (self.server.address(), standby.address());
        format!(
            "postgresql://postgres@{primary},{standby}/{database}?target_session_attrs=read-write"
        )
    }

    pub async fn connect(&self, database: &str) -> Client {
        connect(&with_database(&self.server.url(), database)).await
    }
}
