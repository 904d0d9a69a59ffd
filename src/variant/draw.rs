//! Landings to ask for: as built, drawn at random, aligned; and what two versions have in common.

use std::collections::{BTreeMap, BTreeSet};

use rand::Rng;

use super::classify::{Class, Family};
use super::make::Unmatched;
use super::matched::Matched;
use super::object::Symbol;
use super::plan::Plan;
use super::program::{Program, Unit};
use super::{LINE, Lead, Targets, UnitKey, phase};
use crate::units::Phase;

/// What the two versions share. Only units with bytes count; an empty section has no phase that matters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Common {
    pub units: BTreeSet<UnitKey>,
    /// Units that cannot be matched, with the reason.
    pub rest: Vec<Unmatched>,
    /// Common units inside which common data moved against their start.
    pub inside: Vec<Inside>,
}

/// A unit whose start can be matched, and its inside not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inside {
    pub key: UnitKey,
    /// The larger of the two.
    pub align: u64,
    /// The largest power of two that divides every move within the line.
    pub grain: u64,
    /// One of those that moved, in words.
    pub what: String,
}

impl Inside {
    /// The distance between the phases that the unit can be given.
    fn step(&self) -> u64 {
        step(self.align)
    }

    /// Whether its data visits the same phases in both versions when the unit visits all of its own: there are enough of
    /// them, and what moved did so by whole steps.
    fn turns(&self) -> bool {
        self.align < 32 && self.grain >= self.step()
    }
}

impl Common {
    #[must_use]
    pub fn has(&self, key: &UnitKey) -> bool {
        self.units.contains(key)
    }
}

/// The landing of every unit that counts, as the build placed it.
#[must_use]
pub fn targets_as_built(program: &Program) -> Targets {
    counted(program).map(|u| (u.key.clone(), phase(u.address))).collect()
}

/// Units that both versions hold in the same output section; and the rest.
#[must_use]
pub fn common(base: &Program, patched: &Program) -> Common {
    let mut common = Common::default();
    for unit in counted(base) {
        let why = match patched.unit(&unit.key) {
            None => Some("only base has it".to_owned()),
            Some(other) => apart(unit, other),
        };
        match why {
            None => {
                common.units.insert(unit.key.clone());
            }
            Some(why) => common.rest.push((unit.key.clone(), why)),
        }
    }
    for unit in counted(patched) {
        match base.unit(&unit.key) {
            None => common.rest.push((unit.key.clone(), "only patched has it".into())),
            Some(other) if other.size == 0 => {
                common.rest.push((unit.key.clone(), "it has bytes only in patched".into()));
            }
            Some(other) => common.inside.extend(
                inside(base, other, patched, unit).filter(|_| common.units.contains(&unit.key)).map(|(grain, what)| {
                    Inside { key: unit.key.clone(), align: unit.align.max(other.align), grain, what }
                }),
            ),
        }
    }
    common
}

fn apart(base: &Unit, patched: &Unit) -> Option<String> {
    if patched.size == 0 {
        return Some("it has bytes only in base".into());
    }
    (patched.output != base.output).then(|| format!("patched holds it in {}", patched.output))
}

/// Data that both versions of a unit have, at offsets that differ within the line: the grain of their moves, and one of
/// them in words.
fn inside(base: &Program, b: &Unit, patched: &Program, p: &Unit) -> Option<(u64, String)> {
    let ((_, old), (_, new)) = (base.section(b)?, patched.section(p)?);
    if old.executable() || new.executable() {
        return None;
    }
    let (old, new) = (offsets(&old.symbols), offsets(&new.symbols));
    let moved = old.into_iter().filter_map(|(name, was)| {
        let (was, is) = (was?, (*new.get(name)?)?);
        let by = was.abs_diff(is) % LINE;
        (by != 0).then(|| (by, format!("{name} is at offset {was} in base, at {is} in patched")))
    });
    // The lowest bit that is set in any of them.
    moved.reduce(|(all, first), (by, _)| (all | by, first)).map(|(all, first)| (all & all.wrapping_neg(), first))
}

/// Offsets by name; `None` for a name that comes twice.
fn offsets(symbols: &[Symbol]) -> BTreeMap<&str, Option<u64>> {
    let mut all = BTreeMap::new();
    for symbol in symbols {
        all.entry(symbol.name.as_str()).and_modify(|v| *v = None).or_insert(Some(symbol.value));
    }
    all
}

/// A drawn landing, the same for both versions: each common unit gets a phase, uniform over the multiples of its
/// alignment (the larger of the two). Sections that declare less than 4 get multiples of 8: their content may be more
/// aligned than they say, and a lock that is split over two lines is no layout but a trap (67 µs each where seen).
///
/// A unit with nothing in front of it that can be padded keeps base's phase; where patched has another one there,
/// [`super::land`] names it. A unit that may not be padded is given none: it stands where the pad in front of the next
/// one that may be padded puts it. Draws are keyed by name, so that one more unit leaves the others as they were.
#[must_use]
pub fn random_targets(base: &Program, patched: &Program, rng: &mut impl Rng) -> Targets {
    let salt = rng.next_u64();
    let fixed: BTreeSet<&UnitKey> = unreachable(base).chain(unreachable(patched)).collect();
    let held: BTreeSet<&UnitKey> = held(base).chain(held(patched)).collect();
    let drawn = common(base, patched).units.into_iter().filter_map(|key| {
        let (b, p) = (base.unit(&key)?, patched.unit(&key)?);
        if fixed.contains(&key) {
            return Some((key, phase(b.address)));
        }
        if held.contains(&key) {
            return None;
        }
        let step = step(b.align.max(p.align));
        let phase = draw(salt, &key.to_string(), LINE / step) * step;
        Some((key, Phase(phase as u32)))
    });
    drawn.collect()
}

/// The distance between the phases that a unit is given.
fn step(align: u64) -> u64 {
    if align < 4 { 8 } else { align.min(LINE) }
}

/// How many landings make a full phase cycle of the units whose inside moved: over it, each of them stands as often at each
/// of its phases, in both versions alike. `None` where nothing moved, or where a cycle would not even it out.
#[must_use]
pub fn cycle(common: &Common) -> Option<u64> {
    let all = common.inside.iter().all(Inside::turns);
    common.inside.iter().map(|unit| LINE / unit.step()).max().filter(|_| all)
}

/// A landing, and those units so many steps further on.
#[must_use]
pub fn turned(common: &Common, targets: &Targets, steps: u64) -> Targets {
    let mut turned = targets.clone();
    for unit in &common.inside {
        if let Some(Phase(phase)) = turned.get_mut(&unit.key) {
            *phase = ((u64::from(*phase) + steps * unit.step()) % LINE) as u32;
        }
    }
    turned
}

/// 0 to 63 whole lines for each output section of base that can be padded, but for thread-local ones: their addresses
/// are offsets into a block that each thread is given, and mean nothing by themselves.
#[must_use]
pub fn random_lead(base: &Program, rng: &mut impl Rng) -> Lead {
    let salt = rng.next_u64();
    base.rows()
        .filter(|(output, row)| !thread_local(output) && row.iter().any(|u| u.class.paddable()))
        .map(|(output, _)| (output.to_owned(), draw(salt, output, LINE)))
        .collect()
}

/// Every paddable unit with bytes on a boundary of `data` or `text` bytes (powers of two), with its tail padded to the
/// next one, so that each unit owns its lines. Promised where the boundary is a line or more; 0 leaves a family alone.
#[must_use]
pub fn align_all(program: &Program, data: u64, text: u64) -> Plan {
    let mut plan = Plan { kind: "align-all".into(), ..Plan::default() };
    for unit in movable(program) {
        let align = if unit.class == Class::Paddable(Family::Text) { text } else { data };
        if align <= 1 {
            continue;
        }
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
    let moved: Vec<(&UnitKey, String)> =
        common.inside.iter().map(|unit| (&unit.key, format!("its inside moved: {}", unit.what))).collect();
    for (key, why) in &moved {
        rest.entry(key).or_insert(why);
    }
    let of = common.units.len() + common.rest.len();
    let named = |which: fn(&Inside) -> bool| {
        let of = common.inside.iter().filter(|unit| which(unit));
        of.map(|unit| format!("{} (alignment {})", unit.key, unit.align)).collect()
    };
    Matched {
        units: of.saturating_sub(rest.len()) as u32,
        of: of as u32,
        rest: rest.into_iter().map(|(key, why)| format!("{key}: {why}")).collect(),
        inside_moved: named(|_| true),
        rigid: named(|unit| unit.align >= 32),
    }
}

/// Written data that keeps different neighbours or phases in the two versions in at least half of the drawn layouts,
/// with a reason each: there the layouts average nothing out, and what the difference costs would be taken for the code.
/// `drawn` are the units that each layout missed. What is only read or executed is left to the names in the report: its
/// phase costs percents, a shared line that is written costs factors.
#[must_use]
pub fn held_apart(base: &Program, drawn: &[&[Unmatched]]) -> Vec<String> {
    let mut times: BTreeMap<&UnitKey, (usize, &str)> = BTreeMap::new();
    for missed in drawn {
        let each: BTreeMap<&UnitKey, &str> = missed.iter().map(|(key, why)| (key, why.as_str())).collect();
        each.into_iter().for_each(|(key, why)| times.entry(key).or_insert((0, why)).0 += 1);
    }
    let written = |key: &UnitKey| base.unit(key).is_some_and(|u| base.baseline.written(&u.output) && !cold(&u.output));
    let often = times.into_iter().filter(|(key, (n, _))| 2 * n >= drawn.len() && written(key));
    often.map(|(key, (_, why))| format!("{key} ({why})")).collect()
}

fn movable(program: &Program) -> impl Iterator<Item = &Unit> {
    program.units.iter().filter(|u| u.class.paddable() && u.size > 0)
}

/// Units whose landing counts: with bytes, in an output section that has a unit which may be padded, or is writable or
/// executable. That a unit itself must not be padded is no reason not to match it.
///
/// Rows that no hot data lives in do not count: unwind tables, what the dynamic linker reads once at the start (symbols,
/// strings, hashes, versions, relocations, arrays of constructors, `.dynamic`), code that runs once (`.init`, `.fini`),
/// notes, `.interp`, `.comment`. Counting them would name units in every report whose phase costs nothing.
fn counted(program: &Program) -> impl Iterator<Item = &Unit> {
    let rows = program.rows().filter(|(output, row)| {
        !cold(output) && (row.iter().any(|u| u.class.paddable()) || program.baseline.writable_or_code(output))
    });
    rows.flat_map(|(_, row)| row.iter().filter(|u| u.size > 0))
}

fn cold(output: &str) -> bool {
    const STEMS: [&str; 8] =
        [".eh_frame", ".gcc_except_table", ".gnu.", ".note", ".rela", ".rel.", ".relr.", ".init_array"];
    const NAMES: [&str; 14] = [
        ".dynsym",
        ".dynstr",
        ".dynamic",
        ".interp",
        ".hash",
        ".comment",
        ".init",
        ".fini",
        ".fini_array",
        ".preinit_array",
        ".ctors",
        ".dtors",
        ".jcr",
        ".tm_clone_table",
    ];
    STEMS.iter().any(|stem| output.starts_with(stem)) || NAMES.contains(&output)
}

pub(super) fn thread_local(output: &str) -> bool {
    output.starts_with(".tdata") || output.starts_with(".tbss")
}

/// Units that may not be padded: their phase follows from what is around them.
fn held(program: &Program) -> impl Iterator<Item = &UnitKey> {
    program.units.iter().filter(|u| !u.class.paddable()).map(|u| &u.key)
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
