//! Progress on stderr: one line that is rewritten on a terminal, one line for each step elsewhere.

use std::io::{IsTerminal as _, Write as _};

/// Says what is being measured now.
#[derive(Debug)]
pub struct Progress {
    terminal: bool,
}

impl Progress {
    /// Progress on stderr.
    pub fn new() -> Self {
        Self {
            terminal: std::io::stderr().is_terminal(),
        }
    }

    /// A new step.
    pub fn step(&self, what: &str) {
        let mut out = std::io::stderr().lock();
        // Whether anybody can read it does not matter.
        let _ = if self.terminal {
            write!(out, "\r\x1b[K{what} …")
        } else {
            writeln!(out, "{what} …")
        };
        let _ = out.flush();
    }

    /// How far a step is; only shown on a terminal.
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
