//! Two versions on one landing: the same phases, and the same units on one line.
//!
//! Phases alone do not make a landing. Where one version has a unit between two that both have, the two may stand on
//! the same phases as in the other version, and yet no longer on one line. So the distance in whole lines between
//! neighbours is matched too, as far as pads (which only ever add) can; the rest is named.

use std::collections::{BTreeMap, BTreeSet};

use rand::Rng;

use super::draw::random_targets;
use super::make::{Aim, Unmatched};
use super::program::Program;
use super::solve::solve;
use super::{Common, Gap, LINE, Lead, Lines, Targets, UnitKey, phase};

/// A landing for both versions.
#[derive(Clone, Debug, Default)]
pub struct Joint {
    /// Those that were asked for, and for common units that were given none, what base's solution has.
    pub targets: Targets,
    pub lines: Lines,
    /// Where the two still differ, by arithmetic.
    pub differences: Vec<Unmatched>,
}

/// How often distances are matched anew: an alignment above the line may add lines to what was asked for.
const PASSES: usize = 4;

/// Solves one landing for both versions. The version with the smaller distance between two neighbours gets whole lines
/// more, and where a unit grew so that lines alone do not make the sharing equal, both get one more.
#[must_use]
pub fn together(base: &Program, patched: &Program, common: &Common, targets: &Targets, lead: &Lead) -> Joint {
    let mut aim = Aim { targets: targets.clone(), lead: lead.clone(), ..Aim::default() };
    let mut differences = Vec::new();
    for _ in 0..PASSES {
        let b = solve(base, &aim).places;
        for (unit, &(address, _)) in base.units.iter().zip(&b) {
            if common.has(&unit.key) {
                aim.targets.entry(unit.key.clone()).or_insert_with(|| phase(address));
            }
        }
        let p = solve(patched, &aim).places;
        differences = self::differences((base, &b), (patched, &p), common);
        let lines = joined(&neighbours(base, &b, common), &neighbours(patched, &p, common));
        if lines == aim.lines {
            break;
        }
        aim.lines = lines;
    }
    Joint { targets: aim.targets, lines: aim.lines, differences }
}

/// How often a landing is drawn anew because the two versions cannot share their lines alike on it.
const DRAWS: usize = 16;

/// A drawn landing for both versions: the first of the drawn ones on which the same units share a line in both. If there
/// is none, the one that comes closest is taken, and what differs is named.
#[must_use]
pub fn random_joint(base: &Program, patched: &Program, common: &Common, rng: &mut impl Rng) -> Joint {
    let lead = Lead::new();
    // Whether a fresh draw changes what stands at and before this unit.
    let drawn = |key: &UnitKey| base.unit(key).is_some_and(|u| u.class.paddable());
    let mut best: Option<Joint> = None;
    for _ in 0..DRAWS {
        let targets = random_targets(base, patched, rng);
        let joint = together(base, patched, common, &targets, &lead);
        let done = joint.differences.is_empty();
        if best.as_ref().is_none_or(|b| joint.differences.len() < b.differences.len()) {
            best = Some(joint);
        }
        // What no draw can change (the start of an output section) is the same in each: stop when nothing is left that
        // a draw could change.
        if done || !best.as_ref().is_some_and(|b| b.differences.iter().any(|(key, _)| drawn(key))) {
            break;
        }
    }
    best.unwrap_or_default()
}

/// The distances between neighbours in a landing of `program` that another version shall follow. `places` are addresses
/// and sizes in the order of [`Program::units`].
#[must_use]
pub fn lines_of(program: &Program, places: &[(u64, u64)], common: &Common) -> Lines {
    let all = neighbours(program, places, common);
    all.into_iter().map(|(key, n)| (key.clone(), Gap { after: n.after.clone(), lines: n.lines })).collect()
}

/// A common unit and the common unit before it in its output section.
struct Neighbour<'a> {
    after: &'a UnitKey,
    /// From the line of the one's first byte to the line of the other's.
    lines: u64,
    /// From the line of the earlier unit's first byte to the line of its last.
    spans: u64,
}

fn neighbours<'a>(
    program: &'a Program,
    places: &[(u64, u64)],
    common: &Common,
) -> BTreeMap<&'a UnitKey, Neighbour<'a>> {
    let mut found = BTreeMap::new();
    let mut last: Option<(&str, &UnitKey, u64, u64)> = None;
    for (unit, &(address, _)) in program.units.iter().zip(places).filter(|(u, _)| common.has(&u.key)) {
        let first = address / LINE;
        if let Some((output, after, from, to)) = last
            && output == unit.output
        {
            let lines = first.saturating_sub(from);
            found.insert(&unit.key, Neighbour { after, lines, spans: to.saturating_sub(from) });
        }
        last = Some((&unit.output, &unit.key, first, last_line(address, unit.size)));
    }
    found
}

fn last_line(address: u64, size: u64) -> u64 {
    address.saturating_add(size.saturating_sub(1)) / LINE
}

/// For neighbours of both: the larger distance, or the next one at which both or neither share a line.
fn joined(base: &BTreeMap<&UnitKey, Neighbour>, patched: &BTreeMap<&UnitKey, Neighbour>) -> Lines {
    let pairs = base.iter().filter_map(|(key, b)| Some((key, b, patched.get(key).filter(|p| p.after == b.after)?)));
    pairs
        .map(|(key, b, p)| {
            let mut lines = b.lines.max(p.lines);
            while (lines == b.spans) != (lines == p.spans) {
                lines += 1;
            }
            ((*key).clone(), Gap { after: b.after.clone(), lines })
        })
        .collect()
}

/// Where two landings that should be one differ: phases of common units, and which of them shares a line with the common
/// unit before it. Each difference once, with the reason; the first is base's code. Places as in [`lines_of`].
#[must_use]
pub fn differences(
    base: (&Program, &[(u64, u64)]),
    patched: (&Program, &[(u64, u64)]),
    common: &Common,
) -> Vec<Unmatched> {
    let (b, p) = (standing(base.0, base.1, common), standing(patched.0, patched.1, common));
    let mut found = Vec::new();
    for (key, here) in &b {
        let Some(there) = p.get(key) else { continue };
        let (x, y) = (phase(here.address), phase(there.address));
        if x != y {
            found.push(((*key).clone(), format!("it is on phase {x} in base, on {y} in patched")));
        }
        if here.shares != there.shares {
            let (one, with, other, apart) = match (here.shares, there.shares) {
                (Some(with), _) => ("base", with, "patched", patched),
                (None, Some(with)) => ("patched", with, "base", base),
                (None, None) => continue,
            };
            let between = between(apart.0, with, key, common);
            let why = match between.as_slice() {
                [] => String::new(),
                [one] => format!(": {one} stands between them"),
                [one, more @ ..] => format!(": {one} and {} more stand between them", more.len()),
            };
            found.push(((*key).clone(), format!("it shares a line with {with} in {one}, not in {other}{why}")));
        }
    }
    found
}

struct Standing<'a> {
    address: u64,
    /// The common unit before it, if they share a line.
    shares: Option<&'a UnitKey>,
}

/// `.tbss` takes no room in the image: its addresses are those of what follows, and share nothing with it.
fn standing<'a>(program: &'a Program, places: &[(u64, u64)], common: &Common) -> BTreeMap<&'a UnitKey, Standing<'a>> {
    let mut found = BTreeMap::new();
    let mut last: Option<(&UnitKey, u64)> = None;
    for (unit, &(address, _)) in program.units.iter().zip(places).filter(|(u, _)| common.has(&u.key)) {
        let shares = last.filter(|(_, line)| *line == address / LINE).map(|(key, _)| key);
        found.insert(&unit.key, Standing { address, shares });
        last = (unit.output != ".tbss").then(|| (&unit.key, last_line(address, unit.size)));
    }
    found
}

/// What only this version has between two units.
fn between<'a>(program: &'a Program, from: &UnitKey, to: &UnitKey, common: &Common) -> Vec<&'a UnitKey> {
    let at = |key: &UnitKey| program.units.iter().position(|u| u.key == *key);
    let (Some(from), Some(to)) = (at(from), at(to)) else { return Vec::new() };
    let inner = program.units.get(from + 1..to).unwrap_or_default();
    inner
        .iter()
        .filter(|u| u.size > 0 && !common.has(&u.key))
        .map(|u| &u.key)
        .collect::<BTreeSet<_>>()
        .into_iter()
        .collect()
}
