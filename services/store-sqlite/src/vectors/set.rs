//! The sets of vectors: the one in use, and the one that will take its place.

use std::collections::HashMap;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::{Duration, Instant};

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
        Self {
            id,
            model,
            index: Index::new(dimensions),
            entries: RwLock::default(),
        }
    }

    /// Entries of this owner that have vectors.
    pub fn entries(&self, owner: i64) -> i64 {
        let entries = self.entries.read().unwrap_or_else(PoisonError::into_inner);
        entries
            .get(&owner)
            .map_or(0, |count| count.load(Ordering::Relaxed))
    }

    /// Whether anything can be found in it.
    fn has_vectors(&self) -> bool {
        let entries = self.entries.read().unwrap_or_else(PoisonError::into_inner);
        entries
            .values()
            .any(|count| count.load(Ordering::Relaxed) > 0)
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
        entries
            .entry(owner)
            .or_default()
            .fetch_add(by, Ordering::Relaxed);
    }
}

/// What readers and the writer share.
#[derive(Debug, Default)]
pub(crate) struct Vectors {
    sets: RwLock<Sets>,
}

#[derive(Debug, Default)]
struct Sets {
    current: Option<Arc<Set>>,
    /// What was in use before, for searches that have the vector of their query already, and until when.
    previous: Option<(Arc<Set>, Instant)>,
    /// What is gathered to take the place of the set in use. Its index is empty.
    building: Option<Arc<Set>>,
}

/// How long a search may use the set that was in use when it began.
const GRACE: Duration = Duration::from_secs(30);

impl Vectors {
    fn read(&self) -> RwLockReadGuard<'_, Sets> {
        self.sets.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Sets> {
        self.sets.write().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn current(&self) -> Option<Arc<Set>> {
        self.read().current.clone()
    }

    /// The set of this model that searches may use.
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

    /// The number of the set of this model, also of one that is being gathered.
    pub fn number_of(&self, model: &EmbeddingModel) -> Option<i64> {
        let sets = self.read();
        sets.current
            .iter()
            .chain(&sets.building)
            .find(|set| set.model == *model)
            .map(|set| set.id)
    }

    /// Forgets the set that was in use before once no search needs it; says whether that is so.
    pub fn let_go(&self) -> bool {
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

    fn switch(&self, set: Arc<Set>) {
        let mut sets = self.write();
        sets.building = sets
            .building
            .take()
            .filter(|building| building.id != set.id);
        sets.previous = sets
            .current
            .take()
            .filter(|before| before.has_vectors())
            .map(|before| (before, Instant::now() + GRACE));
        sets.current = Some(set);
    }

    fn build(&self, set: Arc<Set>) {
        self.write().building = Some(set);
    }

    fn building(&self) -> Option<Arc<Set>> {
        self.read().building.clone()
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
    /// A set that comes into use with this transaction.
    switched: Option<Arc<Set>>,
    /// A set that is gathered from this transaction on.
    begun: Option<Arc<Set>>,
}

/// A place in the changes of a transaction, to go back to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mark {
    changes: usize,
    counts: usize,
}

impl OpenVectors {
    pub fn new(current: Option<Arc<Set>>, building: Option<Arc<Set>>, next_chunk: i64) -> Self {
        let sets = RwLock::new(Sets {
            current,
            previous: None,
            building,
        });
        let shared = Arc::new(Vectors { sets });
        Self {
            shared,
            next_chunk,
            changes: Vec::new(),
            counts: Vec::new(),
            switched: None,
            begun: None,
        }
    }

    /// The set in use, as this transaction sees it.
    pub fn current(&self) -> Option<Arc<Set>> {
        self.switched.clone().or_else(|| self.shared.current())
    }

    /// The set that is gathered, as this transaction sees it.
    pub fn building(&self) -> Option<Arc<Set>> {
        let switched = self.switched.as_ref().map(|set| set.id);
        self.begun
            .clone()
            .or_else(|| self.shared.building())
            .filter(|set| Some(set.id) != switched)
    }

    /// Puts a set into use that shows everything this transaction did until now.
    pub fn switch(&mut self, set: Arc<Set>) {
        self.changes.clear();
        self.counts.clear();
        self.switched = Some(set);
    }

    /// Gathers a set from now on.
    pub fn begin(&mut self, set: Arc<Set>) {
        self.begun = Some(set);
    }

    pub fn push(&mut self, change: Change) {
        self.changes.push(change);
    }

    pub fn count(&mut self, owner: i64, by: i64) {
        self.counts.push((owner, by));
    }

    pub fn mark(&self) -> Mark {
        Mark {
            changes: self.changes.len(),
            counts: self.counts.len(),
        }
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
        self.switched = None;
        self.begun = None;
    }

    /// Tells the index what was committed.
    pub fn publish(&mut self) {
        let current = self.current();
        if let Some(set) = current.filter(|_| !self.changes.is_empty()) {
            set.index.apply(self.changes.drain(..));
            for (owner, by) in self.counts.drain(..) {
                set.count(owner, by);
            }
        }
        if let Some(set) = self.begun.take() {
            self.shared.build(set);
        }
        if let Some(set) = self.switched.take() {
            self.shared.switch(set);
        }
        self.clear();
    }
}
