//! `straddle diff BASE PATCHED`.

use std::io::Write;
use std::path::PathBuf;

use super::format::Format;
use super::images::Source;
use super::scan::line_size;
use crate::error::{Exit, Result};
use crate::units::LineSize;
use crate::{diff, report};

/// What changed, what merely moved, and which moves could matter.
#[derive(Clone, Debug, clap::Args)]
pub struct DiffArgs {
    /// The version before, as `scan` takes it
    pub base: PathBuf,
    /// The version after
    pub patched: PathBuf,
    #[arg(long, value_enum, default_value_t, help = "How to write the result")]
    pub format: Format,
    #[arg(long, value_parser = line_size, value_name = "BYTES")]
    #[arg(help = "Cache line in bytes: 64, 128 or 256 (default: of the images' machine)")]
    pub line: Option<LineSize>,
    #[arg(long, help = "Every suspect, not only the first (JSON is never cut)")]
    pub all: bool,
}

/// Compares and writes; nothing is written when an image cannot be read.
pub fn run(args: &DiffArgs, out: &mut impl Write) -> Result<Exit> {
    args.format.among("diff", &[Format::Table, Format::Json, Format::Markdown])?;
    let (base, patched) = (Source::file(&args.base)?, Source::file(&args.patched)?);
    let diff = diff::diff(&base.image()?, &patched.image()?, args.line)?;
    args.format.write(&diff, || report::diff::page(&diff, args.all), out)?;
    Ok(Exit::Done)
}
