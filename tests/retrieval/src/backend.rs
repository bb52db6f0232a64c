//! Runs searches: on the engine in this process, or over a transport on a service.

use std::sync::Arc;

use clap::ValueEnum;
use context_engine::{
    Caller, EmbeddingConfig, Engine, EngineConfig, OnFailure, RerankConfig, SearchConfig, Switch,
};
use context_model::{HybridHit, SearchHit};
use context_providers::Embedder;
use context_store::Store;

use crate::Error;
use crate::clock::SetClock;
use crate::method::Request;

/// How searches reach the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Transport {
    /// Directly, in this process
    InProcess,
    /// Over gRPC, on a service
    Grpc,
    /// Over MCP on stdio, through a gateway to a service
    Mcp,
}

/// A transport to a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Remote {
    /// gRPC.
    Grpc,
    /// MCP on stdio.
    Mcp,
}

impl Transport {
    /// The transport to a service. `None` for searches in this process.
    pub const fn remote(self) -> Option<Remote> {
        match self {
            Self::InProcess => None,
            Self::Grpc => Some(Remote::Grpc),
            Self::Mcp => Some(Remote::Mcp),
        }
    }
}

/// The settings that differ between the rows of the table.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Setup {
    /// `ENABLE_RERANKING`.
    pub reranking: Switch,
    /// `HYBRID_CONTEXT_WEIGHT`.
    pub context_weight: f64,
}

/// The stored entries, and how searches reach them.
pub enum Entries {
    /// In this process.
    Local(Box<Local>),
    /// In a database on which services are started with these environment variables.
    InDatabase(Remote, Vec<(&'static str, String)>),
}

/// Entries in this process.
pub struct Local {
    /// The store.
    pub store: Arc<dyn Store>,
    /// The clock.
    pub clock: Arc<SetClock>,
    /// The embedding model, if there is one.
    pub embedder: Option<Arc<dyn Embedder>>,
    /// The settings, except for those that differ between the rows.
    pub config: EngineConfig,
}

/// What runs the searches: the engine or a service.
pub enum Backend {
    /// The engine.
    Engine(Box<Engine>),
    /// A service.
    Remote(Box<context_parity::Client>),
}

/// A result.
#[derive(Debug, Clone)]
pub struct Hit {
    /// The entry.
    pub id: i64,
    /// Its relevance, if the search has one.
    pub relevance: Option<f64>,
    /// The beginning of its text.
    pub opening: String,
    /// The part of its text that matches, if there is one.
    pub snippet: Option<String>,
    /// A part of its text in which the words of the query are marked, if the request asked for it.
    pub highlighted: Option<String>,
}

/// The results of a search.
#[derive(Debug, Default)]
pub struct Found {
    /// The results, best first.
    pub hits: Vec<Hit>,
    /// The lines of `explain_query`, if the request asked for them.
    pub plan: Vec<String>,
}

/// High enough that no request is cut off. The evaluation measures relevance, not speed.
const RERANK_TIMEOUT_MS: u32 = 60_000;

impl Local {
    /// The engine with these settings.
    ///
    /// # Errors
    /// An error of the engine.
    pub async fn engine(&self, setup: Setup) -> Result<Engine, Error> {
        let config = EngineConfig {
            search: SearchConfig {
                hybrid_context_weight: setup.context_weight,
                ..self.config.search.clone()
            },
            rerank: RerankConfig {
                enabled: setup.reranking,
                timeout_ms: RERANK_TIMEOUT_MS,
                ..self.config.rerank
            },
            embedding: EmbeddingConfig {
                // Entries without vectors would be measured as if they had some.
                on_failure: OnFailure::Fail,
                ..self.config.embedding
            },
            ..self.config.clone()
        };
        let engine = Engine::new(Arc::clone(&self.store), config, self.clock.clone())?;
        if let Some(embedder) = &self.embedder {
            engine
                .retrieval
                .use_embedder(Arc::clone(embedder))
                .await
                .map_err(|error| error.message)?;
        }
        Ok(engine)
    }
}

impl Entries {
    /// Opens a backend with this setup.
    ///
    /// # Errors
    /// An error of the engine.
    pub async fn open(&self, setup: Setup) -> Result<Backend, Error> {
        let (remote, settings) = match self {
            Self::Local(local) => return Ok(Backend::Engine(Box::new(local.engine(setup).await?))),
            Self::InDatabase(remote, settings) => (remote, settings),
        };
        let reranking = if setup.reranking == Switch::False {
            "false"
        } else {
            "auto"
        };
        let (weight, timeout) = (
            setup.context_weight.to_string(),
            RERANK_TIMEOUT_MS.to_string(),
        );
        let mut all: Vec<(&str, &str)> = settings
            .iter()
            .map(|(name, value)| (*name, value.as_str()))
            .collect();
        all.extend([
            ("ENABLE_RERANKING", reranking),
            ("HYBRID_CONTEXT_WEIGHT", &weight),
            ("RERANK_TIMEOUT_MS", &timeout),
        ]);
        let backend = match remote {
            Remote::Grpc => context_parity::Client::open_grpc_with(&all).await,
            Remote::Mcp => context_parity::Client::open_mcp_with(&all).await,
        };
        Ok(Backend::Remote(Box::new(backend)))
    }

    /// Closes the entries.
    pub async fn close(self) {
        match self {
            Self::Local(local) => local.store.close().await,
            Self::InDatabase(..) => {}
        }
    }
}

impl Backend {
    /// Runs a search.
    ///
    /// # Errors
    /// The error, if the reply has no results.
    pub async fn search(&mut self, request: Request) -> Result<Found, Error> {
        match self {
            Self::Engine(engine) => {
                let caller = Caller::local();
                let found = match request {
                    Request::Fts(request) => engine
                        .retrieval
                        .fts_search_context(&caller, request)
                        .await
                        .map(|reply| (reply.results, reply.stats)),
                    Request::Semantic(request) => engine
                        .retrieval
                        .semantic_search_context(&caller, request)
                        .await
                        .map(|reply| (reply.results, reply.stats)),
                    Request::Hybrid(request) => engine
                        .retrieval
                        .hybrid_search_context(&caller, request)
                        .await
                        .map(|reply| {
                            let entries = reply.results.into_iter();
                            let entries = entries.filter_map(HybridHit::context).collect();
                            (entries, reply.stats)
                        }),
                };
                let (results, stats) = found.map_err(|error| error.message)?;
                let hit = |hit: SearchHit| Hit {
                    id: hit.id,
                    relevance: hit.relevance,
                    opening: hit.text_content,
                    snippet: hit.snippet,
                    highlighted: hit.highlighted,
                };
                Ok(Found {
                    hits: results.into_iter().map(hit).collect(),
                    plan: stats.map_or_else(Vec::new, |stats| stats.query_plan),
                })
            }
            Self::Remote(backend) => {
                let (tool, arguments) = match request {
                    Request::Fts(request) => ("fts_search_context", serde_json::to_value(request)?),
                    Request::Semantic(request) => {
                        ("semantic_search_context", serde_json::to_value(request)?)
                    }
                    Request::Hybrid(request) => {
                        ("hybrid_search_context", serde_json::to_value(request)?)
                    }
                };
                match backend.call(tool, &arguments).await {
                    context_parity::Answer::Ok(reply) => {
                        let hit = |hit: &serde_json::Value| {
                            Ok::<_, Error>(Hit {
                                id: hit["id"].as_i64().ok_or("a result has no id")?,
                                relevance: hit["relevance"].as_f64(),
                                opening: hit["text_content"]
                                    .as_str()
                                    .unwrap_or_default()
                                    .to_owned(),
                                snippet: hit["snippet"].as_str().map(str::to_owned),
                                highlighted: hit["highlighted"].as_str().map(str::to_owned),
                            })
                        };
                        let results = reply["results"]
                            .as_array()
                            .ok_or("a reply has no results")?;
                        let plan = reply["stats"]["query_plan"].as_array();
                        let lines = plan.into_iter().flatten();
                        Ok(Found {
                            hits: results.iter().map(hit).collect::<Result<_, _>>()?,
                            plan: lines
                                .filter_map(|line| Some(line.as_str()?.to_owned()))
                                .collect(),
                        })
                    }
                    context_parity::Answer::Err(error) => Err(error["error"]
                        .as_str()
                        .unwrap_or("an error without a message")
                        .into()),
                }
            }
        }
    }

    /// Stops what was started for this backend, so that the next one can be opened.
    pub async fn close(self) {
        match self {
            Self::Engine(_) => {}
            Self::Remote(backend) => backend.close().await,
        }
    }
}
