//! A file on a [`Disk`](super::Disk): the file that SQLite sees, backed by the real file.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use libsqlite3_sys as ffi;

use super::Disk;

/// The disk and the name of a file.
pub(super) struct Handle {
    pub(super) disk: Arc<Disk>,
    pub(super) name: String,
}

/// SQLite's memory for a file. The file of the real VFS follows it.
#[repr(C)]
pub(super) struct ShimFile {
    methods: *const ffi::sqlite3_io_methods,
    handle: *mut Handle,
}

/// Size of our file structure and the real one behind it.
pub(super) fn size(base: &ffi::sqlite3_vfs) -> c_int {
    c_int::try_from(size_of::<ShimFile>()).expect("a few bytes") + base.szOsFile
}

/// The real file.
///
/// # Safety
/// `shim` must point to the memory that SQLite allocated for one of our files.
pub(super) unsafe fn real(shim: *mut ShimFile) -> *mut ffi::sqlite3_file {
    // SAFETY: guaranteed by the caller. `size` made room for it, and two pointers preserve the alignment.
    unsafe { shim.add(1).cast() }
}

/// Initialises the file as ours or, without a handle, as one that did not open.
///
/// # Safety
/// As for [`real`].
pub(super) unsafe fn init(shim: *mut ShimFile, handle: Option<Handle>) {
    // SAFETY: guaranteed by the caller. Null methods tell SQLite not to call xClose.
    unsafe {
        (*shim).methods = if handle.is_some() {
            &raw const METHODS
        } else {
            std::ptr::null()
        };
        (*shim).handle = handle.map_or(std::ptr::null_mut(), |handle| {
            Box::into_raw(Box::new(handle))
        });
    }
}

/// Version 2 has no xFetch, so every read and write passes through these methods and none through a memory map.
static METHODS: ffi::sqlite3_io_methods = ffi::sqlite3_io_methods {
    iVersion: 2,
    xClose: Some(close),
    xRead: Some(read),
    xWrite: Some(write),
    xTruncate: Some(truncate),
    xSync: Some(sync),
    xFileSize: Some(file_size),
    xLock: Some(lock),
    xUnlock: Some(unlock),
    xCheckReservedLock: Some(check_reserved_lock),
    xFileControl: Some(file_control),
    xSectorSize: Some(sector_size),
    xDeviceCharacteristics: Some(device_characteristics),
    xShmMap: Some(shm_map),
    xShmLock: Some(shm_lock),
    xShmBarrier: Some(shm_barrier),
    xShmUnmap: Some(shm_unmap),
    xFetch: None,
    xUnfetch: None,
};

/// Calls a method of the real file.
macro_rules! pass {
    ($file:ident, $method:ident $(, $argument:expr)*) => {{
        let real = real($file.cast());
        (*(*real).pMethods).$method.map_or(ffi::SQLITE_IOERR, |method| method(real $(, $argument)*))
    }};
}

// SAFETY of everything below: SQLite calls a method with a file that `init` initialised and that is not closed, and
// with buffers of the given lengths. The real file behind it was opened by the VFS that provides its methods.

unsafe fn handle<'f>(file: *mut ffi::sqlite3_file) -> &'f Handle {
    unsafe { &*(*file.cast::<ShimFile>()).handle }
}

unsafe extern "C" fn close(file: *mut ffi::sqlite3_file) -> c_int {
    unsafe {
        let code = pass!(file, xClose);
        drop(Box::from_raw((*file.cast::<ShimFile>()).handle));
        code
    }
}

unsafe extern "C" fn read(
    file: *mut ffi::sqlite3_file,
    buffer: *mut c_void,
    amount: c_int,
    offset: ffi::sqlite3_int64,
) -> c_int {
    unsafe { pass!(file, xRead, buffer, amount, offset) }
}

unsafe extern "C" fn write(
    file: *mut ffi::sqlite3_file,
    data: *const c_void,
    amount: c_int,
    offset: ffi::sqlite3_int64,
) -> c_int {
    unsafe {
        let Handle { disk, name } = handle(file);
        let bytes =
            std::slice::from_raw_parts(data.cast::<u8>(), usize::try_from(amount).unwrap_or(0));
        disk.lock()
            .write(name, u64::try_from(offset).unwrap_or(0), bytes, || {
                pass!(file, xWrite, data, amount, offset)
            })
    }
}

unsafe extern "C" fn truncate(file: *mut ffi::sqlite3_file, size: ffi::sqlite3_int64) -> c_int {
    unsafe {
        let Handle { disk, name } = handle(file);
        disk.lock()
            .truncate(name, u64::try_from(size).unwrap_or(0), || {
                pass!(file, xTruncate, size)
            })
    }
}

unsafe extern "C" fn sync(file: *mut ffi::sqlite3_file, _flags: c_int) -> c_int {
    unsafe {
        let Handle { disk, name } = handle(file);
        disk.lock().sync(name)
    }
}

unsafe extern "C" fn file_size(
    file: *mut ffi::sqlite3_file,
    size: *mut ffi::sqlite3_int64,
) -> c_int {
    unsafe { pass!(file, xFileSize, size) }
}

unsafe extern "C" fn lock(file: *mut ffi::sqlite3_file, level: c_int) -> c_int {
    unsafe { pass!(file, xLock, level) }
}

unsafe extern "C" fn unlock(file: *mut ffi::sqlite3_file, level: c_int) -> c_int {
    unsafe { pass!(file, xUnlock, level) }
}

unsafe extern "C" fn check_reserved_lock(
    file: *mut ffi::sqlite3_file,
    result: *mut c_int,
) -> c_int {
    unsafe { pass!(file, xCheckReservedLock, result) }
}

unsafe extern "C" fn file_control(
    file: *mut ffi::sqlite3_file,
    operation: c_int,
    argument: *mut c_void,
) -> c_int {
    // Both operations would grow or change the real file without our knowledge.
    if matches!(
        operation,
        ffi::SQLITE_FCNTL_SIZE_HINT | ffi::SQLITE_FCNTL_MMAP_SIZE
    ) {
        return ffi::SQLITE_NOTFOUND;
    }
    unsafe { pass!(file, xFileControl, operation, argument) }
}

unsafe extern "C" fn sector_size(file: *mut ffi::sqlite3_file) -> c_int {
    unsafe { pass!(file, xSectorSize) }
}

unsafe extern "C" fn device_characteristics(file: *mut ffi::sqlite3_file) -> c_int {
    unsafe { pass!(file, xDeviceCharacteristics) }
}

unsafe extern "C" fn shm_map(
    file: *mut ffi::sqlite3_file,
    page: c_int,
    size: c_int,
    extend: c_int,
    out: *mut *mut c_void,
) -> c_int {
    unsafe { pass!(file, xShmMap, page, size, extend, out.cast()) }
}

unsafe extern "C" fn shm_lock(
    file: *mut ffi::sqlite3_file,
    offset: c_int,
    count: c_int,
    flags: c_int,
) -> c_int {
    unsafe { pass!(file, xShmLock, offset, count, flags) }
}

unsafe extern "C" fn shm_barrier(file: *mut ffi::sqlite3_file) {
    unsafe {
        let real = real(file.cast());
        if let Some(barrier) = (*(*real).pMethods).xShmBarrier {
            barrier(real);
        }
    }
}

unsafe extern "C" fn shm_unmap(file: *mut ffi::sqlite3_file, delete: c_int) -> c_int {
    unsafe { pass!(file, xShmUnmap, delete) }
}
