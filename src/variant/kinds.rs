//! What each kind of variant asks of one link: an [`Aim`] to be solved, or a plan made as it is.

use rand::Rng;

use super::classify::{Class, Family};
use super::draw::{align_all, random_lead, random_targets, targets_as_built};
use super::make::{Aim, Landed, land, make};
use super::plan::Plan;
use super::program::{Program, Unit};
use super::{LINE, Lead, phase};
use crate::error::{Error, Result};
use crate::link::{Glob, Relink};
use crate::units::Phase;

/// How a variant is asked for.
#[derive(Clone, Debug)]
pub enum Recipe {
    /// Solved, and corrected by what the linker does.
    Land(Aim),
    /// As it is written: all of its targets must be met.
    Make(Plan),
}

impl Recipe {
    /// Links and proves; what [`land`] and [`make`] say of errors holds.
    pub fn link(&self, program: &Program, link: &dyn Relink, output: &std::path::Path) -> Result<Landed> {
        match self {
            Recipe::Land(aim) => land(program, link, aim, output),
            Recipe::Make(plan) => {
                make(program, link, plan, output).map(|variant| Landed { variant, unmatched: Vec::new() })
            }
        }
    }
}

/// The one unit with bytes whose name (`src/hot.o:.data`, `libx.a(y.o):.bss`) the glob matches, as [`Glob`] reads it;
/// where there is none, the unit that holds a symbol whose name it matches. None or several is an error that lists names.
pub fn find<'a>(program: &'a Program, glob: &str) -> Result<&'a Unit> {
    let wanted = Glob::new(glob)?;
    let doing = format!("looking for the unit `{glob}`");
    let units = || program.units.iter().filter(|u| u.size > 0);
    let mut found: Vec<&Unit> = units().filter(|u| wanted.matches(&u.key.to_string())).collect();
    if found.is_empty() {
        found = units().filter(|u| program.symbols(u).any(|s| wanted.matches(s))).collect();
    }
    match found.as_slice() {
        [one] => Ok(one),
        [] => {
            let all =
                units().flat_map(|u| std::iter::once(u.key.to_string()).chain(program.symbols(u).map(str::to_owned)));
            let near = nearest(glob, all.collect());
            Err(Error::input(doing, format!("no unit and no symbol has this name; the nearest: {}", near.join(", "))))
        }
        several => {
            const SHOWN: usize = 8;
            let mut names: Vec<String> = several.iter().take(SHOWN).map(|u| u.key.to_string()).collect();
            if several.len() > SHOWN {
                names.push(format!("{} more", several.len() - SHOWN));
            }
            Err(Error::input(doing, format!("several match: {}", names.join(", "))).hint("name one of them"))
        }
    }
}

/// The names that have most pairs of letters in common with `word`, best first.
fn nearest(word: &str, mut names: Vec<String>) -> Vec<String> {
    const SHOWN: usize = 5;
    let pairs = |text: &str| -> std::collections::BTreeSet<(char, char)> {
        let text = text.to_lowercase();
        text.chars().zip(text.chars().skip(1)).collect()
    };
    let wanted = pairs(word);
    // Twice the share of common pairs (Dice), in thousandths.
    let likeness = |name: &String| {
        let own = pairs(name);
        2000 * own.intersection(&wanted).count() / (own.len() + wanted.len()).max(1)
    };
    names.sort_by_cached_key(|name| (std::cmp::Reverse(likeness(name)), name.clone()));
    names.dedup();
    names.truncate(SHOWN);
    names
}

/// A drawn phase for every unit of these families; the others stay on theirs.
#[must_use]
pub fn random(program: &Program, families: &[Family], rng: &mut impl Rng) -> Aim {
    let built = targets_as_built(program);
    let mut targets = random_targets(program, program, rng);
    for unit in program.units.iter().filter(|u| !of(families, u)) {
        if let (true, Some(&phase)) = (targets.contains_key(&unit.key), built.get(&unit.key)) {
            targets.insert(unit.key.clone(), phase);
        }
    }
    Aim { kind: "random".into(), targets, ..Aim::default() }
}

/// Every unit on its phase, behind whole lines: as many as given in front of each output section of these families that
/// can be padded, or a drawn number (0 to 63).
#[must_use]
pub fn placebo(program: &Program, families: &[Family], lines: Option<u64>, rng: &mut impl Rng) -> Aim {
    let mut lead: Lead = random_lead(program, rng);
    lead.retain(|output, _| program.rows().any(|(name, row)| name == output && row.iter().any(|u| of(families, u))));
    if let Some(lines) = lines {
        lead.values_mut().for_each(|n| *n = lines);
    }
    Aim { kind: "placebo".into(), targets: targets_as_built(program), lead, ..Aim::default() }
}

/// One factor: `unit` moves by `by` bytes, all others keep their phases, and the plan promises it. A negative move is
/// done forwards, to the same phase. A move by whole lines changes no phase, so its kind is `placebo`.
///
/// Fails where `by` is no multiple of the unit's alignment, or the unit cannot be moved.
pub fn shift(program: &Program, unit: &Unit, by: i64) -> Result<Aim> {
    let step = i64::try_from(alignment(unit)).unwrap_or(i64::MAX);
    if by == 0 || by % step != 0 {
        let problem = format!("{by} bytes are no multiple of its alignment {step}");
        return Err(Error::input(moving(unit), problem).hint(steps(unit)));
    }
    if by < 0 && by % LINE as i64 == 0 {
        return Err(
            Error::input(moving(unit), "pads only add: it cannot be moved back by whole lines").hint(steps(unit))
        );
    }
    let mut aim = about(program, unit, "shift")?;
    if by % LINE as i64 == 0 {
        aim.kind = "placebo".into();
    }
    let by_phase = by.rem_euclid(LINE as i64) as u64;
    aim.targets.insert(unit.key.clone(), phase(unit.address + by_phase));
    let lines = u64::try_from(by).unwrap_or(0) / LINE;
    if lines > 0 {
        let before = before(program, unit).ok_or_else(|| {
            Error::input(moving(unit), "nothing before it in its output section can be padded")
                .hint("name a unit that is linked after another one")
        })?;
        aim.behind.insert(before.key.clone(), lines);
    }
    Ok(aim)
}

/// One object on every phase that its alignment allows, from 0 on, everything else fixed.
pub fn cycle(program: &Program, unit: &Unit) -> Result<Vec<Aim>> {
    let step = alignment(unit);
    if step >= LINE {
        let problem = format!("it is aligned to {step} bytes: it has one phase only");
        return Err(Error::input(moving(unit), problem).hint("name a unit that is aligned to less than a line"));
    }
    let aim = about(program, unit, "cycle")?;
    let on = |phase: u64| {
        let mut aim = aim.clone();
        aim.targets.insert(unit.key.clone(), Phase(phase as u32));
        aim
    };
    Ok((0..LINE).step_by(step as usize).map(on).collect())
}

/// The unit starts on phase 0 and owns its lines; the others keep their phases.
pub fn isolate(program: &Program, unit: &Unit) -> Result<Aim> {
    let mut aim = about(program, unit, "isolate")?;
    aim.targets.insert(unit.key.clone(), Phase(0));
    aim.behind.insert(unit.key.clone(), u64::from(!unit.size.is_multiple_of(LINE)));
    Ok(Aim { alone: true, ..aim })
}

/// Every unit of these families on a boundary, with lines of its own.
#[must_use]
pub fn aligned(program: &Program, families: &[Family], align: u64) -> Plan {
    let to = |family| if families.contains(&family) { align } else { 0 };
    align_all(program, to(Family::Data), to(Family::Text))
}

/// The build's own objects, `names` as they stand on the link line, in a drawn order that is not the build's. Fails where
/// there are fewer than two.
pub fn shuffled(names: &[String], rng: &mut impl Rng) -> Result<Plan> {
    if names.len() < 2 {
        let problem = format!("{} of the build's own objects stand on the link line, not two", names.len());
        return Err(Error::input("ordering the objects", problem).hint("members of archives keep their order"));
    }
    let mut order = names.to_vec();
    while order == names {
        (1..order.len()).rev().for_each(|i| order.swap(i, rng.random_range(0..=i)));
    }
    Ok(Plan { kind: "order".into(), order, ..Plan::default() })
}

/// The objects that differ behind those that do not, each in the order they have.
#[must_use]
pub fn last(names: &[String], differ: impl Fn(&str) -> bool) -> Plan {
    let (last, first): (Vec<String>, Vec<String>) = names.iter().cloned().partition(|name| differ(name));
    Plan { kind: "changed-last".into(), order: [first, last].concat(), ..Plan::default() }
}

/// The landing as built, and what one unit needs to leave it.
fn about(program: &Program, unit: &Unit, kind: &str) -> Result<Aim> {
    if let Class::Kept(why) = &unit.class {
        return Err(Error::input(moving(unit), format!("it must not be touched: {why}")));
    }
    let subject = Some(unit.key.clone());
    Ok(Aim { kind: kind.into(), targets: targets_as_built(program), subject, ..Aim::default() })
}

/// The last unit before this one, in its output section, that can be padded.
fn before<'a>(program: &'a Program, unit: &Unit) -> Option<&'a Unit> {
    program.rows().find_map(|(_, row)| {
        let at = row.iter().position(|u| u.key == unit.key)?;
        row.iter().take(at).rfind(|u| u.class.paddable())
    })
}

/// Whether every thread has a copy of its own: the unit's phase is then that of the copy, which follows from the block
/// that a thread is given, not from the address alone.
#[must_use]
pub fn of_a_thread(unit: &Unit) -> bool {
    super::draw::thread_local(&unit.output)
}

/// What its place shows, where that is more than its section declares.
fn alignment(unit: &Unit) -> u64 {
    unit.align.max(unit.model_align).max(1)
}

fn steps(unit: &Unit) -> String {
    let step = alignment(unit);
    match step {
        LINE.. => format!("no shift changes its phase; --by {step} or --kind placebo moves it by whole lines"),
        _ => format!("--by with one of {step}, {}, …, {}", 2 * step, LINE - step),
    }
}

fn moving(unit: &Unit) -> String {
    format!("moving {}", unit.key)
}

fn of(families: &[Family], unit: &Unit) -> bool {
    matches!(unit.class, Class::Paddable(family) if families.contains(&family))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_are_drawn_and_the_changed_go_last() {
        use rand::SeedableRng;
        let names: Vec<String> = ["a", "b", "c"].map(str::to_owned).to_vec();
        let mut seen = std::collections::BTreeSet::new();
        for seed in 0..40 {
            let order = shuffled(&names, &mut rand_chacha::ChaCha8Rng::seed_from_u64(seed)).unwrap().order;
            assert_ne!(order, names);
            seen.insert(order);
        }
        assert_eq!(seen.len(), 5, "every order but the build's");
        assert!(shuffled(&names[..1], &mut rand_chacha::ChaCha8Rng::seed_from_u64(1)).is_err());
        assert_eq!(last(&names, |n| n == "a").order, ["b", "c", "a"]);
    }

    #[test]
    fn the_nearest_names_come_first() {
        let names = ["hot.o:.data", "cold.o:.bss", "queue", "main.o:.text"].map(str::to_owned);
        assert_eq!(nearest("hot.data", names.to_vec())[0], "hot.o:.data");
        assert_eq!(nearest("Queu", names.to_vec())[0], "queue");
    }
}
