//! The values that an import had to change.

use std::collections::{BTreeMap, HashSet};

/// Values that a source had to change, because a rule of this service is stricter. All are counted, and the first ones
/// of each field are listed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Losses {
    fields: BTreeMap<&'static str, Field>,
    /// The old names of renamed threads. Each is listed at most once.
    threads: HashSet<String>,
}

/// The changed values of one field.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Field {
    /// Number of changed values.
    pub total: u64,
    /// The first of them, at most [`Losses::MAX_LISTED`].
    pub listed: Vec<Loss>,
}

/// A changed value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loss {
    /// The entry's id in the target.
    pub id: i64,
    /// What it was and what it is now. Without control characters.
    pub what: String,
}

impl Losses {
    /// The field of renamed threads.
    pub const THREAD: &str = "thread_id";
    /// Maximum number of listed values of one field.
    pub const MAX_LISTED: usize = 50;

    /// Number of changed values.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.fields.values().map(|field| field.total).sum()
    }

    /// Number of renamed threads.
    #[must_use]
    pub fn renamed_threads(&self) -> u64 {
        self.threads.len() as u64
    }

    /// The changed values by field, in the order of the fields' names.
    pub fn fields(&self) -> impl Iterator<Item = (&'static str, &Field)> {
        self.fields.iter().map(|(name, field)| (*name, field))
    }

    /// Adds a changed value.
    pub(super) fn add(&mut self, id: i64, field: &'static str, what: impl FnOnce() -> String) {
        let field = self.fields.entry(field).or_default();
        field.total += 1;
        if field.listed.len() < Self::MAX_LISTED {
            field.listed.push(Loss { id, what: what() });
        }
    }

    /// Adds an entry whose thread has a new name. The thread is listed at its first entry only.
    pub(super) fn add_thread(&mut self, id: i64, old: &str, what: impl FnOnce() -> String) {
        if self.threads.contains(old) {
            self.fields.entry(Self::THREAD).or_default().total += 1;
        } else {
            self.threads.insert(old.to_owned());
            self.add(id, Self::THREAD, what);
        }
    }

    /// Adds the changed values of `other`, which must not have a field in common with these.
    pub(super) fn with(mut self, other: Self) -> Self {
        self.fields.extend(other.fields);
        self.threads.extend(other.threads);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_is_counted_the_first_are_listed_and_a_thread_is_listed_once() {
        let mut losses = Losses::default();
        for id in 1..=70 {
            losses.add(id, "tags", || format!("tag of {id}"));
            losses.add_thread(id, if id % 2 == 0 { "even" } else { "odd" }, || {
                format!("renamed {id}")
            });
        }
        let fields: Vec<_> = losses
            .fields()
            .map(|(name, field)| (name, field.total, field.listed.len()))
            .collect();
        assert_eq!(
            fields,
            [("tags", 70, Losses::MAX_LISTED), ("thread_id", 70, 2)]
        );
        assert_eq!((losses.total(), losses.renamed_threads()), (140, 2));
    }
}
