//! The full-text tokenizer: our analyzer behind the FTS5 interface (<https://sqlite.org/fts5.html#custom_tokenizers>).
//!
//! Used as `tokenize='context <language>'`. A word of a document becomes its stem and, if different, also the word
//! itself at the same position, so that a prefix matches words and not only stems. Queries are not analyzed here. Their
//! tokens were produced by the same analyzer before, and stemming a stem again could yield a different one.
#![expect(unsafe_code, reason = "FTS5 takes tokenizers as C functions only")]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::Once;

use context_text::{Analyzer, Language, Token, TokenKind, fold};
use libsqlite3_sys as ffi;

use crate::{bm25, cancel};

/// A text that begins with this character holds tokens separated by spaces. They are indexed unchanged and all at one
/// position, so that their number does not add to the length of the document.
pub(crate) const VERBATIM: char = '\u{1}';

/// A text that begins with this character holds the tokens of an analyzed text, separated by spaces.
pub(crate) const READY: char = '\u{2}';

/// A token of an analyzed text that begins with this character has the position of the previous token.
pub(crate) const COLOCATED: char = '\u{3}';

type TokenCallback =
    unsafe extern "C" fn(*mut c_void, c_int, *const c_char, c_int, c_int, c_int) -> c_int;

/// Registers the tokenizer for all connections that this process opens later. Must be called before the first one.
pub fn register() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // Memory statistics take a lock for every allocation of every thread, and nothing reads them. The call fails
        // when SQLite is already initialised, which is harmless.
        // SAFETY: the option takes one int
        // (https://sqlite.org/c3ref/c_config_covering_index_scan.html#sqliteconfigmemstatus).
        unsafe { ffi::sqlite3_config(ffi::SQLITE_CONFIG_MEMSTATUS, 0) };
        // SAFETY: `initialise` has the signature with which SQLite calls automatic extensions. The declared one is only
        // a placeholder (https://sqlite.org/c3ref/auto_extension.html).
        let code = unsafe { ffi::sqlite3_auto_extension(Some(initialise)) };
        assert_eq!(code, ffi::SQLITE_OK, "SQLite has no memory for one pointer");
    });
}

/// Prepares a new connection: registers the tokenizer and the functions of `bm25.rs`, keeps SQLite from compiling
/// prepared statements again, and makes reads cancellable.
unsafe extern "C" fn initialise(
    db: *mut ffi::sqlite3,
    _message: *mut *mut c_char,
    _api: *const ffi::sqlite3_api_routines,
) -> c_int {
    // SAFETY: `db` is an open connection. The statement is finalised before the connection is used elsewhere. The
    // pointer that `fts5(?1)` fills in is valid as long as the connection.
    unsafe {
        let mut statement = ptr::null_mut();
        let code = ffi::sqlite3_prepare_v2(
            db,
            c"SELECT fts5(?1)".as_ptr(),
            -1,
            &raw mut statement,
            ptr::null_mut(),
        );
        if code != ffi::SQLITE_OK {
            return code;
        }
        let mut api: *mut ffi::fts5_api = ptr::null_mut();
        ffi::sqlite3_bind_pointer(
            statement,
            1,
            (&raw mut api).cast::<c_void>(),
            c"fts5_api_ptr".as_ptr(),
            None,
        );
        ffi::sqlite3_step(statement);
        let code = ffi::sqlite3_finalize(statement);
        if code != ffi::SQLITE_OK {
            return code;
        }
        let Some(create_tokenizer) = api.as_ref().and_then(|api| api.xCreateTokenizer) else {
            return ffi::SQLITE_ERROR;
        };
        // Without this option SQLite compiles a statement again at its first step when a limit is bound, because the
        // plan might depend on the value (`sqlite3ExprIsInteger`, `SQLITE_DBCONFIG_ENABLE_QPSG`). Our plans do not
        // depend on it.
        let code = ffi::sqlite3_db_config(
            db,
            ffi::SQLITE_DBCONFIG_ENABLE_QPSG,
            1 as c_int,
            ptr::null_mut::<c_int>(),
        );
        if code != ffi::SQLITE_OK {
            return code;
        }
        let mut tokenizer = ffi::fts5_tokenizer {
            xCreate: Some(create),
            xDelete: Some(delete),
            xTokenize: Some(tokenize),
        };
        let code = create_tokenizer(
            api,
            c"context".as_ptr(),
            ptr::null_mut(),
            &raw mut tokenizer,
            None,
        );
        if code != ffi::SQLITE_OK {
            return code;
        }
        cancel::register(db);
        bm25::register(api)
    }
}

/// Creates the tokenizer of a table. Its single argument is the language.
unsafe extern "C" fn create(
    _context: *mut c_void,
    arguments: *mut *const c_char,
    count: c_int,
    tokenizer: *mut *mut ffi::Fts5Tokenizer,
) -> c_int {
    if count != 1 {
        return ffi::SQLITE_ERROR;
    }
    // SAFETY: SQLite passes `count` C strings and a location for the result.
    let name = unsafe { CStr::from_ptr(*arguments) };
    let Some(language) = name.to_str().ok().and_then(Language::parse) else {
        return ffi::SQLITE_ERROR;
    };
    // SAFETY: as above. `delete` frees the box.
    unsafe { *tokenizer = Box::into_raw(Box::new(Analyzer::new(language))).cast() };
    ffi::SQLITE_OK
}

unsafe extern "C" fn delete(tokenizer: *mut ffi::Fts5Tokenizer) {
    if !tokenizer.is_null() {
        // SAFETY: `create` allocated it, and SQLite deletes it exactly once.
        drop(unsafe { Box::from_raw(tokenizer.cast::<Analyzer>()) });
    }
}

unsafe extern "C" fn tokenize(
    tokenizer: *mut ffi::Fts5Tokenizer,
    context: *mut c_void,
    flags: c_int,
    text: *const c_char,
    length: c_int,
    callback: Option<TokenCallback>,
) -> c_int {
    let (Some(callback), Ok(length)) = (callback, usize::try_from(length)) else {
        return ffi::SQLITE_MISUSE;
    };
    if text.is_null() || length == 0 {
        return ffi::SQLITE_OK;
    }
    // SAFETY: `create` made the tokenizer, nothing else writes to it, and SQLite passes `length` bytes.
    let (analyzer, bytes) = unsafe {
        (
            &*tokenizer.cast::<Analyzer>(),
            std::slice::from_raw_parts(text.cast::<u8>(), length),
        )
    };
    // Every text that reaches the store is a Rust string, but damaged bytes in the file must not cause a panic.
    let text = String::from_utf8_lossy(bytes);
    let mut sink = Sink {
        callback,
        context,
        code: ffi::SQLITE_OK,
    };
    // A panic must not unwind into C.
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        if flags & ffi::FTS5_TOKENIZE_QUERY != 0 {
            sink.emit(0, &text, 0, text.len());
        } else if let Some(tokens) = text.strip_prefix(VERBATIM) {
            for token in tokens.split(' ').filter(|token| !token.is_empty()) {
                if !sink.emit(ffi::FTS5_TOKEN_COLOCATED, token, 0, 0) {
                    break;
                }
            }
        } else if let Some(tokens) = text.strip_prefix(READY) {
            for token in tokens.split(' ').filter(|token| !token.is_empty()) {
                let emitted = match token.strip_prefix(COLOCATED) {
                    Some(word) => sink.emit(ffi::FTS5_TOKEN_COLOCATED, word, 0, 0),
                    None => sink.emit(0, token, 0, 0),
                };
                if !emitted {
                    break;
                }
            }
        } else {
            analyzer.tokens(&text, &mut |token| {
                sink.emit(0, token.stem, token.start, token.end)
                    && colocated(&token).is_none_or(|word| {
                        sink.emit(ffi::FTS5_TOKEN_COLOCATED, &word, token.start, token.end)
                    })
            });
        }
    }));
    match outcome {
        Ok(()) => sink.code,
        Err(_) => ffi::SQLITE_INTERNAL,
    }
}

/// Receives the tokens, and records the first error of the callback.
struct Sink {
    callback: TokenCallback,
    context: *mut c_void,
    code: c_int,
}

impl Sink {
    /// Passes a token to SQLite. Returns false when SQLite accepts no more.
    fn emit(&mut self, flags: c_int, token: &str, start: usize, end: usize) -> bool {
        let int = |n: usize| c_int::try_from(n).unwrap_or(c_int::MAX);
        // SAFETY: the callback copies the token before it returns. Context and callback belong to the same call.
        self.code = unsafe {
            (self.callback)(
                self.context,
                flags,
                token.as_ptr().cast(),
                int(token.len()),
                int(start),
                int(end),
            )
        };
        self.code == ffi::SQLITE_OK
    }
}

/// The unstemmed word, if it differs from the stem. It is indexed at the same position, so that a prefix matches words
/// and not only stems.
pub(crate) fn colocated<'t>(token: &Token<'t>) -> Option<std::borrow::Cow<'t, str>> {
    if token.kind != TokenKind::Word || token.word == token.stem {
        return None;
    }
    let word = fold(token.word);
    (*word != *token.stem).then_some(word)
}
