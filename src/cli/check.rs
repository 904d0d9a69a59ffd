//! `straddle check IMAGE…`.

use std::io::Write;
use std::path::{Path, PathBuf};

use super::config;
use super::format::{Format, Views};
use super::images::Source;
use super::output::OutputArgs;
use super::pool::pool;
use super::rules::{self as file, FailOn, RulesFile};
use super::scan::ViewArgs;
use crate::error::{Error, Exit, Result};
use crate::open;
use crate::report::check::{of_check, page};
use crate::rules::check::{Check, Judged, Rules, judge};
use crate::rules::{Allow, Ask, Baseline};

/// Whether the placement rules still hold, for CI.
#[derive(Clone, Debug, clap::Args)]
pub struct CheckArgs {
    /// The images, as `scan` takes them: all configurations and machines that the rules are for
    #[arg(required = true, value_name = "IMAGE")]
    pub images: Vec<PathBuf>,
    #[command(flatten)]
    pub output: OutputArgs,
    #[command(flatten)]
    pub view: ViewArgs,
    #[arg(long, value_name = "FILE")]
    #[arg(help = "Tell only what this JSON of an earlier scan or check has not; `-` is standard input")]
    pub baseline: Option<PathBuf>,
    #[arg(long, help = "What scan finds, too (so with a baseline that has it)")]
    pub scan: bool,
    #[arg(long, value_name = "WHAT", value_delimiter = ',', value_parser = file::fail_on)]
    #[arg(help = "End with 1 on findings of this severity or worse, or of this rule; a violated rule always does")]
    pub fail_on: Vec<FailOn>,
    #[arg(long, help = "Every finding, not only the first and those above info (JSON is never cut)")]
    pub all: bool,
}

/// Judges and writes; nothing is written when an image cannot be read.
pub fn run(args: &CheckArgs, out: &mut impl Write) -> Result<Exit> {
    args.output.format.among("check", Format::OF_FINDINGS)?;
    let project = file::read(args.view.rules.as_deref())?;
    let allow = config::allowed(args.view.rules.as_deref())?;
    let baseline = args.baseline.as_deref().map(baseline).transpose()?;
    let scanned = args.scan || baseline.as_ref().is_some_and(|b| b.scanned);
    if let Some(rule) = args.fail_on.iter().find_map(FailOn::of_scan).filter(|_| !scanned) {
        let problem = format!("--fail-on {rule} waits for what only a scan finds");
        return Err(Error::input("reading the command line", problem).hint("--scan"));
    }
    if project.rules.is_empty() && !scanned {
        let problem = match project.path.as_os_str().is_empty() {
            true => "there is no straddle.toml here".to_string(),
            false => format!("{} has no [[rule]]", project.path.display()),
        };
        return Err(
            Error::input("looking for placement rules", problem).hint("--rules FILE, --baseline FILE or --scan")
        );
    }
    let RulesFile { path, rules, allowed } = &project;
    let rules = Rules { rules, allowed, line: args.view.line };
    let judged = args.images.iter().map(|image| one(image, args, &rules, scanned.then_some(&allow)));
    let judged = judged.collect::<Result<Vec<Judged>>>()?;
    let check = Check::of(judged, &rules, scanned, baseline.as_ref());
    let path = path.display().to_string();
    let views = Views {
        page: || page(&check, &path, args.output.whole(args.all)),
        findings: || of_check(&check, &path, args.all),
    };
    args.output.write(&check, views, out)?;
    let failed = check.violated() || file::fails(&args.fail_on, check.findings.iter().map(|t| &t.finding));
    Ok(if failed { Exit::Gate } else { Exit::Done })
}

fn baseline(path: &Path) -> Result<Baseline> {
    let text = if path == Path::new("-") { open::read_stdin_text()? } else { open::text(path)? };
    Baseline::parse(&text, &path.display().to_string())
}

/// One image; `allow`: what is meant, where it is scanned too.
fn one(path: &Path, args: &CheckArgs, rules: &Rules<'_>, allow: Option<&Vec<Allow>>) -> Result<Judged> {
    let files = args.view.types.open()?;
    let source = Source::file(path)?;
    let mut image = source.image()?;
    let types_of = files.source(&mut image)?;
    let hot = args.view.hot()?;
    let read = || -> Result<Judged> {
        let types = types_of.read(&image)?;
        let named = types_of.read_named(&|_| true)?;
        let mut judged = judge(&image, (Some(&types), Some(&named)), rules)?;
        if let Some(allow) = allow {
            let ask = Ask {
                line: args.view.line,
                double_line: args.view.double_cl,
                hot: hot.as_ref(),
                allow,
                ..Ask::default()
            };
            judged.take(crate::rules::scan(&image, Some(&types), &ask)?);
        }
        Ok(judged)
    };
    let mut judged = pool(args.view.jobs)?.install(read).map_err(|e| files.explain(e))?;
    judged.tell(files.told());
    Ok(judged)
}
