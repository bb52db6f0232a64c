//! Where questions are asked: at the engine itself, or over a wire at a service of its own.

use std::sync::Arc;

use clap::ValueEnum;
use context_engine::{
    Caller, EmbeddingConfig, Engine, EngineConfig, OnFailure, RerankConfig, SearchConfig, Switch,
};
use context_providers::Embedder;
use context_store::Store;

use crate::Error;
use crate::clock::SetClock;
use crate::way::Request;

/// What is between the question and the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Over {
    /// Nothing
    InProcess,
    /// gRPC, to a service
    Grpc,
    /// MCP on stdio, through a gateway to a service
    Mcp,
}

/// A wire to a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wire {
    /// gRPC.
    Grpc,
    /// MCP on stdio.
    Mcp,
}

impl Over {
    /// The wire, when there is one.
    pub const fn wire(self) -> Option<Wire> {
        match self {
            Self::InProcess => None,
            Self::Grpc => Some(Wire::Grpc),
            Self::Mcp => Some(Wire::Mcp),
        }
    }
}

/// The settings in which the rows of the table differ.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Setup {
    /// `ENABLE_RERANKING`.
    pub reranking: Switch,
    /// `HYBRID_CONTEXT_WEIGHT`.
    pub context_weight: f64,
}

/// The entries, for those who ask.
pub enum House {
    /// In this process.
    Own(Own),
    /// In a database that services are started on, with their settings as environment variables.
    Served(Wire, Vec<(&'static str, String)>),
}

/// Entries in this process.
pub struct Own {
    /// Where they are.
    pub store: Arc<dyn Store>,
    /// The time.
    pub clock: Arc<SetClock>,
    /// The model, when there is one.
    pub embedder: Option<Arc<dyn Embedder>>,
    /// The settings, apart from those in which the rows differ.
    pub config: EngineConfig,
}

/// Somebody to ask.
pub enum Door {
    /// The engine.
    Engine(Box<Engine>),
    /// A service.
    Wire(Box<context_parity::Door>),
}

/// No question may be cut short: what is measured is how well things are found, not how fast.
const RERANK_TIMEOUT_MS: u32 = 60_000;

impl Own {
    /// The operations with these settings.
    ///
    /// # Errors
    /// The engine's.
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
                // A set that was stored by half would be measured as if all were there.
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

impl House {
    /// A door, behind which everything is as this setup says.
    ///
    /// # Errors
    /// The engine's.
    pub async fn open(&self, setup: Setup) -> Result<Door, Error> {
        let (wire, settings) = match self {
            Self::Own(own) => return Ok(Door::Engine(Box::new(own.engine(setup).await?))),
            Self::Served(wire, settings) => (wire, settings),
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
        let door = match wire {
            Wire::Grpc => context_parity::Door::open_grpc_with(&all).await,
            Wire::Mcp => context_parity::Door::open_mcp_with(&all).await,
        };
        Ok(Door::Wire(Box::new(door)))
    }

    /// Lets go of the entries.
    pub async fn close(self) {
        match self {
            Self::Own(own) => own.store.close().await,
            Self::Served(..) => {}
        }
    }
}

impl Door {
    /// The ids of what is found, best first.
    ///
    /// # Errors
    /// Whatever the answer is instead of results.
    pub async fn ask(&mut self, request: Request) -> Result<Vec<i64>, Error> {
        match self {
            Self::Engine(engine) => {
                let caller = Caller::local();
                let found = match request {
                    Request::Fts(request) => engine
                        .retrieval
                        .fts_search_context(&caller, request)
                        .await
                        .map(|reply| reply.results),
                    Request::Semantic(request) => engine
                        .retrieval
                        .semantic_search_context(&caller, request)
                        .await
                        .map(|reply| reply.results),
                    Request::Hybrid(request) => engine
                        .retrieval
                        .hybrid_search_context(&caller, request)
                        .await
                        .map(|reply| reply.results),
                };
                Ok(found
                    .map_err(|error| error.message)?
                    .iter()
                    .map(|hit| hit.id)
                    .collect())
            }
            Self::Wire(door) => {
                let (tool, arguments) = match request {
                    Request::Fts(request) => ("fts_search_context", serde_json::to_value(request)?),
                    Request::Semantic(request) => {
                        ("semantic_search_context", serde_json::to_value(request)?)
                    }
                    Request::Hybrid(request) => {
                        ("hybrid_search_context", serde_json::to_value(request)?)
                    }
                };
                match door.call(tool, &arguments).await {
                    context_parity::Answer::Ok(reply) => {
                        let results = reply["results"]
                            .as_array()
                            .ok_or("a reply has no results")?;
                        results
                            .iter()
                            .map(|hit| {
                                hit["id"]
                                    .as_i64()
                                    .ok_or_else(|| "a result has no id".into())
                            })
                            .collect()
                    }
                    context_parity::Answer::Err(error) => Err(error["error"]
                        .as_str()
                        .unwrap_or("an error without a sentence")
                        .into()),
                }
            }
        }
    }

    /// Ends what was started for this door, so that the next may be opened.
    pub async fn close(self) {
        match self {
            Self::Engine(_) => {}
            Self::Wire(door) => door.close().await,
        }
    }
}
