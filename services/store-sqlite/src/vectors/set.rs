//! The vector sets in memory: the one in use, the one that will replace it, and for a short time the one that it
//! replaced.

#![expect(clippy::disallowed_methods, reason = "how long a replaced set stays")]

use std::collections::HashMap;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::{Duration, Instant};

use context_store::EmbeddingModel;
use context_vector::{Change, Index, Precision};

/// The vectors of one model.
#[derive(Debug)]
pub(crate) struct Set {
    pub id: i64,
    pub model: EmbeddingModel,
    pub index: Index,
    /// Number of entries or artifacts with vectors, by [`Collection::key`](crate::collection::Collection::key).
    entries: RwLock<HashMap<i64, AtomicI64>>,
}

impl Set {
    pub fn new(id: i64, model: EmbeddingModel, precision: Precision) -> Self {
        let dimensions = usize::try_from(model.dimensions).unwrap_or(0);
        Self {
            id,
            model,
            index: Index::new(dimensions, precision),
            entries: RwLock::default(),
        }
    }

    /// Number of entries or artifacts of the collection with this key that have vectors.
    pub fn entries(&self, collection: i64) -> i64 {
        let entries = self.entries.read().unwrap_or_else(PoisonError::into_inner);
        entries
            .get(&collection)
            .map_or(0, |count| count.load(Ordering::Relaxed))
    }

    /// Number of entries and artifacts of all owners that have vectors.
    pub fn all_entries(&self) -> i64 {
        let entries = self.entries.read().unwrap_or_else(PoisonError::into_inner);
        entries
            .values()
            .map(|count| count.load(Ordering::Relaxed))
            .sum()
    }

    /// Whether the set has any vectors.
    fn has_vectors(&self) -> bool {
        self.all_entries() > 0
    }

    /// Adds `by` to the number of entries or artifacts of the collection with this key that have vectors.
    pub fn count(&self, collection: i64, by: i64) {
        if by == 0 {
            return;
        }
        {
            let entries = self.entries.read().unwrap_or_else(PoisonError::into_inner);
            if let Some(count) = entries.get(&collection) {
                count.fetch_add(by, Ordering::Relaxed);
                return;
            }
        }
        let mut entries = self.entries.write().unwrap_or_else(PoisonError::into_inner);
        entries
            .entry(collection)
            .or_default()
            .fetch_add(by, Ordering::Relaxed);
    }
}

/// The state shared by readers and the writer.
#[derive(Debug, Default)]
pub(crate) struct Vectors {
    sets: RwLock<Sets>,
}

#[derive(Debug, Default)]
struct Sets {
    current: Option<Arc<Set>>,
    /// The previous set and until when it may be used, for searches that already have their query vector.
    previous: Option<(Arc<Set>, Instant)>,
    /// The set that is being built to replace the current one. Its index is empty.
    building: Option<Arc<Set>>,
}

/// How long searches may still use a set after another one has replaced it.
const GRACE: Duration = Duration::from_secs(30);

impl Vectors {
    fn read(&self) -> RwLockReadGuard<'_, Sets> {
        self.sets.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Sets> {
        self.sets.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// The set in use.
    pub fn current(&self) -> Option<Arc<Set>> {
        self.read().current.clone()
    }

    /// The set of this model, if searches may use it.
    pub fn of(&self, model: &EmbeddingModel) -> Option<Arc<Set>> {
        let sets = self.read();
        let previous = sets
            .previous
            .as_ref()
            .filter(|(_, until)| Instant::now() < *until)
            .map(|(set, _)| set);
        sets.current
            .iter()
            .chain(previous)
            .find(|set| set.model == *model)
            .cloned()
    }

    /// The id of this model's set: the one in use, or the one being built.
    pub fn id_of(&self, model: &EmbeddingModel) -> Option<i64> {
        let sets = self.read();
        sets.current
            .iter()
            .chain(&sets.building)
            .find(|set| set.model == *model)
            .map(|set| set.id)
    }

    /// Drops the previous set once no search needs it. Returns false while it may still be in use.
    pub fn release_previous(&self) -> bool {
        let mut sets = self.write();
        if sets
            .previous
            .as_ref()
            .is_some_and(|(_, until)| Instant::now() < *until)
        {
            return false;
        }
        sets.previous = None;
        true
    }

    /// Puts a set into use. The one that it replaces may be searched for a while. After the switch no set is being
    /// built.
    fn switch(&self, set: Arc<Set>) {
        let mut sets = self.write();
        sets.building = None;
        sets.previous = sets
            .current
            .take()
            .filter(|before| before.has_vectors())
            .map(|before| (before, Instant::now() + GRACE));
        sets.current = Some(set);
    }

    /// Makes a set the one that is being built.
    fn build(&self, set: Arc<Set>) {
        self.write().building = Some(set);
    }

    fn building(&self) -> Option<Arc<Set>> {
        self.read().building.clone()
    }
}

/// The vector sets as the writer's open transaction sees them, with the changes that it has made.
#[derive(Debug)]
pub(crate) struct OpenVectors {
    pub shared: Arc<Vectors>,
    /// The precision of vectors in the indexes.
    pub precision: Precision,
    /// The number of the next chunk.
    pub next_chunk: i64,
    /// For each owner, the lowest row id of an artifact's document that was removed since the start.
    pub removed_documents: HashMap<i64, i64>,
    /// Changes to apply to the index after the commit.
    changes: Vec<Change>,
    /// Changes of the number of entries or artifacts with vectors: the collection's key and the difference.
    counts: Vec<(i64, i64)>,
    /// A set that comes into use with this transaction.
    switched: Option<Arc<Set>>,
    /// A set whose building starts with this transaction.
    begun: Option<Arc<Set>>,
}

/// A position in the changes of a transaction, for rolling back to it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mark {
    changes: usize,
    counts: usize,
}

impl OpenVectors {
    pub fn new(
        precision: Precision,
        current: Option<Arc<Set>>,
        building: Option<Arc<Set>>,
        next_chunk: i64,
    ) -> Self {
        let sets = RwLock::new(Sets {
            current,
            previous: None,
            building,
        });
        let shared = Arc::new(Vectors { sets });
        Self {
            shared,
            precision,
            next_chunk,
            removed_documents: HashMap::new(),
            changes: Vec::new(),
            counts: Vec::new(),
            switched: None,
            begun: None,
        }
    }

    /// The set in use, as seen by this transaction.
    pub fn current(&self) -> Option<Arc<Set>> {
        self.switched.clone().or_else(|| self.shared.current())
    }

    /// The set being built, as seen by this transaction.
    pub fn building(&self) -> Option<Arc<Set>> {
        match (&self.begun, &self.switched) {
            (Some(set), _) => Some(Arc::clone(set)),
            (None, Some(_)) => None,
            (None, None) => self.shared.building(),
        }
    }

    /// Puts a set into use that already includes the changes of this transaction. Either it is the set that was being
    /// built, or the rows of all other sets were deleted. So no set is being built after that.
    pub fn switch(&mut self, set: Arc<Set>) {
        self.changes.clear();
        self.counts.clear();
        self.begun = None;
        self.switched = Some(set);
    }

    /// Starts building a set.
    pub fn begin(&mut self, set: Arc<Set>) {
        self.begun = Some(set);
    }

    /// Records a change of the set in use.
    pub fn push(&mut self, change: Change) {
        self.changes.push(change);
    }

    /// Records that the number of entries or artifacts of the collection with this key that have vectors changes by
    /// `by`.
    pub fn count(&mut self, collection: i64, by: i64) {
        self.counts.push((collection, by));
    }

    /// The current position in the changes.
    pub fn mark(&self) -> Mark {
        Mark {
            changes: self.changes.len(),
            counts: self.counts.len(),
        }
    }

    /// Drops the changes after the mark, because that part was rolled back.
    pub fn roll_back_to(&mut self, mark: Mark) {
        self.changes.truncate(mark.changes);
        self.counts.truncate(mark.counts);
    }

    /// Drops all changes, because the transaction was rolled back.
    pub fn clear(&mut self) {
        self.changes.clear();
        self.counts.clear();
        self.switched = None;
        self.begun = None;
    }

    /// Makes the changes of the committed transaction visible to readers: applies them to the index, and puts its sets
    /// into use.
    pub fn publish(&mut self) {
        let current = self.current();
        if let Some(set) = current.filter(|_| !self.changes.is_empty()) {
            set.index.apply(self.changes.drain(..));
            for (collection, by) in self.counts.drain(..) {
                set.count(collection, by);
            }
        }
        if let Some(set) = self.switched.take() {
            self.shared.switch(set);
        }
        // Only a set that was begun after the switch is left.
        if let Some(set) = self.begun.take() {
            self.shared.build(set);
        }
        self.clear();
    }
}
