//! The state of a file after a power failure.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use context_test_support::Random;

/// A file on the simulated disk: its synced content, and the changes that are not synced yet, in order.
#[derive(Debug, Default)]
pub(super) struct Medium {
    synced: Vec<u8>,
    unsynced: Vec<Change>,
    /// The file was deleted. Until the directory is synced, the file may come back with the content of `synced`.
    deleted: bool,
    /// Whether the file was synced at least once since it was created.
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

    /// Applies all changes. Returns whether this was the first sync of the file.
    pub(super) fn sync(&mut self) -> bool {
        for change in std::mem::take(&mut self.unsynced) {
            apply(&mut self.synced, &change, None);
        }
        !std::mem::replace(&mut self.settled, true)
    }

    /// Called when the directory was synced.
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

    /// A new file takes the name of a deleted one.
    fn revive(&mut self) {
        if self.deleted {
            *self = Self::default();
        }
    }
}

fn index(offset: u64) -> usize {
    usize::try_from(offset).expect("a test's file fits into memory")
}

/// Applies a change, or only the first `only` bytes of a write.
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

/// The fate of the unsynced changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loss {
    /// None of them reached the disk.
    All,
    /// Each of them reached the disk with a probability of one half, whatever happened to those before it.
    Some,
    /// Like `Some`, and some of the writes were torn in the middle.
    Torn,
    /// All of them reached the disk, like after killing the process.
    None,
}

/// The files after a power failure.
#[derive(Debug, Clone)]
pub struct Cut {
    /// What was lost.
    pub loss: Loss,
    /// Number of unsynced changes when it happened.
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
                // The old file may come back in its last synced state.
                if loss != Loss::None && random.chance(50) && !bytes.is_empty() {
                    files.insert(name.clone(), bytes);
                }
                continue;
            }
            for change in &medium.unsynced {
                let survives = match loss {
                    Loss::All => false,
                    Loss::Some | Loss::Torn => random.chance(50),
                    Loss::None => true,
                };
                if survives {
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

    /// Writes the files into a directory on an ordinary disk.
    ///
    /// # Errors
    /// The files cannot be written.
    pub fn write_to(&self, directory: &Path) -> io::Result<()> {
        for (name, bytes) in &self.files {
            std::fs::write(directory.join(name), bytes)?;
        }
        Ok(())
    }
}
