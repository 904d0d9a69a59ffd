//! The first runs: can the workload be measured at all, and how long does it take?

use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::measure::campaign::CellRef;
use crate::measure::metric::MetricSpec;
use crate::measure::run::{End, Job, RunResult, Runner};
use crate::measure::stop::StopToken;

/// A run may take this much longer than the slower pilot run: the worst placement seen, a store across a page, is 24
/// times, but pilots see both versions as built, which is where the user's own slowdown already shows.
const LIMIT_FACTOR: f64 = 10.0;

/// … and no run is killed before this: a short run that meets the worst placement on a loaded machine still ends.
const LIMIT_FLOOR: Duration = Duration::from_secs(5);

/// A pilot run longer than this is taken for a hang: 200 such runs, the fewest that decide, would take 7 hours.
const PILOT_LIMIT: Duration = Duration::from_secs(120);

/// Once one pilot run has ended, the next may take so many times as long: a regression of 24 times is real, a run of 50
/// times is a hang, and nobody should wait two minutes to be told.
const PILOT_FACTOR: f64 = 50.0;

/// A program may fail once by accident, as later in the campaign; one that fails so often in a row cannot be measured.
const PILOT_TRIES: u32 = 3;

/// How long a run may take.
#[derive(Clone, Copy, Debug, Default)]
pub struct Limits {
    /// `None`: ten times the slower pilot run, at least 5 s.
    pub time_limit: Option<Duration>,
    /// For the pilot runs; `None`: 120 s.
    pub pilot_limit: Option<Duration>,
}

/// What the first runs said.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PilotInfo {
    /// With our own work around it: what a run costs of the budget.
    pub seconds_per_run: f64,
    /// For every run of the campaign.
    pub time_limit: Duration,
    /// The deciding metric, from one run each: an impression, not an estimate.
    pub base: f64,
    pub patched: f64,
}

/// Runs each of the two as-built variants twice (the first run fills caches) before anything is written, so that a
/// workload that cannot be measured is one clear error and leaves no record. `None`: stopped meanwhile.
pub fn pilot(
    runner: &mut impl Runner,
    metric: &MetricSpec,
    workers: Option<u32>,
    limits: &Limits,
    base: &CellRef,
    patched: &CellRef,
    stop: &StopToken,
) -> Result<Option<PilotInfo>> {
    let mut limit = limits.pilot_limit.or(limits.time_limit).unwrap_or(PILOT_LIMIT);
    let (mut slowest, mut values, mut cost) = (0f64, [0.0; 2], 0.0);
    for pass in 0..2 {
        for ((name, cell), value) in [("base", base), ("patched", patched)].into_iter().zip(&mut values) {
            if stop.reason().is_some() {
                return Ok(None);
            }
            let mut began = Instant::now();
            let (binary, stack_offset) = (cell.path.as_path(), cell.stack_offset);
            let job = Job { binary, workers, stack_offset, time_limit: limit, stop };
            let mut run = runner.run(&job)?;
            for _ in 1..PILOT_TRIES {
                if run.end == End::TimedOut || read(metric, &run).is_ok() {
                    break;
                }
                began = Instant::now();
                run = runner.run(&job)?;
            }
            if run.end == End::Stopped {
                return Ok(None);
            }
            *value = read(metric, &run).map_err(|why| {
                let hint = match run.end {
                    End::TimedOut => "a workload that does less; 20 to 500 ms a run is best",
                    End::Exited(0) => "a metric that the workload prints, or wall",
                    _ => "run the command by hand in the same folder",
                };
                let at = workers.map_or_else(String::new, |n| format!(" and {n} workers"));
                Error::input(format!("running the workload once with {name}{at}"), why).hint(hint)
            })?;
            slowest = slowest.max(run.wall);
            if limits.pilot_limit.or(limits.time_limit).is_none() {
                limit = limit.min(floored(slowest * PILOT_FACTOR));
            }
            if pass == 1 {
                cost += began.elapsed().as_secs_f64() / 2.0;
            }
        }
    }
    let [base, patched] = values;
    Ok(Some(PilotInfo {
        seconds_per_run: cost,
        time_limit: limits.time_limit.unwrap_or(floored(slowest * LIMIT_FACTOR)),
        base,
        patched,
    }))
}

fn floored(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or(PILOT_LIMIT).max(LIMIT_FLOOR)
}

/// The deciding metric of a run, or in words why there is none.
pub(super) fn read(metric: &MetricSpec, run: &RunResult) -> Result<f64, String> {
    match run.failure() {
        Some(why) => Err(why),
        None => metric.value(run),
    }
}
