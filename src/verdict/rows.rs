//! A row is one metric at one worker count, with numbers and an answer as if it were measured alone; the rows that decide
//! make the whole verdict.
//!
//! Which rows decide is known before data: those of the first metric, or of them the one that was named. Where several do,
//! each gets its share of alpha, so that all together err as often as one. What any of them shows counts: an effect that
//! only appears with more workers is an effect, and nothing at one worker never speaks for the others.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::decide::{Answer, Blocked, Decision};
use super::estimates::Estimates;
use super::looks;
use super::runs::reason;
use super::value::{Effect, Verdict, nine_digits};
use crate::error::Exit;
use crate::measure::record::{Better, Header, Metric, Record, Sample};

/// Which row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    /// 0 is the metric that decides; others count the header's `also` from 1.
    metric: usize,
    pub workers: Option<u32>,
}

impl Key {
    /// All rows of a record: the metric that decides at every worker count, then the others.
    #[must_use]
    pub fn all(header: &Header) -> Vec<Key> {
        let counts = header.counts();
        (0..=header.also.len()).flat_map(|metric| counts.iter().map(move |&workers| Key { metric, workers })).collect()
    }

    /// The metric that decides, at the first worker count.
    #[must_use]
    pub fn first(header: &Header) -> Key {
        Key { metric: 0, workers: header.workers.first().copied() }
    }

    /// The rows that decide; at least one.
    #[must_use]
    pub fn deciding(header: &Header) -> Vec<Key> {
        Key::all(header).into_iter().filter(|key| key.decides(header)).collect()
    }

    #[must_use]
    pub fn metric(self, header: &Header) -> &Metric {
        self.metric.checked_sub(1).and_then(|at| header.also.get(at)).unwrap_or(&header.metric)
    }

    pub(super) fn value(self, sample: &Sample) -> Option<f64> {
        self.metric.checked_sub(1).map_or(sample.value, |at| sample.also.get(at).copied().flatten())
    }

    fn decides(self, header: &Header) -> bool {
        self.metric == 0 && (header.decides.is_none() || header.decides == self.workers)
    }

    /// How many rows share the level with this one. What decides nothing stands for itself.
    pub(super) fn sharing(self, header: &Header) -> usize {
        if self.decides(header) { Key::deciding(header).len() } else { 1 }
    }
}

/// The single runs of one version: trimmed mean, and SD by the MAD, in the metric's unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Typical {
    pub mean: Option<f64>,
    pub sd: Option<f64>,
}

/// Base and patched side by side; `ratio` is patched to base within rounds, in the metric's own unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Pair {
    pub base: Typical,
    pub patched: Typical,
    pub ratio: Option<f64>,
}

/// A verdict for one metric and one row of a sweep.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    pub metric: String,
    pub workers: Option<u32>,
    /// Named before data as one that decides.
    pub decides: bool,
    pub verdict: Answer,
    pub headline: Effect,
    pub code_effect: Effect,
    pub layout_luck: Effect,
    pub blocked_by: Option<Blocked>,
    pub code_over_layouts: Effect,
    pub luck_or_interaction: Option<Effect>,
    /// What the intervals of this row hold the truth in, in percent of campaigns.
    pub interval_percent: f64,
    pub unit: String,
    pub better: Better,
    /// The as-built pair.
    #[serde(flatten)]
    pub as_built: Pair,
    pub aligned: Option<Pair>,
}

impl Row {
    pub(super) fn of(header: &Header, key: Key, e: &Estimates, decision: Decision) -> Row {
        let metric = key.metric(header);
        let sign = if metric.better == Better::Lower { 1.0 } else { -1.0 };
        let pair = |[base, patched]: [(f64, f64); 2], difference: f64| Pair {
            base: typical(base, sign),
            patched: typical(patched, sign),
            ratio: nine_digits((sign * difference).exp()),
        };
        Row {
            metric: metric.name.clone(),
            workers: key.workers,
            decides: key.decides(header),
            verdict: decision.answer,
            headline: Effect::of(e.delta),
            code_effect: Effect::of(e.gamma),
            layout_luck: Effect::of(e.lambda),
            blocked_by: decision.blocked,
            code_over_layouts: Effect::of(e.kappa),
            luck_or_interaction: e.cycle.map(|_| Effect::of(e.luck)),
            interval_percent: interval_percent(key.sharing(header)),
            unit: metric.unit.clone(),
            better: metric.better,
            as_built: e.as_built_runs.map_or_else(Pair::default, |runs| pair(runs, e.delta.centre)),
            aligned: e.aligned_runs.zip(e.aligned).map(|(runs, aligned)| pair(runs, aligned.centre)),
        }
    }

    /// What the patch costs here, and what the move does, as far as the row blames them.
    #[must_use]
    pub fn code(&self) -> &Effect {
        if self.luck_or_interaction.is_some() { &self.code_over_layouts } else { &self.code_effect }
    }

    #[must_use]
    pub fn luck(&self) -> &Effect {
        self.luck_or_interaction.as_ref().unwrap_or(&self.layout_luck)
    }
}

/// `97.5`, or more where several rows share the level.
pub(super) fn interval_percent(rows: usize) -> f64 {
    (1e6 * (1.0 - looks::LEVEL / rows as f64)).round() / 1e4
}

fn typical((centre, sd): (f64, f64), sign: f64) -> Typical {
    let mean = (sign * centre).exp();
    Typical { mean: nine_digits(mean), sd: nine_digits(mean * sd.exp_m1()) }
}

/// The verdict of all rows: the numbers are those of the row that settles it, or that stands in the way.
pub(super) fn whole(record: &Record, first: (Key, Verdict), others: Vec<(Key, Verdict)>) -> Verdict {
    let header = &record.header;
    let parts: Vec<&(Key, Verdict)> = std::iter::once(&first).chain(&others).collect();
    let deciding: Vec<&Verdict> = parts.iter().filter(|(key, _)| key.decides(header)).map(|(_, v)| v).collect();
    let (answer, lead) = combined(&deciding);
    let mut whole = lead.unwrap_or(&first.1).clone();
    whole.rows = parts.iter().flat_map(|(_, v)| v.rows.iter().cloned()).collect();
    let same = whole.verdict == answer;
    (whole.masked, whole.only_together) = (same && whole.masked, same && whole.only_together);
    whole.verdict = answer;
    if answer == Answer::NotReproduced && parts.iter().any(|(key, v)| key.metric == 0 && accuses(v)) {
        (whole.verdict, whole.blocked_by) = (Answer::Inconclusive, Some(Blocked::Row));
    }
    // All metrics are read from the same runs.
    (whole.runs, whole.skipped) = (record.samples.len() as u64, BTreeMap::new());
    let counted = parts.iter().filter(|(key, _)| key.metric == 0);
    let mut foreign = whole.runs;
    for (_, part) in counted {
        foreign = foreign.saturating_sub(part.runs);
        part.skipped.iter().for_each(|(why, n)| *whole.skipped.entry(why.clone()).or_default() += n);
    }
    if foreign > 0 {
        *whole.skipped.entry(reason::FOREIGN.to_owned()).or_default() += foreign;
    }
    whole
}

/// Code, landing, or both.
fn accuses(v: &Verdict) -> bool {
    matches!(v.verdict, Answer::Alignment | Answer::Code | Answer::Both)
}

/// What the rows that decide say together, and the row that says it.
///
/// Slower code in one row is slower code, whatever is still open in others. All else, and faster code too, waits for every
/// row: an open one may hide what is worse.
fn combined<'v>(rows: &[&'v Verdict]) -> (Answer, Option<&'v Verdict>) {
    let largest = |of: &dyn Fn(&Verdict) -> Option<f64>| {
        let sized = rows.iter().filter_map(|v| Some((of(v)?, *v)));
        // The first of equals.
        sized.rev().max_by(|(a, _), (b, _)| a.total_cmp(b)).map(|(_, v)| v)
    };
    let size = |percent: Option<f64>| percent.map_or(0.0, f64::abs);
    let blocked = |by: Blocked| rows.iter().copied().find(|v| v.blocked_by == Some(by));
    if let Some(at_fault) = blocked(Blocked::AA) {
        return (Answer::Inconclusive, Some(at_fault));
    }
    let code = rows.iter().any(|v| matches!(v.verdict, Answer::Code | Answer::Both));
    let luck = rows.iter().any(|v| matches!(v.verdict, Answer::Alignment | Answer::Both));
    let found = if luck { Answer::Both } else { Answer::Code };
    if let Some(slower) = largest(&|v| (v.exit() == Exit::Gate).then(|| size(v.code().percent))) {
        return (found, Some(slower));
    }
    let stopped = [Blocked::Placement, Blocked::Unexplained, Blocked::Unmatched, Blocked::Precision, Blocked::Budget];
    let open = stopped.into_iter().find_map(blocked);
    if let Some(open) = open.or_else(|| rows.iter().copied().find(|v| v.verdict == Answer::Inconclusive)) {
        return (Answer::Inconclusive, Some(open));
    }
    match (code, luck) {
        (true, _) => {
            let exact = largest(&|v| (v.verdict == found).then(|| size(v.code().percent)));
            let any = || largest(&|v| matches!(v.verdict, Answer::Code | Answer::Both).then(|| size(v.code().percent)));
            (found, exact.or_else(any))
        }
        (false, true) => {
            (Answer::Alignment, largest(&|v| (v.verdict == Answer::Alignment).then(|| size(v.luck().percent))))
        }
        (false, false) => (Answer::NotReproduced, largest(&|v| Some(size(v.headline.percent)))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::record::{Cell, Group};
    use crate::verdict::simulated::{World, sweep};
    use crate::verdict::{by_workers, verdict, verdicts};

    fn swept(rows: &[(u32, World)]) -> Record {
        sweep(rows, 0.002, 1, (12, 24))
    }

    fn nothing() -> World {
        World::new(0.0, 0.0)
    }

    /// Each list of worlds, by worker count from 1 on, with the answer, the row that leads, and the exit code.
    #[test]
    fn the_rows_make_the_whole() {
        let luck = || World::new(0.0, 0.3);
        let (slower, faster) = (|| World::new(0.2, 0.0), || World::new(-0.2, 0.0));
        let fault = World { twin: 0.3, ..slower() };
        let leak = || World { over: vec![(1.0, 0.0)], ..World::new(0.3, 0.0) };
        let cases = [
            (vec![nothing(), nothing()], Answer::NotReproduced, None, None, Exit::Done),
            (vec![nothing(), slower()], Answer::Code, None, Some(2), Exit::Gate),
            (vec![slower(), nothing()], Answer::Code, None, Some(1), Exit::Gate),
            (vec![nothing(), luck(), World::new(0.0, 0.5)], Answer::Alignment, None, Some(3), Exit::Done),
            (vec![nothing(), faster()], Answer::Code, None, Some(2), Exit::Done),
            // Faster by more than it is slower elsewhere: slower all the same.
            (vec![World::new(0.05, 0.0), faster()], Answer::Code, None, Some(1), Exit::Gate),
            (vec![slower(), luck()], Answer::Both, None, Some(1), Exit::Gate),
            (vec![nothing(), World::new(0.2, 0.3)], Answer::Both, None, Some(2), Exit::Gate),
            // What is open hides nothing that was found slower, and may hide what is worse than faster code or luck.
            (vec![leak(), slower()], Answer::Code, None, Some(2), Exit::Gate),
            (vec![leak(), faster()], Answer::Inconclusive, Some(Blocked::Placement), Some(1), Exit::Inconclusive),
            (vec![luck(), leak()], Answer::Inconclusive, Some(Blocked::Placement), Some(2), Exit::Inconclusive),
            (vec![slower(), fault], Answer::Inconclusive, Some(Blocked::AA), Some(2), Exit::Inconclusive),
        ];
        for (worlds, answer, blocked, lead, exit) in cases {
            let rows: Vec<(u32, World)> = (1..).zip(worlds).collect();
            let record = swept(&rows);
            let v = verdict(&record);
            assert_eq!((v.verdict, v.blocked_by, v.exit()), (answer, blocked, exit), "{rows:?}: {:?}", v.reasons);
            assert!(lead.is_none_or(|n| v.workers == Some(n)), "{rows:?}: {:?}", v.workers);
            assert_eq!(v.rows.len(), rows.len());
            assert!(v.settled());
            assert_eq!(v.runs, record.samples.len() as u64);
            let json = serde_json::to_string(&v).unwrap();
            assert_eq!(serde_json::from_str::<Verdict>(&json).unwrap(), v);
        }
    }

    #[test]
    fn each_row_has_its_numbers_at_its_share_of_the_level() {
        let world = || World { aligned: Some(0.1), ..World::new(0.2, 0.1) };
        let v = verdict(&swept(&[(1, nothing()), (8, world())]));
        let [one, eight] = &v.rows[..] else { panic!() };
        assert_eq!((one.verdict, one.aligned, one.interval_percent), (Answer::NotReproduced, None, 98.75));
        let near = |x: Option<f64>, y: f64| (x.unwrap() / y - 1.0).abs() < 0.01;
        assert!(near(one.as_built.ratio, 1.0) && near(eight.as_built.ratio, 0.3f64.exp()));
        assert!(near(eight.as_built.base.mean, 10.0) && eight.as_built.base.sd.unwrap() < 1.0);
        assert!(near(eight.aligned.unwrap().ratio, 0.1f64.exp()));
        assert_eq!((v.interval_percent, v.code_effect), (98.75, eight.code_effect));
        assert_eq!(
            by_workers(&v).unwrap(),
            format!("nothing at 1 worker; {} (both) at 8", crate::verdict::plain(eight.headline.percent, &v.metric))
        );
        // Alone it needs no share.
        let mut alone = swept(&[(8, world())]);
        let whole = verdict(&alone);
        assert_eq!((whole.interval_percent, whole.rows.len()), (97.5, 1));
        let width = |v: &Verdict| v.code_effect.high.unwrap() - v.code_effect.low.unwrap();
        assert!(width(&v) > 1.1 * width(&whole));
        // A row that was named before data needs none either.
        alone = swept(&[(1, nothing()), (8, world())]);
        alone.header.decides = Some(8);
        let named = verdict(&alone);
        assert_eq!((named.interval_percent, named.workers, named.rows[0].decides), (97.5, Some(8), false));
    }

    /// Nothing at one worker, and that row alone was to decide: the other row forbids to say so.
    #[test]
    fn a_named_row_with_nothing_never_speaks_for_another_with_something() {
        let mut record = swept(&[(1, nothing()), (2, World::new(0.0, 0.2))]);
        record.header.decides = Some(1);
        let v = verdict(&record);
        assert_eq!((v.verdict, v.blocked_by, v.exit()), (Answer::Inconclusive, Some(Blocked::Row), Exit::Inconclusive));
        assert!(v.settled() && v.reasons[0].contains("another one does: nothing at 1 worker; 22."));
        record.header.decides = Some(2);
        assert_eq!(verdict(&record).verdict, Answer::Alignment);
    }

    /// A campaign goes on until the last of its rows is decided.
    #[test]
    fn an_open_row_keeps_the_campaign_going() {
        let mut record = swept(&[(1, nothing()), (2, World::new(0.3, 0.0))]);
        assert!(verdict(&record).settled());
        let mut few = sweep(&[(2, World::new(0.0, 0.0))], 0.02, 9, (12, 6)).samples;
        record.samples.retain(|s| s.workers == Some(2));
        few.iter_mut().for_each(|s| s.workers = Some(1));
        record.samples.extend(few);
        let v = verdict(&record);
        assert_eq!((v.verdict, v.rows[0].blocked_by, v.settled()), (Answer::Code, Some(Blocked::Budget), false));
        assert_eq!(v.exit(), Exit::Gate, "what one row shows is there, whatever the other one will say");
    }

    #[test]
    fn one_worker_alone_is_a_limit() {
        let mut record = swept(&[(1, nothing())]);
        let v = verdict(&record);
        assert_eq!(v.verdict, Answer::NotReproduced);
        assert!(v.reasons.last().unwrap().starts_with("limit: only 1 worker was run"), "{:?}", v.reasons);
        assert!(v.reasons[0].starts_with("with 1 worker, the patch is"), "{}", v.reasons[0]);
        record.header.workers.clear();
        let busy = |record: &mut Record, share: f64| {
            record.samples.iter_mut().for_each(|s| (s.workers, s.user) = (None, share * s.wall));
            verdict(record).reasons.last().unwrap().starts_with("limit: the program can start threads")
        };
        assert!(!busy(&mut record, 1.0), "nobody says that it has threads");
        record.header.threads = Some(true);
        assert!(busy(&mut record, 1.0) && !busy(&mut record, 1.9));
    }

    /// Other metrics have rows of their own and decide nothing.
    #[test]
    fn metrics_beside_the_first_are_shown() {
        let mut record = swept(&[(1, nothing()), (2, World::new(0.3, 0.0))]);
        let rate = Metric { name: "stdout:rate (.*)".into(), unit: String::new(), better: Better::Higher };
        record.header.also = vec![rate, Metric { name: "rss".into(), unit: "KiB".into(), better: Better::Lower }];
        for s in &mut record.samples {
            // The second metric is half as much work as the first for all that it takes; the third is only there at times.
            let patched = s.group != Group::Twin && matches!(s.cell, Cell::PB | Cell::P0);
            let rate = s.value.map(|v| if patched { 2.0 } else { 1.0 } / v);
            s.also = vec![rate, (s.workers == Some(2)).then_some(100.0)];
        }
        let v = verdict(&record);
        let said: Vec<_> = v.rows.iter().map(|r| (r.workers.unwrap(), r.decides, r.verdict)).collect();
        let (none, code, open) = (Answer::NotReproduced, Answer::Code, Answer::Inconclusive);
        let wanted =
            [(1, true, none), (2, true, code), (1, false, code), (2, false, code), (1, false, open), (2, false, none)];
        assert_eq!(said, wanted);
        assert!((v.rows[2].as_built.ratio.unwrap() - 2.0).abs() < 0.05 && v.rows[2].code().percent.unwrap() < -45.0);
        assert_eq!((v.metric.name.as_str(), v.workers, v.exit()), ("stdout:ns_per_op ([0-9.]+)", Some(2), Exit::Gate));
        assert_eq!(by_workers(&v).unwrap().matches(" at ").count(), 2);
        // Each run is counted once, however many metrics are read from it.
        assert_eq!(v.runs, record.samples.len() as u64);
        assert!(v.skipped.values().sum::<u64>() <= v.runs, "{:?}", v.skipped);
    }

    #[test]
    fn runs_with_a_count_that_is_not_in_the_plan_are_counted() {
        let mut record = swept(&[(1, nothing()), (2, nothing())]);
        let before = record.samples.len();
        record.samples.extend(record.samples.clone().into_iter().take(5).map(|s| Sample { workers: Some(7), ..s }));
        let v = verdict(&record);
        assert_eq!((v.runs, v.skipped.get(reason::FOREIGN)), (before as u64 + 5, Some(&5)));
    }

    #[test]
    fn sweeps_of_several_machines_pool_row_by_row() {
        let machine = |name: &str, seed, more| {
            let mut record = sweep(&[(1, nothing()), (4, World::new(more, 0.0))], 0.01, seed, (6, 6));
            record.header.host.insert("cpu_model".into(), name.into());
            record.header.seed = format!("{seed:#x}");
            record
        };
        let [a, b, other] = [machine("Xeon", 1, 0.3), machine("EPYC", 2, 0.3), machine("Arm", 3, 0.0)];
        let found = verdicts(&[a.clone(), b.clone()]).unwrap();
        let [v] = &found[..] else { panic!("they agree") };
        assert_eq!(
            (v.verdict, v.workers, v.blocks, v.machines.len()),
            (Answer::Code, Some(4), 12, 2),
            "{:?}",
            v.reasons
        );
        assert_eq!(v.runs, (a.samples.len() + b.samples.len()) as u64);
        // Alike with one worker, and not with four.
        assert_eq!(verdicts(&[a.clone(), other]).unwrap().len(), 2);
        let mut wider = b.clone();
        wider.header.workers = vec![1, 4, 8];
        let error = verdicts(&[a, wider]).unwrap_err().to_string();
        assert!(error.contains("differ in the list of worker counts: [1, 4] and [1, 4, 8]"), "{error}");
    }
}
