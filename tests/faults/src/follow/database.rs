//! The database of a round, and its backup.

use std::path::{Path, PathBuf};

use context_test_postgres::Client;

use super::cluster::Cluster;
use super::endpoint::Endpoints;
use super::history::{History, last_of_file};

pub(super) enum Database<'c> {
    /// A SQLite file.
    File {
        path: PathBuf,
        /// The directory of the backup.
        backup: Option<tempfile::TempDir>,
    },
    /// A database on a server.
    OnServer {
        cluster: &'c mut Cluster,
        name: String,
        client: Client,
        /// The name of the backup.
        backup: Option<String>,
    },
}

impl Database<'_> {
    pub async fn read(&self, history: &mut History) {
        match self {
            Self::File { path, .. } => history.read_file(path),
            Self::OnServer { client, .. } => history.read_postgres(client).await,
        }
    }

    /// Makes a backup, while no service runs.
    pub async fn back_up(&mut self) {
        match self {
            Self::File { path, backup } => {
                let directory = tempfile::tempdir().expect("a temporary directory");
                copy_files(path, &directory.path().join("contexts.db"));
                *backup = Some(directory);
            }
            Self::OnServer {
                cluster,
                name,
                client,
                backup,
            } => {
                *backup = Some(cluster.create(Some(name)).await);
                *client = cluster.connect(name).await;
            }
        }
    }

    /// Returns to the backup, while no service runs.
    pub async fn put_back(&mut self, history: &mut History) {
        self.read(history).await;
        match self {
            Self::File { path, backup } => {
                for file in files_of(path) {
                    std::fs::remove_file(file).expect("the file is removed");
                }
                let backup = backup.as_ref().expect("a backup");
                copy_files(&backup.path().join("contexts.db"), path);
                history.begin(last_of_file(path));
            }
            Self::OnServer {
                cluster,
                name,
                client,
                backup,
            } => {
                cluster
                    .replace(name, backup.as_ref().expect("a backup"))
                    .await;
                *client = cluster.connect(name).await;
                history.begin_in_postgres(client).await;
            }
        }
    }

    fn cluster(&mut self) -> &mut Cluster {
        match self {
            Self::File { .. } => panic!("a file has no server"),
            Self::OnServer { cluster, .. } => cluster,
        }
    }

    /// Waits until the standby, if there is one, has replayed everything.
    pub async fn synchronize(&mut self) {
        if let Self::OnServer { cluster, .. } = self {
            cluster.synchronize().await;
        }
    }

    /// Ends the replication to the standby.
    pub async fn detach(&mut self) {
        self.cluster().detach().await;
    }

    /// Stops the server, with or without a shutdown, and starts it again.
    pub async fn restart(&mut self, shuts_down: bool) {
        self.cluster().restart(shuts_down).await;
        self.connect_again().await;
    }

    /// Crashes the primary and promotes its standby.
    pub async fn promote(&mut self, history: &mut History, endpoints: &Endpoints) {
        if let Self::OnServer { client, .. } = self {
            // With this lock nothing is committed between the reading below and the crash.
            let lock = "BEGIN; LOCK TABLE context.changes IN EXCLUSIVE MODE";
            client.batch_execute(lock).await.expect("a lock");
        }
        self.read(history).await;
        self.cluster().crash().await;
        endpoints.replace(history.0.len());
        self.cluster().promote().await;
        self.connect_again().await;
        if let Self::OnServer { client, .. } = self {
            history.begin_in_postgres(client).await;
        }
    }

    async fn connect_again(&mut self) {
        if let Self::OnServer {
            cluster,
            name,
            client,
            ..
        } = self
        {
            *client = cluster.connect(name).await;
        }
    }

    pub async fn remove(self) {
        if let Self::OnServer {
            cluster,
            name,
            backup,
            ..
        } = self
        {
            for name in [Some(name), backup].into_iter().flatten() {
                cluster.remove(&name).await;
            }
        }
    }
}

/// A database file and what SQLite keeps beside it.
fn files_of(database: &Path) -> Vec<PathBuf> {
    let names =
        ["", "-wal", "-shm"].map(|suffix| PathBuf::from(format!("{}{suffix}", database.display())));
    names.into_iter().filter(|file| file.exists()).collect()
}

pub(super) fn copy_files(from: &Path, to: &Path) {
    for file in files_of(from) {
        let suffix = file
            .display()
            .to_string()
            .replacen(&from.display().to_string(), "", 1);
        std::fs::copy(&file, format!("{}{suffix}", to.display())).expect("room for a copy");
    }
}
