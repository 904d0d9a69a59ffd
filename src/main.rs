//! The binary: argv in, exit code out. Everything else is in the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    straddle::cli::main(std::env::args_os())
}
