//! Selects the changes that a caller wants and may see.

use context_model::{
    ChangeOperation, ChangedEntity, Filter, FilterInput, JsonObject, ObjectText, Scope, Timestamp,
    Violations,
};
use context_store::{Change, ChangeKind, Changed, StoredArtifact, StoredEntry, oracle};

use crate::access::{Caller, Reach};

/// Maximum bytes of the bodies of a page with several changes.
const PAGE_BYTES: usize = 4 * 1024 * 1024;

/// Maximum number of characters of a preview.
pub(super) const MAX_PREVIEW_CHARS: i64 = 1000;

/// A validated selection.
pub(super) struct Selection {
    pub filter: Filter,
    entity: Option<ChangedEntity>,
    reach: Reach,
    /// Whether the caller may see which key made a change.
    pub shows_keys: bool,
    /// Whether changes include the current entry or artifact.
    pub include_body: bool,
    /// How many characters of the current text changes include.
    pub preview_chars: usize,
    /// Maximum bytes of the bodies of a page with several changes.
    pub page_bytes: usize,
}

/// The current state of the entry or artifact of a change.
pub(super) enum Current<'c> {
    /// It does not exist any more.
    Gone,
    /// It does not match its checksum, so it cannot be filtered or shown.
    Damaged,
    Entry(&'c StoredEntry),
    Artifact(&'c CurrentArtifact),
}

impl Current<'_> {
    /// Bytes of the text and the metadata.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Gone | Self::Damaged => 0,
            Self::Entry(entry) => entry.text.len() + entry.metadata.as_str().len(),
            Self::Artifact(artifact) => artifact.bytes(),
        }
    }
}

/// An artifact whose metadata is text, which can be many times smaller than the parsed form.
#[derive(Debug)]
pub(super) struct CurrentArtifact {
    /// Without its metadata.
    artifact: StoredArtifact,
    metadata: ObjectText,
    /// Approximate number of bytes of the parsed metadata.
    pub parsed_bytes: u64,
}

impl CurrentArtifact {
    pub fn new(mut artifact: StoredArtifact) -> Self {
        let metadata = std::mem::take(&mut artifact.metadata);
        let text = ObjectText::from(&metadata);
        Self {
            artifact,
            parsed_bytes: context_model::held_bytes(&metadata) as u64,
            metadata: text,
        }
    }

    pub fn content(&self) -> &String {
        &self.artifact.content
    }

    /// Bytes of the content and of the metadata's text.
    pub fn bytes(&self) -> usize {
        self.artifact.content.len() + self.metadata.as_str().len()
    }

    /// The artifact with its metadata.
    pub fn whole(&self) -> StoredArtifact {
        StoredArtifact {
            metadata: self.object(),
            ..self.artifact.clone()
        }
    }

    fn object(&self) -> JsonObject {
        // The text was made from an object.
        self.metadata.to_object().unwrap_or_default()
    }
}

impl Selection {
    pub fn new(
        caller: &Caller,
        filters: FilterInput,
        entity: Option<String>,
        include_body: bool,
        preview_chars: i64,
        violations: &mut Violations,
    ) -> Self {
        let (filter, _) = caller.filter(filters, violations);
        Self {
            filter,
            entity: entity.and_then(|name| ChangedEntity::read(&name, violations)),
            reach: caller.reach.clone(),
            shows_keys: caller.scopes.contains(&Scope::Manage),
            include_body,
            preview_chars: usize::try_from(preview_chars).unwrap_or(0),
            page_bytes: PAGE_BYTES,
        }
    }

    /// Applies the caller's present rights, which may have changed since the selection was made.
    pub fn narrow_to(&mut self, caller: &Caller) {
        self.filter.within = caller.within().cloned();
        self.reach = caller.reach.clone();
        self.shows_keys = caller.scopes.contains(&Scope::Manage);
    }

    /// Whether it can select entries.
    pub fn has_entries(&self) -> bool {
        self.entity != Some(ChangedEntity::Artifact) && self.reach != Reach::Artifacts
    }

    /// Whether it can select artifacts.
    pub fn has_artifacts(&self) -> bool {
        self.entity != Some(ChangedEntity::Context)
            && matches!(self.reach, Reach::All | Reach::Artifacts)
            && self.filter.thread_id.is_none()
            && self.filter.source.is_none()
            && self.filter.tags.is_none()
            && self.filter.content_type.is_none()
    }

    /// Whether an artifact satisfies the filters that apply to artifacts.
    pub fn matches_artifact(&self, created_at: Timestamp, metadata: &JsonObject) -> bool {
        let Filter {
            conditions,
            created_from,
            created_to,
            ..
        } = &self.filter;
        created_from.is_none_or(|from| from <= created_at)
            && created_to.is_none_or(|to| created_at <= to)
            && oracle::all_hold(conditions, metadata)
    }

    /// Whether the change itself shows that it is not selected: entity, thread and source never change.
    pub fn excludes(&self, change: &Change) -> bool {
        let is_included = match &change.changed {
            Changed::Context {
                id: _,
                thread_id,
                source,
            } => {
                let within = &self.filter.within;
                let wanted = &self.filter.thread_id;
                self.has_entries()
                    && within
                        .as_ref()
                        .is_none_or(|threads| threads.contains(thread_id))
                    && wanted.as_ref().is_none_or(|id| id.as_str() == thread_id)
                    && (self.filter.source.is_none()
                        || source.is_none()
                        || self.filter.source == *source)
            }
            Changed::Artifact { id: _ } => self.has_artifacts(),
        };
        !is_included
    }

    /// Whether a filter needs the current state, for a change that is not excluded.
    pub fn needs_state(&self, change: &Change) -> bool {
        let Filter {
            within: _,
            thread_id: _,
            source,
            tags,
            content_type,
            conditions,
            created_from,
            created_to,
        } = &self.filter;
        // Services from before the feed did not record the source.
        let is_of_unknown_source = matches!(change.changed, Changed::Context { source: None, .. });
        tags.is_some()
            || content_type.is_some()
            || !conditions.is_empty()
            || created_from.is_some()
            || created_to.is_some()
            || (source.is_some() && is_of_unknown_source)
    }

    /// Applies the filters to the current state. Returns the operation to report. `None` if the change is not reported.
    pub fn filter_by_state(
        &self,
        change: &Change,
        current: &Current<'_>,
    ) -> Option<ChangeOperation> {
        let matches = match current {
            Current::Gone => false,
            Current::Damaged => true,
            Current::Entry(entry) => oracle::matches(&self.filter, entry),
            Current::Artifact(artifact) => {
                self.matches_artifact(artifact.artifact.created_at, &artifact.object())
            }
        };
        match change.kind {
            kind if matches => Some(operation(kind)),
            ChangeKind::Create => None,
            ChangeKind::Update | ChangeKind::Restore | ChangeKind::Delete => {
                Some(ChangeOperation::Left)
            }
        }
    }
}

/// The operation that is reported for a change.
pub(super) const fn operation(kind: ChangeKind) -> ChangeOperation {
    match kind {
        ChangeKind::Create => ChangeOperation::Created,
        ChangeKind::Update => ChangeOperation::Updated,
        ChangeKind::Restore => ChangeOperation::Restored,
        ChangeKind::Delete => ChangeOperation::Deleted,
    }
}
