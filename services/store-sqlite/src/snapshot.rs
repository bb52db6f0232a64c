//! A snapshot that a copy receives from its source. It is collected in a file, because it may not fit into memory.

use std::collections::HashSet;
use std::fs::{File, OpenOptions};
use std::hash::{BuildHasher as _, RandomState};
use std::io;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;

use context_store::Copied;

/// A piece ends after this many entries and artifacts, or as soon as it has this many bytes.
const PIECE: usize = 1000;
const PIECE_BYTES: usize = 4 * 1024 * 1024;

/// All entries and artifacts of an owner of another service.
#[derive(Debug)]
pub struct Snapshot {
    file: File,
    /// The offset in the file at which each entry or artifact ends.
    ends: Vec<u64>,
    pub(crate) entries: HashSet<i64>,
    pub(crate) artifacts: HashSet<String>,
}

impl Snapshot {
    /// An empty snapshot in a file without a name, in the directory of this database. The system deletes the file when
    /// the snapshot is dropped or the process ends.
    ///
    /// # Errors
    /// The file cannot be created.
    pub fn beside(database: &Path) -> io::Result<Self> {
        // A random name, because a file with a name that can be guessed may exist and belong to another user.
        let mut path = database.as_os_str().to_owned();
        path.push(format!(
            ".snapshot-{:016x}",
            RandomState::new().hash_one(database)
        ));
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)?;
        std::fs::remove_file(&path)?;
        Ok(Self {
            file,
            ends: Vec::new(),
            entries: HashSet::new(),
            artifacts: HashSet::new(),
        })
    }

    /// Adds an entry or an artifact.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn push(&mut self, copied: &Copied) -> io::Result<()> {
        match copied {
            Copied::Entry(entry) => _ = self.entries.insert(entry.id),
            Copied::Artifact(copied) => _ = self.artifacts.insert(copied.artifact.id.clone()),
            Copied::EntryGone(_) | Copied::ArtifactGone(_) => return Ok(()),
        }
        let bytes = serde_json::to_vec(copied)?;
        let start = self.ends.last().copied().unwrap_or(0);
        self.file.write_all_at(&bytes, start)?;
        self.ends.push(start + bytes.len() as u64);
        Ok(())
    }

    /// The entries and artifacts in pieces, those added last first: a source sends the newest entries first, and it is
    /// faster to insert the oldest first.
    pub(crate) fn pieces(&self) -> impl Iterator<Item = io::Result<Vec<Copied>>> {
        let mut left = self.ends.len();
        std::iter::from_fn(move || {
            let (mut piece, mut bytes) = (Vec::new(), 0);
            while left > 0 && piece.len() < PIECE && bytes < PIECE_BYTES {
                left -= 1;
                match self.read(left) {
                    Ok((copied, size)) => {
                        bytes += size;
                        piece.push(copied);
                    }
                    Err(error) => return Some(Err(error)),
                }
            }
            (!piece.is_empty()).then_some(Ok(piece))
        })
    }

    fn read(&self, index: usize) -> io::Result<(Copied, usize)> {
        let start = index
            .checked_sub(1)
            .and_then(|before| self.ends.get(before))
            .copied()
            .unwrap_or(0);
        let end = self.ends.get(index).copied().unwrap_or(start);
        let mut bytes = vec![0; usize::try_from(end - start).unwrap_or(0)];
        self.file.read_exact_at(&mut bytes, start)?;
        Ok((serde_json::from_slice(&bytes)?, bytes.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_changes_no_other_file() {
        let directory = tempfile::tempdir().unwrap();
        let others = directory.path().join("a.db.snapshot");
        std::fs::write(&others, "mine").unwrap();
        let _snapshot = Snapshot::beside(&directory.path().join("a.db")).unwrap();
        assert_eq!(std::fs::read_to_string(&others).unwrap(), "mine");
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
    }
}
