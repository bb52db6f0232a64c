//! Progress on stderr: on a terminal one line that is rewritten, otherwise one line per step.

use std::io::{IsTerminal as _, Write as _};

/// Reports what is currently being measured.
#[derive(Debug)]
pub struct Progress {
    terminal: bool,
}

impl Progress {
    /// Reports progress on stderr.
    pub fn new() -> Self {
        Self {
            terminal: std::io::stderr().is_terminal(),
        }
    }

    /// Starts a new step.
    pub fn step(&self, what: &str) {
        let mut out = std::io::stderr().lock();
        // A measurement does not depend on its progress being shown, so write errors are ignored.
        let _ = if self.terminal {
            write!(out, "\r\x1b[K{what} …")
        } else {
            writeln!(out, "{what} …")
        };
        let _ = out.flush();
    }

    /// Reports the progress of a step. Only shown on a terminal.
    pub fn part(&self, what: &str, done: u64, of: u64) {
        if self.terminal {
            self.step(&format!("{what}: {done} of {of}"));
        }
    }

    /// Clears the line.
    pub fn done(&self) {
        if self.terminal {
            let _ = write!(std::io::stderr().lock(), "\r\x1b[K");
        }
    }
}
