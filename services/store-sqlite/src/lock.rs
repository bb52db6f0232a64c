//! One process owns a database file: it holds a lock on `<file>.lock`, and one on the file itself under whatever name, as long
//! as it lives.

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Seek as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;
#[cfg(target_os = "linux")]
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::config::Started;

/// Who holds a database, as far as its lock file tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Holder {
    /// Its process id.
    pub pid: Option<u32>,
    /// How it came to run.
    pub started: Option<Started>,
}

impl std::fmt::Display for Holder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.pid {
            Some(pid) => write!(f, "process {pid}")?,
            None => f.write_str("another process")?,
        }
        match self.started {
            Some(Started::ByHand) => f.write_str(", which was started by hand"),
            Some(Started::Automatically) => f.write_str(", which a gateway started"),
            None => Ok(()),
        }
    }
}

/// The lock, until it is dropped or the process ends. Its file beside the database stays: removing it would let two processes
/// lock two files of the same name.
#[derive(Debug)]
pub(crate) struct Lock {
    _by_name: File,
    by_inode: Option<InodeLock>,
}

/// Why the lock was not taken.
#[derive(Debug)]
pub(crate) enum LockError {
    Held(Holder),
    Io(std::io::Error),
}

impl Lock {
    /// The lock file of a database.
    pub fn path(database: &Path) -> PathBuf {
        let mut name = database.as_os_str().to_owned();
        name.push(".lock");
        name.into()
    }

    /// Locks the name and, where the file exists, the file.
    pub fn acquire(database: &Path, started: Started) -> Result<Self, LockError> {
        let by_name = locked(&Self::path(database), started)?;
        let mut lock = Self {
            _by_name: by_name,
            by_inode: None,
        };
        if database.exists() {
            lock.acquire_inode(database, started)?;
        }
        Ok(lock)
    }

    /// Locks the file that has the name by now, so that no other process owns it under another one. SQLite's log is named after
    /// the name: two of them for one file damage it (<https://www.sqlite.org/howtocorrupt.html>, section 2.5).
    pub fn acquire_inode(&mut self, database: &Path, started: Started) -> Result<(), LockError> {
        if self.by_inode.is_none() {
            self.by_inode = InodeLock::acquire(database, started)?;
        }
        Ok(())
    }
}

/// A lock in the runtime directory, named after device and inode of the database.
#[derive(Debug)]
struct InodeLock {
    path: PathBuf,
    _file: File,
    /// Keeps the inode from being used again for a new file, which this lock would then keep closed. Dropped last.
    _database: Option<OwnedFd>,
}

impl InodeLock {
    /// `None` where there is no runtime directory, but then the file must have one name only.
    fn acquire(database: &Path, started: Started) -> Result<Option<Self>, LockError> {
        let pinned = pin(database).map_err(LockError::Io)?;
        let found = std::fs::metadata(database).map_err(LockError::Io)?;
        let uid = rustix::process::geteuid().as_raw();
        let Ok(Some(directory)) = context_model::local::make_runtime_dir(uid) else {
            if found.nlink() > 1 {
                let directory = context_model::local::runtime_dir(uid);
                let sentence = format!(
                    "it has several names (hard links), and {} cannot be used to lock it",
                    directory.display()
                );
                return Err(LockError::Io(std::io::Error::other(sentence)));
            }
            return Ok(None);
        };
        let path = directory.join(format!("{:x}-{:x}.lock", found.dev(), found.ino()));
        loop {
            let file = locked(&path, started)?;
            // The holder before removes the file at its end; what was locked may be that one.
            let same = |there: std::fs::Metadata, held: std::fs::Metadata| {
                (there.dev(), there.ino()) == (held.dev(), held.ino())
            };
            if let (Ok(there), Ok(held)) = (std::fs::metadata(&path), file.metadata())
                && same(there, held)
            {
                return Ok(Some(Self {
                    path,
                    _file: file,
                    _database: pinned,
                }));
            }
        }
    }
}

impl Drop for InodeLock {
    fn drop(&mut self) {
        // Still locked: one who has the file open already finds that it is gone.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Keeps the inode of this file in use. Closing such a descriptor does not end the locks that SQLite holds on the file, as
/// closing any other one would.
#[cfg(target_os = "linux")]
fn pin(path: &Path) -> std::io::Result<Option<OwnedFd>> {
    Ok(Some(rustix::fs::open(
        path,
        OFlags::PATH | OFlags::CLOEXEC,
        Mode::empty(),
    )?))
}

/// Other systems have no such descriptors; where APFS is used, an inode number is never used again.
#[cfg(not(target_os = "linux"))]
fn pin(_path: &Path) -> std::io::Result<Option<OwnedFd>> {
    Ok(None)
}

/// Opens and locks this file, and writes into it who holds it.
fn locked(path: &Path, started: Started) -> Result<File, LockError> {
    let mut options = OpenOptions::new();
    let mut file = options
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path)
        .map_err(LockError::Io)?;
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(Errno::WOULDBLOCK) => return Err(LockError::Held(read_holder(&mut file))),
        Err(error) => return Err(LockError::Io(error.into())),
    }
    // The lock is what counts; on a full disk the note is missing and the database still opens.
    let _ = write_holder(&mut file, started);
    Ok(file)
}

fn write_holder(file: &mut File, started: Started) -> std::io::Result<()> {
    file.set_len(0)?;
    file.rewind()?;
    writeln!(file, "{} {}", std::process::id(), started.as_str())
}

fn read_holder(file: &mut File) -> Holder {
    let mut note = String::new();
    let _ = file.take(64).read_to_string(&mut note);
    let mut words = note.split_whitespace();
    Holder {
        pid: words.next().and_then(|word| word.parse().ok()),
        started: words.next().and_then(Started::parse),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_locked_under_each_of_its_names() {
        let directory = tempfile::tempdir().unwrap();
        let [name, hard, soft] = ["a.db", "b.db", "c.db"].map(|name| directory.path().join(name));
        std::fs::write(&name, "").unwrap();
        std::fs::hard_link(&name, &hard).unwrap();
        std::os::unix::fs::symlink(&name, &soft).unwrap();
        let lock = Lock::acquire(&name, Started::ByHand).unwrap();
        for other in [&name, &hard, &soft] {
            let refused = Lock::acquire(other, Started::ByHand).map(drop);
            assert!(
                matches!(refused, Err(LockError::Held(Holder { pid: Some(pid), .. })) if pid == std::process::id()),
                "{refused:?}"
            );
        }
        drop(lock);
        for other in [&name, &hard, &soft] {
            Lock::acquire(other, Started::ByHand).unwrap();
        }
    }

    #[test]
    fn a_new_file_is_locked_once_it_exists() {
        let directory = tempfile::tempdir().unwrap();
        let [name, hard] = ["a.db", "b.db"].map(|name| directory.path().join(name));
        let mut lock = Lock::acquire(&name, Started::ByHand).unwrap();
        std::fs::write(&name, "").unwrap();
        std::fs::hard_link(&name, &hard).unwrap();
        lock.acquire_inode(&name, Started::ByHand).unwrap();
        assert!(matches!(
            Lock::acquire(&hard, Started::ByHand),
            Err(LockError::Held(_))
        ));
    }

    #[test]
    fn a_file_that_is_gone_locks_no_new_one_that_gets_its_inode() {
        let come_and_go = || {
            for _ in 0..2000 {
                let directory = tempfile::tempdir().unwrap();
                let path = directory.path().join("a.db");
                let open = File::create(&path).unwrap();
                let lock = Lock::acquire(&path, Started::ByHand).unwrap();
                drop(directory);
                drop(open);
                drop(lock);
            }
        };
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(come_and_go);
            }
        });
    }
}
