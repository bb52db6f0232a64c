//! Artifacts and their versions.
//!
//! Each file has one kind of operation. `paths` moves and deletes artifacts by path, and `lists` also searches them.
//! `embed` and `diff` are helpers: the embedding of an artifact before a write, and the comparison of two versions.

mod create;
mod delete;
mod diff;
mod embed;
mod get;
mod lists;
mod paths;
mod update;
mod versions;

use std::sync::Arc;

use context_model::{Artifact, Error, Reason, Result, Violations, invalid_input};
use context_store::{Read, Store, StoreError, StoredArtifact};

use crate::access::Writes;
use crate::error::store_error;
use crate::retrieval::Retrieval;
use crate::{read, validate};

/// The operations on artifacts and their versions.
pub struct Artifacts {
    store: Arc<dyn Store>,
    writes: Arc<Writes>,
    retrieval: Arc<Retrieval>,
    max_reply_bytes: u64,
}

impl Artifacts {
    pub(crate) const fn new(
        store: Arc<dyn Store>,
        writes: Arc<Writes>,
        retrieval: Arc<Retrieval>,
        max_reply_bytes: u64,
    ) -> Self {
        Self {
            store,
            writes,
            retrieval,
            max_reply_bytes,
        }
    }
}

/// The read options of a single artifact.
fn artifact_read(min_revision: Option<i64>) -> Result<Read> {
    let mut violations = Violations::default();
    let min_revision = validate::min_revision(min_revision, &mut violations);
    violations.finish(()).map_err(invalid_input)?;
    Ok(read::at(min_revision))
}

/// The error of a store call. Internal errors get the documented sentence.
fn failed(error: StoreError, what: &str) -> Error {
    let mut error = store_error(error);
    if error.reason == Reason::Internal {
        error.message = format!("Failed to {what}");
    }
    error
}

/// Converts an artifact to the form of replies.
pub(crate) fn full(artifact: StoredArtifact) -> Artifact {
    let StoredArtifact {
        id,
        title,
        content,
        metadata,
        created_at,
        updated_at,
        version,
        path,
        title_given: _,
    } = artifact;
    Artifact {
        id: id.to_string(),
        title,
        content,
        metadata,
        path,
        created_at,
        updated_at,
        version,
    }
}
