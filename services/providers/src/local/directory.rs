//! The directory of a model.

use std::fs::File;
use std::path::{Path, PathBuf};

use context_bert::{Model, ModelError, Tokens};
use serde::Deserialize;
use sha2::{Digest as _, Sha256};

use super::prefixes::Prefixes;

/// Why a model could not be loaded from a directory.
pub type LoadError = ModelError;

/// A directory in the layout of sentence-transformers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelDirectory {
    path: PathBuf,
    name: String,
}

/// The file of sentence-transformers that has a model's prefixes, there called prompts.
const PROMPTS: &str = "config_sentence_transformers.json";

#[derive(Deserialize, Default)]
#[serde(default)]
struct PromptsFile {
    prompts: Prompts,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Prompts {
    query: Option<String>,
    document: Option<String>,
    passage: Option<String>,
}

impl ModelDirectory {
    /// A directory by its path. `name` is the name of the model. Without it the directory's own name is used.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>, name: Option<&str>) -> Self {
        let path = path.into();
        let own = || {
            path.file_name().map_or_else(
                || "model".to_owned(),
                |name| name.to_string_lossy().into_owned(),
            )
        };
        let name = name.map_or_else(own, str::to_owned);
        Self { path, name }
    }

    /// The path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The model's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Identifies this version of the model: the first part of its weights' SHA-256.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn revision(&self) -> Result<String, LoadError> {
        let path = self.path.join("model.safetensors");
        let mut hash = Sha256::new();
        File::open(&path)
            .and_then(|mut file| std::io::copy(&mut file, &mut hash))
            .map_err(|source| ModelError::File {
                path: path.clone(),
                source,
            })?;
        Ok(hash
            .finalize()
            .iter()
            .take(6)
            .map(|byte| format!("{byte:02x}"))
            .collect())
    }

    /// The prefixes that the directory configures. Empty when it configures none.
    ///
    /// # Errors
    /// The file cannot be read or is malformed.
    pub fn prefixes(&self) -> Result<Prefixes, LoadError> {
        let path = self.path.join(PROMPTS);
        let file = match std::fs::read(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Ok(Prefixes::default());
            }
            Err(source) => return Err(ModelError::File { path, source }),
        };
        let PromptsFile { prompts } =
            serde_json::from_slice(&file).map_err(|error| ModelError::Malformed {
                path,
                what: error.to_string(),
            })?;
        Ok(Prefixes {
            query: prompts.query.unwrap_or_default(),
            document: prompts.document.or(prompts.passage).unwrap_or_default(),
        })
    }

    /// Whether all files of a model are present.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        ["config.json", "tokenizer.json", "model.safetensors"]
            .iter()
            .all(|file| self.path.join(file).is_file())
    }

    pub(crate) fn load(&self) -> Result<(Model, Tokens), LoadError> {
        Ok((Model::load(&self.path)?, Tokens::load(&self.path)?))
    }
}
