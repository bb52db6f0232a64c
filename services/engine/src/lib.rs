//! The operations of the context service, the same for every transport and every database.
//!
//! A transport hands in a request of `context-model` and a [`Caller`]; the engine checks the caller's scope, checks
//! the request against every rule at once, calls the [`Store`] and words the reply. It knows no status code and no
//! connection.

mod admin;
mod artifact_lists;
mod artifact_versions;
mod artifacts;
mod auth;
mod backfill;
mod caller;
mod canonical;
mod clock;
mod config;
mod contexts;
mod delete;
mod diff;
mod embed;
mod fusion;
mod hits;
mod hybrid;
mod keys;
mod meaning;
mod quota;
mod rate;
mod reached;
mod reembed;
mod refusals;
mod rerank;
mod sealing;
mod search;
mod secret;
mod semantic;
mod statistics;
mod summary;
mod threads;
mod tokens;
mod truncate;
mod turns;
mod validate;
mod verify;

pub use admin::{AUDIT_LINES, Admin, ValidKey};
pub use auth::{AUTHENTICATION_REQUIRED, Authenticated, Authenticator};
pub use caller::{Caller, Reach, WriteContext};
pub use clock::{Clock, SystemClock};
pub use config::{EngineConfig, OnFailure, StartError, Switch};
pub use context_model::Scope;
pub use quota::Quotas;
pub use rate::Rate;
pub use reembed::{Reembedded, Reembedding};
pub use tokens::{TokenRules, Tokens, issuer_prefix};
pub use truncate::truncate;

use std::sync::Arc;
use std::time::Duration;

use context_model::{Error, Result};
use context_store::{Idempotency, Read, Store, StoreError, WriteOptions};
use context_text::{Analyzer, Language};

/// How long a read of a standby waits for `min_revision`.
const REVISION_WAIT: Duration = Duration::from_secs(5);

/// The operations over one store.
pub struct Engine {
    store: Arc<dyn Store>,
    config: EngineConfig,
    clock: Arc<dyn Clock>,
    analyzer: Analyzer,
    meaning: meaning::Meaning,
    counts: quota::Counts<context_store::Usage>,
    outcomes: quota::Counts<u64>,
    summaries: summary::Summaries,
    refusals: Arc<refusals::Refusals>,
}

impl Engine {
    /// The operations over this store.
    ///
    /// # Errors
    /// A switch is `true` for a feature that nothing in this installation could provide.
    pub fn new(
        store: Arc<dyn Store>,
        config: EngineConfig,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, StartError> {
        config.check()?;
        let analyzer =
            Analyzer::new(Language::parse(&config.fts_language).unwrap_or(Language::Unstemmed));
        let refusals = Arc::new(refusals::Refusals::new(store.clone(), clock.clone()));
        Ok(Self {
            refusals,
            store,
            config,
            clock,
            analyzer,
            meaning: meaning::Meaning::default(),
            counts: quota::Counts::default(),
            outcomes: quota::Counts::default(),
            summaries: summary::Summaries::default(),
        })
    }

    /// What the engine was configured with.
    #[must_use]
    pub const fn config(&self) -> &EngineConfig {
        &self.config
    }

    /// What tells callers by their keys.
    ///
    /// # Errors
    /// `FEATURE_UNAVAILABLE` when the database keeps no keys.
    pub fn authenticator(&self, rate: Option<Rate>) -> Result<Authenticator> {
        Authenticator::new(
            self.store.clone(),
            self.clock.clone(),
            rate,
            self.refusals.clone(),
        )
    }

    /// Whether the store answers now, with the schema of this binary.
    ///
    /// # Errors
    /// What keeps it from answering.
    pub async fn check(&self) -> Result<()> {
        self.store.check().await.map_err(store_error)
    }

    /// Writes down the refusals that were counted, finishes queued writes and closes the store.
    pub async fn close(&self) {
        self.refusals.flush().await;
        self.store.close().await;
    }

    fn read(min_revision: Option<i64>) -> Read {
        Read {
            min_revision,
            wait: REVISION_WAIT,
            as_of: None,
        }
    }

    fn write_options<T: serde::Serialize>(
        &self,
        caller: &Caller,
        operation: &str,
        request: &T,
        write: &WriteContext,
    ) -> Result<WriteOptions> {
        let idempotency = match &write.idempotency_key {
            Some(key) => {
                validate::idempotency_key(key)?;
                // What a narrowed caller's request means depends on how it is narrowed.
                let operation = match caller.within() {
                    Some(threads) => format!("{operation} within {:?}", threads.shown()),
                    None => operation.to_owned(),
                };
                Some(Idempotency {
                    key: key.clone(),
                    request_hash: canonical::hash(&operation, request)?,
                })
            }
            None => None,
        };
        Ok(WriteOptions {
            now: self.clock.now(),
            idempotency,
            key_id: caller.key_id.clone(),
            embeddings: Vec::new(),
        })
    }
}

fn store_error(error: StoreError) -> Error {
    error.into_error("items")
}
