//! Reads safetensors files: eight bytes with the length of a JSON header, the header, the data.
//! <https://github.com/huggingface/safetensors#format>

use std::collections::HashMap;
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::ModelError;

/// Maximum size of a header, from the format's specification.
const MAX_HEADER_BYTES: u64 = 100_000_000;
/// Maximum size of a tensor. All weights of a BERT with 24 layers of 1024 take 1.3 GB.
const MAX_TENSOR_BYTES: u64 = 2_000_000_000;

#[derive(Deserialize)]
struct Entry {
    dtype: String,
    shape: Vec<usize>,
    data_offsets: (u64, u64),
}

/// The tensors of one file. Each is read when it is requested.
pub(crate) struct Tensors {
    path: PathBuf,
    file: File,
    data_start: u64,
    data_len: u64,
    entries: HashMap<String, Entry>,
    /// Prefix of the network's tensors: `bert.` in a model with a head. The classifier's have none.
    prefix: &'static str,
}

impl Tensors {
    pub fn open(path: &Path) -> Result<Self, ModelError> {
        let io = |source| ModelError::File {
            path: path.to_owned(),
            source,
        };
        let malformed = |what: &str| ModelError::Malformed {
            path: path.to_owned(),
            what: what.to_owned(),
        };
        let mut file = File::open(path).map_err(io)?;
        let file_len = file.metadata().map_err(io)?.len();
        let mut length = [0; 8];
        file.read_exact(&mut length).map_err(io)?;
        let length = u64::from_le_bytes(length);
        if length.saturating_add(8) > file_len {
            return Err(malformed("its header is longer than the file"));
        }
        if length > MAX_HEADER_BYTES {
            return Err(malformed(&format!(
                "its header has {length} bytes; the maximum is {MAX_HEADER_BYTES}"
            )));
        }
        let mut header = Vec::new();
        (&mut file)
            .take(length)
            .read_to_end(&mut header)
            .map_err(io)?;
        let mut names: HashMap<String, serde_json::Value> = serde_json::from_slice(&header)
            .map_err(|error| malformed(&format!("its header is not JSON: {error}")))?;
        names.remove("__metadata__");
        let mut entries = HashMap::with_capacity(names.len());
        for (name, value) in names {
            let entry = serde_json::from_value(value)
                .map_err(|error| malformed(&format!("tensor {name}: {error}")))?;
            entries.insert(name, entry);
        }
        let prefix = if entries.contains_key("bert.embeddings.word_embeddings.weight") {
            "bert."
        } else {
            ""
        };
        Ok(Self {
            path: path.to_owned(),
            file,
            data_start: 8 + length,
            data_len: file_len - 8 - length,
            entries,
            prefix,
        })
    }

    /// Whether there is a tensor of this name, with or without the network's prefix.
    pub fn has(&self, name: &str) -> bool {
        self.entries.contains_key(name)
            || self.entries.contains_key(&format!("{}{name}", self.prefix))
    }

    /// Reads the tensor of this name and shape, as 32-bit floats.
    pub fn take(&mut self, name: &str, shape: &[usize]) -> Result<Vec<f32>, ModelError> {
        let malformed = |what: String| ModelError::Malformed {
            path: self.path.clone(),
            what,
        };
        let prefixed = format!("{}{name}", self.prefix);
        let Some((name, entry)) = self
            .entries
            .get_key_value(&prefixed)
            .or_else(|| self.entries.get_key_value(name))
        else {
            return Err(malformed(format!("it has no tensor {prefixed}")));
        };
        if entry.shape != shape {
            return Err(malformed(format!(
                "tensor {name} has the shape {:?}, not {shape:?}",
                entry.shape
            )));
        }
        let width = match entry.dtype.as_str() {
            "F32" => 4,
            "F16" | "BF16" => 2,
            other => {
                return Err(malformed(format!(
                    "tensor {name} is {other}; F32, F16 and BF16 can be read"
                )));
            }
        };
        let (start, end) = entry.data_offsets;
        let expected = shape
            .iter()
            .try_fold(width, |size: u64, &side| size.checked_mul(side as u64));
        if end > self.data_len || end.checked_sub(start) != expected {
            return Err(malformed(format!(
                "tensor {name} does not lie within the file, or its shape and its length differ"
            )));
        }
        if expected.is_none_or(|size| size > MAX_TENSOR_BYTES) {
            return Err(malformed(format!(
                "tensor {name} is larger than {MAX_TENSOR_BYTES} bytes"
            )));
        }
        let mut bytes = vec![0; usize::try_from(end - start).unwrap_or(0)];
        let io = |source| ModelError::File {
            path: self.path.clone(),
            source,
        };
        self.file
            .seek(SeekFrom::Start(self.data_start + start))
            .map_err(io)?;
        self.file.read_exact(&mut bytes).map_err(io)?;
        let values: Vec<f32> = match entry.dtype.as_str() {
            "F32" => bytes
                .chunks_exact(4)
                .map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]))
                .collect(),
            "F16" => bytes
                .chunks_exact(2)
                .map(|b| half::f16::from_le_bytes([b[0], b[1]]).to_f32())
                .collect(),
            _ => bytes
                .chunks_exact(2)
                .map(|b| half::bf16::from_le_bytes([b[0], b[1]]).to_f32())
                .collect(),
        };
        if values.iter().all(|value| value.is_finite()) {
            Ok(values)
        } else {
            Err(malformed(format!(
                "tensor {name} holds values that are not finite"
            )))
        }
    }
}
