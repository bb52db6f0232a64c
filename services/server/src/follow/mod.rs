//! `context-service follow`: maintains a copy of one owner of another service, through the public API alone.

mod batch;
mod follower;
mod source;

use std::path::PathBuf;
use std::sync::Arc;

use context_store::OwnerId;
use context_store_sqlite::SqliteStore;
use tokio::sync::watch;
use tokio::task::JoinHandle;

pub use source::Key;

use crate::cli::Follow;
use crate::config::{Backend, Config};
use crate::metrics::CopyMetrics;
use crate::migrate_data;
use crate::open::try_open;
use crate::serve::{Running, listen, start_copy};
use follower::Follower;
use source::Source;

/// A service that follows another one and serves the copy.
pub struct Following {
    running: Running,
    follower: JoinHandle<String>,
}

/// Opens the copy, and serves it once its first snapshot is complete.
///
/// # Errors
/// A sentence for the operator.
pub async fn start(config: &Config, follow: &Follow, key: Key) -> Result<Following, String> {
    let mut config = config.clone();
    config.storage.storage_backend = Backend::Sqlite;
    config.storage.db_path = file(&follow.to)?;
    let owner = migrate_data::owner(&follow.owner)?;
    let source = Source::new(follow.source.trim(), key)?;
    // The first snapshot can take long, so settings, addresses and the database are checked before it. The addresses
    // are released again, because there is nothing to serve before the snapshot is complete.
    drop(listen(&config).await.map_err(|error| error.to_string())?);
    let store = try_open(&config).await.map_err(|error| error.to_string())?;
    let store = Arc::new(store);
    match serve(store.clone(), &config, owner, source).await {
        Ok(following) => Ok(following),
        Err(error) => {
            context_store::Store::close(&*store).await;
            Err(error)
        }
    }
}

async fn serve(
    store: Arc<SqliteStore>,
    config: &Config,
    owner: OwnerId,
    source: Source,
) -> Result<Following, String> {
    let position = store
        .copy_of(&owner)
        .await
        .map_err(|error| format!("--to: {}", error.into_error("to").message))?;
    let metrics = CopyMetrics::default();
    if let Some(position) = &position {
        metrics.set_copy_revision(position.revision);
    }
    let (position, mut complete) = watch::channel(position);
    let follower = Follower {
        database: config.storage.db_path.clone(),
        store: store.clone(),
        owner,
        source,
        metrics: metrics.clone(),
        position,
    };
    let mut follower = tokio::spawn(follower.run());
    // Before the first snapshot there is nothing to serve.
    tokio::select! {
        why = &mut follower => return Err(ended(why)),
        Ok(_) = complete.wait_for(Option::is_some) => {}
    }
    let started = match listen(config).await {
        Ok(listeners) => start_copy(store, config, listeners, &metrics).await,
        Err(error) => Err(error),
    };
    match started {
        Ok(running) => Ok(Following { running, follower }),
        Err(error) => {
            follower.abort();
            Err(error.to_string())
        }
    }
}

impl Following {
    /// The service of the copy.
    #[must_use]
    pub const fn running(&self) -> &Running {
        &self.running
    }

    /// Serves until it is stopped.
    ///
    /// # Errors
    /// A sentence that says why following cannot continue. The service has stopped by then.
    pub async fn run(self) -> Result<(), String> {
        let Self {
            running,
            mut follower,
        } = self;
        let stop = running.stop();
        let serving = running.run();
        tokio::pin!(serving);
        tokio::select! {
            () = &mut serving => {
                follower.abort();
                Ok(())
            }
            why = &mut follower => {
                stop.cancel();
                serving.await;
                Err(ended(why))
            }
        }
    }
}

fn ended(why: Result<String, tokio::task::JoinError>) -> String {
    why.unwrap_or_else(|error| format!("following ended: {error}"))
}

/// The file that `sqlite://PATH` names. A relative path is below the current directory.
fn file(to: &str) -> Result<PathBuf, String> {
    match to.trim().strip_prefix("sqlite://") {
        Some(path) if !path.is_empty() => Ok(context_model::local::absolute(
            &context_model::local::expand_home(path),
        )),
        _ => Err("--to must be sqlite://PATH, as in sqlite:///home/me/copy.db".to_owned()),
    }
}
