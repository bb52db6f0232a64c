//! The entries that pass a filter.

/// Number of low bits of an entry number that distinguish the entries of one owner. The high bits identify the owner.
const ENTRY_BITS: u32 = 40;

/// Maximum number of bitmap words that are checked to skip a block of codes.
const MAX_CHECKED_WORDS: usize = 16;

/// The entries that a search may return, as a bitmap over their numbers. An owner's entries get ascending numbers from
/// 1, so the bitmap stays short. One bitmap holds only positive numbers (entries) or only negative ones (documents of
/// artifacts), whose absolute values are used.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Allowed {
    bits: Vec<u64>,
    count: usize,
}

impl Allowed {
    /// Number of allowed entries.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.count
    }

    /// Whether no entry is allowed.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Whether this entry is allowed.
    #[must_use]
    pub fn contains(&self, entry: i64) -> bool {
        let (word, bit) = bit_of(entry);
        self.bits.get(word).is_some_and(|word| word >> bit & 1 == 1)
    }

    /// Whether an entry from `first` to `last` may be allowed. For a wide range it returns true without checking.
    pub(crate) fn may_contain(&self, first: i64, last: i64) -> bool {
        let (one, other) = (bit_of(first).0, bit_of(last).0);
        let (first, last) = (one.min(other), one.max(other));
        last - first >= MAX_CHECKED_WORDS
            || self
                .bits
                .iter()
                .take(last + 1)
                .skip(first)
                .any(|word| *word != 0)
    }

    fn insert(&mut self, entry: i64) {
        let (word, bit) = bit_of(entry);
        if word >= self.bits.len() {
            self.bits.resize(word + 1, 0);
        }
        self.count += usize::from(self.bits[word] >> bit & 1 == 0);
        self.bits[word] |= 1 << bit;
    }
}

/// The index of the word with this entry's bit, and the index of the bit in the word.
fn bit_of(entry: i64) -> (usize, u32) {
    let number = entry.unsigned_abs() & ((1 << ENTRY_BITS) - 1);
    ((number / 64) as usize, (number % 64) as u32)
}

impl FromIterator<i64> for Allowed {
    fn from_iter<I: IntoIterator<Item = i64>>(entries: I) -> Self {
        let mut allowed = Self::default();
        for entry in entries {
            allowed.insert(entry);
        }
        allowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_of_an_owner_are_told_apart_by_their_number() {
        let owner = 3 << ENTRY_BITS;
        let allowed: Allowed = [owner | 1, owner | 64, owner | 1].into_iter().collect();
        assert_eq!(allowed.len(), 2);
        assert!(
            allowed.contains(owner | 64)
                && !allowed.contains(owner | 65)
                && !allowed.contains(owner | 100_000)
        );
    }

    #[test]
    fn negative_numbers_take_as_little_room() {
        let owner = 3 << ENTRY_BITS;
        let allowed: Allowed = [-(owner | 1), -(owner | 130)].into_iter().collect();
        assert_eq!((allowed.len(), allowed.bits.len()), (2, 3));
        assert!(allowed.contains(-(owner | 130)) && !allowed.contains(-(owner | 129)));
        assert!(allowed.may_contain(-(owner | 190), -(owner | 128)));
        assert!(!allowed.may_contain(-(owner | 127), -(owner | 64)));
        assert!(
            allowed.may_contain(-(owner | 5_000), -(owner | 1_000)),
            "a wide range is not checked"
        );
    }
}
