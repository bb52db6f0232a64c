//! Collects changes that are written to the copy together.

use std::collections::HashMap;

use context_model::{ImageInput, JsonObject};
use context_store::{Change, Copied, CopiedArtifact, CopyPosition};

/// A batch is written at the end of a commit once it has this many changes, or this many bytes of text, metadata and
/// images.
const CHANGES: usize = 1000;
const BYTES: usize = 4 * 1024 * 1024;
/// A batch that is this many times larger is written even in the middle of a commit.
const HUGE: usize = 10;

/// Changes since the last write. A change carries the state at the time of sending, so the last change of each entry
/// and artifact is enough.
#[derive(Debug, Default)]
pub struct Batch {
    latest: HashMap<String, Copied>,
    changes: Vec<Change>,
    count: usize,
    bytes: usize,
    position: Option<CopyPosition>,
    is_whole: bool,
}

impl Batch {
    /// Adds the new state of an entry or artifact, or its deletion.
    pub fn add(&mut self, copied: Copied) {
        let (key, bytes) = match &copied {
            Copied::Entry(entry) => (
                entry.id.to_string(),
                entry.text_content.len()
                    + entry.metadata.as_str().len()
                    + image_bytes(entry.images.as_deref().unwrap_or_default()),
            ),
            Copied::EntryGone(id) => (id.to_string(), 0),
            Copied::Artifact(copied) => (copied.artifact.id.clone(), artifact_bytes(copied)),
            Copied::ArtifactGone(id) => (id.clone(), 0),
        };
        self.count += 1;
        self.bytes += bytes;
        self.latest.insert(key, copied);
    }

    /// Removes and returns the state of this artifact. The caller merges it with a later change and adds the result.
    pub fn take_artifact(&mut self, id: &str) -> Option<CopiedArtifact> {
        match self.latest.remove(id) {
            Some(Copied::Artifact(copied)) => Some(*copied),
            _ => None,
        }
    }

    /// Adds a row for the copy's feed of changes.
    pub fn record(&mut self, change: Change) {
        self.changes.push(change);
    }

    /// Sets the position after the last change, and whether its commit ends there.
    pub fn reached(&mut self, position: CopyPosition, is_whole: bool) {
        self.position = Some(position);
        self.is_whole = is_whole;
    }

    /// Whether the batch should be written now. `is_last`: no further change has arrived yet.
    pub fn is_due(&self, is_last: bool) -> bool {
        let is_full = |times| self.count >= CHANGES * times || self.bytes >= BYTES * times;
        self.position.is_some() && (self.is_whole && (is_last || is_full(1)) || is_full(HUGE))
    }

    /// Empties the batch. Returns the states of entries and artifacts, the rows of the feed, and the position after
    /// them; `None` without a position.
    pub fn take(&mut self) -> Option<(Vec<Copied>, Vec<Change>, CopyPosition)> {
        let Self {
            latest,
            changes,
            position,
            ..
        } = std::mem::take(self);
        position.map(|position| (latest.into_values().collect(), changes, position))
    }
}

/// Bytes of an artifact and its versions.
fn artifact_bytes(CopiedArtifact { artifact, versions }: &CopiedArtifact) -> usize {
    let bytes = |title: &str, content: &str, metadata: &JsonObject| {
        title.len() + content.len() + context_model::held_bytes(metadata)
    };
    let current = bytes(&artifact.title, &artifact.content, &artifact.metadata);
    let versions = versions.iter();
    let versions =
        versions.map(|version| bytes(&version.title, &version.content, &version.metadata));
    current + versions.sum::<usize>()
}

fn image_bytes(images: &[ImageInput]) -> usize {
    images.iter().map(|image| image.data.0.len()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn position(revision: i64) -> CopyPosition {
        CopyPosition {
            cursor: revision.to_string(),
            revision,
        }
    }

    #[test]
    fn a_commit_is_written_as_a_whole_unless_it_is_huge() {
        let mut batch = Batch::default();
        batch.add(Copied::EntryGone(0));
        batch.reached(position(1), false);
        assert!(!batch.is_due(true), "the commit continues");
        batch.reached(position(2), true);
        assert!(batch.is_due(true));
        assert!(!batch.is_due(false), "more has arrived");
        for id in 1..CHANGES as i64 {
            batch.add(Copied::EntryGone(id));
        }
        assert!(batch.is_due(false));
        batch.reached(position(3), false);
        assert!(!batch.is_due(false));
        for id in 0..(CHANGES * HUGE) as i64 {
            batch.add(Copied::EntryGone(id));
        }
        assert!(batch.is_due(false));
    }

    #[test]
    fn metadata_and_the_current_content_of_an_artifact_count() {
        let metadata = serde_json::json!({"key": "m".repeat(BYTES / 4)});
        let metadata = metadata.as_object().cloned().unwrap_or_default();
        let artifact = context_model::Artifact {
            id: "a".to_owned(),
            title: "title".to_owned(),
            content: "c".repeat(BYTES / 4),
            metadata: metadata.clone(),
            path: None,
            created_at: context_model::Timestamp(0),
            updated_at: context_model::Timestamp(0),
            version: 1,
        };
        let version = context_store::CopiedVersion {
            version: 1,
            title: "title".to_owned(),
            content: "c".repeat(BYTES / 4),
            metadata,
            at: context_model::Timestamp(0),
        };
        let mut batch = Batch::default();
        batch.add(Copied::Artifact(Box::new(CopiedArtifact {
            artifact,
            versions: vec![version],
        })));
        batch.reached(position(1), true);
        assert!(batch.is_due(false));
    }

    #[test]
    fn metadata_of_many_small_values_counts_with_what_it_takes_in_memory() {
        let values = vec![0; BYTES / size_of::<serde_json::Value>()];
        let metadata = serde_json::json!({"key": values});
        let artifact = context_model::Artifact {
            id: "a".to_owned(),
            title: "title".to_owned(),
            content: String::new(),
            metadata: metadata.as_object().cloned().unwrap_or_default(),
            path: None,
            created_at: context_model::Timestamp(0),
            updated_at: context_model::Timestamp(0),
            version: 1,
        };
        let mut batch = Batch::default();
        batch.add(Copied::Artifact(Box::new(CopiedArtifact {
            artifact,
            versions: Vec::new(),
        })));
        batch.reached(position(1), true);
        assert!(batch.is_due(false));
    }

    #[test]
    fn the_last_change_of_each_entry_is_kept() {
        let mut batch = Batch::default();
        assert_eq!(batch.take(), None);
        for _ in 0..3 {
            batch.add(Copied::EntryGone(7));
        }
        batch.reached(position(3), true);
        assert_eq!(
            batch.take(),
            Some((vec![Copied::EntryGone(7)], Vec::new(), position(3)))
        );
        assert!(!batch.is_due(true), "it is empty again");
    }
}
