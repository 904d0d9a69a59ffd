//! argv → plain flag values → resolved config → calls → exit code. The only room that prints.

#![allow(clippy::disallowed_methods, reason = "this room resolves the world")]

pub mod capture;
pub mod check;
mod companions;
pub mod config;
pub mod diff;
pub mod doctor;
pub mod format;
pub mod images;
pub mod output;
mod pool;
pub mod progress;
pub mod rules;
pub mod scan;
pub mod triage;
pub mod type_view;
pub mod types;
pub mod variants;
pub mod verdict;

use std::error::Error as _;
use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::error::{Error, Exit, Result};

/// Did my code get slower, or did its bytes merely move?
#[derive(Debug, Parser)]
#[command(name = "straddle", version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
    /// Say nothing on stderr but errors
    #[arg(short, long, global = true)]
    quiet: bool,
    /// Print the chain of causes of an error
    #[arg(short, long, global = true)]
    verbose: bool,
}

#[derive(Debug, Subcommand)]
enum Command {
    Triage(triage::TriageArgs),
    Scan(scan::ScanArgs),
    Type(type_view::TypeArgs),
    Diff(diff::DiffArgs),
    Check(check::CheckArgs),
    Capture(capture::CaptureArgs),
    Variants(variants::VariantsArgs),
    Verdict(verdict::VerdictArgs),
    Doctor(doctor::DoctorArgs),
}

/// Runs one command line. Never panics; a closed pipe is success.
pub fn main(args: impl Iterator<Item = OsString>) -> ExitCode {
    let args: Vec<OsString> = args.collect();
    // Looked for in the words themselves: a command line that cannot be read must not tell `git bisect run` "bad".
    let bisect = args.iter().take_while(|a| *a != "--").any(|a| a == "--bisect");
    let cli = match Cli::try_parse_from(args) {
        Ok(cli) => cli,
        Err(error) => {
            let _ = error.print();
            return code(if error.use_stderr() { Exit::Input } else { Exit::Done }, bisect);
        }
    };
    let mut out = std::io::stdout().lock();
    let exit = match run(&cli, &mut out) {
        Ok(exit) => exit,
        Err(error) => {
            tell(&error, cli.verbose);
            error.exit()
        }
    };
    code(exit, bisect)
}

/// `git bisect run` takes 125 for "cannot be tested", and 1..=124 for bad.
fn code(exit: Exit, bisect: bool) -> ExitCode {
    if bisect && exit > Exit::Gate { ExitCode::from(125) } else { ExitCode::from(exit as u8) }
}

fn run(cli: &Cli, out: &mut impl Write) -> Result<Exit> {
    match &cli.command {
        Command::Triage(args) => triage::run(args, cli.quiet, out),
        Command::Scan(args) => scan::run(args, out),
        Command::Type(args) => type_view::run(args, out),
        Command::Diff(args) => diff::run(args, out),
        Command::Check(args) => check::run(args, out),
        Command::Capture(args) => capture::run(args, out),
        Command::Variants(args) => variants::run(args, cli.quiet, out),
        Command::Verdict(args) => verdict::run(args, out),
        Command::Doctor(args) => doctor::run(args, out),
    }
}

/// One line; with `-v` the chain of causes below it.
fn tell(error: &Error, verbose: bool) {
    let mut err = std::io::stderr().lock();
    // A closed stderr must not change the exit code.
    let _ = writeln!(err, "straddle: {error}");
    let mut cause = error.source().filter(|_| verbose);
    while let Some(next) = cause {
        let _ = writeln!(err, "  because: {next}");
        cause = next.source();
    }
}
