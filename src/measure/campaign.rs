//! The scheduler of rounds: every live cell once a round, neighbours side by side, in random order. In a sweep that is
//! once for each worker count; neighbours have the same one.
//!
//! A comparison is made within a group (the four cells of a block, the two of a layout), so its runs stand beside each
//! other in time, in random order; the groups of a round are in random order too. The as-built block, the
//! twin and the aligned pair run in every round of the campaign, since they are compared with all others.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::Range;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;

use crate::error::{Error, Result};
use crate::measure::contamination::Judge;
use crate::measure::gauges;
use crate::measure::metric::Metrics;
use crate::measure::pilot;
use crate::measure::record::{Cell, Group, Header, LookNote, Note, Outcome, Pilot, Record, Resumed, Sample};
use crate::measure::run::{End, Job, RunResult, Runner};
use crate::measure::stop::{StopReason, StopToken};
use crate::measure::writer::RecordWriter;

/// The campaign ends with an error when this many runs have failed …
const FAILURES: u64 = 5;
/// … and they are one in this many of all so far: 5 of the first 20.
const FAILURES_ONE_IN: u64 = 4;

/// A cell that fails this often in a row without ever having run takes its group out of later rounds.
const DEAD_AFTER: u32 = 3;

/// One variant to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CellRef {
    pub cell: Cell,
    /// The variant's file.
    pub path: PathBuf,
    /// Bytes, a multiple of 16, at most 4096; the same for all cells of a group.
    pub stack_offset: u32,
}

/// Cells that are compared with each other: four of a block, two of a layout, an aligned pair, or a twin beside its
/// own reference (`b0` the base as built, `p0` its twin).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupCells {
    pub group: Group,
    pub number: u32,
    pub cells: Vec<CellRef>,
}

impl GroupCells {
    /// A group that is in the record whole, and whose binaries are not there.
    #[must_use]
    pub fn of_the_past(group: Group, number: u32) -> GroupCells {
        let cells: &[Cell] = match group {
            Group::Block => &[Cell::B0, Cell::PB, Cell::BP, Cell::P0],
            Group::Layout | Group::Aligned | Group::Twin => &[Cell::B0, Cell::P0],
        };
        let cell = |&cell: &Cell| CellRef { cell, path: PathBuf::new(), stack_offset: 0 };
        GroupCells { group, number, cells: cells.iter().map(cell).collect() }
    }

    /// Runs in every round of the campaign.
    fn stands(&self) -> bool {
        matches!((self.group, self.number), (Group::Twin | Group::Aligned, _) | (Group::Block, 0))
    }

    fn name(&self) -> String {
        let kind = match self.group {
            Group::Block => "block",
            Group::Layout => "layout",
            Group::Aligned => "aligned pair",
            Group::Twin => "twin",
        };
        format!("{kind} {}", self.number)
    }
}

/// How the rounds ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    Done,
    /// The last round is torn: what has been run is in the record, a group that was under way is incomplete.
    Stopped(StopReason),
}

/// Told between groups, never during a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    pub round: u32,
    /// Of this call: one past the last.
    pub rounds_end: u32,
    /// Of this round.
    pub groups_done: usize,
    pub groups: usize,
    /// Of the campaign.
    pub runs: u64,
    pub failed: u64,
    pub contaminated: u64,
    pub elapsed: Duration,
}

/// A group that no longer runs, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Retired {
    pub group: Group,
    pub number: u32,
    /// Of a sweep: with this worker count only.
    pub workers: Option<u32>,
    pub reason: String,
}

/// Runs rounds into a record.
pub struct Campaign<R> {
    runner: R,
    writer: RecordWriter,
    metrics: Metrics,
    seed: u64,
    time_limit: Duration,
    /// What waiting is usual depends on the worker count.
    judges: BTreeMap<Option<u32>, Judge>,
    began: Instant,
    record: Record,
    /// What the record of a campaign that was cut holds and this one has not come to yet, in the order of the runs.
    past: VecDeque<Sample>,
    /// No run has been made since the campaign was resumed.
    resuming: bool,
    /// How long the sessions before this one took.
    before: Duration,
    next_round: u32,
    standing: Vec<GroupCells>,
    retired: Vec<Retired>,
    failures: HashMap<(Row, Cell), Failures>,
    /// In words.
    last_failure: String,
    runs: u64,
    failed: u64,
    contaminated: u64,
}

impl<R: Runner> Campaign<R> {
    /// `header` is what `writer` was created with; `time_limit` comes from [`pilot::pilot`].
    pub fn new(
        runner: R,
        writer: RecordWriter,
        header: Header,
        metrics: impl Into<Metrics>,
        seed: u64,
        time_limit: Duration,
    ) -> Campaign<R> {
        Campaign {
            runner,
            writer,
            metrics: metrics.into(),
            seed,
            time_limit,
            judges: BTreeMap::new(),
            began: Instant::now(),
            record: Record::new(header),
            past: VecDeque::new(),
            resuming: false,
            before: Duration::ZERO,
            next_round: 0,
            standing: Vec::new(),
            retired: Vec::new(),
            failures: HashMap::new(),
            last_failure: String::new(),
            runs: 0,
            failed: 0,
            contaminated: 0,
        }
    }

    /// Goes on with a record that was cut. The caller asks for the same rounds of the same groups again; those that `past`
    /// holds are taken from it instead of being run, so that every decision on the way is made again on the same data.
    /// The group that was under way is run again whole. What waiting is usual for the program is learnt anew.
    pub fn resume(
        runner: R,
        writer: RecordWriter,
        past: Record,
        metrics: impl Into<Metrics>,
        seed: u64,
        time_limit: Duration,
    ) -> Campaign<R> {
        let Record { header, mut samples, notes, dropped: _ } = past;
        samples.sort_by_key(|s| s.order);
        let last =
            samples.last().map(|s| Duration::from_nanos(s.start_ns) + Duration::from_secs_f64(s.wall.clamp(0.0, 1e6)));
        let mut campaign = Campaign::new(runner, writer, header, metrics, seed, time_limit);
        campaign.record.notes = notes;
        campaign.before = last.unwrap_or_default();
        campaign.past = samples.into();
        campaign.resuming = true;
        campaign
    }

    /// Notes what the pilot says, unless the record says it already: that one counts.
    pub fn note_pilot(&mut self, pilot: Pilot) -> Result<Pilot> {
        if let Some(known) = self.record.pilot() {
            return Ok(known);
        }
        self.note(Note::Pilot(pilot)).map(|()| pilot)
    }

    /// Notes that a look begins. If it began before the record was cut, its links must be the same.
    pub fn note_look(&mut self, look: LookNote) -> Result<()> {
        let Some(known) = self.record.looks().find(|known| known.blocks == look.blocks) else {
            return self.note(Note::Look(look));
        };
        match look.hashes.iter().find(|(name, hash)| known.hashes.get(*name) != Some(hash)) {
            None => Ok(()),
            Some((name, _)) => {
                let problem = format!("{name} is linked otherwise than when the record was cut");
                Err(Error::input("going on with a record", problem).hint("measure anew, without --resume"))
            }
        }
    }

    fn note(&mut self, note: Note) -> Result<()> {
        self.writer.note(&note)?;
        self.record.notes.push(note);
        Ok(())
    }

    /// All samples so far, for a verdict between looks.
    #[must_use]
    pub fn record(&self) -> &Record {
        &self.record
    }

    /// The first round that has not been begun.
    #[must_use]
    pub fn next_round(&self) -> u32 {
        self.next_round
    }

    /// Groups that were given up.
    #[must_use]
    pub fn retired(&self) -> &[Retired] {
        &self.retired
    }

    /// Runs every cell of `groups` once in each of `rounds`, and with them the as-built block, the twin and
    /// the aligned pair of any earlier call. Round numbers are the campaign's: they begin at [`Campaign::next_round`] or later.
    ///
    /// A group that outside evidence says was disturbed runs once more at the end of its round (attempt 1; a
    /// disturbance lasts, so not at once); both attempts stay in the record. A run that fails stays there too.
    pub fn rounds(
        &mut self,
        groups: &[GroupCells],
        rounds: Range<u32>,
        stop: &StopToken,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Ended> {
        if rounds.start < self.next_round {
            let problem = format!("round {} has been run; the next is {}", rounds.start, self.next_round);
            return Err(Error::input("planning rounds", problem));
        }
        let groups = self.with_standing(groups);
        for round in rounds.clone() {
            self.next_round = round + 1;
            let ended = self.round(&groups, round, rounds.end, stop, progress);
            self.writer.sync()?;
            if let stopped @ Ended::Stopped(_) = ended? {
                return Ok(stopped);
            }
        }
        Ok(Ended::Done)
    }

    fn with_standing(&mut self, groups: &[GroupCells]) -> Vec<GroupCells> {
        let key = |g: &GroupCells| (g.group, g.number);
        for group in groups.iter().filter(|g| g.stands()) {
            if !self.standing.iter().any(|s| key(s) == key(group)) {
                self.standing.push(group.clone());
            }
        }
        let missing = self.standing.iter().filter(|s| !groups.iter().any(|g| key(g) == key(s)));
        groups.iter().chain(missing).cloned().collect()
    }

    fn round(
        &mut self,
        groups: &[GroupCells],
        round: u32,
        rounds_end: u32,
        stop: &StopToken,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Ended> {
        // A stream for each round: a resumed campaign draws the same orders.
        let mut rng = ChaCha8Rng::seed_from_u64(self.seed);
        rng.set_stream(u64::from(round) + 1);
        let counts = self.record.header.counts();
        let mut order: Vec<(&GroupCells, Option<u32>)> =
            groups.iter().flat_map(|group| counts.iter().map(move |workers| (group, *workers))).collect();
        let planned = order.len();
        order.shuffle(&mut rng);
        let mut again = Vec::new();
        for attempt in 0..2 {
            let queue = if attempt == 0 { std::mem::take(&mut order) } else { std::mem::take(&mut again) };
            for (done, &(group, workers)) in queue.iter().enumerate() {
                let row = (group.group, group.number, workers);
                if self.retired.iter().any(|r| (r.group, r.number, r.workers) == row) {
                    continue;
                }
                let mut cells: Vec<&CellRef> = group.cells.iter().collect();
                cells.shuffle(&mut rng);
                match self.group(group, &cells, When { workers, round, attempt }, stop)? {
                    Neighbours::Stopped(reason) => return Ok(Ended::Stopped(reason)),
                    Neighbours::Disturbed if attempt == 0 => again.push((group, workers)),
                    Neighbours::Disturbed | Neighbours::Clean => {}
                }
                let (runs, failed, contaminated) = (self.runs, self.failed, self.contaminated);
                let (groups_done, elapsed) = (if attempt == 0 { done + 1 } else { planned }, self.began.elapsed());
                let groups = planned;
                progress(Progress { round, rounds_end, groups_done, groups, runs, failed, contaminated, elapsed });
            }
        }
        Ok(Ended::Done)
    }

    /// Runs neighbours one after the other; nothing is written, judged or reported in between.
    fn group(&mut self, group: &GroupCells, cells: &[&CellRef], when: When, stop: &StopToken) -> Result<Neighbours> {
        if let Some(past) = self.replay(group, when)? {
            return Ok(past);
        }
        let mut runs: Vec<(Cell, RunResult)> = Vec::with_capacity(cells.len());
        let mut stopped = None;
        for cell in cells {
            stopped = stop.reason();
            if stopped.is_some() {
                break;
            }
            let (binary, stack_offset) = (cell.path.as_path(), cell.stack_offset);
            let job = Job { binary, workers: when.workers, stack_offset, time_limit: self.time_limit, stop };
            let run = self.runner.run(&job)?;
            if run.end == End::Stopped {
                // Killed by us in the middle: it says nothing, neither of success nor of failure.
                stopped = Some(stop.reason().unwrap_or(StopReason::Interrupted));
                break;
            }
            // Both cells of the twin are base's code; what waiting is usual for it is base's.
            let code = if group.group == Group::Twin { Cell::B0 } else { cell.cell };
            runs.push((code, run));
        }
        let marks = self.judges.entry(when.workers).or_insert_with(|| Judge::new(gauges::tick())).judge(&runs);
        for ((&cell, (_, run)), &contaminated) in cells.iter().zip(&runs).zip(&marks) {
            self.keep(group, cell, run, contaminated, when)?;
        }
        self.give_up_if_hopeless(group, when.workers)?;
        Ok(match stopped {
            Some(reason) => Neighbours::Stopped(reason),
            None if marks.contains(&true) => Neighbours::Disturbed,
            None => Neighbours::Clean,
        })
    }

    /// Takes from the past what it holds of these neighbours; `None`: not all of it, and they run now.
    fn replay(&mut self, group: &GroupCells, when: When) -> Result<Option<Neighbours>> {
        if !self.resuming {
            return Ok(None);
        }
        let round = when.round;
        let of = |s: &Sample| When { workers: s.workers, round: s.round, attempt: s.attempt };
        let same = |s: &&Sample| (s.group, s.number, of(s)) == (group.group, group.number, when);
        let held = self.past.iter().take_while(same).count();
        let samples: Vec<Sample> = self.past.drain(..held).collect();
        let session = |s: &Sample| self.record.session(s.order);
        let last = samples.last().map(session);
        let ran = || samples.iter().filter(|s| Some(session(s)) == last);
        let whole = group.cells.iter().all(|c| ran().any(|s| s.cell == c.cell));
        let disturbed = ran().any(|s| s.contaminated);
        for sample in samples {
            self.account(sample);
        }
        if whole {
            self.give_up_if_hopeless(group, when.workers)?;
            return Ok(Some(if disturbed { Neighbours::Disturbed } else { Neighbours::Clean }));
        }
        if let Some(next) = self.past.front() {
            let problem = format!(
                "run {} is one of {:?} {} in round {}, where this campaign runs {} in round {round}",
                next.order,
                next.group,
                next.number,
                next.round,
                group.name()
            );
            return Err(Error::input("going on with a record", problem).hint("measure anew, without --resume"));
        }
        self.resuming = false;
        self.note(Note::Resumed(Resumed { order: self.runs }))?;
        Ok(None)
    }

    /// Into the record, whatever it was.
    fn keep(
        &mut self,
        group: &GroupCells,
        cell: &CellRef,
        run: &RunResult,
        contaminated: bool,
        when: When,
    ) -> Result<()> {
        let When { workers, round, attempt } = when;
        let value = pilot::read(&self.metrics.decides, run);
        let also = self.metrics.also.iter().map(|metric| pilot::read(metric, run).ok()).collect();
        let sample = Sample {
            group: group.group,
            number: group.number,
            cell: cell.cell,
            workers,
            round,
            attempt,
            order: self.runs,
            start_ns: u64::try_from((self.before + run.started.saturating_duration_since(self.began)).as_nanos())
                .unwrap_or(u64::MAX),
            outcome: match (&value, run.end) {
                (Ok(_), _) => Outcome::Ok,
                (Err(_), End::TimedOut) => Outcome::TimedOut,
                (Err(why), _) => Outcome::Failed(why.clone()),
            },
            value: value.as_ref().ok().copied(),
            also,
            wall: run.wall,
            user: run.user,
            sys: run.sys,
            max_rss: run.max_rss,
            voluntary_switches: run.voluntary_switches,
            involuntary_switches: run.involuntary_switches,
            steal_ticks: run.outside.steal_ticks,
            contaminated,
            stack_offset: cell.stack_offset,
        };
        self.writer.sample(&sample)?;
        self.account(sample);
        if let Err(why) = value {
            self.last_failure = why;
        }
        Ok(())
    }

    /// Counts a run that is in the record.
    fn account(&mut self, sample: Sample) {
        let key = ((sample.group, sample.number, sample.workers), sample.cell);
        if sample.outcome == Outcome::Ok {
            self.failures.insert(key, Failures::HasRun);
        } else {
            self.failed += 1;
            self.last_failure = match &sample.outcome {
                Outcome::Failed(why) => why.clone(),
                _ => format!("still runs after {:.1} s", sample.wall),
            };
            match self.failures.entry(key).or_insert(Failures::Never(0)) {
                Failures::Never(n) => *n += 1,
                Failures::HasRun => {}
            }
        }
        self.runs += 1;
        self.contaminated += u64::from(sample.contaminated);
        self.record.samples.push(sample);
    }

    /// Ends the campaign when too many runs fail, and a group when one of its cells never runs.
    fn give_up_if_hopeless(&mut self, group: &GroupCells, workers: Option<u32>) -> Result<()> {
        let doing = || format!("running `{}`", self.record.header.command);
        if self.failed >= FAILURES && self.failed * FAILURES_ONE_IN >= self.runs {
            let problem = format!("{} of {} runs failed; the last one {}", self.failed, self.runs, self.last_failure);
            return Err(Error::input(doing(), problem));
        }
        let dead = |c: &&CellRef| {
            let failures = self.failures.get(&((group.group, group.number, workers), c.cell));
            matches!(failures, Some(Failures::Never(n)) if *n >= DEAD_AFTER)
        };
        let Some(cell) = group.cells.iter().find(dead) else { return Ok(()) };
        let at = workers.map_or_else(String::new, |n| format!(" with {n} workers"));
        let reason = format!("{:?}{at} failed {DEAD_AFTER} times and never ran: it {}", cell.cell, self.last_failure);
        if group.stands() {
            return Err(Error::input(doing(), format!("{}: {reason}", group.name())));
        }
        self.retired.push(Retired { group: group.group, number: group.number, workers, reason });
        Ok(())
    }
}

/// Neighbours by group, number and worker count.
type Row = (Group, u32, Option<u32>);

/// Which runs of a group.
#[derive(Clone, Copy, PartialEq)]
struct When {
    workers: Option<u32>,
    round: u32,
    attempt: u32,
}

/// How a group of neighbours went.
enum Neighbours {
    Clean,
    Disturbed,
    Stopped(StopReason),
}

/// Of one cell.
enum Failures {
    HasRun,
    /// This many failures and nothing else.
    Never(u32),
}

#[cfg(test)]
pub(crate) mod tests;
