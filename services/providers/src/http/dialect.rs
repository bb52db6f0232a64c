//! The embedding APIs of the providers: their requests and responses.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::client::KeyHeader;
use super::response;
use crate::{ProviderError, Role};

/// The API of a provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    /// Ollama, `/api/embed`.
    Ollama,
    /// OpenAI and compatible servers, `/embeddings` below a base address that ends in `/v1`.
    OpenAi,
    /// Azure OpenAI, `/openai/v1/embeddings`. The model is the deployment's name.
    Azure,
    /// Hugging Face text-embeddings-inference, `/embed`.
    Tei,
    /// Voyage AI, `/v1/embeddings`.
    Voyage,
    /// Cohere, `/v2/embed`.
    Cohere,
}

/// The requested encoding of vectors. A response may use either encoding, because some servers support only one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Encoding {
    /// The bytes of the numbers. They take less than half the size of lists, and are read in a fraction of the time.
    Base64,
    /// Lists of numbers.
    Float,
}

impl Dialect {
    /// The provider's name in settings and statistics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ollama => "ollama",
            Self::OpenAi => "openai",
            Self::Azure => "azure",
            Self::Tei => "tei",
            Self::Voyage => "voyage",
            Self::Cohere => "cohere",
        }
    }

    /// The default address.
    #[must_use]
    pub const fn default_url(self) -> Option<&'static str> {
        match self {
            Self::Ollama => Some("http://localhost:11434"),
            Self::OpenAi => Some("https://api.openai.com/v1"),
            Self::Voyage => Some("https://api.voyageai.com"),
            Self::Cohere => Some("https://api.cohere.com"),
            Self::Azure | Self::Tei => None,
        }
    }

    /// The default model.
    #[must_use]
    pub const fn default_model(self) -> Option<&'static str> {
        match self {
            Self::Ollama => Some("embeddinggemma:latest"),
            Self::OpenAi => Some("text-embedding-3-small"),
            // The server has one model. Requests do not name it.
            Self::Tei => Some("tei"),
            Self::Azure | Self::Voyage | Self::Cohere => None,
        }
    }

    pub(super) const fn key_header(self) -> KeyHeader {
        match self {
            Self::Azure => KeyHeader::Named("api-key"),
            Self::Ollama | Self::OpenAi | Self::Tei | Self::Voyage | Self::Cohere => {
                KeyHeader::Bearer
            }
        }
    }

    pub(super) const fn path(self) -> &'static str {
        match self {
            Self::Ollama => "/api/embed",
            Self::OpenAi => "/embeddings",
            Self::Azure => "/openai/v1/embeddings",
            Self::Tei => "/embed",
            Self::Voyage => "/v1/embeddings",
            Self::Cohere => "/v2/embed",
        }
    }

    /// Maximum number of texts in one request.
    pub(super) const fn max_texts(self) -> usize {
        match self {
            Self::Ollama | Self::Tei => 32,
            Self::OpenAi | Self::Azure => 512,
            Self::Voyage => 128,
            Self::Cohere => 96,
        }
    }

    /// Whether the API documents [`Encoding::Base64`].
    pub(super) const fn has_base64(self) -> bool {
        match self {
            Self::OpenAi | Self::Azure | Self::Voyage => true,
            Self::Ollama | Self::Tei | Self::Cohere => false,
        }
    }

    /// The body of a request. `dimensions` requests vectors shorter than the model's own.
    pub(super) fn request(
        self,
        model: &str,
        texts: &[String],
        role: Role,
        dimensions: Option<u32>,
        encoding: Encoding,
    ) -> Value {
        let query = role == Role::Query;
        let mut body = match self {
            Self::Ollama => json!({"model": model, "input": texts, "truncate": true}),
            Self::OpenAi | Self::Azure => json!({"model": model, "input": texts}),
            Self::Tei => json!({"inputs": texts, "normalize": true, "truncate": true}),
            Self::Voyage => {
                json!({"model": model, "input": texts, "input_type": if query { "query" } else { "document" }, "truncation": true})
            }
            Self::Cohere => {
                json!({"model": model, "texts": texts, "embedding_types": ["float"], "truncate": "END",
                                   "input_type": if query { "search_query" } else { "search_document" }})
            }
        };
        let key = match self {
            Self::Ollama | Self::OpenAi | Self::Azure | Self::Tei => "dimensions",
            Self::Voyage | Self::Cohere => "output_dimension",
        };
        if let Some(dimensions) = dimensions {
            body[key] = json!(dimensions);
        }
        if encoding == Encoding::Base64 && self.has_base64() {
            body["encoding_format"] = json!("base64");
        }
        body
    }

    /// The vectors of a response, in the order of the texts.
    pub(super) fn vectors(
        self,
        response: Value,
        texts: usize,
    ) -> Result<Vec<Vec<f32>>, ProviderError> {
        let pointer = match self {
            Self::Ollama => "/embeddings",
            Self::Tei => "",
            Self::Cohere => "/embeddings/float",
            Self::OpenAi | Self::Azure | Self::Voyage => "/data",
        };
        let items = response::list(response, pointer)?;
        let is_indexed = matches!(self, Self::OpenAi | Self::Azure | Self::Voyage);
        let found = (0..).zip(&items).map(|(index, item)| {
            // Some OpenAI-compatible servers leave the index out.
            if is_indexed {
                (item["index"].as_u64().or(Some(index)), &item["embedding"])
            } else {
                (Some(index), item)
            }
        });
        response::in_order(found, texts)?
            .into_iter()
            .map(vector)
            .collect()
    }
}

/// A vector, from a list of numbers or from base64 of 4-byte little-endian floats.
fn vector(value: &Value) -> Result<Vec<f32>, ProviderError> {
    let wrong =
        || response::malformed("a vector is neither a list of numbers nor the base64 of one");
    if let Value::String(text) = value {
        let bytes = STANDARD.decode(text).map_err(|_| wrong())?;
        let (numbers, []) = bytes.as_chunks::<4>() else {
            return Err(wrong());
        };
        return Ok(numbers
            .iter()
            .map(|bytes| f32::from_le_bytes(*bytes))
            .collect());
    }
    value
        .as_array()
        .ok_or_else(wrong)?
        .iter()
        .map(|number| {
            number
                .as_f64()
                .map(|number| number as f32)
                .ok_or_else(wrong)
        })
        .collect()
}
