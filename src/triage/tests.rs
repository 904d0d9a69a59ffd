//! Whole campaigns over the fake runner and a fake linker: how they end, and what is known then.

#![allow(
    clippy::disallowed_methods,
    reason = "the record is read back from the disk, and a budget is spent by waiting"
)]

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::*;
use crate::error::Error;
use crate::measure::campaign::CellRef;
use crate::measure::campaign::tests::header;
use crate::measure::fake::{Fake, result};
use crate::measure::metric::MetricSpec;
use crate::measure::record::{Better, Cell, Record};
use crate::measure::run::{Job, RunResult};
use crate::measure::stop::StopReason;
use crate::measure::writer::{Existing, RecordWriter};
use crate::verdict::{Answer, Blocked, Verdict};

/// Names its variants and links nothing.
#[derive(Default)]
struct Names {
    linked: Vec<Range<u32>>,
    removed: usize,
    /// Cannot link a look that begins with this block.
    fails_at: Option<u32>,
}

impl Linker for Names {
    fn link(&mut self, blocks: Range<u32>, layouts: Range<u32>) -> Result<Vec<GroupCells>> {
        if self.fails_at == Some(blocks.start) {
            return Err(Error::machine("linking block 4", "no space left on device"));
        }
        self.linked.push(blocks.clone());
        Ok(blocks.map(|n| group(Group::Block, n)).chain(layouts.map(|n| group(Group::Layout, n))).collect())
    }

    fn remove(&mut self, groups: &[GroupCells]) {
        self.removed += groups.len();
    }
}

fn group(group: Group, number: u32) -> GroupCells {
    use Cell::{B0, BP, P0, PB};
    let cells: &[Cell] = if group == Group::Block { &[B0, PB, BP, P0] } else { &[B0, P0] };
    let path = |c: &Cell| PathBuf::from(format!("{group:?}/{number}/{c:?}"));
    let cells = cells.iter().map(|c| CellRef { cell: *c, path: path(c), stack_offset: 0 }).collect();
    GroupCells { group, number, cells }
}

fn first() -> Vec<GroupCells> {
    let mut groups = Names::default().link(0..4, 0..8).unwrap();
    groups.push(group(Group::Twin, 0));
    groups
}

/// What a variant costs, by its name: code and luck in ln units, and some luck of its own for every link.
fn cost(path: &Path, code: f64, luck: f64, link_luck: f64) -> f64 {
    let name = path.to_str().unwrap();
    let cell = name.rsplit('/').next().unwrap();
    let (patched, moved) = (["PB", "P0"].contains(&cell), ["BP", "P0"].contains(&cell));
    let draw = blake3::hash(name.as_bytes()).as_bytes()[0];
    let own = link_luck * (f64::from(draw) / 128.0 - 1.0);
    let y = match name.split('/').next().unwrap() {
        "Twin" => 0.0,
        "Layout" => own + if patched { code } else { 0.0 },
        _ => own + if patched { code } else { 0.0 } + if moved { luck } else { 0.0 },
    };
    0.01 * y.exp()
}

struct Bench {
    dir: tempfile::TempDir,
    linker: Names,
    stop: StopToken,
    told: Vec<Event>,
}

impl Bench {
    fn new() -> Bench {
        let dir = tempfile::tempdir().unwrap();
        Bench { dir, linker: Names::default(), stop: StopToken::new(None), told: Vec::new() }
    }

    fn run(&mut self, answer: impl FnMut(usize, &Job) -> RunResult) -> Result<Ended> {
        let writer = RecordWriter::create(&self.dir.path().join("r"), &header(), Existing::Refuse).unwrap();
        let metric = MetricSpec::parse("wall", Better::Lower).unwrap();
        let campaign = Campaign::new(Fake::new(answer), writer, header(), metric, 1, Duration::from_secs(1));
        let (told, cost) = (&mut self.told, Cost { run: 0.01, link: 0.02 });
        let mut tell = |event| told.push(event);
        let triage = Triage { campaign, linker: &mut self.linker, stop: self.stop, cost, tell: &mut tell };
        triage.run(&first())
    }

    /// Of the record as it lies on the disk.
    fn verdict(&self) -> Verdict {
        verdict(&Record::parse(&std::fs::read_to_string(self.dir.path().join("r")).unwrap()).unwrap())
    }
}

#[test]
fn a_clear_case_is_settled_at_the_first_look() {
    let mut bench = Bench::new();
    assert_eq!(bench.run(|_, job| result(cost(job.binary, 0.0, 2.0, 0.001))).unwrap(), Ended::Done);
    let v = bench.verdict();
    assert_eq!((v.verdict, v.blocks, v.layouts, v.rounds), (Answer::Alignment, 4, 8, 6));
    assert!(bench.linker.linked.is_empty(), "the first look is linked by the caller");
    assert!(bench.told.iter().any(|e| matches!(e, Event::Reach(r) if r.reachable)));
}

#[test]
fn an_open_case_goes_on_look_by_look_and_every_look_is_removed() {
    let mut bench = Bench::new();
    assert_eq!(bench.run(|_, job| result(cost(job.binary, 0.05, 0.0, 0.01))).unwrap(), Ended::Done);
    let v = bench.verdict();
    assert_eq!((v.verdict, v.blocked_by), (Answer::Code, None), "{:?}", v.reasons);
    assert!(v.blocks > 4 && bench.linker.linked[0] == (4..6), "{:?}", bench.linker.linked);
    assert_eq!(bench.linker.removed, 3 * (v.blocks - 4));
    let undecided = bench.told.iter().filter(|e| matches!(e, Event::Undecided { .. })).count();
    assert_eq!(undecided, bench.linker.linked.len());
}

#[test]
fn the_last_look_ends_it() {
    let mut bench = Bench::new();
    assert_eq!(bench.run(|_, job| result(cost(job.binary, 0.02, 0.0, 0.2))).unwrap(), Ended::Done);
    let v = bench.verdict();
    assert_eq!((v.blocked_by, v.blocks), (Some(Blocked::Precision), header().max_blocks as usize));
}

#[test]
fn a_spent_budget_ends_it() {
    let mut bench = Bench::new();
    bench.stop = StopToken::new(Some(Duration::from_millis(200)));
    let answer = |n: usize, job: &Job| {
        if n == 300 {
            std::thread::sleep(Duration::from_millis(250));
        }
        result(cost(job.binary, 0.02, 0.0, 0.2))
    };
    assert_eq!(bench.run(answer).unwrap(), Ended::Stopped(StopReason::Budget));
    assert_eq!(bench.verdict().blocked_by, Some(Blocked::Budget));
}

/// Stopped in the middle of a round: what the rounds before say still counts.
#[test]
fn an_interrupt_leaves_the_verdict_so_far() {
    static STOP: AtomicBool = AtomicBool::new(false);
    let mut bench = Bench::new();
    bench.stop = StopToken::flag(&STOP);
    let answer = |n: usize, job: &Job| {
        STOP.store(n >= 200, Ordering::Relaxed);
        result(cost(job.binary, 0.0, 2.0, 0.001))
    };
    assert_eq!(bench.run(answer).unwrap(), Ended::Stopped(StopReason::Interrupted));
    let v = bench.verdict();
    assert_eq!((v.runs, v.verdict), (201, Answer::Alignment), "{:?}", v.reasons);
}

#[test]
fn a_later_link_that_fails_leaves_what_was_measured() {
    let mut bench = Bench::new();
    bench.linker.fails_at = Some(4);
    let error = bench.run(|_, job| result(cost(job.binary, 0.05, 0.0, 0.01))).unwrap_err();
    assert!(error.to_string().contains("no space left"), "{error}");
    let v = bench.verdict();
    assert_eq!((v.blocks, v.layouts, v.blocked_by), (4, 8, Some(Blocked::Budget)));
}

/// A block that is disturbed whenever it runs: topping it up ends, and the verdict says what is missing.
#[test]
fn a_group_that_is_never_clean_does_not_hold_the_campaign_up() {
    let mut bench = Bench::new();
    let rounds = Rc::new(RefCell::new(0u32));
    let answer = |_: usize, job: &Job| {
        let mut run = result(cost(job.binary, 0.0, 2.0, 0.001));
        if job.binary.starts_with("Block/2") {
            run.outside.steal_ticks = Some(9);
            *rounds.borrow_mut() += u32::from(job.binary.ends_with("B0"));
        }
        run
    };
    assert_eq!(bench.run(answer).unwrap(), Ended::Done);
    // Twice a round: it is repeated once.
    assert_eq!(*rounds.borrow(), 2 * (PILOT_ROUNDS + SPARE * MOST_ROUNDS));
    let v = bench.verdict();
    assert!(v.reasons.iter().any(|r| r.contains("disturbed from outside")), "{:?}", v.reasons);
    // Others stand in for it.
    assert_eq!((v.verdict, v.blocks), (Answer::Alignment, 4), "{:?}", v.reasons);
}
