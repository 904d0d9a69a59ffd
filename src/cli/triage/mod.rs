//! `straddle triage`: did my code get slower, or did its bytes move?
//!
//! ```text
//! Case ─▶ Versions ─▶ Cells of a look ─▶ rounds into a Record ─▶ Verdict ─┬─▶ report
//!                        ▲                                               │
//!                        └───────────────── not settled: the next look ──┘
//! ```

pub mod cells;
pub mod versions;
pub mod work;

use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use self::cells::{Cells, Made};
use self::versions::Difference;
use self::work::Work;
use super::config::{self, Overrides};
use super::format::Format;
use super::progress::Progress;
use crate::error::{Error, Exit, Result};
use crate::measure::campaign::{self, Campaign, Ended, GroupCells};
use crate::measure::cpus::CpuSet;
use crate::measure::host;
use crate::measure::metric::MetricSpec;
use crate::measure::pilot::{self, Limits, PilotInfo};
use crate::measure::record::{Better, Cell, Group, Header, Matched, Record, SCHEMA};
use crate::measure::run::Real;
use crate::measure::stop::{self, StopReason, StopToken};
use crate::measure::workload::Workload;
use crate::measure::writer::{Existing, RecordWriter};
use crate::verdict::looks::{self, Look};
use crate::verdict::rounds::{MOST_ROUNDS, PILOT_ROUNDS};
use crate::verdict::{self, Verdict};

/// Did my code get slower, or did its bytes merely move?
#[derive(Clone, Debug, clap::Args)]
pub struct TriageArgs {
    /// A folder with a straddle.toml (default: the one here, if any)
    pub case: Option<PathBuf>,
    /// Two versions of the repository here
    #[arg(long, value_name = "A..B")]
    pub git: Option<String>,
    /// The tree without the patch
    #[arg(long, value_name = "TREE")]
    pub base: Option<PathBuf>,
    /// The tree with the patch
    #[arg(long, value_name = "TREE")]
    pub patched: Option<PathBuf>,
    /// How a tree is built, run by `sh -c` in it
    #[arg(long, value_name = "COMMAND")]
    pub build: Option<String>,
    /// Which linked file is meant, a glob on its path in the tree
    #[arg(long, value_name = "GLOB")]
    pub link: Option<String>,
    /// What decides: wall, user, sys, cpu, rss or stdout:REGEX
    #[arg(long, value_name = "METRIC")]
    pub metric: Vec<String>,
    /// Whether a lower or a higher metric is better
    #[arg(long, value_name = "lower|higher", value_parser = better)]
    pub better: Option<Better>,
    /// CPUs to run on: 0,1 or 2-5
    #[arg(long, value_name = "SET")]
    pub cpus: Option<String>,
    /// How long to measure at most, from the end of the builds: 90s, 10m
    #[arg(long, value_name = "TIME", default_value = "15m", value_parser = config::duration)]
    pub budget: Duration,
    /// No more drawn layouts than this (two for every block)
    #[arg(long, value_name = "MAX", default_value_t = looks::LAST.layouts as u32, value_parser = clap::value_parser!(u32).range(8..))]
    pub layouts: u32,
    /// Differences smaller than this do not matter
    #[arg(long, value_name = "PERCENT", default_value_t = 1.0, value_parser = percent)]
    pub margin: f64,
    /// Every draw follows from it
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Exit 125 where the answer is not known, for `git bisect run`
    #[arg(long)]
    pub bisect: bool,
    /// How to write the verdict
    #[arg(long, value_enum, default_value_t)]
    pub format: Format,
    /// What to run; {bin} stands for the variant, without it the variant takes the linked file's place
    #[arg(last = true, value_name = "WORKLOAD")]
    pub workload: Vec<String>,
}

fn better(text: &str) -> std::result::Result<Better, String> {
    match text {
        "lower" => Ok(Better::Lower),
        "higher" => Ok(Better::Higher),
        _ => Err("lower or higher".to_string()),
    }
}

fn percent(text: &str) -> std::result::Result<f64, String> {
    match text.trim_end_matches('%').parse::<f64>() {
        Ok(p) if p > 0.0 && p <= 50.0 => Ok(p),
        _ => Err("a percentage above 0 and up to 50".to_string()),
    }
}

impl TriageArgs {
    fn overrides(&self) -> Overrides {
        Overrides {
            base: self.base.clone(),
            patched: self.patched.clone(),
            git: self.git.clone(),
            build: self.build.clone(),
            link: self.link.clone(),
            workload: self.workload.clone(),
            metric: self.metric.clone(),
            better: self.better,
            cpus: self.cpus.clone(),
        }
    }
}

/// Runs a triage and writes its verdict.
pub fn run(args: &TriageArgs, quiet: bool, out: &mut impl Write) -> Result<Exit> {
    args.format.among("triage", &[Format::Table, Format::Json, Format::Markdown])?;
    let progress = Progress::new(quiet);
    let (verdict, record) = triage(args, &progress)?;
    progress.done();
    super::verdict::write(&verdict, args.format, out)?;
    progress.step(&format!("record: {}", record.display()));
    Ok(verdict.exit())
}

/// The pipeline, from a case to a verdict and the path of its record.
fn triage(args: &TriageArgs, progress: &Progress) -> Result<(Verdict, PathBuf)> {
    let case = config::resolve(args.case.as_deref(), &args.overrides())?;
    let metric = MetricSpec::parse(case.metrics.first().map_or("wall", String::as_str), case.better)?;
    let cpus = CpuSet::resolve(case.cpus.as_deref())?;
    let work = Work::open(&case)?;
    stop::listen();
    let mut versions = versions::build(&case, &work, progress)?;
    let Difference { suspects, identical } = versions.compare()?;
    if let [_, rest @ ..] = case.metrics.as_slice()
        && !rest.is_empty()
    {
        versions.problems.push(format!("only the first metric is recorded, not {}", rest.join(", ")));
    }

    let stop = StopToken::new(Some(args.budget));
    let folder = work.variants()?;
    let cells = Cells::new(&versions, folder.clone(), args.seed);
    let path = std::env::var_os("PATH");
    let workload = Workload::new(&case.workload, &versions.output, &versions.folder, path.as_deref())?;
    let command = workload.command.clone();
    let mut runner = Real::new(workload, cpus)?;
    let started = work::now();
    let mut header = Header {
        schema: SCHEMA.to_string(),
        tool: env!("CARGO_PKG_VERSION").to_string(),
        case: case.name.clone(),
        seed: format!("{:#x}", args.seed),
        host: host::facts(runner.cpus(), runner.fixed_addresses()),
        command,
        metric: metric.metric(),
        margin_percent: args.margin,
        max_blocks: args.layouts / 2,
        matched: Matched::default(),
        suspects,
        identical,
        problems: versions.problems.clone(),
        hashes: Default::default(),
        started,
    };
    let record = work.record(&header.started);
    if identical {
        RecordWriter::create(&record, &header, Existing::Refuse)?.sync()?;
        return Ok((read_back(&record)?, record));
    }

    let first = first_look(&cells, progress)?;
    header.problems.extend(first.problems.iter().cloned());
    header.matched = cells.matched(first.made.iter());
    header.hashes = first.made.iter().flat_map(|m| m.hashes.clone()).collect();
    let pilot = match run_pilot(&mut runner, &metric, &first, &stop)? {
        Some(pilot) => pilot,
        None => return Err(Error::machine("running the workload for the first time", "stopped before it ended")),
    };
    let writer = RecordWriter::create(&record, &header, Existing::Refuse)?;
    let campaign = Campaign::new(runner, writer, header, metric, args.seed, pilot.time_limit);
    let ended = Looking { campaign, cells, stop, progress, pilot, rounds: 0 }.run(&first);
    drop(work::clear(&folder));
    match ended {
        Ok(Some(StopReason::Budget)) => progress.step("the budget is spent"),
        Ok(Some(StopReason::Interrupted)) => progress.step("stopped; the verdict stands on what is known"),
        Ok(None) => {}
        // What was measured so far is in the record, and may well decide.
        Err(error) => progress.warn(&format!("{error}; the verdict stands on what was measured before")),
    }
    let verdict = read_back(&record)?;
    Ok((verdict, record))
}

/// The verdict of the record as it lies on the disk: what is printed now is what `straddle verdict` prints later.
fn read_back(record: &std::path::Path) -> Result<Verdict> {
    Ok(verdict::verdict(&Record::parse(&crate::open::text(record)?)?))
}

/// The groups of the first look and what a link of them cost.
struct First {
    made: Vec<Made>,
    /// What could not be made, and why.
    problems: Vec<String>,
    /// Seconds for each linked and proven variant.
    link_seconds: f64,
}

impl First {
    fn groups(&self) -> Vec<GroupCells> {
        self.made.iter().map(|m| m.group.clone()).collect()
    }
}

fn first_look(cells: &Cells, progress: &Progress) -> Result<First> {
    let (blocks, layouts) = (looks::FIRST.blocks as u32, looks::FIRST.layouts as u32);
    progress.step(&format!("linking {blocks} blocks and {layouts} layouts of the same objects"));
    let began = Instant::now();
    let mut made = cells.groups(0..blocks, 0..layouts)?;
    let (beside, problems) = cells.beside()?;
    made.extend(beside);
    let links: usize = made.iter().map(|m| m.group.cells.len()).sum();
    Ok(First { made, problems, link_seconds: began.elapsed().as_secs_f64() / links.max(1) as f64 })
}

fn run_pilot(runner: &mut Real, metric: &MetricSpec, look: &First, stop: &StopToken) -> Result<Option<PilotInfo>> {
    let block = look.made.iter().map(|m| &m.group).find(|g| g.group == Group::Block && g.number == 0);
    let cell = |which| block.and_then(|b| b.cells.iter().find(|c| c.cell == which));
    match (cell(Cell::B0), cell(Cell::P0)) {
        (Some(base), Some(patched)) => pilot::pilot(runner, metric, &Limits::default(), base, patched, stop),
        _ => Err(Error::input("running the workload for the first time", "block 0 has no as-built pair")),
    }
}

/// A campaign from look to look.
struct Looking<'a> {
    campaign: Campaign<Real>,
    cells: Cells<'a>,
    stop: StopToken,
    progress: &'a Progress,
    pilot: PilotInfo,
    /// B, chosen once from the pilot.
    rounds: u32,
}

/// A top-up ends after so many times the rounds of a cell, clean or not: then the machine is too busy, or a group can
/// never be clean, and the verdict says what is missing.
const SPARE: u32 = 2;

impl Looking<'_> {
    /// Rounds until the verdict is settled, the looks are used up, or somebody stops it.
    fn run(&mut self, first: &First) -> Result<Option<StopReason>> {
        let groups = first.groups();
        let mut stopped = self.rounds_of(&groups, PILOT_ROUNDS)?;
        let price = (first.link_seconds / self.pilot.seconds_per_run).ceil();
        self.rounds = verdict::rounds_wanted(self.campaign.record(), price as u32);
        self.warn_if_undecidable();
        if stopped.is_none() {
            stopped = self.top_up(&groups)?;
        }
        let mut look = looks::FIRST;
        loop {
            let verdict = verdict::verdict(self.campaign.record());
            let most = self.campaign.record().header.max_blocks as usize;
            let (None, false, Some(next)) = (stopped, verdict.settled(), looks::after(Some(look), most)) else {
                return Ok(stopped);
            };
            self.progress.update(&format!("undecided after {} blocks; linking more", look.blocks));
            stopped = self.look(look, next)?;
            look = next;
        }
    }

    /// The blocks and layouts that the next look has more than the last: linked, run, and removed.
    fn look(&mut self, last: Look, next: Look) -> Result<Option<StopReason>> {
        let blocks = last.blocks as u32..next.blocks as u32;
        let made = self.cells.groups(blocks, last.layouts as u32..next.layouts as u32)?;
        let groups: Vec<GroupCells> = made.iter().map(|m| m.group.clone()).collect();
        let mut stopped = self.rounds_of(&groups, PILOT_ROUNDS)?;
        if stopped.is_none() {
            stopped = self.top_up(&groups)?;
        }
        made.iter().filter_map(Made::folder).for_each(|folder| drop(work::clear(folder)));
        Ok(stopped)
    }

    /// More rounds for those of the groups that lack clean ones.
    fn top_up(&mut self, groups: &[GroupCells]) -> Result<Option<StopReason>> {
        let names: Vec<(Group, u32)> = groups.iter().map(|g| (g.group, g.number)).collect();
        let end = self.campaign.next_round() + SPARE * self.rounds.max(MOST_ROUNDS);
        while self.campaign.next_round() < end {
            let lacking = verdict::lacking(self.campaign.record(), &names, self.rounds);
            let Some(most) = lacking.iter().map(|l| l.rounds).max() else { break };
            let lacks = |g: &&GroupCells| lacking.iter().any(|l| (l.group, l.number) == (g.group, g.number));
            let short: Vec<GroupCells> = groups.iter().filter(lacks).cloned().collect();
            let stopped = self.rounds_of(&short, most.min(PILOT_ROUNDS))?;
            if stopped.is_some() {
                return Ok(stopped);
            }
        }
        Ok(None)
    }

    /// `Some`: stopped early.
    fn rounds_of(&mut self, groups: &[GroupCells], rounds: u32) -> Result<Option<StopReason>> {
        let start = self.campaign.next_round();
        let (progress, seconds) = (self.progress, self.pilot.seconds_per_run);
        let cells: usize = groups.iter().map(|g| g.cells.len()).sum();
        let stop = self.stop;
        let mut tell = |p: campaign::Progress| {
            let share = p.groups_done as f64 / p.groups.max(1) as f64;
            let left = f64::from(p.rounds_end - p.round) - share;
            let left = left * cells as f64 * seconds;
            progress.update(&format!(
                "round {} of {}, {} runs, {} failed, {} disturbed; {left:.0} s to the next look, {} of the budget left",
                p.round + 1,
                p.rounds_end,
                p.runs,
                p.failed,
                p.contaminated,
                stop.remaining().map_or_else(String::new, |d| format!("{:.0} s", d.as_secs_f64())),
            ));
        };
        match self.campaign.rounds(groups, start..start + rounds, &self.stop, &mut tell)? {
            Ended::Done => Ok(None),
            Ended::Stopped(reason) => Ok(Some(reason)),
        }
    }

    fn warn_if_undecidable(&self) {
        let Some(reach) = verdict::decidable_margin(self.campaign.record(), self.rounds) else { return };
        if !reach.reachable {
            self.progress.step(&format!(
                "at this noise a margin of {:.1} % cannot be decided within {} blocks; {:.1} % can (--margin {:.1})",
                self.campaign.record().header.margin_percent,
                self.campaign.record().header.max_blocks,
                reach.margin_percent,
                reach.margin_percent,
            ));
        }
    }
}
