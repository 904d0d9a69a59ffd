//! `straddle diff BASE PATCHED`.

use std::io::Write;
use std::path::PathBuf;

use super::format::Format;
use super::images::Source;
use super::pool::pool;
use super::scan::line_size;
use crate::diff::Ask;
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
    #[arg(long, help = "Names, places and sizes only: no bytes are compared and no code is decoded (the fastest)")]
    pub names_only: bool,
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    #[arg(help = "Threads that compare [default: one a CPU]")]
    pub jobs: Option<u16>,
    #[arg(long, help = "Every suspect, not only the first (JSON is never cut)")]
    pub all: bool,
}

/// Compares and writes; nothing is written when an image cannot be read.
pub fn run(args: &DiffArgs, out: &mut impl Write) -> Result<Exit> {
    args.format.among("diff", &[Format::Table, Format::Json, Format::Markdown])?;
    let (base, patched) = (Source::file(&args.base)?, Source::file(&args.patched)?);
    let ask = Ask { line: args.line, names_only: args.names_only };
    let (base, patched) = (base.image()?, patched.image()?);
    let diff = pool(args.jobs)?.install(|| diff::diff(&base, &patched, &ask))?;
    args.format.write(&diff, || report::diff::page(&diff, args.all), out)?;
    Ok(Exit::Done)
}
