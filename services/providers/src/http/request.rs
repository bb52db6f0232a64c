//! One embedding request. If the server rejects the encoding, the request is sent again in another encoding. The
//! response is checked.

use std::sync::atomic::{AtomicBool, Ordering};

use super::client::{Access, Client};
use super::dialect::{Dialect, Encoding};
use crate::{ProviderError, Role};

/// Maximum number of dimensions.
pub(super) const MAX_DIMENSIONS: usize = 8_192;
/// Maximum number of tokens in one request, by a cautious estimate.
const REQUEST_TOKENS: usize = 100_000;
/// Response bytes allowed for each number: JSON writes up to about 24 characters.
const BYTES_PER_NUMBER: usize = 32;

/// Requests vectors from a model.
pub(super) struct Requests {
    client: Client,
    dialect: Dialect,
    name: String,
    /// Number of dimensions to request. `None` requests the model's own.
    wanted: Option<u32>,
    /// The number of dimensions. `None` until a vector has been received.
    dimensions: Option<usize>,
    /// Whether vectors are requested as lists: the API has no base64, or the server rejected it.
    no_base64: AtomicBool,
}

impl Requests {
    /// Requests vectors of the model `name`. `wanted` is the number of dimensions to request; `None` leaves it to the
    /// model.
    ///
    /// # Errors
    /// A sentence, when the address or the key cannot be used.
    pub fn new(
        access: &Access,
        dialect: Dialect,
        name: String,
        wanted: Option<u32>,
    ) -> Result<Self, String> {
        let client = Client::new(access, dialect.key_header())?;
        Ok(Self {
            client,
            dialect,
            name,
            wanted,
            dimensions: None,
            no_base64: AtomicBool::new(!dialect.has_base64()),
        })
    }

    /// Rejects vectors with any other number of dimensions from now on.
    pub fn expect(&mut self, dimensions: usize) {
        self.dimensions = Some(dimensions);
    }

    /// The room in an empty request.
    pub fn room(&self) -> Room {
        Room {
            texts: 0,
            tokens: 0,
            max_texts: self.dialect.max_texts(),
        }
    }

    /// Embeds texts in one request. If the request is too large, sends the texts in two halves.
    pub async fn embed_halving(
        &self,
        texts: &[String],
        role: Role,
    ) -> Result<Vec<Vec<f32>>, ProviderError> {
        match self.embed(texts, role).await {
            Err(ProviderError::Refused(what)) if texts.len() > 1 && is_too_large(&what) => {
                let (first, second) = texts.split_at(texts.len() / 2);
                let mut vectors = self.embed(first, role).await?;
                vectors.extend(self.embed(second, role).await?);
                Ok(vectors)
            }
            outcome => outcome,
        }
    }

    /// Embeds texts in one request.
    pub async fn embed(
        &self,
        texts: &[String],
        role: Role,
    ) -> Result<Vec<Vec<f32>>, ProviderError> {
        if self.no_base64.load(Ordering::Relaxed) {
            return self.embed_as(Encoding::Float, texts, role).await;
        }
        match self.embed_as(Encoding::Base64, texts, role).await {
            Err(ProviderError::Refused(what)) if is_about_encoding(&what) => {
                let vectors = self.embed_as(Encoding::Float, texts, role).await?;
                self.no_base64.store(true, Ordering::Relaxed);
                Ok(vectors)
            }
            outcome => outcome,
        }
    }

    async fn embed_as(
        &self,
        encoding: Encoding,
        texts: &[String],
        role: Role,
    ) -> Result<Vec<Vec<f32>>, ProviderError> {
        let max_response_bytes = 1024 * 1024
            + texts.len() * self.dimensions.unwrap_or(MAX_DIMENSIONS) * BYTES_PER_NUMBER;
        let request = self
            .dialect
            .request(&self.name, texts, role, self.wanted, encoding);
        let response = self
            .client
            .post(self.dialect.path(), &request, max_response_bytes)
            .await?;
        let vectors = self.dialect.vectors(response, texts.len())?;
        if vectors.iter().flatten().any(|value| !value.is_finite()) {
            return Err(ProviderError::Malformed(
                "a vector contains values that are not finite".to_owned(),
            ));
        }
        if self
            .dimensions
            .is_some_and(|dimensions| vectors.iter().any(|vector| vector.len() != dimensions))
        {
            return Err(ProviderError::Malformed(
                "a vector's length differs from the model's dimensions".to_owned(),
            ));
        }
        Ok(vectors)
    }
}

/// The room that is left in a request.
pub(super) struct Room {
    texts: usize,
    tokens: usize,
    max_texts: usize,
}

impl Room {
    /// Takes room for all of the texts, or returns false. The first texts always fit, however long they are.
    pub fn take(&mut self, texts: &[String]) -> bool {
        let tokens = self.tokens + texts.iter().map(|text| text.len() / 3 + 1).sum::<usize>();
        let fits = self.texts == 0
            || self.texts + texts.len() <= self.max_texts && tokens <= REQUEST_TOKENS;
        if fits {
            self.texts += texts.len();
            self.tokens = tokens;
        }
        fits
    }
}

/// Whether an error says that the request is too large.
fn is_too_large(what: &str) -> bool {
    what.starts_with("status 413") || what.starts_with("status 400") && what.contains("token")
}

/// Whether an error is about the requested encoding.
fn is_about_encoding(what: &str) -> bool {
    (what.starts_with("status 400") || what.starts_with("status 422"))
        && what.contains("encoding_format")
}

/// Whether the provider failed with status 500, which may be about the texts: some providers respond with it to a
/// text that they cannot read. An overloaded or absent provider has other statuses.
pub(super) fn is_internal_failure(error: &ProviderError) -> bool {
    matches!(error, ProviderError::Unavailable { what, .. } if what.starts_with("status 500"))
}

/// Whether other texts may succeed: the error lies in the request or the response, not in the key, the model or the
/// provider.
pub(super) fn is_about_texts(error: &ProviderError) -> bool {
    match error {
        ProviderError::Refused(what) => ["status 400", "status 413", "status 422"]
            .iter()
            .any(|status| what.starts_with(status)),
        ProviderError::Malformed(_) => true,
        ProviderError::Unavailable { .. } => false,
    }
}
