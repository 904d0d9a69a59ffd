use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use super::*;
use crate::measure::fake::{Fake, result};
use crate::measure::metric::MetricSpec;
use crate::measure::pilot::{Limits, pilot};
use crate::measure::record::{Better, Matched, SCHEMA};
use crate::measure::writer::Existing;

pub(crate) fn header() -> Header {
    Header {
        schema: SCHEMA.into(),
        tool: "0".into(),
        case: "case".into(),
        seed: "0x1".into(),
        started: "2026-01-01T00:00:00Z".into(),
        host: Default::default(),
        command: "{bin} 1".into(),
        metric: wall().metric(),
        also: Vec::new(),
        workers: Vec::new(),
        decides: None,
        threads: None,
        margin_percent: 1.0,
        max_blocks: 12,
        quick: false,
        cycle: None,
        matched: Matched::default(),
        suspects: vec![],
        identical: false,
        problems: Vec::new(),
        hashes: BTreeMap::new(),
    }
}

pub(crate) fn sample() -> Sample {
    Sample {
        group: Group::Layout,
        number: 3,
        cell: Cell::P0,
        workers: None,
        round: 1,
        attempt: 0,
        order: 7,
        start_ns: 8,
        outcome: Outcome::Failed("exits with status 1".into()),
        value: None,
        also: Vec::new(),
        wall: 0.1,
        user: 0.2,
        sys: 0.3,
        max_rss: 4,
        voluntary_switches: 5,
        involuntary_switches: 6,
        steal_ticks: Some(0),
        contaminated: false,
        stack_offset: 16,
    }
}

fn wall() -> MetricSpec {
    MetricSpec::parse("wall", Better::Lower).unwrap()
}

fn group(group: Group, number: u32) -> GroupCells {
    use Cell::{B0, BP, P0, PB};
    let cells: &[Cell] = if group == Group::Block { &[B0, PB, BP, P0] } else { &[B0, P0] };
    let path = |c: &Cell| PathBuf::from(format!("{group:?}{number}{c:?}"));
    let cells = cells.iter().map(|c| CellRef { cell: *c, path: path(c), stack_offset: number * 16 }).collect();
    GroupCells { group, number, cells }
}

fn plan() -> Vec<GroupCells> {
    let blocks = (0..3).map(|n| group(Group::Block, n));
    let layouts = (0..4).map(|n| group(Group::Layout, n));
    blocks.chain(layouts).chain([group(Group::Aligned, 0), group(Group::Twin, 0)]).collect()
}

type Scripted = Campaign<Fake<Box<dyn FnMut(usize, &Job) -> RunResult>>>;

fn campaign(dir: &Path, seed: u64, answer: impl FnMut(usize, &Job) -> RunResult + 'static) -> Scripted {
    let writer = RecordWriter::create(&dir.join("r.jsonl"), &header(), Existing::Replace).unwrap();
    Campaign::new(Fake::new(Box::new(answer)), writer, header(), wall(), seed, Duration::from_secs(1))
}

fn run(campaign: &mut Scripted, groups: &[GroupCells], rounds: Range<u32>) -> Result<Ended> {
    campaign.rounds(groups, rounds, &StopToken::new(None), &mut |_| {})
}

/// The groups of consecutive samples.
fn runs_of(samples: &[Sample]) -> Vec<(Group, u32, Vec<Cell>)> {
    let mut out: Vec<(Group, u32, Vec<Cell>)> = Vec::new();
    for s in samples {
        match out.last_mut() {
            Some((g, n, cells)) if (*g, *n) == (s.group, s.number) && !cells.contains(&s.cell) => cells.push(s.cell),
            _ => out.push((s.group, s.number, vec![s.cell])),
        }
    }
    out
}

#[test]
fn every_cell_runs_once_a_round_beside_its_neighbours_in_random_order() {
    let dir = tempfile::tempdir().unwrap();
    let mut c = campaign(dir.path(), 1, |_, _| result(0.1));
    assert_eq!(run(&mut c, &plan(), 0..6).unwrap(), Ended::Done);
    let cells: usize = plan().iter().map(|g| g.cells.len()).sum();
    let mut group_orders = BTreeSet::new();
    let mut cell_orders = BTreeSet::new();
    for round in 0..6 {
        let samples: Vec<Sample> = c.record().samples.iter().filter(|s| s.round == round).cloned().collect();
        assert_eq!(samples.len(), cells);
        let runs = runs_of(&samples);
        // Neighbours are never torn apart, so there are as many stretches as groups.
        assert_eq!(runs.len(), plan().len());
        group_orders.insert(runs.iter().map(|(g, n, _)| (*g, *n)).collect::<Vec<_>>());
        cell_orders.extend(runs.into_iter().filter(|r| r.0 == Group::Block).map(|r| r.2));
    }
    assert!(group_orders.len() == 6 && cell_orders.len() > 8, "{} {}", group_orders.len(), cell_orders.len());
    let orders: Vec<u64> = c.record().samples.iter().map(|s| s.order).collect();
    assert_eq!(orders, (0..orders.len() as u64).collect::<Vec<_>>());
}

/// Neighbours have one worker count, and what waiting is usual with one says nothing of the other.
#[test]
fn a_sweep_runs_every_cell_with_each_worker_count() {
    let dir = tempfile::tempdir().unwrap();
    let header = Header { workers: vec![1, 8], also: vec![wall().metric()], ..header() };
    let writer = RecordWriter::create(&dir.path().join("r.jsonl"), &header, Existing::Replace).unwrap();
    let answer = |_: usize, job: &Job| {
        let mut run = result(0.1 / f64::from(job.workers.unwrap()));
        // No CPU of the two is anybody else's.
        run.user *= 2.0;
        run.outside.waited = Some(if job.workers == Some(8) { 0.4 * run.wall } else { 0.0 });
        if job.workers == Some(8) && job.binary == Path::new("Layout2P0") {
            run.end = End::Exited(3);
        }
        run
    };
    let user = MetricSpec::parse("user", Better::Lower).unwrap();
    let metrics = Metrics { decides: wall(), also: vec![user] };
    let mut c = Campaign::new(Fake::new(answer), writer, header, metrics, 1, Duration::from_secs(1));
    c.rounds(&plan(), 0..6, &StopToken::new(None), &mut |_| {}).unwrap();
    let samples = &c.record().samples;
    let cells: usize = plan().iter().map(|g| g.cells.len()).sum();
    assert_eq!(samples.iter().filter(|s| s.round == 0).count(), 2 * cells);
    let stretches = samples.chunk_by(|a, b| (a.group, a.number, a.workers) == (b.group, b.number, b.workers));
    assert_eq!(stretches.filter(|s| s[0].round == 0).count(), 2 * plan().len(), "neighbours stand side by side");
    assert!(samples.iter().all(|s| !s.contaminated), "eight workers always wait so long");
    let ok = samples.iter().filter(|s| s.outcome == Outcome::Ok);
    assert!(
        ok.clone()
            .all(|s| s.also == [s.value.map(|v| 2.0 * v)] && s.value == Some(0.1 / f64::from(s.workers.unwrap())))
    );
    // The pair that never runs with eight workers still does with one.
    let [retired] = c.retired() else { panic!("{:?}", c.retired()) };
    assert_eq!((retired.number, retired.workers), (2, Some(8)));
    let of = |workers| {
        samples.iter().filter(|s| (s.group, s.number, s.workers) == (Group::Layout, 2, Some(workers))).count()
    };
    assert_eq!([of(1), of(8)], [12, 6]);
}

#[test]
fn the_order_follows_from_seed_and_round() {
    let dir = tempfile::tempdir().unwrap();
    let order = |seed, first| {
        let mut c = campaign(dir.path(), seed, |_, _| result(0.1));
        run(&mut c, &plan(), first..3).unwrap();
        let samples = c.record().samples.iter();
        samples.filter(|s| s.round == 2).map(|s| (s.group, s.number, s.cell)).collect::<Vec<_>>()
    };
    let straight = order(1, 0);
    // The same round in a campaign that was resumed.
    assert_eq!(straight, order(1, 2));
    assert_ne!(straight, order(2, 0));
}

#[test]
fn what_all_is_compared_with_runs_in_every_round() {
    let dir = tempfile::tempdir().unwrap();
    let mut c = campaign(dir.path(), 1, |_, _| result(0.1));
    run(&mut c, &plan(), 0..1).unwrap();
    run(&mut c, &[group(Group::Block, 7)], 1..2).unwrap();
    let of =
        |r| c.record().samples.iter().filter(|s| s.round == r).map(|s| (s.group, s.number)).collect::<BTreeSet<_>>();
    assert_eq!(of(1), [(Group::Block, 0), (Group::Block, 7), (Group::Aligned, 0), (Group::Twin, 0)].into());
    assert!(run(&mut c, &plan(), 1..2).unwrap_err().to_string().contains("round 1 has been run"));
}

#[test]
fn a_disturbed_group_is_repeated_once_and_both_are_kept() {
    let dir = tempfile::tempdir().unwrap();
    let mut c = campaign(dir.path(), 1, |_, job| {
        let mut r = result(0.1);
        if job.binary == Path::new("Block1PB") {
            r.outside.steal_ticks = Some(5);
        }
        r
    });
    run(&mut c, &plan(), 0..2).unwrap();
    for round in 0..2 {
        let again: Vec<&Sample> = c.record().samples.iter().filter(|s| s.round == round && s.attempt == 1).collect();
        assert_eq!(again.len(), 4);
        assert!(again.iter().all(|s| (s.group, s.number) == (Group::Block, 1)));
        let marked = c.record().samples.iter().filter(|s| s.round == round && s.contaminated);
        assert_eq!(marked.map(|s| (s.cell, s.attempt)).collect::<Vec<_>>(), [(Cell::PB, 0), (Cell::PB, 1)]);
    }
    let lines = std::fs::read_to_string(dir.path().join("r.jsonl")).unwrap();
    let stored: Vec<Sample> = lines.lines().skip(1).map(|l| serde_json::from_str(l).unwrap()).collect();
    assert_eq!(stored, c.record().samples);
}

fn failing() -> RunResult {
    let mut r = RunResult { end: End::Exited(3), ..result(0.1) };
    r.stderr = b"cannot allocate\n".to_vec();
    r
}

#[test]
fn a_failure_is_kept_and_counted_and_too_many_end_the_campaign() {
    let dir = tempfile::tempdir().unwrap();
    let mut c = campaign(dir.path(), 1, |n, _| if n % 7 == 3 { failing() } else { result(0.1) });
    run(&mut c, &plan(), 0..4).unwrap();
    let failed: Vec<&Sample> = c.record().samples.iter().filter(|s| s.outcome != Outcome::Ok).collect();
    assert!(failed.len() > 5 && failed.iter().all(|s| s.value.is_none()));

    let mut c = campaign(dir.path(), 1, |n, _| if n % 3 == 0 { failing() } else { result(0.1) });
    let e = run(&mut c, &plan(), 0..9).unwrap_err();
    assert!(
        e.to_string().contains("runs failed; the last one exits with status 3; its errors end: cannot allocate"),
        "{e}"
    );
    // The runs that led to it are there.
    let lines = std::fs::read_to_string(dir.path().join("r.jsonl")).unwrap().lines().count();
    assert_eq!(lines, c.record().samples.len() + 1);
}

#[test]
fn a_group_that_never_runs_is_retired_with_its_reason() {
    let dir = tempfile::tempdir().unwrap();
    let dies = |name: &'static str| {
        move |_: usize, job: &Job| {
            if job.binary == Path::new(name) {
                RunResult { end: End::Signaled(11), ..result(0.1) }
            } else {
                result(0.1)
            }
        }
    };
    let mut c = campaign(dir.path(), 1, dies("Layout2P0"));
    run(&mut c, &plan(), 0..9).unwrap();
    assert_eq!(c.record().samples.iter().filter(|s| (s.group, s.number) == (Group::Layout, 2)).count(), 6);
    assert_eq!(c.retired().len(), 1);
    assert!(c.retired()[0].reason.contains("SIGSEGV"), "{:?}", c.retired());
    let mut c = campaign(dir.path(), 1, dies("Block0BP"));
    assert!(run(&mut c, &plan(), 0..9).unwrap_err().to_string().contains("block 0"));
}

#[test]
fn a_stop_tears_the_round_and_keeps_what_was_run() {
    static STOP: AtomicBool = AtomicBool::new(false);
    let dir = tempfile::tempdir().unwrap();
    let mut c = campaign(dir.path(), 1, |n, _| {
        if n < 30 {
            return result(0.1);
        }
        STOP.store(true, Ordering::Relaxed);
        RunResult { end: End::Stopped, ..result(0.1) }
    });
    let mut told = Vec::new();
    let ended = c.rounds(&plan(), 0..9, &StopToken::flag(&STOP), &mut |p| told.push(p)).unwrap();
    assert_eq!(ended, Ended::Stopped(StopReason::Interrupted));
    assert_eq!(c.record().samples.len(), 30);
    assert_eq!(std::fs::read_to_string(dir.path().join("r.jsonl")).unwrap().lines().count(), 31);
    assert!(told.iter().all(|p| p.runs <= 30 && p.groups_done <= p.groups));
    assert_eq!((told[8].groups_done, told[8].runs, told[9].round), (9, 24, 1));
}

#[test]
fn the_pilot_fails_with_the_words_of_the_program() {
    let cells = [group(Group::Block, 0).cells[0].clone(), group(Group::Block, 0).cells[3].clone()];
    let ask = |answer: fn(&Job) -> RunResult| {
        let mut fake = Fake::new(move |_: usize, job: &Job| answer(job));
        pilot(&mut fake, &wall(), None, &Limits::default(), &cells[0], &cells[1], &StopToken::new(None))
    };
    let info = ask(|job| result(if job.binary == Path::new("Block0P0") { 2.0 } else { 1.0 })).unwrap().unwrap();
    assert_eq!((info.base, info.patched, info.time_limit), (1.0, 2.0, Duration::from_secs(20)));
    assert_eq!(ask(|_| result(0.01)).unwrap().unwrap().time_limit, Duration::from_secs(5));
    let e = ask(|job| if job.binary == Path::new("Block0P0") { failing() } else { result(0.1) }).unwrap_err();
    let text = e.to_string();
    assert!(text.contains("with patched: exits with status 3; its errors end: cannot allocate"), "{text}");
    assert_eq!(e.kind, crate::error::Kind::Input);
}
