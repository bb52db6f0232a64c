//! Cancellation of the read that runs on this thread.
//!
//! Every 2 000 steps of a statement SQLite checks whether the caller still waits
//! (<https://sqlite.org/c3ref/progress_handler.html>). Our own loops check too. The state belongs to the read and not
//! to its connection, so that a cancelled read cannot cancel the next one.
#![expect(clippy::disallowed_methods, reason = "the deadlines of reads")]
#![expect(
    unsafe_code,
    reason = "SQLite accepts only a C function as a progress handler"
)]

use std::cell::RefCell;
use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use diesel::QueryResult;
use diesel::result::{DatabaseErrorKind, Error as DieselError};
use libsqlite3_sys as ffi;

/// Steps of SQLite's virtual machine between two checks: about 50 to 100 µs, or a few dozen parsed texts.
const STEPS: c_int = 2000;

/// SQLite's message for an interrupted statement.
pub(crate) const INTERRUPTED: &str = "interrupted";

thread_local! {
    static WAITER: RefCell<Option<Waiter>> = const { RefCell::new(None) };
}

/// The caller's end of a read. Dropping it cancels the read.
#[derive(Debug, Default)]
pub(crate) struct Waiting(Arc<AtomicBool>);

impl Waiting {
    /// Creates the reader's end. The read must finish before the deadline.
    pub fn waiter(&self, deadline: Option<Instant>) -> Waiter {
        Waiter {
            gone: Arc::clone(&self.0),
            deadline,
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The reader's end of a read.
#[derive(Debug, Clone)]
pub(crate) struct Waiter {
    gone: Arc<AtomicBool>,
    deadline: Option<Instant>,
}

impl Waiter {
    /// Whether the caller is gone.
    pub fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Relaxed)
    }

    /// Whether the caller still waits and the deadline has not passed.
    pub fn waits(&self) -> bool {
        !self.is_gone()
            && self
                .deadline
                .is_none_or(|deadline| Instant::now() < deadline)
    }

    /// Runs `work`, which is cancelled when the caller leaves, and at the deadline.
    pub fn run<T>(self, work: impl FnOnce() -> T) -> T {
        struct Ended;
        impl Drop for Ended {
            fn drop(&mut self) {
                WAITER.set(None);
            }
        }
        WAITER.set(Some(self));
        let _ended = Ended;
        work()
    }
}

fn is_given_up() -> bool {
    WAITER.with_borrow(|waiter| waiter.as_ref().is_some_and(|waiter| !waiter.waits()))
}

/// Cancellation check for loops outside of SQLite. They must call it regularly.
///
/// # Errors
/// The error that SQLite returns for an interrupted statement, when the caller left or the deadline passed.
pub(crate) fn check() -> QueryResult<()> {
    if is_given_up() {
        return Err(DieselError::DatabaseError(
            DatabaseErrorKind::Unknown,
            Box::new(INTERRUPTED.to_owned()),
        ));
    }
    Ok(())
}

/// Like [`check`], for C: returns a result code.
pub(crate) fn code() -> c_int {
    if is_given_up() {
        ffi::SQLITE_INTERRUPT
    } else {
        ffi::SQLITE_OK
    }
}

/// Lets SQLite check for cancellation while it runs statements on this connection.
///
/// # Safety
/// `db` must be an open connection.
pub(crate) unsafe fn register(db: *mut ffi::sqlite3) {
    // SAFETY: guaranteed by the caller. The handler takes no argument and does not use the connection.
    unsafe { ffi::sqlite3_progress_handler(db, STEPS, Some(progress), ptr::null_mut()) };
}

unsafe extern "C" fn progress(_: *mut c_void) -> c_int {
    c_int::from(is_given_up())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use diesel::prelude::*;
    use diesel::sql_types::BigInt;
    use diesel::sqlite::SqliteConnection;

    use super::*;
    use crate::tokenizer;

    fn count_to(conn: &mut SqliteConnection, last: i64) -> QueryResult<i64> {
        let sql = format!(
            "(WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n WHERE i < {last}) SELECT count(*) FROM n)"
        );
        diesel::select(diesel::dsl::sql::<BigInt>(&sql)).get_result(conn)
    }

    fn connection() -> SqliteConnection {
        tokenizer::register();
        SqliteConnection::establish(":memory:").unwrap()
    }

    #[test]
    fn a_statement_ends_when_its_caller_leaves_and_the_next_one_on_the_connection_does_not() {
        let mut conn = connection();
        let waiting = Waiting::default();
        let waiter = waiting.waiter(None);
        let leaving = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(20));
            drop(waiting);
        });
        // Counting that far would take years.
        let error = waiter.run(|| count_to(&mut conn, i64::MAX)).unwrap_err();
        assert_eq!(error.to_string(), INTERRUPTED);
        leaving.join().unwrap();
        assert_eq!(
            count_to(&mut conn, 100_000),
            Ok(100_000),
            "nothing is cancelled outside of a read"
        );
        let next = Waiting::default();
        assert_eq!(
            next.waiter(None).run(|| count_to(&mut conn, 100_000)),
            Ok(100_000)
        );
    }

    #[test]
    fn a_statement_and_a_loop_end_at_their_deadline() {
        let mut conn = connection();
        let waiting = Waiting::default();
        let waiter = waiting.waiter(Some(Instant::now() + Duration::from_millis(20)));
        assert!(
            waiter
                .clone()
                .run(|| count_to(&mut conn, i64::MAX))
                .is_err()
        );
        assert!(waiter.run(check).is_err());
        assert!(check().is_ok());
    }
}
