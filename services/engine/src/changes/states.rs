//! The current states of the entries and artifacts that changes are about.

use std::collections::{HashMap, HashSet};

use context_model::{ArtifactId, Error, Reason, Result};
use context_store::{Change, ChangeKind, Changed, Read, RowSelection, Store, StoredEntry, seal};

use super::selection::{Current, CurrentArtifact};
use crate::access::Caller;
use crate::error::store_error;
use crate::read;

/// Entries and artifacts as they are now.
#[derive(Default)]
pub(super) struct States {
    entries: HashMap<i64, StoredEntry>,
    /// By id. `None` for a damaged artifact.
    artifacts: HashMap<String, Option<CurrentArtifact>>,
    /// The revision of the newest state that was loaded, or 0 if nothing was read.
    pub revision: i64,
}

impl States {
    /// Loads the current state of everything that these changes have not deleted, without images. Texts and contents
    /// are cut after `text_chars` characters.
    ///
    /// # Errors
    /// `RESULT_TOO_LARGE` if several states have more than `max_bytes` bytes; `OVERLOADED` if the caller's memory
    /// budget is too small; the store's errors.
    pub async fn load(
        store: &dyn Store,
        caller: &Caller,
        changes: impl Iterator<Item = &Change> + Send,
        text_chars: Option<u32>,
        max_bytes: u64,
        read: Read,
    ) -> Result<Self> {
        let (mut entry_ids, mut artifact_ids) = (HashSet::new(), HashSet::new());
        for change in changes.filter(|change| change.kind != ChangeKind::Delete) {
            match &change.changed {
                Changed::Context { id, .. } => _ = entry_ids.insert(*id),
                Changed::Artifact { id } => _ = artifact_ids.insert(id.clone()),
            }
        }
        let mut states = Self::default();
        if !entry_ids.is_empty() {
            let selection = RowSelection {
                images: false,
                text_chars,
                explain: false,
                max_bytes,
                memory: caller.memory.clone(),
            };
            let page = store
                .get_contexts(
                    &caller.owner,
                    entry_ids.into_iter().collect(),
                    selection,
                    read,
                )
                .await
                .map_err(store_error)?;
            states.revision = page.revision;
            states.entries = page
                .entries
                .into_iter()
                .map(|entry| (entry.id, entry))
                .collect();
        }
        let mut bytes = states.bytes() as u64;
        for artifact_id in artifact_ids {
            let Ok(id) = ArtifactId::parse(&artifact_id) else {
                continue;
            };
            let found = store
                .artifacts()
                .get_artifact(&caller.owner, id, read)
                .await
                .map_err(store_error);
            match found {
                Ok(found) => {
                    states.revision = states.revision.max(found.revision);
                    if let Some(mut artifact) = found.value {
                        cut(&mut artifact.content, text_chars);
                        let artifact = CurrentArtifact::new(artifact);
                        let of_artifact = artifact.bytes() as u64;
                        caller.memory.take(of_artifact)?;
                        bytes += of_artifact;
                        states.artifacts.insert(artifact_id, Some(artifact));
                    }
                    let are_several = states.entries.len() + states.artifacts.len() > 1;
                    if are_several && bytes > max_bytes {
                        return Err(Error::new(
                            Reason::ResultTooLarge,
                            format!("the bodies of the changes have more than {max_bytes} bytes"),
                        ));
                    }
                }
                // A damaged artifact must not stop the feed.
                Err(error) if error.reason == Reason::StorageCorrupt => {
                    tracing::error!("Left the body of a change out: {}", error.message);
                    states.artifacts.insert(artifact_id, None);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(states)
    }

    /// The current state of the entry or artifact of this change. For a deletion it is always [`Current::Gone`], even
    /// if a standby without the deletion took over before the states were loaded.
    pub fn of(&self, change: &Change) -> Current<'_> {
        if change.kind == ChangeKind::Delete {
            return Current::Gone;
        }
        let found = match &change.changed {
            Changed::Context { id, .. } => self.entries.get(id).map(|entry| match entry.damage {
                None => Current::Entry(entry),
                Some(part) => {
                    let error = seal::refuse_context(entry.id, part);
                    tracing::error!("Left the body of a change out: {}", error.message);
                    Current::Damaged
                }
            }),
            Changed::Artifact { id } => self.artifacts.get(id).map(|artifact| {
                artifact
                    .as_ref()
                    .map_or(Current::Damaged, Current::Artifact)
            }),
        };
        found.unwrap_or(Current::Gone)
    }

    /// Bytes that the states took from the caller's memory budget.
    pub fn taken_bytes(&self) -> u64 {
        let artifacts = self.artifacts.values().flatten();
        let artifacts: usize = artifacts.map(CurrentArtifact::bytes).sum();
        read::taken_bytes(self.entries.values()) + artifacts as u64
    }

    /// The number of bytes of all texts and metadata.
    fn bytes(&self) -> usize {
        let entries = self.entries.values().map(Current::Entry);
        let artifacts = self.artifacts.values().flatten().map(Current::Artifact);
        entries
            .chain(artifacts)
            .map(|current| current.bytes())
            .sum()
    }
}

/// Cuts a text after `max_chars` characters, if given.
fn cut(text: &mut String, max_chars: Option<u32>) {
    let end = max_chars.and_then(|max| text.char_indices().nth(max as usize));
    if let Some((end, _)) = end {
        text.truncate(end);
        text.shrink_to_fit();
    }
}

#[cfg(test)]
mod tests {
    use context_model::Timestamp;

    use super::*;

    #[test]
    fn a_deletion_shows_nothing_although_the_states_are_of_another_database() {
        let id = "a";
        let states = States {
            artifacts: HashMap::from([(id.to_owned(), None)]),
            ..States::default()
        };
        let change = |kind| Change {
            revision: 1,
            at: Timestamp(0),
            kind,
            changed: Changed::Artifact { id: id.to_owned() },
            version: Some(1),
            key_id: None,
            commit_end: true,
        };
        assert!(matches!(
            states.of(&change(ChangeKind::Update)),
            Current::Damaged
        ));
        assert!(matches!(
            states.of(&change(ChangeKind::Delete)),
            Current::Gone
        ));
    }
}
