use async_trait::async_trait;
use serde_json::{Value, json};

use super::client::{Access, Client, KeyHeader};
use super::response;
use crate::reranker::probability;
use crate::{ProviderError, Reranker};

/// Maximum bytes of a response. Some servers always return the texts too.
const MAX_RESPONSE_BYTES: usize = 4 * 1024 * 1024;
/// How far a rounded score may lie outside 0 to 1.
const ROUNDING: f64 = 1e-3;

/// The API of a provider of rerankers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RerankDialect {
    /// Hugging Face text-embeddings-inference, `/rerank`.
    Tei,
    /// Cohere, `/v2/rerank`.
    Cohere,
    /// Jina AI and compatible servers, `/v1/rerank`.
    Jina,
    /// Voyage AI, `/v1/rerank`.
    Voyage,
}

impl RerankDialect {
    /// The provider's name in settings and statistics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tei => "tei",
            Self::Cohere => "cohere",
            Self::Jina => "jina",
            Self::Voyage => "voyage",
        }
    }

    /// The default address. All providers that have one require a key.
    #[must_use]
    pub const fn default_url(self) -> Option<&'static str> {
        match self {
            Self::Tei => None,
            Self::Cohere => Some("https://api.cohere.com"),
            Self::Jina => Some("https://api.jina.ai"),
            Self::Voyage => Some("https://api.voyageai.com"),
        }
    }

    /// The default model. Hosted providers replace their models every year, so a name here would soon be wrong.
    #[must_use]
    pub const fn default_model(self) -> Option<&'static str> {
        match self {
            // The server has one model. Requests do not name it.
            Self::Tei => Some("tei"),
            Self::Cohere | Self::Jina | Self::Voyage => None,
        }
    }

    const fn path(self) -> &'static str {
        match self {
            Self::Tei => "/rerank",
            Self::Cohere => "/v2/rerank",
            Self::Jina | Self::Voyage => "/v1/rerank",
        }
    }

    /// Maximum number of texts in one request.
    const fn max_texts(self) -> usize {
        match self {
            Self::Tei => 32,
            Self::Cohere | Self::Jina | Self::Voyage => 1_000,
        }
    }

    fn request(self, model: &str, query: &str, texts: &[String]) -> Value {
        match self {
            Self::Tei => {
                json!({"query": query, "texts": texts, "raw_scores": false, "return_text": false, "truncate": true})
            }
            Self::Cohere => json!({"model": model, "query": query, "documents": texts}),
            Self::Jina => {
                json!({"model": model, "query": query, "documents": texts, "return_documents": false})
            }
            Self::Voyage => {
                json!({"model": model, "query": query, "documents": texts, "return_documents": false, "truncation": true})
            }
        }
    }

    /// The scores of a response, in the order of the texts.
    fn scores(self, response: Value, texts: usize) -> Result<Vec<f64>, ProviderError> {
        let (pointer, score) = match self {
            Self::Tei => ("", "score"),
            Self::Cohere | Self::Jina => ("/results", "relevance_score"),
            Self::Voyage => ("/data", "relevance_score"),
        };
        let items = response::list(response, pointer)?;
        let scores = response::in_order(
            items
                .iter()
                .map(|item| (item["index"].as_u64(), item[score].as_f64())),
            texts,
        )?;
        let finite = scores
            .into_iter()
            .map(|score| score.filter(|score| score.is_finite()));
        finite
            .collect::<Option<_>>()
            .ok_or_else(|| response::malformed("a score is not a number"))
    }
}

/// A reranking model behind an HTTP API.
pub struct HttpReranker {
    client: Client,
    dialect: RerankDialect,
    model: String,
}

impl std::fmt::Debug for HttpReranker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HttpReranker")
            .field("dialect", &self.dialect)
            .field("model", &self.model)
            .finish_non_exhaustive()
    }
}

impl HttpReranker {
    /// Checks the address and the key, without a request.
    ///
    /// # Errors
    /// A sentence, when the address or the key cannot be used.
    pub fn new(
        access: &Access,
        dialect: RerankDialect,
        model: impl Into<String>,
    ) -> Result<Self, String> {
        Ok(Self {
            client: Client::new(access, KeyHeader::Bearer)?,
            dialect,
            model: model.into(),
        })
    }
}

#[async_trait]
impl Reranker for HttpReranker {
    fn provider(&self) -> &'static str {
        self.dialect.name()
    }

    fn model(&self) -> &str {
        &self.model
    }

    async fn rerank(&self, query: &str, texts: Vec<String>) -> Result<Vec<f64>, ProviderError> {
        if texts.is_empty() {
            return Ok(Vec::new());
        }
        // A search waits for the scores, so the requests are sent concurrently.
        let batches = texts.chunks(self.dialect.max_texts());
        let requests: Vec<Value> = batches
            .clone()
            .map(|texts| self.dialect.request(&self.model, query, texts))
            .collect();
        let responses = self
            .client
            .post_all(self.dialect.path(), &requests, MAX_RESPONSE_BYTES)
            .await?;
        let scores = responses
            .into_iter()
            .zip(batches)
            .map(|(response, texts)| self.dialect.scores(response, texts.len()));
        Ok(scaled(scores.collect::<Result<Vec<_>, _>>()?.concat()))
    }
}

/// Scales the scores to 0 to 1. Every provider documents that range, but some Jina-compatible servers (llama.cpp)
/// return the model's logits. Clamping those to 0 and 1 would lose their order.
fn scaled(scores: Vec<f64>) -> Vec<f64> {
    let are_logits = scores
        .iter()
        .any(|score| !(-ROUNDING..=1.0 + ROUNDING).contains(score));
    scores
        .into_iter()
        .map(|score| {
            if are_logits {
                probability(score)
            } else {
                score.clamp(0.0, 1.0)
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_stay_as_they_are_and_logits_keep_their_order() {
        assert_eq!(scaled(vec![0.25, 1.000_01, -0.000_01]), [0.25, 1.0, 0.0]);
        let logits = scaled(vec![-4.0, -8.5, 0.5, 3.0]);
        assert!(
            logits.iter().all(|score| (0.0..=1.0).contains(score)),
            "{logits:?}"
        );
        assert!(
            logits[1] < logits[0] && logits[0] < logits[2] && logits[2] < logits[3],
            "{logits:?}"
        );
    }
}
