//! File locks, so that at most one process owns a database file. For its lifetime the process holds a lock for the
//! file's name (`<file>.lock`) and one for its inode, because a file can have several names. The lock for the inode is
//! in the runtime directory, so it excludes only processes with the same runtime directory.

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

/// The process that holds a database, according to its lock file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Holder {
    /// Its process id.
    pub pid: Option<u32>,
    /// How it was started.
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

/// A lock, held until it is dropped or the process ends. The lock file beside the database is never removed: otherwise
/// two processes could lock two different files of the same name.
#[derive(Debug)]
pub(crate) struct Lock {
    /// Dropped before the name, so that the next process that gets the lock for the name gets this one too.
    by_inode: Option<InodeLock>,
    _by_name: File,
}

/// Why the lock was not acquired.
#[derive(Debug)]
pub(crate) enum LockError {
    Held(Holder),
    Io(std::io::Error),
}

impl Lock {
    /// Path of the lock file of a database.
    pub fn path(database: &Path) -> PathBuf {
        let mut name = database.as_os_str().to_owned();
        name.push(".lock");
        name.into()
    }

    /// Locks the name and, if the file exists, its inode.
    pub fn acquire(database: &Path, started: Started) -> Result<Self, LockError> {
        let by_name = locked(&Self::path(database), started)?;
        let mut lock = Self {
            by_inode: None,
            _by_name: by_name,
        };
        if database.exists() {
            lock.acquire_inode(database, started)?;
        }
        Ok(lock)
    }

    /// Locks the file that has this name now, so that no other process can own it under another name. SQLite names its
    /// log after the database, and two logs for one file damage it (<https://www.sqlite.org/howtocorrupt.html>, section
    /// 2.5).
    pub fn acquire_inode(&mut self, database: &Path, started: Started) -> Result<(), LockError> {
        if self.by_inode.is_none() {
            self.by_inode = InodeLock::acquire(database, started)?;
        }
        Ok(())
    }
}

/// A lock in the runtime directory, named after the device and inode of the database.
#[derive(Debug)]
struct InodeLock {
    path: PathBuf,
    _file: File,
    /// Prevents reuse of the inode for a new file, which this lock would then block. Dropped last.
    _database: Option<OwnedFd>,
}

impl InodeLock {
    /// `None` when there is no runtime directory. In that case the file must have only one name.
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
            // The previous holder removes the file when it ends, so the locked file may be the removed one.
            let same = |at_path: std::fs::Metadata, held: std::fs::Metadata| {
                (at_path.dev(), at_path.ino()) == (held.dev(), held.ino())
            };
            if let (Ok(at_path), Ok(held)) = (std::fs::metadata(&path), file.metadata())
                && same(at_path, held)
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
        // The file is still locked. A process that has it open will find that it was removed.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Keeps the inode of this file in use through a path-only descriptor (`O_PATH`). Unlike closing an ordinary
/// descriptor, closing this one does not release the locks that SQLite holds on the file.
#[cfg(target_os = "linux")]
fn pin(path: &Path) -> std::io::Result<Option<OwnedFd>> {
    Ok(Some(rustix::fs::open(
        path,
        OFlags::PATH | OFlags::CLOEXEC,
        Mode::empty(),
    )?))
}

/// macOS has no such descriptors, and APFS never reuses inode numbers.
#[cfg(not(target_os = "linux"))]
fn pin(_path: &Path) -> std::io::Result<Option<OwnedFd>> {
    Ok(None)
}

/// Opens and locks this file, and writes the holder into it.
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
    // Only the lock matters. On a full disk the holder is missing, but the database still opens.
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
