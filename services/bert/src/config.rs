//! Reads the configuration files of a model directory.

use std::path::Path;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::ModelError;

/// The fields of `config.json` that a BERT needs.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Config {
    #[serde(default)]
    pub model_type: String,
    pub hidden_size: usize,
    pub num_hidden_layers: usize,
    pub num_attention_heads: usize,
    pub intermediate_size: usize,
    pub hidden_act: String,
    pub max_position_embeddings: usize,
    pub type_vocab_size: usize,
    pub vocab_size: usize,
    #[serde(default = "epsilon")]
    pub layer_norm_eps: f32,
    #[serde(default)]
    pub position_embedding_type: Option<String>,
}

fn epsilon() -> f32 {
    1e-12
}

/// How the vectors of a text's tokens are combined into the text's vector.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pooling {
    /// The mean of all token vectors.
    Mean,
    /// The vector of the first token.
    First,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct SentenceFile {
    max_seq_length: Option<usize>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct TokenizerFile {
    /// A float, because tokenizers without a limit have 1e30 here.
    model_max_length: Option<f64>,
}

/// A step from a text to its vector.
#[derive(Debug, Deserialize)]
struct Module {
    #[serde(rename = "type")]
    class: String,
}

impl Config {
    /// Reads `config.json`.
    ///
    /// # Errors
    /// The file is missing or malformed, or the network is of a kind that this crate does not implement.
    pub fn load(directory: &Path) -> Result<Self, ModelError> {
        let path = directory.join("config.json");
        let config: Self = parse(&path)?.ok_or_else(|| ModelError::File {
            path: path.clone(),
            source: std::io::ErrorKind::NotFound.into(),
        })?;
        let supported = |ok: bool, what: String| {
            if ok {
                Ok(())
            } else {
                Err(ModelError::Unsupported(what))
            }
        };
        supported(
            matches!(config.model_type.as_str(), "bert" | ""),
            format!("it is a `{}` network, not a BERT", config.model_type),
        )?;
        supported(
            config.hidden_act == "gelu",
            format!("its activation is `{}`, not `gelu`", config.hidden_act),
        )?;
        let positions = config
            .position_embedding_type
            .as_deref()
            .unwrap_or("absolute");
        supported(
            positions == "absolute",
            format!("its positions are `{positions}`, not `absolute`"),
        )?;
        let sizes = [
            config.hidden_size,
            config.num_hidden_layers,
            config.num_attention_heads,
            config.intermediate_size,
            config.max_position_embeddings,
            config.type_vocab_size,
            config.vocab_size,
        ];
        supported(
            sizes.iter().all(|size| (1..=10_000_000).contains(size)),
            "a size in its config.json is out of range".to_owned(),
        )?;
        supported(
            config
                .hidden_size
                .is_multiple_of(config.num_attention_heads)
                && config.max_position_embeddings >= 8,
            "the sizes in its config.json do not fit together".to_owned(),
        )?;
        Ok(config)
    }
}

/// The pooling that the directory configures. The default is the mean.
pub(crate) fn pooling(directory: &Path) -> Result<Pooling, ModelError> {
    let path = directory.join("1_Pooling/config.json");
    let Some(file) = parse::<Map<String, Value>>(&path)? else {
        return Ok(Pooling::Mean);
    };
    // sentence-transformers 5.4 and later write `pooling_mode`. Earlier versions write a flag for each mode.
    let modes: Vec<&str> = match file.get("pooling_mode") {
        Some(mode) => vec![mode.as_str().unwrap_or_default()],
        None => file
            .iter()
            .filter(|(_, value)| **value == Value::Bool(true))
            .filter_map(|(name, _)| name.strip_prefix("pooling_mode_"))
            .collect(),
    };
    match modes.as_slice() {
        ["mean" | "mean_tokens"] => Ok(Pooling::Mean),
        ["cls" | "cls_token"] => Ok(Pooling::First),
        _ => Err(ModelError::Unsupported(
            "its pooling is neither the mean of the tokens nor the first token".to_owned(),
        )),
    }
}

/// Refuses a directory whose text vectors need a step that this crate does not compute, such as a dense layer.
pub(crate) fn check_modules(directory: &Path) -> Result<(), ModelError> {
    let modules: Vec<Module> = parse(&directory.join("modules.json"))?.unwrap_or_default();
    for Module { class } in modules {
        let name = class.rsplit('.').next().unwrap_or_default();
        // Dropout has no effect outside training.
        if !["Transformer", "Pooling", "Normalize", "Dropout"].contains(&name) {
            return Err(ModelError::Unsupported(format!(
                "its modules.json has a module {class}, which is not supported"
            )));
        }
    }
    Ok(())
}

/// Maximum number of tokens per text that the directory configures, special tokens included.
pub(crate) fn max_tokens(directory: &Path, config: &Config) -> Result<usize, ModelError> {
    let sentence: Option<SentenceFile> = parse(&directory.join("sentence_bert_config.json"))?;
    let max = match sentence.and_then(|file| file.max_seq_length) {
        Some(max) => Some(max),
        // sentence-transformers 5.4 and later write the maximum only here.
        None => parse::<TokenizerFile>(&directory.join("tokenizer_config.json"))?
            .and_then(|file| file.model_max_length)
            .map(|max| max as usize),
    };
    Ok(max
        .unwrap_or(config.max_position_embeddings)
        .clamp(8, config.max_position_embeddings))
}

/// The parsed file, or `None` when the file does not exist.
fn parse<T: DeserializeOwned>(path: &Path) -> Result<Option<T>, ModelError> {
    let text = match std::fs::read(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(source) => {
            return Err(ModelError::File {
                path: path.to_owned(),
                source,
            });
        }
    };
    serde_json::from_slice(&text)
        .map(Some)
        .map_err(|error| ModelError::Malformed {
            path: path.to_owned(),
            what: error.to_string(),
        })
}
