//! `straddle scan IMAGE`.

use std::io::Write;
use std::path::PathBuf;

use super::config;
use super::format::{Format, Views};
use super::images::{ImageArgs, Source};
use super::output::OutputArgs;
use super::pool::pool;
use super::rules::{self, FailOn};
use super::types::TypesArgs;
use crate::error::{Exit, Result};
use crate::formats::Samples;
use crate::open::Bytes;
use crate::report::findings::Findings;
use crate::rules::{Ask, Names};
use crate::units::LineSize;
use crate::{open, report};

/// Which data objects straddle a cache line or share one.
#[derive(Clone, Debug, clap::Args)]
pub struct ScanArgs {
    #[command(flatten)]
    pub image: ImageArgs,
    #[command(flatten)]
    pub output: OutputArgs,
    #[command(flatten)]
    pub view: ViewArgs,
    #[arg(long, value_name = "NAME", help = "Only this object: its lines byte by byte, with its neighbours")]
    pub object: Option<String>,
    #[arg(long, value_name = "FILE")]
    #[arg(
        help = "What was seen to run, as often as there are files: perf.data, text of perf script, perf c2c or mem \
                  report, a list of names, a net_cachelines table"
    )]
    pub profile: Vec<PathBuf>,
    #[arg(long, value_enum, default_value_t, help = "What comes first")]
    pub sort: Sort,
    #[arg(long, value_enum, default_value_t, conflicts_with = "profile")]
    #[arg(help = "Where it comes from who reads and writes what")]
    pub heat: HeatFrom,
    #[arg(long, value_name = "WHAT", value_delimiter = ',', value_parser = rules::fail_on)]
    #[arg(help = "End with 1 on findings of this severity or worse, or of this rule: high, straddle")]
    pub fail_on: Vec<FailOn>,
    #[arg(long, help = "Every section and finding, not only the first, and those of metadata (JSON is never cut)")]
    pub all: bool,
}

/// What `scan` and `type` have in common.
#[derive(Clone, Debug, clap::Args)]
pub struct ViewArgs {
    #[arg(long, value_parser = line_size, value_name = "BYTES")]
    #[arg(help = "Cache line in bytes: 64, 128 or 256 (default: of the image's machine)")]
    pub line: Option<LineSize>,
    #[arg(long, help = "Pairs of lines too, as an adjacent-line prefetcher fetches them")]
    pub double_cl: bool,
    #[arg(long, value_name = "LIST")]
    #[arg(help = "Only these objects and types: names and globs with commas between, or a file of them")]
    pub hot: Option<String>,
    #[command(flatten)]
    pub types: TypesArgs,
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    #[arg(help = "Threads that read debug information and code [default: one a CPU]")]
    pub jobs: Option<u16>,
    #[arg(long, value_name = "FILE", help = "What is allowed on purpose (default: straddle.toml, where there is one)")]
    pub rules: Option<PathBuf>,
}

/// `--heat`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum HeatFrom {
    /// The code of the image
    #[default]
    Decoded,
    /// Nowhere: names and types alone are judged, which takes a fraction of the time
    None,
}

/// `--sort`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Sort {
    /// The worst
    #[default]
    Severity,
    /// What a change upstream would most likely put on a bad place, whether it lies well today or not
    Fragile,
}

/// Scans and writes; nothing is written when the image cannot be read.
pub fn run(args: &ScanArgs, out: &mut impl Write) -> Result<Exit> {
    args.output.format.among("scan", Format::OF_FINDINGS)?;
    let allow = config::allowed(args.view.rules.as_deref())?;
    let hot = args.view.hot()?;
    let read = profiles(&args.profile)?;
    let profiles = samples(&read)?;
    let ask = Ask {
        line: args.view.line,
        double_line: args.view.double_cl,
        metadata: args.all,
        fragile: args.sort == Sort::Fragile,
        hot: hot.as_ref(),
        object: args.object.as_deref(),
        allow: &allow,
        no_heat: args.heat == HeatFrom::None,
        profiles: &profiles,
    };
    let files = args.view.types.of(&args.image).open()?;
    let source = Source::open(&args.image)?;
    let mut image = source.image()?;
    let types = files.source(&mut image)?;
    let pool = pool(args.view.jobs)?;
    let types = pool.install(|| types.read(&image))?;
    source.forget_debug(&image);
    let scan = pool.install(|| crate::rules::scan(&image, Some(&types), &ask));
    let mut scan = scan.map_err(|e| files.explain(e))?;
    scan.problems.extend(files.told());
    let views = Views {
        page: || report::scan::page(&scan, args.output.format.view(args.all)),
        findings: || Findings::of_scan(&scan, args.all),
    };
    args.output.write(&scan, views, out)?;
    Ok(if rules::fails(&args.fail_on, &scan.findings) { Exit::Gate } else { Exit::Done })
}

impl ViewArgs {
    /// A file where there is one of that name, else the list itself.
    pub(super) fn hot(&self) -> Result<Option<Names>> {
        let Some(list) = &self.hot else { return Ok(None) };
        let path = std::path::Path::new(list);
        let text = if path.is_file() { open::text(path)? } else { list.clone() };
        Ok(Some(Names::parse(&text)))
    }
}

/// The files of `--profile`, mapped.
pub(super) fn profiles(paths: &[PathBuf]) -> Result<Vec<(Bytes, String)>> {
    paths.iter().map(|path| Ok((open::map(path)?, path.display().to_string()))).collect()
}

/// What they hold, by their content.
pub(super) fn samples(read: &[(Bytes, String)]) -> Result<Vec<Samples<'_>>> {
    read.iter().map(|(bytes, path)| Samples::of_file(bytes, path)).collect()
}

/// For clap: `--line 64|128|256`.
pub(super) fn line_size(text: &str) -> std::result::Result<LineSize, String> {
    let bytes = text.parse().ok().filter(|b| [64, 128, 256].contains(b));
    bytes.and_then(LineSize::new).ok_or_else(|| "64, 128 or 256".to_string())
}
