//! Lines for the user on stderr.

use std::io::{self, Write as _};

/// Prints a line to stderr. Unlike `eprintln!` it does not panic if that fails, such as on a full disk.
pub fn announce(line: &str) {
    let _ = io::stderr().write_all(format!("{line}\n").as_bytes());
}
