//! `straddle triage`: did my code get slower, or did its bytes move?
//!
//! ```text
//! Case ─▶ Versions ─▶ Cells of the first look ─▶ crate::triage ─▶ Verdict ─▶ report
//! ```

pub mod cells;
mod resume;
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
use crate::measure::campaign::{Campaign, Ended, GroupCells};
use crate::measure::cpus::CpuSet;
use crate::measure::host;
use crate::measure::metric::{MetricSpec, Metrics};
use crate::measure::pilot::{self, Limits, PilotInfo};
use crate::measure::record::{Better, Cell, Group, Header, Matched, Record, SCHEMA};
use crate::measure::run::Real;
use crate::measure::stop::{self, StopReason, StopToken};
use crate::measure::workers;
use crate::measure::workload::Workload;
use crate::measure::writer::{Existing, RecordWriter};
use crate::triage::{Event, Triage};
use crate::verdict::{self, Cost, Verdict, looks};

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
    /// What decides: wall, user, sys, cpu, rss, stdout:REGEX or json:POINTER; more of them are shown beside it
    #[arg(long, value_name = "METRIC")]
    pub metric: Vec<String>,
    /// Whether a lower or a higher metric is better; once, or once for each
    #[arg(long, value_name = "lower|higher", value_parser = better)]
    pub better: Vec<Better>,
    /// Run with each of these worker counts, for {workers} in the workload: 1,16 or 1,50%,100% of the CPUs
    #[arg(long, value_name = "COUNTS", value_delimiter = ',')]
    pub workers: Vec<String>,
    /// The worker count that decides alone; without it all do, each by a stricter rule
    #[arg(long, value_name = "COUNT")]
    pub decides: Option<u32>,
    /// CPUs to run on: 0,1 or 2-5
    #[arg(long, value_name = "SET")]
    pub cpus: Option<String>,
    /// How long to measure at most, from the end of the builds: 90s, 10m
    #[arg(long, value_name = "TIME", default_value = "15m", value_parser = config::duration)]
    pub budget: Duration,
    /// No more drawn layouts than this (two for every block)
    #[arg(long, value_name = "MAX", default_value_t = looks::LAST.layouts as u32, value_parser = clap::value_parser!(u32).range(8..))]
    pub layouts: u32,
    /// One block of four links and no layouts: large effects only, where links take minutes
    #[arg(long, conflicts_with = "layouts")]
    pub quick: bool,
    /// Differences smaller than this do not matter
    #[arg(long, value_name = "PERCENT", default_value_t = 1.0, value_parser = percent)]
    pub margin: f64,
    /// Every draw follows from it
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Go on with a record that was cut: the newest one of this case that fits, or RECORD
    #[arg(long, value_name = "RECORD", num_args = 0..=1, require_equals = true)]
    pub resume: Option<Option<PathBuf>>,
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
            better: self.better.clone(),
            cpus: self.cpus.clone(),
            workers: self.workers.clone(),
            decides: self.decides,
        }
    }
}

/// Runs a triage and writes its verdict.
pub fn run(args: &TriageArgs, quiet: bool, out: &mut impl Write) -> Result<Exit> {
    args.format.among("triage", Format::OF_PAGES)?;
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
    let metrics = Metrics::parse(&case.metrics, &case.better)?;
    let cpus = CpuSet::resolve(case.cpus.as_deref(), workers::largest(&case.workers))?;
    let counts = workers::resolve(&case.workers, cpus.numbers().len(), case.decides)?;
    let work = Work::open(&case)?;
    stop::listen();
    let mut versions = versions::build(&case, &work, progress)?;
    let Difference { suspects, identical, threads } = versions.compare()?;
    if let Some(most) = counts.last().filter(|n| **n as usize > cpus.numbers().len()) {
        versions.problems.push(format!("{most} workers take turns on CPU {cpus}: --cpus names more"));
    }

    let stop = StopToken::new(Some(args.budget));
    let folder = work.variants()?;
    let mut cells = Cells::new(&versions, folder.clone(), args.seed);
    let path = std::env::var_os("PATH");
    let command = Workload::describe(&case.workload, &versions.output);
    let of = |template: &str| Workload::new(template, &versions.output, &versions.folder, path.as_deref());
    let workloads = match counts.as_slice() {
        [] => vec![(None, of(&case.workload)?)],
        counts => {
            let of = |&n: &u32| Ok((Some(n), of(&Workload::with_workers(&case.workload, n))?));
            counts.iter().map(of).collect::<Result<Vec<_>>>()?
        }
    };
    let mut runner = Real::sweep(workloads, cpus)?;
    let started = work::now();
    let mut header = Header {
        schema: SCHEMA.to_string(),
        tool: env!("CARGO_PKG_VERSION").to_string(),
        case: case.name.clone(),
        seed: format!("{:#x}", args.seed),
        host: host::facts(runner.cpus(), runner.fixed_addresses()),
        command,
        metric: metrics.decides.metric(),
        also: metrics.also.iter().map(MetricSpec::metric).collect(),
        workers: counts,
        decides: case.decides,
        threads,
        margin_percent: args.margin,
        max_blocks: if args.quick { 1 } else { args.layouts / 2 },
        quick: args.quick,
        cycle: None,
        matched: Matched::default(),
        suspects,
        identical,
        problems: versions.problems.clone(),
        hashes: Default::default(),
        started,
    };
    let mut record = work.record(&header.started);
    if identical {
        RecordWriter::create(&record, &header, Existing::Refuse)?.sync()?;
        return Ok((read_back(&record)?, record));
    }

    let mut first = first_look(&cells, args.quick, progress)?;
    if cells.cycle().is_some() && !args.quick {
        if cells.turns(&first.made) {
            header.cycle = cells.cycle();
        } else {
            first = first_look(&cells, args.quick, progress)?;
        }
    }
    header.problems.extend(first.problems.iter().cloned());
    header.matched = cells.matched(first.made.iter());
    header.hashes = first.made.iter().flat_map(|m| m.hashes.clone()).collect();
    if let Some(which) = &args.resume {
        record = resume::find(which.as_deref(), &work, &header)?;
    }
    let pilot = match run_pilot(&mut runner, &metrics.decides, &header.counts(), &first, &stop)? {
        Some(pilot) => pilot,
        None => return Err(Error::machine("running the workload for the first time", "stopped before it ended")),
    };
    let plan = (header.margin_percent, header.max_blocks);
    let campaign = if args.resume.is_some() {
        progress.step(&format!("going on with {}", record.display()));
        let (writer, past) = RecordWriter::reopen(&record)?;
        Campaign::resume(runner, writer, past, metrics, args.seed, pilot.time_limit)
    } else {
        let writer = RecordWriter::create(&record, &header, Existing::Refuse)?;
        Campaign::new(runner, writer, header, metrics, args.seed, pilot.time_limit)
    };
    let cost = Cost { run: pilot.seconds_per_run, link: first.link_seconds };
    let mut tell = |event| tell(progress, &stop, plan, event);
    let ended = Triage { campaign, linker: &mut &cells, stop, cost, tell: &mut tell }.run(&first.groups());
    drop(work::clear(&folder));
    match ended {
        Ok(Ended::Stopped(StopReason::Budget)) => progress.step("the budget is spent"),
        Ok(Ended::Stopped(StopReason::Interrupted)) => progress.step("stopped; the verdict stands on what is known"),
        Ok(Ended::Done) => {}
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

/// Says on stderr what the campaign does.
fn tell(progress: &Progress, stop: &StopToken, (margin, most): (f64, u32), event: Event) {
    match event {
        Event::Round { progress: p, left } => progress.update(&format!(
            "round {} of {}, {} runs, {} failed, {} disturbed; {left:.0} s to the next look, {} of the budget left",
            p.round + 1,
            p.rounds_end,
            p.runs,
            p.failed,
            p.contaminated,
            stop.remaining().map_or_else(String::new, |d| format!("{:.0} s", d.as_secs_f64())),
        )),
        Event::Pilot(pilot) => progress.step(&verdict::expectation(&pilot, margin, most)),
        Event::Undecided { blocks } => progress.update(&format!("undecided after {blocks} blocks; linking more")),
    }
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

fn first_look(cells: &Cells, quick: bool, progress: &Progress) -> Result<First> {
    let look = looks::FIRST.in_cycles(cells.cycle());
    let (blocks, layouts) = if quick { (1, 0) } else { (look.blocks as u32, look.layouts as u32) };
    progress.step(&match quick {
        true => "linking a block and a twin of the same objects".to_string(),
        false => format!("linking {blocks} blocks and {layouts} layouts of the same objects"),
    });
    let began = Instant::now();
    let mut made = cells.groups(0..blocks, 0..layouts)?;
    made.push(cells.twin()?);
    let mut problems = Vec::new();
    if !quick {
        match cells.aligned() {
            Ok(aligned) => made.push(aligned),
            Err(error) => problems.push(format!("the aligned pair is left out: {error}")),
        }
    }
    let links: usize = made.iter().map(|m| m.group.cells.len()).sum();
    Ok(First { made, problems, link_seconds: began.elapsed().as_secs_f64() / links.max(1) as f64 })
}

/// The first runs, with each worker count: what they take together, and the longest limit.
fn run_pilot(
    runner: &mut Real,
    metric: &MetricSpec,
    counts: &[Option<u32>],
    look: &First,
    stop: &StopToken,
) -> Result<Option<PilotInfo>> {
    let block = look.made.iter().map(|m| &m.group).find(|g| g.group == Group::Block && g.number == 0);
    let cell = |which| block.and_then(|b| b.cells.iter().find(|c| c.cell == which));
    let (Some(base), Some(patched)) = (cell(Cell::B0), cell(Cell::P0)) else {
        return Err(Error::input("running the workload for the first time", "block 0 has no as-built pair"));
    };
    let mut all: Option<PilotInfo> = None;
    for &workers in counts {
        let Some(one) = pilot::pilot(runner, metric, workers, &Limits::default(), base, patched, stop)? else {
            return Ok(None);
        };
        all = Some(all.map_or(one, |sum| PilotInfo {
            seconds_per_run: sum.seconds_per_run + one.seconds_per_run,
            time_limit: sum.time_limit.max(one.time_limit),
            ..sum
        }));
    }
    Ok(all)
}
