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

use proptest::prelude::*;

use super::*;
use crate::error::Error;
use crate::measure::campaign::CellRef;
use crate::measure::campaign::tests::header;
use crate::measure::fake::{Fake, result};
use crate::measure::metric::MetricSpec;
use crate::measure::record::{Better, Cell, Header, Record};
use crate::measure::run::{Job, RunResult};
use crate::measure::stop::StopReason;
use crate::measure::writer::{Existing, RecordWriter};
use crate::verdict::{Answer, Blocked, Verdict};

/// Names its variants and links nothing.
#[derive(Default)]
struct Names {
    linked: Vec<Range<u32>>,
    removed: usize,
    /// Goes into every hash.
    links: &'static str,
    /// Cannot link a look that begins with this block.
    fails_at: Option<u32>,
}

impl Linker for Names {
    fn link(&mut self, blocks: Range<u32>, layouts: Range<u32>) -> Result<Linked> {
        if self.fails_at == Some(blocks.start) {
            return Err(Error::machine("linking block 4", "no space left on device"));
        }
        self.linked.push(blocks.clone());
        let blocks = blocks.map(|n| group(Group::Block, n));
        let groups: Vec<GroupCells> = blocks.chain(layouts.map(|n| group(Group::Layout, n))).collect();
        let hash = |c: &CellRef| (c.path.display().to_string(), format!("{}{}", self.links, c.path.display()));
        let hashes = groups.iter().flat_map(|g| &g.cells).map(hash).collect();
        Ok(Linked { groups, hashes })
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
    let mut groups = Names::default().link(0..4, 0..8).unwrap().groups;
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
    quick: bool,
    workers: Vec<u32>,
}

impl Bench {
    fn new() -> Bench {
        let dir = tempfile::tempdir().unwrap();
        Bench {
            dir,
            linker: Names::default(),
            stop: StopToken::new(None),
            told: Vec::new(),
            quick: false,
            workers: Vec::new(),
        }
    }

    fn record(&self) -> PathBuf {
        self.dir.path().join("r")
    }

    fn run(&mut self, answer: impl FnMut(usize, &Job) -> RunResult) -> Result<Ended> {
        let header = Header { quick: self.quick, workers: self.workers.clone(), ..header() };
        let writer = RecordWriter::create(&self.record(), &header, Existing::Refuse).unwrap();
        self.go(Campaign::new(Fake::new(answer), writer, header, wall(), 1, Duration::from_secs(1)))
    }

    fn resume(&mut self, answer: impl FnMut(usize, &Job) -> RunResult) -> Result<Ended> {
        let (writer, past) = RecordWriter::reopen(&self.record()).unwrap();
        self.go(Campaign::resume(Fake::new(answer), writer, past, wall(), 1, Duration::from_secs(1)))
    }

    fn go(&mut self, campaign: Campaign<impl Runner>) -> Result<Ended> {
        let (told, cost) = (&mut self.told, Cost { run: 0.01, link: 0.02 });
        let mut tell = |event| told.push(event);
        let triage = Triage { campaign, linker: &mut self.linker, stop: self.stop, cost, tell: &mut tell };
        let mut groups = first();
        groups.retain(|g| !self.quick || g.group == Group::Twin || (g.group, g.number) == (Group::Block, 0));
        triage.run(&groups)
    }

    /// Of the record as it lies on the disk.
    fn verdict(&self) -> Verdict {
        verdict(&Record::parse(&std::fs::read_to_string(self.record()).unwrap()).unwrap())
    }
}

fn wall() -> MetricSpec {
    MetricSpec::parse("wall", Better::Lower).unwrap()
}

#[test]
fn a_clear_case_is_settled_at_the_first_look() {
    let mut bench = Bench::new();
    assert_eq!(bench.run(|_, job| result(cost(job.binary, 0.0, 2.0, 0.001))).unwrap(), Ended::Done);
    let v = bench.verdict();
    assert_eq!((v.verdict, v.blocks, v.layouts, v.rounds), (Answer::Alignment, 4, 8, 6));
    assert!(bench.linker.linked.is_empty(), "the first look is linked by the caller");
    assert!(
        bench.told.iter().any(|e| matches!(e, Event::Pilot(p) if p.reachable == Some(true) && p.blocks == Some(4)))
    );
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
    let v = bench.verdict();
    assert_eq!(v.blocked_by, Some(Blocked::Budget));
    assert!(v.reasons.iter().any(|r| r.starts_with("after the pilot: ")), "{:?}", v.reasons);
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
    assert_eq!(v.forecast, None, "the pilot was not over");
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
    // Three clean blocks foresee nothing; the number of rounds is noted all the same, for whoever resumes it.
    let pilot = v.forecast.unwrap();
    assert_eq!((pilot.rounds, pilot.blocks, pilot.reachable), (6, None, None));
    // Others stand in for it.
    assert_eq!((v.verdict, v.blocks), (Answer::Alignment, 4), "{:?}", v.reasons);
}

#[test]
fn a_quick_campaign_is_one_block_and_24_rounds() {
    let mut bench = Bench { quick: true, ..Bench::new() };
    assert_eq!(bench.run(|_, job| result(cost(job.binary, 0.0, 2.0, 0.001))).unwrap(), Ended::Done);
    let v = bench.verdict();
    assert_eq!((v.verdict, v.blocks, v.layouts, v.rounds, v.runs), (Answer::Alignment, 1, 0, 24, 24 * 6));
    assert!(v.quick && v.reasons.iter().any(|r| r.starts_with("two landings, one link each")), "{:?}", v.reasons);
    // Three margins are an effect, but not for four links.
    let mut bench = Bench { quick: true, ..Bench::new() };
    bench.run(|_, job| result(cost(job.binary, 0.03, 0.0, 0.0))).unwrap();
    let v = bench.verdict();
    assert_eq!((v.verdict, v.blocked_by), (Answer::Inconclusive, Some(Blocked::Precision)));
    assert!(v.reasons[0].contains("without --quick"), "{:?}", v.reasons);
}

/// A case that needs three looks, with a run that fails and a block that is disturbed now and then.
fn eventful(n: usize, job: &Job) -> RunResult {
    let mut run = result(cost(job.binary, 0.05, 0.0, 0.01));
    if n % 50 == 17 {
        run.outside.steal_ticks = Some(9);
    }
    if job.binary == Path::new("Layout/5/P0") && n.is_multiple_of(3) {
        run.end = crate::measure::run::End::Signaled(11);
    }
    run
}

/// A group that was torn runs twice, which shifts the events after it to other runs: then effects agree to so many percent.
const SHIFTED: f64 = 0.3;

/// The two say the same, but for the numbers of runs.
fn assert_alike(v: &Verdict, whole: &Verdict, tolerance: f64, what: &str) {
    let said = |v: &Verdict| (v.verdict, v.blocked_by, v.blocks, v.layouts);
    assert_eq!(said(v), said(whole), "{what}: {:?}", v.reasons);
    for (effect, before) in [(v.code_effect, whole.code_effect), (v.code_over_layouts, whole.code_over_layouts)] {
        let (a, b) = (effect.percent.unwrap(), before.percent.unwrap());
        assert!((a - b).abs() <= tolerance, "{what}: {effect:?} and {before:?}");
    }
}

/// Nothing with one worker, 5 % with two.
fn with_workers(n: usize, job: &Job) -> RunResult {
    let code = if job.workers == Some(2) { 0.05 } else { 0.0 };
    let mut run = result(cost(job.binary, code, 0.0, 0.01));
    if n % 50 == 17 {
        run.outside.steal_ticks = Some(9);
    }
    run
}

/// What only more workers show is found, no row ends the campaign before the others, and one that is cut goes on.
#[test]
fn a_sweep_goes_on_until_its_last_row_is_decided() {
    let sweep = || Bench { workers: vec![1, 2], ..Bench::new() };
    let mut bench = sweep();
    bench.run(with_workers).unwrap();
    let v = bench.verdict();
    assert_eq!((v.verdict, v.workers), (Answer::Code, Some(2)), "{:?}", v.reasons);
    assert!(v.rows.iter().all(|row| row.decides && row.blocked_by != Some(Blocked::Budget)), "{:?}", v.rows);
    let mut alone = Bench { workers: vec![2], ..Bench::new() };
    alone.run(with_workers).unwrap();
    assert!(alone.verdict().blocks < v.blocks, "{} {}", alone.verdict().blocks, v.blocks);

    let whole = std::fs::read(bench.record()).unwrap();
    for share in [3, 5, 9] {
        let cut = whole.len() * share / 10;
        let had = String::from_utf8_lossy(&whole[..cut]).matches("\"order\":").count();
        let mut again = sweep();
        std::fs::write(again.record(), &whole[..cut]).unwrap();
        again.resume(|n, job| with_workers(n + had, job)).unwrap();
        assert_alike(&again.verdict(), &v, SHIFTED, &format!("cut at {cut}"));
        let of = |v: &Verdict| v.rows.iter().map(|row| row.verdict).collect::<Vec<_>>();
        assert_eq!(of(&again.verdict()), of(&v));
    }
}

/// Cut anywhere, resumed, the campaign ends as if nothing had happened: no run that was whole is made again, none that
/// the plan wants is missing, and the disk holds what the campaign had in memory.
fn cut_and_resume(whole: &[u8], verdict: &Verdict, cut: usize, tolerance: f64) {
    let mut bench = Bench::new();
    std::fs::write(bench.record(), &whole[..cut]).unwrap();
    let had = String::from_utf8_lossy(&whole[..cut]).matches("\"order\":").count();
    let mut made = 0;
    let ended = bench.resume(|n, job| {
        made += 1;
        // The fake counts from 0 again.
        eventful(n + had, job)
    });
    assert_eq!(ended.unwrap(), Ended::Done);
    let v = bench.verdict();
    assert_alike(&v, verdict, tolerance, &format!("cut at {cut}"));
    let torn = |v: &Verdict| v.skipped.get("replaced by a later run").copied().unwrap_or(0);
    let torn = torn(&v).saturating_sub(torn(verdict));
    assert!(torn <= 3, "cut at {cut}: {torn} runs are lost");
    let record = Record::parse(&std::fs::read_to_string(bench.record()).unwrap()).unwrap();
    assert!(record.dropped.is_empty());
    assert_eq!(record.samples.iter().map(|s| s.order).collect::<Vec<_>>(), (0..v.runs).collect::<Vec<_>>());
    assert!(record.samples.is_sorted_by_key(|s| s.start_ns), "cut at {cut}");
    assert!(made as u64 <= v.runs);
}

fn eventful_record() -> (Vec<u8>, Verdict) {
    let mut bench = Bench::new();
    bench.run(eventful).unwrap();
    let v = bench.verdict();
    assert!(v.blocks >= 8 && v.verdict == Answer::Code, "{:?}", v.reasons);
    assert!(v.skipped.contains_key("disturbed from outside") && v.skipped.contains_key("failed"), "{:?}", v.skipped);
    (std::fs::read(bench.record()).unwrap(), v)
}

/// Behind each of the last lines, within the last, and before, within and behind every note. (That a cut within a line
/// is one before it, at every byte, is a test of the writer.)
#[test]
fn a_record_that_is_cut_goes_on() {
    let (whole, v) = eventful_record();
    let starts: Vec<usize> = (1..whole.len()).filter(|&i| whole[i - 1] == b'\n').collect();
    let notes = starts.iter().copied().filter(|&at| !whole[at..].starts_with(b"{\"group"));
    let notes: Vec<usize> =
        notes.flat_map(|at| [at, at + 9, at + whole[at..].iter().position(|&b| b == b'\n').unwrap() + 1]).collect();
    assert!(notes.len() >= 9, "the pilot and two looks");
    let tail = starts.iter().copied().skip(starts.len() - 10);
    tail.chain([whole.len() - 5, whole.len()]).chain(notes).for_each(|cut| cut_and_resume(&whole, &v, cut, 0.0));
}

#[test]
fn links_that_differ_from_the_records_are_refused() {
    let (whole, _) = eventful_record();
    let look = String::from_utf8(whole.clone()).unwrap().rfind("{\"look\"").unwrap();
    let end = look + whole[look..].iter().position(|&b| b == b'\n').unwrap() + 1;
    let mut bench = Bench::new();
    bench.linker.links = "another compiler's ";
    std::fs::write(bench.record(), &whole[..end]).unwrap();
    let error = bench.resume(eventful).unwrap_err().to_string();
    assert!(error.contains("is linked otherwise"), "{error}");
    // A record of other rounds than this plan's is not gone on with either.
    let text = String::from_utf8(whole).unwrap();
    let second = text.match_indices('\n').nth(1).unwrap().0 + 1;
    let third = second + text[second..].find('\n').unwrap() + 1;
    std::fs::write(bench.record(), text[..second].to_owned() + &text[third..]).unwrap();
    let error = bench.resume(eventful).unwrap_err().to_string();
    assert!(error.contains("where this campaign runs"), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    /// Killed, resumed, killed again.
    #[test]
    fn a_campaign_that_is_killed_twice_ends_alike(first in 0.0f64..1.0, second in 0.0f64..1.0) {
        let (whole, v) = eventful_record();
        let header = whole.iter().position(|&b| b == b'\n').unwrap() + 1;
        let cut = |bytes: &[u8], share: f64| header + ((bytes.len() - header) as f64 * share) as usize;
        let mut bench = Bench::new();
        std::fs::write(bench.record(), &whole[..cut(&whole, first)]).unwrap();
        bench.resume(eventful).unwrap();
        let again = std::fs::read(bench.record()).unwrap();
        let v2 = bench.verdict();
        assert_alike(&v2, &v, SHIFTED, "killed once");
        cut_and_resume(&again, &v2, cut(&again, second), SHIFTED);
    }
}
