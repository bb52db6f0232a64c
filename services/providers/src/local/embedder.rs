use std::sync::Arc;

use async_trait::async_trait;
use context_bert::{Encoded, Tokens};
use context_text::ChunkSizes;

use super::directory::{LoadError, ModelDirectory};
use super::prefixes::Prefixes;
use super::worker::{Output, Task, Urgency, Worker};
use crate::{
    Embedder, Model, ProviderError, QueryVectors, Reading, Role, TextVectors, TokenVectors,
};

/// Maximum total size of texts that are tokenized on the async worker, in bytes.
const SHORT_BYTES: usize = 4096;

/// Share of a query's letters that the vocabulary may lack, or of its symbols if it has no letters. With
/// all-MiniLM-L6-v2 the share is below 0.25 for questions in English, German, Polish, Turkish and Vietnamese. It is
/// above 0.45 for questions in Chinese, Japanese, Korean, Thai and Russian.
const MAX_UNREAD_SHARE: f64 = 0.35;
/// The numbers of pieces per word at which the fragmentation of a query is 0 and 1. With all-MiniLM-L6-v2, nine of ten
/// questions have fewer than 1.3 in English, fewer than 1.5 about code, and more than 1.6 in German.
const FRAGMENTED: (f64, f64) = (1.2, 2.0);

/// The configured chunk sizes, in tokens. Missing values are derived from the model.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ChunkSettings {
    /// Maximum number of tokens in a chunk. For a model inside the service, limited to what it reads.
    pub size: Option<usize>,
    /// Number of tokens shared by adjacent chunks. Limited to half a chunk.
    pub overlap: Option<usize>,
}

/// An embedding model that runs inside the service.
pub struct LocalEmbedder {
    model: Model,
    tokens: Arc<Tokens>,
    prefixes: Prefixes,
    worker: Worker,
    sizes: ChunkSizes,
}

impl LocalEmbedder {
    /// Loads the model. Takes about a tenth of a second for a small model, so it must not run on an async worker.
    ///
    /// # Errors
    /// A file is missing or malformed, or the network is of another kind.
    pub fn load(
        directory: &ModelDirectory,
        prefixes: Prefixes,
        chunks: ChunkSettings,
    ) -> Result<Self, LoadError> {
        let (network, tokens) = directory.load()?;
        let model = Model {
            provider: "local",
            name: directory.name().to_owned(),
            revision: directory.revision()?,
            dimensions: network.dimensions(),
        };
        // The two special tokens and the prefix take tokens too.
        let prefix = tokens.starts(&prefixes.document)?.len();
        let room = tokens.max().saturating_sub(2 + prefix).max(4);
        let target = chunks.size.map_or(room * 4 / 5, |size| size.clamp(4, room));
        let max = if chunks.size.is_some() { target } else { room };
        let sizes = ChunkSizes {
            target,
            max,
            overlap: chunks.overlap.unwrap_or(target * 12 / 100).min(target / 2),
        };
        let worker = Worker::start(network).map_err(|error| {
            LoadError::Unsupported(format!("its thread cannot be started: {error}"))
        })?;
        Ok(Self {
            model,
            tokens: Arc::new(tokens),
            prefixes,
            worker,
            sizes,
        })
    }

    async fn encode(&self, texts: Vec<String>, role: Role) -> Result<Vec<Encoded>, ProviderError> {
        let tokens = Arc::clone(&self.tokens);
        let prefix = self.prefixes.of(role).to_owned();
        let long = texts.iter().map(String::len).sum::<usize>() > SHORT_BYTES;
        let encode = move || {
            let one = |text: String| {
                if prefix.is_empty() {
                    tokens.encode(&text)
                } else {
                    tokens.encode(&format!("{prefix}{text}"))
                }
            };
            texts.into_iter().map(one).collect::<Result<Vec<_>, _>>()
        };
        let encoded = if long {
            tokio::task::spawn_blocking(encode)
                .await
                .map_err(|_| ProviderError::Malformed("the tokenizer failed".to_owned()))?
        } else {
            encode()
        };
        encoded.map_err(|error| ProviderError::Refused(error.to_string()))
    }
}

const fn urgency(role: Role) -> Urgency {
    match role {
        Role::Query => Urgency::Query,
        Role::Document => Urgency::Document,
        Role::LateDocument => Urgency::Background,
    }
}

#[async_trait]
impl Embedder for LocalEmbedder {
    fn model(&self) -> &Model {
        &self.model
    }

    fn chunk_sizes(&self) -> ChunkSizes {
        self.sizes
    }

    fn token_starts(&self, text: &str) -> Vec<usize> {
        self.tokens
            .starts(text)
            .unwrap_or_else(|_| context_text::estimated_tokens(text))
    }

    fn reading(&self, query: &str) -> Reading {
        let (from, to) = FRAGMENTED;
        match self.tokens.fit(query) {
            Ok(fit) => Reading {
                is_possible: fit.unread_share <= MAX_UNREAD_SHARE,
                fragmentation: ((fit.pieces_per_word - from) / (to - from)).clamp(0.0, 1.0),
            },
            Err(_) => Reading {
                is_possible: false,
                fragmentation: 1.0,
            },
        }
    }

    async fn embed(&self, texts: Vec<String>, role: Role) -> Result<Vec<Vec<f32>>, ProviderError> {
        let encoded = self.encode(texts, role).await?;
        let outputs = self.worker.run(Task::Embed, urgency(role), encoded).await?;
        Ok(outputs.into_iter().map(|output| output.values).collect())
    }

    async fn embed_with_tokens(
        &self,
        texts: Vec<String>,
        role: Role,
    ) -> Result<Vec<TextVectors>, ProviderError> {
        let encoded = self.encode(texts, role).await?;
        let outputs = self
            .worker
            .run(Task::EmbedWithTokens, urgency(role), encoded)
            .await?;
        Ok(outputs
            .into_iter()
            .map(|output| TextVectors {
                vector: output.values,
                tokens: output.tokens,
            })
            .collect())
    }

    async fn embed_query(&self, query: String) -> Result<QueryVectors, ProviderError> {
        let encoded = self.encode(vec![query], Role::Query).await?;
        let ids = encoded
            .iter()
            .flat_map(|encoded| self.tokens.content(encoded).to_vec())
            .collect();
        let mut outputs = self
            .worker
            .run(Task::EmbedAndTokens, Urgency::Query, encoded)
            .await?;
        let output = outputs
            .pop()
            .filter(|output| output.values.len() >= self.model.dimensions);
        let Some(Output {
            values: mut vector,
            tokens: _,
        }) = output
        else {
            return Err(ProviderError::Malformed(
                "the model returned no vector".to_owned(),
            ));
        };
        let vectors = vector.split_off(self.model.dimensions);
        Ok(QueryVectors {
            vector,
            tokens: Some(TokenVectors { ids, vectors }),
        })
    }

    fn has_token_vectors(&self) -> bool {
        true
    }

    async fn token_vectors(
        &self,
        texts: Vec<String>,
        role: Role,
    ) -> Result<Option<Vec<TokenVectors>>, ProviderError> {
        let encoded = self.encode(texts, role).await?;
        let ids: Vec<Vec<u32>> = encoded
            .iter()
            .map(|encoded| self.tokens.content(encoded).to_vec())
            .collect();
        // Only searches request token vectors, so they are urgent, whatever the role of the texts.
        let vectors = self
            .worker
            .run(Task::Tokens, Urgency::Query, encoded)
            .await?;
        Ok(Some(
            ids.into_iter()
                .zip(vectors)
                .map(|(ids, output)| TokenVectors {
                    ids,
                    vectors: output.values,
                })
                .collect(),
        ))
    }
}
