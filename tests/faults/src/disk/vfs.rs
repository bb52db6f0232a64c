//! The SQLite VFS behind [`Disk`]: the default VFS, with our own files where a disk is attached.
//!
//! See <https://www.sqlite.org/c3ref/vfs.html>. It becomes the default VFS, because a service opens its database by a
//! plain path.

use std::ffi::{CStr, OsStr, c_char, c_int};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::{Arc, Mutex, Once, PoisonError};

use libsqlite3_sys as ffi;

use super::Disk;
use super::file::{self, Handle, ShimFile};

static DISKS: Mutex<Vec<Arc<Disk>>> = Mutex::new(Vec::new());

impl Disk {
    /// Puts the SQLite files of this directory on a disk with faults. Must be called before they are opened.
    ///
    /// # Panics
    /// The directory does not exist, or SQLite does not accept another VFS.
    #[must_use]
    pub fn attach(directory: &Path) -> Arc<Self> {
        let directory = directory.canonicalize().expect("the directory exists");
        let disk = Arc::new(Self {
            directory,
            state: Mutex::default(),
        });
        register_disk(&disk);
        disk
    }
}

/// Registers the disk for its directory.
fn register_disk(disk: &Arc<Disk>) {
    static REGISTERED: Once = Once::new();
    REGISTERED.call_once(register);
    DISKS
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .push(Arc::clone(disk));
}

fn register() {
    // SAFETY: the default VFS lives as long as the process. Ours is a copy of it with four functions replaced. It is
    // leaked and therefore lives as long. Its application data is the pointer that `base` expects.
    unsafe {
        assert_eq!(ffi::sqlite3_initialize(), ffi::SQLITE_OK);
        let base = ffi::sqlite3_vfs_find(std::ptr::null());
        assert!(!base.is_null(), "SQLite has a default VFS");
        let mut shim: ffi::sqlite3_vfs = std::ptr::read(base);
        shim.szOsFile = file::size(&*base);
        shim.pNext = std::ptr::null_mut();
        shim.zName = c"faults".as_ptr();
        shim.pAppData = base.cast();
        shim.xOpen = Some(open);
        shim.xDelete = Some(delete);
        shim.xAccess = Some(access);
        shim.xFullPathname = Some(full_pathname);
        assert_eq!(
            ffi::sqlite3_vfs_register(Box::leak(Box::new(shim)), 1),
            ffi::SQLITE_OK
        );
    }
}

/// The default VFS. Its `xOpen`, `xDelete`, `xAccess` and `xFullPathname` access the VFS that they are given, so they
/// receive this one. The functions that were copied unchanged receive ours, and do not access it.
///
/// # Safety
/// `vfs` must be ours.
unsafe fn base<'v>(vfs: *mut ffi::sqlite3_vfs) -> &'v mut ffi::sqlite3_vfs {
    // SAFETY: guaranteed by the caller. `register` stored the pointer.
    unsafe { &mut *(*vfs).pAppData.cast::<ffi::sqlite3_vfs>() }
}

/// The disk of a file, and the file's name on it.
///
/// # Safety
/// `name` must be null or a C string.
unsafe fn on_disk(name: *const c_char) -> Option<Handle> {
    if name.is_null() {
        return None;
    }
    // SAFETY: guaranteed by the caller.
    let path = Path::new(OsStr::from_bytes(
        unsafe { CStr::from_ptr(name) }.to_bytes(),
    ));
    let directory = path.parent()?;
    let disks = DISKS.lock().unwrap_or_else(PoisonError::into_inner);
    let disk = disks.iter().find(|disk| disk.directory == directory)?;
    Some(Handle {
        disk: Arc::clone(disk),
        name: path.file_name()?.to_str()?.to_owned(),
    })
}

unsafe extern "C" fn open(
    vfs: *mut ffi::sqlite3_vfs,
    name: ffi::sqlite3_filename,
    file: *mut ffi::sqlite3_file,
    flags: c_int,
    out_flags: *mut c_int,
) -> c_int {
    // SAFETY: SQLite calls with its own arguments. `file` points to `szOsFile` bytes, enough for our header and the
    // base's file behind it.
    unsafe {
        let base = base(vfs);
        let Some(real_open) = base.xOpen else {
            return ffi::SQLITE_CANTOPEN;
        };
        match on_disk(name) {
            None => real_open(base, name, file, flags, out_flags),
            Some(handle) => {
                let shim = file.cast::<ShimFile>();
                let code = real_open(base, name, file::real(shim), flags, out_flags);
                file::init(shim, (code == ffi::SQLITE_OK).then_some(handle));
                code
            }
        }
    }
}

unsafe extern "C" fn delete(
    vfs: *mut ffi::sqlite3_vfs,
    name: *const c_char,
    sync_directory: c_int,
) -> c_int {
    // SAFETY: as in `open`.
    unsafe {
        let base = base(vfs);
        let Some(real_delete) = base.xDelete else {
            return ffi::SQLITE_IOERR_DELETE;
        };
        match on_disk(name) {
            None => real_delete(base, name, sync_directory),
            Some(Handle { disk, name: file }) => {
                disk.lock().delete(&file, sync_directory != 0, || {
                    real_delete(base, name, sync_directory)
                })
            }
        }
    }
}

unsafe extern "C" fn access(
    vfs: *mut ffi::sqlite3_vfs,
    name: *const c_char,
    flags: c_int,
    result: *mut c_int,
) -> c_int {
    // SAFETY: as in `open`.
    unsafe {
        let base = base(vfs);
        base.xAccess.map_or(ffi::SQLITE_IOERR_ACCESS, |real| {
            real(base, name, flags, result)
        })
    }
}

unsafe extern "C" fn full_pathname(
    vfs: *mut ffi::sqlite3_vfs,
    name: *const c_char,
    size: c_int,
    out: *mut c_char,
) -> c_int {
    // SAFETY: as in `open`.
    unsafe {
        let base = base(vfs);
        base.xFullPathname
            .map_or(ffi::SQLITE_CANTOPEN, |real| real(base, name, size, out))
    }
}
