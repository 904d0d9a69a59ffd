//! Was something else running? Decided by outside evidence, never by the time that a run took: a run that is slow for
//! a reason of its own is data.
//!
//! Three kinds of evidence:
//! - the host stole CPU time (`steal`), by run;
//! - tasks that are not the workload's used the CPUs *and* someone waited, by group of neighbours: idle time is counted
//!   in ticks of 10 ms, too coarse for one run of 30 ms (a server that the workload only talks to, and children that
//!   it does not wait for, are other tasks in this sense: their time is in no wait4(2));
//! - more waiting for a CPU (pressure; where there is none, involuntary switches) than this program usually has, by
//!   run. A program's own threads wait for each other, so the measure is its own median, of base and patched apart.

use std::collections::VecDeque;

use crate::measure::record::Cell;
use crate::measure::run::RunResult;

/// Steal adds up over minutes of crumbs and shows as a single tick at some point; two in one run are 10 ms at least
/// that were taken from this very run.
const STEAL_TICKS: u64 = 2;
/// … and less than this share of the run cannot show beside its noise.
const STEAL_SHARE: f64 = 0.01;

/// Other tasks' CPU time must exceed what rounding to ticks can fake: idle and iowait of each CPU, cut at both ends.
const FOREIGN_TICKS_PER_CPU: f64 = 1.5;
/// … and this share of the time, below which a busy machine would mark everything.
const FOREIGN_SHARE: f64 = 0.10;
/// … while somebody waited for this share. Others' work on a CPU that the workload leaves idle is no harm.
const WAITED_SHARE: f64 = 0.02;

/// More waiting than usual, as a share of the run …
const WAIT_EXCESS: f64 = 0.05;
/// … and at least this many seconds: a new thread starts on its parent's CPU, and in one run of ten waits there for a
/// time slice (2 ms at 250 Hz) until it is moved. A median does not know of that.
const WAIT_FLOOR: f64 = 0.003;

/// Involuntary switches above the usual, a second of run, and at least this many: timer ticks end time slices by
/// ones and twos.
const SWITCH_EXCESS_PER_SECOND: f64 = 100.0;
const SWITCH_EXCESS: f64 = 4.0;

/// What is usual is not known before this many runs of the same code, and is forgotten after that many.
const USUAL_FROM: usize = 8;
const USUAL_KEEPS: usize = 64;

/// Knows what is usual for the two versions.
#[derive(Debug)]
pub struct Judge {
    tick: f64,
    base: Usual,
    patched: Usual,
}

#[derive(Debug, Default)]
struct Usual {
    /// Waiting as a share of the run.
    waits: VecDeque<f64>,
    /// Involuntary switches of a run.
    switches: VecDeque<f64>,
}

impl Judge {
    /// `tick`: seconds in a tick of `/proc/stat`.
    #[must_use]
    pub fn new(tick: f64) -> Judge {
        Judge { tick, base: Usual::default(), patched: Usual::default() }
    }

    /// One answer a run, for neighbours in time: was it disturbed?
    pub fn judge(&mut self, group: &[(Cell, RunResult)]) -> Vec<bool> {
        let shared = self.foreign_work(group);
        let alone: Vec<bool> =
            group.iter().map(|(cell, run)| self.stolen(run) || self.usual(*cell).exceeded(run)).collect();
        for (cell, run) in group {
            self.usual(*cell).learn(run);
        }
        alone.into_iter().map(|a| a || shared).collect()
    }

    fn usual(&mut self, cell: Cell) -> &mut Usual {
        match cell {
            Cell::B0 | Cell::BP => &mut self.base,
            Cell::PB | Cell::P0 => &mut self.patched,
        }
    }

    fn stolen(&self, run: &RunResult) -> bool {
        run.outside.steal_ticks.is_some_and(|t| t >= STEAL_TICKS && t as f64 * self.tick > STEAL_SHARE * run.wall)
    }

    /// CPU time of the set that was neither idle, nor stolen, nor the workload's.
    fn foreign_work(&self, group: &[(Cell, RunResult)]) -> bool {
        let (mut span, mut foreign, mut waited, mut cpus) = (0.0, 0.0, Some(0.0), 0.0);
        for (_, run) in group {
            let Some(idle) = run.outside.idle_ticks else { return false };
            let away = (idle + run.outside.steal_ticks.unwrap_or(0)) as f64 * self.tick;
            cpus = f64::from(run.outside.cpus);
            span += run.outside.span;
            foreign += run.outside.span * cpus - away - run.user - run.sys;
            waited = waited.zip(run.outside.waited).map(|(a, b)| a + b);
        }
        let rounding = FOREIGN_TICKS_PER_CPU * cpus * self.tick;
        foreign > rounding + FOREIGN_SHARE * span && waited.is_none_or(|w| w > WAITED_SHARE * span)
    }
}

impl Usual {
    fn exceeded(&self, run: &RunResult) -> bool {
        if let Some(wait) = wait_share(run) {
            let excess = WAIT_EXCESS.max(WAIT_FLOOR / run.outside.span);
            return median(&self.waits).is_some_and(|usual| wait > usual + excess);
        }
        let excess = SWITCH_EXCESS.max(SWITCH_EXCESS_PER_SECOND * run.wall);
        median(&self.switches).is_some_and(|usual| run.involuntary_switches as f64 > usual + excess)
    }

    fn learn(&mut self, run: &RunResult) {
        let push = |list: &mut VecDeque<f64>, value| {
            list.push_back(value);
            if list.len() > USUAL_KEEPS {
                list.pop_front();
            }
        };
        if let Some(wait) = wait_share(run) {
            push(&mut self.waits, wait);
        }
        push(&mut self.switches, run.involuntary_switches as f64);
    }
}

fn wait_share(run: &RunResult) -> Option<f64> {
    run.outside.waited.map(|w| w / run.outside.span).filter(|share| share.is_finite())
}

fn median(values: &VecDeque<f64>) -> Option<f64> {
    let mut sorted: Vec<f64> = values.iter().copied().collect();
    sorted.sort_by(f64::total_cmp);
    if sorted.len() < USUAL_FROM { None } else { sorted.get(sorted.len() / 2).copied() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::fake::result;

    /// Two CPUs, one thread of 50 ms: one CPU idle.
    fn quiet() -> RunResult {
        let mut run = result(0.05);
        run.outside.idle_ticks = Some(5);
        run
    }

    fn quad(run: impl Fn(usize) -> RunResult) -> Vec<(Cell, RunResult)> {
        [Cell::B0, Cell::PB, Cell::BP, Cell::P0].into_iter().enumerate().map(|(i, c)| (c, run(i))).collect()
    }

    fn judge_after(history: impl Fn(usize) -> RunResult, run: impl Fn(usize) -> RunResult) -> Vec<bool> {
        let mut judge = Judge::new(0.01);
        for _ in 0..8 {
            judge.judge(&quad(&history));
        }
        judge.judge(&quad(run))
    }

    #[test]
    fn time_alone_accuses_nobody() {
        let slow = |_| RunResult { wall: 5.0, user: 5.0, ..quiet() };
        assert_eq!(judge_after(|_| quiet(), slow), [false; 4]);
    }

    #[test]
    fn steal_counts_by_run_and_a_crumb_does_not() {
        let with = |ticks: u64, wall: f64| {
            move |i: usize| {
                let mut run = RunResult { wall, ..quiet() };
                run.outside.steal_ticks = Some(if i == 2 { ticks } else { 0 });
                run
            }
        };
        assert_eq!(judge_after(|_| quiet(), with(2, 0.05)), [false, false, true, false]);
        assert_eq!(judge_after(|_| quiet(), with(1, 0.05)), [false; 4]);
        assert_eq!(judge_after(|_| quiet(), with(2, 60.0)), [false; 4]);
    }

    #[test]
    fn others_work_counts_when_somebody_waited() {
        let busy = |waited: f64| {
            move |_: usize| {
                let mut run = quiet();
                (run.outside.span, run.outside.idle_ticks, run.outside.waited) = (0.1, Some(2), Some(waited));
                run
            }
        };
        // A steady load is usual for the run, and still marked: that is what the CPU time is for.
        assert_eq!(judge_after(busy(0.05), busy(0.05)), [true; 4]);
        assert_eq!(judge_after(busy(0.0), busy(0.0)), [false; 4]);
    }

    #[test]
    fn waiting_is_measured_against_what_the_program_usually_does() {
        let waits = |seconds: f64| {
            move |_: usize| {
                let mut run = quiet();
                run.outside.waited = Some(seconds);
                run
            }
        };
        assert_eq!(judge_after(waits(0.0), waits(0.004)), [true; 4]);
        assert_eq!(judge_after(waits(0.0), waits(0.0025)), [false; 4]);
        assert_eq!(judge_after(waits(0.004), waits(0.004)), [false; 4]);
        let switches = |n: u64| {
            move |_: usize| {
                let mut run = RunResult { involuntary_switches: n, ..quiet() };
                run.outside.waited = None;
                run
            }
        };
        assert_eq!(judge_after(switches(1), switches(20)), [true; 4]);
        assert_eq!(judge_after(switches(20), switches(22)), [false; 4]);
    }

    #[test]
    fn nothing_known_is_no_evidence() {
        let unknown = |_| RunResult { outside: Default::default(), ..quiet() };
        assert_eq!(judge_after(unknown, unknown), [false; 4]);
    }
}
