//! How well an entry matches by words: BM25 as an FTS5 auxiliary function
//! (<https://sqlite.org/fts5.html#custom_auxiliary_functions>).
//!
//! It takes the place of FTS5's own `bm25`, whose constants are fixed ([`context_store::bm25`]), which counts the scope as
//! part of the text's length, and which looks up in the whole index how rare the scope is.
#![expect(
    unsafe_code,
    reason = "FTS5 takes auxiliary functions as C functions only"
)]

use std::ffi::{c_int, c_void};
use std::ptr;

use context_store::bm25::{B, K1, PADDING};
use libsqlite3_sys as ffi;

use crate::cancel;

/// What a word weighs that is in more than half of the entries.
const LEAST_IDF: f64 = 1e-6;
/// Rows that are counted between two questions whether anyone still waits: some 100 µs.
const ROWS_BETWEEN_CHECKS: i64 = 4096;
/// Columns of the full-text table.
const TEXT: c_int = 0;
const CONTEXT: c_int = 1;

/// Makes `match_score(table, words, weight)` known to a connection: the score of the row, higher for better matches. The
/// first `words` phrases of the expression count, in the text 1 and among the words of neighbours `weight`.
///
/// # Safety
/// `api` is FTS5's, of an open connection.
pub(crate) unsafe fn register(api: *mut ffi::fts5_api) -> c_int {
    // SAFETY: the caller's.
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

/// What is the same for every row of a query.
struct Query {
    /// How rare each phrase is.
    idf: Vec<f64>,
    /// The average length of a text, in words.
    average: f64,
}

unsafe extern "C" fn match_score(
    api: *const ffi::Fts5ExtensionApi,
    row: *mut ffi::Fts5Context,
    result: *mut ffi::sqlite3_context,
    count: c_int,
    arguments: *mut *mut ffi::sqlite3_value,
) {
    // SAFETY: FTS5 hands over its interface, the row it is at and `count` values.
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
/// `api` and `row` are what FTS5 called an auxiliary function with.
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
    // SAFETY: the caller's; the pointers handed over are to locals that outlive each call.
    unsafe {
        let query = query(api, row, words)?;
        let mut length = 0;
        done(column_size(row, TEXT, &raw mut length))?;
        let norm = K1 * (1.0 - B + B * (f64::from(length) + PADDING) / (query.average + PADDING));
        let mut score = 0.0;
        for (phrase, idf) in (0..).zip(&query.idf) {
            let mut places = ffi::Fts5PhraseIter {
                a: ptr::null(),
                b: ptr::null(),
            };
            let (mut column, mut place) = (0, 0);
            let mut frequency = 0.0;
            done(phrase_first(
                row,
                phrase,
                &raw mut places,
                &raw mut column,
                &raw mut place,
            ))?;
            while column >= 0 {
                frequency += match column {
                    TEXT => 1.0,
                    CONTEXT => weight,
                    _ => 0.0,
                };
                phrase_next(row, &raw mut places, &raw mut column, &raw mut place);
            }
            score += idf * frequency * (K1 + 1.0) / (frequency + norm);
        }
        Ok(score)
    }
}

/// Finds out what is the same for every row, once.
///
/// # Safety
/// As of [`score`]. The reference is valid until FTS5 calls again.
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
    // SAFETY: the caller's. What `set` keeps is a box of ours, which `forget` takes back when the query ends.
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
            let mut with_it = 0_i64;
            done(query_phrase(
                row,
                phrase,
                (&raw mut with_it).cast::<c_void>(),
                Some(count_row),
            ))?;
            let with_it = with_it as f64;
            idf.push(
                ((rows - with_it + 0.5) / (with_it + 0.5))
                    .ln()
                    .max(LEAST_IDF),
            );
        }
        let made = Box::into_raw(Box::new(Query {
            idf,
            average: total as f64 / rows,
        }));
        // It takes the box also when it fails.
        done(set(row, made.cast::<c_void>(), Some(forget)))?;
        Ok(&*made)
    }
}

unsafe extern "C" fn count_row(
    _: *const ffi::Fts5ExtensionApi,
    _: *mut ffi::Fts5Context,
    count: *mut c_void,
) -> c_int {
    // SAFETY: `query` hands over its counter, which nobody else uses meanwhile.
    let count = unsafe { &mut *count.cast::<i64>() };
    *count += 1;
    // SQLite does not ask while FTS5 goes through the rows of a word.
    if *count % ROWS_BETWEEN_CHECKS == 0 {
        cancel::code()
    } else {
        ffi::SQLITE_OK
    }
}

unsafe extern "C" fn forget(query: *mut c_void) {
    // SAFETY: `query` made the box, and FTS5 gives it back once.
    drop(unsafe { Box::from_raw(query.cast::<Query>()) });
}

fn done(code: c_int) -> Result<(), c_int> {
    if code == ffi::SQLITE_OK {
        Ok(())
    } else {
        Err(code)
    }
}
