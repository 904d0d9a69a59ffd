//! What is being done and how long it still takes, on stderr; silent with `-q`.
//!
//! On a terminal one line is rewritten; elsewhere (a log) each step is a line, and repeated updates of a step are not
//! printed. Nothing here runs while a trial does.

use std::io::{IsTerminal, Write};

/// Tells a person what goes on.
#[derive(Debug)]
pub struct Progress {
    quiet: bool,
    terminal: bool,
}

impl Progress {
    #[must_use]
    pub fn new(quiet: bool) -> Progress {
        Progress { quiet, terminal: std::io::stderr().is_terminal() }
    }

    /// A step begins: always a line.
    pub fn step(&self, text: &str) {
        if !self.quiet {
            let clear = if self.terminal { "\r\x1b[K" } else { "" };
            // A closed stderr must not end the work.
            let _ = writeln!(std::io::stderr(), "{clear}{text}");
        }
    }

    /// Something went wrong on the way: said even with `-q`, for it explains the answer.
    pub fn warn(&self, text: &str) {
        let clear = if self.terminal { "\r\x1b[K" } else { "" };
        let _ = writeln!(std::io::stderr(), "{clear}straddle: {text}");
    }

    /// The step goes on: rewritten in place, on a terminal only.
    pub fn update(&self, text: &str) {
        if !self.quiet && self.terminal {
            let _ = write!(std::io::stderr(), "\r\x1b[K{text}");
            let _ = std::io::stderr().flush();
        }
    }

    /// Leaves the line free for what follows.
    pub fn done(&self) {
        self.update("");
    }
}
