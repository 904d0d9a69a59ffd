//! Estimates → the answer: the table of the code axis against the luck axis, and what stopped it when there is none.

use serde::{Deserialize, Serialize};

use super::estimates::Estimates;
use super::looks::{self, Look};
use super::robust::Interval;
use super::runs::Tried;
use crate::measure::record::Record;

/// Did the code get slower, or did its bytes merely move?
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    /// The bytes moved; the code costs what it did.
    Alignment,
    /// The code; where it lies is no matter.
    Code,
    Both,
    /// Neither, here.
    NotReproduced,
    Inconclusive,
}

/// Why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Blocked {
    /// The code effect where it stands and the one over random layouts contradict each other.
    Placement,
    /// Neither code nor landing, yet the as-built pair differs.
    Unexplained,
    /// Two links of the same base differ: the machine or this tool is at fault.
    #[serde(rename = "a/a")]
    AA,
    /// The inside of a changed object has no landing that could be matched.
    Unmatched,
    /// The row that was named as the one that decides shows nothing, another one does.
    Row,
    /// At the last look an interval is still too wide, or too little is clean.
    Precision,
    /// Ended before the last look.
    Budget,
}

impl Blocked {
    /// As a report names it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Blocked::Placement => "placement",
            Blocked::Unexplained => "unexplained",
            Blocked::AA => "a/a",
            Blocked::Unmatched => "unmatched",
            Blocked::Row => "the named row",
            Blocked::Precision => "precision",
            Blocked::Budget => "budget",
        }
    }
}

/// The interval that stands between the data and an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hindrance {
    /// Its key in `straddle.verdict/1`: `code_effect`, `layout_luck`, `code_over_layouts`, `luck_or_interaction`,
    /// `headline`.
    pub key: &'static str,
    /// How many blocks would probably settle it; `None` when its centre lies on the margin, where no number does.
    pub blocks: Option<u32>,
}

/// An answer and what belongs to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    pub answer: Answer,
    /// `both`, with opposite signs.
    pub masked: bool,
    /// `both`, and neither the code alone nor the move alone costs anything.
    pub only_together: bool,
    pub blocked: Option<Blocked>,
    pub hindrance: Option<Hindrance>,
}

impl Decision {
    pub(super) fn answer(answer: Answer) -> Decision {
        Decision { answer, masked: false, only_together: false, blocked: None, hindrance: None }
    }

    fn stop(blocked: Blocked) -> Decision {
        Decision { blocked: Some(blocked), ..Decision::answer(Answer::Inconclusive) }
    }
}

/// Where an axis stands. `Open`: neither can be said yet.
#[derive(Clone, Copy, PartialEq)]
enum Axis {
    Out,
    In,
    Open,
}

/// Applies the rule at the look that the estimates were made for. `max_blocks`: no look past so many. `tried`: what
/// the campaign has run, so that a look missed for want of clean runs is not taken for one that is still to come. `rigid`:
/// the inside of some data moved, and no layout can tell that from the code.
///
/// There is no extra guard on the move alone: lambda *is* the move, and such a guard blocked 21–33 % of true `both` at
/// 10 % noise and every "only together".
#[must_use]
pub fn decide(e: &Estimates, max_blocks: usize, tried: Tried, rigid: bool) -> Decision {
    let to_come = match e.quick {
        true => tried.rounds < looks::QUICK_ROUNDS,
        false => is_a_look_to_come(e.look, max_blocks, tried),
    };
    let open = Decision::stop(if to_come { Blocked::Budget } else { Blocked::Precision });
    if !e.gamma.known() {
        let blocks = if e.quick { 1 } else { looks::FIRST.blocks as u32 };
        return Decision { hindrance: Some(Hindrance { key: "code_effect", blocks: Some(blocks) }), ..open };
    }
    let Some(twin) = e.twin.filter(|_| e.delta.known()) else {
        // Without the as-built pair and the twin nobody knows what was reproduced, and by what machine.
        return Decision { hindrance: Some(Hindrance { key: "headline", blocks: None }), ..open };
    };
    // Twins are the same bytes: they have no luck that differs.
    if twin.out(e.margin) {
        return Decision::stop(Blocked::AA);
    }
    if contradiction(e) {
        return Decision::stop(Blocked::Placement);
    }
    match (code_axis(e), axis(e.luck, e)) {
        // The inside of a changed object lies elsewhere in every cell of patched, and its alignment leaves it too few
        // phases for the layouts to average that: gamma and kappa would both take it for the code.
        (Axis::Out, _) if rigid => Decision::stop(Blocked::Unmatched),
        // What is not the code may be interaction: the luck needs the 2×2 as its witness.
        (Axis::Out, Axis::Out) if e.cycle.is_some() => match axis(e.lambda, e) {
            Axis::Out if e.lambda.centre * e.luck.centre > 0.0 => {
                Decision { masked: e.kappa.centre * e.luck.centre < 0.0, ..Decision::answer(Answer::Both) }
            }
            Axis::Open => Decision { hindrance: hindrance(e), ..open },
            _ => Decision::stop(Blocked::Unmatched),
        },
        (Axis::Out, Axis::Out) => Decision {
            masked: (e.gamma.centre > 0.0) != (e.lambda.centre > 0.0),
            only_together: e.iota.out(e.beyond)
                && !e.transplant.code_on_base.out(e.beyond)
                && !e.transplant.move_with_base.out(e.beyond),
            ..Decision::answer(Answer::Both)
        },
        (Axis::Out, Axis::In) => Decision::answer(Answer::Code),
        (Axis::In, Axis::Out) => Decision::answer(Answer::Alignment),
        (Axis::In, Axis::In) if e.delta.out(e.beyond) => Decision::stop(Blocked::Unexplained),
        (Axis::In, Axis::In) => Decision::answer(Answer::NotReproduced),
        _ if only_as_built(e) => Decision::stop(Blocked::Unexplained),
        _ => Decision { hindrance: hindrance(e), ..open },
    }
}

/// Accusing and acquitting the code need both witnesses. By gamma alone, 3 % of luck that a transplant fails to carry
/// is blamed on the code every time; by this rule never, and it costs no run where both agree. `--quick` has but one.
fn code_axis(e: &Estimates) -> Axis {
    match (axis(e.gamma, e), axis(e.kappa, e)) {
        (gamma, _) if e.quick => gamma,
        // Gamma holds the luck of the inside, which two landings cannot average out.
        (_, kappa) if e.cycle.is_some() => kappa,
        (Axis::Out, Axis::Out) => Axis::Out,
        (Axis::In, Axis::In) => Axis::In,
        _ => Axis::Open,
    }
}

/// Whether the as-built block alone keeps the axes open. What only its own links have moves gamma and lambda by a K-th
/// of it and widens both: from about 25 % on, no number of blocks would bring them within 1 %. The other blocks say
/// that neither patch nor landing costs anything, so this is the same finding, and again no claim.
fn only_as_built(e: &Estimates) -> bool {
    let (gamma, lambda) = e.without_as_built;
    let none = |i: Interval| i.within(e.margin, e.margin);
    e.cycle.is_none() && none(gamma) && none(lambda) && none(e.kappa) && e.delta.out(e.margin)
}

fn axis(interval: Interval, e: &Estimates) -> Axis {
    if interval.out(e.beyond) {
        Axis::Out
    } else if interval.within(e.beyond, e.tolerance) {
        Axis::In
    } else {
        Axis::Open
    }
}

/// OUT beyond m and IN within M can both be true of one value: only disjoint intervals, or two signs, contradict.
fn contradiction(e: &Estimates) -> bool {
    let (gamma, kappa) = (axis(e.gamma, e), axis(e.kappa, e));
    match (gamma, kappa) {
        _ if e.cycle.is_some() => false,
        (Axis::Out, Axis::Out) => (e.gamma.centre > 0.0) != (e.kappa.centre > 0.0),
        (Axis::Out, Axis::In) | (Axis::In, Axis::Out) => e.gamma.disjoint(e.kappa),
        _ => false,
    }
}

fn is_a_look_to_come(look: Option<Look>, max_blocks: usize, tried: Tried) -> bool {
    let last = looks::LOOKS.into_iter().rev().find(|l| l.blocks <= max_blocks);
    let all_tried = last.is_none_or(|l| tried.blocks >= l.blocks && tried.layouts >= l.layouts);
    looks::after(look, max_blocks).is_some() && !all_tried
}

/// The open interval that needs the most blocks. A code axis whose two witnesses are each decided, but not alike, waits
/// for the layouts: their interval is the one that blocks can still tell apart.
fn hindrance(e: &Estimates) -> Option<Hindrance> {
    let open = |i: Interval| axis(i, e) == Axis::Open;
    let split = code_axis(e) == Axis::Open && !open(e.gamma) && !open(e.kappa);
    let cycles = e.cycle.is_some();
    let split = split && !cycles;
    let all = [
        ("code_effect", e.gamma, !cycles && open(e.gamma)),
        // Beside luck*, lambda is only asked when all else is decided.
        ("layout_luck", e.lambda, open(e.lambda) && (!cycles || !open(e.luck) && !open(e.kappa))),
        ("luck_or_interaction", e.luck, cycles && open(e.luck)),
        ("code_over_layouts", e.kappa, !e.quick && (open(e.kappa) || split)),
        ("headline", e.delta, !e.delta.known()),
    ];
    let found = all.into_iter().filter(|(.., open)| *open).map(|(key, interval, _)| {
        let layouts = key == "code_over_layouts" && !cycles;
        let apart = (e.gamma.centre - e.kappa.centre).abs() - e.gamma.half;
        let target = if split { 0.6 * apart.max(0.0) } else { target(interval, e) };
        // More rounds of the same links would settle nothing.
        Hindrance { key, blocks: e.look.and_then(|look| blocks_needed(interval, (&e.looks, look), layouts, target)) }
    });
    found.max_by_key(|h| h.blocks.unwrap_or(u32::MAX))
}

/// The half-width that would decide: 0.6 M (it does in 90 % of cases), or 0.6 of the way from the margin to a centre
/// that lies further out. An interval that is as narrow already sits on an edge: 0.6 of the way to the nearer claim.
fn target(interval: Interval, e: &Estimates) -> f64 {
    let centre = interval.centre.abs();
    let (out, within) = (centre - e.margin, e.tolerance - centre);
    if interval.half > 0.6 * e.tolerance { 0.6 * out.max(e.tolerance) } else { 0.6 * out.max(within) }
}

/// The first look at which t · s / sqrt(n) reaches the target; past the table its last t is kept.
fn blocks_needed(interval: Interval, (looks, look): (&[Look], Look), layouts: bool, target: f64) -> Option<u32> {
    let of = |l: Look| if layouts { (l.layouts as f64, l.t_layouts) } else { (l.blocks as f64, l.t_blocks) };
    let (n, t) = of(look);
    let sd = interval.half * n.sqrt() / t;
    if !sd.is_finite() || target < 1e-4 {
        return None;
    }
    let reaches = |l: &Look| of(*l).1 * sd / of(*l).0.sqrt() <= target;
    let later = looks.iter().copied().filter(|l| l.blocks > look.blocks).find(reaches);
    let (last_n, last_t) = of(looks.last().copied().unwrap_or(looks::LAST));
    let scale = looks::LAST.blocks as f64 / last_n;
    let past = (last_t * sd / target).powi(2) * scale;
    later.map(|l| l.blocks as u32).or_else(|| (past < 1e6).then_some(past.ceil() as u32))
}

/// m in ln units.
pub(super) fn margin(record: &Record) -> f64 {
    (record.header.margin_percent / 100.0).ln_1p()
}
