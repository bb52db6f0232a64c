use std::sync::Arc;

use async_trait::async_trait;
use context_bert::Tokens;

use super::directory::{LoadError, ModelDirectory};
use super::worker::{Task, Urgency, Worker};
use crate::reranker::probability;
use crate::{ProviderError, Reranker};

/// A cross-encoder that runs inside the service.
pub struct LocalReranker {
    name: String,
    tokens: Arc<Tokens>,
    worker: Worker,
}

impl LocalReranker {
    /// Loads the model.
    ///
    /// # Errors
    /// A file is missing or malformed, the network is of another kind, or it has no classifier.
    pub fn load(directory: &ModelDirectory) -> Result<Self, LoadError> {
        let (network, tokens) = directory.load()?;
        if !network.is_cross_encoder() {
            return Err(LoadError::Unsupported(
                "it has no classifier, so it cannot rerank".to_owned(),
            ));
        }
        let worker = Worker::start(network).map_err(|error| {
            LoadError::Unsupported(format!("its thread cannot be started: {error}"))
        })?;
        Ok(Self {
            name: directory.name().to_owned(),
            tokens: Arc::new(tokens),
            worker,
        })
    }
}

#[async_trait]
impl Reranker for LocalReranker {
    fn provider(&self) -> &'static str {
        "local"
    }

    fn model(&self) -> &str {
        &self.name
    }

    async fn rerank(&self, query: &str, texts: Vec<String>) -> Result<Vec<f64>, ProviderError> {
        let (tokens, query) = (Arc::clone(&self.tokens), query.to_owned());
        let encode = move || {
            texts
                .iter()
                .map(|text| tokens.encode_pair(&query, text))
                .collect::<Result<Vec<_>, _>>()
        };
        let pairs = tokio::task::spawn_blocking(encode)
            .await
            .map_err(|_| ProviderError::Malformed("the tokenizer failed".to_owned()))?
            .map_err(|error| ProviderError::Refused(error.to_string()))?;
        let scores = self.worker.run(Task::Score, Urgency::Query, pairs).await?;
        Ok(scores
            .iter()
            .flat_map(|output| &output.values)
            .map(|logit| probability(f64::from(*logit)))
            .collect())
    }
}
