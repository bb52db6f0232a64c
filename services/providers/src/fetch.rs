//! Fetching a model from the model hub, once: checked against a fingerprint, resumed where it broke off, and put in place
//! only when it is whole.

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, StatusCode, Uri, header};
use http_body_util::{BodyExt as _, Empty};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use sha2::{Digest as _, Sha256};

use crate::http::connector;

/// A hub sends a download on to another host, perhaps twice.
const REDIRECTS: usize = 5;
/// How long nothing may come until a download has failed.
const SILENCE: Duration = Duration::from_secs(30);

/// A file of a model on the hub.
#[derive(Debug, Clone, Copy)]
pub struct Pinned {
    /// Its path within the model.
    pub path: &'static str,
    /// Its size in bytes.
    pub bytes: u64,
    /// Its SHA-256, in hexadecimal.
    pub sha256: &'static str,
}

/// A model that can be fetched.
#[derive(Debug, Clone, Copy)]
pub struct Fetchable {
    /// What its directory is called.
    pub name: &'static str,
    /// Where it is on the hub.
    pub repository: &'static str,
    /// The files that are fetched.
    pub files: &'static [Pinned],
    /// Small files that are written here: their paths and contents.
    pub settings: &'static [(&'static str, &'static str)],
}

/// all-MiniLM-L6-v2: small, quick and good enough to begin with (Apache-2.0).
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

/// Why a model was not fetched. Each message is a sentence; what came so far is kept for the next attempt.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// The hub cannot be reached or answers otherwise than with the file.
    #[error("{} cannot be fetched: {what}", context_model::shown_url(url))]
    Hub {
        /// What was asked for.
        url: String,
        /// What happened.
        what: String,
    },
    /// What came is not the file that is expected.
    #[error(
        "{path} from the hub is not the expected file, so it was thrown away (its SHA-256 is {found})"
    )]
    Fingerprint {
        /// The file.
        path: &'static str,
        /// What it has instead.
        found: String,
    },
    /// A file cannot be written.
    #[error("{} cannot be written: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system says.
        #[source]
        source: std::io::Error,
    },
}

/// Fetches what is missing of a model into a directory. `progress` is told the file, the bytes that are there and the bytes
/// of it.
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

/// Goes on with what an earlier attempt left in `….part`, and renames it once it is whole and right.
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
    let (mut hash, mut have) = hashed(&part, file.bytes).map_err(io)?;
    let mut to = OpenOptions::new()
        .create(true)
        .append(true)
        .open(&part)
        .map_err(io)?;
    if have < file.bytes {
        let response = get(url, have).await.map_err(hub)?;
        if response.status() == StatusCode::OK && have > 0 {
            // It does not resume, so this is the file from its start.
            to.set_len(0).map_err(io)?;
            (hash, have) = (Sha256::new(), 0);
        }
        let mut body = response.into_body();
        loop {
            let frame = tokio::time::timeout(SILENCE, body.frame()).await;
            let frame = frame.map_err(|_| {
                hub(format!(
                    "nothing came for {} s; run it again to go on",
                    SILENCE.as_secs()
                ))
            })?;
            let Some(frame) = frame else { break };
            let frame =
                frame.map_err(|_| hub("the connection broke; run it again to go on".to_owned()))?;
            let Ok(data) = frame.into_data() else {
                continue;
            };
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
                "it ended after {have} of {} bytes; run it again to go on",
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
    drop(to);
    std::fs::rename(&part, target).map_err(|source| FetchError::File {
        path: target.to_owned(),
        source,
    })
}

/// The hash and the length of what an earlier attempt left; nothing of a file that is too long.
fn hashed(part: &Path, expected: u64) -> std::io::Result<(Sha256, u64)> {
    let mut hash = Sha256::new();
    let mut file = match File::open(part) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok((hash, 0)),
        Err(error) => return Err(error),
    };
    if file.metadata()?.len() > expected {
        drop(file);
        std::fs::remove_file(part)?;
        return Ok((hash, 0));
    }
    let (mut buffer, mut have) = (vec![0; 1 << 16], 0);
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok((hash, have)),
            read => {
                hash.update(&buffer[..read]);
                have += read as u64;
            }
        }
    }
}

/// The answer to a GET from this byte on, redirects followed.
async fn get(url: &str, from: u64) -> Result<http::Response<hyper::body::Incoming>, String> {
    let client: Client<_, Empty<Bytes>> = Client::builder(TokioExecutor::new()).build(connector()?);
    let mut uri: Uri = url.parse().map_err(|_| "it is not an address".to_owned())?;
    for _ in 0..=REDIRECTS {
        let mut request = Request::get(uri.clone()).header(header::USER_AGENT, "context-service");
        if from > 0 {
            request = request.header(header::RANGE, format!("bytes={from}-"));
        }
        let request = request
            .body(Empty::new())
            .map_err(|error| error.to_string())?;
        let response = tokio::time::timeout(SILENCE, client.request(request))
            .await
            .map_err(|_| "it does not answer".to_owned())?
            .map_err(|error| {
                if error.is_connect() {
                    "it cannot be connected to".to_owned()
                } else {
                    "the connection broke".to_owned()
                }
            })?;
        let status = response.status();
        if status.is_redirection() {
            let location = response
                .headers()
                .get(header::LOCATION)
                .and_then(|location| location.to_str().ok());
            uri = next(&uri, location.ok_or("it points nowhere")?)
                .ok_or("it points to what is no address")?;
            continue;
        }
        return if matches!(status, StatusCode::OK | StatusCode::PARTIAL_CONTENT) {
            Ok(response)
        } else {
            Err(format!("status {status}"))
        };
    }
    Err("it points on and on".to_owned())
}

/// Where a redirect leads, and never from https to http.
fn next(from: &Uri, location: &str) -> Option<Uri> {
    let to: Uri = location.parse().ok()?;
    if to.scheme().is_none() {
        let mut parts = from.clone().into_parts();
        parts.path_and_query = Some(location.parse().ok()?);
        return Uri::from_parts(parts).ok();
    }
    let weaker = from.scheme_str() == Some("https") && to.scheme_str() != Some("https");
    (!weaker && matches!(to.scheme_str(), Some("http" | "https"))).then_some(to)
}
