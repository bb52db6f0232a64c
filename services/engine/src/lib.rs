//! The operations of the context service, the same for every transport and every database.
//!
//! A transport passes a request of `context-model` and a [`Caller`]. An operation checks the
//! caller's scope, validates the request and reports all violations at once, calls the [`Store`],
//! and builds the reply. It does not use status codes or connections.
//!
//! [`Engine`] consists of six components. Each has only what it needs. They depend on each other in
//! one direction: `contexts → background → retrieval → access`, `artifacts → retrieval`,
//! `changes → contexts, artifacts, retrieval`.
//!
//! | component | contents |
//! |---|---|
//! | [`contexts`](Engine::contexts) | storing, updating, fetching and deleting entries; threads |
//! | [`artifacts`](Engine::artifacts) | artifacts and their versions |
//! | [`changes`](Engine::changes) | the feed of changes |
//! | [`retrieval`](Engine::retrieval) | the four searches, the embedding model, reranking |
//! | [`access`](Engine::access) | callers, API keys, tokens, quotas, idempotency keys |
//! | [`background`](Engine::background) | late embeddings, summaries, checksums, removal of old changes, re-embedding |

mod access;
mod artifacts;
mod background;
mod changes;
mod clock;
mod config;
mod contexts;
mod coverage;
mod error;
mod ids;
mod lock;
mod read;
mod retrieval;
mod statistics;
mod validate;

pub use access::{
    AUDIT_LINES, AUTHENTICATION_REQUIRED, Access, Admin, Authenticated, Authenticator, Caller,
    Quotas, Rate, Reach, TokenRules, Tokens, ValidKey, WriteContext, issuer_prefix,
};
pub use artifacts::Artifacts;
pub use background::{Background, ChangesConfig, Reembedded, Reembedding, Summaries};
pub use changes::{Changes, MAX_WAIT, Step, Watch};
pub use clock::{Clock, SystemClock};
pub use config::{
    EmbeddingConfig, EngineConfig, OnFailure, RerankConfig, SearchConfig, StartError,
    SummaryConfig, Switch,
};
pub use context_model::Scope;
pub use contexts::Contexts;
pub use retrieval::Retrieval;

use std::sync::Arc;

use context_model::Result;
use context_store::Store;

use access::Writes;
use error::store_error;

/// The operations on one store.
pub struct Engine {
    /// Storing, updating, fetching and deleting entries; threads.
    pub contexts: Contexts,
    /// Artifacts and their versions.
    pub artifacts: Artifacts,
    /// The feed of changes.
    pub changes: Changes,
    /// The searches.
    pub retrieval: Arc<Retrieval>,
    /// API keys, authentication, and the operator's commands.
    pub access: Access,
    /// Background work.
    pub background: Background,
    store: Arc<dyn Store>,
    writes: Arc<Writes>,
}

impl Engine {
    /// Creates the operations on this store.
    ///
    /// # Errors
    /// If a switch is `true` for a feature that the configuration rules out.
    pub fn new(
        store: Arc<dyn Store>,
        config: EngineConfig,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, StartError> {
        config.check()?;
        let max_reply_bytes = read::max_reply_bytes(&config.limits);
        let access = Access::new(store.clone(), clock.clone(), config.auth);
        let writes = Arc::new(Writes::new(
            store.clone(),
            clock,
            config.quotas,
            config.idempotency_bytes,
        ));
        let retrieval = Arc::new(Retrieval::new(
            store.clone(),
            config.search,
            config.rerank,
            config.embedding,
            max_reply_bytes,
        ));
        let background = Background::new(
            store.clone(),
            retrieval.embeddings().clone(),
            config.summaries,
        );
        let contexts = Contexts::new(
            store.clone(),
            config.limits,
            writes.clone(),
            retrieval.embeddings().clone(),
            background.summaries.clone(),
        );
        Ok(Self {
            contexts,
            artifacts: Artifacts::new(
                store.clone(),
                writes.clone(),
                retrieval.clone(),
                max_reply_bytes,
            ),
            changes: Changes::new(store.clone()),
            retrieval,
            access,
            background,
            store,
            writes,
        })
    }

    /// Checks that the store responds to reads, has a schema that this binary can use, and has reported no damage.
    ///
    /// # Errors
    /// Why the store cannot serve reads.
    pub async fn check(&self) -> Result<()> {
        self.store.check().await.map_err(store_error)
    }

    /// Writes counted refusals to the audit log, finishes queued writes and closes the store.
    pub async fn close(&self) {
        self.access.flush().await;
        self.store.close().await;
    }
}
