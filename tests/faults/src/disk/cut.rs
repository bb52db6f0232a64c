//! What a power cut leaves of a file.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use crate::random::Random;

/// A file as the disk has it: what is certain, and what was not synced yet, in order.
#[derive(Debug, Default)]
pub(super) struct Medium {
    synced: Vec<u8>,
    unsynced: Vec<Change>,
    /// Deleted, but the directory was not synced: the name may come back.
    deleted: bool,
    /// Synced at least once since it was made.
    settled: bool,
}

#[derive(Debug)]
enum Change {
    Write { offset: usize, data: Box<[u8]> },
    Truncate { size: usize },
}

impl Medium {
    pub(super) fn write(&mut self, offset: u64, data: &[u8]) {
        self.revive();
        self.unsynced.push(Change::Write {
            offset: index(offset),
            data: data.into(),
        });
    }

    pub(super) fn truncate(&mut self, size: u64) {
        self.revive();
        self.unsynced.push(Change::Truncate { size: index(size) });
    }

    /// Gives whether this was the first sync of the file.
    pub(super) fn sync(&mut self) -> bool {
        for change in std::mem::take(&mut self.unsynced) {
            apply(&mut self.synced, &change, None);
        }
        !std::mem::replace(&mut self.settled, true)
    }

    /// The directory was synced.
    pub(super) fn directory_synced(&mut self) {
        if self.deleted {
            self.synced.clear();
        }
    }

    pub(super) fn delete(&mut self, directory_synced: bool) {
        if directory_synced {
            *self = Self::default();
        }
        self.deleted = true;
    }

    /// A new file takes a deleted one's name.
    fn revive(&mut self) {
        if self.deleted {
            *self = Self::default();
        }
    }
}

fn index(offset: u64) -> usize {
    usize::try_from(offset).expect("a test's file fits into memory")
}

/// Applies a change, or only the first bytes of a write.
fn apply(bytes: &mut Vec<u8>, change: &Change, only: Option<usize>) {
    match change {
        Change::Write { offset, data } => {
            let data = &data[..only.unwrap_or(data.len()).min(data.len())];
            if bytes.len() < offset + data.len() {
                bytes.resize(offset + data.len(), 0);
            }
            bytes[*offset..offset + data.len()].copy_from_slice(data);
        }
        Change::Truncate { size } => bytes.resize(*size, 0),
    }
}

/// What became of the changes that were not synced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loss {
    /// None of them reached the disk.
    All,
    /// A random half of them did, in any order.
    Some,
    /// As with `Some`, and some of the writes were torn in the middle.
    Torn,
    /// All of them did: what a killed process leaves.
    None,
}

/// The files after a power cut.
#[derive(Debug, Clone)]
pub struct Cut {
    /// What was lost.
    pub loss: Loss,
    /// Changes that were not synced when it happened.
    pub unsynced: usize,
    files: BTreeMap<String, Vec<u8>>,
}

impl Cut {
    pub(super) fn of(media: &BTreeMap<String, Medium>, random: &mut Random) -> Self {
        let loss = [Loss::All, Loss::Some, Loss::Torn, Loss::Torn, Loss::None][random.below(5)];
        let mut files = BTreeMap::new();
        for (name, medium) in media {
            let mut bytes = medium.synced.clone();
            if medium.deleted {
                // The old file may come back, as it was last synced.
                if loss != Loss::None && random.chance(50) && !bytes.is_empty() {
                    files.insert(name.clone(), bytes);
                }
                continue;
            }
            for change in &medium.unsynced {
                let kept = match loss {
                    Loss::All => false,
                    Loss::Some | Loss::Torn => random.chance(50),
                    Loss::None => true,
                };
                if kept {
                    let torn = match change {
                        Change::Write { data, .. } if loss == Loss::Torn && random.chance(50) => {
                            Some(random.below(data.len()))
                        }
                        Change::Write { .. } | Change::Truncate { .. } => None,
                    };
                    apply(&mut bytes, change, torn);
                }
            }
            files.insert(name.clone(), bytes);
        }
        Self {
            loss,
            unsynced: media.values().map(|medium| medium.unsynced.len()).sum(),
            files,
        }
    }

    /// Puts the files into a directory, where an ordinary disk serves them.
    ///
    /// # Errors
    /// When they cannot be written.
    pub fn write_to(&self, directory: &Path) -> io::Result<()> {
        for (name, bytes) in &self.files {
            std::fs::write(directory.join(name), bytes)?;
        }
        Ok(())
    }
}
