//! Landings to ask for: as built, drawn at random, aligned; and what two versions have in common.

use std::collections::{BTreeMap, BTreeSet};

use rand::Rng;

use super::classify::{Class, Family};
use super::make::Unmatched;
use super::plan::Plan;
use super::program::{Program, Unit};
use super::{LINE, Lead, Targets, UnitKey, phase};
use crate::measure::record::Matched;
use crate::units::Phase;

/// What the two versions share. Only units with bytes count; an empty section has no phase that matters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Common {
    pub units: Vec<UnitKey>,
    /// Units that cannot be matched, with the reason.
    pub rest: Vec<Unmatched>,
}

/// The landing of every paddable unit with bytes, as the build placed it.
#[must_use]
pub fn targets_as_built(program: &Program) -> Targets {
    movable(program).map(|u| (u.key.clone(), phase(u.address))).collect()
}

/// Units that both versions have, may pad, and hold in the same output section; and the rest.
#[must_use]
pub fn common(base: &Program, patched: &Program) -> Common {
    let mut common = Common::default();
    for unit in movable(base) {
        let other = patched.unit(&unit.key);
        let why = match other {
            None => Some("only base has it".to_owned()),
            Some(other) => apart(unit, other),
        };
        match why {
            None => common.units.push(unit.key.clone()),
            Some(why) => common.rest.push((unit.key.clone(), why)),
        }
    }
    for unit in movable(patched) {
        let why = match base.unit(&unit.key) {
            None => "only patched has it".to_owned(),
            Some(other) if other.size == 0 => "it has bytes only in patched".to_owned(),
            Some(Unit { class: Class::Kept(why), .. }) => format!("kept in base: {why}"),
            Some(_) => continue, // seen from base
        };
        common.rest.push((unit.key.clone(), why));
    }
    common
}

fn apart(base: &Unit, patched: &Unit) -> Option<String> {
    match &patched.class {
        Class::Kept(why) => Some(format!("kept in patched: {why}")),
        _ if patched.size == 0 => Some("it has bytes only in base".into()),
        _ if patched.output != base.output => Some(format!("patched holds it in {}", patched.output)),
        _ => None,
    }
}

/// A drawn landing, the same for both versions: each common unit gets a phase, uniform over the multiples of its
/// alignment (the larger of the two). Sections that declare less than 4 get multiples of 8: their content may be more
/// aligned than they say, and a lock that is split over two lines is no layout but a trap (67 µs each where seen).
///
/// A unit with nothing in front of it that can be padded keeps base's phase; where patched has another one there,
/// [`super::land`] names it. Draws are keyed by name, so that one more unit leaves the others as they were.
#[must_use]
pub fn random_targets(base: &Program, patched: &Program, rng: &mut impl Rng) -> Targets {
    let salt = rng.next_u64();
    let fixed: BTreeSet<&UnitKey> = unreachable(base).chain(unreachable(patched)).collect();
    let drawn = common(base, patched).units.into_iter().filter_map(|key| {
        let (b, p) = (base.unit(&key)?, patched.unit(&key)?);
        if fixed.contains(&key) {
            return Some((key, phase(b.address)));
        }
        let align = b.align.max(p.align);
        let step = if align < 4 { 8 } else { align.min(LINE) };
        let phase = draw(salt, &key.to_string(), LINE / step) * step;
        Some((key, Phase(phase as u32)))
    });
    drawn.collect()
}

/// 0 to 63 whole lines for each output section of base that can be padded.
#[must_use]
pub fn random_lead(base: &Program, rng: &mut impl Rng) -> Lead {
    let salt = rng.next_u64();
    base.rows()
        .filter(|(_, row)| row.iter().any(|u| u.class.paddable()))
        .map(|(output, _)| (output.to_owned(), draw(salt, output, LINE)))
        .collect()
}

/// Every paddable unit with bytes on a boundary of `data` or `text` bytes (powers of two), with its tail padded to the
/// next one, so that each unit owns its lines. Promised where the boundary is a line or more.
#[must_use]
pub fn align_all(program: &Program, data: u64, text: u64) -> Plan {
    let mut plan = Plan { kind: "align-all".into(), ..Plan::default() };
    for unit in movable(program) {
        let align = if unit.class == Class::Paddable(Family::Text) { text } else { data }.max(1);
        plan.aligns.insert(unit.key.clone(), align);
        plan.pads.insert(unit.key.clone(), unit.size.next_multiple_of(align) - unit.size);
        if align % LINE == 0 {
            plan.targets.insert(unit.key.clone(), Phase(0));
        }
    }
    plan
}

/// `matched 412 of 415 units`, and the rest by name: what the versions do not share, and what either of them missed.
#[must_use]
pub fn matched_report(common: &Common, missed: &[&[Unmatched]]) -> Matched {
    let mut rest: BTreeMap<&UnitKey, &str> = common.rest.iter().map(|(k, why)| (k, why.as_str())).collect();
    let wanted: BTreeSet<&UnitKey> = common.units.iter().collect();
    for (key, why) in missed.iter().copied().flatten().filter(|(k, _)| wanted.contains(k)) {
        rest.entry(key).or_insert(why);
    }
    let of = common.units.len() + common.rest.len();
    Matched {
        units: (of - rest.len()) as u32,
        of: of as u32,
        rest: rest.into_iter().map(|(key, why)| format!("{key}: {why}")).collect(),
    }
}

fn movable(program: &Program) -> impl Iterator<Item = &Unit> {
    program.units.iter().filter(|u| u.class.paddable() && u.size > 0)
}

/// Units with nothing in front of them in their output section that can be padded.
fn unreachable(program: &Program) -> impl Iterator<Item = &UnitKey> {
    program.rows().flat_map(|(_, row)| {
        let first = row.iter().position(|u| u.class.paddable()).map_or(row.len(), |at| at + 1);
        row.iter().take(first).map(|u| &u.key)
    })
}

/// A number below `n`, a power of two, that depends on salt and name only.
fn draw(salt: u64, name: &str, n: u64) -> u64 {
    let hash = blake3::Hasher::new().update(&salt.to_le_bytes()).update(name.as_bytes()).finalize();
    let number = hash.as_bytes().iter().take(8).fold(0u64, |n, &b| (n << 8) | u64::from(b));
    number & n.saturating_sub(1)
}
