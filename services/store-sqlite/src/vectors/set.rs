//! The set of vectors that is in use.

use std::collections::HashMap;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use context_store::EmbeddingModel;
use context_vector::{Change, Index};

/// The vectors of one model.
#[derive(Debug)]
pub(crate) struct Set {
    pub id: i64,
    pub model: EmbeddingModel,
    pub index: Index,
    /// Entries with vectors, by owner.
    entries: RwLock<HashMap<i64, AtomicI64>>,
}

impl Set {
    pub fn new(id: i64, model: EmbeddingModel) -> Self {
        let dimensions = usize::try_from(model.dimensions).unwrap_or(0);
        Self { id, model, index: Index::new(dimensions), entries: RwLock::default() }
    }

    /// Entries of this owner that have vectors.
    pub fn entries(&self, owner: i64) -> i64 {
        let entries = self.entries.read().unwrap_or_else(PoisonError::into_inner);
        entries.get(&owner).map_or(0, |count| count.load(Ordering::Relaxed))
    }

    pub fn count(&self, owner: i64, by: i64) {
        if by == 0 {
            return;
        }
        {
            let entries = self.entries.read().unwrap_or_else(PoisonError::into_inner);
            if let Some(count) = entries.get(&owner) {
                count.fetch_add(by, Ordering::Relaxed);
                return;
            }
        }
        let mut entries = self.entries.write().unwrap_or_else(PoisonError::into_inner);
        entries.entry(owner).or_default().fetch_add(by, Ordering::Relaxed);
    }
}

/// What readers and the writer share.
#[derive(Debug, Default)]
pub(crate) struct Vectors {
    current: RwLock<Option<Arc<Set>>>,
}

impl Vectors {
    pub fn current(&self) -> Option<Arc<Set>> {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The set in use, when it is of this model.
    pub fn of(&self, model: &EmbeddingModel) -> Option<Arc<Set>> {
        self.current().filter(|set| set.model == *model)
    }

    pub fn set_current(&self, set: Arc<Set>) {
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = Some(set);
    }
}

/// What the writer carries through a transaction.
#[derive(Debug)]
pub(crate) struct OpenVectors {
    pub shared: Arc<Vectors>,
    /// The number of the next chunk.
    pub next_chunk: i64,
    /// What the index is told after the commit.
    changes: Vec<Change>,
    /// Entries that got or lost vectors: owner and by how many.
    counts: Vec<(i64, i64)>,
}

/// A place in the changes of a transaction, to go back to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mark {
    changes: usize,
    counts: usize,
}

impl OpenVectors {
    pub fn new(shared: Arc<Vectors>, next_chunk: i64) -> Self {
        Self { shared, next_chunk, changes: Vec::new(), counts: Vec::new() }
    }

    pub fn push(&mut self, change: Change) {
        self.changes.push(change);
    }

    pub fn count(&mut self, owner: i64, by: i64) {
        self.counts.push((owner, by));
    }

    pub fn mark(&self) -> Mark {
        Mark { changes: self.changes.len(), counts: self.counts.len() }
    }

    /// Forgets what came after the mark: the part was undone.
    pub fn back_to(&mut self, mark: Mark) {
        self.changes.truncate(mark.changes);
        self.counts.truncate(mark.counts);
    }

    /// Forgets everything: the transaction was undone.
    pub fn clear(&mut self) {
        self.changes.clear();
        self.counts.clear();
    }

    /// Tells the index what was committed.
    pub fn publish(&mut self) {
        if self.changes.is_empty() {
            return;
        }
        if let Some(set) = self.shared.current() {
            set.index.apply(self.changes.drain(..));
            for (owner, by) in self.counts.drain(..) {
                set.count(owner, by);
            }
        }
        self.clear();
    }
}
