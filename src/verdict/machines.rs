//! Records of several machines → one verdict, or one each where the machines disagree.
//!
//! A block lives on one machine, and everything that is compared is compared within it; so blocks of several machines can
//! be pooled like blocks of one. Unless the machines themselves differ in what the patch or the move costs: their mean
//! would be a number that no machine has.

use std::collections::BTreeMap;

use super::estimates::Estimates;
use super::robust::Interval;
use super::rows::Key;
use super::runs::{Runs, Unit};
use super::value::{Machine, Verdict};
use super::words::effect;
use super::{Blocked, conclude, decide, verdict};
use crate::error::{Error, Result};
use crate::measure::record::{Group, Matched, Record};

/// A record by itself.
struct Alone<'r> {
    record: &'r Record,
    verdict: Verdict,
    /// Code effect and luck of each row that decides.
    effects: Vec<(Interval, Interval)>,
}

/// The verdicts of records of one case: one for all machines that do not contradict each other, one for each that does.
/// The order in which they are given is no matter.
///
/// # Errors
/// When they are not of one case, metric and margin, one is given twice, or one cannot be pooled.
pub fn verdicts(records: &[Record]) -> Result<Vec<Verdict>> {
    if let [one] = records {
        return Ok(vec![verdict(one)]);
    }
    let mut alone: Vec<Alone> = records.iter().map(Alone::of).collect();
    alone.sort_by_cached_key(|a| {
        let header = &a.record.header;
        (header.started.clone(), header.seed.clone(), serde_json::to_string(&header.host).unwrap_or_default())
    });
    for pair in alone.windows(2) {
        if let [a, b] = pair {
            comparable(a.record, b.record)?;
        }
    }
    let mut pools: Vec<Vec<&Alone>> = Vec::new();
    for machine in &alone {
        match pools.iter_mut().find(|pool| pool.iter().all(|other| machine.agrees(other))) {
            Some(pool) => pool.push(machine),
            None => pools.push(vec![machine]),
        }
    }
    let several = pools.len() > 1;
    let differences: Vec<String> = alone.iter().map(Alone::says).collect();
    let of = |pool: Vec<&Alone>| {
        let (first, rest) = pool.split_first()?;
        let mut verdict = pooled(first, rest);
        verdict.machines = pool.iter().map(|a| a.machine()).collect();
        if several {
            verdict
                .reasons
                .push(format!("the machines differ, so each has its own verdict: {}", differences.join("; ")));
        }
        Some(verdict)
    };
    Ok(pools.into_iter().filter_map(of).collect())
}

/// Whether two records may stand in one table at all.
fn comparable(a: &Record, b: &Record) -> Result<()> {
    let wrong = |problem: String| Err(Error::input("merging the records of several machines", problem));
    let (one, two) = (&a.header, &b.header);
    let pairs = [
        ("case", one.case.clone(), two.case.clone()),
        ("metric", one.metric.name.clone(), two.metric.name.clone()),
        ("direction of the metric", format!("{:?}", one.metric.better), format!("{:?}", two.metric.better)),
        ("list of other metrics", format!("{:?}", one.also), format!("{:?}", two.also)),
        ("list of worker counts", format!("{:?}", one.workers), format!("{:?}", two.workers)),
        ("deciding row", format!("{:?}", one.decides), format!("{:?}", two.decides)),
        ("margin", format!("{} %", one.margin_percent), format!("{} %", two.margin_percent)),
    ];
    if let Some((what, one, two)) = pairs.into_iter().find(|(_, one, two)| one != two) {
        return wrong(format!("they differ in the {what}: {one} and {two}"));
    }
    if one.quick || two.quick {
        return wrong("a --quick campaign has one link of each cell, which stands for itself alone".into());
    }
    if one.cycle.is_some() || two.cycle.is_some() {
        return wrong("the layouts of one are phase cycles, which cannot be pooled".into());
    }
    if one == two && a.samples.first() == b.samples.first() {
        return wrong(format!("two of them are one campaign, that of {}", one.started));
    }
    Ok(())
}

impl Alone<'_> {
    fn of(record: &Record) -> Alone<'_> {
        let header = &record.header;
        let of = |key: Key| {
            let (mut runs, margin) = (Runs::of(record, key), decide::margin(record));
            let e = Estimates::at_look(&mut runs, margin, header.cycle, key.sharing(header));
            (e.gamma, e.lambda)
        };
        Alone { record, verdict: verdict(record), effects: Key::deciding(header).into_iter().map(of).collect() }
    }

    /// Whether in no row the code effect or the luck is OUT of the other's, by the interval of the difference. A machine that
    /// cannot tell two equal links apart from different ones, or has nothing to tell apart, agrees with nobody.
    fn agrees(&self, other: &Alone) -> bool {
        let margin = decide::margin(self.record);
        let apart = |a: Interval, b: Interval| Interval { centre: a.centre - b.centre, half: a.half.hypot(b.half) };
        let sound = |a: &Alone| a.verdict.blocked_by != Some(Blocked::AA) && !a.verdict.identical;
        let same = sound(self) && sound(other);
        let out = |a: Interval, b: Interval| apart(a, b).out(margin);
        same && !self.effects.iter().zip(&other.effects).any(|(a, b)| out(a.0, b.0) || out(a.1, b.1))
    }

    fn machine(&self) -> Machine {
        let v = &self.verdict;
        let name = v.host.get("cpu_model").and_then(|name| name.as_str()).unwrap_or("an unknown machine");
        Machine {
            name: name.to_string(),
            started: self.record.header.started.clone(),
            seed: v.seed.clone(),
            blocks: v.blocks,
            layouts: v.layouts,
            code_effect: v.code_effect,
            layout_luck: v.layout_luck,
            host: v.host.clone(),
        }
    }

    fn says(&self) -> String {
        let (m, metric) = (self.machine(), &self.verdict.metric);
        let (code, luck) = (effect(&m.code_effect, metric), effect(&m.layout_luck, metric));
        format!("on {} the patch is {code} and the move {luck}", m.name)
    }
}

fn pooled(first: &Alone, rest: &[&Alone]) -> Verdict {
    if rest.is_empty() {
        return first.verdict.clone();
    }
    let mut all = Record::new(first.record.header.clone());
    all.dropped.clone_from(&first.record.dropped);
    for other in rest {
        let header = &other.record.header;
        all.header.max_blocks = all.header.max_blocks.saturating_add(header.max_blocks);
        let new = |list: &[String], item: &&String| !list.contains(item);
        let problems = header.problems.iter().chain(&other.record.dropped);
        let problems: Vec<String> = problems.filter(|p| new(&all.header.problems, p)).cloned().collect();
        all.header.problems.extend(problems);
        let suspects = header.suspects.iter().filter(|s| !all.header.suspects.iter().any(|known| known.name == s.name));
        let suspects: Vec<_> = suspects.cloned().collect();
        all.header.suspects.extend(suspects);
        // What one machine's compiler left unmatched is unmatched in the pool.
        if unmatched(&header.matched) > unmatched(&all.header.matched) {
            let rigid = std::mem::take(&mut all.header.matched.rigid);
            all.header.matched = Matched { rigid, ..header.matched.clone() };
        }
        let rigid: Vec<String> =
            header.matched.rigid.iter().filter(|r| new(&all.header.matched.rigid, r)).cloned().collect();
        all.header.matched.rigid.extend(rigid);
    }
    let pool: Vec<&Alone> = std::iter::once(first).chain(rest.iter().copied()).collect();
    all.header.threads = pool.iter().filter_map(|a| a.record.header.threads).reduce(|a, b| a || b);
    all.samples = pool.iter().flat_map(|a| a.record.samples.iter().cloned()).collect();
    conclude(&all, |key| pool_runs(&pool, key))
}

fn unmatched(matched: &Matched) -> u32 {
    matched.of.saturating_sub(matched.units)
}

/// The blocks and layouts of all, one of each machine in turn, so that a look takes as many of each. What is one file on
/// two machines (the same seed and compiler) has one luck: its rounds are put together, and it stays one unit.
fn pool_runs(pool: &[&Alone], key: Key) -> Runs {
    let mut all = Runs::default();
    let mut known: BTreeMap<String, usize> = BTreeMap::new();
    let mut next_round = 0;
    let mut level = None;
    let mut columns = Vec::new();
    for machine in pool {
        let mut runs = Runs::of(machine.record, key);
        let own = runs.level();
        let base = *level.get_or_insert(own);
        // Machines differ in speed; within a round that cancels, between layouts it must not pass for their spread.
        runs.shift(base - own, next_round);
        next_round = runs.last_round().map_or(next_round, |last| last + 1);
        all.count(&runs);
        all.twin = joined(all.twin.take(), runs.twin.take());
        all.aligned = joined(all.aligned.take(), runs.aligned.take());
        let named = |group, units: Vec<Unit>| {
            let name = |unit: Unit| (machine.record.files(group, unit.number), unit);
            units.into_iter().map(name).collect::<Vec<_>>().into_iter()
        };
        columns.push([named(Group::Block, runs.blocks), named(Group::Layout, runs.layouts)]);
    }
    loop {
        let mut left = false;
        for [blocks, layouts] in &mut columns {
            // Two layouts for every block.
            for (files, unit) in layouts.by_ref().take(2) {
                left = true;
                put(&mut all.layouts, &mut known, files, unit);
            }
            if let Some((files, unit)) = blocks.next() {
                left = true;
                put(&mut all.blocks, &mut known, files, unit);
            }
        }
        if !left {
            return all;
        }
    }
}

/// Behind the rounds of the same files, or as a unit of its own; an as-built block keeps its number, for that says so.
fn put(units: &mut Vec<Unit>, known: &mut BTreeMap<String, usize>, files: Option<String>, mut unit: Unit) {
    let at = files.map(|files| *known.entry(files).or_insert(units.len()));
    match at.and_then(|at| units.get_mut(at)) {
        Some(same) => same.append(unit),
        None => {
            if unit.number != 0 {
                unit.number = units.len() as u32;
            }
            units.push(unit);
        }
    }
}

fn joined(a: Option<Unit>, b: Option<Unit>) -> Option<Unit> {
    match (a, b) {
        (Some(mut a), Some(b)) => {
            a.append(b);
            Some(a)
        }
        (a, b) => a.or(b),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verdict::simulated::{Campaign, World};
    use crate::verdict::{Answer, Blocked};

    fn campaign(name: &str, seed: u64, world: World, blocks: usize) -> Record {
        let mut record = Campaign::new(world, 0.01, seed).fixed(blocks, 6);
        record.header.host.insert("cpu_model".into(), name.into());
        record.header.seed = format!("{seed:#x}");
        record
    }

    fn files(record: &mut Record, of: &str) {
        let name = |s: &crate::measure::record::Sample| format!("{}-{}/{:?}", s.group.name(), s.number, s.cell);
        record.header.hashes = record.samples.iter().map(|s| (name(s), format!("{of}{}", name(s)))).collect();
    }

    /// Together they know it better than each; the slower machine is no spread of layouts.
    #[test]
    fn machines_that_agree_pool_their_blocks() {
        let world = || World { link_luck: 0.003, ..World::new(0.05, 0.0) };
        let a = campaign("Xeon", 1, world(), 6);
        let mut b = campaign("EPYC", 2, world(), 6);
        b.samples.iter_mut().for_each(|s| s.value = s.value.map(|v| 3.0 * v));
        let [one, two] = [verdict(&a), verdict(&b)];
        let [v] = &verdicts(&[a.clone(), b.clone()]).unwrap()[..] else { panic!("they agree") };
        assert_eq!((v.blocks, v.layouts, v.runs), (12, 24, one.runs + two.runs));
        let width = |v: &Verdict| v.code_effect.high.unwrap() - v.code_effect.low.unwrap();
        assert!(width(v) < width(&one).min(width(&two)), "{:?}", v.reasons);
        assert_eq!(v.verdict, Answer::Code, "{:?}", v.reasons);
        assert_eq!(v.machines.iter().map(|m| m.name.as_str()).collect::<Vec<_>>(), ["Xeon", "EPYC"]);
        let sd = |v: &Verdict| v.layout_sd_percent.base.unwrap();
        assert!(sd(v) < 2.0 * sd(&one).max(sd(&two)), "{} {} {}", sd(v), sd(&one), sd(&two));
        assert!(v.layout_spread.base.unwrap().modes.is_none());
        // Every run is used or counted, and the order of the files is no matter.
        let used: usize = v.cells.len();
        assert_eq!(used, 12 * 4 + 24 * 2 + 2);
        assert_eq!(serde_json::to_string(&verdicts(&[b, a]).unwrap()[0]).unwrap(), serde_json::to_string(v).unwrap());
    }

    /// The same seed and compiler make the same files: twelve runs of six blocks are not twelve blocks.
    #[test]
    fn one_file_on_two_machines_is_one_unit() {
        let [mut a, mut b] = [1, 2].map(|seed| campaign("Xeon", seed, World::new(0.1, 0.0), 6));
        files(&mut a, "same");
        files(&mut b, "same");
        let v = &verdicts(&[a.clone(), b.clone()]).unwrap()[0];
        assert_eq!((v.blocks, v.layouts, v.rounds), (6, 12, 12));
        files(&mut b, "other");
        let v = &verdicts(&[a, b]).unwrap()[0];
        assert_eq!((v.blocks, v.layouts, v.rounds), (12, 24, 6));
    }

    #[test]
    fn machines_that_differ_get_a_verdict_each() {
        let all = [
            campaign("Xeon", 1, World::new(0.0, 0.5), 8),
            campaign("Arm", 2, World::new(0.3, 0.0), 8),
            campaign("EPYC", 3, World::new(0.0, 0.5), 8),
        ];
        let found = verdicts(&all).unwrap();
        let [x86, arm] = &found[..] else { panic!("{} verdicts", found.len()) };
        assert_eq!((x86.verdict, x86.machines.len()), (Answer::Alignment, 2));
        assert_eq!((arm.verdict, arm.machines.len()), (Answer::Code, 1));
        let said = arm.reasons.last().unwrap();
        assert!(said.contains("the machines differ") && said.contains("on Arm the patch is 3"), "{said}");
    }

    /// A machine that takes two equal links for different ones must not spoil the others.
    #[test]
    fn a_machine_at_fault_stands_alone() {
        let bad = campaign("bad", 1, World { twin: 0.4, ..World::new(0.0, 0.5) }, 8);
        let found = verdicts(&[bad, campaign("good", 2, World::new(0.0, 0.5), 8)]).unwrap();
        let answers: Vec<_> = found.iter().map(|v| (v.verdict, v.blocked_by)).collect();
        assert_eq!(answers, [(Answer::Inconclusive, Some(Blocked::AA)), (Answer::Alignment, None)]);
    }

    #[test]
    fn records_that_do_not_belong_together_are_refused() {
        let a = campaign("Xeon", 1, World::new(0.0, 0.5), 4);
        let says = |change: fn(&mut Record), what: &str| {
            let mut b = campaign("EPYC", 2, World::new(0.0, 0.5), 4);
            change(&mut b);
            let error = verdicts(&[a.clone(), b]).unwrap_err().to_string();
            assert!(error.contains(what) && error.lines().count() == 1, "{error}");
        };
        says(|b| b.header.case = "fixtures/other".into(), "differ in the case: fixtures/simulated and fixtures/other");
        says(|b| b.header.metric.name = "wall".into(), "differ in the metric");
        says(|b| b.header.margin_percent = 2.0, "differ in the margin: 1 % and 2 %");
        says(|b| b.header.quick = true, "--quick");
        let error = verdicts(&[a.clone(), a.clone()]).unwrap_err().to_string();
        assert!(error.contains("are one campaign"), "{error}");
    }
}
