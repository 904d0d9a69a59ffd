//! argv → plain flag values → resolved config → calls → exit code. The only room that prints.

#![allow(clippy::disallowed_methods, reason = "this room resolves the world")]

pub mod capture;
pub mod config;
pub mod diff;
pub mod format;
pub mod progress;
pub mod scan;

use std::ffi::OsString;
use std::process::ExitCode;

/// Runs one command line. Never panics; a closed pipe is success.
pub fn main(_args: impl Iterator<Item = OsString>) -> ExitCode {
    ExitCode::from(2)
}
