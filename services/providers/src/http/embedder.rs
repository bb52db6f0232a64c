use std::sync::Arc;

use async_trait::async_trait;
use context_text::ChunkSizes;

use super::client::Access;
use super::dialect::Dialect;
use super::gather::Gather;
use super::request::{MAX_DIMENSIONS, Requests};
use crate::local::Prefixes;
use crate::{Embedder, Model, ProviderError, Role};

/// Chunk sizes in estimated tokens. Long texts make poor embeddings, so models with a larger limit get the same sizes.
const SIZES: ChunkSizes = ChunkSizes {
    target: 400,
    max: 500,
    overlap: 48,
};

/// A model of a provider.
#[derive(Debug, Clone)]
pub struct RemoteModel {
    /// The API that serves it.
    pub dialect: Dialect,
    /// Its name at the provider.
    pub name: String,
    /// Number of dimensions to request. `None` requests the model's own.
    pub dimensions: Option<u32>,
    /// Prefixes that are put before texts.
    pub prefixes: Prefixes,
    /// The configured chunk sizes.
    pub chunks: crate::local::ChunkSettings,
}

/// An embedding model behind an HTTP API.
pub struct HttpEmbedder {
    gather: Arc<Gather>,
    address: String,
    model: Model,
    prefixes: Prefixes,
    sizes: ChunkSizes,
}

impl std::fmt::Debug for HttpEmbedder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HttpEmbedder")
            .field("model", &self.model)
            .finish_non_exhaustive()
    }
}

impl HttpEmbedder {
    /// Checks the address and requests one vector, whose length gives the number of dimensions.
    ///
    /// # Errors
    /// `Refused` when the address, the key or the model cannot be used. `Unavailable` while the provider does not
    /// respond. `Malformed` when its response is not one vector of finite numbers.
    pub async fn connect(access: &Access, remote: RemoteModel) -> Result<Self, ProviderError> {
        let RemoteModel {
            dialect,
            name,
            dimensions: wanted,
            prefixes,
            chunks,
        } = remote;
        let target = chunks.size.map_or(SIZES.target, |size| size.max(4));
        let max = if chunks.size.is_some() {
            target
        } else {
            SIZES.max
        };
        let overlap = chunks.overlap.unwrap_or(if chunks.size.is_some() {
            target * 12 / 100
        } else {
            SIZES.overlap
        });
        let sizes = ChunkSizes {
            target,
            max,
            overlap: overlap.min(target / 2),
        };
        let mut requests =
            Requests::new(access, dialect, name.clone(), wanted).map_err(ProviderError::Refused)?;
        let probe = requests
            .embed(
                &[format!("{}dimensions", prefixes.document)],
                Role::Document,
            )
            .await?;
        let dimensions = probe.first().map_or(0, Vec::len);
        if wanted.is_some_and(|wanted| usize::try_from(wanted) != Ok(dimensions))
            || !(1..=MAX_DIMENSIONS).contains(&dimensions)
        {
            let rule = wanted.map_or_else(
                || format!("the allowed range is 1 to {MAX_DIMENSIONS}"),
                |wanted| format!("EMBEDDING_DIM is {wanted}"),
            );
            return Err(ProviderError::Refused(format!(
                "the model's vectors have {dimensions} dimensions, but {rule}"
            )));
        }
        requests.expect(dimensions);
        let model = Model {
            provider: dialect.name(),
            name,
            revision: String::new(),
            dimensions,
        };
        Ok(Self {
            gather: Arc::new(Gather::new(requests)),
            address: access.address(),
            model,
            prefixes,
            sizes,
        })
    }
}

#[async_trait]
impl Embedder for HttpEmbedder {
    fn model(&self) -> &Model {
        &self.model
    }

    fn address(&self) -> Option<&str> {
        Some(&self.address)
    }

    fn chunk_sizes(&self) -> ChunkSizes {
        self.sizes
    }

    fn token_starts(&self, text: &str) -> Vec<usize> {
        context_text::estimated_tokens(text)
    }

    async fn embed(
        &self,
        mut texts: Vec<String>,
        role: Role,
    ) -> Result<Vec<Vec<f32>>, ProviderError> {
        let prefix = self.prefixes.of(role);
        if !prefix.is_empty() {
            texts.iter_mut().for_each(|text| text.insert_str(0, prefix));
        }
        let mut vectors = Vec::with_capacity(texts.len());
        // One request after the other: a caller with many texts must not take every slot.
        while !texts.is_empty() {
            let mut room = self.gather.requests().room();
            let count = texts
                .iter()
                .take_while(|text| room.take(std::slice::from_ref(*text)))
                .count();
            let later = texts.split_off(count);
            vectors.extend(
                self.gather
                    .embed(std::mem::replace(&mut texts, later), role)
                    .await?,
            );
        }
        Ok(vectors)
    }
}
