//! How many rounds the cells need: chosen once from the pilot, and topped up where rounds were lost.

use super::estimates;
use super::looks::{self, Look};
use super::robust;
use super::rows::Key;
use super::runs::{Runs, Unit};
use crate::measure::record::{Group, Pilot, Record};

/// What a campaign costs, in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cost {
    /// A run with our own work around it; of a sweep, one with each worker count.
    pub run: f64,
    /// A linked and proven variant.
    pub link: f64,
}

/// Rounds of the pilot.
pub const PILOT_ROUNDS: u32 = 6;
/// More rounds than this are more blocks, unless a link is dear.
pub const MOST_ROUNDS: u32 = 30;

/// B, the rounds of every cell: (s_w / M)², rounded up to a multiple of 6, within 6..30, and no less than the price of
/// a link in runs, so that links are at most half of the cost. Chosen once, from the pilot alone: later samples of the
/// record do not change the answer. Before the pilot is complete: 6, or the price.
#[must_use]
pub fn rounds_wanted(record: &Record, link_price_in_runs: u32) -> u32 {
    let wanted = pilots(record).map(|pilot| pilot.map_or(0.0, |(tolerance, noise)| (noise / tolerance).powi(2)));
    let wanted = wanted.fold(0.0, f64::max);
    clamped(wanted.max(f64::from(link_price_in_runs))).max(link_price_in_runs)
}

/// M and the noise in the pilot of each row that decides; `None` where too little of it is clean.
fn pilots(record: &Record) -> impl Iterator<Item = Option<(f64, f64)>> {
    let margin = super::decide::margin(record);
    Key::deciding(&record.header).into_iter().map(move |key| {
        let (total, noise) = estimates::pilot(&Runs::of(record, key), PILOT_ROUNDS as usize)?;
        Some((estimates::tolerance(margin, total), noise))
    })
}

/// What the rest will take, from the noise of the pilot: `rounds` is B, `left` what is left of the budget in seconds.
///
/// Blocks are needed up to the first look whose half-width, with 15 % in reserve, is 0.6 M: it decides in 9 cases of 10.
/// What can be decided at a look is twice its half-width.
#[must_use]
pub fn forecast(record: &Record, rounds: u32, cost: Cost, left: Option<f64>) -> Pilot {
    let unknown = Pilot {
        seconds_per_run: cost.run,
        seconds_per_link: cost.link,
        rounds,
        blocks: None,
        seconds: None,
        decidable_margin_percent: None,
        reachable: None,
        budget_seconds: left,
        budget_blocks: None,
        budget_margin_percent: None,
    };
    let Some(pilots) = pilots(record).collect::<Option<Vec<_>>>() else { return unknown };
    let half = |l: Look, noise: f64| l.t_blocks * 1.15 * noise / (l.blocks as f64 * f64::from(rounds.max(1))).sqrt();
    // All rows must be decided: the noisiest and the strictest count.
    let decidable = |l: Look| pilots.iter().map(|p| 100.0 * (2.0 * half(l, p.1)).exp_m1()).fold(0.0, f64::max);
    let within = |l: Look, share: f64| pilots.iter().all(|&(tolerance, noise)| half(l, noise) <= share * tolerance);
    let table = looks::shared(pilots.len());
    let allowed = || table.into_iter().filter(|l| l.blocks <= record.header.max_blocks as usize);
    let Some(last) = allowed().next_back() else { return unknown };
    let needed = allowed().find(|&l| within(l, 0.6));
    let has = |group: Group| record.samples.iter().any(|s| s.group == group);
    let arms = 4 + 2 * usize::from(has(Group::Twin)) + 2 * usize::from(has(Group::Aligned));
    let seconds = |until: Look| seconds(until, rounds, cost, (arms as f64, record.header.cycle));
    let in_budget = left.and_then(|left| allowed().rfind(|&l| seconds(l) <= left));
    Pilot {
        blocks: needed.map(|l| l.blocks as u32),
        seconds: Some(seconds(needed.unwrap_or(last))),
        decidable_margin_percent: Some(decidable(last)),
        reachable: Some(within(last, 0.5)),
        budget_blocks: in_budget.map(|l| l.blocks as u32),
        budget_margin_percent: in_budget.map(decidable),
        ..unknown
    }
}

/// From the end of the pilot to the end of a look: what the pilot's cells lack of B rounds, then the links and the runs of
/// each look. `arms`: the cells that run in every round.
fn seconds(until: Look, rounds: u32, cost: Cost, (arms, cycle): (f64, Option<u32>)) -> f64 {
    let cells = |l: Look| (4 * l.blocks + 2 * l.in_cycles(cycle).layouts) as f64;
    // Block 0 is one of the arms.
    let first = cells(looks::FIRST) - 4.0 + arms;
    let mut seconds = f64::from(rounds.saturating_sub(PILOT_ROUNDS)) * first * cost.run;
    for (last, next) in looks::LOOKS.into_iter().zip(looks::LOOKS.into_iter().skip(1)) {
        if next.blocks <= until.blocks {
            let more = cells(next) - cells(last);
            seconds += more * cost.link + f64::from(rounds) * (more + arms) * cost.run;
        }
    }
    seconds
}

/// Clean rounds that a block or a layout should have and has not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lacking {
    pub group: Group,
    pub number: u32,
    pub rounds: u32,
}

/// What of these groups lacks clean rounds in a row that decides, and how many in the row that lacks the most. A block wants `rounds` (B). A layout wants what its own noise asks for,
/// within 6..30: a landing on which two threads meet is several times noisier than the others, and with as many rounds
/// as the as-built pair needs, the few noisy layouts alone would keep the code effect over layouts undecided to the last
/// look. Only a layout's noise is used, never its value, so that nothing is stopped when it looks good.
#[must_use]
pub fn lacking(record: &Record, groups: &[(Group, u32)], rounds: u32) -> Vec<Lacking> {
    let mut most: Vec<Lacking> = Vec::new();
    for (key, pilot) in Key::deciding(&record.header).into_iter().zip(pilots(record)) {
        let tolerance = pilot.map_or_else(|| super::decide::margin(record), |(tolerance, _)| tolerance);
        for lack in lacking_in(&Runs::of(record, key), tolerance, groups, rounds) {
            match most.iter_mut().find(|l| (l.group, l.number) == (lack.group, lack.number)) {
                Some(known) => known.rounds = known.rounds.max(lack.rounds),
                None => most.push(lack),
            }
        }
    }
    most
}

fn lacking_in(runs: &Runs, tolerance: f64, groups: &[(Group, u32)], rounds: u32) -> Vec<Lacking> {
    let lacks = |&(group, number): &(Group, u32)| {
        let units = match group {
            Group::Block => &runs.blocks,
            Group::Layout => &runs.layouts,
            Group::Aligned | Group::Twin => return None,
        };
        let unit = units.iter().find(|u| u.number == number);
        let wanted = match (group, unit) {
            (Group::Layout, Some(unit)) => layout_rounds(unit, tolerance),
            (Group::Layout, None) => PILOT_ROUNDS,
            _ => rounds,
        };
        let has = unit.map_or(0, |u| u.rounds.len() as u32);
        (has < wanted).then(|| Lacking { group, number, rounds: wanted - has })
    };
    groups.iter().filter_map(lacks).collect()
}

/// (s_l / M)², as for blocks, from the layout's first rounds.
fn layout_rounds(unit: &Unit, tolerance: f64) -> u32 {
    let first: Vec<f64> = unit.first_rounds(PILOT_ROUNDS as usize).differences().collect();
    let Some(centre) = robust::median(first.iter().copied()).filter(|_| first.len() > 1) else { return PILOT_ROUNDS };
    let n = first.len() as f64;
    let spread = robust::median(first.iter().map(|d| (d - centre).abs())).unwrap_or(0.0);
    let noise = 1.4826 * spread * (n / (n - 1.0)).sqrt();
    clamped((noise / tolerance).powi(2))
}

/// Rounded up to a multiple of 6, within 6..30. A float that is too large, or no number, saturates in `as`.
fn clamped(rounds: f64) -> u32 {
    (rounds.ceil() as u32).div_ceil(PILOT_ROUNDS).saturating_mul(PILOT_ROUNDS).clamp(PILOT_ROUNDS, MOST_ROUNDS)
}
