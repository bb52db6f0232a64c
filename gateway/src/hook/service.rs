//! The requests of hooks to the service. Each may take the time that the hook has left.

#![expect(
    clippy::disallowed_methods,
    reason = "measures what is left of the hook's time"
)]

use std::time::{Duration, Instant};

use context_model::{Error, HybridHit, JsonObject, Reason, Result, SearchHit, Source, decode};
use context_proto::v1 as pb;
use serde_json::Value;
use tonic::metadata::MetadataMap;
use tonic::{Request, Response, Status};

use super::state::Message;
use crate::backend::Backend;

/// An entry that was found, as far as hooks need it.
#[derive(Debug, Clone)]
pub struct Hit {
    /// Its id.
    pub id: i64,
    /// Its thread.
    pub thread_id: String,
    /// Whether the person said it.
    pub is_user: bool,
    /// The day on which it was stored, 2026-01-31.
    pub day: String,
    /// The part of the text that matches best, if it is not at the start of a long text. Else the text, cut at
    /// SEARCH_TRUNCATION_LENGTH characters.
    pub text: String,
    /// How likely the entry is about the query, from 0 to 1; 0 without a query.
    pub relevance: f64,
    metadata: JsonObject,
}

impl Hit {
    /// The value of a metadata field, if it is a string.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<&str> {
        self.metadata.get(name)?.as_str()
    }
}

impl From<SearchHit> for Hit {
    fn from(hit: SearchHit) -> Self {
        let mut day = hit.created_at.to_string();
        day.truncate(10);
        Self {
            id: hit.id,
            thread_id: hit.thread_id,
            is_user: hit.source == Source::User,
            day,
            text: hit.snippet.unwrap_or(hit.text_content),
            relevance: hit.relevance.unwrap_or(0.0),
            metadata: hit.metadata.to_object().unwrap_or_default(),
        }
    }
}

/// The service, for the rest of the hook's time.
#[derive(Debug)]
pub struct Service {
    backend: Backend,
    metadata: MetadataMap,
    until: Instant,
}

impl Service {
    /// The service behind `backend`, until the moment `until`.
    #[must_use]
    pub const fn new(backend: Backend, metadata: MetadataMap, until: Instant) -> Self {
        Self {
            backend,
            metadata,
            until,
        }
    }

    /// The time that is left until the deadline.
    #[must_use]
    pub fn left(&self) -> Duration {
        self.until.saturating_duration_since(Instant::now())
    }

    /// Entries that match filters, newest first. `arguments` are the fields of a
    /// [`SearchContextRequest`](context_model::SearchContextRequest).
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for other fields, the service's error, or why there was no response.
    pub async fn search(&self, arguments: Value) -> Result<Vec<Hit>> {
        let request: context_model::SearchContextRequest = decode(arguments)?;
        let mut client = self.backend.contexts();
        let request = self.request(pb::SearchContextRequest::from(request), self.left());
        let reply = self.within(client.search_context(request), false).await?;
        let reply = context_model::SearchContextReply::try_from(reply)?;
        Ok(reply.results.into_iter().map(Hit::from).collect())
    }

    /// Entries that hybrid search finds, best first. `arguments` are the fields of a
    /// [`HybridSearchContextRequest`](context_model::HybridSearchContextRequest).
    ///
    /// # Errors
    /// As for [`search`](Self::search).
    pub async fn hybrid(&self, arguments: Value) -> Result<Vec<Hit>> {
        let request: context_model::HybridSearchContextRequest = decode(arguments)?;
        let mut client = self.backend.contexts();
        let request = self.request(pb::HybridSearchContextRequest::from(request), self.left());
        let reply = self
            .within(client.hybrid_search_context(request), false)
            .await?;
        let reply = context_model::HybridSearchContextReply::try_from(reply)?;
        let entries = reply.results.into_iter().filter_map(HybridHit::context);
        Ok(entries.map(Hit::from).collect())
    }

    /// Changes after a cursor. `arguments` are the fields of a
    /// [`ListChangesRequest`](context_model::ListChangesRequest).
    ///
    /// # Errors
    /// As for [`search`](Self::search).
    pub async fn changes(&self, arguments: Value) -> Result<pb::ListChangesResponse> {
        let request: context_model::ListChangesRequest = decode(arguments)?;
        let mut client = self.backend.changes();
        let request = self.request(pb::ListChangesRequest::from(request), self.left());
        self.within(client.list_changes(request), false).await
    }

    /// Stores a message and returns the entry's id.
    ///
    /// # Errors
    /// As for [`search`](Self::search).
    pub async fn store(&self, message: &Message) -> Result<i64> {
        let store = pb::StoreContextRequest {
            thread_id: message.thread_id.clone(),
            source: message.source.clone(),
            text: message.text.clone(),
            images: None,
            metadata: Some(context_proto::Object::from(&message.metadata)),
            tags: None,
        };
        // When most of this time is over, the service stores the message and makes its embedding later.
        let mut request = self.request(store, self.left());
        // Two processes that send the same message at the same time store it once.
        let key = message.id.parse().map_err(Error::internal)?;
        request.metadata_mut().insert("idempotency-key", key);
        let mut client = self.backend.contexts();
        let stored = self.within(client.store_context(request), true).await?;
        Ok(stored.context_id)
    }

    fn request<P>(&self, message: P, timeout: Duration) -> Request<P> {
        let mut request = Request::new(message);
        *request.metadata_mut() = self.metadata.clone();
        request.set_timeout(timeout);
        request
    }

    async fn within<R>(
        &self,
        call: impl Future<Output = std::result::Result<Response<R>, Status>>,
        is_write: bool,
    ) -> Result<R> {
        match tokio::time::timeout(self.left(), call).await {
            Ok(Ok(response)) => Ok(response.into_inner()),
            Ok(Err(status)) => Err(self.backend.error(&status, is_write)),
            Err(_) => Err(Error::new(
                Reason::DeadlineExceeded,
                format!("the context service at {} took too long", self.backend),
            )),
        }
    }
}
