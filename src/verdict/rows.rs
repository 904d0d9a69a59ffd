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

/// The single runs of one version: centre (trimmed, as everywhere) and SD, in the metric's unit.
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
