//! BM25 scores of entries, as FTS5 auxiliary functions
//! (<https://sqlite.org/fts5.html#custom_auxiliary_functions>).
//!
//! They replace FTS5's own `bm25`, which has fixed constants (ours are in [`context_store::bm25`]), counts the column
//! `scope` (`fts.rs`) as part of the text's length, and searches the whole index to determine how rare its tokens are.
//!
//! A score depends on how rare each word is, so all rows with the word must be read once to count them.
//!
//! - `match_score` returns the score of the current row. It counts first, and FTS5 then reads the rows of each word a
//!   second time to match them.
//! - `match_counts` returns how often a word occurs in each row of a given list, and counts in the same read. The
//!   caller computes the scores from the result (`fts/phrase_counts.rs`). FTS5 matches no row a second time.
#![expect(
    unsafe_code,
    reason = "FTS5 takes auxiliary functions as C functions only"
)]

use std::ffi::{c_int, c_void};
use std::ptr;

use context_store::bm25::{B, K1, PADDING, context_weight};
use libsqlite3_sys as ffi;

use crate::cancel;

/// The inverse document frequency of a word that occurs in half of the rows or more.
const LEAST_IDF: f64 = 1e-6;
/// Number of rows that are counted between two cancellation checks, about 100 µs.
const ROWS_BETWEEN_CHECKS: i64 = 4096;
/// Columns of the full-text table.
const TEXT: c_int = 0;
const CONTEXT: c_int = 1;

type Api = ffi::Fts5ExtensionApi;
type Row = *mut ffi::Fts5Context;

/// Registers on a connection:
///
/// - `match_score(table, phrases, weight)`: the score of the row, higher for better matches.
///   Only the first `phrases` phrases of the expression count. The others belong to the scope. A match in the text
///   counts 1, a match among the context keywords `weight`, or less in a long text.
/// - `match_counts(table, rows)`: in which of these rows the expression's first phrase occurs, and how often, in the
///   form that [`Counted::read`] decodes. The current row does not matter. `rows` is [`packed`], in ascending order.
///
/// # Safety
/// `api` must be the FTS5 API of an open connection.
pub(crate) unsafe fn register(api: *mut ffi::fts5_api) -> c_int {
    // SAFETY: guaranteed by the caller.
    let Some(create_function) = (unsafe { api.as_ref() }).and_then(|api| api.xCreateFunction)
    else {
        return ffi::SQLITE_ERROR;
    };
    // SAFETY: both have the signature of an auxiliary function.
    unsafe {
        let code = create_function(
            api,
            c"match_score".as_ptr(),
            ptr::null_mut(),
            Some(match_score),
            None,
        );
        if code != ffi::SQLITE_OK {
            return code;
        }
        create_function(
            api,
            c"match_counts".as_ptr(),
            ptr::null_mut(),
            Some(match_counts),
            None,
        )
    }
}

/// Numbers as bytes, such as the argument `rows` of `match_counts`.
pub(crate) fn packed(numbers: &[i64]) -> Vec<u8> {
    numbers.iter().copied().flat_map(i64::to_le_bytes).collect()
}

/// The numbers of [`packed`] bytes.
fn numbers(bytes: &[u8]) -> Vec<i64> {
    let (numbers, _) = bytes.as_chunks::<8>();
    numbers
        .iter()
        .map(|number| i64::from_le_bytes(*number))
        .collect()
}

/// The result of `match_counts`: a phrase, counted in the wanted rows.
#[derive(Debug)]
pub(crate) struct Counted {
    /// The size of the table.
    pub size: Size,
    /// Number of rows with the phrase, wanted or not.
    pub matching: i64,
    /// For each wanted row with the phrase: its place in the list of wanted rows, and how often it has the phrase.
    pub found: Vec<(usize, Count)>,
}

impl Counted {
    /// Decodes a result.
    pub fn read(result: &[u8]) -> Self {
        let numbers = numbers(result);
        let (header, found) = numbers.split_at(numbers.len().min(3));
        let [rows, words, matching] = *header else {
            return Self {
                size: Size::new(0, 0),
                matching: 0,
                found: Vec::new(),
            };
        };
        let (found, _) = found.as_chunks::<3>();
        Self {
            size: Size::new(rows, words),
            matching,
            found: found
                .iter()
                .map(|&[place, text, context]| (place as usize, Count { text, context }))
                .collect(),
        }
    }
}

/// The score that a phrase adds to that of a row. `frequency` is how often it occurs there ([`Count::frequency`]), and
/// `norm` is that of the row's [`Length`].
pub(crate) fn phrase_score(idf: f64, frequency: f64, norm: f64) -> f64 {
    idf * frequency * (K1 + 1.0) / (frequency + norm)
}

/// The inverse document frequency of a phrase.
pub(crate) fn idf(size: Size, matching: i64) -> f64 {
    let (rows, matching) = (size.rows, matching as f64);
    ((rows - matching + 0.5) / (matching + 0.5))
        .ln()
        .max(LEAST_IDF)
}

/// The size of a full-text table.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Size {
    /// Number of rows.
    rows: f64,
    /// Average length of a text, in words.
    average: f64,
}

impl Size {
    fn new(rows: i64, words: i64) -> Self {
        let rows = (rows as f64).max(1.0);
        Self {
            rows,
            average: words as f64 / rows,
        }
    }

    /// Number of rows, and of the words of all texts.
    ///
    /// # Safety
    /// `api` and `row` must be the arguments with which FTS5 called an auxiliary function.
    unsafe fn of(api: &Api, row: Row) -> Result<(i64, i64), c_int> {
        let (row_count, total_size) = (known(api.xRowCount)?, known(api.xColumnTotalSize)?);
        let (mut rows, mut total) = (0, 0);
        // SAFETY: guaranteed by the caller. The pointers refer to local variables that outlive each call.
        unsafe {
            done(row_count(row, &raw mut rows))?;
            done(total_size(row, TEXT, &raw mut total))?;
        }
        Ok((rows, total))
    }
}

/// The terms of a score that depend on the length of a row's text.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Length {
    pub norm: f64,
    /// The weight of a match among the context keywords.
    context: f64,
}

impl Length {
    pub fn new(words: f64, size: Size, weight: f64) -> Self {
        Self {
            norm: K1 * (1.0 - B + B * (words + PADDING) / (size.average + PADDING)),
            context: context_weight(weight, words),
        }
    }
}

/// How often a phrase occurs in a row.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Count {
    pub text: i64,
    /// Among the context keywords.
    pub context: i64,
}

impl Count {
    /// Counts a phrase in the current row.
    ///
    /// # Safety
    /// As for [`Size::of`].
    unsafe fn of(api: &Api, row: Row, phrase: c_int) -> Result<Self, c_int> {
        let (phrase_first, phrase_next) = (known(api.xPhraseFirst)?, known(api.xPhraseNext)?);
        let mut positions = ffi::Fts5PhraseIter {
            a: ptr::null(),
            b: ptr::null(),
        };
        let (mut column, mut position) = (0, 0);
        let mut count = Self::default();
        // SAFETY: guaranteed by the caller. The pointers refer to local variables that outlive each call.
        unsafe {
            done(phrase_first(
                row,
                phrase,
                &raw mut positions,
                &raw mut column,
                &raw mut position,
            ))?;
            while column >= 0 {
                match column {
                    TEXT => count.text += 1,
                    CONTEXT => count.context += 1,
                    _ => {}
                }
                phrase_next(row, &raw mut positions, &raw mut column, &raw mut position);
            }
        }
        Ok(count)
    }

    /// The frequency of the phrase in a row of this length, with the weight of the context keywords.
    pub fn frequency(self, length: Length) -> f64 {
        self.text as f64 + self.context as f64 * length.context
    }
}

/// The values that are the same for every row of a query.
struct Query {
    /// Inverse document frequency of each phrase.
    idf: Vec<f64>,
    size: Size,
}

unsafe extern "C" fn match_score(
    api: *const Api,
    row: Row,
    result: *mut ffi::sqlite3_context,
    count: c_int,
    arguments: *mut *mut ffi::sqlite3_value,
) {
    // SAFETY: FTS5 passes its interface, the current row and `count` values.
    unsafe {
        if count != 2 {
            return ffi::sqlite3_result_error_code(result, ffi::SQLITE_MISUSE);
        }
        let phrases = ffi::sqlite3_value_int(*arguments);
        let weight = ffi::sqlite3_value_double(*arguments.add(1));
        match score(&*api, row, phrases, weight) {
            Ok(score) => ffi::sqlite3_result_double(result, score),
            Err(code) => ffi::sqlite3_result_error_code(result, code),
        }
    }
}

/// The score of the current row.
///
/// # Safety
/// `api` and `row` must be the arguments with which FTS5 called an auxiliary function.
unsafe fn score(api: &Api, row: Row, phrases: c_int, weight: f64) -> Result<f64, c_int> {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let query = query(api, row, phrases)?;
        let column_size = known(api.xColumnSize)?;
        let mut words = 0;
        done(column_size(row, TEXT, &raw mut words))?;
        let length = Length::new(f64::from(words), query.size, weight);
        let mut score = 0.0;
        for (phrase, idf) in (0..).zip(&query.idf) {
            let frequency = Count::of(api, row, phrase)?.frequency(length);
            score += phrase_score(*idf, frequency, length.norm);
        }
        Ok(score)
    }
}

/// The values that are the same for every row. They are computed once per query.
///
/// # Safety
/// As for [`score`]. The reference is valid until FTS5 calls again.
unsafe fn query<'q>(api: &Api, row: Row, phrases: c_int) -> Result<&'q Query, c_int> {
    let (get, set) = (known(api.xGetAuxdata)?, known(api.xSetAuxdata)?);
    let (phrase_count, query_phrase) = (known(api.xPhraseCount)?, known(api.xQueryPhrase)?);
    // SAFETY: guaranteed by the caller. `set` stores a box of ours, which `forget` frees when the query ends.
    unsafe {
        if let Some(known) = get(row, 0).cast::<Query>().as_ref() {
            return Ok(known);
        }
        let (rows, words_of_all) = Size::of(api, row)?;
        let size = Size::new(rows, words_of_all);
        let mut idfs = Vec::new();
        for phrase in 0..phrases.min(phrase_count(row)) {
            let mut matching = 0_i64;
            done(query_phrase(
                row,
                phrase,
                (&raw mut matching).cast::<c_void>(),
                Some(count_row),
            ))?;
            idfs.push(idf(size, matching));
        }
        let boxed = Box::into_raw(Box::new(Query { idf: idfs, size }));
        // `set` takes ownership of the box even when it fails.
        done(set(row, boxed.cast::<c_void>(), Some(forget)))?;
        Ok(&*boxed)
    }
}

unsafe extern "C" fn count_row(_: *const Api, _: Row, count: *mut c_void) -> c_int {
    // SAFETY: `query` passes its counter, which nothing else uses during the call.
    let count = unsafe { &mut *count.cast::<i64>() };
    count_or_cancel(count)
}

/// Counts a row. The returned code stops FTS5 if the search was cancelled.
fn count_or_cancel(count: &mut i64) -> c_int {
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

unsafe extern "C" fn match_counts(
    api: *const Api,
    row: Row,
    result: *mut ffi::sqlite3_context,
    count: c_int,
    arguments: *mut *mut ffi::sqlite3_value,
) {
    // SAFETY: FTS5 passes its interface, the current row and `count` values. The bytes of a value are valid during the
    // call, and SQLite copies those of the result.
    unsafe {
        if count != 1 {
            return ffi::sqlite3_result_error_code(result, ffi::SQLITE_MISUSE);
        }
        let given = ffi::sqlite3_value_blob(*arguments).cast::<u8>();
        let length = usize::try_from(ffi::sqlite3_value_bytes(*arguments)).unwrap_or(0);
        let rows = if given.is_null() {
            Vec::new()
        } else {
            numbers(std::slice::from_raw_parts(given, length))
        };
        match count_phrase(&*api, row, &rows) {
            Ok(counts) => {
                let counts = packed(&counts);
                ffi::sqlite3_result_blob64(
                    result,
                    counts.as_ptr().cast(),
                    counts.len() as u64,
                    ffi::SQLITE_TRANSIENT(),
                );
            }
            Err(code) => ffi::sqlite3_result_error_code(result, code),
        }
    }
}

/// Counts the first phrase in these rows, which must be in ascending order. Returns the numbers that [`Counted::read`]
/// decodes.
///
/// # Safety
/// As for [`score`].
unsafe fn count_phrase(api: &Api, row: Row, rows: &[i64]) -> Result<Vec<i64>, c_int> {
    let query_phrase = known(api.xQueryPhrase)?;
    let mut pass = Pass {
        rows,
        next: 0,
        matching: 0,
        found: Vec::new(),
    };
    // SAFETY: guaranteed by the caller. Nothing else uses `pass` during the call.
    let (all, words) = unsafe {
        done(query_phrase(
            row,
            0,
            (&raw mut pass).cast::<c_void>(),
            Some(visit_row),
        ))?;
        Size::of(api, row)?
    };
    let mut counts = vec![all, words, pass.matching];
    counts.extend(pass.found.into_iter().flatten());
    Ok(counts)
}

/// One pass over all rows with a phrase, in ascending order.
struct Pass<'p> {
    /// The wanted rows, in ascending order.
    rows: &'p [i64],
    /// The place of the first wanted row that the pass has not reached.
    next: usize,
    /// Number of rows with the phrase, wanted or not.
    matching: i64,
    /// The place of each wanted row with the phrase, and how often the phrase occurs there, in the text and among the
    /// context keywords.
    found: Vec<[i64; 3]>,
}

unsafe extern "C" fn visit_row(api: *const Api, row: Row, pass: *mut c_void) -> c_int {
    // SAFETY: `count_phrase` passes its `Pass`, which nothing else uses during the call. FTS5 passes its interface and
    // the row.
    unsafe {
        let (api, pass) = (&*api, &mut *pass.cast::<Pass<'_>>());
        match pass.visit(api, row) {
            Ok(()) => count_or_cancel(&mut pass.matching),
            Err(code) => code,
        }
    }
}

impl Pass<'_> {
    /// Counts the phrase in the current row if the row is wanted.
    ///
    /// # Safety
    /// As for [`score`].
    unsafe fn visit(&mut self, api: &Api, row: Row) -> Result<(), c_int> {
        let row_id = known(api.xRowid)?;
        // SAFETY: guaranteed by the caller.
        let row_id = unsafe { row_id(row) };
        while self.rows.get(self.next).is_some_and(|next| *next < row_id) {
            self.next += 1;
        }
        if self.rows.get(self.next) == Some(&row_id) {
            // SAFETY: guaranteed by the caller. The only phrase of this row's expression is the phrase of the pass.
            let Count { text, context } = unsafe { Count::of(api, row, 0)? };
            self.found.push([self.next as i64, text, context]);
        }
        Ok(())
    }
}

/// A function of FTS5's interface, all of which exist since its first version.
fn known<F>(function: Option<F>) -> Result<F, c_int> {
    function.ok_or(ffi::SQLITE_ERROR)
}

fn done(code: c_int) -> Result<(), c_int> {
    if code == ffi::SQLITE_OK {
        Ok(())
    } else {
        Err(code)
    }
}
