//! `straddle scan IMAGE`.

use std::io::Write;
use std::path::PathBuf;

use super::format::Format;
use super::pool::pool;
use super::types::TypesArgs;
use crate::error::{Exit, Result};
use crate::image::Image;
use crate::units::LineSize;
use crate::{open, report, rules};

/// Which data objects straddle a cache line or share one.
#[derive(Clone, Debug, clap::Args)]
pub struct ScanArgs {
    /// An ELF file: a program, a library, an object, a kernel module or a vmlinux
    pub image: PathBuf,
    #[arg(long, value_enum, default_value_t, help = "How to write the result")]
    pub format: Format,
    #[arg(long, value_parser = line_size, value_name = "BYTES")]
    #[arg(help = "Cache line in bytes: 64, 128 or 256 (default: of the image's machine)")]
    pub line: Option<LineSize>,
    #[command(flatten)]
    pub types: TypesArgs,
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    #[arg(help = "Threads that read debug information [default: one a CPU]")]
    pub jobs: Option<u16>,
    #[arg(long, help = "Every section and finding, not only the first (JSON is never cut)")]
    pub all: bool,
}

/// Scans and writes; nothing is written when the image cannot be read.
pub fn run(args: &ScanArgs, out: &mut impl Write) -> Result<Exit> {
    args.format.among("scan", &[Format::Table, Format::Json, Format::Markdown])?;
    let bytes = open::map(&args.image)?;
    let mut image = Image::parse(&bytes, &args.image.display().to_string())?;
    let files = args.types.open()?;
    let source = files.source(&mut image)?;
    let types = pool(args.jobs)?.install(|| source.read(&image))?;
    let mut scan = rules::scan(&image, Some(&types), args.line).map_err(|e| files.explain(e))?;
    scan.problems.extend(files.told());
    args.format.write(&scan, || report::scan::page(&scan, args.all), out)?;
    Ok(Exit::Done)
}

/// For clap: `--line 64|128|256`.
pub(super) fn line_size(text: &str) -> std::result::Result<LineSize, String> {
    let bytes = text.parse().ok().filter(|b| [64, 128, 256].contains(b));
    bytes.and_then(LineSize::new).ok_or_else(|| "64, 128 or 256".to_string())
}
