//! The fake beside [`super::run::Real`]: answers from a closure, starts nothing.

use std::path::PathBuf;
use std::time::Instant;

use crate::error::Result;
use crate::measure::gauges::Outside;
use crate::measure::run::{End, Job, RunResult, Runner};

/// Answers the n-th run (from 0) with what `answer` says.
pub(crate) struct Fake<F> {
    pub(crate) answer: F,
    pub(crate) ran: Vec<PathBuf>,
}

impl<F: FnMut(usize, &Job) -> RunResult> Fake<F> {
    pub(crate) fn new(answer: F) -> Fake<F> {
        Fake { answer, ran: Vec::new() }
    }
}

impl<F: FnMut(usize, &Job) -> RunResult> Runner for Fake<F> {
    fn run(&mut self, job: &Job) -> Result<RunResult> {
        let n = self.ran.len();
        self.ran.push(job.binary.to_owned());
        Ok((self.answer)(n, job))
    }
}

/// A clean run of `wall` seconds on one CPU.
pub(crate) fn result(wall: f64) -> RunResult {
    RunResult {
        started: Instant::now(),
        end: End::Exited(0),
        wall,
        user: wall,
        sys: 0.0,
        max_rss: 2000,
        rss_floor: 1000,
        voluntary_switches: 1,
        involuntary_switches: 0,
        outside: Outside { span: wall, cpus: 2, idle_ticks: Some(0), steal_ticks: Some(0), waited: Some(0.0) },
        stdout: Vec::new(),
        stderr: Vec::new(),
    }
}
