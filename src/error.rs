//! One error type for the whole library: what was being done, on what, why it failed, what to try.
//!
//! The kind decides the exit code (the table in [`Exit`]); the text is one line. `-v` prints the chain.

use std::error::Error as StdError;
use std::fmt;

/// How the process ends. The numbers are a promise to scripts (README, "Exit codes").
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Exit {
    /// Done; `alignment`, `not-reproduced` and faster code are this too.
    Done = 0,
    /// A gate is violated: the code got slower, or a rule that the user set does not hold.
    Gate = 1,
    /// The command line or an input is wrong.
    Input = 2,
    /// The measurement cannot tell.
    Inconclusive = 3,
    /// This machine cannot do it: a permission, a tool, a full disk.
    Machine = 4,
}

/// Why something failed, as far as the exit code cares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Wrong command line, configuration or input file.
    Input,
    /// This machine cannot do it.
    Machine,
}

/// A failure that a person can act on. Reads as `DOING: PROBLEM (try: HINT)` on one line.
#[derive(Debug)]
pub struct Error {
    pub kind: Kind,
    /// What was being done, and on which file → section → symbol: `reading the symbols of vmlinux`.
    pub doing: String,
    /// What went wrong: `the section table ends at 0x4000, past the end of the file`.
    pub problem: String,
    /// The next thing to try.
    pub hint: Option<String>,
    pub source: Option<Box<dyn StdError + Send + Sync>>,
}

/// The library's result.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// Wrong command line, configuration or input file: exit code 2.
    pub fn input(doing: impl Into<String>, problem: impl Into<String>) -> Error {
        Error { kind: Kind::Input, doing: doing.into(), problem: problem.into(), hint: None, source: None }
    }

    /// This machine cannot do it: exit code 4.
    pub fn machine(doing: impl Into<String>, problem: impl Into<String>) -> Error {
        Error { kind: Kind::Machine, ..Error::input(doing, problem) }
    }

    /// A failed system call. A full disk, a missing permission or an exhausted machine is the machine's fault (4), a
    /// path that is wrong is the input's (2).
    pub fn io(doing: impl Into<String>, source: std::io::Error) -> Error {
        use std::io::ErrorKind as E;
        let kind = match source.kind() {
            E::StorageFull
            | E::QuotaExceeded
            | E::ReadOnlyFilesystem
            | E::OutOfMemory
            | E::ResourceBusy
            | E::PermissionDenied => Kind::Machine,
            _ if matches!(source.raw_os_error(), Some(libc::EMFILE | libc::ENFILE | libc::EAGAIN | libc::EPERM)) => {
                Kind::Machine
            }
            _ => Kind::Input,
        };
        let mut problem = source.to_string();
        if let Some(at) = problem.find(" (os error") {
            problem.truncate(at);
        }
        if let Some(first) = problem.get_mut(..1) {
            first.make_ascii_lowercase();
        }
        Error { kind, doing: doing.into(), problem, hint: None, source: Some(Box::new(source)) }
    }

    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Error {
        self.hint = Some(hint.into());
        self
    }

    #[must_use]
    pub fn because(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Error {
        self.source = Some(source.into());
        self
    }

    /// The exit code that this failure ends the process with.
    #[must_use]
    pub fn exit(&self) -> Exit {
        match self.kind {
            Kind::Input => Exit::Input,
            Kind::Machine => Exit::Machine,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hint = self.hint.as_ref().map_or_else(String::new, |hint| format!(" (try: {hint})"));
        // Names come from files: a control character in one must not reach the terminal. A failing build's own output
        // is part of the problem and has its line ends.
        let plain = |text: &str, kept: char| -> String {
            text.chars().map(|c| if unseen(c) && c != kept { '\u{fffd}' } else { c }).collect()
        };
        write!(f, "{}: {}{}", plain(&self.doing, ' '), plain(&self.problem, '\n'), plain(&hint, ' '))
    }
}

/// What changes how text around it is shown and is not seen itself: control characters, line separators, and what turns
/// the direction of writing.
#[must_use]
pub fn unseen(c: char) -> bool {
    c.is_control() || matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source.as_deref().map(|s| s as &(dyn StdError + 'static))
    }
}
