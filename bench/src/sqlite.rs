//! SQLite without any layers on top: the floor for the service's storage.

use std::ffi::{CStr, CString, c_int};
use std::path::Path;
use std::ptr;
use std::rc::Rc;

use libsqlite3_sys as ffi;

use crate::Result;

struct Handle(*mut ffi::sqlite3);

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: the handle came from sqlite3_open_v2. Every statement on it holds an Rc of it, so no statement is
        // left.
        unsafe { ffi::sqlite3_close(self.0) };
    }
}

impl Handle {
    fn check(&self, code: c_int) -> Result<()> {
        if code == ffi::SQLITE_OK {
            Ok(())
        } else {
            Err(self.message().into())
        }
    }

    fn message(&self) -> String {
        // SAFETY: sqlite3_errmsg returns a NUL-terminated string that is valid until the next call on the handle.
        unsafe { CStr::from_ptr(ffi::sqlite3_errmsg(self.0)) }
            .to_string_lossy()
            .into_owned()
    }
}

/// A connection with the service's settings that affect speed.
#[derive(Clone)]
pub struct Connection(Rc<Handle>);

impl Connection {
    /// Opens a writing connection with the service's settings.
    ///
    /// # Errors
    /// An error of SQLite.
    pub fn writer(path: &Path) -> Result<Self> {
        let connection = Self::open(path)?;
        connection.run(
            "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA cache_size = -32768; PRAGMA wal_autocheckpoint = 4000; \
             PRAGMA journal_size_limit = 67108864",
        )?;
        Ok(connection)
    }

    /// Opens a reading connection with the service's settings, but with a cache of 8 MiB; the service's has 4.
    ///
    /// # Errors
    /// An error of SQLite.
    pub fn reader(path: &Path) -> Result<Self> {
        let connection = Self::open(path)?;
        connection.run("PRAGMA query_only = ON; PRAGMA cache_size = -8192")?;
        Ok(connection)
    }

    fn open(path: &Path) -> Result<Self> {
        let name = CString::new(path.to_str().ok_or("the path is not UTF-8")?)?;
        let mut handle = ptr::null_mut();
        let flags = ffi::SQLITE_OPEN_READWRITE | ffi::SQLITE_OPEN_CREATE | ffi::SQLITE_OPEN_NOMUTEX;
        // SAFETY: the name is NUL-terminated and `handle` is a valid location for the result.
        let code = unsafe { ffi::sqlite3_open_v2(name.as_ptr(), &mut handle, flags, ptr::null()) };
        let connection = Self(Rc::new(Handle(handle)));
        connection.0.check(code)?;
        connection.run(
            "PRAGMA busy_timeout = 5000; PRAGMA mmap_size = 1073741824; PRAGMA temp_store = MEMORY",
        )?;
        Ok(connection)
    }

    /// Runs statements without values.
    ///
    /// # Errors
    /// An error of SQLite.
    pub fn run(&self, sql: &str) -> Result<()> {
        let text = CString::new(sql)?;
        // SAFETY: the text is NUL-terminated, and no callback is passed.
        let code = unsafe {
            ffi::sqlite3_exec(
                self.0.0,
                text.as_ptr(),
                None,
                ptr::null_mut(),
                ptr::null_mut(),
            )
        };
        self.0
            .check(code)
            .map_err(|error| format!("{error} in {sql}").into())
    }

    /// Prepares a statement.
    ///
    /// # Errors
    /// An error of SQLite.
    pub fn prepare(&self, sql: &str) -> Result<Statement> {
        let text = CString::new(sql)?;
        let mut statement = ptr::null_mut();
        // SAFETY: the text is NUL-terminated and `statement` is a valid location for the result.
        let code = unsafe {
            ffi::sqlite3_prepare_v3(
                self.0.0,
                text.as_ptr(),
                -1,
                ffi::SQLITE_PREPARE_PERSISTENT,
                &mut statement,
                ptr::null_mut(),
            )
        };
        self.0
            .check(code)
            .map_err(|error| format!("{error} in {sql}"))?;
        Ok(Statement {
            handle: Rc::clone(&self.0),
            statement,
        })
    }

    /// The rows of a query, with all columns as text.
    ///
    /// # Errors
    /// An error of SQLite.
    pub fn rows(&self, sql: &str) -> Result<Vec<Vec<String>>> {
        let mut statement = self.prepare(sql)?;
        let mut rows = Vec::new();
        let columns = statement.columns();
        statement.query(&[], |row| {
            rows.push(
                (0..columns)
                    .map(|column| row.text(column).to_owned())
                    .collect(),
            )
        })?;
        Ok(rows)
    }
}

/// A value for a placeholder.
#[derive(Debug, Clone, Copy)]
pub enum Bind<'a> {
    /// TEXT.
    Text(&'a str),
    /// INTEGER.
    Int(i64),
    /// BLOB.
    Blob(&'a [u8]),
}

/// A prepared statement.
pub struct Statement {
    handle: Rc<Handle>,
    statement: *mut ffi::sqlite3_stmt,
}

impl Drop for Statement {
    fn drop(&mut self) {
        // SAFETY: the statement came from sqlite3_prepare_v3 and is finalized exactly once.
        unsafe { ffi::sqlite3_finalize(self.statement) };
    }
}

impl Statement {
    /// Runs the statement with these values.
    ///
    /// # Errors
    /// An error of SQLite.
    pub fn execute(&mut self, binds: &[Bind<'_>]) -> Result<()> {
        self.query(binds, |_| ())
    }

    /// Runs the statement with these values and calls `row` with every row.
    ///
    /// # Errors
    /// An error of SQLite.
    pub fn query(&mut self, binds: &[Bind<'_>], mut row: impl FnMut(&Row<'_>)) -> Result<()> {
        for (at, bind) in (1..).zip(binds) {
            // SAFETY: `binds` outlives the run, and the bindings are never read after the reset below. The lengths are
            // those of the strings.
            let code = unsafe {
                match bind {
                    Bind::Int(value) => ffi::sqlite3_bind_int64(self.statement, at, *value),
                    Bind::Blob(bytes) => {
                        let length = c_int::try_from(bytes.len())?;
                        ffi::sqlite3_bind_blob(
                            self.statement,
                            at,
                            bytes.as_ptr().cast(),
                            length,
                            ffi::SQLITE_STATIC(),
                        )
                    }
                    Bind::Text(text) => {
                        let length = c_int::try_from(text.len())?;
                        ffi::sqlite3_bind_text(
                            self.statement,
                            at,
                            text.as_ptr().cast(),
                            length,
                            ffi::SQLITE_STATIC(),
                        )
                    }
                }
            };
            self.handle.check(code)?;
        }
        let outcome = loop {
            // SAFETY: the statement is valid while `self` is.
            match unsafe { ffi::sqlite3_step(self.statement) } {
                ffi::SQLITE_ROW => row(&Row(self)),
                ffi::SQLITE_DONE => break Ok(()),
                _ => break Err(self.handle.message().into()),
            }
        };
        // SAFETY: as above. After this no binding to `binds` is read, because every run binds all placeholders again.
        unsafe { ffi::sqlite3_reset(self.statement) };
        outcome
    }

    fn columns(&self) -> c_int {
        // SAFETY: the statement is valid while `self` is.
        unsafe { ffi::sqlite3_column_count(self.statement) }
    }
}

/// The current row of a statement.
pub struct Row<'s>(&'s Statement);

impl Row<'_> {
    /// A column as an integer.
    pub fn int(&self, column: c_int) -> i64 {
        // SAFETY: the statement is at a row. A column out of range yields 0.
        unsafe { ffi::sqlite3_column_int64(self.0.statement, column) }
    }

    /// A column as a number.
    pub fn real(&self, column: c_int) -> f64 {
        // SAFETY: as above.
        unsafe { ffi::sqlite3_column_double(self.0.statement, column) }
    }

    /// A column as text. "" for NULL.
    pub fn text(&self, column: c_int) -> &str {
        // SAFETY: the text is valid until the next step, which needs the statement mutably. Its length is read after
        // the conversion to text, as SQLite's documentation requires.
        unsafe {
            let text = ffi::sqlite3_column_text(self.0.statement, column);
            let length =
                usize::try_from(ffi::sqlite3_column_bytes(self.0.statement, column)).unwrap_or(0);
            if text.is_null() {
                ""
            } else {
                std::str::from_utf8(std::slice::from_raw_parts(text, length)).unwrap_or("")
            }
        }
    }
}
