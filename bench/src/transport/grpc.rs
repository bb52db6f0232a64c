//! The gRPC client of the benchmarks.

use std::net::SocketAddr;

use context_proto::v1 as pb;
use context_proto::v1::context_service_client::ContextServiceClient;
use tonic::transport::{Channel, Endpoint};

use crate::Result;

/// A gRPC client with its own connection.
#[derive(Debug, Clone)]
pub struct Grpc(pub ContextServiceClient<Channel>);

/// A request.
#[derive(Debug, Clone)]
pub enum Message {
    Store(pb::StoreContextRequest),
    Get(pb::GetContextByIdsRequest),
    Search(pb::SearchContextRequest),
    FullText(pb::FtsSearchContextRequest),
    Semantic(pb::SemanticSearchContextRequest),
    Hybrid(pb::HybridSearchContextRequest),
    Threads(pb::ListThreadsRequest),
    Statistics(pb::GetStatisticsRequest),
}

/// A reply.
#[derive(Debug)]
pub enum Reply {
    Stored(pb::StoreContextResponse),
    Got(pb::GetContextByIdsResponse),
    Searched(pb::SearchContextResponse),
    FullText(pb::FtsSearchContextResponse),
    Semantic(pb::SemanticSearchContextResponse),
    Hybrid(Box<pb::HybridSearchContextResponse>),
    Threads(pb::ListThreadsResponse),
    Statistics(Box<pb::GetStatisticsResponse>),
}

impl Grpc {
    /// Connects over TCP.
    ///
    /// # Errors
    /// Nothing listens on this address.
    pub async fn connect(address: SocketAddr) -> Result<Self> {
        let channel = Endpoint::from_shared(format!("http://{address}"))?
            .connect()
            .await?;
        Ok(Self(
            ContextServiceClient::new(channel).max_decoding_message_size(64 << 20),
        ))
    }

    pub(super) async fn send(&mut self, message: Message) -> Result<Reply> {
        let client = &mut self.0;
        Ok(match message {
            Message::Store(request) => {
                Reply::Stored(client.store_context(request).await?.into_inner())
            }
            Message::Get(request) => {
                Reply::Got(client.get_context_by_ids(request).await?.into_inner())
            }
            Message::Search(request) => {
                Reply::Searched(client.search_context(request).await?.into_inner())
            }
            Message::FullText(request) => {
                Reply::FullText(client.fts_search_context(request).await?.into_inner())
            }
            Message::Semantic(request) => {
                Reply::Semantic(client.semantic_search_context(request).await?.into_inner())
            }
            Message::Hybrid(request) => Reply::Hybrid(Box::new(
                client.hybrid_search_context(request).await?.into_inner(),
            )),
            Message::Threads(request) => {
                Reply::Threads(client.list_threads(request).await?.into_inner())
            }
            Message::Statistics(request) => {
                Reply::Statistics(Box::new(client.get_statistics(request).await?.into_inner()))
            }
        })
    }
}

impl Reply {
    pub(super) fn stored_id(&self) -> Result<i64> {
        match self {
            Self::Stored(reply) if reply.success && !reply.duplicate => Ok(reply.context_id),
            other => Err(format!("nothing stored: {other:?}").into()),
        }
    }

    pub(super) fn text(&self) -> Result<String> {
        match self {
            Self::Got(reply) if reply.contexts.len() == 1 => {
                Ok(reply.contexts[0].text_content.clone())
            }
            other => Err(format!("no entry: {other:?}").into()),
        }
    }

    pub(super) fn ids(&self) -> Result<Vec<i64>> {
        match self {
            Self::Searched(reply) => Ok(reply.results.iter().map(|hit| hit.id).collect()),
            Self::FullText(reply) => Ok(reply.results.iter().map(|hit| hit.id).collect()),
            Self::Semantic(reply) => Ok(reply.results.iter().map(|hit| hit.id).collect()),
            Self::Hybrid(reply) => Ok(reply.results.iter().map(|hit| hit.id).collect()),
            other => Err(format!("no results: {other:?}").into()),
        }
    }

    pub(super) fn threads(&self) -> Result<usize> {
        match self {
            Self::Threads(reply) => Ok(reply.threads.len()),
            other => Err(format!("no threads: {other:?}").into()),
        }
    }

    pub(super) fn total(&self) -> Result<i64> {
        match self {
            Self::Statistics(reply) => Ok(reply.total_entries),
            other => Err(format!("no total: {other:?}").into()),
        }
    }
}
