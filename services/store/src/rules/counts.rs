//! Counts of entries, maintained for each owner and each thread, so that an owner's statistics and its list of threads
//! are read without counting entries.

use std::ops::{AddAssign, Neg, SubAssign};

use context_model::Source;

/// Numbers of entries by source, of entries with images, and of images. Also used for differences between such numbers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EntryCounts {
    /// Number of entries.
    pub entries: i64,
    /// Entries of users.
    pub user: i64,
    /// Entries of agents.
    pub agent: i64,
    /// Entries with images.
    pub multimodal: i64,
    /// Number of images.
    pub images: i64,
}

impl EntryCounts {
    /// The counts of one entry.
    #[must_use]
    pub fn of_entry(source: Source, image_count: i64) -> Self {
        let (user, agent) = match source {
            Source::User => (1, 0),
            Source::Agent => (0, 1),
        };
        Self {
            entries: 1,
            user,
            agent,
            multimodal: i64::from(image_count > 0),
            images: image_count,
        }
    }

    /// The difference when the number of images of an entry changes from `before` to `after`.
    #[must_use]
    pub fn of_images(before: i64, after: i64) -> Self {
        Self {
            multimodal: i64::from(after > 0) - i64::from(before > 0),
            images: after - before,
            ..Self::default()
        }
    }
}

impl AddAssign for EntryCounts {
    fn add_assign(&mut self, change: Self) {
        let Self {
            entries,
            user,
            agent,
            multimodal,
            images,
        } = change;
        self.entries += entries;
        self.user += user;
        self.agent += agent;
        self.multimodal += multimodal;
        self.images += images;
    }
}

impl Neg for EntryCounts {
    type Output = Self;

    fn neg(self) -> Self {
        Self {
            entries: -self.entries,
            user: -self.user,
            agent: -self.agent,
            multimodal: -self.multimodal,
            images: -self.images,
        }
    }
}

impl SubAssign for EntryCounts {
    fn sub_assign(&mut self, change: Self) {
        *self += -change;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_that_comes_changes_and_goes_leaves_nothing() {
        let mut counts = EntryCounts::default();
        counts += EntryCounts::of_entry(Source::Agent, 0);
        counts += EntryCounts::of_images(0, 3);
        let expected = EntryCounts {
            entries: 1,
            user: 0,
            agent: 1,
            multimodal: 1,
            images: 3,
        };
        assert_eq!(counts, expected);
        counts -= EntryCounts::of_entry(Source::Agent, 3);
        assert_eq!(counts, EntryCounts::default());
    }
}
