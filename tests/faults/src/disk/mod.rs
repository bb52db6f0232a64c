//! A disk that can lose unsynced data, fill up, or become read-only.
//!
//! [`Disk::attach`] puts all SQLite files of one directory on such a disk, for all connections of this process. Writes
//! reach the real files immediately, like the page cache of an operating system. The state after a power failure is
//! tracked separately. Other directories are not affected.

mod cut;
mod event;
mod file;
mod trace;
mod vfs;

pub use cut::{Cut, Loss};

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use context_test_support::Random;

use cut::Medium;
use event::Event;

/// The result of writes to the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Fault {
    /// Writes succeed.
    #[default]
    None,
    /// There is no space (`ENOSPC`).
    Full,
    /// Writes fail (`EIO`, `EROFS`, `EDQUOT`: SQLite does not distinguish them).
    WriteError,
    /// SQLite itself treats the file as read-only.
    ReadOnly,
    /// Writes succeed and syncs fail.
    SyncError,
}

/// A directory of SQLite files on a disk with faults.
#[derive(Debug)]
pub struct Disk {
    directory: PathBuf,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    media: BTreeMap<String, Medium>,
    events: Vec<Event>,
    fault: Fault,
    /// Syncs succeed without effect, like with `synchronous=OFF`.
    ignores_sync: bool,
    /// Number of writes, truncations and syncs until the power fails, and the random numbers for it.
    cut_in: Option<(usize, Random)>,
    cut: Option<Cut>,
}

impl Disk {
    /// Sets the fault for all further writes.
    pub fn set_fault(&self, fault: Fault) {
        self.lock().fault = fault;
    }

    /// Sets whether syncs succeed without effect.
    pub fn ignore_sync(&self, ignore: bool) {
        self.lock().ignores_sync = ignore;
    }

    /// Cuts the power at the `operations`-th write, truncation or sync from now. After that each of them fails, and so
    /// does each deletion.
    pub fn cut_after(&self, operations: usize, random: Random) {
        self.lock().cut_in = Some((operations, random));
    }

    /// Cuts the power now, unless it is already cut, and returns what is left.
    #[must_use]
    pub fn cut_now(&self, mut random: Random) -> Cut {
        let mut state = self.lock();
        if state.cut.is_none() {
            state.cut = Some(Cut::of(&state.media, &mut random));
        }
        state.cut.clone().expect("it was just cut")
    }

    /// Whether the power is cut.
    #[must_use]
    pub fn is_cut(&self) -> bool {
        self.lock().cut.is_some()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An SQLite result code other than `SQLITE_OK`.
type Code = std::ffi::c_int;

impl State {
    /// Applies the fault to a write of `name`. `real` writes the real file.
    fn write(&mut self, name: &str, offset: u64, data: &[u8], real: impl FnOnce() -> Code) -> Code {
        if let Some(code) = self.refusal() {
            return code;
        }
        let code = real();
        if code == libsqlite3_sys::SQLITE_OK {
            self.media
                .entry(name.to_owned())
                .or_default()
                .write(offset, data);
            if name.ends_with("-wal") {
                self.events.push(Event::LogWrite {
                    offset,
                    data: data.into(),
                });
            }
            self.count();
        }
        code
    }

    fn truncate(&mut self, name: &str, size: u64, real: impl FnOnce() -> Code) -> Code {
        if let Some(code) = self.refusal() {
            return code;
        }
        let code = real();
        if code == libsqlite3_sys::SQLITE_OK {
            self.media
                .entry(name.to_owned())
                .or_default()
                .truncate(size);
            self.count();
        }
        code
    }

    /// Records a sync. The real file is not synced, because that would only take time.
    fn sync(&mut self, name: &str) -> Code {
        if self.cut.is_some() || self.fault == Fault::SyncError {
            return libsqlite3_sys::SQLITE_IOERR_FSYNC;
        }
        if self.ignores_sync {
            return libsqlite3_sys::SQLITE_OK;
        }
        // With a new log or journal SQLite also syncs the directory (UNIXFILE_DIRSYNC in os_unix.c).
        if self.media.entry(name.to_owned()).or_default().sync() && name.contains('-') {
            self.media.values_mut().for_each(Medium::directory_synced);
        }
        if name.ends_with("-wal") {
            self.events.push(Event::LogSync);
        }
        self.count();
        libsqlite3_sys::SQLITE_OK
    }

    fn delete(&mut self, name: &str, directory_synced: bool, real: impl FnOnce() -> Code) -> Code {
        if self.cut.is_some() {
            return libsqlite3_sys::SQLITE_IOERR_DELETE;
        }
        let code = real();
        if code == libsqlite3_sys::SQLITE_OK {
            self.media
                .entry(name.to_owned())
                .or_default()
                .delete(directory_synced);
        }
        code
    }

    fn refusal(&self) -> Option<Code> {
        if self.cut.is_some() {
            return Some(libsqlite3_sys::SQLITE_IOERR_WRITE);
        }
        match self.fault {
            Fault::None | Fault::SyncError => None,
            Fault::Full => Some(libsqlite3_sys::SQLITE_FULL),
            Fault::WriteError => Some(libsqlite3_sys::SQLITE_IOERR_WRITE),
            Fault::ReadOnly => Some(libsqlite3_sys::SQLITE_READONLY),
        }
    }

    /// Counts down to the cut. It happens after the operation, so that the operation itself can be lost or torn.
    fn count(&mut self) {
        if let Some((left, random)) = &mut self.cut_in {
            *left = left.saturating_sub(1);
            if *left == 0 {
                let mut random = random.clone();
                self.cut_in = None;
                self.cut = Some(Cut::of(&self.media, &mut random));
            }
        }
    }
}
