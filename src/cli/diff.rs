//! `straddle diff BASE PATCHED`.

use std::io::Write;
use std::path::PathBuf;

use super::format::{Format, Views};
use super::images::Source;
use super::output::OutputArgs;
use super::scan::line_size;
use crate::error::{Exit, Result};
use crate::report::findings::Findings;
use crate::units::LineSize;
use crate::{diff, report};

/// What changed, what merely moved, and which moves could matter.
#[derive(Clone, Debug, clap::Args)]
pub struct DiffArgs {
    /// The version before, as `scan` takes it
    pub base: PathBuf,
    /// The version after
    pub patched: PathBuf,
    #[command(flatten)]
    pub output: OutputArgs,
    #[arg(long, value_parser = line_size, value_name = "BYTES")]
    #[arg(help = "Cache line in bytes: 64, 128 or 256 (default: of the images' machine)")]
    pub line: Option<LineSize>,
    #[arg(long, help = "Every suspect, not only the first (JSON is never cut)")]
    pub all: bool,
}

/// Compares and writes; nothing is written when an image cannot be read.
pub fn run(args: &DiffArgs, out: &mut impl Write) -> Result<Exit> {
    args.output.format.among("diff", Format::OF_PAGES)?;
    let (base, patched) = (Source::file(&args.base)?, Source::file(&args.patched)?);
    let diff = diff::diff(&base.image()?, &patched.image()?, args.line)?;
    let page = || report::diff::page(&diff, args.output.whole(args.all));
    args.output.write(&diff, Views { page, findings: Findings::default }, out)?;
    Ok(Exit::Done)
}
