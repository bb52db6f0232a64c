//! The key in a file that somebody else keeps up to date: tokens of an issuer are good for an hour and written anew.

use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tonic::metadata::AsciiMetadataValue;

/// How often the file is looked at, at most.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Longer files hold no key.
const MAX_BYTES: u64 = 64 * 1024;

/// A file with a key.
#[derive(Debug)]
pub struct KeyFile {
    path: PathBuf,
    held: Mutex<Held>,
}

#[derive(Debug)]
struct Held {
    key: Option<AsciiMetadataValue>,
    looked_at: Instant,
}

impl KeyFile {
    /// Reads the file for the first time.
    ///
    /// # Errors
    /// A sentence: it cannot be read, or what it holds cannot stand in a header.
    pub fn open(path: &Path) -> Result<Self, String> {
        let text = read(path).map_err(|error| {
            format!(
                "CONTEXT_API_KEY_FILE is {}, which cannot be read: {error}",
                path.display()
            )
        })?;
        let held = Held {
            key: bearer(&text)?,
            looked_at: Instant::now(),
        };
        Ok(Self {
            path: path.to_owned(),
            held: Mutex::new(held),
        })
    }

    /// The key as it is now. While the file cannot be read, or is being written, the one before counts.
    #[must_use]
    pub fn current(&self) -> Option<AsciiMetadataValue> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if held.looked_at.elapsed() >= LOOK_EVERY {
            held.looked_at = Instant::now();
            match read(&self.path).map(|text| bearer(&text)) {
                Ok(Ok(Some(key))) => held.key = Some(key),
                Ok(Ok(None) | Err(_)) | Err(_) => {
                    tracing::warn!("The file of the key cannot be used; the key before counts")
                }
            }
        }
        held.key.clone()
    }
}

fn read(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    std::fs::File::open(path)?
        .take(MAX_BYTES)
        .read_to_string(&mut text)?;
    Ok(text)
}

/// A key as a bearer token; `None` for an empty text.
///
/// # Errors
/// A sentence, when the key holds characters that cannot stand in a header.
pub(crate) fn bearer(key: &str) -> Result<Option<AsciiMetadataValue>, String> {
    let key = key.trim();
    if key.is_empty() {
        return Ok(None);
    }
    let mut value: AsciiMetadataValue = format!("Bearer {key}")
        .parse()
        .map_err(|_| "the API key holds characters that cannot be sent in a header".to_owned())?;
    value.set_sensitive(true);
    Ok(Some(value))
}
