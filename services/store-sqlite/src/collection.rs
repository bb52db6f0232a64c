//! What a search ranks: an owner's entries, or the documents of its artifacts. The row ids of documents are negative.

use context_store::DocumentKind;

/// The documents of one kind of one owner. Each collection has a full-text table and a part of the vector index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Collection {
    pub owner: i64,
    pub kind: DocumentKind,
}

impl Collection {
    /// The owner's entries.
    pub const fn entries(owner: i64) -> Self {
        Self {
            owner,
            kind: DocumentKind::Context,
        }
    }

    /// The documents of the owner's artifacts.
    pub const fn artifacts(owner: i64) -> Self {
        Self {
            owner,
            kind: DocumentKind::Artifact,
        }
    }

    /// The collection of this owner that has this row.
    pub const fn of_row(owner: i64, row_id: i64) -> Self {
        if row_id < 0 {
            Self::artifacts(owner)
        } else {
            Self::entries(owner)
        }
    }

    /// Its number in the vector index.
    pub const fn key(self) -> i64 {
        match self.kind {
            DocumentKind::Context => self.owner,
            DocumentKind::Artifact => -self.owner,
        }
    }

    /// The name of its full-text table.
    pub fn fts_table(self) -> String {
        match self.kind {
            DocumentKind::Context => format!("fts_{}", self.owner),
            DocumentKind::Artifact => format!("fts_artifacts_{}", self.owner),
        }
    }

    /// The table that a filter is evaluated on, under the name that compiled filters use.
    pub const fn rows(self) -> &'static str {
        match self.kind {
            DocumentKind::Context => "entries",
            DocumentKind::Artifact => "artifact_documents AS entries",
        }
    }
}
