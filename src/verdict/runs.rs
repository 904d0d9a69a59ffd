//! Samples → the rounds that can be compared: every run is either used or counted under one reason.
//!
//! The unit of comparison within a round is the whole quad (or pair): its runs stood side by side, so that what the
//! machine did in that minute is common to them and cancels. A quad with a hole has lost that, and is left out whole.
//!
//! Which attempt counts: the first that is complete and that no outside evidence speaks against, 0 before 1. When both
//! are disturbed the round is dropped and counted. It could be kept (the fit is robust to single hits), but disturbance
//! is not a hit: on a loaded machine two-thread effects shrink from 8.2 to 2.7 times, in every round alike, and no
//! robust centre sees that. Dropping by steal and switches, never by the time itself, does not bias what is left.

use std::collections::BTreeMap;

use super::looks::Look;
use super::robust::median;
use super::rows::Key;
use crate::measure::record::{Better, Cell, Group, Outcome, Record, Sample};

/// A unit needs so many clean rounds: the fewest of which floor(n/4) trims one on each side.
pub const MIN_ROUNDS: usize = 4;

/// Why a run is not in the estimates.
pub mod reason {
    pub const FAILED: &str = "failed";
    pub const TIMED_OUT: &str = "timed out";
    pub const NO_VALUE: &str = "no usable value";
    pub const DISTURBED: &str = "disturbed from outside";
    pub const REPLACED: &str = "replaced by a later run";
    pub const NOT_NEEDED: &str = "repeated though clean";
    pub const NEIGHBOUR: &str = "a neighbour in its quad or pair is missing";
    pub const FEW_ROUNDS: &str = "too few clean rounds";
    pub const TORN_CYCLE: &str = "the phase cycle is not complete";
    pub const PAST_LOOK: &str = "past the last complete look";
    pub const FOREIGN: &str = "not a cell of its group";
}

/// One block, layout or arm: its clean rounds, and ln(cost) of each cell in them. Columns that the group does not
/// have are empty.
#[derive(Clone, Debug, Default)]
pub struct Unit {
    pub number: u32,
    pub rounds: Vec<u32>,
    /// In the order `b0 pB bP p0`; each as long as `rounds`.
    pub cells: [Vec<f64>; 4],
}

impl Unit {
    /// Patched less base (`p0 − b0`) within each round.
    pub fn differences(&self) -> impl Iterator<Item = f64> + '_ {
        let [base, _, _, patched] = &self.cells;
        base.iter().zip(patched).map(|(b, p)| p - b)
    }

    /// Puts the rounds of the same file on another machine behind its own.
    pub(super) fn append(&mut self, other: Unit) {
        self.rounds.extend(other.rounds);
        self.cells.iter_mut().zip(other.cells).for_each(|(column, more)| column.extend(more));
    }

    /// A contrast of the four cells of a block, within each round.
    pub fn contrasts(&self, weights: [f64; 4]) -> impl Iterator<Item = f64> + '_ {
        let [b0, pb, bp, p0] = &self.cells;
        b0.iter().zip(pb).zip(bp).zip(p0).map(move |(((a, b), c), d)| contrast([*a, *b, *c, *d], weights))
    }

    /// The same unit with no more than its first rounds.
    #[must_use]
    pub fn first_rounds(&self, most: usize) -> Unit {
        let cut = |column: &Vec<f64>| column.iter().copied().take(most).collect();
        let rounds = self.rounds.iter().copied().take(most).collect();
        Unit { number: self.number, rounds, cells: self.cells.each_ref().map(cut) }
    }

    fn runs(&self) -> u64 {
        self.cells.iter().map(|column| column.len() as u64).sum()
    }
}

/// A sample, and ln of what it cost or why that cannot be used.
type Run<'s> = (&'s Sample, Result<f64, &'static str>);

/// How far the campaign came, whatever the runs were like.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tried {
    pub blocks: usize,
    pub layouts: usize,
    /// Of the as-built block.
    pub rounds: usize,
}

/// What can be compared, in the order of numbers, and what became of all other runs.
#[derive(Clone, Debug, Default)]
pub struct Runs {
    pub blocks: Vec<Unit>,
    pub layouts: Vec<Unit>,
    pub aligned: Option<Unit>,
    /// Base (`b0`) and base linked once more (`p0`), side by side.
    pub twin: Option<Unit>,
    /// Blocks and layouts that were given enough rounds, usable or not.
    pub tried: Tried,
    /// Samples in the record.
    pub total: u64,
    pub skipped: BTreeMap<String, u64>,
}

impl Runs {
    /// Sorts the samples of one row of a record out. The order of lines in the file does not matter.
    #[must_use]
    pub fn of(record: &Record, key: Key) -> Runs {
        let sign = if key.metric(&record.header).better == Better::Lower { 1.0 } else { -1.0 };
        let of_row = record.samples.iter().filter(|s| s.workers == key.workers);
        let mut samples: Vec<Run> = of_row.map(|s| (s, cost(s, key.value(s), sign))).collect();
        samples.sort_by_cached_key(|(s, _)| place(s));
        let mut runs = Runs { total: samples.len() as u64, ..Runs::default() };
        for unit in samples.chunk_by(|(a, _), (b, _)| unit_of(a) == unit_of(b)) {
            let Some(&(first, _)) = unit.first() else { continue };
            let clean = runs.unit(record, first, unit);
            let rounds = unit.chunk_by(|(a, _), (b, _)| a.round == b.round).count();
            match first.group {
                Group::Block => {
                    runs.tried.blocks += usize::from(rounds >= MIN_ROUNDS);
                    if first.number == 0 {
                        runs.tried.rounds = rounds;
                    }
                }
                Group::Layout => runs.tried.layouts += usize::from(rounds >= MIN_ROUNDS),
                Group::Aligned | Group::Twin => {}
            }
            match first.group {
                _ if clean.rounds.len() < MIN_ROUNDS => runs.skip(reason::FEW_ROUNDS, clean.runs()),
                Group::Block => runs.blocks.push(clean),
                Group::Layout => runs.layouts.push(clean),
                Group::Aligned => runs.aligned = Some(clean),
                Group::Twin => runs.twin = Some(clean),
            }
        }
        runs
    }

    /// Leaves only whole phase cycles of `of` layouts.
    pub fn keep_cycles(&mut self, of: u32) {
        let mut kept = Vec::new();
        for cycle in std::mem::take(&mut self.layouts).chunk_by(|a, b| a.number / of == b.number / of) {
            match cycle.len() == of as usize {
                true => kept.extend_from_slice(cycle),
                false => self.skip(reason::TORN_CYCLE, cycle.iter().map(Unit::runs).sum()),
            }
        }
        self.layouts = kept;
    }

    /// Leaves only the blocks and layouts of a look: what was begun after it was not looked at yet.
    pub fn keep(&mut self, look: Look) {
        let past = self.blocks.drain(look.blocks.min(self.blocks.len())..).map(|u| u.runs()).sum::<u64>();
        let past = past + self.layouts.drain(look.layouts.min(self.layouts.len())..).map(|u| u.runs()).sum::<u64>();
        self.skip(reason::PAST_LOOK, past);
    }

    fn units(&self) -> impl Iterator<Item = &Unit> {
        self.blocks.iter().chain(&self.layouts).chain(&self.aligned).chain(&self.twin)
    }

    /// ln(cost) of base as built: the median of its rounds, 0 where there is none.
    pub(super) fn level(&self) -> f64 {
        let as_built = self.blocks.iter().find(|block| block.number == 0);
        as_built.and_then(|block| median(block.cells.first()?.iter().copied())).unwrap_or_default()
    }

    pub(super) fn last_round(&self) -> Option<u32> {
        self.units().flat_map(|unit| unit.rounds.iter().copied()).max()
    }

    /// Adds to every ln(cost), and to every number of a round.
    pub(super) fn shift(&mut self, level: f64, rounds: u32) {
        for unit in self.blocks.iter_mut().chain(&mut self.layouts).chain(&mut self.aligned).chain(&mut self.twin) {
            unit.rounds.iter_mut().for_each(|r| *r = r.saturating_add(rounds));
            unit.cells.iter_mut().flatten().for_each(|y| *y += level);
        }
    }

    /// Adds another campaign's counts.
    pub(super) fn count(&mut self, other: &Runs) {
        self.total += other.total;
        self.tried.blocks += other.tried.blocks;
        self.tried.layouts += other.tried.layouts;
        other.skipped.iter().for_each(|(why, &n)| self.skip(why, n));
    }

    /// Leaves the first rounds of the as-built block and the arms: all that `--quick` looks at.
    pub fn keep_as_built(&mut self, rounds: usize) {
        let before: u64 = self.blocks.iter().chain(&self.layouts).map(Unit::runs).sum();
        self.layouts.clear();
        self.blocks.retain(|block| block.number == 0);
        self.blocks.iter_mut().for_each(|block| *block = block.first_rounds(rounds));
        let kept: u64 = self.blocks.iter().map(Unit::runs).sum();
        self.skip(reason::PAST_LOOK, before - kept);
    }

    fn skip(&mut self, why: &str, runs: u64) {
        if runs > 0 {
            *self.skipped.entry(why.to_string()).or_default() += runs;
        }
    }

    /// The clean rounds of one unit; its other runs are counted.
    fn unit(&mut self, record: &Record, first: &Sample, samples: &[Run]) -> Unit {
        let needed = needed(first.group);
        let mut unit = Unit { number: first.number, ..Unit::default() };
        for round in samples.chunk_by(|(a, _), (b, _)| a.round == b.round) {
            let mut chosen = None;
            for attempt in round.chunk_by(|(a, _), (b, _)| a.attempt == b.attempt) {
                let attempt = self.last_session(record, attempt);
                let (values, clean) = self.attempt(needed, &attempt);
                let runs = values.iter().flatten().count() as u64;
                let disturbed = attempt.iter().any(|(s, _)| s.contaminated);
                match clean {
                    _ if disturbed => self.skip(reason::DISTURBED, runs),
                    None => self.skip(reason::NEIGHBOUR, runs),
                    Some(_) if chosen.is_some() => self.skip(reason::NOT_NEEDED, runs),
                    Some(values) => chosen = Some(values),
                }
            }
            if let (Some(values), Some((sample, _))) = (chosen, round.first()) {
                unit.rounds.push(sample.round);
                for ((column, value), needed) in unit.cells.iter_mut().zip(values).zip(needed) {
                    column.extend(needed.then_some(value));
                }
            }
        }
        unit
    }

    /// A group that was torn is run again whole when the campaign is resumed: its runs before that count no more.
    fn last_session<'s>(&mut self, record: &Record, attempt: &[Run<'s>]) -> Vec<Run<'s>> {
        let session = |(sample, _): &Run| record.session(sample.order);
        let last = attempt.iter().map(session).max();
        let kept: Vec<Run> = attempt.iter().filter(|run| Some(session(run)) == last).copied().collect();
        self.skip(reason::REPLACED, (attempt.len() - kept.len()) as u64);
        kept
    }

    /// The values of one attempt, and once more if none is missing.
    fn attempt(&mut self, needed: [bool; 4], samples: &[Run]) -> ([Option<f64>; 4], Option<[f64; 4]>) {
        let mut values = [None; 4];
        for same in samples.chunk_by(|(a, _), (b, _)| a.cell == b.cell) {
            // No campaign of ours runs a cell twice in one attempt; of one that did, the latest counts.
            let Some(((sample, value), earlier)) = same.split_last() else { continue };
            self.skip(reason::REPLACED, earlier.len() as u64);
            let slot = values.iter_mut().zip(needed).nth(sample.cell as usize);
            match (slot, value) {
                (Some((slot, true)), Ok(value)) => *slot = Some(*value),
                (Some((_, true)), Err(why)) => self.skip(why, 1),
                _ => self.skip(reason::FOREIGN, 1),
            }
        }
        let [a, b, c, d] = values;
        let [na, nb, nc, nd] = needed;
        let get = |value: Option<f64>, needed: bool| if needed { value } else { Some(f64::NAN) };
        let all = || Some([get(a, na)?, get(b, nb)?, get(c, nc)?, get(d, nd)?]);
        (values, all())
    }
}

/// The weighted sum of four cells.
#[must_use]
pub fn contrast(cells: [f64; 4], weights: [f64; 4]) -> f64 {
    cells.iter().zip(weights).map(|(value, weight)| value * weight).sum()
}

/// Which cells a complete quad or pair of the group has, in the order `b0 pB bP p0`.
fn needed(group: Group) -> [bool; 4] {
    match group {
        Group::Block => [true; 4],
        Group::Layout | Group::Aligned | Group::Twin => [true, false, false, true],
    }
}

/// The place of a sample in the campaign's plan, then in time: a total order, so that the file's order is no matter.
fn place(s: &Sample) -> (Group, u32, u32, u32, Cell, u64, u64, u64) {
    let (group, number) = unit_of(s);
    (group, number, s.round, s.attempt, s.cell, s.order, s.start_ns, s.value.map_or(0, f64::to_bits))
}

/// An arm (aligned, twin) is one thing however it is numbered.
fn unit_of(s: &Sample) -> (Group, u32) {
    (s.group, if matches!(s.group, Group::Block | Group::Layout) { s.number } else { 0 })
}

/// ln of the cost per unit of work: a metric of which more is better enters negated, so that plus is always worse.
fn cost(sample: &Sample, value: Option<f64>, sign: f64) -> Result<f64, &'static str> {
    match (&sample.outcome, value) {
        (Outcome::Failed(_), _) => Err(reason::FAILED),
        (Outcome::TimedOut, _) => Err(reason::TIMED_OUT),
        (Outcome::Ok, Some(value)) if value.is_finite() && value > 0.0 => Ok(sign * value.ln()),
        (Outcome::Ok, _) => Err(reason::NO_VALUE),
    }
}
