//! `straddle variants CAPTURE`: the same objects, linked on other landings, with the proof of where everything fell.
//!
//! ```text
//! Capture ─▶ Side (link, Program) ─▶ Job ─▶ linked and proven, in parallel ─▶ Landings ─▶ the folder, at once
//! ```

mod folder;
mod jobs;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rayon::prelude::*;

use self::folder::Folder;
use self::jobs::{Job, Made};
use super::format::Format;
use super::pool::pool;
use super::progress::Progress;
use crate::error::{Error, Exit, Result};
use crate::link::{Capture, Link};
use crate::measure::stop::{self, StopToken};
use crate::report;
use crate::variant::{Family, Landings, Program, VersionAsBuilt};

const KINDS: &str = "\
Kinds (a unit is an input section, a phase its address within the cache line):
  random        a drawn phase for every unit; -n draws
  shift         one unit moves by so many bytes, no other changes its phase
  cycle         one unit on each of its phases, all else fixed
  isolate       one unit on lines of its own
  align-all     every unit on a boundary; tables that are walked are kept, and named
  placebo       addresses move by whole lines or pages, no phase does
  keep          a plan file of an earlier variant, linked again
  matched       both versions on one drawn landing
  transplant    this version's code on the other's landing
  order         the build's own objects in a drawn order on the link line
  changed-last  both versions, the objects that differ behind the others
The stack is moved when a program is run (triage does), not when it is linked.";

/// Link a capture's objects on other landings, with proof of where everything fell.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = KINDS)]
pub struct VariantsArgs {
    /// What `straddle capture` stored, or the tree that it ran in
    pub capture: PathBuf,
    /// Which linked file is meant, a glob on its path in the build
    #[arg(long, value_name = "GLOB")]
    pub link: Option<String>,
    #[arg(long, value_enum, default_value_t, hide_possible_values = true)]
    #[arg(help = "What is varied, from the list below")]
    pub kind: Kind,
    /// shift, cycle, isolate: an input section (`hot.o:.data`) or a symbol in it, a glob
    #[arg(long, value_name = "GLOB")]
    pub unit: Option<String>,
    /// shift: how far, a multiple of the unit's alignment; placebo: whole lines
    #[arg(long, value_name = "BYTES", allow_hyphen_values = true)]
    pub by: Option<i64>,
    /// align-all: the boundary, 64, 128 or 4096
    #[arg(long, value_name = "BYTES", value_parser = boundary)]
    pub align: Option<u64>,
    /// matched, transplant, changed-last: the capture of the other version
    #[arg(long, value_name = "CAPTURE2")]
    pub with: Option<PathBuf>,
    /// keep: the plan to link again
    #[arg(long, value_name = "FILE")]
    pub plan: Option<PathBuf>,
    /// random, placebo, align-all: what is moved (default: both)
    #[arg(long, value_name = "text,data", value_delimiter = ',', value_parser = family)]
    pub families: Vec<Family>,
    /// How many draws [default: 1; cycle makes one a phase]
    #[arg(short = 'n', long = "count", value_name = "N", value_parser = clap::value_parser!(u32).range(1..=9999))]
    pub count: Option<u32>,
    /// Every draw follows from it
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = seed)]
    pub seed: u64,
    /// Links at once [default: one a CPU]
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub jobs: Option<u16>,
    /// The folder to make: binaries, their plans, and landed.json
    #[arg(short, long, value_name = "DIR")]
    pub output: PathBuf,
    #[arg(long, value_enum, default_value_t, hide_possible_values = true, help = "table, json or markdown")]
    pub format: Format,
}

/// What is varied, and what stays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Kind {
    /// A drawn phase for every unit.
    #[default]
    Random,
    /// One unit moves, no other changes its phase.
    Shift,
    /// One unit on each of its phases.
    Cycle,
    /// One unit on lines of its own.
    Isolate,
    /// Every unit on a boundary.
    AlignAll,
    /// Addresses move by whole lines, no phase does.
    Placebo,
    /// A plan file, once more.
    Keep,
    /// Both versions on one drawn landing.
    Matched,
    /// This version's code on the other's landing.
    Transplant,
    /// The build's objects in a drawn order.
    Order,
    /// Both versions with the objects that differ at the end.
    ChangedLast,
}

impl Kind {
    fn name(self) -> String {
        use clap::ValueEnum;
        self.to_possible_value().map(|v| v.get_name().to_owned()).unwrap_or_default()
    }

    fn two_versions(self) -> bool {
        matches!(self, Kind::Matched | Kind::Transplant | Kind::ChangedLast)
    }
}

fn boundary(text: &str) -> std::result::Result<u64, String> {
    match text.parse::<u64>() {
        Ok(n) if n.is_power_of_two() && (64..=4096).contains(&n) => Ok(n),
        _ => Err("a power of two from 64 to 4096".into()),
    }
}

fn family(text: &str) -> std::result::Result<Family, String> {
    match text {
        "text" => Ok(Family::Text),
        "data" => Ok(Family::Data),
        "stack" | "environment" => Err("the stack is moved when a program is run, not when it is linked".into()),
        _ => Err("text or data".into()),
    }
}

fn seed(text: &str) -> std::result::Result<u64, String> {
    let hex = text.strip_prefix("0x").map(|digits| u64::from_str_radix(digits, 16));
    hex.unwrap_or_else(|| text.parse()).map_err(|_| "a number, or 0x and hex digits".into())
}

/// One captured link, read whole.
pub struct Side {
    pub name: Option<&'static str>,
    pub link: Link,
    pub program: Program,
}

/// Links all variants into a folder beside the wanted one, which takes its name once everything is proven.
pub fn run(args: &VariantsArgs, quiet: bool, out: &mut impl Write) -> Result<Exit> {
    args.format.among("variants", Format::OF_PAGES)?;
    args.check()?;
    stop::listen();
    let progress = Progress::new(quiet);
    let folder = Folder::beside(&args.output)?;
    let mut problems = Vec::new();
    let names = if args.kind.two_versions() { [Some("base"), Some("patched")] } else { [None, None] };
    let mut sides = vec![side(&args.capture, args, names[0], &folder, &progress, &mut problems)?];
    if let Some(with) = &args.with {
        sides.push(side(with, args, names[1], &folder, &progress, &mut problems)?);
    }
    let jobs = jobs::all(args, &sides, &mut problems)?;
    let made = link(args, &sides, &jobs, &folder, &progress)?;
    let landings = landings(args, &sides, made, problems);
    folder.write_json("landed.json", &landings)?;
    folder.take_name()?;
    args.format.write(&landings, || report::variants::page(&landings, &args.output.display().to_string()), out)?;
    Ok(Exit::Done)
}

impl VariantsArgs {
    /// Flags that the kind needs and does not have, or has and does not know: the command line is wrong.
    fn check(&self) -> Result<()> {
        use Kind as K;
        let flags: [(&str, bool, &[Kind], &[Kind]); 7] = [
            // flag, whether it is given, kinds that need it, kinds that know it
            ("--unit", self.unit.is_some(), &[K::Shift, K::Cycle, K::Isolate], &[]),
            ("--by", self.by.is_some(), &[K::Shift], &[K::Placebo]),
            ("--align", self.align.is_some(), &[], &[K::AlignAll]),
            ("--with", self.with.is_some(), &[K::Matched, K::Transplant, K::ChangedLast], &[]),
            ("--plan", self.plan.is_some(), &[K::Keep], &[]),
            ("--families", !self.families.is_empty(), &[], &[K::Random, K::Placebo, K::AlignAll]),
            (
                "-n",
                self.count.is_some_and(|n| n > 1),
                &[],
                &[K::Random, K::Placebo, K::Matched, K::Transplant, K::Order],
            ),
        ];
        let doing = || format!("reading the command line of --kind {}", self.kind.name());
        for (flag, given, need, know) in flags {
            let (needed, known) = (need.contains(&self.kind), know.contains(&self.kind));
            if needed && !given {
                return Err(Error::input(doing(), format!("{flag} is not given")).hint("straddle variants --help"));
            }
            if given && !needed && !known {
                let kinds: Vec<String> = need.iter().chain(know).map(|k| k.name()).collect();
                return Err(Error::input(doing(), format!("{flag} goes with {}", kinds.join(", "))));
            }
        }
        if self.kind == K::Placebo && self.by.is_some() && self.count.is_some_and(|n| n > 1) {
            return Err(Error::input(doing(), "with --by all would be the same").hint("-n without --by draws"));
        }
        Ok(())
    }

    fn families(&self) -> Vec<Family> {
        if self.families.is_empty() { vec![Family::Text, Family::Data] } else { self.families.clone() }
    }
}

/// Opens a capture's link, repeats it byte for byte, and reads it.
fn side(
    path: &Path,
    args: &VariantsArgs,
    name: Option<&'static str>,
    folder: &Folder,
    progress: &Progress,
    problems: &mut Vec<String>,
) -> Result<Side> {
    let below = path.join(".straddle").join("capture");
    let stored = if !path.join("capture.json").exists() && below.is_dir() { below } else { path.to_owned() };
    let capture = Capture::load(&stored)?;
    let link = capture.select(args.link.as_deref())?;
    problems.extend(link.captured().problems());
    progress.step(&format!("reading the link of {}: {} inputs", link.captured().name, link.captured().inputs.len()));
    let scratch = folder.scratch()?;
    link.prove_pass_through(scratch.path())?;
    let program = Program::open(&link, scratch.path())?;
    Ok(Side { name, link, program })
}

/// Links at most as many at once as was asked for; an interruption is heard between two links.
fn link(args: &VariantsArgs, sides: &[Side], jobs: &[Job], folder: &Folder, progress: &Progress) -> Result<Vec<Made>> {
    let pool = pool(args.jobs)?;
    let (done, spent) = (AtomicUsize::new(0), AtomicU64::new(0));
    let linkers = || sides.iter().map(|s| s.link.linked_for()).sum::<Duration>();
    let before = linkers();
    progress.step(&format!("linking {}", count(jobs.len(), "layout")));
    let one = |job: &Job| {
        if StopToken::new(None).reason().is_some() {
            return Err(Error::machine("linking variants", "interrupted"));
        }
        let began = Instant::now();
        let made = job.make(args, sides, folder)?;
        spent.fetch_add(began.elapsed().as_micros() as u64, Ordering::Relaxed);
        let done = done.fetch_add(1, Ordering::Relaxed) + 1;
        progress.update(&format!("{done} of {} linked and proven", jobs.len()));
        Ok(made)
    };
    let made = pool.install(|| jobs.par_iter().map(one).collect());
    progress.done();
    let linking = linkers().saturating_sub(before);
    let ours = Duration::from_micros(spent.into_inner()).saturating_sub(linking);
    progress.step(&format!("{:.2} s in the linker, {:.2} s beside it", linking.as_secs_f64(), ours.as_secs_f64()));
    made
}

fn count(n: usize, what: &str) -> String {
    if n == 1 { format!("1 {what}") } else { format!("{n} {what}s") }
}

fn landings(args: &VariantsArgs, sides: &[Side], made: Vec<Made>, mut problems: Vec<String>) -> Landings {
    let programs: Vec<&Program> = sides.iter().map(|s| &s.program).collect();
    let version = |s: &Side| {
        let captured = s.link.captured();
        VersionAsBuilt::new(&s.program, s.name, &captured.name, &captured.output_hash)
    };
    let versions = sides.iter().map(version).collect();
    let mut entries = Vec::new();
    for made in made {
        entries.extend(made.entries);
        problems.extend(made.problems);
    }
    Landings::new(&args.kind.name(), args.seed, &programs, versions, entries, problems)
}
