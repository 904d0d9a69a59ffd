//! The value `straddle.verdict/1`: what a verdict says, in percent and in the metric's own unit.
//!
//! Percentages are 100·(exp(x) − 1) of cost per unit of work; plus means that patched is worse. They are rounded to
//! 1e-4 percent and values to nine digits, so that two machines' `ln` and `exp` cannot make two texts of one record.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::decide::{Answer, Blocked, Decision};
use super::estimates::Estimates;
use super::robust::Interval;
use super::rows::{self, Key, Row};
use super::runs::Runs;
use super::spread::{Modes, Spread};
use crate::diff::Suspect;
use crate::error::Exit;
use crate::measure::record::{Better, Matched, Metric, Pilot, Record};

/// The schema that the value names.
pub const SCHEMA: &str = "straddle.verdict/1";

/// A change of cost in percent with its interval (97.5 %, or [`Verdict::interval_percent`]); plus means that patched is worse, `null` is unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Effect {
    pub percent: Option<f64>,
    pub low: Option<f64>,
    pub high: Option<f64>,
}

impl Effect {
    pub(super) fn of(interval: Interval) -> Effect {
        let known = interval.known();
        Effect {
            percent: percent(interval.centre),
            low: percent(interval.low()).filter(|_| known),
            high: percent(interval.high()).filter(|_| known),
        }
    }

    /// Whether even the cautious end of the interval is beyond ±`percent`.
    #[must_use]
    pub fn beyond(&self, percent: f64) -> bool {
        self.low.is_some_and(|low| low > percent) || self.high.is_some_and(|high| high < -percent)
    }
}

/// The four contrasts of the 2×2.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Contrasts {
    pub code_on_base_landing: Effect,
    pub code_on_patched_landing: Effect,
    pub move_with_base_code: Effect,
    pub move_with_patched_code: Effect,
}

/// What one cell of a block, layout or arm costs, in the metric's unit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CellValue {
    /// `block`, `layout` or `arm`.
    pub kind: String,
    pub number: u32,
    /// `b0 pB bP p0`; of an arm `aligned b0`, `aligned p0`, `twin b0`, `twin p0`.
    pub cell: String,
    pub value: Option<f64>,
}

/// A number for each version.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PerVersion<T> {
    pub base: T,
    pub patched: T,
}

/// How the drawn layouts of one version differ, in percent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LayoutSpread {
    pub sd_percent: Option<f64>,
    /// 95 % interval of the SD.
    pub sd_low: Option<f64>,
    pub sd_high: Option<f64>,
    /// 5th and 95th percentile against the median layout.
    pub p5_percent: Option<f64>,
    pub p95_percent: Option<f64>,
    /// Two groups of layouts: then no SD describes them, and none is given.
    pub modes: Option<TwoModes>,
}

/// `12 low / 8 high`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TwoModes {
    pub low: usize,
    pub high: usize,
    /// How much more the higher group costs.
    pub apart_percent: Option<f64>,
}

/// In how many layouts the patch is slower, or faster, by more than the margin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OverLayouts {
    pub slower_in: usize,
    pub faster_in: usize,
    pub of: usize,
    pub hodges_lehmann_percent: Option<f64>,
    /// Two groups of layouts by what the patch costs there.
    pub modes: Option<TwoModes>,
}

/// What stands between the data and an answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Needs {
    /// The key of the interval that is too wide.
    pub interval: String,
    /// How many blocks would probably settle it; `null` when its centre lies on the margin.
    pub blocks: Option<u32>,
}

/// One of several campaigns behind a verdict.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// Its processor, as far as it is known.
    pub name: String,
    pub started: String,
    pub seed: String,
    pub blocks: usize,
    pub layouts: usize,
    pub code_effect: Effect,
    pub layout_luck: Effect,
    pub host: serde_json::Map<String, serde_json::Value>,
}

/// The answer, and everything it stands on. Serialises to `straddle.verdict/1`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    pub schema: String,
    pub problems: Vec<String>,
    /// Reason → runs that are in no estimate. With the runs used they sum to `runs`.
    pub skipped: BTreeMap<String, u64>,
    pub case: String,
    pub verdict: Answer,
    /// `both` with opposite signs: the landing hides what the code costs.
    pub masked: bool,
    pub only_together: bool,
    pub blocked_by: Option<Blocked>,
    pub needs: Option<Needs>,
    pub metric: Metric,
    /// Of a sweep: the row whose numbers these are.
    #[serde(default)]
    pub workers: Option<u32>,
    /// The level of the intervals.
    #[serde(default = "of_one_row")]
    pub interval_percent: f64,
    pub headline: Effect,
    pub code_effect: Effect,
    pub layout_luck: Effect,
    pub code_over_layouts: Effect,
    pub interaction: Effect,
    pub remainder: Effect,
    /// luck / (code + luck), 0..1; `null` when their signs differ or the headline is within the margin.
    pub layout_share: Option<f64>,
    pub transplant: Contrasts,
    pub aligned: Option<Effect>,
    /// Whether the aligned pair's interval and the code effect's are disjoint: then it is said first.
    pub aligned_disagrees: bool,
    pub a_a: Option<Effect>,
    pub over_layouts: OverLayouts,
    pub cells: Vec<CellValue>,
    pub matched: Matched,
    pub blocks: usize,
    pub layouts: usize,
    /// Of a cell.
    pub rounds: u32,
    /// In the record, used or not.
    pub runs: u64,
    /// SD of one run.
    pub noise_sd_percent: Option<f64>,
    pub layout_sd_percent: PerVersion<Option<f64>>,
    pub layout_spread: PerVersion<Option<LayoutSpread>>,
    /// m and M.
    pub margin_percent: f64,
    pub tolerance_percent: Option<f64>,
    pub max_blocks: u32,
    /// Layouts of a full phase cycle: then `code_over_layouts`, over cycles, is the code alone, and `code_effect` holds the
    /// luck of an inside that no pad can match.
    #[serde(default)]
    pub cycle: Option<u32>,
    /// With cycles: what the headline has beyond the code.
    #[serde(default)]
    pub luck_or_interaction: Option<Effect>,
    /// Two landings, one link each; only effects beyond five margins count.
    #[serde(default)]
    pub quick: bool,
    pub identical: bool,
    /// What the pilot expected; `null` when the campaign did not come so far, or has none.
    #[serde(default)]
    pub forecast: Option<Pilot>,
    pub rows: Vec<Row>,
    pub suspects: Vec<Suspect>,
    /// In plain words, the weightiest first.
    pub reasons: Vec<String>,
    pub seed: String,
    pub host: serde_json::Map<String, serde_json::Value>,
    /// The campaigns of several machines whose blocks are pooled here; empty for one record.
    #[serde(default)]
    pub machines: Vec<Machine>,
}

/// The schema of [`Verdicts`].
pub const SCHEMA_OF_SEVERAL: &str = "straddle.verdicts/1";

/// A verdict for each machine that contradicts another one. Serialises to `straddle.verdicts/1`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Verdicts {
    pub schema: String,
    pub problems: Vec<String>,
    pub skipped: BTreeMap<String, u64>,
    pub verdicts: Vec<Verdict>,
}

impl Verdicts {
    #[must_use]
    pub fn new(verdicts: Vec<Verdict>) -> Verdicts {
        Verdicts { schema: SCHEMA_OF_SEVERAL.into(), problems: Vec::new(), skipped: BTreeMap::new(), verdicts }
    }

    /// 1 when the code got slower on one of them, else 3 when nothing can be said of one, else 0.
    #[must_use]
    pub fn exit(&self) -> Exit {
        let exits = || self.verdicts.iter().map(Verdict::exit);
        exits().find(|e| *e == Exit::Gate).or_else(|| exits().max()).unwrap_or(Exit::Done)
    }
}

impl Verdict {
    /// 1 when the code got slower, 3 when nothing can be said, else 0.
    #[must_use]
    pub fn exit(&self) -> Exit {
        let slower = self.code().percent.is_some_and(|p| p > 0.0);
        match self.verdict {
            Answer::Code | Answer::Both if slower => Exit::Gate,
            Answer::Inconclusive => Exit::Inconclusive,
            _ => Exit::Done,
        }
    }

    /// What the patch costs, as far as the verdict blames or clears the code.
    #[must_use]
    pub fn code(&self) -> &Effect {
        if self.cycle.is_some() { &self.code_over_layouts } else { &self.code_effect }
    }

    /// What else there is.
    #[must_use]
    pub fn luck(&self) -> &Effect {
        self.luck_or_interaction.as_ref().unwrap_or(&self.layout_luck)
    }

    /// Whether a campaign should stop here: every row that decides is decided, or no further look can change it. Ask only when a look is
    /// complete (`looks::after` says which is next): between looks the intervals are not what they claim.
    #[must_use]
    pub fn settled(&self) -> bool {
        let mut deciding = self.rows.iter().filter(|row| row.decides);
        self.blocked_by == Some(Blocked::AA) || deciding.all(|row| row.blocked_by != Some(Blocked::Budget))
    }

    /// Of one row; all but the sentences, which read the value.
    pub(super) fn of(record: &Record, key: Key, runs: Runs, e: &Estimates, decision: Decision) -> Verdict {
        let header = &record.header;
        let metric = key.metric(header).clone();
        let sign = if metric.better == Better::Lower { 1.0 } else { -1.0 };
        let spreads = (e.base_spread.map(layout_spread), e.patched_spread.map(layout_spread));
        let sd = |s: Option<LayoutSpread>| s.and_then(|s| s.sd_percent);
        Verdict {
            schema: SCHEMA.into(),
            problems: header.problems.iter().chain(&record.dropped).cloned().collect(),
            skipped: runs.skipped,
            case: header.case.clone(),
            verdict: decision.answer,
            masked: decision.masked,
            only_together: decision.only_together,
            blocked_by: decision.blocked,
            needs: decision.hindrance.map(|h| Needs { interval: h.key.into(), blocks: h.blocks }),
            metric,
            workers: key.workers,
            interval_percent: rows::interval_percent(key.sharing(header)),
            headline: Effect::of(e.delta),
            code_effect: Effect::of(e.gamma),
            layout_luck: Effect::of(e.lambda),
            code_over_layouts: Effect::of(e.kappa),
            interaction: Effect::of(e.iota),
            remainder: Effect::of(e.rho),
            layout_share: share(e),
            transplant: Contrasts {
                code_on_base_landing: Effect::of(e.transplant.code_on_base),
                code_on_patched_landing: Effect::of(e.transplant.code_on_patched),
                move_with_base_code: Effect::of(e.transplant.move_with_base),
                move_with_patched_code: Effect::of(e.transplant.move_with_patched),
            },
            aligned: e.aligned.map(Effect::of),
            aligned_disagrees: e.aligned.is_some_and(|aligned| {
                // One landing of an inside that moved says nothing of the code.
                e.cycle.is_none() && aligned.disjoint(e.gamma)
            }),
            a_a: e.twin.map(Effect::of),
            over_layouts: OverLayouts {
                slower_in: e.slower_in,
                faster_in: e.faster_in,
                of: e.differences.len(),
                hodges_lehmann_percent: e.hodges_lehmann.and_then(percent),
                modes: e.code_modes.map(two_modes),
            },
            cells: cells(e, sign),
            matched: header.matched.clone(),
            blocks: e.blocks.len(),
            layouts: e.layouts.len(),
            rounds: e.rounds,
            runs: runs.total,
            noise_sd_percent: e.noise.and_then(percent),
            layout_sd_percent: PerVersion { base: sd(spreads.0), patched: sd(spreads.1) },
            layout_spread: PerVersion { base: spreads.0, patched: spreads.1 },
            margin_percent: header.margin_percent,
            tolerance_percent: percent(e.tolerance),
            max_blocks: header.max_blocks,
            cycle: e.cycle,
            luck_or_interaction: e.cycle.map(|_| Effect::of(e.luck)),
            quick: header.quick,
            identical: header.identical,
            forecast: record.pilot(),
            rows: vec![Row::of(header, key, e, decision)],
            suspects: header.suspects.clone(),
            reasons: Vec::new(),
            seed: header.seed.clone(),
            host: header.host.clone(),
            machines: Vec::new(),
        }
    }
}

/// What a verdict of before there were sweeps says by its silence.
fn of_one_row() -> f64 {
    rows::interval_percent(1)
}

/// ln units → percent; `None` where JSON has no number for it.
fn percent(x: f64) -> Option<f64> {
    // `+ 0.0`: a rounded −0 prints as 0.
    Some((x.exp_m1() * 1e6).round() / 1e4 + 0.0).filter(|p| p.is_finite())
}

fn share(e: &Estimates) -> Option<f64> {
    let (code, luck) =
        if e.cycle.is_some() { (e.kappa.centre, e.luck.centre) } else { (e.gamma.centre, e.lambda.centre) };
    let share = (luck / (code + luck) * 1e4).round() / 1e4;
    (code * luck >= 0.0 && e.delta.out(e.margin) && share.is_finite()).then_some(share)
}

fn two_modes(modes: Modes) -> TwoModes {
    TwoModes { low: modes.low, high: modes.high, apart_percent: percent(modes.apart) }
}

fn layout_spread(spread: Spread) -> LayoutSpread {
    let one = spread.modes.is_none();
    LayoutSpread {
        sd_percent: spread.sd.and_then(percent).filter(|_| one),
        sd_low: spread.sd_interval.and_then(|(low, _)| percent(low)).filter(|_| one),
        sd_high: spread.sd_interval.and_then(|(_, high)| percent(high)).filter(|_| one),
        p5_percent: percent(spread.p5),
        p95_percent: percent(spread.p95),
        modes: spread.modes.map(two_modes),
    }
}

fn cells(e: &Estimates, sign: f64) -> Vec<CellValue> {
    let cell = |kind: &str, number: u32, cell: &str, y: f64| CellValue {
        kind: kind.into(),
        number,
        cell: cell.into(),
        value: nine_digits((sign * y).exp()),
    };
    let mut cells = Vec::new();
    for block in &e.blocks {
        cells.extend(["b0", "pB", "bP", "p0"].iter().zip(block.cells).map(|(c, y)| cell("block", block.number, c, y)));
    }
    for layout in &e.layouts {
        let two = [("b0", layout.base), ("p0", layout.patched)];
        cells.extend(two.map(|(c, y)| cell("layout", layout.number, c, y)));
    }
    let arms = [(e.aligned_cells, "aligned b0", "aligned p0"), (e.twin_cells, "twin b0", "twin p0")];
    for (values, first, second) in arms {
        let Some((base, patched)) = values else { continue };
        cells.extend([(first, base), (second, patched)].map(|(c, y)| cell("arm", 0, c, y)));
    }
    cells
}

pub(super) fn nine_digits(value: f64) -> Option<f64> {
    format!("{value:.8e}").parse().ok().filter(|v: &f64| v.is_finite())
}
