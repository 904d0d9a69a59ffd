//! `straddle type IMAGE [NAME]`.

use std::io::Write;

use super::config;
use super::format::{Format, Views};
use super::images::{ImageArgs, Source};
use super::output::OutputArgs;
use super::pool::pool;
use super::scan::ViewArgs;
use crate::error::{Exit, Result};
use crate::report;
use crate::report::findings::Findings;
use crate::rules::types::{TypeAsk, types};
use crate::units::Align;

/// A type, flattened, member by member, on its lines.
#[derive(Clone, Debug, clap::Args)]
pub struct TypeArgs {
    #[command(flatten)]
    pub image: ImageArgs,
    #[arg(
        help = "A type, a glob, or a member: mm_struct, '*_sock', mem_cgroup.events[10] (default: all with findings)"
    )]
    pub name: Option<String>,
    #[command(flatten)]
    pub output: OutputArgs,
    #[command(flatten)]
    pub view: ViewArgs,
    #[arg(long, value_name = "PHASE", help = "Assume that objects begin so many bytes behind the start of a line")]
    pub at: Option<u32>,
    #[arg(long, value_name = "BYTES", value_parser = align, conflicts_with = "at")]
    #[arg(
        help = "Assume that objects are aligned so (default: 8 in a kernel, two words in a program, or what the type needs)"
    )]
    pub align: Option<Align>,
    #[arg(long, help = "Every member, type and finding, not only the first (JSON is never cut)")]
    pub all: bool,
}

impl TypeArgs {
    /// `type --running NAME` has no image: what stands in its place is the name.
    fn image_and_name(&self) -> (ImageArgs, Option<String>) {
        match (&self.image.image, &self.name) {
            (Some(name), None) if self.image.running => {
                (ImageArgs { image: None, ..self.image.clone() }, Some(name.display().to_string()))
            }
            _ => (self.image.clone(), self.name.clone()),
        }
    }
}

/// Lays out and writes; nothing is written when the image cannot be read.
pub fn run(args: &TypeArgs, out: &mut impl Write) -> Result<Exit> {
    args.output.format.among("type", Format::OF_FINDINGS)?;
    let allow = config::allowed(args.view.rules.as_deref())?;
    let hot = args.view.hot()?;
    let (image, name) = args.image_and_name();
    let ask = TypeAsk {
        line: args.view.line,
        double_line: args.view.double_cl,
        name: name.as_deref(),
        at: args.at,
        align: args.align,
        hot: hot.as_ref(),
        allow: &allow,
    };
    let files = args.view.types.of(&image).open()?;
    let source = Source::open(&image)?;
    let mut image = source.image()?;
    let types_of = files.source(&mut image)?;
    let pool = pool(args.view.jobs)?;
    let mut known = pool.install(|| types_of.read_named(&|name| ask.wants(name)))?;
    if known.definitions.is_empty() && ask.name.is_some() {
        // What may have been meant.
        known = pool.install(|| types_of.read_named(&|name| ask.near(name)))?;
    }
    let mut report = types(&image, &known, &ask).map_err(|e| files.explain(e))?;
    report.problems.extend(files.told());
    // A glob asks which types there are; a name, what one is made of.
    let list = name.as_deref().is_none_or(|n| n.contains(['*', '?'])) && report.types.len() != 1;
    let views = Views {
        page: || report::types::page(&report, list, args.output.format.view(args.all)),
        findings: || Findings::of_types(&report, args.all),
    };
    args.output.write(&report, views, out)?;
    Ok(Exit::Done)
}

/// For clap: a power of two.
fn align(text: &str) -> std::result::Result<Align, String> {
    let bytes = text.parse().ok().filter(|b| (1..=1 << 20).contains(b));
    bytes.and_then(Align::new).ok_or_else(|| "a power of two, in bytes".to_string())
}
