use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use context_text::ChunkSizes;

use super::client::{Access, Client};
use super::dialect::{Dialect, Encoding};
use crate::local::Prefixes;
use crate::{Embedder, Model, ProviderError, Role};

/// Tokens, by our cautious estimate, in one request at most.
const REQUEST_TOKENS: usize = 100_000;
/// Bytes of an answer for each number in it: JSON writes up to about 24 characters.
const BYTES_PER_NUMBER: usize = 32;
/// The longest vectors there are.
const MAX_DIMENSIONS: usize = 8_192;
/// Estimated tokens of a chunk. Long contexts make poor embeddings, so a model that reads more gets no more.
const SIZES: ChunkSizes = ChunkSizes { target: 400, max: 500, overlap: 48 };

/// A model of a provider.
#[derive(Debug, Clone)]
pub struct RemoteModel {
    /// Which API it is behind.
    pub dialect: Dialect,
    /// Its name there.
    pub name: String,
    /// The length of vectors to ask for; `None`: the model's own.
    pub dimensions: Option<u32>,
    /// What stands before texts.
    pub prefixes: Prefixes,
    /// Tokens of a chunk and of the overlap, where they are wanted otherwise.
    pub wish: crate::local::ChunkWish,
}

/// An embedding model behind an HTTP API.
pub struct HttpEmbedder {
    client: Client,
    remote: RemoteModel,
    model: Model,
    sizes: ChunkSizes,
    /// Whether the server refused base64, as some that speak like OpenAI's do.
    lists_only: AtomicBool,
}

impl std::fmt::Debug for HttpEmbedder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HttpEmbedder").field("model", &self.model).finish_non_exhaustive()
    }
}

impl HttpEmbedder {
    /// Checks the address and asks the model for one vector, whose length says how long they are.
    ///
    /// # Errors
    /// `Refused` for an address, a key or a model that cannot be used; `Unavailable` while the provider does not answer.
    pub async fn connect(access: &Access, remote: RemoteModel) -> Result<Self, ProviderError> {
        let client = Client::new(access, remote.dialect.key_header()).map_err(ProviderError::Refused)?;
        let target = remote.wish.size.map_or(SIZES.target, |size| size.max(4));
        let max = if remote.wish.size.is_some() { target } else { SIZES.max };
        let overlap = remote.wish.overlap.unwrap_or(if remote.wish.size.is_some() { target * 12 / 100 } else { SIZES.overlap });
        let sizes = ChunkSizes { target, max, overlap: overlap.min(target / 2) };
        let model = Model { provider: remote.dialect.name(), name: remote.name.clone(), revision: String::new(), dimensions: 0 };
        let lists_only = AtomicBool::new(!remote.dialect.has_base64());
        let mut embedder = Self { client, remote, model, sizes, lists_only };
        let vector = embedder.embed(vec!["dimensions".to_owned()], Role::Document).await?.pop().unwrap_or_default();
        let wanted = embedder.remote.dimensions;
        if wanted.is_some_and(|wanted| usize::try_from(wanted) != Ok(vector.len())) || !(1..=MAX_DIMENSIONS).contains(&vector.len()) {
            let wanted = wanted.map_or_else(|| format!("1 to {MAX_DIMENSIONS}"), |wanted| wanted.to_string());
            return Err(ProviderError::Refused(format!("the model's vectors have {} dimensions, not {wanted}", vector.len())));
        }
        embedder.model.dimensions = vector.len();
        Ok(embedder)
    }

    /// Embeds some texts in one request; halves them once when they are too much for it.
    async fn request(&self, texts: &[String], role: Role) -> Result<Vec<Vec<f32>>, ProviderError> {
        match self.request_once(texts, role).await {
            Err(ProviderError::Refused(what)) if texts.len() > 1 && is_too_much(&what) => {
                let (first, second) = texts.split_at(texts.len() / 2);
                let mut vectors = self.request_once(first, role).await?;
                vectors.extend(self.request_once(second, role).await?);
                Ok(vectors)
            }
            outcome => outcome,
        }
    }

    async fn request_once(&self, texts: &[String], role: Role) -> Result<Vec<Vec<f32>>, ProviderError> {
        if self.lists_only.load(Ordering::Relaxed) {
            return self.request_in(Encoding::Float, texts, role).await;
        }
        match self.request_in(Encoding::Base64, texts, role).await {
            Err(ProviderError::Refused(what)) if is_about_encoding(&what) => {
                let vectors = self.request_in(Encoding::Float, texts, role).await?;
                self.lists_only.store(true, Ordering::Relaxed);
                Ok(vectors)
            }
            outcome => outcome,
        }
    }

    async fn request_in(&self, encoding: Encoding, texts: &[String], role: Role) -> Result<Vec<Vec<f32>>, ProviderError> {
        let RemoteModel { dialect, name, dimensions, .. } = &self.remote;
        let expected = if self.model.dimensions == 0 { MAX_DIMENSIONS } else { self.model.dimensions };
        let max_answer = 1024 * 1024 + texts.len() * expected * BYTES_PER_NUMBER;
        let answer = self.client.post(dialect.path(), &dialect.request(name, texts, role, *dimensions, encoding), max_answer).await?;
        let vectors = dialect.vectors(answer, texts.len())?;
        if vectors.iter().flatten().any(|value| !value.is_finite()) {
            return Err(ProviderError::Malformed("a vector holds values that are not finite".to_owned()));
        }
        if self.model.dimensions != 0 && vectors.iter().any(|vector| vector.len() != self.model.dimensions) {
            return Err(ProviderError::Malformed("a vector has another length than the model's".to_owned()));
        }
        Ok(vectors)
    }
}

/// Whether a refusal is about the size of the request.
fn is_too_much(what: &str) -> bool {
    what.starts_with("status 413") || what.starts_with("status 400") && what.contains("token")
}

/// Whether a refusal is about the form in which vectors were asked for.
fn is_about_encoding(what: &str) -> bool {
    (what.starts_with("status 400") || what.starts_with("status 422")) && what.contains("encoding_format")
}

#[async_trait]
impl Embedder for HttpEmbedder {
    fn model(&self) -> &Model {
        &self.model
    }

    fn chunk_sizes(&self) -> ChunkSizes {
        self.sizes
    }

    fn token_starts(&self, text: &str) -> Vec<usize> {
        context_text::estimated_tokens(text)
    }

    async fn embed(&self, texts: Vec<String>, role: Role) -> Result<Vec<Vec<f32>>, ProviderError> {
        let prefix = self.remote.prefixes.of(role);
        let texts: Vec<String> = if prefix.is_empty() { texts } else { texts.into_iter().map(|text| format!("{prefix}{text}")).collect() };
        let mut vectors = Vec::with_capacity(texts.len());
        let mut rest = texts.as_slice();
        while !rest.is_empty() {
            let mut tokens = 0;
            let fits = |text: &&String| {
                tokens += text.len() / 3 + 1;
                tokens <= REQUEST_TOKENS
            };
            let count = rest.iter().take(self.remote.dialect.max_texts()).take_while(fits).count().max(1);
            let (now, later) = rest.split_at(count);
            vectors.extend(self.request(now, role).await?);
            rest = later;
        }
        Ok(vectors)
    }
}
