//! Text for the operator on stderr.

use std::io::Write as _;

/// Prints to stderr. Unlike `eprint!` it does not panic if that fails, such as on a full disk.
pub fn announce(text: &str) {
    let _ = std::io::stderr().write_all(text.as_bytes());
}
