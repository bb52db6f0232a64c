//! A key in a file that another program updates: an issuer's tokens are valid for about an hour and
//! then replaced.

#![expect(
    clippy::disallowed_methods,
    reason = "measures how long ago the file was read"
)]

use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tonic::metadata::AsciiMetadataValue;

/// Minimum time between two checks of the file.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Only this many bytes at the beginning of the file are read.
const MAX_BYTES: u64 = 64 * 1024;

/// A file with a key.
#[derive(Debug)]
pub struct KeyFile {
    path: PathBuf,
    cached: Mutex<Cached>,
}

#[derive(Debug)]
struct Cached {
    key: Option<AsciiMetadataValue>,
    checked_at: Instant,
}

impl KeyFile {
    /// Opens the file and reads the key.
    ///
    /// # Errors
    /// A sentence if the file cannot be read, or if its content is not allowed in a header.
    pub fn open(path: &Path) -> Result<Self, String> {
        let text = read(path).map_err(|error| {
            format!(
                "CONTEXT_API_KEY_FILE is {}, which cannot be read: {error}",
                path.display()
            )
        })?;
        let cached = Cached {
            key: bearer(&text)?,
            checked_at: Instant::now(),
        };
        Ok(Self {
            path: path.to_owned(),
            cached: Mutex::new(cached),
        })
    }

    /// The current key. While the file is unreadable, empty or malformed, the previous key stays in use. A half-written
    /// key cannot be recognised, so the file should be replaced in one step.
    #[must_use]
    pub fn current(&self) -> Option<AsciiMetadataValue> {
        let mut cached = self.cached.lock().unwrap_or_else(PoisonError::into_inner);
        if cached.checked_at.elapsed() >= CHECK_INTERVAL {
            cached.checked_at = Instant::now();
            match read(&self.path).map(|text| bearer(&text)) {
                Ok(Ok(Some(key))) => cached.key = Some(key),
                Ok(Ok(None) | Err(_)) | Err(_) => {
                    tracing::warn!(
                        "The key file cannot be read or has no valid key; the previous key stays in use"
                    )
                }
            }
        }
        cached.key.clone()
    }
}

fn read(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    std::fs::File::open(path)?
        .take(MAX_BYTES)
        .read_to_string(&mut text)?;
    Ok(text)
}

/// The key as a bearer token; `None` if the text is empty.
///
/// # Errors
/// A sentence if the key holds characters that are not allowed in a header.
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
