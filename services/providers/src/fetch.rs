//! Downloads a model from the model hub once. Files are verified by their SHA-256, interrupted downloads are resumed,
//! and a file is put in place only when it is complete.

use std::error::Error as _;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use reqwest::redirect::Policy;
use reqwest::{Response, StatusCode, header};
use sha2::{Digest as _, Sha256};

use crate::error::no_connection;

/// Maximum number of redirects. A hub usually redirects a download once or twice.
const MAX_REDIRECTS: usize = 5;
/// A download fails when no data arrives for this long.
const STALL_TIMEOUT: Duration = Duration::from_secs(30);

/// A file of a model on the hub.
#[derive(Debug, Clone, Copy)]
pub struct Pinned {
    /// Path within the model.
    pub path: &'static str,
    /// Size in bytes.
    pub bytes: u64,
    /// SHA-256 in hexadecimal.
    pub sha256: &'static str,
}

/// A model that can be downloaded.
#[derive(Debug, Clone, Copy)]
pub struct Fetchable {
    /// Name of its directory.
    pub name: &'static str,
    /// Repository on the hub.
    pub repository: &'static str,
    /// The files to download.
    pub files: &'static [Pinned],
    /// Small files that are written locally: their paths and contents.
    pub settings: &'static [(&'static str, &'static str)],
}

/// The models that can be downloaded by name, the default one first.
pub const MODELS: [Fetchable; 3] = [ALL_MINILM_L6_V2, MULTILINGUAL_E5_SMALL, BGE_SMALL_EN_V1_5];

/// all-MiniLM-L6-v2: small, fast and good enough to start with (Apache-2.0).
pub const ALL_MINILM_L6_V2: Fetchable = Fetchable {
    name: "all-MiniLM-L6-v2",
    repository: "sentence-transformers/all-MiniLM-L6-v2",
    files: &[
        Pinned {
            path: "tokenizer.json",
            bytes: 466_247,
            sha256: "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
        },
        Pinned {
            path: "model.safetensors",
            bytes: 90_868_376,
            sha256: "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
        },
    ],
    settings: &[
        (
            "config.json",
            "{\"model_type\": \"bert\", \"hidden_size\": 384, \"num_hidden_layers\": 6, \"num_attention_heads\": 12,\n \
             \"intermediate_size\": 1536, \"hidden_act\": \"gelu\", \"max_position_embeddings\": 512, \"type_vocab_size\": 2,\n \
             \"vocab_size\": 30522, \"layer_norm_eps\": 1e-12}\n",
        ),
        (
            "1_Pooling/config.json",
            "{\"pooling_mode_mean_tokens\": true}\n",
        ),
        ("sentence_bert_config.json", "{\"max_seq_length\": 256}\n"),
    ],
};

/// multilingual-e5-small: about a hundred languages (MIT). Its tokenizer is the one of XLM-R.
pub const MULTILINGUAL_E5_SMALL: Fetchable = Fetchable {
    name: "multilingual-e5-small",
    repository: "intfloat/multilingual-e5-small",
    files: &[
        Pinned {
            path: "tokenizer.json",
            bytes: 17_082_730,
            sha256: "0b44a9d7b51c3c62626640cda0e2c2f70fdacdc25bbbd68038369d14ebdf4c39",
        },
        Pinned {
            path: "model.safetensors",
            bytes: 470_641_600,
            sha256: "1a55775f53449dac10a2bcbc312469fac40b96d53198c407081a831f81c98477",
        },
    ],
    settings: &[
        (
            "config.json",
            "{\"model_type\": \"bert\", \"hidden_size\": 384, \"num_hidden_layers\": 12, \"num_attention_heads\": 12,\n \
             \"intermediate_size\": 1536, \"hidden_act\": \"gelu\", \"max_position_embeddings\": 512, \"type_vocab_size\": 2,\n \
             \"vocab_size\": 250037, \"layer_norm_eps\": 1e-12}\n",
        ),
        (
            "1_Pooling/config.json",
            "{\"pooling_mode_mean_tokens\": true}\n",
        ),
        ("sentence_bert_config.json", "{\"max_seq_length\": 512}\n"),
        (
            "config_sentence_transformers.json",
            "{\"prompts\": {\"query\": \"query: \", \"document\": \"passage: \"}}\n",
        ),
    ],
};

/// bge-small-en-v1.5: better than the default model for English, twice as slow (MIT).
pub const BGE_SMALL_EN_V1_5: Fetchable = Fetchable {
    name: "bge-small-en-v1.5",
    repository: "BAAI/bge-small-en-v1.5",
    files: &[
        Pinned {
            path: "tokenizer.json",
            bytes: 711_396,
            sha256: "d241a60d5e8f04cc1b2b3e9ef7a4921b27bf526d9f6050ab90f9267a1f9e5c66",
        },
        Pinned {
            path: "model.safetensors",
            bytes: 133_466_304,
            sha256: "3c9f31665447c8911517620762200d2245a2518d6e7208acc78cd9db317e21ad",
        },
    ],
    settings: &[
        (
            "config.json",
            "{\"model_type\": \"bert\", \"hidden_size\": 384, \"num_hidden_layers\": 12, \"num_attention_heads\": 12,\n \
             \"intermediate_size\": 1536, \"hidden_act\": \"gelu\", \"max_position_embeddings\": 512, \"type_vocab_size\": 2,\n \
             \"vocab_size\": 30522, \"layer_norm_eps\": 1e-12}\n",
        ),
        (
            "1_Pooling/config.json",
            "{\"pooling_mode_cls_token\": true, \"pooling_mode_mean_tokens\": false}\n",
        ),
        ("sentence_bert_config.json", "{\"max_seq_length\": 512}\n"),
        (
            "config_sentence_transformers.json",
            "{\"prompts\": {\"query\": \"Represent this sentence for searching relevant passages: \"}}\n",
        ),
    ],
};

impl Fetchable {
    /// The model of this name, as in [`MODELS`].
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        MODELS.into_iter().find(|model| model.name == name)
    }
}

/// Why a model was not downloaded. Each message is a sentence. The next attempt resumes a partial download.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// The hub cannot be reached, or its response is not the file.
    #[error("{} cannot be downloaded: {what}", context_model::shown_url(url))]
    Hub {
        /// The requested URL.
        url: String,
        /// What happened.
        what: String,
    },
    /// The downloaded file is not the expected one.
    #[error(
        "{path} from the hub is not the expected file, so it was deleted (its SHA-256 is {found})"
    )]
    Fingerprint {
        /// The file.
        path: &'static str,
        /// The SHA-256 of the downloaded file.
        found: String,
    },
    /// A file cannot be written.
    #[error("{} cannot be written: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        #[source]
        source: std::io::Error,
    },
}

/// Downloads the missing files of a model into a directory. `progress` is called with the file, the number of bytes
/// present and the size of the file.
///
/// # Errors
/// [`FetchError`].
pub async fn fetch(
    model: &Fetchable,
    hub: &str,
    directory: &Path,
    mut progress: impl FnMut(&'static str, u64, u64),
) -> Result<(), FetchError> {
    for (path, content) in model.settings {
        let target = directory.join(path);
        write_settings(&target, content).map_err(|source| FetchError::File {
            path: target.clone(),
            source,
        })?;
    }
    for file in model.files {
        let target = directory.join(file.path);
        if target.is_file() {
            continue;
        }
        let url = format!(
            "{}/{}/resolve/main/{}",
            hub.trim_end_matches('/'),
            model.repository,
            file.path
        );
        download(&url, file, &target, &mut progress).await?;
    }
    Ok(())
}

fn write_settings(target: &Path, content: &str) -> std::io::Result<()> {
    if let Some(parent) = target.parent() {
        std::fs::create_dir_all(parent)?;
    }
    std::fs::write(target, content)
}

/// Resumes a partial download (`….part`) and renames the file once it is complete and verified.
async fn download(
    url: &str,
    file: &Pinned,
    target: &Path,
    progress: &mut impl FnMut(&'static str, u64, u64),
) -> Result<(), FetchError> {
    let part = target.with_extension("part");
    let io = |source| FetchError::File {
        path: part.clone(),
        source,
    };
    let hub = |what: String| FetchError::Hub {
        url: url.to_owned(),
        what,
    };
    let mut to = OpenOptions::new()
        .create(true)
        .read(true)
        .append(true)
        .open(&part)
        .map_err(io)?;
    // Two downloads would mix their bytes in the file, and each would verify only its own.
    if matches!(to.try_lock(), Err(TryLockError::WouldBlock)) {
        return Err(io(std::io::Error::other(
            "another process is downloading it",
        )));
    }
    let (mut hash, mut have) = hashed(&mut to, file.bytes).map_err(io)?;
    if have < file.bytes {
        let mut response = get(url, have).await.map_err(hub)?;
        if response.status() == StatusCode::OK && have > 0 {
            // The hub did not resume the download. The response is the whole file.
            to.set_len(0).map_err(io)?;
            (hash, have) = (Sha256::new(), 0);
        }
        let broke = |error: reqwest::Error| {
            let what = if error.is_timeout() {
                format!("no data arrived for {} s", STALL_TIMEOUT.as_secs())
            } else {
                "the connection broke".to_owned()
            };
            hub(format!("{what}; run the command again to resume"))
        };
        while let Some(data) = response.chunk().await.map_err(broke)? {
            have += data.len() as u64;
            if have > file.bytes {
                let _ = std::fs::remove_file(&part);
                return Err(hub(format!("it is longer than {} bytes", file.bytes)));
            }
            to.write_all(&data).map_err(io)?;
            hash.update(&data);
            progress(file.path, have, file.bytes);
        }
        if have < file.bytes {
            return Err(hub(format!(
                "it ended after {have} of {} bytes; run the command again to resume",
                file.bytes
            )));
        }
    }
    let found: String = hash
        .finalize()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    if found != file.sha256 {
        let _ = std::fs::remove_file(&part);
        return Err(FetchError::Fingerprint {
            path: file.path,
            found,
        });
    }
    to.sync_all().map_err(io)?;
    std::fs::rename(&part, target).map_err(|source| FetchError::File {
        path: target.to_owned(),
        source,
    })
}

/// The hash and the length of a partial download. Empties a file that is longer than `expected`.
fn hashed(part: &mut File, expected: u64) -> std::io::Result<(Sha256, u64)> {
    let mut hash = Sha256::new();
    if part.metadata()?.len() > expected {
        part.set_len(0)?;
    }
    let (mut buffer, mut have) = (vec![0; 1 << 16], 0);
    loop {
        match part.read(&mut buffer)? {
            0 => return Ok((hash, have)),
            read => {
                hash.update(&buffer[..read]);
                have += read as u64;
            }
        }
    }
}

/// Requests the file from byte `from` on and returns the response. Follows redirects.
async fn get(url: &str, from: u64) -> Result<Response, String> {
    let client = context_http::builder()
        .read_timeout(STALL_TIMEOUT)
        .redirect(redirects())
        .referer(false)
        .user_agent("context-service")
        .build()
        .map_err(|error| error.to_string())?;
    let mut request = client.get(url);
    if from > 0 {
        request = request.header(header::RANGE, format!("bytes={from}-"));
    }
    let response = request.send().await.map_err(|error| {
        let what = match error.source() {
            _ if error.is_builder() => "it is not a valid URL",
            Some(reason) if error.is_redirect() => return reason.to_string(),
            _ if error.is_connect() => no_connection(&error),
            _ if error.is_timeout() => "it does not respond",
            _ => "the connection broke",
        };
        what.to_owned()
    })?;
    match response.status() {
        StatusCode::OK | StatusCode::PARTIAL_CONTENT => Ok(response),
        status => Err(format!("status {status}")),
    }
}

/// Follows up to [`MAX_REDIRECTS`] redirects, but none from https to http.
fn redirects() -> Policy {
    Policy::custom(|redirect| {
        let from = redirect.previous();
        let is_weaker = from.last().is_some_and(|from| from.scheme() == "https")
            && redirect.url().scheme() != "https";
        if is_weaker {
            redirect.error("a redirect leads from https to another scheme")
        } else if from.len() > MAX_REDIRECTS {
            redirect.error("too many redirects")
        } else {
            redirect.follow()
        }
    })
}
