//! The BM25 score of an entry as an FTS5 auxiliary function
//! (<https://sqlite.org/fts5.html#custom_auxiliary_functions>).
//!
//! It replaces FTS5's own `bm25`, which has fixed constants (ours are in [`context_store::bm25`]), counts the scope as
//! part of the text's length, and searches the whole index to determine how rare the scope is.
#![expect(
    unsafe_code,
    reason = "FTS5 takes auxiliary functions as C functions only"
)]

use std::ffi::{c_int, c_void};
use std::ptr;

use context_store::bm25::{B, K1, PADDING, context_weight};
use libsqlite3_sys as ffi;

use crate::cancel;

/// The inverse document frequency of a word that occurs in more than half of the entries.
const LEAST_IDF: f64 = 1e-6;
/// Number of rows that are counted between two cancellation checks, about 100 µs.
const ROWS_BETWEEN_CHECKS: i64 = 4096;
/// Columns of the full-text table.
const TEXT: c_int = 0;
const CONTEXT: c_int = 1;

/// Registers `match_score(table, words, weight)` on a connection: the score of the row, higher for better matches. Only
/// the first `words` phrases of the expression count. A match in the text counts 1, a match among the context keywords
/// `weight`, or less in a long text.
///
/// # Safety
/// `api` must be the FTS5 API of an open connection.
pub(crate) unsafe fn register(api: *mut ffi::fts5_api) -> c_int {
    // SAFETY: guaranteed by the caller.
    let Some(create_function) = (unsafe { api.as_ref() }).and_then(|api| api.xCreateFunction)
    else {
        return ffi::SQLITE_ERROR;
    };
    // SAFETY: `match_score` has the signature of an auxiliary function.
    unsafe {
        create_function(
            api,
            c"match_score".as_ptr(),
            ptr::null_mut(),
            Some(match_score),
            None,
        )
    }
}

/// Values that are the same forevery row of a query.
struct Query {
    /// Inverse document frequency of each phrase.
    idf: Vec<f64>,
    /// Average length of a text, in words.
    average: f64,
}

unsafe extern "C" fn match_score(
    api: *const ffi::Fts5ExtensionApi,
    row: *mut ffi::Fts5Context,
    result: *mut ffi::sqlite3_context,
    count: c_int,
    arguments: *mut *mut ffi::sqlite3_value,
) {
    // SAFETY: FTS5 passes its interface, the current row and `count` values.
    unsafe {
        if count != 2 {
            return ffi::sqlite3_result_error_code(result, ffi::SQLITE_MISUSE);
        }
        let words = ffi::sqlite3_value_int(*arguments);
        let weight = ffi::sqlite3_value_double(*arguments.add(1));
        match score(&*api, row, words, weight) {
            Ok(score) => ffi::sqlite3_result_double(result, score),
            Err(code) => ffi::sqlite3_result_error_code(result, code),
        }
    }
}

/// # Safety
/// `api` and `row` must be the arguments with which FTS5 called an auxiliary function.
unsafe fn score(
    api: &ffi::Fts5ExtensionApi,
    row: *mut ffi::Fts5Context,
    words: c_int,
    weight: f64,
) -> Result<f64, c_int> {
    let (Some(phrase_first), Some(phrase_next), Some(column_size)) =
        (api.xPhraseFirst, api.xPhraseNext, api.xColumnSize)
    else {
        return Err(ffi::SQLITE_ERROR);
    };
    // SAFETY: guaranteed by the caller. The pointers refer to local variables that outlive each call.
    unsafe {
        let query = query(api, row, words)?;
        let mut length = 0;
        done(column_size(row, TEXT, &raw mut length))?;
        let norm = K1 * (1.0 - B + B * (f64::from(length) + PADDING) / (query.average + PADDING));
        let context = context_weight(weight, f64::from(length));
        let mut score = 0.0;
        for (phrase, idf) in (0..).zip(&query.idf) {
            let mut positions = ffi::Fts5PhraseIter {
                a: ptr::null(),
                b: ptr::null(),
            };
            let (mut column, mut position) = (0, 0);
            let mut frequency = 0.0;
            done(phrase_first(
                row,
                phrase,
                &raw mut positions,
                &raw mut column,
                &raw mut position,
            ))?;
            while column >= 0 {
                frequency += match column {
                    TEXT => 1.0,
                    CONTEXT => context,
                    _ => 0.0,
                };
                phrase_next(row, &raw mut positions, &raw mut column, &raw mut position);
            }
            score += idf * frequency * (K1 + 1.0) / (frequency + norm);
        }
        Ok(score)
    }
}

/// The values that are the same forevery row. They are computed once per query.
///
/// # Safety
/// As for [`score`]. The reference is valid until FTS5 calls again.
unsafe fn query<'q>(
    api: &ffi::Fts5ExtensionApi,
    row: *mut ffi::Fts5Context,
    words: c_int,
) -> Result<&'q Query, c_int> {
    let (
        Some(get),
        Some(set),
        Some(row_count),
        Some(total_size),
        Some(phrase_count),
        Some(query_phrase),
    ) = (
        api.xGetAuxdata,
        api.xSetAuxdata,
        api.xRowCount,
        api.xColumnTotalSize,
        api.xPhraseCount,
        api.xQueryPhrase,
    )
    else {
        return Err(ffi::SQLITE_ERROR);
    };
    // SAFETY: guaranteed by the caller. `set` stores a box of ours, which `forget` frees when the query ends.
    unsafe {
        if let Some(known) = get(row, 0).cast::<Query>().as_ref() {
            return Ok(known);
        }
        let (mut rows, mut total) = (0, 0);
        done(row_count(row, &raw mut rows))?;
        done(total_size(row, TEXT, &raw mut total))?;
        let rows = (rows as f64).max(1.0);
        let mut idf = Vec::new();
        for phrase in 0..words.min(phrase_count(row)) {
            let mut matching = 0_i64;
            done(query_phrase(
                row,
                phrase,
                (&raw mut matching).cast::<c_void>(),
                Some(count_row),
            ))?;
            let matching = matching as f64;
            idf.push(
                ((rows - matching + 0.5) / (matching + 0.5))
                    .ln()
                    .max(LEAST_IDF),
            );
        }
        let boxed = Box::into_raw(Box::new(Query {
            idf,
            average: total as f64 / rows,
        }));
        // `set` takes ownership of the box even when it fails.
        done(set(row, boxed.cast::<c_void>(), Some(forget)))?;
        Ok(&*boxed)
    }
}

unsafe extern "C" fn count_row(
    _: *const ffi::Fts5ExtensionApi,
    _: *mut ffi::Fts5Context,
    count: *mut c_void,
) -> c_int {
    // SAFETY: `query` passes its counter, which nothing else uses during the call.
    let count = unsafe { &mut *count.cast::<i64>() };
    *count += 1;
    // SQLite does not call the progress handler while FTS5 iterates over the rows of a word.
    if *count % ROWS_BETWEEN_CHECKS == 0 {
        cancel::code()
    } else {
        ffi::SQLITE_OK
    }
}

unsafe extern "C" fn forget(query: *mut c_void) {
    // SAFETY: `query` allocated the box, and FTS5 passes it here exactly once.
    drop(unsafe { Box::from_raw(query.cast::<Query>()) });
}

fn done(code: c_int) -> Result<(), c_int> {
    if code == ffi::SQLITE_OK {
        Ok(())
    } else {
        Err(code)
    }
}
