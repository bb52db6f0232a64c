//! One process owns a database file: it holds a lock on `<file>.lock` as long as it lives.

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Seek as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;
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

/// The lock, until it is dropped or the process ends. The file stays: removing it would let two processes lock two
/// files of the same name.
#[derive(Debug)]
pub(crate) struct Lock {
    _file: File,
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

    pub fn acquire(database: &Path, started: Started) -> Result<Self, LockError> {
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(Self::path(database))
            .map_err(LockError::Io)?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => return Err(LockError::Held(read_holder(&mut file))),
            Err(error) => return Err(LockError::Io(error.into())),
        }
        // The lock is what counts; on a full disk the note is missing and the database still opens.
        let _ = write_holder(&mut file, started);
        Ok(Self { _file: file })
    }
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
    Holder { pid: words.next().and_then(|word| word.parse().ok()), started: words.next().and_then(Started::parse) }
}
