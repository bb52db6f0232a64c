//! The measured operations, in the form of each transport.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use context_proto::v1 as pb;
use serde_json::{Map, Value, json};

use super::{grpc, http1};
use crate::corpus::Entry;

/// One call.
#[derive(Debug, Clone)]
pub enum Operation {
    /// store_context
    Store(Entry),
    /// get_context_by_ids with one id
    Get(i64),
    /// search_context by metadata
    Search(Query),
    /// fts_search_context in mode `match`
    FullText(String),
    /// semantic_search_context
    Semantic(Question),
    /// hybrid_search_context
    Hybrid(Question),
    /// list_threads
    Threads,
    /// get_statistics
    Statistics,
}

/// A metadata search with two equalities and a range, as agents typically send it.
#[derive(Debug, Clone)]
pub struct Query {
    /// `status`, equal.
    pub status: &'static str,
    /// `agent_name`, equal.
    pub agent_name: String,
    /// `priority`, at least.
    pub priority: i64,
}

/// A search for a text.
#[derive(Debug, Clone, Default)]
pub struct Question {
    /// The query.
    pub text: String,
    /// `agent_name`, equal. `None`: no filter.
    pub agent_name: Option<String>,
    /// The retrievers of a hybrid search. Empty: the default.
    pub retrievers: Vec<&'static str>,
    /// Number of results to return and to skip. `None`: the default.
    pub page: Option<(i64, i64)>,
}

/// Number of results of a search: the default of search_context.
pub const SEARCH_LIMIT: i64 = 30;
/// Number of results of a full-text search: the default of fts_search_context.
pub const FULL_TEXT_LIMIT: i64 = 5;
/// Number of threads of list_threads: the default of gRPC and REST. That of MCP is 50.
pub const THREAD_LIMIT: i64 = 1000;

impl Operation {
    pub(super) fn grpc(&self) -> grpc::Message {
        match self {
            Self::Store(entry) => grpc::Message::Store(store(entry)),
            Self::Get(id) => grpc::Message::Get(pb::GetContextByIdsRequest {
                context_ids: vec![*id],
                include_images: None,
                min_revision: None,
            }),
            Self::Search(query) => {
                let priority = pb::MetadataFilter {
                    key: "priority".into(),
                    operator: Some("gte".into()),
                    value: Some(pb::Value {
                        kind: Some(pb::value::Kind::IntValue(query.priority)),
                    }),
                    case_sensitive: None,
                };
                let filter = pb::Filter {
                    metadata: Some((&query.metadata()).into()),
                    metadata_filters: vec![priority],
                    ..pb::Filter::default()
                };
                grpc::Message::Search(pb::SearchContextRequest {
                    filter: Some(filter),
                    ..pb::SearchContextRequest::default()
                })
            }
            Self::FullText(query) => grpc::Message::FullText(pb::FtsSearchContextRequest {
                query: query.clone(),
                ..pb::FtsSearchContextRequest::default()
            }),
            Self::Semantic(question) => grpc::Message::Semantic(pb::SemanticSearchContextRequest {
                query: question.text.clone(),
                filter: question.filter(),
                limit: question.page.map(|(limit, _)| limit),
                offset: question.page.map(|(_, offset)| offset),
                ..pb::SemanticSearchContextRequest::default()
            }),
            Self::Hybrid(question) => grpc::Message::Hybrid(pb::HybridSearchContextRequest {
                query: question.text.clone(),
                search_modes: (!question.retrievers.is_empty()).then(|| pb::StringList {
                    values: question
                        .retrievers
                        .iter()
                        .map(ToString::to_string)
                        .collect(),
                }),
                filter: question.filter(),
                limit: question.page.map(|(limit, _)| limit),
                offset: question.page.map(|(_, offset)| offset),
                ..pb::HybridSearchContextRequest::default()
            }),
            Self::Threads => grpc::Message::Threads(pb::ListThreadsRequest::default()),
            Self::Statistics => grpc::Message::Statistics(pb::GetStatisticsRequest::default()),
        }
    }

    pub(super) fn rest(&self) -> http1::Message {
        let post = |path: &str| http1::Message::post(path, self.arguments().to_string());
        match self {
            Self::Store(_) => post("/v1/contexts"),
            Self::Get(id) => http1::Message::get(&format!("/v1/contexts/{id}")),
            Self::Search(_) => post("/v1/contexts/search"),
            Self::FullText(_) => post("/v1/contexts/search/fts"),
            Self::Semantic(_) => post("/v1/contexts/search/semantic"),
            Self::Hybrid(_) => post("/v1/contexts/search/hybrid"),
            Self::Threads => http1::Message::get("/v1/threads"),
            Self::Statistics => http1::Message::get("/v1/statistics"),
        }
    }

    pub(super) fn mcp(&self) -> Value {
        let tool = match self {
            Self::Store(_) => "store_context",
            Self::Get(_) => "get_context_by_ids",
            Self::Search(_) => "search_context",
            Self::FullText(_) => "fts_search_context",
            Self::Semantic(_) => "semantic_search_context",
            Self::Hybrid(_) => "hybrid_search_context",
            Self::Threads => "list_threads",
            Self::Statistics => "get_statistics",
        };
        call(tool, self.arguments())
    }

    fn arguments(&self) -> Value {
        match self {
            Self::Store(entry) => {
                let Entry {
                    thread_id,
                    source,
                    text,
                    metadata,
                    tags,
                    image,
                } = entry;
                let mut arguments = json!({"thread_id": thread_id, "source": source, "text": text, "metadata": metadata, "tags": tags});
                if let Some(image) = image {
                    arguments["images"] =
                        json!([{"data": BASE64.encode(image), "mime_type": "image/png"}]);
                }
                arguments
            }
            Self::Get(id) => json!({"context_ids": [id]}),
            Self::Search(query) => {
                json!({"metadata": query.metadata(), "metadata_filters": [{"key": "priority", "operator": "gte", "value": query.priority}]})
            }
            Self::FullText(query) => json!({"query": query}),
            Self::Semantic(question) | Self::Hybrid(question) => question.arguments(),
            Self::Threads => json!({"limit": THREAD_LIMIT}),
            Self::Statistics => json!({}),
        }
    }
}

impl Question {
    fn filter(&self) -> Option<pb::Filter> {
        let agent_name = self.agent_name.as_deref()?;
        Some(pb::Filter {
            metadata: Some((&metadata([("agent_name", agent_name)])).into()),
            ..pb::Filter::default()
        })
    }

    fn arguments(&self) -> Value {
        let mut arguments = json!({"query": self.text});
        if let Some(agent_name) = &self.agent_name {
            arguments["metadata"] = metadata([("agent_name", agent_name)]).into();
        }
        if !self.retrievers.is_empty() {
            arguments["search_modes"] = json!(self.retrievers);
        }
        if let Some((limit, offset)) = self.page {
            arguments["limit"] = limit.into();
            arguments["offset"] = offset.into();
        }
        arguments
    }
}

fn metadata<const N: usize>(fields: [(&str, &str); N]) -> Map<String, Value> {
    let field = |(name, value): (&str, &str)| (name.to_owned(), value.into());
    fields.into_iter().map(field).collect()
}

impl Query {
    fn metadata(&self) -> Map<String, Value> {
        metadata([("status", self.status), ("agent_name", &self.agent_name)])
    }
}

/// A JSON-RPC request that calls a tool.
pub fn call(tool: &str, arguments: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": tool, "arguments": arguments}})
}

/// The message that stores an entry.
pub fn store(entry: &Entry) -> pb::StoreContextRequest {
    let Entry {
        thread_id,
        source,
        text,
        metadata,
        tags,
        ..
    } = entry;
    let image = |image: &bytes::Bytes| pb::Image {
        data: image.clone().into(),
        mime_type: Some("image/png".into()),
        metadata: None,
    };
    pb::StoreContextRequest {
        thread_id: thread_id.clone(),
        source: (*source).to_owned(),
        text: text.clone(),
        images: entry.image.as_ref().map(|bytes| pb::ImageList {
            images: vec![image(bytes)],
        }),
        metadata: Some(metadata.into()),
        tags: Some(pb::StringList {
            values: tags.clone(),
        }),
    }
}
